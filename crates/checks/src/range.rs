//! Ranges: `flash_http::range` agrees with a simple implementation of RFC 9110 section 14, and a client can
//! parse the output of `multipart`.

use flash_http::range::multipart::{boundary, content_range, part_end, part_head, parts_bytes};
use flash_http::range::{ByteRange, PARTS_AT_ANY_COST_MAX, RANGES_MAX, Ranges, parse_range};

use crate::text::{elements, is_field_value, number, split_line};

/// Size of the largest file whose parts are written and parsed.
const FILE_BYTES_MAX: u64 = 40_000;

const CONTENT_TYPE: &str = "text/plain";

/// Checks `input`: the length of a file, a line feed, and the value of `Range`.
pub fn range(input: &[u8]) {
    let (first, field) = split_line(input);
    let file_bytes = number(first).unwrap_or(1_000);
    if !is_field_value(field) {
        return;
    }
    let found = parse_range(field, file_bytes, CONTENT_TYPE);
    assert_eq!(found, expected(field, file_bytes));
    let ranges = match &found {
        Ranges::Whole | Ranges::Unsatisfiable => return,
        Ranges::One(range) => std::slice::from_ref(range),
        Ranges::Many(ranges) => ranges,
    };
    let mut sorted: Vec<_> = ranges.iter().map(|range| (range.start, range.end)).collect();
    sorted.sort_unstable();
    assert!(
        sorted.iter().all(|(start, end)| start < end && *end <= file_bytes),
        "a range is outside the file"
    );
    assert!(sorted.windows(2).all(|pair| pair[0].1 < pair[1].0), "some bytes are sent twice");
    assert!(ranges.iter().map(ByteRange::len).sum::<u64>() <= file_bytes);
    for range in ranges {
        let text = content_range(range, file_bytes);
        assert_eq!(text, format!("bytes {}-{}/{file_bytes}", range.start, range.end - 1));
    }
    if file_bytes <= FILE_BYTES_MAX {
        multipart(ranges, file_bytes);
    }
}

/// In `u128`, so that no number overflows.
fn expected(field: &[u8], file_bytes: u64) -> Ranges {
    // As nginx and Apache do, because no `Content-Range` can name a part of it.
    if file_bytes == 0 {
        return Ranges::Whole;
    }
    let lower = field.to_ascii_lowercase();
    let Some(set) = lower.strip_prefix(b"bytes=") else { return Ranges::Whole };
    let specs: Vec<&[u8]> = elements(set).filter(|spec| !spec.is_empty()).collect();
    if specs.is_empty() || specs.len() > RANGES_MAX {
        return Ranges::Whole;
    }
    let Some(parsed) = specs.into_iter().map(|s| spec(s, file_bytes.into())).collect::<Option<Vec<_>>>()
    else {
        return Ranges::Whole;
    };
    let joined = join(parsed.into_iter().filter(|(start, end)| start < end).collect());
    let ranges: Vec<ByteRange> =
        joined.into_iter().map(|(start, end)| ByteRange { start: start as u64, end: end as u64 }).collect();
    match ranges[..] {
        [] => Ranges::Unsatisfiable,
        [range] => Ranges::One(range),
        _ if ranges.len() > PARTS_AT_ANY_COST_MAX && !is_shorter(&ranges, file_bytes) => Ranges::Whole,
        _ => Ranges::Many(ranges),
    }
}

/// Whether these parts take fewer bytes than the file, computed from the format of a part.
fn is_shorter(ranges: &[ByteRange], file_bytes: u64) -> bool {
    let part = |range: &ByteRange| {
        let named = format!("bytes {}-{}/{file_bytes}", range.start, range.end - 1);
        let lines = ["", "--flash-0123456789abcdeffl", "Content-Type: text/plain", "Content-Range: ", "", ""];
        (lines.join("\r\n").len() + named.len()) as u128 + u128::from(range.end - range.start)
    };
    let end = "\r\n--flash-0123456789abcdeffl--\r\n".len() as u128;
    // The first part has no line end before it.
    ranges.iter().map(part).sum::<u128>() - 2 + end < u128::from(file_bytes)
}

/// RFC 9110 section 14.1.2: the first byte and the one after the last; an empty range if there are none.
fn spec(spec: &[u8], file_bytes: u128) -> Option<(u128, u128)> {
    let (first, last) = std::str::from_utf8(spec).ok()?.split_once('-')?;
    match (first, last) {
        ("", last) => Some((file_bytes - digits(last)?.min(file_bytes), file_bytes)),
        (first, "") => Some((digits(first)?, file_bytes)),
        (first, last) => {
            let (first_digits, last_digits) = (first.trim_start_matches('0'), last.trim_start_matches('0'));
            let backwards = (last_digits.len(), last_digits) < (first_digits.len(), first_digits);
            let (first, last) = (digits(first)?, digits(last)?);
            // All numbers beyond every file are the same to a server, so they are not compared.
            let beyond = u128::from(u64::MAX);
            if backwards && (first < beyond || last < beyond) {
                return None;
            }
            Some((first, (last + 1).min(file_bytes)))
        }
    }
}

fn digits(text: &str) -> Option<u128> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u128::MAX / 2))
}

/// Joins ranges that overlap or touch until none are left; each joined range has the position of its first
/// part.
fn join(mut ranges: Vec<(u128, u128)>) -> Vec<(u128, u128)> {
    loop {
        let pair = (0..ranges.len())
            .flat_map(|b| (0..b).map(move |a| (a, b)))
            .find(|&(a, b)| ranges[a].0 <= ranges[b].1 && ranges[b].0 <= ranges[a].1);
        let Some((a, b)) = pair else { return ranges };
        let (start, end) = ranges.remove(b);
        ranges[a] = (ranges[a].0.min(start), ranges[a].1.max(end));
    }
}

/// Writes the parts of a file and parses them by RFC 2046 section 5.1.
fn multipart(ranges: &[ByteRange], file_bytes: u64) {
    let file: Vec<u8> = (0..file_bytes).map(|at| b"-\r\nflash"[(at % 8) as usize]).collect();
    let boundary = boundary(file_bytes);
    let mut text = Vec::new();
    for (number, range) in ranges.iter().enumerate() {
        text.extend(part_head(&boundary, CONTENT_TYPE, range, file_bytes, number == 0));
        text.extend_from_slice(&file[range.start as usize..range.end as usize]);
    }
    text.extend(part_end(&boundary));
    assert_eq!(text.len() as u64, parts_bytes(ranges, CONTENT_TYPE, file_bytes));

    let whole = [b"\r\n", text.as_slice()].concat();
    let delimiter = format!("\r\n--{boundary}");
    let mut parts = Vec::new();
    let mut rest = whole.as_slice();
    while let Some(at) = rest.windows(delimiter.len()).position(|window| window == delimiter.as_bytes()) {
        parts.push(&rest[..at]);
        rest = &rest[at + delimiter.len()..];
    }
    assert_eq!(rest, b"--\r\n", "the end");
    assert_eq!(parts.len(), ranges.len() + 1);
    for (part, range) in parts[1..].iter().zip(ranges) {
        let fields = format!(
            "\r\nContent-Type: text/plain\r\nContent-Range: {}\r\n\r\n",
            content_range(range, file_bytes)
        );
        let bytes = part.strip_prefix(fields.as_bytes()).expect("the fields of a part");
        assert_eq!(bytes, &file[range.start as usize..range.end as usize]);
    }
}
