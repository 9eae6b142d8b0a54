//! Entity tags (RFC 9110 section 8.8.3).
//!
//! Called by the engine when it describes an open file. It may not look at content: reading a file
//! to name it would wait for the disk.

use std::fmt::Write;

use crate::negotiate::Coding;

/// The strong entity tag of a file, with its quotes: its length, its time of modification and its time
/// of change in nanoseconds since 1970, and the coding of a precompressed variant, since each variant
/// needs a tag of its own (RFC 9110 section 8.8.3.3).
///
/// The time of modification alone would not do: builds that give every file one time, so that they can
/// be repeated, and copies that keep times leave it the same over different contents. The time of change
/// cannot be set. It is strong as far as the file system's clock is: two changes of one length within one
/// tick of it get the same tag.
pub fn etag(size_bytes: u64, modified_ns: i128, changed_ns: i128, coding: Option<Coding>) -> String {
    let mut tag = String::with_capacity(64);
    // Writing to a `String` can't fail.
    let _ = write!(tag, "\"{size_bytes:x}");
    for time_ns in [modified_ns, changed_ns] {
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
        let plain = etag(255, 16, 17, None);
        assert_eq!(plain, "\"ff-10-11\"");
        assert_eq!(etag(255, 16, 17, Some(Coding::Br)), "\"ff-10-11-br\"");
        let mut tags = vec![
            plain,
            etag(255, -16, 17, None),
            etag(254, 16, 17, None),
            etag(255, 17, 17, None),
            etag(255, 16, 18, None),
        ];
        tags.extend(Coding::ALL.map(|coding| etag(255, 16, 17, Some(coding))));
        tags.push(etag(u64::MAX, i128::MIN, i128::MAX, None));
        for (at, tag) in tags.iter().enumerate() {
            assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag}");
            assert!(!tags[..at].contains(tag), "{tag} twice");
        }
    }
}
