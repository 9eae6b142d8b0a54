//! Entity tags (RFC 9110 section 8.8.3).
//!
//! Called by the engine when it describes an open file. It may not look at content: reading a file
//! to name it would wait for the disk.

use std::fmt::Write;

use crate::negotiate::Coding;

/// The strong entity tag of a file, with its quotes: its length and its time of modification in
/// nanoseconds since 1970, and the coding of a precompressed variant, since each variant needs a
/// tag of its own (RFC 9110 section 8.8.3.3).
///
/// It is strong as far as the file system's clock is: two changes of one length within one tick of
/// it get the same tag.
pub fn etag(size_bytes: u64, modified_ns: i128, coding: Option<Coding>) -> String {
    let mut tag = String::with_capacity(48);
    let sign = if modified_ns < 0 { "-" } else { "" };
    // Writing to a `String` can't fail.
    let _ = write!(
        tag,
        "\"{size_bytes:x}-{sign}{:x}",
        modified_ns.unsigned_abs()
    );
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
        let plain = etag(255, 16, None);
        assert_eq!(plain, "\"ff-10\"");
        assert_eq!(etag(255, 16, Some(Coding::Br)), "\"ff-10-br\"");
        let mut tags = vec![
            plain,
            etag(255, -16, None),
            etag(254, 16, None),
            etag(255, 17, None),
        ];
        tags.extend(Coding::ALL.map(|coding| etag(255, 16, Some(coding))));
        tags.push(etag(u64::MAX, i128::MIN, None));
        for (at, tag) in tags.iter().enumerate() {
            assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag}");
            assert!(!tags[..at].contains(tag), "{tag} twice");
        }
    }
}
