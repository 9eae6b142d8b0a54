//! Lines of Flash's own access log as JSON.
//!
//! Only [`super`] calls it. Pure.
//!
//! `{"time":"2000-10-10T20:55:36Z","request":"GET /a.gif HTTP/1.1","status":200,"bytes":2326}`, with more fields, which are
//! not looked at. The times are UTC.

use serde::Deserialize;

use super::Entry;
use super::clf::{answered, bounded, has_form, seconds_since_1970};

#[derive(Deserialize)]
struct Line {
    time: String,
    request: String,
    status: u16,
    bytes: u64,
}

/// Reads a line.
///
/// Errors: what in it is not as it should be.
pub(super) fn parse(line: &[u8]) -> Result<Entry, &'static str> {
    let line: Line =
        serde_json::from_slice(line).map_err(|_| "no JSON with time, request, status and bytes")?;
    let at_s = unix_seconds(line.time.as_bytes()).ok_or("no time as in 2000-10-10T20:55:36Z")?;
    Ok(Entry { at_s, what: answered(line.request.as_bytes(), line.status, line.bytes) })
}

/// Unix seconds of `2000-10-10T20:55:36Z`; none before 1970 or after 2106.
fn unix_seconds(time: &[u8]) -> Option<u32> {
    has_form(time, b"....-..-..T..:..:..Z").then_some(())?;
    let month = bounded(&time[5..7], 1, 12)?;
    u32::try_from(seconds_since_1970([&time[..4], &time[8..10]], month, &time[11..19])?).ok()
}

#[cfg(test)]
mod tests {
    use super::super::What;
    use super::*;

    #[test]
    fn a_line_of_flash() {
        let line = r#"{"time":"2000-10-10T20:55:36Z","peer":"::1","host":"a","request":"GET /a%20b?x HTTP/1.1","status":200,"bytes":2326,"whole":true,"duration_ms":0,"referer":"","agent":"curl \"x\""}"#;
        let what = What::Get { path: "/a%20b?x".into(), file_bytes: Some(2326) };
        assert_eq!(parse(line.as_bytes()), Ok(Entry { at_s: 971_211_336, what }));
        let other = line.replace("GET ", "HEAD ");
        assert_eq!(parse(other.as_bytes()).unwrap().what, What::OtherMethod);
        let missing = line.replace("200,", "404,");
        assert_eq!(parse(missing.as_bytes()).unwrap().what, What::OtherStatus);
    }

    #[test]
    fn wrong_lines_are_refused() {
        let line =
            |time: &str| format!(r#"{{"time":"{time}","request":"GET / HTTP/1.1","status":200,"bytes":1}}"#);
        assert!(parse(line("1970-01-01T00:00:00Z").as_bytes()).is_ok());
        for time in [
            "",
            "2000-13-01T00:00:00Z",
            "2001-02-29T00:00:00Z",
            "2000-10-10 20:55:36Z",
            "2000-10-10T25:00:00Z",
        ] {
            assert_eq!(parse(line(time).as_bytes()), Err("no time as in 2000-10-10T20:55:36Z"), "{time}");
        }
        for text in ["{", "{}", r#"{"time":"1970-01-01T00:00:00Z","request":"GET /","status":-1,"bytes":1}"#]
        {
            assert!(parse(text.as_bytes()).unwrap_err().starts_with("no JSON"), "{text}");
        }
    }
}
