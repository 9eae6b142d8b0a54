//! The patterns of paths in rules. [`path_rules`](crate::path_rules) compares paths with them, and the server compares them with each other.

/// The mark for any bytes.
const ANY: u8 = b'*';

/// A pattern of decoded paths: each `*` stands for any bytes, or for none, slashes included. It has no other marks, so no
/// match takes longer than the product of the lengths of path and pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    /// The texts between the marks.
    pieces: Vec<Vec<u8>>,
}

impl PathPattern {
    /// The pattern that this text describes.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self { pieces: text.as_bytes().split(|byte| *byte == ANY).map(<[u8]>::to_vec).collect() }
    }

    /// The only path that it has, if it has no `*`.
    pub(crate) fn exact(&self) -> Option<&[u8]> {
        if let [path] = &self.pieces[..] { Some(path) } else { None }
    }

    /// Whether it has every path that another pattern has.
    #[must_use]
    pub fn has_all_of(&self, other: &Self) -> bool {
        // No path of a config file has this character, so what fits it fits any other.
        self.parts(&other.pieces.join(&b"\x01"[..])).is_some()
    }

    /// The parts of a path for which each `*` stands, as short as can be; None if the path does not fit.
    #[must_use]
    pub fn parts<'p>(&self, path: &'p [u8]) -> Option<Vec<&'p [u8]>> {
        let (first, others) = self.pieces.split_first()?;
        let mut rest = path.strip_prefix(&first[..])?;
        let Some((last, middle)) = others.split_last() else { return rest.is_empty().then(Vec::new) };
        let mut parts = Vec::with_capacity(others.len());
        for piece in middle {
            let at = find(rest, piece)?;
            parts.push(&rest[..at]);
            rest = &rest[at + piece.len()..];
        }
        parts.push(rest.strip_suffix(&last[..])?);
        Some(parts)
    }
}

/// The first place of a piece in a path.
fn find(path: &[u8], piece: &[u8]) -> Option<usize> {
    if piece.is_empty() { Some(0) } else { path.windows(piece.len()).position(|part| part == piece) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts<'p>(pattern: &str, path: &'p str) -> Option<Vec<&'p str>> {
        let parts = PathPattern::new(pattern).parts(path.as_bytes())?;
        Some(parts.into_iter().map(|part| std::str::from_utf8(part).unwrap()).collect())
    }

    #[test]
    fn a_pattern_fits_whole_paths() {
        assert_eq!(parts("/a", "/a"), Some(vec![]));
        assert_eq!(parts("/a", "/ab"), None);
        assert_eq!(parts("*", "/a/b"), Some(vec!["/a/b"]));
        assert_eq!(parts("/a/*", "/a/"), Some(vec![""]));
        assert_eq!(parts("/a/*", "/a"), None);
        assert_eq!(parts("*.html", "/x/y.html"), Some(vec!["/x/y"]));
        assert_eq!(parts("/a*a", "/a"), None, "no byte counts twice");
        assert_eq!(parts("/*/old/*.html", "/x/old/old/y.html"), Some(vec!["x", "old/y"]));
        assert_eq!(parts("/**", "/x"), Some(vec!["", "x"]));
        assert_eq!(parts("/*/x", "/a/b"), None);
    }
}
