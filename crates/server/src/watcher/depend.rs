//! Which names of a site a change in a directory concerns. Called by [`watcher`](super). Pure.

use flash_engine::SiteRules;
use flash_http::negotiate::Coding;
use flash_waiting::happening::How;

/// A change of a name in a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'c> {
    /// The directory's path beneath the root; it begins and ends with a slash.
    pub(super) directory: &'c [u8],
    pub(super) name: &'c [u8],
    pub(super) is_directory: bool,
    pub(super) how: How,
}

/// Calls `each` with the decoded path of each name whose answer the change can concern. Those beneath a directory
/// that appears or is moved away are too many to list: they are the caller's.
pub(super) fn each_name(change: &Change<'_>, rules: &SiteRules, mut each: impl FnMut(&[u8])) {
    let Change { directory, name, is_directory, how } = *change;
    let mut path = [directory, name].concat();
    each(&path);
    // The name with a slash is that of the directory, whose place a file can take.
    path.push(b'/');
    if is_directory || how != How::Changed {
        each(&path);
    }
    let is_index = |name: &[u8]| rules.index.iter().any(|index| index.as_bytes() == name);
    let plain = Coding::ALL.iter().find_map(|coding| name.strip_suffix(coding.extension().as_bytes()));
    if let Some(plain) = plain {
        each(&[directory, plain].concat());
    }
    // A listing shows the sizes and times of files, and the times of directories.
    if rules.browse || is_index(name) || plain.is_some_and(is_index) {
        each(directory);
    }
    if rules.browse && how != How::Changed {
        let above = directory.strip_suffix(b"/").and_then(|path| path.iter().rposition(|byte| *byte == b'/'));
        above.into_iter().for_each(|end| each(&directory[..=end]));
    }
}

#[cfg(test)]
mod tests {
    use flash_http::EncodedSlash;

    use flash_engine::PathRules;

    use super::*;

    fn names(name: &str, is_directory: bool, how: How, browse: bool) -> Vec<String> {
        let rules = SiteRules {
            root: "/".into(),
            hosts: vec![],
            index: vec!["index.html".into(), "default.htm".into()],
            browse,
            precompressed: true,
            compress: false,
            encoded_slash: EncodedSlash::Decode,
            hsts: None,
            https_redirect: None,
            paths: PathRules::default().into(),
            alias_of: None,
            routes: vec![],
        };
        let change = Change { directory: b"/d/", name: name.as_bytes(), is_directory, how };
        let mut names = Vec::new();
        each_name(&change, &rules, |name| names.push(String::from_utf8_lossy(name).into_owned()));
        names
    }

    #[test]
    fn a_change_concerns_the_names_that_depend_on_it() {
        assert_eq!(names("f", false, How::Changed, true), ["/d/f", "/d/"]);
        assert_eq!(names("f", false, How::Appeared, false), ["/d/f", "/d/f/"]);
        assert_eq!(names("f", false, How::Deleted, true), ["/d/f", "/d/f/", "/d/", "/"]);
        assert_eq!(names("s", true, How::MovedAway, false), ["/d/s", "/d/s/"]);
        assert_eq!(names("f.css.gz", false, How::Changed, false), ["/d/f.css.gz", "/d/f.css"]);
        assert_eq!(names("default.htm", false, How::Changed, false), ["/d/default.htm", "/d/"]);
        let siblings = ["/d/index.html.br", "/d/index.html", "/d/"];
        assert_eq!(names("index.html.br", false, How::Changed, false), siblings);
    }
}
