//! Preconditions (RFC 9110 section 13).
//!
//! Called by the engine once the file is known and would be answered with 200. It must not be called for a
//! file that does not exist, or for an answer that is not a file.

use crate::date::parse_http_date;
use crate::request::{Method, Request};

/// The validators of a file's present state.
#[derive(Clone, Copy, Debug)]
pub struct Validators<'a> {
    /// The entity tag, with its quotes. A weak one begins with `W/`.
    pub etag: &'a [u8],
    /// The time of modification in seconds since 1970, as in `Last-Modified`.
    pub modified_s: i64,
}

/// The result of the preconditions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PreconditionResult {
    /// Answer as if there were no preconditions.
    Proceed,
    /// 304.
    NotModified,
    /// 412.
    PreconditionFailed,
}

/// Evaluates the preconditions in the order of RFC 9110 section 13.2.2, except `If-Range`, which is the task
/// of [`range_applies`].
pub fn evaluate(request: &Request<'_>, validators: &Validators<'_>) -> PreconditionResult {
    // Section 13.2.1: preconditions apply only to methods that select a representation.
    if !matches!(request.method, Method::Get | Method::Head) {
        return PreconditionResult::Proceed;
    }
    if let Some(list) = &request.if_match {
        if !list_matches(list, validators.etag, Comparison::Strong) {
            return PreconditionResult::PreconditionFailed;
        }
    } else if let Some(date) = request.if_unmodified_since.and_then(parse_http_date)
        && validators.modified_s > date
    {
        return PreconditionResult::PreconditionFailed;
    }
    if let Some(list) = &request.if_none_match {
        if list_matches(list, validators.etag, Comparison::Weak) {
            return PreconditionResult::NotModified;
        }
    } else if let Some(date) = request.if_modified_since.and_then(parse_http_date)
        && validators.modified_s <= date
    {
        return PreconditionResult::NotModified;
    }
    PreconditionResult::Proceed
}

/// Whether `Range` can be honoured: the method is GET (RFC 9110 section 14.2), and there is no `If-Range`, or it matches
/// the present state of the file (section 13.1.5). `now_s` is in seconds since 1970.
///
/// A date matches only if it equals `Last-Modified` and is a strong validator. For that, section 8.8.2.2
/// demands that it is at least one second old. RFC 7232 demanded sixty seconds, but that would only make more
/// transfers start again: it guards against two changes within one second, and waiting longer does not make
/// these easier to notice.
pub fn range_applies(request: &Request<'_>, validators: &Validators<'_>, now_s: i64) -> bool {
    match request.if_range {
        _ if request.method != Method::Get => false,
        None => true,
        // A weak tag never matches here, and it is not a date either.
        Some([b'"', ..]) => request.if_range == Some(validators.etag),
        Some(date) => parse_http_date(date) == Some(validators.modified_s) && validators.modified_s < now_s,
    }
}

/// The two comparisons of RFC 9110 section 8.8.3.2.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

/// Whether a list of entity tags contains `etag`, or is `*`. A malformed list contains no tag, which is the
/// safe side both for `If-Match` (412) and for `If-None-Match` (a full answer).
fn list_matches(list: &[u8], etag: &[u8], comparison: Comparison) -> bool {
    if list == b"*" {
        return true;
    }
    let (own_weak, etag) = match etag.strip_prefix(b"W/") {
        Some(quoted) => (true, quoted),
        None => (false, etag),
    };
    let mut found = false;
    let mut rest = skip_separators(list).1;
    while !rest.is_empty() {
        let Some((weak, tag, after)) = split_tag(rest) else {
            return false;
        };
        found |= tag == etag && !((weak || own_weak) && comparison == Comparison::Strong);
        let (commas, next) = skip_separators(after);
        if commas == 0 && !next.is_empty() {
            return false;
        }
        rest = next;
    }
    found
}

/// Skips blanks and commas, because RFC 9110 section 5.6.1.2 allows empty elements. Returns the number of
/// commas and the rest.
fn skip_separators(list: &[u8]) -> (usize, &[u8]) {
    let end = list.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b',')).unwrap_or(list.len());
    let commas = list[..end].iter().filter(|&&byte| byte == b',').count();
    (commas, &list[end..])
}

/// Splits an entity tag off the front (RFC 9110 section 8.8.3): whether it is weak, the tag with its quotes,
/// and the rest. A comma between the quotes belongs to the tag.
fn split_tag(list: &[u8]) -> Option<(bool, &[u8], &[u8])> {
    let (weak, quoted) = match list.strip_prefix(b"W/") {
        Some(quoted) => (true, quoted),
        None => (false, list),
    };
    let inner = quoted.strip_prefix(b"\"")?;
    let len = memchr::memchr(b'"', inner)?;
    if inner[..len].iter().any(|&byte| byte <= b' ' || byte == 0x7f) {
        return None;
    }
    let (tag, after) = quoted.split_at(len + 2);
    Some((weak, tag, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::date::http_date;
    use crate::request::{Head, HeadLimits, parse_head};
    use proptest::prelude::*;

    const MODIFIED_S: i64 = 784_111_777;
    const VALIDATORS: Validators<'_> = Validators { etag: b"\"a,b\"", modified_s: MODIFIED_S };
    const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn with_request<T>(method: &str, fields: &[(&str, &str)], check: impl Fn(&Request<'_>) -> T) -> T {
        let lines: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!("{method} / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        match parse_head(head.as_bytes(), &HeadLimits::default()) {
            Ok(Head::Complete(request)) => check(&request),
            other => panic!("{other:?}"),
        }
    }

    fn verdict(fields: &[(&str, &str)]) -> PreconditionResult {
        with_request("GET", fields, |request| evaluate(request, &VALIDATORS))
    }

    #[test]
    fn entity_tag_lists() {
        for (list, strong, weak) in [
            ("\"a,b\"", true, true),
            ("W/\"a,b\"", false, true),
            ("\"x\", \"a,b\"", true, true),
            ("\"x\" ,\t,W/\"y\",\"a,b\" ,", true, true),
            ("W/\"a,b\", \"a,b\"", true, true),
            ("*", true, true),
            ("\"a\", \"b\"", false, false),
            ("a,b", false, false),
            ("\"a,b", false, false),
            ("w/\"a,b\"", false, false),
            ("W/ \"a,b\"", false, false),
            ("\"a,b\" \"x\"", false, false),
            ("\"a,b\"\"x\"", false, false),
            ("\"a,b\", x", false, false),
            ("*, \"a,b\"", false, false),
            ("\"a b\", \"a,b\"", false, false),
            ("", false, false),
        ] {
            assert_eq!(list_matches(list.as_bytes(), VALIDATORS.etag, Comparison::Strong), strong, "{list}");
            assert_eq!(list_matches(list.as_bytes(), VALIDATORS.etag, Comparison::Weak), weak, "{list}");
        }
    }

    #[test]
    fn a_weak_tag_of_ours_matches_only_weakly() {
        for list in ["\"a,b\"", "W/\"a,b\"", "\"x\", \"a,b\""] {
            assert!(!list_matches(list.as_bytes(), b"W/\"a,b\"", Comparison::Strong), "{list}");
            assert!(list_matches(list.as_bytes(), b"W/\"a,b\"", Comparison::Weak), "{list}");
        }
        assert!(!list_matches(b"W/\"a\"", b"W/\"a,b\"", Comparison::Weak));
    }

    #[test]
    fn single_preconditions() {
        use PreconditionResult::{NotModified, PreconditionFailed, Proceed};
        for (name, value, expected) in [
            ("If-Match", "\"a,b\"", Proceed),
            ("If-Match", "*", Proceed),
            ("If-Match", "W/\"a,b\"", PreconditionFailed),
            ("If-Match", "\"x\"", PreconditionFailed),
            ("If-Match", "", PreconditionFailed),
            ("If-None-Match", "\"a,b\"", NotModified),
            ("If-None-Match", "W/\"a,b\"", NotModified),
            ("If-None-Match", "*", NotModified),
            ("If-None-Match", "\"x\"", Proceed),
            ("If-Unmodified-Since", SAME, Proceed),
            ("If-Unmodified-Since", LATER, Proceed),
            ("If-Unmodified-Since", EARLIER, PreconditionFailed),
            ("If-Unmodified-Since", "junk", Proceed),
            ("If-Modified-Since", SAME, NotModified),
            ("If-Modified-Since", "Sunday, 06-Nov-94 08:49:37 GMT", NotModified),
            ("If-Modified-Since", "Sun Nov  6 08:49:37 1994", NotModified),
            ("If-Modified-Since", LATER, NotModified),
            ("If-Modified-Since", EARLIER, Proceed),
            ("If-Modified-Since", "junk", Proceed),
        ] {
            assert_eq!(verdict(&[(name, value)]), expected, "{name}: {value}");
        }
    }

    #[test]
    fn the_order_of_section_13_2_2() {
        use PreconditionResult::{NotModified, PreconditionFailed, Proceed};
        // `If-Match` overrides `If-Unmodified-Since`.
        assert_eq!(verdict(&[("If-Match", "*"), ("If-Unmodified-Since", EARLIER)]), Proceed);
        // `If-None-Match` overrides `If-Modified-Since` in both directions, and also if it is malformed.
        assert_eq!(verdict(&[("If-None-Match", "\"x\""), ("If-Modified-Since", SAME)]), Proceed);
        assert_eq!(verdict(&[("If-None-Match", "\"a,b\""), ("If-Modified-Since", EARLIER)]), NotModified);
        assert_eq!(verdict(&[("If-None-Match", "junk"), ("If-Modified-Since", SAME)]), Proceed);
        // The first pair of preconditions comes before the second.
        assert_eq!(verdict(&[("If-None-Match", "*"), ("If-Match", "\"x\"")]), PreconditionFailed);
        assert_eq!(verdict(&[("If-None-Match", "*"), ("If-Match", "\"a,b\"")]), NotModified);
        assert_eq!(
            verdict(&[("If-Unmodified-Since", EARLIER), ("If-Modified-Since", SAME)]),
            PreconditionFailed
        );
        // Repeated lines of a list form one list; a repeated date counts as absent.
        assert_eq!(verdict(&[("If-None-Match", "\"x\""), ("If-None-Match", "\"a,b\"")]), NotModified);
        assert_eq!(verdict(&[("If-Modified-Since", SAME), ("If-Modified-Since", SAME)]), Proceed);
    }

    #[test]
    fn methods() {
        let of = |method| {
            with_request(method, &[("If-None-Match", "*")], |request| evaluate(request, &VALIDATORS))
        };
        assert_eq!(of("HEAD"), PreconditionResult::NotModified);
        assert_eq!(of("OPTIONS"), PreconditionResult::Proceed);
        assert_eq!(of("POST"), PreconditionResult::Proceed);
    }

    #[test]
    fn if_range() {
        let applies = |value: &str, now_s| {
            with_request("GET", &[("If-Range", value)], |request| range_applies(request, &VALIDATORS, now_s))
        };
        let long_after_s = MODIFIED_S + 3_600;
        assert!(applies("\"a,b\"", MODIFIED_S));
        assert!(applies(SAME, long_after_s));
        assert!(applies(SAME, MODIFIED_S + 1));
        assert!(!applies(SAME, MODIFIED_S));
        for value in ["W/\"a,b\"", "\"x\"", "\"a,b\", \"x\"", "*", "junk", "", EARLIER, LATER] {
            assert!(!applies(value, long_after_s), "{value}");
        }
        assert!(with_request("GET", &[], |request| range_applies(request, &VALIDATORS, 0)));
    }

    proptest! {
        #[test]
        fn arbitrary_lists_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let strong = list_matches(&bytes, b"\"a\"", Comparison::Strong);
            let weak = list_matches(&bytes, b"\"a\"", Comparison::Weak);
            prop_assert!(weak || !strong);
        }

        #[test]
        fn dates_compare_as_numbers(modified_s in 0i64..4_000_000_000, since_s in 0i64..4_000_000_000) {
            let validators = Validators { etag: b"\"a\"", modified_s };
            let date = String::from_utf8(http_date(since_s).to_vec()).unwrap();
            let verdict = with_request("GET", &[("If-Modified-Since", &date)], |request| evaluate(request, &validators));
            prop_assert_eq!(verdict == PreconditionResult::NotModified, modified_s <= since_s);
        }
    }
}
