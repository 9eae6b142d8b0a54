//! Entity tags (RFC 9110 section 8.8.3).
//!
//! Called by the engine when it describes an open file. It must not look at the content, because reading the
//! file would wait for the disk.

use std::fmt::Write;

use crate::negotiate::Coding;

/// The strong entity tag of a file, with its quotes. It is made from the length, the time of modification in
/// nanoseconds since 1970, the time of the last metadata change (if given), and the coding of a precompressed
/// variant, because each variant needs its own tag (RFC 9110 section 8.8.3.3).
///
/// Without the change time, all replicas of a file have the same tag if they were copied with their times, so
/// a client can continue a download at another mirror. Such a tag is strong only if no two contents of the
/// same length have the same modification time; reproducible builds that give every file one fixed time
/// violate that. A program cannot set the change time, so with it the tag is strong even then, up to the
/// resolution of the file system's clock: two changes within one tick get the same tag.
pub fn etag(size_bytes: u64, modified_ns: i128, changed_ns: Option<i128>, coding: Option<Coding>) -> String {
    let mut tag = String::with_capacity(64);
    // Writing to a `String` cannot fail.
    let _ = write!(tag, "\"{size_bytes:x}");
    for time_ns in [Some(modified_ns), changed_ns].into_iter().flatten() {
        let sign = if time_ns < 0 { "-" } else { "" };
        let _ = write!(tag, "-{sign}{:x}", time_ns.unsigned_abs());
    }
    if let Some(coding) = coding {
        tag.push('-');
        tag.push_str(coding.token());
    }
    tag.push('"');
    tag
}

/// The entity tag of a form that the server compresses itself, from the tag of the file. It is weak (RFC 9110 section 8.8.1):
/// another version of the compressor can make other bytes of the same file.
pub fn etag_of_form(etag: &str, coding: Coding) -> String {
    format!("W/{}-{}\"", etag.strip_suffix('"').unwrap_or(etag), coding.token())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_has_a_weak_tag() {
        assert_eq!(etag_of_form(&etag(255, 16, None, None), Coding::Br), "W/\"ff-10-br\"");
    }

    #[test]
    fn every_part_changes_the_tag() {
        let plain = etag(255, 16, None, None);
        assert_eq!(plain, "\"ff-10\"");
        assert_eq!(etag(255, 16, None, Some(Coding::Br)), "\"ff-10-br\"");
        let changed = etag(255, 16, Some(17), None);
        assert_eq!(changed, "\"ff-10-11\"");
        assert_eq!(etag(255, 16, Some(17), Some(Coding::Br)), "\"ff-10-11-br\"");
        let mut tags = vec![
            plain,
            changed,
            etag(255, -16, None, None),
            etag(254, 16, None, None),
            etag(255, 17, None, None),
            etag(255, -16, Some(17), None),
            etag(254, 16, Some(17), None),
            etag(255, 17, Some(17), None),
            etag(255, 16, Some(18), None),
        ];
        for changed_ns in [None, Some(17)] {
            tags.extend(Coding::ALL.map(|coding| etag(255, 16, changed_ns, Some(coding))));
        }
        tags.push(etag(u64::MAX, i128::MIN, Some(i128::MAX), None));
        for (at, tag) in tags.iter().enumerate() {
            assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag}");
            assert!(!tags[..at].contains(tag), "{tag} twice");
        }
    }
}
