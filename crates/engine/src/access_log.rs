//! Access-log lines in the combined format or as JSON. The wires call this module at the end of each answer;
//! the machine writes the lines.
//!
//! The part of a line that comes from the request is escaped only once ([`LogText`]), so logging a repeated
//! or a waiting request costs a few copies. Every field is bounded, so a line always fits in one message to
//! the log writer.

use std::fmt::Write as _;
use std::net::SocketAddr;

use flash_http::basic::Credentials;
use flash_http::client;
use flash_http::date::{iso_date, log_date};
use flash_http::request::Request;
use flash_http::response::{Status, push_number};
use serde::{Deserialize, Serialize};

use crate::limits::LOG_FIELD_BYTES_MAX;

/// The format of access-log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Apache's and nginx's combined format.
    Combined,
    /// The same with the host of the request at the end, in quotes.
    CombinedHost,
    /// One JSON object per line.
    Json,
    /// No lines.
    #[default]
    Off,
}

/// The fields of a log line that come from the request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogFields<'r> {
    line: &'r [u8],
    host: &'r [u8],
    referer: &'r [u8],
    agent: &'r [u8],
    authorization: Option<&'r [u8]>,
}

impl<'r> LogFields<'r> {
    pub(crate) fn of(request: &'r Request<'_>) -> Self {
        Self {
            line: request.line,
            host: request.host,
            referer: request.referer.unwrap_or_default(),
            agent: request.user_agent.unwrap_or_default(),
            authorization: request.authorization,
        }
    }

    /// The fields of a request that could not be parsed: only its first line.
    pub(crate) fn of_line(line: &'r [u8]) -> Self {
        Self { line, ..Self::default() }
    }

    /// The name that the client gives itself, if it does. Its password may be wrong.
    fn user(&self) -> Option<Vec<u8>> {
        let name = Credentials::read(self.authorization?)?.name;
        (!name.is_empty()).then_some(name)
    }
}

/// Escaped [`LogFields`]: the text before the date, then (from `front`) that before the status, then (from `back`) that after the
/// duration.
#[derive(Clone, Debug)]
pub(crate) struct LogText {
    bytes: Box<[u8]>,
    front: usize,
    back: usize,
}

impl LogText {
    /// Returns None when access logging is off.
    pub(crate) fn new(format: LogFormat, fields: LogFields<'_>) -> Option<Self> {
        if format == LogFormat::Off {
            return None;
        }
        let mut bytes = Vec::with_capacity(160);
        push_user(&mut bytes, format, fields);
        let front = bytes.len();
        push_front(&mut bytes, format, fields);
        let back = bytes.len();
        push_back(&mut bytes, format, fields);
        Some(Self { bytes: bytes.into(), front, back })
    }

    fn user(&self) -> &[u8] {
        &self.bytes[..self.front]
    }

    fn front(&self) -> &[u8] {
        &self.bytes[self.front..self.back]
    }

    fn back(&self) -> &[u8] {
        &self.bytes[self.back..]
    }
}

/// The source of the request's part of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LogSource<'r> {
    Fields(LogFields<'r>),
    Text(&'r LogText),
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerEnd {
    pub(crate) status: Status,
    /// Bytes of the body that were sent.
    pub(crate) body_bytes: u64,
    /// Whether the whole answer was sent.
    pub(crate) is_whole: bool,
}

/// Formats lines into a reused buffer.
#[derive(Debug)]
pub(crate) struct LineWriter {
    pub(crate) format: LogFormat,
    line: Vec<u8>,
    /// The second that `date` was formatted for.
    date_s: i64,
    date: Vec<u8>,
}

impl LineWriter {
    pub(crate) fn new(format: LogFormat) -> Self {
        Self { format, line: Vec::new(), date_s: i64::MIN, date: Vec::new() }
    }

    /// Formats one line, without a line feed.
    pub(crate) fn line(
        &mut self,
        peer: &SocketAddr,
        wall_s: i64,
        source: LogSource<'_>,
        (end, duration_ms): (AnswerEnd, u64),
    ) -> &[u8] {
        if self.date_s != wall_s {
            self.date_s = wall_s;
            self.date = match self.format {
                LogFormat::Json => iso_date(wall_s).to_vec(),
                _ => log_date(wall_s).to_vec(),
            };
        }
        self.line.clear();
        let out = &mut self.line;
        if self.format == LogFormat::Json {
            out.extend_from_slice(b"{\"time\":\"");
            out.extend_from_slice(&self.date);
            out.extend_from_slice(b"\",\"peer\":\"");
            push_address(out, peer);
            out.extend_from_slice(b"\",");
            push_source(out, self.format, source, push_front, LogText::front);
            out.extend_from_slice(b",\"status\":");
            push_number(out, end.status.0.into());
            out.extend_from_slice(b",\"bytes\":");
            push_number(out, end.body_bytes);
            out.extend_from_slice(if end.is_whole { b",\"whole\":true" } else { b",\"whole\":false" });
            out.extend_from_slice(b",\"duration_ms\":");
            push_number(out, duration_ms);
            out.push(b',');
        } else {
            push_address(out, peer);
            out.extend_from_slice(b" - ");
            push_source(out, self.format, source, push_user, LogText::user);
            out.extend_from_slice(b" [");
            out.extend_from_slice(&self.date);
            out.extend_from_slice(b"] ");
            push_source(out, self.format, source, push_front, LogText::front);
            out.push(b' ');
            push_number(out, end.status.0.into());
            out.push(b' ');
            push_number(out, end.body_bytes);
            out.push(b' ');
        }
        push_source(out, self.format, source, push_back, LogText::back);
        out
    }
}

fn push_source(
    out: &mut Vec<u8>,
    format: LogFormat,
    source: LogSource<'_>,
    push: fn(&mut Vec<u8>, LogFormat, LogFields<'_>),
    part: fn(&LogText) -> &[u8],
) {
    match source {
        LogSource::Fields(fields) => push(out, format, fields),
        LogSource::Text(text) => out.extend_from_slice(part(text)),
    }
}

fn push_user(out: &mut Vec<u8>, format: LogFormat, fields: LogFields<'_>) {
    if format != LogFormat::Json {
        push_word(out, &fields.user().unwrap_or_else(|| b"-".to_vec()));
    }
}

fn push_front(out: &mut Vec<u8>, format: LogFormat, fields: LogFields<'_>) {
    if format == LogFormat::Json {
        out.extend_from_slice(b"\"host\":\"");
        push_json(out, fields.host);
        if let Some(user) = fields.user() {
            out.extend_from_slice(b"\",\"user\":\"");
            push_json(out, &user);
        }
        out.extend_from_slice(b"\",\"request\":\"");
        push_json(out, fields.line);
    } else {
        out.push(b'"');
        push_quotable(out, fields.line);
    }
    out.push(b'"');
}

fn push_back(out: &mut Vec<u8>, format: LogFormat, fields: LogFields<'_>) {
    if format == LogFormat::Json {
        out.extend_from_slice(b"\"referer\":\"");
        push_json(out, fields.referer);
        out.extend_from_slice(b"\",\"agent\":\"");
        push_json(out, fields.agent);
        out.extend_from_slice(b"\"}");
    } else {
        out.push(b'"');
        push_quotable(out, or_dash(fields.referer));
        out.extend_from_slice(b"\" \"");
        push_quotable(out, or_dash(fields.agent));
        out.push(b'"');
        if format == LogFormat::CombinedHost {
            out.extend_from_slice(b" \"");
            push_quotable(out, or_dash(fields.host));
            out.push(b'"');
        }
    }
}

fn or_dash(text: &[u8]) -> &[u8] {
    if text.is_empty() { b"-" } else { text }
}

fn push_address(out: &mut Vec<u8>, peer: &SocketAddr) {
    match peer {
        SocketAddr::V4(peer) if client::is_unix((*peer.ip()).into()) => {
            out.extend_from_slice(client::UNIX.as_bytes());
        }
        SocketAddr::V4(peer) => {
            for (place, octet) in peer.ip().octets().into_iter().enumerate() {
                if place > 0 {
                    out.push(b'.');
                }
                push_number(out, octet.into());
            }
        }
        SocketAddr::V6(peer) => {
            let mut text = String::with_capacity(40);
            // Formatting into a String cannot fail.
            let _ = write!(text, "{}", peer.ip());
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// Ends a field that was cut at its bound.
const CUT: &[u8] = b"...";

/// Appends pieces until the field reaches its bound.
fn push_bounded<'p>(out: &mut Vec<u8>, pieces: impl Iterator<Item = LogPiece<'p>>) {
    let start = out.len();
    for piece in pieces {
        let piece = piece.as_bytes();
        if out.len() - start + piece.len() > LOG_FIELD_BYTES_MAX - CUT.len() {
            return out.extend_from_slice(CUT);
        }
        out.extend_from_slice(piece);
    }
}

/// One piece of an escaped field.
enum LogPiece<'p> {
    Plain(&'p [u8]),
    Escaped([u8; 6], usize),
}

impl LogPiece<'_> {
    fn as_bytes(&self) -> &[u8] {
        match self {
            LogPiece::Plain(bytes) => bytes,
            LogPiece::Escaped(bytes, length) => &bytes[..*length],
        }
    }

    fn escaped(bytes: &[u8]) -> Self {
        let mut all = [0; 6];
        all[..bytes.len()].copy_from_slice(bytes);
        LogPiece::Escaped(all, bytes.len())
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

fn hex(byte: u8) -> [u8; 2] {
    [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]
}

/// Escapes as Apache and nginx do, so that no client can end a field or a line.
fn push_quotable(out: &mut Vec<u8>, text: &[u8]) {
    let is_plain = |byte: &u8| (0x20..=0x7e).contains(byte) && *byte != b'"' && *byte != b'\\';
    if text.iter().all(is_plain) && text.len() <= LOG_FIELD_BYTES_MAX - CUT.len() {
        return out.extend_from_slice(text);
    }
    let pieces = text.iter().map(|byte| match byte {
        b'"' | b'\\' => LogPiece::escaped(&[b'\\', *byte]),
        byte if is_plain(byte) => LogPiece::Plain(std::slice::from_ref(byte)),
        byte => {
            let [high, low] = hex(*byte);
            LogPiece::escaped(&[b'\\', b'x', high, low])
        }
    });
    push_bounded(out, pieces);
}

/// Escapes a field without quotes around it, in which a space would begin the next one.
fn push_word(out: &mut Vec<u8>, text: &[u8]) {
    let start = out.len();
    push_quotable(out, text);
    if out[start..].contains(&b' ') {
        let spaceless = out.split_off(start);
        spaceless.split(|byte| *byte == b' ').enumerate().for_each(|(number, part)| {
            out.extend_from_slice(if number > 0 { b"\\x20" } else { b"" });
            out.extend_from_slice(part);
        });
    }
}

/// Escapes for a JSON string (RFC 8259, section 7). Bytes that are not UTF-8 become U+FFFD. DEL and the C1
/// controls are escaped too, so that a log shown in a terminal cannot control the terminal.
fn push_json(out: &mut Vec<u8>, text: &[u8]) {
    let is_plain = |byte: &u8| (0x20..=0x7e).contains(byte) && *byte != b'"' && *byte != b'\\';
    if text.iter().all(is_plain) && text.len() <= LOG_FIELD_BYTES_MAX - CUT.len() {
        return out.extend_from_slice(text);
    }
    let pieces = text.utf8_chunks().flat_map(|chunk| {
        let broken = (!chunk.invalid().is_empty()).then(|| LogPiece::escaped("\u{fffd}".as_bytes()));
        chunk.valid().chars().map(json_piece).chain(broken)
    });
    push_bounded(out, pieces);
}

fn json_piece<'p>(character: char) -> LogPiece<'p> {
    match character {
        '"' | '\\' => LogPiece::escaped(&[b'\\', character as u8]),
        '\n' => LogPiece::escaped(b"\\n"),
        '\r' => LogPiece::escaped(b"\\r"),
        '\t' => LogPiece::escaped(b"\\t"),
        _ if character.is_control() => {
            // Control characters are below U+00A0, so two hex digits are enough.
            let [high, low] = hex(character as u8);
            LogPiece::escaped(&[b'\\', b'u', b'0', b'0', high, low])
        }
        _ => {
            let mut bytes = [0; 4];
            LogPiece::escaped(character.encode_utf8(&mut bytes).as_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::limits::LOG_LINE_BYTES_MAX;

    fn line(format: LogFormat, fields: LogFields<'_>) -> String {
        let ending = (AnswerEnd { status: Status::OK, body_bytes: 7, is_whole: true }, 3);
        let peer = SocketAddr::from(([127, 0, 0, 1], 9));
        let mut writer = LineWriter::new(format);
        let direct = writer.line(&peer, 0, LogSource::Fields(fields), ending).to_vec();
        let text = LogText::new(format, fields).expect("logging is on");
        assert_eq!(writer.line(&peer, 0, LogSource::Text(&text), ending), direct);
        String::from_utf8(direct).expect("text")
    }

    fn fields() -> LogFields<'static> {
        let line = b"GET /\"\\\x01\xff HTTP/1.1";
        LogFields { line, host: b"h", agent: b"curl \"x\"", ..LogFields::default() }
    }

    #[test]
    fn a_user_has_the_place_that_programs_expect() {
        let of = |format, credentials: &str| {
            let value = format!("Basic {}", STANDARD.encode(credentials));
            line(format, LogFields { authorization: Some(value.as_bytes()), ..fields() })
        };
        assert!(of(LogFormat::Combined, "ann:secret").starts_with("127.0.0.1 - ann [01/Jan/1970"));
        assert!(of(LogFormat::Json, "ann:secret").contains("\"host\":\"h\",\"user\":\"ann\",\"request\""));
        // No name can look like other fields, or like another line.
        let evil = of(LogFormat::Combined, "a [x] \"\n\\:");
        assert!(evil.starts_with("127.0.0.1 - a\\x20[x]\\x20\\\"\\x0a\\\\ [01/Jan/1970"), "{evil}");
        for none in [":secret", "no colon"] {
            assert!(of(LogFormat::Combined, none).starts_with("127.0.0.1 - - [01/Jan/1970"));
            assert!(!of(LogFormat::Json, none).contains("user"));
        }
    }

    #[test]
    fn combined_lines_escape_quotes_and_control_bytes() {
        assert_eq!(
            line(LogFormat::Combined, fields()),
            "127.0.0.1 - - [01/Jan/1970:00:00:00 +0000] \"GET /\\\"\\\\\\x01\\xff HTTP/1.1\" 200 7 \"-\" \"curl \\\"x\\\"\""
        );
    }

    #[test]
    fn the_host_is_at_the_end_of_a_combined_line() {
        let host = line(LogFormat::CombinedHost, fields());
        assert_eq!(host, line(LogFormat::Combined, fields()) + " \"h\"");
        let none = line(LogFormat::CombinedHost, LogFields { host: b"", ..fields() });
        assert!(none.ends_with(" \"-\""), "{none}");
    }

    #[test]
    fn json_lines_are_one_object() {
        let text = line(LogFormat::Json, fields());
        assert!(text.starts_with("{\"time\":\"1970-01-01T00:00:00Z\",\"peer\":\"127.0.0.1\","), "{text}");
        assert!(text.contains("\"request\":\"GET /\\\"\\\\\\u0001\u{fffd} HTTP/1.1\""), "{text}");
        assert!(text.ends_with("\"agent\":\"curl \\\"x\\\"\"}"), "{text}");
    }

    #[test]
    fn a_field_is_cut_at_its_bound_and_a_line_fits_one_message() {
        for byte in [b'x', b'"', 0x01, 0x7f, 0xff] {
            let long = vec![byte; 32 * 1024];
            let name = format!("Basic {}", STANDARD.encode([&long[..200], b":"].concat()));
            let authorization = Some(name.as_bytes());
            let fields = LogFields { line: &long, host: &long, referer: &long, agent: &long, authorization };
            for format in [LogFormat::Combined, LogFormat::CombinedHost, LogFormat::Json] {
                let text = line(format, fields);
                assert!(text.len() < LOG_LINE_BYTES_MAX, "{} bytes", text.len());
                assert!(text.contains("...\""), "a cut field ends with a mark");
                assert!(!text.contains('\n'));
            }
        }
    }

    #[test]
    fn an_ipv6_client_is_named_in_full() {
        let peer = SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 9));
        let mut writer = LineWriter::new(LogFormat::Combined);
        let ending = (AnswerEnd { status: Status::OK, body_bytes: 7, is_whole: true }, 3);
        let line = writer.line(&peer, 0, LogSource::Fields(fields()), ending);
        assert!(line.starts_with(b"2001:db8::1 - - ["));
    }

    #[test]
    fn a_client_of_a_unix_socket_has_no_address() {
        let peer = SocketAddr::from(([0, 0, 0, 0], 0));
        let ending = (AnswerEnd { status: Status::OK, body_bytes: 7, is_whole: true }, 3);
        let start = |format| {
            let mut writer = LineWriter::new(format);
            String::from_utf8_lossy(writer.line(&peer, 0, LogSource::Fields(fields()), ending)).into_owned()
        };
        assert!(start(LogFormat::Combined).starts_with("unix: - - ["));
        assert!(start(LogFormat::Json).contains("\"peer\":\"unix:\","));
    }
}
