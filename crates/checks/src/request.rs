//! Request heads: `flash_http::request` agrees with the simple reference, however the bytes arrive.

use std::borrow::Cow;

use flash_http::request::first_line;
use flash_http::{BadHead, Head, HeadLimits, Request, head_end, parse_head};

use crate::request_reference::{Expected, expected};
use crate::text::{cuts, prefixes};

/// Limits low enough for short inputs to reach.
const SMALL: HeadLimits = HeadLimits { head_bytes: 200, fields: 4, target_bytes: 24 };

/// This many bytes arrive one by one; the rest arrives at once.
const SINGLE_BYTES_MAX: usize = 1_024;

/// Checks `input`, the bytes received on a connection.
pub fn request(input: &[u8]) {
    for limits in [HeadLimits::default(), SMALL] {
        let whole = parse_head(input, &limits);
        let reference = expected(input, &limits);
        match (&whole, &reference) {
            (Ok(Head::Complete(request)), Some(expected)) => same(request, expected),
            (Ok(Head::Complete(_)), None) => panic!("an invalid head was accepted"),
            (_, Some(_)) => panic!("a valid head was refused: {whole:?}"),
            (_, None) => {}
        }
        if let Ok(Head::Partial) = whole {
            assert!(
                input.len() < limits.head_bytes,
                "the parser waits for more although the head is too large"
            );
        }
        beginnings(input, &limits, outcome(&whole));
        arrivals(input, &limits, outcome(&whole));
    }
    for bytes_max in [0, 10, input.len()] {
        let line = first_line(input, bytes_max);
        assert!(line.len() <= bytes_max && !line.contains(&b'\r') && !line.contains(&b'\n'));
    }
}

/// The length of a complete head, None for a partial one.
type Outcome = Result<Option<usize>, BadHead>;

fn outcome(parsed: &Result<Head<'_>, BadHead>) -> Outcome {
    match parsed {
        Ok(Head::Complete(request)) => Ok(Some(request.head_len)),
        Ok(Head::Partial) => Ok(None),
        Err(bad) => Err(*bad),
    }
}

fn same(request: &Request<'_>, expected: &Expected<'_>) {
    assert_eq!(request.head_len, expected.head_len);
    assert_eq!(request.line, expected.line);
    assert_eq!((request.method, request.version), (expected.method, expected.version));
    assert_eq!((request.path, request.query), (expected.path, expected.query));
    assert_eq!(request.host, expected.host);
    assert_eq!(request.body, expected.body);
    assert_eq!(request.keep_alive, expected.keep_alive, "Connection");
    assert_eq!(request.expect_continue, expected.expect_continue, "Expect");
    let fields = &expected.fields;
    for (name, found) in [
        ("accept", &request.accept),
        ("accept-encoding", &request.accept_encoding),
        ("if-match", &request.if_match),
        ("if-none-match", &request.if_none_match),
    ] {
        assert_eq!(found.as_deref(), fields.joined(name).as_deref(), "{name}");
        let copied = matches!(found, Some(Cow::Owned(_)));
        assert_eq!(copied, fields.all(name).len() > 1, "{name}: only a repeated field is copied");
    }
    // A repeated `If-Range` makes `Range` absent too.
    let range = fields.once("range").filter(|_| fields.all("if-range").len() < 2);
    assert_eq!(request.range, range, "range");
    for (name, found) in [
        ("if-range", request.if_range),
        ("if-modified-since", request.if_modified_since),
        ("if-unmodified-since", request.if_unmodified_since),
    ] {
        assert_eq!(found, fields.once(name), "{name}");
    }
    for (name, found) in [("referer", request.referer), ("user-agent", request.user_agent)] {
        assert_eq!(found, fields.all(name).first().copied(), "{name}");
    }
}

/// No head is accepted before its last byte has come, none is refused that can become valid, and the bytes
/// after it do not matter.
fn beginnings(input: &[u8], limits: &HeadLimits, whole: Outcome) {
    for length in prefixes(input, whole.ok().flatten().unwrap_or(input.len())) {
        match (outcome(&parse_head(&input[..length], limits)), whole) {
            (Ok(None), Ok(Some(head_len))) => {
                assert!(length < head_len, "a complete head was not accepted at {length}");
            }
            (Ok(None), _) | (Err(_), Err(_)) => {}
            (Ok(taken), whole) => assert_eq!(Ok(taken), whole, "at {length}"),
            (Err(bad), whole) => panic!("{bad} at {length}, but then {whole:?}"),
        }
    }
}

/// Receiving as the module's documentation describes gives the same result, in single bytes and in pieces.
fn arrivals(input: &[u8], limits: &HeadLimits, whole: Outcome) {
    let single: Vec<usize> = (0..=input.len().min(SINGLE_BYTES_MAX)).chain([input.len()]).collect();
    for ends in [single, cuts(input)] {
        let mut seen = 0;
        let mut arrived: Outcome = Ok(None);
        for end in ends {
            let buffer = &input[..end];
            if seen == 0 || end >= limits.head_bytes || head_end(buffer, seen).is_some() {
                arrived = outcome(&parse_head(buffer, limits));
            }
            if arrived != Ok(None) {
                break;
            }
            seen = end;
        }
        match (arrived, whole) {
            // If a head has several faults, a different one may be reported. Garbage without a line end may
            // wait for more.
            (Err(_) | Ok(None), Err(_)) => {}
            (arrived, whole) => assert_eq!(arrived, whole, "as it arrives"),
        }
    }
}
