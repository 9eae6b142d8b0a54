//! Divides the bytes of a connection into records (section 3.3), however they arrive. The only reader of records: both sides of a
//! connection use it.

use std::ops::Range;

use super::{HEADER_BYTES, Header};

/// The place in the stream of records.
#[derive(Clone, Copy, Debug)]
enum RecordPlace {
    /// Before or within a header.
    Header,
    /// Within a record, of which this much is left.
    Record { header: Header, content_bytes: usize, padding_bytes: usize },
}

/// A step in the stream of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordStep {
    /// A record begins.
    Begin(Header),
    /// These bytes of the input are the next ones of the record's content.
    Content(Header, Range<usize>),
    /// The record has come, with its padding.
    End(Header),
}

/// A record is not of FastCGI version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherVersion;

/// Reads records.
#[derive(Debug)]
pub struct RecordReader {
    place: RecordPlace,
    /// The first bytes of a header.
    kept: [u8; HEADER_BYTES],
    kept_bytes: usize,
}

impl Default for RecordReader {
    fn default() -> Self {
        Self { place: RecordPlace::Header, kept: [0; HEADER_BYTES], kept_bytes: 0 }
    }
}

impl RecordReader {
    /// The next step in `bytes` from `at` on, which is moved behind what was taken. None once all bytes are taken.
    ///
    /// # Errors
    ///
    /// A record of another version. The reader must not be used any more.
    pub fn next(&mut self, bytes: &[u8], at: &mut usize) -> Result<Option<RecordStep>, OtherVersion> {
        let start = *at;
        let there_bytes = bytes.len() - start;
        let step = match &mut self.place {
            RecordPlace::Header => {
                let count = there_bytes.min(HEADER_BYTES - self.kept_bytes);
                *at += count;
                self.kept[self.kept_bytes..self.kept_bytes + count].copy_from_slice(&bytes[start..*at]);
                self.kept_bytes += count;
                if self.kept_bytes < HEADER_BYTES {
                    return Ok(None);
                }
                self.kept_bytes = 0;
                let header = Header::parse(self.kept).ok_or(OtherVersion)?;
                let Header { content_bytes, padding_bytes, .. } = header;
                self.place = RecordPlace::Record { header, content_bytes, padding_bytes };
                RecordStep::Begin(header)
            }
            RecordPlace::Record { content_bytes: 1.., .. } if there_bytes == 0 => return Ok(None),
            RecordPlace::Record { header, content_bytes: left_bytes @ 1.., .. } => {
                let count = there_bytes.min(*left_bytes);
                *at += count;
                *left_bytes -= count;
                RecordStep::Content(*header, start..*at)
            }
            RecordPlace::Record { header, padding_bytes, .. } => {
                let count = there_bytes.min(*padding_bytes);
                *at += count;
                *padding_bytes -= count;
                if *padding_bytes > 0 {
                    return Ok(None);
                }
                let header = *header;
                self.place = RecordPlace::Header;
                RecordStep::End(header)
            }
        };
        Ok(Some(step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_arrive_in_any_pieces() {
        let sent = [
            &[1, 5, 0, 7, 0, 3, 2, 0][..],
            b"abc",
            &[0xff; 2],
            &[1, 6, 0, 0, 0, 0, 0, 0],
            &[1, 7, 0, 0, 0, 0, 1, 0],
            b"P",
            &[1, 5, 0, 8, 0, 1, 0, 0],
            b"d",
        ]
        .concat();
        for piece_bytes in 1..=sent.len() {
            let mut reader = RecordReader::default();
            let mut read = Vec::new();
            let mut content = Vec::new();
            for piece in sent.chunks(piece_bytes) {
                let mut at = 0;
                while let Some(step) = reader.next(piece, &mut at).expect("of version 1") {
                    match step {
                        RecordStep::Begin(_) => content.clear(),
                        RecordStep::Content(_, range) => content.extend_from_slice(&piece[range]),
                        RecordStep::End(header) => read.push((header.kind, header.id, content.clone())),
                    }
                }
                assert_eq!(at, piece.len());
            }
            let expected = [(5, 7, b"abc".to_vec()), (6, 0, vec![]), (7, 0, vec![]), (5, 8, b"d".to_vec())];
            assert_eq!(read, expected, "in pieces of {piece_bytes}");
        }
        assert_eq!(RecordReader::default().next(&[2; 8], &mut 0), Err(OtherVersion));
    }
}
