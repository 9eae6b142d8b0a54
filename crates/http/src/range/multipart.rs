//! `multipart/byteranges` and `Content-Range` (RFC 9110 sections 14.4 and 14.6).
//!
//! Called by the engine for responses with several ranges. It writes only the text between the file's bytes
//! and must not contain any of those bytes.

use super::ByteRange;
use crate::response::push_number;

/// Makes a boundary from `seed`: 24 bytes that need no quotes (RFC 2046 section 5.1.1). The seed should
/// differ between responses, so that a file that contains an earlier response does no harm.
pub fn boundary(seed: u64) -> String {
    // The mixing step of SplitMix64, so that consecutive seeds give different boundaries.
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    format!("flash-{mixed:016x}fl")
}

/// The length of a whole multipart body, including the text between parts, for a boundary made by
/// [`boundary`].
pub fn parts_bytes(ranges: &[ByteRange], content_type: &str, file_bytes: u64) -> u64 {
    let boundary = boundary(0);
    let part = |(number, range): (usize, &ByteRange)| {
        let head = part_head(&boundary, content_type, range, file_bytes, number == 0);
        range.len().saturating_add(head.len() as u64)
    };
    let parts = ranges.iter().enumerate().map(part).fold(0, u64::saturating_add);
    parts.saturating_add(part_end(&boundary).len() as u64)
}

/// The text before the bytes of a part. `first` marks the first part, which has no line end before it.
pub fn part_head(
    boundary: &str,
    content_type: &str,
    range: &ByteRange,
    file_bytes: u64,
    first: bool,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(128 + content_type.len());
    out.extend_from_slice(if first { b"--" } else { b"\r\n--" });
    out.extend_from_slice(boundary.as_bytes());
    out.extend_from_slice(b"\r\nContent-Type: ");
    out.extend_from_slice(content_type.as_bytes());
    out.extend_from_slice(b"\r\nContent-Range: ");
    push_content_range(&mut out, range, file_bytes);
    out.extend_from_slice(b"\r\n\r\n");
    out
}

/// The text after the bytes of the last part.
pub fn part_end(boundary: &str) -> Vec<u8> {
    [b"\r\n--", boundary.as_bytes(), b"--\r\n"].concat()
}

/// The value of `Content-Range` for a 206: `bytes 0-4/10`.
pub fn content_range(range: &ByteRange, file_bytes: u64) -> String {
    let mut out = Vec::with_capacity(70);
    push_content_range(&mut out, range, file_bytes);
    String::from_utf8(out).unwrap_or_default()
}

/// The value of `Content-Range` for a 416: `bytes */10`.
pub fn unsatisfied_content_range(file_bytes: u64) -> String {
    format!("bytes */{file_bytes}")
}

fn push_content_range(out: &mut Vec<u8>, range: &ByteRange, file_bytes: u64) {
    out.extend_from_slice(b"bytes ");
    push_number(out, range.start);
    out.push(b'-');
    push_number(out, range.end.saturating_sub(1));
    out.push(b'/');
    push_number(out, file_bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_encoded_byte_for_byte() {
        let range = ByteRange { start: 0, end: 5 };
        let head = part_head("B", "text/plain", &range, 10, true);
        let expected = "--B\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-4/10\r\n\r\n";
        assert_eq!(String::from_utf8(head).unwrap(), expected);
        let next = part_head("B", "text/plain", &range, 10, false);
        assert_eq!(String::from_utf8(next).unwrap(), format!("\r\n{expected}"));
        assert_eq!(part_end("B"), b"\r\n--B--\r\n");
    }

    #[test]
    fn content_ranges() {
        let range = ByteRange { start: u64::MAX - 2, end: u64::MAX };
        assert_eq!(
            content_range(&range, u64::MAX),
            "bytes 18446744073709551613-18446744073709551614/18446744073709551615"
        );
        assert_eq!(unsatisfied_content_range(0), "bytes */0");
    }

    #[test]
    fn boundaries_differ_and_need_no_quotes() {
        let boundaries: Vec<_> = (0..100).map(boundary).collect();
        for (at, boundary) in boundaries.iter().enumerate() {
            assert_eq!(boundary.len(), 24);
            assert!(boundary.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
            assert!(!boundaries[..at].contains(boundary));
        }
    }
}
