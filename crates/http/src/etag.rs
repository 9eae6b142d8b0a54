//! Entity tags (RFC 9110 section 8.8.3).
//!
//! Called by the engine when it describes an open file. It may not look at content: reading a file
//! to name it would wait for the disk.

use std::fmt::Write;

use crate::negotiate::Coding;

/// The strong entity tag of a file, with its quotes: its length, its time of modification in nanoseconds
/// since 1970, its time of change where one is given, and the coding of a precompressed variant, since
/// each variant needs a tag of its own (RFC 9110 section 8.8.3.3).
///
/// Without the time of change, replicas of a file have one tag, as long as they were copied with their
/// times: a client can go on at one mirror with what it began at another. It is strong as long as no
/// two contents of one length are given the same time. Builds that give every file one time, so that
/// they can be repeated, do that. The time of change cannot be set, so with it the tag is strong even
/// then, as far as the file system's clock is: two changes within one tick of it get the same tag.
pub fn etag(size_bytes: u64, modified_ns: i128, changed_ns: Option<i128>, coding: Option<Coding>) -> String {
    let mut tag = String::with_capacity(64);
    // Writing to a `String` can't fail.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_shows() {
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
