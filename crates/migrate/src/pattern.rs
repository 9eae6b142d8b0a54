//! Forms of paths as Flash's rules have them: each `*` stands for any characters, or for none.
//!
//! The same as `PathPattern` of the engine, with one question more: whether two forms have a path in common.

/// The most `*` of a form, and its most bytes (docs/config.md).
pub(crate) const STARS_MAX: usize = 8;
pub(crate) const BYTES_MAX: usize = 1_024;

/// Whether Flash takes this form.
pub(crate) fn is_form(text: &str) -> bool {
    text.starts_with(['/', '*'])
        && text.len() <= BYTES_MAX
        && text.matches('*').count() <= STARS_MAX
        && !text.contains(char::is_control)
}

/// Whether two forms have a path in common.
pub(crate) fn overlap(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if !ends_agree(one.iter(), other.iter()) || !ends_agree(one.iter().rev(), other.iter().rev()) {
        return false;
    }
    // `fits[at]` says whether the rest of `one` from its current byte overlaps that of `other` from `at`.
    let mut after = vec![false; other.len() + 1];
    for at_one in (0..=one.len()).rev() {
        let mut fits = vec![false; other.len() + 1];
        for at in (0..=other.len()).rev() {
            fits[at] = match (one.get(at_one), other.get(at)) {
                (None, None) => true,
                (Some(b'*'), None) => after[at],
                (Some(b'*'), Some(_)) => after[at] || fits[at + 1],
                (None, Some(b'*')) => fits[at + 1],
                (Some(_), Some(b'*')) => fits[at + 1] || after[at],
                (Some(a), Some(b)) => a == b && after[at + 1],
                (None, Some(_)) | (Some(_), None) => false,
            };
        }
        after = fits;
    }
    after[0]
}

/// Whether two forms agree up to the first `*` of either.
fn ends_agree<'a>(one: impl Iterator<Item = &'a u8>, other: impl Iterator<Item = &'a u8>) -> bool {
    one.zip(other).take_while(|(a, b)| **a != b'*' && **b != b'*').all(|(a, b)| a == b)
}

/// Whether every path of `other` is one of `one`.
pub(crate) fn has_all_of(one: &str, other: &str) -> bool {
    let mut pieces = one.split('*');
    // No path has this character, so what fits it fits any other.
    let other = other.replace('*', "\u{1}");
    let Some(mut rest) = pieces.next().and_then(|first| other.strip_prefix(first)) else { return false };
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(last) = pieces.pop() else { return rest.is_empty() };
    for piece in pieces {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Paths that a directive is for: forms, each with those that it excepts.
pub(crate) type Paths = Vec<(String, Vec<String>)>;

/// All paths of a form.
pub(crate) fn whole(path: impl Into<String>) -> Paths {
    vec![(path.into(), Vec::new())]
}

/// Whether these are the paths of a whole site.
pub(crate) fn is_all(paths: &Paths) -> bool {
    matches!(&paths[..], [(path, except)] if (path == "*" || path == "/*") && except.is_empty())
}

/// The paths that are of both.
pub(crate) fn within(paths: &Paths, outer: &Paths) -> Paths {
    let mut both = Vec::new();
    for (path, except) in paths {
        for (wide, own) in outer.iter().filter(|(wide, _)| overlap(wide, path)) {
            let narrow = if has_all_of(path, wide) { wide } else { path };
            let mut all = except.clone();
            all.extend(own.iter().filter(|it| overlap(it, narrow)).cloned());
            all.dedup();
            both.push((narrow.clone(), all));
        }
    }
    both
}

/// Whether a form has the paths of a folder: its name and `/*`.
pub(crate) fn is_of_folder(path: &str) -> bool {
    path.strip_suffix("/*").is_some_and(|folder| folder.len() > 1 && !folder.contains('*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_overlap_if_a_path_fits_both() {
        for (one, other, do_overlap) in [
            ("*", "/a", true),
            ("/a/*", "*.js", true),
            ("/a/*", "/b/*", false),
            ("*.js", "*.css", false),
            ("/a", "/a", true),
            ("/a", "/ab", false),
            ("/a*", "/ab", true),
            ("/a*c", "/ab*", true),
            ("/a*c", "/b*c", false),
            ("*/x/*", "/y/*", true),
            ("/", "/*", true),
        ] {
            assert_eq!(overlap(one, other), do_overlap, "{one} {other}");
            assert_eq!(overlap(other, one), do_overlap, "{other} {one}");
        }
    }

    #[test]
    fn a_form_has_the_paths_of_narrower_ones() {
        for (one, other, has_all) in [
            ("*", "/a/*", true),
            ("/a/*", "/a/b*", true),
            ("/a/*", "/a", false),
            ("*.js", "/a/*.js", true),
            ("/a", "/a", true),
            ("/a/*", "*", false),
            ("/*/x", "/a/x", true),
        ] {
            assert_eq!(has_all_of(one, other), has_all, "{one} {other}");
        }
    }
}
