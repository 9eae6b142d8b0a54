//! The records of FastCGI (specification 1.0), as both sides of a connection send and read them.
//!
//! Pure. [`backend`](crate::backend), and the server's programs of `cgi`, are the side of an application; `client` is the side
//! of a web server. Both read records with [`RecordReader`]. Neither the order of records nor their meaning is decided here.

pub(crate) mod client;
mod records;

pub use records::{OtherVersion, RecordReader, RecordStep};

/// Bytes of the header of a record.
pub const HEADER_BYTES: usize = 8;
/// Maximum bytes of the content of a record.
pub const CONTENT_BYTES_MAX: usize = u16::MAX as usize;
/// Maximum bytes of a name or a value.
const TEXT_BYTES_MAX: usize = 0x7fff_ffff;

/// The version of every record.
const VERSION: u8 = 1;

/// The role that answers requests (section 6.2).
pub const RESPONDER: u16 = 1;
/// The flag of a request after which the application leaves the connection open (section 5.1).
pub const KEEP_CONNECTION: u8 = 1;
/// The `protocolStatus` of a request that was not refused (section 5.5).
pub const COMPLETE: u8 = 0;
/// The `protocolStatus` of a request with a role that the application does not have.
pub const UNKNOWN_ROLE: u8 = 3;

/// Record types (section 8).
#[allow(missing_docs, reason = "the names are those of the specification")]
pub mod kind {
    pub const BEGIN_REQUEST: u8 = 1;
    pub const ABORT_REQUEST: u8 = 2;
    pub const END_REQUEST: u8 = 3;
    pub const PARAMS: u8 = 4;
    pub const STDIN: u8 = 5;
    pub const STDOUT: u8 = 6;
    pub const STDERR: u8 = 7;
    pub const GET_VALUES: u8 = 9;
    pub const GET_VALUES_RESULT: u8 = 10;
    pub const UNKNOWN_TYPE: u8 = 11;
}

/// The header of a record (section 3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its type: one of [`kind`].
    pub kind: u8,
    /// The request that the record belongs to; 0 if it is about the application itself.
    pub id: u16,
    /// Bytes of its content, which follows the header.
    pub content_bytes: usize,
    /// Bytes without meaning after the content.
    pub padding_bytes: usize,
}

impl Header {
    /// None if the record is of another version.
    pub fn parse(bytes: [u8; HEADER_BYTES]) -> Option<Self> {
        let [version, kind, id_high, id_low, high, low, padding, _] = bytes;
        (version == VERSION).then_some(Self {
            kind,
            id: u16::from_be_bytes([id_high, id_low]),
            content_bytes: usize::from(u16::from_be_bytes([high, low])),
            padding_bytes: usize::from(padding),
        })
    }
}

/// Appends a record without padding. The content is cut at [`CONTENT_BYTES_MAX`].
pub fn push_record(out: &mut Vec<u8>, kind: u8, id: u16, content: &[u8]) {
    push_padded(out, kind, id, content, 0);
}

/// Appends a record with this much padding. The content is cut at [`CONTENT_BYTES_MAX`].
fn push_padded(out: &mut Vec<u8>, kind: u8, id: u16, content: &[u8], padding_bytes: u8) {
    let content = &content[..content.len().min(CONTENT_BYTES_MAX)];
    let [id_high, id_low] = id.to_be_bytes();
    let [high, low] = (content.len() as u16).to_be_bytes();
    out.extend_from_slice(&[VERSION, kind, id_high, id_low, high, low, padding_bytes, 0]);
    out.extend_from_slice(content);
    out.resize(out.len() + usize::from(padding_bytes), 0);
}

/// Appends the end of a request with this `protocolStatus` (section 5.5).
pub fn push_end(out: &mut Vec<u8>, id: u16, status: u8) {
    push_record(out, kind::END_REQUEST, id, &[0, 0, 0, 0, status, 0, 0, 0]);
}

/// Appends a name and its value (section 3.4). A pair with a text of 2 GiB or more has no encoding, and is left out.
pub fn push_pair(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    if name.len().max(value.len()) > TEXT_BYTES_MAX {
        return;
    }
    for length in [name.len(), value.len()] {
        match length {
            0..0x80 => out.push(length as u8),
            _ => out.extend_from_slice(&(length as u32 | 0x8000_0000).to_be_bytes()),
        }
    }
    out.extend_from_slice(name);
    out.extend_from_slice(value);
}

/// Names and values (section 3.4). Ends at the first one that is not whole.
#[derive(Clone, Debug)]
pub struct Pairs<'b>(pub &'b [u8]);

impl<'b> Pairs<'b> {
    fn length(&mut self) -> Option<usize> {
        match self.0 {
            [short, rest @ ..] if *short < 0x80 => {
                self.0 = rest;
                Some(usize::from(*short))
            }
            [a, b, c, d, rest @ ..] => {
                self.0 = rest;
                usize::try_from(u32::from_be_bytes([*a & 0x7f, *b, *c, *d])).ok()
            }
            _ => None,
        }
    }

    fn text(&mut self, length: usize) -> Option<&'b [u8]> {
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }
}

impl<'b> Iterator for Pairs<'b> {
    type Item = (&'b [u8], &'b [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (name_bytes, value_bytes) = (self.length()?, self.length()?);
        Some((self.text(name_bytes)?, self.text(value_bytes)?))
    }
}

/// A response that was read, for the checks.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseRead {
    /// The data of the response.
    pub data: Vec<u8>,
    /// The kept bytes of the application's standard error.
    pub errors: Vec<u8>,
    /// The end of the request, if it came: the application's status, or the `protocolStatus` of a refusal.
    pub end: Option<Result<u32, u8>>,
}

/// Reads a response that arrives in these pieces.
///
/// # Errors
///
/// The reason for which a record was refused.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn read_response<'b>(pieces: impl Iterator<Item = &'b [u8]>) -> Result<ResponseRead, &'static str> {
    let mut reader = client::ResponseReader::default();
    let mut read = ResponseRead::default();
    for piece in pieces {
        let mut bytes = piece.to_vec();
        let taken = reader.take(&mut bytes, &mut read.errors).map_err(client::BadRecord::reason)?;
        read.data.extend_from_slice(&bytes[..taken.data_bytes]);
        read.end = taken.ended.map(|end| match end {
            client::RequestEnd::Complete { app_status } => Ok(app_status),
            client::RequestEnd::Refused(status) => Err(status),
        });
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_as_they_were_written() {
        let lengths = [0, 1, 127, 128, 70_000];
        let texts = lengths.map(|length| vec![b'x'; length]);
        let mut bytes = Vec::new();
        for name in &texts {
            texts.iter().for_each(|value| push_pair(&mut bytes, name, value));
        }
        let mut read = Pairs(&bytes);
        for name in &texts {
            for value in &texts {
                assert_eq!(read.next(), Some((name.as_slice(), value.as_slice())));
            }
        }
        assert_eq!((read.next(), read.0), (None, &[][..]));
    }

    #[test]
    fn the_lengths_of_pairs() {
        let front = |name_bytes: usize, value_bytes: usize| {
            let mut bytes = Vec::new();
            push_pair(&mut bytes, &vec![0; name_bytes], &vec![0; value_bytes]);
            bytes.truncate(bytes.len() - name_bytes - value_bytes);
            bytes
        };
        assert_eq!(front(0, 127), [0, 127]);
        assert_eq!(front(3, 128), [3, 0x80, 0, 0, 128]);
        assert_eq!(front(70_000, 1), [0x80, 1, 0x11, 0x70, 1]);
    }

    #[test]
    fn pairs_that_are_not_whole_end_the_list() {
        for bytes in
            [&b"\x01"[..], b"\x01\x01a", b"\x80\0\0", b"\xff\xff\xff\xff\xff\xff\xff\xffa", b"\0\x80"]
        {
            let bytes = [b"\x01\x01ab", bytes].concat();
            assert_eq!(Pairs(&bytes).collect::<Vec<_>>(), [(&b"a"[..], &b"b"[..])]);
        }
    }

    #[test]
    fn headers() {
        let header = Header { kind: 77, id: 0x102, content_bytes: 0x304, padding_bytes: 5 };
        assert_eq!(Header::parse([1, 77, 1, 2, 3, 4, 5, 6]), Some(header));
        assert_eq!(Header::parse([0, 77, 1, 2, 3, 4, 5, 6]), None);
        assert_eq!(Header::parse([2, 77, 1, 2, 3, 4, 5, 6]), None);
    }

    #[test]
    fn a_content_too_long_is_cut() {
        let mut bytes = Vec::new();
        push_record(&mut bytes, 6, 0x102, &[7; CONTENT_BYTES_MAX + 1]);
        assert_eq!(bytes[..HEADER_BYTES], [1, 6, 1, 2, 255, 255, 0, 0]);
        assert_eq!(bytes.len(), HEADER_BYTES + CONTENT_BYTES_MAX);
    }
}
