//! Chunked bodies: `flash_http::body` agrees with the grammar of RFC 9112 section 7.1, however the bytes
//! arrive.

use flash_http::{BadBody, Chunked, Progress};

use crate::text::{cuts, is_token};

/// The bounds that `flash_http::body` documents.
const EXTENSION_BYTES_MAX: usize = 256;
const TRAILER_BYTES_MAX: usize = 8 * 1024;
const SIZE_DIGITS_MAX: usize = 16;

/// Checks `input`, the bytes after a head that announces a chunked body.
pub fn body(input: &[u8]) {
    let whole = skip(input, [input.len()]);
    assert_eq!(whole, expected(input));
    assert_eq!(skip(input, 1..=input.len()), whole, "in single bytes");
    assert_eq!(skip(input, cuts(input)), whole, "in pieces");
    if let Ok(progress) = whole {
        assert!(progress.data_bytes <= progress.consumed && progress.consumed <= input.len());
        assert!(progress.done || progress.consumed == input.len());
        // The bytes after the body do not matter.
        assert_eq!(skip(&input[..progress.consumed], [progress.consumed]), whole);
    }
}

/// The sums over all pieces, cut at `ends`.
fn skip(input: &[u8], ends: impl IntoIterator<Item = usize>) -> Result<Progress, BadBody> {
    let mut chunked = Chunked::new();
    let mut total = Progress::default();
    let mut start = 0;
    for end in ends {
        let progress = chunked.skip(&input[start..end])?;
        total.consumed += progress.consumed;
        total.data_bytes += progress.data_bytes;
        total.done = progress.done;
        start = end;
    }
    Ok(total)
}

/// A plain reader of a body, complete or not.
struct Reader<'b> {
    input: &'b [u8],
    at: usize,
    data_bytes: usize,
}

/// Why reading stops.
enum Stop {
    /// The input ends.
    Short,
    Bad(BadBody),
}

impl Reader<'_> {
    fn peek(&self) -> Result<u8, Stop> {
        self.input.get(self.at).copied().ok_or(Stop::Short)
    }

    fn take(&mut self) -> Result<u8, Stop> {
        let byte = self.peek()?;
        self.at += 1;
        Ok(byte)
    }

    fn expect(&mut self, text: &[u8]) -> Result<(), Stop> {
        text.iter().try_for_each(|&wanted| match self.take()? {
            byte if byte == wanted => Ok(()),
            _ => Err(Stop::Bad(BadBody::LineEnd)),
        })
    }

    /// `chunk-size [ chunk-ext ] CRLF`.
    fn size_line(&mut self) -> Result<u64, Stop> {
        let start = self.at;
        while self.peek()?.is_ascii_hexdigit() {
            self.at += 1;
            if self.at - start > SIZE_DIGITS_MAX {
                return Err(Stop::Bad(BadBody::Size));
            }
        }
        let digits = String::from_utf8_lossy(&self.input[start..self.at]);
        let size = u64::from_str_radix(&digits, 16).map_err(|_| Stop::Bad(BadBody::Size))?;
        match self.peek()? {
            b'\r' => {}
            b';' => self.extension()?,
            _ => return Err(Stop::Bad(BadBody::Size)),
        }
        self.expect(b"\r\n")?;
        Ok(size)
    }

    fn extension(&mut self) -> Result<(), Stop> {
        self.at += 1;
        let start = self.at;
        loop {
            match self.peek()? {
                b'\r' => return Ok(()),
                byte if byte != b'\t' && byte.is_ascii_control() => {
                    return Err(Stop::Bad(BadBody::Extension));
                }
                _ if self.at - start == EXTENSION_BYTES_MAX => {
                    return Err(Stop::Bad(BadBody::ExtensionTooLong));
                }
                _ => self.at += 1,
            }
        }
    }

    fn data(&mut self, size: u64) -> Result<(), Stop> {
        let there = self.input.len() - self.at;
        let taken = usize::try_from(size).unwrap_or(usize::MAX).min(there);
        self.at += taken;
        self.data_bytes += taken;
        if taken as u64 == size { self.expect(b"\r\n") } else { Err(Stop::Short) }
    }

    /// Reads field lines and the empty line at the end.
    fn trailers(&mut self) -> Result<(), Stop> {
        let start = self.at;
        loop {
            if self.trailer_byte(start)? == b'\r' {
                return self.expect(b"\n");
            }
            let name = self.at - 1;
            while is_token(&self.input[self.at - 1..self.at]) {
                self.trailer_byte(start)?;
            }
            if self.input[self.at - 1] != b':' || self.at - 1 == name {
                return Err(Stop::Bad(BadBody::Trailer));
            }
            loop {
                match self.trailer_byte(start)? {
                    b'\r' => break,
                    byte if byte != b'\t' && byte.is_ascii_control() => {
                        return Err(Stop::Bad(BadBody::Trailer));
                    }
                    _ => {}
                }
            }
            if self.trailer_byte(start)? != b'\n' {
                return Err(Stop::Bad(BadBody::LineEnd));
            }
        }
    }

    fn trailer_byte(&mut self, start: usize) -> Result<u8, Stop> {
        let byte = self.take()?;
        if self.at - start > TRAILER_BYTES_MAX { Err(Stop::Bad(BadBody::TrailerTooLarge)) } else { Ok(byte) }
    }
}

fn expected(input: &[u8]) -> Result<Progress, BadBody> {
    let mut reader = Reader { input, at: 0, data_bytes: 0 };
    let mut chunks = || loop {
        match reader.size_line()? {
            0 => return reader.trailers(),
            size => reader.data(size)?,
        }
    };
    let done = match chunks() {
        Ok(()) => true,
        Err(Stop::Short) => false,
        Err(Stop::Bad(bad)) => return Err(bad),
    };
    Ok(Progress { consumed: reader.at, data_bytes: reader.data_bytes, done })
}
