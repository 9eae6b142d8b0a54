//! Access-log lines, in a format with a name or of a template. The wires call this module at the end of each answer; the machine
//! writes the lines.
//!
//! The parts of a line that come from the request are escaped only once ([`LogText`]), so logging a repeated
//! or a waiting request costs a few copies. Every field is bounded, so a line always fits in one message to
//! the log writer.

mod escape;

use std::sync::Arc;

use flash_http::basic::Credentials;
use flash_http::date::{iso_date, log_date};
use flash_http::request::Request;
use flash_http::response::{Status, push_number};

use crate::log_template::{AnswerField, Escape, FormPiece, FormRun, LogForm, LogRules, RequestField};
use crate::requester::Requester;
use crate::router::Router;
use crate::timing::Timing;
use escape::{or_dash, push_address, push_json, push_quotable, push_word};

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

    /// The method, the target and the protocol of the first line. A line of fewer words lacks the last ones.
    fn words(&self) -> [&'r [u8]; 3] {
        let mut words = self.line.splitn(2, |byte| *byte == b' ');
        let (method, rest) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        match rest.iter().rposition(|byte| *byte == b' ') {
            Some(at) => [method, &rest[..at], &rest[at + 1..]],
            None => [method, rest, b""],
        }
    }
}

/// Escaped [`LogFields`]: the runs of the form that the request fills, one after the other, and where each of them ends.
#[derive(Clone, Debug)]
pub(crate) struct LogText {
    /// The number of its log.
    log: u16,
    bytes: Box<[u8]>,
    ends: Box<[usize]>,
}

impl LogText {
    fn new(form: &LogForm, log: u16, fields: LogFields<'_>) -> Self {
        let mut bytes = Vec::with_capacity(160);
        let mut ends = Vec::new();
        for run in &form.runs {
            if let FormRun::Request(pieces) = run {
                push_request(&mut bytes, form.escape, pieces, fields);
                ends.push(bytes.len());
            }
        }
        Self { log, bytes: bytes.into(), ends: ends.into() }
    }

    /// The run of this number.
    fn run(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[number]]
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

/// An answer that has ended, as its line has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedAnswer<'r> {
    pub(crate) requester: &'r Requester,
    pub(crate) end: AnswerEnd,
    pub(crate) timing: Timing,
    /// When it ended, in nanoseconds of the monotonic clock.
    pub(crate) ended_ns: u64,
    /// The same in seconds since 1970.
    pub(crate) wall_s: i64,
}

/// Formats lines into a reused buffer.
#[derive(Debug)]
pub(crate) struct LineWriter {
    rules: LogRules,
    router: Arc<Router>,
    /// Answers that were not logged since the last one that could have been left out.
    unlogged: u64,
    line: Vec<u8>,
    /// The second that the dates were formatted for.
    date_s: i64,
    date: [u8; 26],
    date_iso: [u8; 20],
}

impl LineWriter {
    pub(crate) fn new(rules: LogRules, router: Arc<Router>) -> Self {
        let (date, date_iso) = (log_date(0), iso_date(0));
        Self { rules, router, unlogged: 0, line: Vec::new(), date_s: 0, date, date_iso }
    }

    /// Whether lines are written at all.
    pub(crate) fn is_off(&self) -> bool {
        self.rules.form.is_none()
    }

    /// The escaped fields of a request; None if nothing is logged.
    pub(crate) fn text(&self, fields: LogFields<'_>) -> Option<LogText> {
        let log = self.log_of(fields)?;
        self.rules.form.as_ref().map(|form| LogText::new(form, log, fields))
    }

    /// The number of the log that a request belongs to; None if it is not logged.
    fn log_of(&self, fields: LogFields<'_>) -> Option<u16> {
        let LogRules { of_sites, of_others, .. } = &self.rules;
        if of_sites.is_empty() {
            return *of_others;
        }
        let site = self.router.route(fields.host);
        site.and_then(|site| of_sites.get(usize::from(site.0))).map_or(*of_others, |log| *log)
    }

    /// Formats one line, without a line feed, and finds its log. None if the answer is not logged.
    pub(crate) fn line(&mut self, source: LogSource<'_>, answer: LoggedAnswer<'_>) -> Option<(u16, &[u8])> {
        let log = match source {
            LogSource::Text(text) => text.log,
            LogSource::Fields(fields) => self.log_of(fields)?,
        };
        let form = self.rules.form.as_ref()?;
        if self.rules.sample > 1 && answer.end.is_whole && answer.end.status.0 < 400 {
            self.unlogged += 1;
            if self.unlogged < self.rules.sample {
                return None;
            }
            self.unlogged = 0;
        }
        if self.date_s != answer.wall_s {
            self.date_s = answer.wall_s;
            self.date = log_date(answer.wall_s);
            self.date_iso = iso_date(answer.wall_s);
        }
        self.line.clear();
        let mut number = 0;
        for run in &form.runs {
            match (run, source) {
                (FormRun::Request(pieces), LogSource::Fields(fields)) => {
                    push_request(&mut self.line, form.escape, pieces, fields);
                }
                (FormRun::Request(_), LogSource::Text(text)) => {
                    self.line.extend_from_slice(text.run(number));
                    number += 1;
                }
                (FormRun::Answer(pieces), _) => {
                    let dates = (&self.date, &self.date_iso);
                    push_answer(&mut self.line, form.escape, pieces, (answer, dates));
                }
            }
        }
        Some((log, &self.line))
    }
}

/// Appends the texts of a run, and its fields by `push`.
fn push_pieces<F>(out: &mut Vec<u8>, pieces: &[FormPiece<F>], push: impl Fn(&mut Vec<u8>, &F)) {
    for piece in pieces {
        match piece {
            FormPiece::Text(text) => text.push(out),
            FormPiece::Field(field) => push(out, field),
        }
    }
}

fn push_request(
    out: &mut Vec<u8>,
    escape: Escape,
    pieces: &[FormPiece<RequestField>],
    fields: LogFields<'_>,
) {
    let push = |out: &mut Vec<u8>, text: &[u8]| match escape {
        Escape::Json => push_json(out, text),
        Escape::Text => push_quotable(out, or_dash(text)),
    };
    push_pieces(out, pieces, |out, field| match field {
        RequestField::User => push_word(out, &fields.user().unwrap_or_else(|| b"-".to_vec())),
        RequestField::JsonUser => {
            if let Some(user) = fields.user() {
                out.extend_from_slice(b",\"user\":\"");
                push_json(out, &user);
                out.push(b'"');
            }
        }
        // Not a dash: a client that sends no line has sent an empty one.
        RequestField::Request if escape == Escape::Text => push_quotable(out, fields.line),
        RequestField::Request => push_json(out, fields.line),
        RequestField::Method => push(out, short(fields.words()[0])),
        RequestField::Target => push(out, fields.words()[1]),
        RequestField::Protocol => push(out, short(fields.words()[2])),
        RequestField::Host => push(out, fields.host),
        RequestField::Referer => push(out, fields.referer),
        RequestField::Agent => push(out, fields.agent),
    });
}

/// A word that is short unless the request is wrong.
fn short(word: &[u8]) -> &[u8] {
    &word[..word.len().min(32)]
}

fn push_answer(
    out: &mut Vec<u8>,
    escape: Escape,
    pieces: &[FormPiece<AnswerField>],
    (answer, (date, date_iso)): (LoggedAnswer<'_>, (&[u8; 26], &[u8; 20])),
) {
    let LoggedAnswer { requester, end, timing, ended_ns, .. } = answer;
    push_pieces(out, pieces, |out, field| match field {
        AnswerField::Client => push_address(out, &requester.address),
        AnswerField::Time => out.extend_from_slice(date),
        AnswerField::TimeIso => out.extend_from_slice(date_iso),
        AnswerField::Status => push_number(out, end.status.0.into()),
        AnswerField::Bytes => push_number(out, end.body_bytes),
        AnswerField::Whole => out.extend_from_slice(if end.is_whole { b"true" } else { b"false" }),
        AnswerField::Duration => push_ms(out, timing.until(ended_ns)),
        AnswerField::First => match timing.first_ns {
            Some(ns) => push_ms(out, ns),
            None if escape == Escape::Json => out.extend_from_slice(b"null"),
            None => out.push(b'-'),
        },
        AnswerField::Queue => push_number(out, timing.queued_ms),
        AnswerField::Helper => push_number(out, timing.helped_ms),
        AnswerField::Cache => out.extend_from_slice(timing.result.name().as_bytes()),
        AnswerField::Scheme => out.extend_from_slice(requester.scheme.name().as_bytes()),
        AnswerField::Tls => out.extend_from_slice(requester.tls.map_or("-", |tls| tls.name()).as_bytes()),
    });
}

/// Appends milliseconds with three digits after the point.
fn push_ms(out: &mut Vec<u8>, ns: u64) {
    let us = ns / 1_000;
    push_number(out, us / 1_000);
    let [hundreds, tens, ones] = [us / 100 % 10, us / 10 % 10, us % 10].map(|digit| b'0' + digit as u8);
    out.extend_from_slice(&[b'.', hundreds, tens, ones]);
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::limits::LOG_LINE_BYTES_MAX;
    use crate::log_template::{LogFormat, LogTemplate};
    use crate::machine::TlsVersion;
    use crate::requester::Scheme;
    use crate::rules::tests::site;
    use crate::shares::Sharer;
    use crate::slab::ClientNumber;
    use crate::timing::CacheResult;

    fn requester(address: SocketAddr) -> Requester {
        let sharer = Sharer { client: ClientNumber::of(address.ip()), is_exempt: false };
        let (tls, is_local, is_proxied) = (Some(TlsVersion::V1_3), false, false);
        Requester { address, scheme: Scheme::Https, tls, sharer, is_local, is_proxied }
    }

    fn timing() -> Timing {
        let mut timing = Timing::new(1_000_000, CacheResult::Miss);
        timing.note_first(&mut Default::default(), 3_500_000);
        timing.note_job(1, 20);
        timing
    }

    fn answer(requester: &Requester) -> LoggedAnswer<'_> {
        let end = AnswerEnd { status: Status::OK, body_bytes: 7, is_whole: true };
        LoggedAnswer { requester, end, timing: timing(), ended_ns: 4_012_999, wall_s: 0 }
    }

    fn writer(rules: LogRules) -> LineWriter {
        LineWriter::new(rules, Arc::new(Router::new(&[])))
    }

    fn line_of(rules: LogRules, fields: LogFields<'_>) -> String {
        let requester = requester(SocketAddr::from(([127, 0, 0, 1], 9)));
        let mut writer = writer(rules);
        let (_, direct) = writer.line(LogSource::Fields(fields), answer(&requester)).expect("a line");
        let direct = direct.to_vec();
        let text = writer.text(fields).expect("logging is on");
        assert_eq!(writer.line(LogSource::Text(&text), answer(&requester)), Some((0, &direct[..])));
        String::from_utf8(direct).expect("text")
    }

    fn line(format: LogFormat, fields: LogFields<'_>) -> String {
        line_of(LogRules::of(format), fields)
    }

    fn of_template(template: &str, fields: LogFields<'_>) -> String {
        let template = LogTemplate::try_from(template.to_owned()).expect("a template");
        let form = LogForm::new(LogFormat::Template, Some(&template));
        line_of(LogRules { form, ..LogRules::of(LogFormat::Off) }, fields)
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
        let end = ",\"whole\":true,\"duration_ms\":3.012,\"referer\":\"\",\"agent\":\"curl \\\"x\\\"\",\"scheme\":\"https\",\
                   \"tls\":\"TLSv1.3\",\"cache\":\"miss\",\"first_ms\":2.500,\"queue_ms\":1,\"helper_ms\":20}";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn a_field_is_cut_at_its_bound_and_a_line_fits_one_message() {
        for byte in [b'x', b'"', 0x01, 0x7f, 0xff] {
            let long = vec![byte; 32 * 1024];
            let name = format!("Basic {}", STANDARD.encode([&long[..200], b":"].concat()));
            let authorization = Some(name.as_bytes());
            let fields = LogFields { line: &long, host: &long, referer: &long, agent: &long, authorization };
            let template =
                "{user} {request} {method} {protocol} \"{host}\" \"{referer}\" \"{agent}\"".to_owned();
            let long = of_template(&(template + &"x".repeat(900)), fields);
            let named = [LogFormat::Combined, LogFormat::CombinedHost, LogFormat::Json];
            for text in named.map(|format| line(format, fields)).into_iter().chain([long]) {
                assert!(text.len() < LOG_LINE_BYTES_MAX, "{} bytes", text.len());
                assert!(text.contains("...\""), "a cut field ends with a mark");
                assert!(!text.contains('\n'));
            }
        }
    }

    #[test]
    fn a_template_has_the_parts_of_the_request_and_of_its_course() {
        let template = "{method} {target} {protocol} {{{cache}}} {first_ms} {queue_ms}+{helper_ms} {scheme}/{tls} {whole}";
        let found = of_template(template, LogFields { line: b"GET /a b?c HTTP/1.1", ..fields() });
        assert_eq!(found, "GET /a b?c HTTP/1.1 {miss} 2.500 1+20 https/TLSv1.3 true");
        let text = "a text of many bytes before the field: ";
        assert_eq!(of_template(&format!("{text}{{status}}"), LogFields::default()), format!("{text}200"));
        // A line that is no request has all the same a place for each field.
        assert_eq!(of_template("{method}|{target}|{protocol}", LogFields::of_line(b"hello")), "hello|-|-");
        assert_eq!(of_template("{method}|{target}|{protocol}", LogFields::of_line(b"")), "-|-|-");
    }

    #[test]
    fn of_a_sample_errors_and_cut_answers_are_never_left_out() {
        let requester = requester(SocketAddr::from(([127, 0, 0, 1], 9)));
        let mut writer = writer(LogRules { sample: 10, ..LogRules::of(LogFormat::Combined) });
        let mut logged = |status, is_whole| {
            let end = AnswerEnd { status, body_bytes: 7, is_whole };
            let lines = (0..100).filter(|_| {
                let answer = LoggedAnswer { end, ..answer(&requester) };
                writer.line(LogSource::Fields(fields()), answer).is_some()
            });
            lines.count()
        };
        assert_eq!(logged(Status::OK, true), 10);
        assert_eq!(logged(Status::NOT_FOUND, true), 100);
        assert_eq!(logged(Status::OK, false), 100);
    }

    #[test]
    fn each_site_has_its_log() {
        let router = Arc::new(Router::new(&[site(&[]), site(&["b.example"]), site(&["quiet.example"])]));
        let of_sites = vec![Some(3), Some(7), None];
        let mut writer = LineWriter::new(LogRules { of_sites, ..LogRules::of(LogFormat::Combined) }, router);
        let requester = requester(SocketAddr::from(([127, 0, 0, 1], 9)));
        for (host, log) in [("a.example", Some(3)), ("B.example", Some(7)), ("quiet.example", None)] {
            let fields = LogFields { host: host.as_bytes(), ..fields() };
            let line = writer.line(LogSource::Fields(fields), answer(&requester));
            assert_eq!(line.map(|(log, _)| log), log, "{host}");
            assert_eq!(writer.text(fields).map(|text| text.log), log, "{host}");
        }
    }

    #[test]
    fn an_ipv4_client_is_named_in_full() {
        for number in 0..=255 {
            let requester = requester(SocketAddr::from(([number, 0, 255 - number, 10], 9)));
            let mut writer = writer(LogRules::of(LogFormat::Combined));
            let (_, line) = writer.line(LogSource::Fields(fields()), answer(&requester)).expect("a line");
            let expected = format!("{} - - [", requester.address.ip());
            assert!(line.starts_with(expected.as_bytes()), "{expected}");
        }
    }

    #[test]
    fn an_ipv6_client_is_named_in_full() {
        let requester = requester(SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 9)));
        let mut writer = writer(LogRules::of(LogFormat::Combined));
        let (_, line) = writer.line(LogSource::Fields(fields()), answer(&requester)).expect("a line");
        assert!(line.starts_with(b"2001:db8::1 - - ["));
    }

    #[test]
    fn a_client_of_a_unix_socket_has_no_address() {
        let requester = requester(SocketAddr::from(([0, 0, 0, 0], 0)));
        let start = |format| {
            let mut writer = writer(LogRules::of(format));
            let (_, line) = writer.line(LogSource::Fields(fields()), answer(&requester)).expect("a line");
            String::from_utf8_lossy(line).into_owned()
        };
        assert!(start(LogFormat::Combined).starts_with("unix: - - ["));
        assert!(start(LogFormat::Json).contains("\"peer\":\"unix:\","));
    }
}
