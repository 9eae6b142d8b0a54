//! Lines of a file of unknown origin, each with a bound and a number.
//!
//! Lists and logs are read with it. It reads what it is given and knows no format.

use std::io::{self, BufRead, Read};

/// The longest line; servers refuse requests of a tenth of it.
pub(crate) const LINE_BYTES_MAX: usize = 64 * 1024;

/// The lines of `source`, one after the other in one buffer.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    source: R,
    line: Vec<u8>,
    number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// From 1.
    pub(crate) number: u64,
    /// Without its end; none when it is longer than [`LINE_BYTES_MAX`].
    pub(crate) bytes: Option<&'a [u8]>,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { source, line: Vec::new(), number: 0 }
    }

    /// The next line; none at the end.
    ///
    /// Errors: those of the source.
    pub(crate) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.line.clear();
        let limit = LINE_BYTES_MAX as u64 + 1;
        if (&mut self.source).take(limit).read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let is_whole = self.line.last() == Some(&b'\n');
        if !is_whole && self.line.len() > LINE_BYTES_MAX {
            self.source.skip_until(b'\n')?;
            return Ok(Some(Line { number: self.number, bytes: None }));
        }
        let mut bytes = self.line.as_slice();
        for end in [b"\n", b"\r"] {
            bytes = bytes.strip_suffix(end).unwrap_or(bytes);
        }
        Ok(Some(Line { number: self.number, bytes: Some(bytes) }))
    }
}

/// The first bytes of a line, to show it to people.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    const SHOWN_BYTES: usize = 60;
    let shown = bytes[..bytes.len().min(SHOWN_BYTES)].escape_ascii().to_string();
    if bytes.len() > SHOWN_BYTES { shown + "..." } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_and_without_ends_and_one_too_long() {
        let mut text = b"a\r\n\nb\n".to_vec();
        text.extend(vec![b'x'; LINE_BYTES_MAX]);
        text.push(b'\n');
        text.extend(vec![b'y'; 3 * LINE_BYTES_MAX]);
        text.extend(b"\nlast");
        let mut lines = Lines::new(text.as_slice());
        let mut found = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            found.push((line.number, line.bytes.map(<[u8]>::len)));
        }
        let longest = Some(LINE_BYTES_MAX);
        assert_eq!(found, [(1, Some(1)), (2, Some(0)), (3, Some(1)), (4, longest), (5, None), (6, Some(4))]);
    }

    #[test]
    fn excerpts_are_short_and_harmless() {
        assert_eq!(excerpt(b"a\x1b[31m\xff"), "a\\x1b[31m\\xff");
        assert_eq!(excerpt(&[b'a'; 61]), "a".repeat(60) + "...");
    }
}
