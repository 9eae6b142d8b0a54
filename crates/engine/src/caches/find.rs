//! The one definition of how a path is looked up. The worker runs [`find`] with look-ups that cannot block, a
//! helper with look-ups that can.

use flash_http::negotiate::Coding;
use flash_http::types::{TypeTable, compressible};

use crate::machine::{FileKind, FileStat, Finding, LookUpError, Opened, Want};
use crate::rules::SiteRules;

/// Finds the file or directory for `path`, which is decoded and begins with a slash. A path that ends with a
/// slash names a directory.
///
/// # Errors
/// Any of `look_up`, except `Missing` and `Denied`, which are findings.
pub fn find<F>(
    path: &[u8],
    site: &SiteRules,
    types: &TypeTable,
    want: Want,
    mut look_up: impl FnMut(&[u8], Want) -> Result<Opened<F>, LookUpError>,
) -> Result<Finding<F>, LookUpError> {
    // The source of a script is never read, so the server needs no permission to read it.
    let want_of = |path: &[u8]| if site.is_script(path) { Want::Stat } else { want };
    if site.is_form_of_script(path) {
        return Ok(Finding::Missing);
    }
    let mut file_path = path.to_vec();
    let plain = if path.ends_with(b"/") {
        match find_index(&mut file_path, site, want_of, &mut look_up) {
            Ok(Some(plain)) => plain,
            Ok(None) => return find_listing(path, site, &mut look_up),
            // An unreadable index hides the directory, so its listing is hidden too.
            Err(LookUpError::Denied) => return Ok(Finding::Denied),
            Err(e) => return Err(e),
        }
    } else {
        match look_up(relative(path), want_of(path)) {
            Ok(found) => match found.stat.kind {
                FileKind::Regular => found,
                FileKind::Directory => return Ok(Finding::Redirect),
                FileKind::Special => return Ok(Finding::Denied),
            },
            Err(LookUpError::Missing) => return Ok(Finding::Missing),
            Err(LookUpError::Denied) => return Ok(Finding::Denied),
            Err(e) => return Err(e),
        }
    };
    if site.is_script(&file_path) {
        return Ok(Finding::Script);
    }
    let mut coded = [None, None, None];
    if site.precompressed && compressible(&types.lookup(&file_path)) {
        for (place, coding) in coded.iter_mut().zip(Coding::ALL) {
            let sibling = [&file_path[..], coding.extension().as_bytes()].concat();
            *place = match look_up(relative(&sibling), want) {
                Ok(found) => stands_for(&found.stat, &plain.stat).then_some(found),
                // An unreadable sibling is ignored, because the plain file can be sent.
                Err(LookUpError::Missing | LookUpError::Denied) => None,
                Err(e) => return Err(e),
            };
        }
    }
    Ok(Finding::File { plain, coded, path: file_path })
}

/// Whether a precompressed sibling can be sent instead of its file. An empty sibling is unfinished, and an
/// older one was compressed from an earlier content: the client would get no content, or old content forever.
fn stands_for(sibling: &FileStat, plain: &FileStat) -> bool {
    const SECOND_NS: i128 = 1_000_000_000;
    // Some tools, such as pigz, copy the file's time in whole seconds.
    let same_second = sibling.modified_ns == plain.modified_ns.div_euclid(SECOND_NS) * SECOND_NS;
    sibling.kind == FileKind::Regular
        && (sibling.size_bytes > 0 || plain.size_bytes == 0)
        && (sibling.modified_ns >= plain.modified_ns || same_second)
}

/// Finds the first index file that exists, and changes `path` to it.
fn find_index<F>(
    path: &mut Vec<u8>,
    site: &SiteRules,
    want_of: impl Fn(&[u8]) -> Want,
    look_up: &mut impl FnMut(&[u8], Want) -> Result<Opened<F>, LookUpError>,
) -> Result<Option<Opened<F>>, LookUpError> {
    let directory_bytes = path.len();
    for name in &site.index {
        path.extend_from_slice(name.as_bytes());
        match look_up(relative(path), want_of(path)) {
            Ok(found) if found.stat.kind == FileKind::Regular => return Ok(Some(found)),
            Ok(_) | Err(LookUpError::Missing) => path.truncate(directory_bytes),
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

fn find_listing<F>(
    path: &[u8],
    site: &SiteRules,
    look_up: &mut impl FnMut(&[u8], Want) -> Result<Opened<F>, LookUpError>,
) -> Result<Finding<F>, LookUpError> {
    if !site.browse {
        return Ok(Finding::Missing);
    }
    match look_up(relative(path), Want::Stat) {
        Ok(found) if found.stat.kind == FileKind::Directory => Ok(Finding::Listing),
        Ok(_) | Err(LookUpError::Missing) => Ok(Finding::Missing),
        Err(LookUpError::Denied) => Ok(Finding::Denied),
        Err(e) => Err(e),
    }
}

/// A path relative to the root, as openat2(2) needs it.
pub(crate) fn relative(path: &[u8]) -> &[u8] {
    match path.strip_prefix(b"/") {
        Some(rest) if !rest.is_empty() => rest,
        _ => b".",
    }
}

#[cfg(test)]
mod tests {
    use flash_http::EncodedSlash;

    use super::*;
    use crate::path_rules::PathRules;

    const SITE: &[(&str, FileKind)] = &[
        ("page.html", FileKind::Regular),
        ("page.html.gz", FileKind::Regular),
        ("image.png", FileKind::Regular),
        ("image.png.gz", FileKind::Regular),
        (".", FileKind::Directory),
        ("with", FileKind::Directory),
        ("with/", FileKind::Directory),
        ("with/index.html", FileKind::Regular),
        ("without", FileKind::Directory),
        ("without/", FileKind::Directory),
        ("fifo", FileKind::Special),
        ("closed/", FileKind::Directory),
    ];
    /// Files that the server lacks permission to read.
    const CLOSED: &[&str] = &["closed/index.html", "private"];

    fn run(path: &str, browse: bool) -> Finding<()> {
        let index = vec!["index.html".into()];
        let site = SiteRules {
            root: "/".into(),
            hosts: vec![],
            index,
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
        let look_up = |path: &[u8], _| {
            let name = std::str::from_utf8(path).expect("a test's path");
            if CLOSED.contains(&name) {
                return Err(LookUpError::Denied);
            }
            let (_, kind) = SITE.iter().find(|(n, _)| *n == name).ok_or(LookUpError::Missing)?;
            Ok(Opened { stat: stat(*kind, 0, 0), file: None })
        };
        find(path.as_bytes(), &site, &TypeTable::new([]), Want::Stat, look_up)
            .expect("no look-up fails in this test")
    }

    #[test]
    fn a_file_is_found_with_its_siblings() {
        let Finding::File { coded, .. } = run("/page.html", false) else { panic!("not a file") };
        assert_eq!(coded.map(|c| c.is_some()), [false, false, true]);
        let Finding::File { coded, .. } = run("/image.png", false) else { panic!("not a file") };
        assert!(coded.iter().all(Option::is_none), "images have no compressed siblings");
    }

    fn stat(kind: FileKind, size_bytes: u64, modified_ns: i128) -> FileStat {
        FileStat { kind, device: 0, inode: 0, size_bytes, modified_ns, changed_ns: 0 }
    }

    #[test]
    fn an_empty_or_older_sibling_is_not_used() {
        let file = |size_bytes, modified_ns| stat(FileKind::Regular, size_bytes, modified_ns);
        let plain = file(5, 7_000_000_009);
        for (sibling, expected) in [
            (file(3, 7_000_000_009), true),
            (file(9, 8_000_000_000), true),
            (file(3, 7_000_000_008), false),
            // Its time in whole seconds, as some tools copy it.
            (file(3, 7_000_000_000), true),
            (file(3, 6_000_000_000), false),
            (file(0, 8_000_000_000), false),
            (stat(FileKind::Directory, 3, 8_000_000_000), false),
        ] {
            assert_eq!(stands_for(&sibling, &plain), expected, "{sibling:?}");
        }
        assert!(stands_for(&file(0, 1), &file(0, 1)));
        assert!(stands_for(&file(20, 1), &file(0, 1)));
        assert!(stands_for(&file(1, -1_000_000_000), &file(1, -999_999_999)));
        assert!(!stands_for(&file(1, -1_000_000_001), &file(1, -999_999_999)));
    }

    #[test]
    fn directories() {
        assert!(matches!(run("/with", false), Finding::Redirect));
        let Finding::File { path, .. } = run("/with/", false) else { panic!("not a file") };
        assert_eq!(path, b"/with/index.html");
        assert!(matches!(run("/without/", false), Finding::Missing));
        assert!(matches!(run("/without/", true), Finding::Listing));
        assert!(matches!(run("/", true), Finding::Listing));
    }

    #[test]
    fn missing_and_special_files() {
        assert!(matches!(run("/none", true), Finding::Missing));
        assert!(matches!(run("/none/", true), Finding::Missing));
        assert!(matches!(run("/fifo", true), Finding::Denied));
        assert!(matches!(run("/private", true), Finding::Denied));
    }

    #[test]
    fn an_unreadable_index_is_denied_and_not_skipped() {
        assert!(matches!(run("/closed/", true), Finding::Denied));
        assert!(matches!(run("/closed/", false), Finding::Denied));
    }
}
