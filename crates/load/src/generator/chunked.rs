//! A body in chunks (RFC 9112 §7.1), taken apart as its bytes come.
//!
//! A response owns one. Pure; strict: no bare line feeds, no sizes beyond 16 digits.

/// The longest head of a response that is accepted; trailers likewise.
pub(crate) const HEAD_BYTES_MAX: usize = 32 * 1024;
/// The longest extension of a chunk.
const EXTENSION_BYTES_MAX: usize = 4096;
/// Digits of a chunk's size.
const DIGITS_MAX: u8 = 16;

/// The bytes are no HTTP response, or more than one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbage;

/// Where in the body the next byte belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// In the digits of a size, after this many.
    Size {
        digits: u8,
    },
    /// In an extension, after this many bytes.
    Extension {
        bytes: usize,
    },
    /// Before the line feed that ends a size.
    SizeEnd,
    /// In the bytes of a chunk.
    Data,
    /// Before the carriage return behind a chunk, and before the line feed.
    DataReturn,
    DataEnd,
    /// At the start of a line of the trailers, within one, before its line feed.
    Trailer,
    TrailerLine,
    TrailerLineEnd,
    /// Before the line feed that ends it all.
    End,
    Complete,
}

/// The state between two pieces.
#[derive(Debug)]
pub(crate) struct Chunked {
    at: At,
    /// The bytes of the chunk that are still to come.
    left_bytes: u64,
    trailer_bytes: usize,
}

impl Default for Chunked {
    fn default() -> Self {
        Self { at: At::Size { digits: 0 }, left_bytes: 0, trailer_bytes: 0 }
    }
}

impl Chunked {
    /// Takes `bytes` in, calls `on_data` with what is data, and gives whether that was all.
    ///
    /// Errors: what can't be, and bytes behind the end.
    pub(crate) fn feed(&mut self, bytes: &[u8], mut on_data: impl FnMut(&[u8])) -> Result<bool, Garbage> {
        let mut rest = bytes;
        while let Some(&byte) = rest.first() {
            if self.at == At::Data {
                let length = rest.len().min(usize::try_from(self.left_bytes).unwrap_or(usize::MAX));
                let (data, after) = rest.split_at(length);
                on_data(data);
                self.left_bytes -= length as u64;
                rest = after;
                if self.left_bytes == 0 {
                    self.at = At::DataReturn;
                }
                continue;
            }
            self.at = self.step(byte)?;
            rest = &rest[1..];
        }
        Ok(self.at == At::Complete)
    }

    /// The state after a byte outside of data.
    fn step(&mut self, byte: u8) -> Result<At, Garbage> {
        if matches!(self.at, At::Trailer | At::TrailerLine) {
            self.trailer_bytes += 1;
            if self.trailer_bytes > HEAD_BYTES_MAX {
                return Err(Garbage);
            }
        }
        Ok(match (self.at, byte) {
            (At::Size { digits: 1.. }, b'\r') => At::SizeEnd,
            // RFC 9112 §7.1.1 has recipients take white space here.
            (At::Size { digits: 1.. }, b';' | b' ' | b'\t') => At::Extension { bytes: 0 },
            (At::Size { digits: 0..DIGITS_MAX }, digit) => {
                let digit = (digit as char).to_digit(16).ok_or(Garbage)?;
                self.left_bytes = self.left_bytes << 4 | u64::from(digit);
                let At::Size { digits } = self.at else { return Err(Garbage) };
                At::Size { digits: digits + 1 }
            }
            (At::Extension { .. }, b'\r') => At::SizeEnd,
            (At::Extension { bytes: 0..EXTENSION_BYTES_MAX }, byte) if byte != b'\n' => {
                let At::Extension { bytes } = self.at else { return Err(Garbage) };
                At::Extension { bytes: bytes + 1 }
            }
            (At::SizeEnd, b'\n') if self.left_bytes == 0 => At::Trailer,
            (At::SizeEnd, b'\n') => At::Data,
            (At::DataReturn, b'\r') => At::DataEnd,
            (At::DataEnd, b'\n') => At::Size { digits: 0 },
            (At::Trailer, b'\r') => At::End,
            (At::TrailerLine, b'\r') => At::TrailerLineEnd,
            (At::Trailer | At::TrailerLine, byte) if byte != b'\n' => At::TrailerLine,
            (At::TrailerLineEnd, b'\n') => At::Trailer,
            (At::End, b'\n') => At::Complete,
            _ => return Err(Garbage),
        })
    }
}
