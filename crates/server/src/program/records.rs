//! The records of FastCGI between a worker and `cgi` (specification 1.0, section 3.3).

use std::io::{self, Read};

use flash_engine::fastcgi::{
    COMPLETE, Header, OtherVersion, RecordReader, RecordStep, kind, push_end, push_record,
};

const PIECE_BYTES: usize = 64 * 1024;

/// Received bytes that are not taken yet, and the record that they are divided into.
#[derive(Debug, Default)]
pub(super) struct Records {
    bytes: Vec<u8>,
    taken_bytes: usize,
    reader: RecordReader,
    /// The content of the record, as far as it has come.
    content: Vec<u8>,
}

impl Records {
    /// Reads more, after [`Records::next`] has found no record. False at the end of the input.
    ///
    /// Errors: those of the socket, `WouldBlock` among them.
    pub(super) fn fill(&mut self, mut socket: impl Read) -> io::Result<bool> {
        self.taken_bytes = 0;
        self.bytes.resize(PIECE_BYTES, 0);
        let read = socket.read(&mut self.bytes);
        self.bytes.truncate(read.as_ref().map_or(0, |count| *count));
        read.map(|count| count > 0)
    }

    /// The next record, if it is whole: its header and its content.
    ///
    /// Errors: `InvalidData` for a record of another version.
    pub(super) fn next(&mut self) -> io::Result<Option<(Header, Vec<u8>)>> {
        let invalid = |OtherVersion| io::Error::from(io::ErrorKind::InvalidData);
        while let Some(step) = self.reader.next(&self.bytes, &mut self.taken_bytes).map_err(invalid)? {
            match step {
                RecordStep::Begin(_) => self.content.clear(),
                RecordStep::Content(_, content) => self.content.extend_from_slice(&self.bytes[content]),
                RecordStep::End(header) => return Ok(Some((header, std::mem::take(&mut self.content)))),
            }
        }
        Ok(None)
    }
}

/// Appends a whole answer without a program.
pub(super) fn push_answer(out: &mut Vec<u8>, id: u16, status: &str) {
    let text = format!("Status: {status}\r\nContent-Type: text/plain\r\n\r\n{status}\n");
    push_record(out, kind::STDOUT, id, text.as_bytes());
    push_answer_end(out, id);
}

/// Appends the end of an answer, and of its request.
pub(super) fn push_answer_end(out: &mut Vec<u8>, id: u16) {
    push_record(out, kind::STDOUT, id, &[]);
    push_end(out, id, COMPLETE);
}

#[cfg(test)]
mod tests {
    use flash_engine::fastcgi::CONTENT_BYTES_MAX;

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
            for mut piece in sent.chunks(piece_bytes) {
                while !piece.is_empty() {
                    assert!(records.fill(&mut piece).expect("bytes"));
                    while let Some((header, content)) = records.next().expect("records") {
                        assert_eq!((header.kind, header.id, header.content_bytes), (5, 1, content.len()));
                        lengths.push(content.len());
                    }
                }
            }
            assert_eq!(lengths, [CONTENT_BYTES_MAX, 0, 2], "{piece_bytes}");
            assert!(!records.fill(&b""[..]).expect("the end"));
        }
        let mut other = Records::default();
        other.fill(&[2; 8][..]).expect("bytes");
        assert_eq!(other.next().expect_err("another version").kind(), io::ErrorKind::InvalidData);
    }
}
