//! Byte ranges (RFC 9110 section 14).
//!
//! Called by the engine for GET only, after the preconditions. It must not decide whether `If-Range` allows
//! the range; see `conditional`.

pub mod multipart;

use crate::request::fields::parse_length;
use multipart::parts_bytes;

/// Maximum number of ranges in one request. RFC 9110 section 14.2 mentions many small ranges as an attack and
/// allows them to be ignored. Clients that fetch the changed blocks of a file (zsync, package managers) send
/// about this many at once.
pub const RANGES_MAX: usize = 200;

/// Maximum number of parts that are sent even if their heads make the answer longer than the file. More parts
/// are sent only if the answer is shorter than the file.
pub const PARTS_AT_ANY_COST_MAX: usize = 16;

/// Bytes `start..end` of a file; never empty and never past its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByteRange {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset after the last byte.
    pub end: u64,
}

impl ByteRange {
    /// Length of the range in bytes.
    // A range that `parse_range` makes is never empty, so `is_empty` would always be false.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// The meaning of a `Range` field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ranges {
    /// The whole file, with 200. The field is ignored (RFC 9110 section 14.2): it is malformed, has another
    /// unit, has too many ranges, or its parts would take more bytes than the file.
    Whole,
    /// One range: 206 with `Content-Range`.
    One(ByteRange),
    /// Two to [`RANGES_MAX`] ranges that neither overlap nor touch, in the client's order: 206 with
    /// `multipart/byteranges`.
    Many(Vec<ByteRange>),
    /// No range lies within the file: 416 with `Content-Range: bytes */N`.
    Unsatisfiable,
}

/// Parses the value of a `Range` field for a file of `file_bytes`. `content_type` is the type in the part
/// heads.
///
/// The result is [`Ranges::Whole`] for more than [`RANGES_MAX`] ranges, satisfiable or not, and for more than
/// [`PARTS_AT_ANY_COST_MAX`] parts that take at least as many bytes as the file. An empty file is always sent
/// whole, as nginx and Apache do: no `Content-Range` can name a part of it, and a client that resumes an
/// empty download must not get an error.
pub fn parse_range(field: &[u8], file_bytes: u64, content_type: &str) -> Ranges {
    if file_bytes == 0 {
        return Ranges::Whole;
    }
    match parse_bytes_unit(field, file_bytes) {
        Some(Ranges::Many(ranges))
            if ranges.len() > PARTS_AT_ANY_COST_MAX
                && parts_bytes(&ranges, content_type, file_bytes) >= file_bytes =>
        {
            Ranges::Whole
        }
        found => found.unwrap_or(Ranges::Whole),
    }
}

/// Returns None if the field must be ignored.
fn parse_bytes_unit(field: &[u8], file_bytes: u64) -> Option<Ranges> {
    let (unit, set) = field.split_at_checked(b"bytes=".len())?;
    // Range units are case-insensitive (RFC 9110 section 14.1).
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return None;
    }
    let mut specs = 0;
    let mut ranges = Vec::new();
    for spec in set.split(|&byte| byte == b',').map(trim_blanks) {
        // RFC 9110 section 5.6.1.2: empty list elements are skipped.
        if spec.is_empty() {
            continue;
        }
        specs += 1;
        if specs > RANGES_MAX {
            return None;
        }
        if let Some(range) = parse_spec(spec, file_bytes)? {
            add_coalesced(&mut ranges, range);
        }
    }
    match (specs, ranges.as_slice()) {
        (0, _) => None,
        (_, []) => Some(Ranges::Unsatisfiable),
        (_, [range]) => Some(Ranges::One(*range)),
        _ => Some(Ranges::Many(ranges)),
    }
}

/// Optional whitespace of RFC 9110 section 5.6.3 is only space and tab.
fn trim_blanks(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Parses one range. None if it is malformed, `Some(None)` if it lies outside the file (RFC 9110 section
/// 14.1.2).
fn parse_spec(spec: &[u8], file_bytes: u64) -> Option<Option<ByteRange>> {
    let dash = memchr::memchr(b'-', spec)?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    let (start, end) = match (first, last) {
        ([], suffix) => (file_bytes.saturating_sub(number(suffix)?), file_bytes),
        (first, []) => (number(first)?, file_bytes),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return None;
            }
            (first, last.saturating_add(1).min(file_bytes))
        }
    };
    Some((start < end).then_some(ByteRange { start, end }))
}

/// Parses decimal digits. A number beyond `u64` is beyond every file, so it is clamped.
pub fn number(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| parse_length(digits).unwrap_or(u64::MAX))
}

/// Adds a range and joins it with all ranges that it overlaps or touches, at the position of the first of
/// them. RFC 9110 section 15.3.7.2 allows joining and otherwise asks for the client's order. So no byte is
/// ever sent twice. Takes at most [`RANGES_MAX`] squared steps in total.
fn add_coalesced(ranges: &mut Vec<ByteRange>, range: ByteRange) {
    let mut merged = range;
    let touches = |a: &ByteRange, b: &ByteRange| a.start <= b.end && b.start <= a.end;
    let Some(place) = ranges.iter().position(|other| touches(other, &merged)) else {
        ranges.push(range);
        return;
    };
    // The present ranges do not touch each other, so one pass finds all that the new one joins.
    ranges.retain(|other| {
        let joins = touches(other, &range);
        if joins {
            merged.start = merged.start.min(other.start);
            merged.end = merged.end.max(other.end);
        }
        !joins
    });
    ranges.insert(place, merged);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    fn parsed(field: &str, file_bytes: u64) -> Ranges {
        parse_range(field.as_bytes(), file_bytes, "text/plain")
    }

    #[test]
    fn single_ranges() {
        for (field, file_bytes, start, end) in [
            ("bytes=0-0", 10, 0, 1),
            ("bytes=0-", 10, 0, 10),
            ("bytes=2-5", 10, 2, 6),
            ("bytes=2-99", 10, 2, 10),
            ("bytes=9-", 10, 9, 10),
            ("bytes=-1", 10, 9, 10),
            ("bytes=-10", 10, 0, 10),
            ("bytes=-99", 10, 0, 10),
            ("Bytes=1-2", 10, 1, 3),
            ("bytes= 1-2 \t", 10, 1, 3),
            ("bytes=,1-2,,", 10, 1, 3),
            ("bytes=1-99999999999999999999999999", 10, 1, 10),
            ("bytes=-99999999999999999999999999", 10, 0, 10),
            ("bytes=0-18446744073709551615", u64::MAX, 0, u64::MAX),
            // One of several ranges is satisfiable.
            ("bytes=50-60,3-4", 10, 3, 5),
        ] {
            assert_eq!(parsed(field, file_bytes), Ranges::One(range(start, end)), "{field}");
        }
    }

    #[test]
    fn unsatisfiable_ranges() {
        for (field, file_bytes) in [
            ("bytes=10-", 10),
            ("bytes=10-20", 10),
            ("bytes=-0", 10),
            ("bytes=99999999999999999999999999-", 10),
            ("bytes=18446744073709551615-", u64::MAX),
            ("bytes=10-,20-30,-0", 10),
        ] {
            assert_eq!(parsed(field, file_bytes), Ranges::Unsatisfiable, "{field}");
        }
    }

    #[test]
    fn an_empty_file_is_always_whole() {
        for field in ["bytes=0-", "bytes=0-0", "bytes=-5", "bytes=-0", "bytes=3-5,9-", "bytes=x"] {
            assert_eq!(parsed(field, 0), Ranges::Whole, "{field}");
        }
    }

    #[test]
    fn ignored_fields() {
        for field in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=5",
            "bytes=5-2",
            "bytes=a-b",
            "bytes=1-2x",
            "bytes=+1-2",
            "bytes=1 - 2",
            "bytes=1--2",
            "bytes=0x1-2",
            "bytes 1-2",
            "bytes =1-2",
            "items=1-2",
            "bytes=1-2;3-4",
            "bytes=1-2,x",
            "bytes=0-1,9-8",
            "bytes=\u{a0}1-2",
            "bytes=1-2\u{b}",
        ] {
            assert_eq!(parsed(field, 10), Ranges::Whole, "{field}");
        }
    }

    #[test]
    fn several_ranges_keep_their_order_and_are_joined() {
        for (field, expected) in [
            ("bytes=50-59,0-9", vec![range(50, 60), range(0, 10)]),
            ("bytes=50-59,0-9,60-69", vec![range(50, 70), range(0, 10)]),
            ("bytes=0-9,20-29,5-24,90-", vec![range(0, 30), range(90, 100)]),
            ("bytes=80-,-10,0-0", vec![range(80, 100), range(0, 1)]),
            ("bytes=40-41,60-61,20-21,30-70", vec![range(30, 71), range(20, 22)]),
            ("bytes=0-0,2-2", vec![range(0, 1), range(2, 3)]),
        ] {
            assert_eq!(parsed(field, 100), Ranges::Many(expected), "{field}");
        }
        assert_eq!(parsed("bytes=0-4,5-9", 100), Ranges::One(range(0, 10)));
        assert_eq!(parsed("bytes=5-,0-5", 10), Ranges::One(range(0, 10)));
    }

    /// This many ranges of one byte each, with gaps of one byte.
    fn set(count: u64) -> String {
        let specs: Vec<_> = (0..count).map(|at| format!("{0}-{0}", at * 2)).collect();
        format!("bytes={}", specs.join(","))
    }

    fn parts(ranges: &Ranges) -> Option<usize> {
        match ranges {
            Ranges::Many(ranges) => Some(ranges.len()),
            _ => None,
        }
    }

    #[test]
    fn too_many_ranges_are_ignored() {
        assert_eq!(parts(&parsed(&set(200), 1 << 20)), Some(RANGES_MAX));
        assert_eq!(parsed(&set(201), 1 << 20), Ranges::Whole);
        // Counted before joining, because joining them would be work that the client controls.
        let same = ["0-"; 200].join(",");
        assert_eq!(parsed(&format!("bytes={same}"), 100), Ranges::One(range(0, 100)));
        assert_eq!(parsed(&format!("bytes={same},0-"), 100), Ranges::Whole);
    }

    #[test]
    fn many_parts_are_sent_if_they_are_shorter_than_the_file() {
        // A few parts are sent at any cost, because their number bounds the answer.
        assert_eq!(parts(&parsed(&set(16), 100)), Some(PARTS_AT_ANY_COST_MAX));
        assert_eq!(parsed(&set(17), 100), Ranges::Whole);
        let Ranges::Many(ranges) = parsed(&set(17), 1 << 20) else {
            panic!("17 parts of a large file must be sent")
        };
        let bytes = parts_bytes(&ranges, "text/plain", 9_999);
        assert!((1_000..9_000).contains(&bytes), "{bytes}");
        // Exactly from the size at which the file is longer than the answer.
        for (file_bytes, expected) in [(bytes - 1, None), (bytes, None), (bytes + 1, Some(17))] {
            assert_eq!(parts(&parsed(&set(17), file_bytes)), expected, "{file_bytes}");
        }
        // Each part contains the type of the file.
        assert_eq!(parse_range(set(17).as_bytes(), bytes + 1, "text/plain; x"), Ranges::Whole);
        // Parts are counted after joining.
        let touching: Vec<_> = (0..60).map(|at| format!("{at}-{at}")).collect();
        assert_eq!(
            parsed(&format!("bytes={},90-", touching.join(",")), 100),
            Ranges::Many(vec![range(0, 60), range(90, 100)])
        );
        // No sum overflows.
        assert_eq!(parsed(&format!("{},40-", set(17)), u64::MAX), Ranges::Whole);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60), file_bytes: u64) {
            let _ = parse_range(&bytes, file_bytes, "text/plain");
            let _ = parse_range(&[b"bytes=", bytes.as_slice()].concat(), file_bytes, "text/plain");
        }

        /// Byte by byte: every requested byte is sent exactly once, and no other.
        #[test]
        fn exactly_the_requested_bytes_are_sent(
            specs in proptest::collection::vec((proptest::option::of(0u64..40), proptest::option::of(0u64..40)), 1..=16),
            file_bytes in 1u64..40,
        ) {
            let specs: Vec<_> = specs.into_iter()
                .filter(|spec| !matches!(spec, (None, None)) && !matches!(spec, (Some(a), Some(b)) if b < a))
                .collect();
            prop_assume!(!specs.is_empty());
            let wanted: Vec<bool> = (0..file_bytes).map(|byte| specs.iter().any(|spec| match *spec {
                (Some(first), last) => first <= byte && last.is_none_or(|last| byte <= last),
                (None, Some(suffix)) => byte + suffix >= file_bytes,
                (None, None) => false,
            })).collect();
            let show = |number: Option<u64>| number.map_or(String::new(), |number| number.to_string());
            let texts: Vec<_> = specs.iter().map(|(a, b)| format!("{}-{}", show(*a), show(*b))).collect();
            let ranges = match parsed(&format!("bytes={}", texts.join(", ")), file_bytes) {
                Ranges::One(range) => vec![range],
                Ranges::Many(ranges) => { prop_assert!(ranges.len() > 1); ranges }
                Ranges::Unsatisfiable => vec![],
                Ranges::Whole => return Err(TestCaseError::fail("well-formed, yet ignored")),
            };
            let mut sent = vec![0; file_bytes as usize];
            for range in &ranges {
                prop_assert!(range.len() > 0);
                for byte in range.start..range.end {
                    sent[byte as usize] += 1;
                }
            }
            prop_assert_eq!(sent, wanted.into_iter().map(i32::from).collect::<Vec<_>>());
        }
    }
}
