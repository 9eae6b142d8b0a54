//! The records of FastCGI between a worker and `cgi` (specification 1.0, section 3.3).

use std::io::{self, Read};

use flash_engine::fastcgi::{COMPLETE, CONTENT_BYTES_MAX, HEADER_BYTES, Header, kind, push_record};

/// Bytes of the longest record.
const RECORD_BYTES_MAX: usize = HEADER_BYTES + CONTENT_BYTES_MAX + u8::MAX as usize;

/// Received bytes that are not taken yet: at most one record and the beginning of the next.
#[derive(Debug, Default)]
pub(super) struct Records {
    bytes: Vec<u8>,
}

impl Records {
    /// Reads more. False at the end of the input.
    ///
    /// Errors: those of the socket, `WouldBlock` among them.
    pub(super) fn fill(&mut self, mut socket: impl Read) -> io::Result<bool> {
        let kept_bytes = self.bytes.len();
        self.bytes.resize(kept_bytes + RECORD_BYTES_MAX, 0);
        let read = socket.read(&mut self.bytes[kept_bytes..]);
        self.bytes.truncate(kept_bytes + read.as_ref().map_or(0, |count| *count));
        read.map(|count| count > 0)
    }

    /// The next record, if it is whole: its header and its content.
    ///
    /// Errors: `InvalidData` for a record of another version.
    pub(super) fn next(&mut self) -> io::Result<Option<(Header, Vec<u8>)>> {
        let Some(header) = self.bytes.first_chunk() else { return Ok(None) };
        let header = Header::parse(*header).ok_or(io::ErrorKind::InvalidData)?;
        let content = HEADER_BYTES..HEADER_BYTES + header.content_bytes;
        let Some(found) = self.bytes.get(content.clone()) else { return Ok(None) };
        if self.bytes.len() < content.end + header.padding_bytes {
            return Ok(None);
        }
        let found = found.to_vec();
        self.bytes.drain(..content.end + header.padding_bytes);
        Ok(Some((header, found)))
    }
}

/// Appends a whole answer without a program.
pub(super) fn push_answer(out: &mut Vec<u8>, id: u16, status: &str) {
    let text = format!("Status: {status}\r\nContent-Type: text/plain\r\n\r\n{status}\n");
    push_record(out, kind::STDOUT, id, text.as_bytes());
    push_end(out, id, COMPLETE);
}

/// Appends the end of a request (section 5.5).
pub(super) fn push_end(out: &mut Vec<u8>, id: u16, status: u8) {
    push_record(out, kind::STDOUT, id, &[]);
    push_record(out, kind::END_REQUEST, id, &[0, 0, 0, 0, status, 0, 0, 0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_arrive_in_any_pieces() {
        let mut sent = Vec::new();
        push_record(&mut sent, 5, 1, &[7; CONTENT_BYTES_MAX]);
        push_record(&mut sent, 5, 1, b"");
        sent.extend([1, 5, 0, 1, 0, 2, 3, 0, b'a', b'b', 0, 0, 0]);
        for piece_bytes in [1, 7, 1_000, sent.len()] {
            let mut records = Records::default();
            let mut lengths = Vec::new();
            for piece in sent.chunks(piece_bytes) {
                assert!(records.fill(piece).expect("bytes"));
                while let Some((header, content)) = records.next().expect("records") {
                    assert_eq!((header.kind, header.id, header.content_bytes), (5, 1, content.len()));
                    lengths.push(content.len());
                }
            }
            assert_eq!(lengths, [CONTENT_BYTES_MAX, 0, 2], "{piece_bytes}");
            assert!(records.bytes.is_empty());
            assert!(!records.fill(&b""[..]).expect("the end"));
        }
        let mut other = Records::default();
        other.fill(&[2; 8][..]).expect("bytes");
        assert_eq!(other.next().expect_err("another version").kind(), io::ErrorKind::InvalidData);
    }
}
