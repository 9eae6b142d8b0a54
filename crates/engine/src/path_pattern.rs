//! The patterns of paths in rules. [`path_rules`](crate::path_rules) compares paths with them, and the server compares them with each other.

use std::collections::{BTreeSet, HashMap};

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
        self.parts(&other.typical()).is_some()
    }

    /// A path that fits this pattern, and no others than those that have every path of it.
    #[must_use]
    pub fn typical(&self) -> Vec<u8> {
        // No path of a config file has this character, so what fits it fits any other.
        self.pieces.join(&b"\x01"[..])
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

/// Patterns by the text before their first `*`, so that a path is compared with few of very many.
#[derive(Clone, Debug, Default)]
pub struct PatternIndex {
    of_beginning: HashMap<Vec<u8>, Vec<usize>>,
    /// The lengths of these texts.
    lengths: BTreeSet<usize>,
}

impl PatternIndex {
    /// Adds a pattern under a number, which is larger than those before it.
    pub fn push(&mut self, number: usize, pattern: &PathPattern) {
        let Some(beginning) = pattern.pieces.first() else { return };
        self.lengths.insert(beginning.len());
        self.of_beginning.entry(beginning.clone()).or_default().push(number);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// The first of the numbers before this one whose pattern fits a path, as `fits` finds out, with its result.
    pub fn first<T>(
        &self,
        path: &[u8],
        before: usize,
        mut fits: impl FnMut(usize) -> Option<T>,
    ) -> Option<(usize, T)> {
        let mut first: Option<(usize, T)> = None;
        for beginning in self.lengths.iter().map_while(|length| path.get(..*length)) {
            let numbers = self.of_beginning.get(beginning).map_or(&[][..], Vec::as_slice);
            let limit = first.as_ref().map_or(before, |(number, _)| *number);
            let earlier = numbers.iter().copied().take_while(|number| *number < limit);
            let found = earlier.into_iter().find_map(|number| Some((number, fits(number)?)));
            first = found.or(first);
        }
        first
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
    fn no_pattern_takes_longer_than_the_product_of_the_lengths() {
        // With backtracking, this would take longer than the universe has existed.
        let pattern = PathPattern::new(&format!("{}b", "*a".repeat(400)));
        let path = "a".repeat(8_192);
        assert_eq!(pattern.parts(path.as_bytes()), None);
        assert_eq!(pattern.parts(format!("{path}b").as_bytes()).map(|parts| parts.len()), Some(400));
    }

    #[test]
    fn an_index_finds_the_first_pattern_that_fits() {
        let texts = ["/a/*", "*.html", "/a/b*", "/*", "/a/b/*", "*"];
        let patterns = texts.map(PathPattern::new);
        let mut index = PatternIndex::default();
        assert!(index.is_empty());
        patterns.iter().enumerate().for_each(|(number, pattern)| index.push(number, pattern));
        for path in ["/a/b/c", "/a/b", "/x.html", "/x", "x", "", "/a/", "/a/x.html", "/é"] {
            for before in 0..=texts.len() {
                let fits = |number: usize| patterns[number].parts(path.as_bytes());
                let expected = (0..before).find_map(|number| Some((number, fits(number)?)));
                assert_eq!(index.first(path.as_bytes(), before, fits), expected, "{path} {before}");
            }
        }
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
