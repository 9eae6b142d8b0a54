//! Finds the data and the end of chunked bodies (RFC 9112 section 7.1).
//!
//! Called by the engine when a head announces [`crate::request::Body::Chunked`], or an upstream's answer is
//! chunked. The caller must bound the amount.

use crate::refusal::refusals;
use crate::request::line::is_token_byte;

/// Maximum number of bytes of extensions after one chunk size.
const EXTENSION_BYTES_MAX: usize = 256;
/// Maximum number of bytes of trailer fields, line ends included.
const TRAILER_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of digits of a chunk size, leading zeros included: enough for a `u64`.
const SIZE_DIGITS_MAX: u8 = 16;

refusals! {
    /// Why a chunked body was refused. The connection must be closed, because the start of the next request is
    /// unknown.
    BadBody {
        Size BAD_REQUEST "A chunk size is not 1 to 16 hexadecimal digits";
        Extension BAD_REQUEST "A chunk extension has a control byte";
        ExtensionTooLong BAD_REQUEST "A chunk extension is too long";
        LineEnd BAD_REQUEST "A chunk does not end in CRLF";
        Trailer BAD_REQUEST "A trailer field is malformed or folded";
        TrailerTooLarge HEAD_TOO_LARGE "The trailer fields are too large";
    }
}

/// The result of one call of [`Chunked::skip`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Bytes of the input that belong to the body; all of them unless `done`.
    pub consumed: usize,
    /// Bytes of data among `consumed`.
    pub data_bytes: usize,
    /// Whether the body has ended. The next request begins after `consumed`.
    pub done: bool,
}

/// Finds the end of a chunked body, however its bytes are split.
///
/// Pass the bytes to [`Chunked::skip`] or [`Chunked::decode`] until [`Progress::done`]. After an error, drop it and close the
/// connection.
#[derive(Clone, Debug)]
pub struct Chunked {
    state: State,
    /// The size of the announced chunk, then the number of its data bytes that are left.
    chunk_bytes: u64,
    size_digits: u8,
    extension_bytes: usize,
    trailer_bytes: usize,
}

/// Bytes of one kind.
#[derive(Clone, Copy, Debug)]
struct Run {
    bytes: usize,
    is_data: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Size,
    Extension,
    /// Expects the LF of a size line.
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    /// Expects the LF of the final empty line.
    EndLf,
    Done,
}

impl Default for Chunked {
    fn default() -> Self {
        Self::new()
    }
}

impl Chunked {
    /// Starts at the front of a body.
    pub fn new() -> Self {
        Self { state: State::Size, chunk_bytes: 0, size_digits: 0, extension_bytes: 0, trailer_bytes: 0 }
    }

    /// Consumes the next bytes of the connection.
    ///
    /// # Errors
    /// [`BadBody`] at the first byte that cannot be part of a chunked body.
    pub fn skip(&mut self, bytes: &[u8]) -> Result<Progress, BadBody> {
        let mut progress = Progress::default();
        while self.state != State::Done {
            let Some(run) = self.next_run(&bytes[progress.consumed..])? else { return Ok(progress) };
            progress.consumed += run.bytes;
            progress.data_bytes += if run.is_data { run.bytes } else { 0 };
        }
        progress.done = true;
        Ok(progress)
    }

    /// Like [`Chunked::skip`], but also moves the data to the front of `bytes`, where it is
    /// [`Progress::data_bytes`] long. The bytes after the body stay where they are.
    ///
    /// # Errors
    /// As [`Chunked::skip`].
    pub fn decode(&mut self, bytes: &mut [u8]) -> Result<Progress, BadBody> {
        let mut progress = Progress::default();
        while self.state != State::Done {
            let from = progress.consumed;
            let Some(run) = self.next_run(&bytes[from..])? else { return Ok(progress) };
            progress.consumed += run.bytes;
            if run.is_data {
                bytes.copy_within(from..progress.consumed, progress.data_bytes);
                progress.data_bytes += run.bytes;
            }
        }
        progress.done = true;
        Ok(progress)
    }

    /// Consumes data, or one byte of framing; None if there are no bytes.
    fn next_run(&mut self, bytes: &[u8]) -> Result<Option<Run>, BadBody> {
        let [byte, ..] = bytes else { return Ok(None) };
        if self.state != State::Data {
            self.state = self.step(*byte)?;
            return Ok(Some(Run { bytes: 1, is_data: false }));
        }
        let taken = usize::try_from(self.chunk_bytes).unwrap_or(usize::MAX).min(bytes.len());
        self.chunk_bytes -= taken as u64;
        if self.chunk_bytes == 0 {
            self.state = State::DataCr;
        }
        Ok(Some(Run { bytes: taken, is_data: true }))
    }

    /// Consumes one byte that is not chunk data.
    fn step(&mut self, byte: u8) -> Result<State, BadBody> {
        match (self.state, byte) {
            (State::Size, _) => self.step_size(byte),
            (State::Extension, b'\r') => Ok(State::SizeLf),
            (State::Extension, _) => {
                self.extension_bytes += 1;
                if byte.is_ascii_control() && byte != b'\t' {
                    Err(BadBody::Extension)
                } else if self.extension_bytes > EXTENSION_BYTES_MAX {
                    Err(BadBody::ExtensionTooLong)
                } else {
                    Ok(State::Extension)
                }
            }
            (State::SizeLf, b'\n') => {
                // A size of zero marks the last chunk, which has neither data nor a line end.
                let is_last = self.chunk_bytes == 0;
                Ok(if is_last { State::TrailerStart } else { State::Data })
            }
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => {
                self.size_digits = 0;
                self.extension_bytes = 0;
                Ok(State::Size)
            }
            (State::EndLf, b'\n') | (State::Done | State::Data, _) => Ok(State::Done),
            (State::SizeLf | State::DataCr | State::DataLf | State::EndLf, _) => Err(BadBody::LineEnd),
            _ => self.step_trailer(byte),
        }
    }

    /// RFC 9112 section 7.1.1 allows whitespace before an extension's `;` for old clients. It is refused
    /// here, because two parsers could read it differently.
    fn step_size(&mut self, byte: u8) -> Result<State, BadBody> {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            b'\r' if self.size_digits > 0 => return Ok(State::SizeLf),
            b';' if self.size_digits > 0 => return Ok(State::Extension),
            _ => return Err(BadBody::Size),
        };
        if self.size_digits == SIZE_DIGITS_MAX {
            return Err(BadBody::Size);
        }
        self.size_digits += 1;
        self.chunk_bytes = (self.chunk_bytes << 4) | u64::from(digit);
        Ok(State::Size)
    }

    /// RFC 9112 section 7.1.2: trailer fields have the syntax of header fields. They are discarded.
    fn step_trailer(&mut self, byte: u8) -> Result<State, BadBody> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > TRAILER_BYTES_MAX {
            return Err(BadBody::TrailerTooLarge);
        }
        match (self.state, byte) {
            (State::TrailerStart, b'\r') => Ok(State::EndLf),
            (State::TrailerName, b':') => Ok(State::TrailerValue),
            (State::TrailerStart | State::TrailerName, _) if is_token_byte(byte) => Ok(State::TrailerName),
            (State::TrailerValue, b'\r') => Ok(State::TrailerLf),
            (State::TrailerValue, _) if byte == b'\t' || !byte.is_ascii_control() => Ok(State::TrailerValue),
            (State::TrailerLf, b'\n') => Ok(State::TrailerStart),
            (State::TrailerLf, _) => Err(BadBody::LineEnd),
            _ => Err(BadBody::Trailer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Parses all bytes at once.
    fn whole(bytes: &[u8]) -> Result<Progress, BadBody> {
        Chunked::new().skip(bytes)
    }

    /// Parses the bytes cut at the given places, and adds the results.
    fn pieces(bytes: &[u8], cuts: impl IntoIterator<Item = usize>) -> Result<Progress, BadBody> {
        let mut chunked = Chunked::new();
        let mut total = Progress::default();
        let mut start = 0;
        for end in cuts.into_iter().chain([bytes.len()]) {
            let progress = chunked.skip(&bytes[start..end])?;
            total.consumed += progress.consumed;
            total.data_bytes += progress.data_bytes;
            total.done = progress.done;
            start = end;
        }
        Ok(total)
    }

    #[test]
    fn good_bodies() {
        for (bytes, data_bytes) in [
            ("0\r\n\r\n", 0),
            ("5\r\nhello\r\n0\r\n\r\n", 5),
            ("A\r\n0123456789\r\n1\r\nx\r\n000\r\n\r\n", 11),
            ("a;name=value;x=\"y z\"\r\n0123456789\r\n0;last\r\n\r\n", 10),
            ("2\r\n\r\n\r\n0\r\nTrailer: x\r\nEmpty:\r\n\r\n", 2),
            ("0000000000000001\r\nx\r\n0\r\n\r\n", 1),
        ] {
            let next = format!("{bytes}GET / HTTP/1.1");
            let expected = Progress { consumed: bytes.len(), data_bytes, done: true };
            assert_eq!(whole(next.as_bytes()), Ok(expected), "{bytes:?}");
            // Only the last byte ends the body.
            let short = whole(&bytes.as_bytes()[..bytes.len() - 1]).unwrap();
            assert_eq!((short.consumed, short.done), (bytes.len() - 1, false), "{bytes:?}");
        }
    }

    #[test]
    fn data_moves_to_the_front_and_what_follows_stays() {
        let body = b"3;x\r\nabc\r\n2\r\nde\r\n0\r\nT: v\r\n\r\nnext";
        let mut bytes = *body;
        let progress = Chunked::new().decode(&mut bytes).expect("a body");
        assert_eq!(Ok(progress), whole(body));
        assert_eq!(
            (&bytes[..progress.data_bytes], &bytes[progress.consumed..]),
            (&b"abcde"[..], &b"next"[..])
        );
        for cut in 0..progress.consumed {
            let (mut first, mut second) = (body[..cut].to_vec(), body[cut..].to_vec());
            let mut chunked = Chunked::new();
            let one = chunked.decode(&mut first).expect("a part");
            let two = chunked.decode(&mut second).expect("the rest");
            assert_eq!(
                [&first[..one.data_bytes], &second[..two.data_bytes]].concat(),
                b"abcde",
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn bad_bodies() {
        use BadBody::*;
        for (bytes, expected) in [
            ("\r\n", Size),
            ("x\r\n", Size),
            (";a\r\n", Size),
            (" 5\r\nhello", Size),
            ("5 \r\nhello", Size),
            ("5 ;a\r\nhello", Size),
            ("+5\r\nhello", Size),
            ("-5\r\nhello", Size),
            ("0x5\r\nhello", Size),
            ("5_\r\n", Size),
            ("5\nhello", Size),
            ("5\t\r\n", Size),
            ("10000000000000000\r\n", Size),
            ("00000000000000001\r\n", Size),
            ("5\r\rhello", LineEnd),
            ("5\r\nhelloX", LineEnd),
            ("5\r\nhello\n", LineEnd),
            ("5\r\nhello\rX", LineEnd),
            ("5;a\n", Extension),
            ("5;a\0\r\n", Extension),
            ("5;a\x7f\r\n", Extension),
            ("5;a\rb", LineEnd),
            ("0\r\n\n", Trailer),
            ("0\r\n\rX", LineEnd),
            ("0\r\n folded: x\r\n", Trailer),
            ("0\r\nA: x\r\n folded\r\n\r\n", Trailer),
            ("0\r\nname\r\n\r\n", Trailer),
            ("0\r\nname : x\r\n\r\n", Trailer),
            ("0\r\n: x\r\n\r\n", Trailer),
            ("0\r\na: x\ny\r\n\r\n", Trailer),
            ("0\r\na: x\0\r\n\r\n", Trailer),
            ("0\r\na: x\ry", LineEnd),
        ] {
            assert_eq!(whole(bytes.as_bytes()), Err(expected), "{bytes:?}");
        }
    }

    #[test]
    fn bounds() {
        let with_extension = |len: usize| format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(len));
        assert!(whole(with_extension(256).as_bytes()).unwrap().done);
        assert_eq!(whole(with_extension(257).as_bytes()), Err(BadBody::ExtensionTooLong));
        // The bound applies to each chunk.
        let twice = format!("1;{0}\r\nx\r\n1;{0}\r\nx\r\n0\r\n\r\n", "e".repeat(200));
        assert!(whole(twice.as_bytes()).unwrap().done);

        let with_trailer = |len: usize| format!("0\r\na:{}\r\n\r\n", "t".repeat(len));
        assert!(whole(with_trailer(8_000).as_bytes()).unwrap().done);
        assert_eq!(whole(with_trailer(8_192).as_bytes()), Err(BadBody::TrailerTooLarge));
        let many = format!("0\r\n{}\r\n", "a:b\r\n".repeat(2_000));
        assert_eq!(whole(many.as_bytes()), Err(BadBody::TrailerTooLarge));
    }

    #[test]
    fn the_largest_chunk_size_does_not_overflow() {
        let mut chunked = Chunked::new();
        let progress = chunked.skip(b"ffffffffffffffff\r\nabc").unwrap();
        assert_eq!(progress, Progress { consumed: 21, data_bytes: 3, done: false });
        assert_eq!(chunked.chunk_bytes, u64::MAX - 3);
    }

    #[test]
    fn no_byte_is_consumed_after_the_end() {
        let mut chunked = Chunked::new();
        assert!(chunked.skip(b"0\r\n\r\n").unwrap().done);
        assert_eq!(chunked.skip(b"5\r\n"), Ok(Progress { consumed: 0, data_bytes: 0, done: true }));
    }

    #[test]
    fn every_split_in_three_gives_the_same() {
        for bytes in ["5;e=f\r\nhello\r\n0\r\nA: b\r\n\r\nGET", "5\r\nhello\r\n1\n", "0\r\nA : b\r\n\r\n"] {
            let bytes = bytes.as_bytes();
            for first in 0..=bytes.len() {
                for second in first..=bytes.len() {
                    assert_eq!(pieces(bytes, [first, second]), whole(bytes), "cut at {first} and {second}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_give_the_same_in_single_bytes(bytes in proptest::collection::vec(
            prop_oneof![
                any::<u8>(), Just(b'\r'), Just(b'\n'), Just(b'0'), Just(b'1'), Just(b';'), Just(b':'), Just(b'a'),
            ],
            0..40,
        )) {
            prop_assert_eq!(pieces(&bytes, 0..bytes.len()), whole(&bytes));
        }

        #[test]
        fn encoded_data_is_counted(sizes in proptest::collection::vec(1usize..200, 0..12), cut in 0usize..3_000) {
            let mut bytes: Vec<u8> = sizes.iter()
                .flat_map(|&size| [format!("{size:x}\r\n").into_bytes(), vec![b'\n'; size], b"\r\n".to_vec()].concat())
                .collect();
            bytes.extend_from_slice(b"0\r\n\r\n");
            let expected = Progress { consumed: bytes.len(), data_bytes: sizes.iter().sum(), done: true };
            prop_assert_eq!(pieces(&bytes, [cut.min(bytes.len())]), Ok(expected));
        }
    }
}
