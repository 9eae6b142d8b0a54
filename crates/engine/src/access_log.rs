//! Access-log lines, in the combined format or as JSON. Only formats: the system writes.

use std::fmt::Write as _;
use std::net::SocketAddr;

use flash_http::date::{iso_date, log_date};
use flash_http::error_page::escape_json;

/// The form of access-log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Apache's and nginx's combined format.
    Combined,
    /// One JSON object a line.
    Json,
    /// None.
    Off,
}

/// What is kept of a request until its line is written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) line: Vec<u8>,
    pub(crate) host: Vec<u8>,
    pub(crate) referer: Vec<u8>,
    pub(crate) agent: Vec<u8>,
    pub(crate) started_ms: u64,
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    pub(crate) whole: bool,
    pub(crate) duration_ms: u64,
}

/// Writes one line, without its end, to `out`.
pub(crate) fn write_line(
    out: &mut String,
    format: LogFormat,
    peer: SocketAddr,
    wall_s: i64,
    record: &Record,
    ending: Ending,
) {
    // Formatting into a String cannot fail.
    let _ = match format {
        LogFormat::Off => Ok(()),
        LogFormat::Combined => write!(
            out,
            "{} - - [{}] \"{}\" {} {} \"{}\" \"{}\"",
            peer.ip(),
            String::from_utf8_lossy(&log_date(wall_s)),
            quotable(&record.line),
            ending.status,
            ending.body_bytes,
            quotable(or_dash(&record.referer)),
            quotable(or_dash(&record.agent)),
        ),
        LogFormat::Json => write!(
            out,
            "{{\"time\":\"{}\",\"peer\":\"{}\",\"host\":\"{}\",\"request\":\"{}\",\"status\":{},\"bytes\":{},\
             \"whole\":{},\"duration_ms\":{},\"referer\":\"{}\",\"agent\":\"{}\"}}",
            String::from_utf8_lossy(&iso_date(wall_s)),
            peer.ip(),
            json(&record.host),
            json(&record.line),
            ending.status,
            ending.body_bytes,
            ending.whole,
            ending.duration_ms,
            json(&record.referer),
            json(&record.agent),
        ),
    };
}

fn or_dash(text: &[u8]) -> &[u8] {
    if text.is_empty() { b"-" } else { text }
}

/// Escaped as Apache and nginx do, so that no client can end a field or a line.
fn quotable(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text {
        match byte {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(*byte));
            }
            0x20..=0x7e => out.push(char::from(*byte)),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out
}

fn json(text: &[u8]) -> String {
    escape_json(&String::from_utf8_lossy(text)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(format: LogFormat) -> String {
        let record = Record {
            line: b"GET /\"\\\x01\xff HTTP/1.1".to_vec(),
            host: b"h".to_vec(),
            referer: Vec::new(),
            agent: b"curl \"x\"".to_vec(),
            started_ms: 0,
        };
        let ending = Ending { status: 200, body_bytes: 7, whole: true, duration_ms: 3 };
        let mut out = String::new();
        write_line(&mut out, format, SocketAddr::from(([127, 0, 0, 1], 9)), 0, &record, ending);
        out
    }

    #[test]
    fn combined_lines_escape_quotes_and_control_bytes() {
        assert_eq!(
            line(LogFormat::Combined),
            "127.0.0.1 - - [01/Jan/1970:00:00:00 +0000] \"GET /\\\"\\\\\\x01\\xff HTTP/1.1\" 200 7 \"-\" \"curl \\\"x\\\"\""
        );
    }

    #[test]
    fn json_lines_are_one_object() {
        let text = line(LogFormat::Json);
        assert!(text.starts_with("{\"time\":\"1970-01-01T00:00:00Z\",\"peer\":\"127.0.0.1\","), "{text}");
        assert!(text.contains("\"request\":\"GET /\\\"\\\\\\u0001\u{fffd} HTTP/1.1\""), "{text}");
        assert!(text.ends_with("\"agent\":\"curl \\\"x\\\"\"}"), "{text}");
    }
}
