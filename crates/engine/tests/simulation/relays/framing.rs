//! The formats of HTTP and FastCGI as the applications and clients of the simulation read and write them. None of it
//! uses the code under test.

/// The byte at this offset of the body with this number. Bodies with different numbers differ in every byte, if the
/// numbers differ modulo 256.
pub(super) fn byte_of(number: usize, at: usize) -> u8 {
    (number * 167 + at * 31 + (at >> 8) * 7) as u8
}

/// A body of this length.
pub(super) fn body_of(number: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| byte_of(number, at)).collect()
}

/// Frames data as chunks of at most `chunk_bytes`, without the last chunk.
pub(super) fn chunks(data: &[u8], chunk_bytes: usize) -> Vec<u8> {
    let mut framed = Vec::new();
    for chunk in data.chunks(chunk_bytes) {
        framed.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        framed.extend_from_slice(chunk);
        framed.extend_from_slice(b"\r\n");
    }
    framed
}

/// The place in a body in chunks.
#[derive(Debug, Default)]
enum ChunkPlace {
    #[default]
    Size,
    Data(usize),
    /// After the data of a chunk.
    LineEnd,
    /// After the last chunk.
    Trailer,
    Done,
}

/// Reads a body in chunks.
#[derive(Debug, Default)]
pub(super) struct Dechunker {
    place: ChunkPlace,
    line: Vec<u8>,
}

impl Dechunker {
    pub(super) fn is_done(&self) -> bool {
        matches!(self.place, ChunkPlace::Done)
    }

    /// Takes bytes up to the end of the body, and returns how many. Appends the data to `data`.
    pub(super) fn take(&mut self, bytes: &[u8], data: &mut Vec<u8>) -> Result<usize, String> {
        let mut at = 0;
        while at < bytes.len() && !self.is_done() {
            if let ChunkPlace::Data(left) = &mut self.place {
                let count = (*left).min(bytes.len() - at);
                data.extend_from_slice(&bytes[at..at + count]);
                *left -= count;
                at += count;
                if *left == 0 {
                    self.place = ChunkPlace::LineEnd;
                }
                continue;
            }
            self.line.push(bytes[at]);
            at += 1;
            if self.line.ends_with(b"\r\n") {
                let line = std::mem::take(&mut self.line);
                self.end_line(&line[..line.len() - 2])?;
            }
        }
        Ok(at)
    }

    fn end_line(&mut self, line: &[u8]) -> Result<(), String> {
        let text = String::from_utf8_lossy(line);
        self.place = match self.place {
            ChunkPlace::Size => match usize::from_str_radix(&text, 16) {
                Ok(0) => ChunkPlace::Trailer,
                Ok(bytes) => ChunkPlace::Data(bytes),
                Err(_) => return Err(format!("{text:?} is no size of a chunk")),
            },
            ChunkPlace::LineEnd if line.is_empty() => ChunkPlace::Size,
            ChunkPlace::Trailer if line.is_empty() => ChunkPlace::Done,
            _ => return Err(format!("{text:?} within chunks")),
        };
        Ok(())
    }
}

/// Types of FastCGI records.
pub(super) const END_REQUEST: u8 = 3;
pub(super) const PARAMS: u8 = 4;
pub(super) const STDIN: u8 = 5;
pub(super) const STDOUT: u8 = 6;
pub(super) const STDERR: u8 = 7;

/// A FastCGI record of the request with the id 1.
pub(super) fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
    let [high, low] = (content.len() as u16).to_be_bytes();
    let mut bytes = vec![1, kind, 0, 1, high, low, padding, 0];
    bytes.extend_from_slice(content);
    bytes.extend(std::iter::repeat_n(b'P', padding.into()));
    bytes
}

/// Removes the record at the front of `bytes`, if it is complete. Returns its type and content.
pub(super) fn take_record(bytes: &mut Vec<u8>) -> Option<(u8, Vec<u8>)> {
    let [_, kind, _, _, high, low, padding, _] = *bytes.first_chunk::<8>()?;
    let content_bytes = usize::from(u16::from_be_bytes([high, low]));
    let end = 8 + content_bytes + usize::from(padding);
    let content = bytes.get(..end)?[8..8 + content_bytes].to_vec();
    bytes.drain(..end);
    Some((kind, content))
}

/// The value of a FastCGI parameter.
pub(super) fn param(pairs: &[u8], wanted: &str) -> Option<String> {
    let mut at = 0;
    let length = |at: &mut usize| -> Option<usize> {
        let first = *pairs.get(*at)?;
        if first < 128 {
            *at += 1;
            return Some(first.into());
        }
        let long = pairs.get(*at..*at + 4)?;
        *at += 4;
        Some(usize::from(long[1]) << 16 | usize::from(long[2]) << 8 | usize::from(long[3]))
    };
    while at < pairs.len() {
        let (name_bytes, value_bytes) = (length(&mut at)?, length(&mut at)?);
        let name = pairs.get(at..at + name_bytes)?;
        let value = pairs.get(at + name_bytes..at + name_bytes + value_bytes)?;
        at += name_bytes + value_bytes;
        if name == wanted.as_bytes() {
            return Some(String::from_utf8_lossy(value).into_owned());
        }
    }
    None
}
