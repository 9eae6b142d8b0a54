//! Preconditions: `flash_http::conditional` agrees with RFC 9110 section 13, followed step by step.

use flash_http::conditional::{evaluate, range_applies};
use flash_http::date::parse_http_date;
use flash_http::{Head, HeadLimits, Method, PreconditionResult, Validators, parse_head};

use crate::request_reference::{Expected, expected};
use crate::text::{number, split_line, trim_blanks};

/// Checks `input`: a line with the time of modification, the present time and the entity tag, followed by the
/// lines of a request head, each ended by a line feed. `Host` is added.
pub fn conditional(input: &[u8]) {
    let (first, lines) = split_line(input);
    let mut words = first.splitn(3, |&byte| byte == b' ');
    let mut next = || words.next().unwrap_or_default();
    let (modified_s, now_s) = (number(next()).unwrap_or(784_111_777), number(next()).unwrap_or(784_111_778));
    let tag = trim_blanks(next());
    let etag = if is_tag(tag) { tag } else { b"\"a,b\"" };
    let mut head: Vec<u8> = lines.split(|&byte| byte == b'\n').collect::<Vec<_>>().join(&b"\r\n"[..]);
    head.extend_from_slice(b"\r\nHost: a\r\n\r\n");

    let limits = HeadLimits::default();
    let (Ok(Head::Complete(request)), Some(reference)) =
        (parse_head(&head, &limits), expected(&head, &limits))
    else {
        return;
    };
    let validators = Validators { etag, modified_s };
    assert_eq!(evaluate(&request, &validators), verdict(&reference, etag, modified_s));
    assert_eq!(range_applies(&request, &validators, now_s), applies(&reference, etag, modified_s, now_s));
}

/// The steps of section 13.2.2, except the last.
fn verdict(head: &Expected<'_>, etag: &[u8], modified_s: i64) -> PreconditionResult {
    let fields = &head.fields;
    let date = |name| fields.once(name).and_then(parse_http_date);
    // Section 13.2.1.
    if !matches!(head.method, Method::Get | Method::Head) {
        return PreconditionResult::Proceed;
    }
    // Step 1.
    let if_match = fields.joined("if-match");
    if if_match.as_ref().is_some_and(|list| !names(list, etag, true)) {
        return PreconditionResult::PreconditionFailed;
    }
    // Step 2.
    if if_match.is_none() && date("if-unmodified-since").is_some_and(|date| modified_s > date) {
        return PreconditionResult::PreconditionFailed;
    }
    // Step 3.
    let if_none_match = fields.joined("if-none-match");
    if if_none_match.as_ref().is_some_and(|list| names(list, etag, false)) {
        return PreconditionResult::NotModified;
    }
    // Step 4.
    if if_none_match.is_none() && date("if-modified-since").is_some_and(|date| modified_s <= date) {
        return PreconditionResult::NotModified;
    }
    PreconditionResult::Proceed
}

/// Step 5. A repeated `If-Range` counts as absent, together with `Range`. Only GET has ranges (section 14.2).
fn applies(head: &Expected<'_>, etag: &[u8], modified_s: i64, now_s: i64) -> bool {
    if head.method != Method::Get {
        return false;
    }
    match head.fields.once("if-range") {
        None => true,
        Some(value) if value.contains(&b'"') => value == etag,
        Some(value) => parse_http_date(value) == Some(modified_s) && modified_s < now_s,
    }
}

/// Whether a list of entity tags, or `*`, contains this strong tag.
fn names(list: &[u8], etag: &[u8], strongly: bool) -> bool {
    if list == b"*" {
        return true;
    }
    // A comma between quotes is not a separator.
    let mut elements = vec![Vec::new()];
    let mut quoted = false;
    for &byte in list {
        quoted ^= byte == b'"';
        match elements.last_mut() {
            Some(element) if byte != b',' || quoted => element.push(byte),
            _ => elements.push(Vec::new()),
        }
    }
    let tags: Vec<&[u8]> = elements.iter().map(|e| trim_blanks(e)).filter(|e| !e.is_empty()).collect();
    let plain = |tag: &'_ [u8]| tag.strip_prefix(b"W/").unwrap_or(tag).to_vec();
    tags.iter().all(|tag| is_tag(&plain(tag)))
        && tags.iter().any(|tag| if strongly { *tag == etag } else { plain(tag) == etag })
}

/// `opaque-tag` of section 8.8.3.
fn is_tag(text: &[u8]) -> bool {
    match text {
        [b'"', inner @ .., b'"'] => inner.iter().all(|&byte| matches!(byte, 0x21 | 0x23..=0x7e | 0x80..)),
        _ => false,
    }
}
