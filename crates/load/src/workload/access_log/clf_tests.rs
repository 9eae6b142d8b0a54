//! Lines by hand, and times by date(1).

use super::*;

fn get(path: &str, file_bytes: Option<u64>) -> What {
    What::Get { path: path.into(), file_bytes }
}

/// The line of Apache's documentation, with another request, status and size.
fn line(rest: &str) -> Result<Entry, &'static str> {
    parse(format!("127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] {rest}").as_bytes())
}

fn what(rest: &str) -> What {
    line(rest).unwrap().what
}

#[test]
fn common_and_combined() {
    // date -u -d '2000-10-10 20:55:36' +%s
    let expected = Entry { at_s: 971_211_336, what: get("/apache_pb.gif", Some(2326)) };
    assert_eq!(line("\"GET /apache_pb.gif HTTP/1.0\" 200 2326"), Ok(expected.clone()));
    let agent = "\"http://www.example.com/start.html\" \"Mozilla/4.08 [en] (Win98; I ;Nav)\"";
    assert_eq!(line(&format!("\"GET /apache_pb.gif HTTP/1.0\" 200 2326 {agent}")), Ok(expected));
}

#[test]
fn statuses_and_methods() {
    assert_eq!(what("\"GET /a HTTP/1.1\" 206 5"), get("/a", Some(5)));
    assert_eq!(what("\"GET /a HTTP/1.1\" 304 0"), get("/a", None));
    assert_eq!(what("\"GET /a HTTP/1.1\" 304 -"), get("/a", None));
    assert_eq!(what("\"GET /a HTTP/1.1\" 200 -"), get("/a", Some(0)));
    assert_eq!(what("\"GET /a HTTP/1.1\" 404 209"), What::OtherStatus);
    assert_eq!(what("\"GET /a HTTP/1.1\" 301 209"), What::OtherStatus);
    assert_eq!(what("\"HEAD /a HTTP/1.1\" 200 0"), What::OtherMethod);
    assert_eq!(what("\"-\" 408 0"), What::OtherMethod);
    assert_eq!(what("\"\\x16\\x03\\x01\" 400 157"), What::OtherMethod);
}

#[test]
fn paths() {
    assert_eq!(what("\"GET /a?b=\\\"c\\\" HTTP/1.1\" 200 1"), get("/a?b=%22c%22", Some(1)));
    assert_eq!(what("\"GET /\\xC3\\xA9\\\\ HTTP/1.1\" 200 1"), get("/%C3%A9%5C", Some(1)));
    assert_eq!(what("\"GET /a b.html HTTP/1.0\" 200 1"), get("/a%20b.html", Some(1)));
    assert_eq!(what("\"GET /old\" 200 1"), get("/old", Some(1)));
    assert_eq!(what("\"GET http://h.example:80/x/y HTTP/1.1\" 200 1"), get("/x/y", Some(1)));
    assert_eq!(what("\"GET HTTP://h.example HTTP/1.1\" 200 1"), get("/", Some(1)));
    assert_eq!(what("\"GET * HTTP/1.1\" 200 1"), What::NoPath);
    assert_eq!(what("\"GET  HTTP/1.1\" 200 1"), What::NoPath);
}

#[test]
fn malformed_lines_say_why() {
    for (rest, why) in [
        ("GET /a HTTP/1.0 200 1", "no \"request\" after the time"),
        ("\"GET /a HTTP/1.0 200 1", "the request has no end"),
        ("\"GET /a HTTP/1.0\\\" 200 1", "the request has no end"),
        ("\"GET /a HTTP/1.0\"", "no status"),
        ("\"GET /a HTTP/1.0\" 20", "no status"),
        ("\"GET /a HTTP/1.0\" 2OO 1", "no status"),
        ("\"GET /a HTTP/1.0\" 200", "no size"),
        ("\"GET /a HTTP/1.0\" 200 1k", "no size"),
        ("\"GET /a HTTP/1.0\" 200 99999999999999999999", "no size"),
    ] {
        assert_eq!(line(rest), Err(why), "{rest}");
    }
    for text in ["", "x", "1.2.3.4 - - [", "1.2.3.4 - - [10/Oct/2000", "\u{fffd} ["] {
        assert_eq!(parse(text.as_bytes()), Err("no [time]"));
    }
}

/// Expected values by date(1), as in `date -d '1970-01-01 01:00:00 +0100' +%s`.
#[test]
fn times_and_zones() {
    for (time, expected) in [
        ("01/Jan/1970:00:00:00 +0000", Some(0)),
        ("01/Jan/1970:01:00:00 +0100", Some(0)),
        ("31/Dec/1969:23:59:59 -0001", None),
        ("01/Jan/1970:00:00:00 +0100", None),
        ("31/Dec/1998:23:59:60 +0000", Some(915_148_800)),
        ("29/Feb/2000:12:00:00 +0000", Some(951_825_600)),
        ("01/Mar/2000:00:00:00 +0530", Some(951_849_000)),
        ("10/Oct/2000:13:55:36 -0700", Some(971_211_336)),
        ("29/Feb/2024:23:59:59 -1130", Some(1_709_292_599)),
        ("07/Feb/2106:06:28:15 +0000", Some(u32::MAX)),
        ("07/Feb/2106:06:28:16 +0000", None),
        ("29/Feb/2100:00:00:00 +0000", None),
        ("29/Feb/2023:00:00:00 +0000", None),
        ("00/Jan/2000:00:00:00 +0000", None),
        ("31/Apr/2000:00:00:00 +0000", None),
        ("01/jan/2000:00:00:00 +0000", None),
        ("01/Jan/2000:24:00:00 +0000", None),
        ("01/Jan/2000:00:60:00 +0000", None),
        ("01/Jan/2000:00:00:61 +0000", None),
        ("01/Jan/2000:00:00:00 00000", None),
        ("01/Jan/2000:00:00:00 +0060", None),
        ("01/Jan/2000 00:00:00 +0000", None),
        ("+1/Jan/2000:00:00:00 +0000", None),
    ] {
        assert_eq!(unix_seconds(time.as_bytes()), expected, "{time}");
    }
}
