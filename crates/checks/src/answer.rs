//! Response heads of upstreams: `flash_http::upstream_response` agrees with a simple reference, however the bytes arrive.

use flash_http::{
    BadResponse, HandBack, HeadSyntax, ParsedHead, ResponseBody, ResponseHead, ResponseTo, Status,
    parse_response,
};

use crate::text::{cuts, elements, field, is_field_value, prefixes, split_line, trim_blanks};

/// Limits of a head: the usual one, and one that short inputs reach.
const LIMITS: [usize; 2] = [32 * 1024, 100];
/// The limit of fields that `flash_http::upstream_response` documents.
const FIELDS_MAX: usize = 100;
/// Pieces of one input whose ends are tried.
const PIECES_MAX: usize = 48;
/// Checks `input`: a line with any of the words `cgi`, `head` and `upgrade`, followed by the bytes received from
/// an upstream.
pub fn answer(input: &[u8]) {
    let (first, bytes) = split_line(input);
    let says = |wanted: &str| first.split(|&byte| byte == b' ').any(|word| word == wanted.as_bytes());
    let syntax = if says("cgi") { HeadSyntax::Cgi } else { HeadSyntax::Http };
    let asked = ResponseTo { is_head: says("head"), upgrades: says("upgrade") };
    for limit in LIMITS {
        let whole = parse_response(bytes, syntax, asked, limit);
        match (&whole, expected(bytes, syntax, asked, limit)) {
            (Ok(ParsedHead::Partial), None) => {
                assert!(bytes.len() < limit, "the parser waits for more although the head is too large");
            }
            (Err(_), None) => {}
            (Ok(head), Some(expected)) => assert_eq!(*head, expected),
            (head, expected) => panic!("{head:?} instead of {expected:?}"),
        }
        arrivals(bytes, &whole, |bytes| parse_response(bytes, syntax, asked, limit));
    }
}

/// No head is accepted before its last byte has come, none is refused that can become valid, and the bytes
/// after it do not matter.
fn arrivals(
    bytes: &[u8],
    whole: &Result<ParsedHead, BadResponse>,
    parse: impl Fn(&[u8]) -> Result<ParsedHead, BadResponse>,
) {
    let head_len = match whole {
        Ok(ParsedHead::Complete(answer)) => answer.head_len,
        Ok(ParsedHead::Interim { head_len }) => *head_len,
        Ok(ParsedHead::Partial) | Err(_) => bytes.len() + 1,
    };
    let mut refused_at = None;
    let mut ends: Vec<usize> =
        prefixes(bytes, head_len).chain(cuts(bytes).into_iter().take(PIECES_MAX)).collect();
    ends.sort_unstable();
    for end in ends {
        match parse(&bytes[..end]) {
            Ok(ParsedHead::Partial) => {
                assert!(end < head_len, "a complete head was not accepted at {end}");
                assert_eq!(refused_at, None, "refused, and awaited at {end}");
            }
            Ok(head) => {
                assert!(end >= head_len, "a head was accepted at {end}");
                assert_eq!(Ok(&head), whole.as_ref());
            }
            Err(bad) => {
                assert!(whole.is_err(), "{bad} at {end}, but then {whole:?}");
                refused_at = refused_at.or(Some(end));
            }
        }
    }
}

/// The lines of a head, and its length. Lines end in CRLF, or in LF too for CGI. None if the head is incomplete.
fn lines(bytes: &[u8], syntax: HeadSyntax) -> Option<(Vec<&[u8]>, usize)> {
    let mut lines = Vec::new();
    let mut at = 0;
    loop {
        let end = at + bytes[at..].iter().position(|&byte| byte == b'\n')?;
        let line = match (bytes[at..end].strip_suffix(b"\r"), syntax) {
            (Some(line), _) => line,
            (None, HeadSyntax::Cgi) => &bytes[at..end],
            (None, HeadSyntax::Http) => return None,
        };
        at = end + 1;
        // The status line of HTTP is never the last line, so that an empty one is refused later.
        if line.is_empty() && (syntax == HeadSyntax::Cgi || !lines.is_empty()) {
            return Some((lines, at));
        }
        lines.push(line);
    }
}

/// The version and the status of `HTTP/1.1 200 OK`.
fn status_line(line: &[u8]) -> Option<(bool, u16)> {
    let rest = line.strip_prefix(b"HTTP/1.")?;
    let [minor, b' ', rest @ ..] = rest else { return None };
    Some((minor.is_ascii_digit().then_some(*minor != b'0')?, status(rest)?))
}

/// A status, alone or followed by a space and text.
fn status(text: &[u8]) -> Option<u16> {
    let mut words = text.splitn(2, |&byte| byte == b' ');
    let digits = words.next().filter(|word| word.len() == 3 && word.iter().all(u8::is_ascii_digit))?;
    let phrase = words.next().unwrap_or_default();
    is_field_value(trim_blanks(phrase)).then_some(())?;
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|code| (100..600).contains(code))
}

/// Names as sent, with their values, in order.
type Fields<'b> = Vec<(&'b [u8], &'b [u8])>;

fn all<'b>(fields: &Fields<'b>, wanted: &str) -> Vec<&'b [u8]> {
    let found = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted.as_bytes()));
    found.map(|(_, value)| *value).collect()
}

/// The value of a field, which must not occur twice.
fn at_most_once<'b>(fields: &Fields<'b>, name: &str) -> Option<Option<&'b [u8]>> {
    match all(fields, name)[..] {
        [] => Some(None),
        [value] => Some(Some(value)),
        _ => None,
    }
}

/// Whether `Connection` has this option.
fn connection_says(fields: &Fields<'_>, option: &[u8]) -> bool {
    all(fields, "connection").into_iter().any(|list| elements(list).any(|e| e.eq_ignore_ascii_case(option)))
}

/// The result for a complete and valid head; None for others.
fn expected(bytes: &[u8], syntax: HeadSyntax, asked: ResponseTo, limit: usize) -> Option<ParsedHead> {
    let (mut lines, head_len) = lines(bytes, syntax).filter(|(_, head_len)| *head_len <= limit)?;
    let first = match syntax {
        HeadSyntax::Http => Some(status_line(lines.remove(0))?),
        HeadSyntax::Cgi => None,
    };
    let fields: Fields<'_> = lines.into_iter().map(field).collect::<Option<_>>()?;
    if fields.len() > FIELDS_MAX {
        return None;
    }
    let length: Option<u64> = match at_most_once(&fields, "content-length")? {
        Some(digits) if digits.iter().all(u8::is_ascii_digit) => {
            Some(std::str::from_utf8(digits).ok()?.parse().ok()?)
        }
        Some(_) => return None,
        None => None,
    };
    let is_chunked = match at_most_once(&fields, "transfer-encoding")? {
        None => false,
        Some(coding) => {
            let is_valid = coding.eq_ignore_ascii_case(b"chunked")
                && length.is_none()
                && first.is_some_and(|(is_11, _)| is_11);
            is_valid.then_some(true)?
        }
    };
    let code = match first {
        Some((_, code)) => code,
        None => cgi_code(&fields)?,
    };
    match code {
        101 if !asked.upgrades || all(&fields, "upgrade").is_empty() => return None,
        100 | 102..=199 => return Some(ParsedHead::Interim { head_len }),
        _ => {}
    }
    let body = match (code, length) {
        (101, _) => ResponseBody::Upgraded,
        (204 | 304, _) => ResponseBody::None,
        _ if asked.is_head => ResponseBody::None,
        _ if is_chunked => ResponseBody::Chunked,
        (_, Some(length)) => ResponseBody::Length(length),
        (_, None) => ResponseBody::UntilEnd,
    };
    let persists = first.is_none_or(|(is_11, _)| {
        let is_wrong = code == 204 && (is_chunked || !matches!(length, None | Some(0)));
        let has_end = !is_wrong && !matches!(body, ResponseBody::UntilEnd | ResponseBody::Upgraded);
        has_end && !connection_says(&fields, b"close") && (is_11 || connection_says(&fields, b"keep-alive"))
    });
    Some(ParsedHead::Complete(Box::new(ResponseHead {
        head_len,
        status: Status(code),
        body,
        length_bytes: if code == 101 || code == 204 { None } else { length },
        keep_alive: persists,
        is_stream: is_stream(&fields),
        hand_back: hand_back(&fields, code)?,
        fields: passed_on(&fields, code, syntax),
    })))
}

/// RFC 3875 section 6.
fn cgi_code(fields: &Fields<'_>) -> Option<u16> {
    match at_most_once(fields, "status")? {
        _ if fields.is_empty() => None,
        Some(text) => status(text).filter(|code| *code >= 200),
        None if all(fields, "location").is_empty() => Some(200),
        None => Some(302),
    }
}

fn is_stream(fields: &Fields<'_>) -> bool {
    let is = |name: &str, wanted: &[u8]| {
        let first = |value: &&[u8]| value.split(|byte| *byte == b';').next().unwrap_or_default().to_vec();
        all(fields, name).iter().any(|value| first(value).trim_ascii().eq_ignore_ascii_case(wanted))
    };
    let is_unbuffered =
        all(fields, "x-accel-buffering").iter().any(|value| value.eq_ignore_ascii_case(b"no"));
    is_unbuffered || is("content-type", b"text/event-stream")
}

fn hand_back(fields: &Fields<'_>, code: u16) -> Option<Option<HandBack>> {
    if !(200..300).contains(&code) {
        return Some(None);
    }
    match (at_most_once(fields, "x-accel-redirect")?, at_most_once(fields, "x-sendfile")?) {
        (Some(_), Some(_)) => None,
        (None, None) => Some(None),
        (None, Some(file)) => file.starts_with(b"/").then(|| Some(HandBack::File(file.to_vec()))),
        (Some(target), None) => {
            let path = target.split(|&byte| byte == b'?').next().unwrap_or_default();
            is_path(path).then(|| Some(HandBack::Path(path.to_vec())))
        }
    }
}

/// Whether a path is absolute, its escapes are whole, and it neither leaves the root nor has a NUL.
fn is_path(path: &[u8]) -> bool {
    let mut pieces = path.split(|&byte| byte == b'%');
    let mut decoded = pieces.next().unwrap_or_default().to_vec();
    for piece in pieces {
        let digits = piece.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else {
            return false;
        };
        decoded.push(byte);
        decoded.extend_from_slice(&piece[2..]);
    }
    let mut depth = 0;
    for segment in decoded.split(|&byte| byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => depth -= 1,
            _ => depth += 1,
        }
        if depth < 0 {
            return false;
        }
    }
    path.starts_with(b"/") && !decoded.contains(&0)
}

/// The lines of the fields that are not meant for Flash or its connection alone.
fn passed_on(fields: &Fields<'_>, code: u16, syntax: HeadSyntax) -> Vec<u8> {
    const DROPPED: &[&str] = &[
        "connection",
        "content-length",
        "date",
        "keep-alive",
        "proxy-connection",
        "server",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-sendfile",
    ];
    let mut lines = Vec::new();
    for (name, value) in fields {
        let lower = String::from_utf8_lossy(name).to_ascii_lowercase();
        let is_dropped = DROPPED.contains(&lower.as_str())
            || lower.starts_with("x-accel-")
            || syntax == HeadSyntax::Cgi && lower == "status"
            || connection_says(fields, name);
        if !is_dropped || code == 101 && lower == "upgrade" {
            lines.extend_from_slice(&[name, &b": "[..], value, b"\r\n"].concat());
        }
    }
    if code == 101 {
        lines.extend_from_slice(b"Connection: upgrade\r\n");
    }
    lines
}
