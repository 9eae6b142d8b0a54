//! A body in chunks (RFC 9112 §7.1), taken apart as its bytes come.
//!
//! A response owns one. Pure; strict: no bare line feeds, no sizes beyond 16 digits.

/// The longest head of a response that is accepted; likewise the lines between two chunks, and the trailers.
pub(crate) const HEAD_BYTES_MAX: usize = 32 * 1024;
const DIGITS_MAX: usize = 16;

/// The bytes are no HTTP response, or more than one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbage;

/// Where in the body the next byte belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// To the line with the size of a chunk.
    #[default]
    Size,
    Data,
    /// To the end of the line behind a chunk.
    DataEnd,
    /// To a line of the trailers, the last of which is empty.
    Trailers,
    Complete,
}

/// The state between two pieces.
#[derive(Debug, Default)]
pub(crate) struct Chunked {
    at: At,
    left_bytes: u64,
    line: Vec<u8>,
    /// Bytes of lines since the last data.
    lines_bytes: usize,
}

impl Chunked {
    /// Takes `bytes` in, calls `on_data` with what is data, and gives whether that was all.
    ///
    /// Errors: what can't be, and bytes behind the end.
    pub(crate) fn feed(&mut self, bytes: &[u8], mut on_data: impl FnMut(&[u8])) -> Result<bool, Garbage> {
        let mut rest = bytes;
        while let Some(&byte) = rest.first() {
            if self.at != At::Data {
                self.take(byte)?;
                rest = &rest[1..];
                continue;
            }
            let length = rest.len().min(usize::try_from(self.left_bytes).unwrap_or(usize::MAX));
            let (data, after) = rest.split_at(length);
            on_data(data);
            self.left_bytes -= length as u64;
            rest = after;
            if self.left_bytes == 0 {
                (self.at, self.lines_bytes) = (At::DataEnd, 0);
            }
        }
        Ok(self.at == At::Complete)
    }

    fn take(&mut self, byte: u8) -> Result<(), Garbage> {
        self.line.push(byte);
        self.lines_bytes += 1;
        let is_end_wrong = self.at == At::DataEnd && !b"\r\n".starts_with(&self.line);
        if is_end_wrong || self.at == At::Complete || self.lines_bytes > HEAD_BYTES_MAX {
            return Err(Garbage);
        }
        let Some(line) = self.line.strip_suffix(b"\n") else { return Ok(()) };
        let line = line.strip_suffix(b"\r").filter(|line| !line.contains(&b'\r')).ok_or(Garbage)?;
        self.at = match self.at {
            At::Size => {
                self.left_bytes = size(line).ok_or(Garbage)?;
                if self.left_bytes == 0 { At::Trailers } else { At::Data }
            }
            At::DataEnd => At::Size,
            At::Trailers if line.is_empty() => At::Complete,
            At::Trailers => At::Trailers,
            At::Data | At::Complete => return Err(Garbage),
        };
        self.line.clear();
        Ok(())
    }
}

/// The size of a chunk, before white space, which RFC 9112 section 7.1.1 has recipients take, and an extension.
fn size(line: &[u8]) -> Option<u64> {
    let (digits, rest) = line.split_at(line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count());
    let is_form = digits.len() <= DIGITS_MAX && matches!(rest.first(), None | Some(b';' | b' ' | b'\t'));
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().filter(|_| is_form)
}
