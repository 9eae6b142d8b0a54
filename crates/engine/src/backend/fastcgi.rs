//! The warm endpoint as FastCGI (specification 1.0): a connection's records in, questions and answers out.
//!
//! For lighttpd, whose authorizers wait before it looks a file up, see `modules/endpoint`. The roles are
//! authorizer and responder; both get status 200, after which lighttpd serves the file itself, or 503. A
//! connection has one request at a time: another one is refused with `FCGI_CANT_MPX_CONN`. Standard input is
//! ignored. Pure; called by the sessions of [`backend`](crate::backend).

use flash_http::target::unescape;

use super::warm::{FileRange, Next, WARM_PATH_BYTES_MAX, WarmRequest, WarmResult, resolve, retry_after_s};
use crate::fastcgi::{
    COMPLETE, Header, KEEP_CONNECTION, OtherVersion, Pairs, RESPONDER, RecordReader, RecordStep,
    UNKNOWN_ROLE, kind, push_end, push_pair, push_record,
};

/// Maximum bytes of a request's parameters. With more, the request is answered without a look at its file.
pub const PARAMS_BYTES_MAX: usize = 64 * 1024;
/// Maximum bytes of a question about the endpoint itself (section 4.1); the rest is dropped.
const VALUES_BYTES_MAX: usize = 512;

/// The role that decides whether a request is allowed (section 6.3).
const AUTHORIZER: u16 = 2;

/// `protocolStatus` of the end of a request (section 5.5).
const CANNOT_MULTIPLEX: u8 = 1;

/// The request of a connection.
#[derive(Clone, Copy, Debug)]
struct Active {
    id: u16,
    keep: bool,
    /// Whether its question waits for an answer.
    is_asked: bool,
    /// Whether it had more parameters than are kept.
    is_cut: bool,
}

/// A connection.
///
/// - Events: [`FastCgi::handle_bytes`], [`FastCgi::handle_answer`].
/// - Next steps: [`FastCgi::poll`] after each of them.
#[derive(Debug, Default)]
pub struct FastCgi {
    records: RecordReader,
    has_ended: bool,
    /// The content of a record that is needed whole.
    content: Vec<u8>,
    params: Vec<u8>,
    active: Option<Active>,
    question: Option<WarmRequest>,
}

impl FastCgi {
    /// Takes received bytes; writes what can be answered at once to `out`.
    pub fn handle_bytes(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let mut at = 0;
        while !self.has_ended {
            match self.records.next(bytes, &mut at) {
                Ok(None) => return,
                Ok(Some(RecordStep::Begin(_))) => self.content.clear(),
                Ok(Some(RecordStep::Content(header, content))) => self.take_content(header, &bytes[content]),
                Ok(Some(RecordStep::End(header))) => {
                    let content = std::mem::take(&mut self.content);
                    self.handle_record(header, &content, out);
                }
                Err(OtherVersion) => self.has_ended = true,
            }
        }
    }

    /// The next step: at most one question for each request.
    pub fn poll(&mut self) -> Next {
        match self.question.take() {
            Some(ask) => Next::Request(ask),
            None if self.has_ended => Next::End,
            None => Next::Input,
        }
    }

    /// Writes the answer to the question.
    pub fn handle_answer(&mut self, answer: WarmResult, out: &mut Vec<u8>) {
        let Some(Active { id, is_asked: true, .. }) = self.active else { return };
        let text = match answer {
            WarmResult::Done => "Status: 200 OK\r\n\r\n".to_owned(),
            // A refusal of the endpoint must not become a refusal of the server. Servers drop this field.
            WarmResult::Refused => "Status: 200 OK\r\nX-Flash-Warm: refused\r\n\r\n".to_owned(),
            WarmResult::Busy { retry_after_ms } => format!(
                "Status: 503 Service Unavailable\r\nRetry-After: {}\r\nContent-Type: text/plain\r\n\r\n\
                 The disk is busy.\n",
                retry_after_s(retry_after_ms)
            ),
        };
        push_record(out, kind::STDOUT, id, text.as_bytes());
        push_record(out, kind::STDOUT, id, &[]);
        self.end_active(COMPLETE, out);
    }

    /// Keeps the content that matters.
    fn take_content(&mut self, header: Header, content: &[u8]) {
        match header.kind {
            kind::PARAMS => {
                let Some(active) = self.active.as_mut().filter(|active| active.id == header.id) else {
                    return;
                };
                if active.is_asked {
                    return;
                }
                if self.params.len() + content.len() > PARAMS_BYTES_MAX {
                    active.is_cut = true;
                } else {
                    self.params.extend_from_slice(content);
                }
            }
            kind::BEGIN_REQUEST | kind::GET_VALUES => {
                let room = VALUES_BYTES_MAX.saturating_sub(self.content.len());
                self.content.extend_from_slice(&content[..content.len().min(room)]);
            }
            _ => {}
        }
    }

    fn handle_record(&mut self, header: Header, content: &[u8], out: &mut Vec<u8>) {
        let is_active = self.active.is_some_and(|active| active.id == header.id);
        match (header.kind, header.id) {
            (kind::GET_VALUES, 0) => push_record(out, kind::GET_VALUES_RESULT, 0, &values(content)),
            // Section 4.2: other questions about the endpoint itself.
            (other, 0) => push_record(out, kind::UNKNOWN_TYPE, 0, &[other, 0, 0, 0, 0, 0, 0, 0]),
            (kind::BEGIN_REQUEST, id) => self.begin(id, content, out),
            (kind::PARAMS, _) if is_active && header.content_bytes == 0 => self.end_params(out),
            (kind::ABORT_REQUEST, _) if is_active => {
                // The answer can still be under way, so the connection is not used again.
                self.end_active(COMPLETE, out);
                self.has_ended = true;
            }
            // Standard input, and records of requests that have ended (section 3.3).
            _ => {}
        }
    }

    fn begin(&mut self, id: u16, content: &[u8], out: &mut Vec<u8>) {
        let &[role_high, role_low, flags, ..] = content else {
            self.has_ended = true;
            return;
        };
        if self.active.is_some_and(|active| active.id == id) || content.len() != 8 {
            self.has_ended = true;
        } else if self.active.is_some() {
            push_end(out, id, CANNOT_MULTIPLEX);
        } else {
            let keep = flags & KEEP_CONNECTION != 0;
            self.params.clear();
            self.active = Some(Active { id, keep, is_asked: false, is_cut: false });
            if !matches!(u16::from_be_bytes([role_high, role_low]), AUTHORIZER | RESPONDER) {
                self.end_active(UNKNOWN_ROLE, out);
            }
        }
    }

    /// The parameters are complete: the request becomes a question.
    fn end_params(&mut self, out: &mut Vec<u8>) {
        let Some(active) = self.active.as_mut().filter(|active| !active.is_asked) else { return };
        active.is_asked = true;
        let is_cut = active.is_cut;
        let params = std::mem::take(&mut self.params);
        match question_of(&params).filter(|_| !is_cut) {
            Some(ask) => self.question = Some(ask),
            None => self.handle_answer(WarmResult::Refused, out),
        }
    }

    fn end_active(&mut self, status: u8, out: &mut Vec<u8>) {
        let Some(active) = self.active.take() else { return };
        self.question = None;
        push_end(out, active.id, status);
        if !active.keep {
            self.has_ended = true;
        }
    }
}

/// The question in these parameters; None if they name no file.
fn question_of(params: &[u8]) -> Option<WarmRequest> {
    let (mut file, mut root, mut target, mut range, mut method) = (None, None, None, None, None);
    for (name, value) in Pairs(params) {
        match name {
            b"SCRIPT_FILENAME" => file = Some(value),
            b"DOCUMENT_ROOT" => root = Some(value),
            b"REQUEST_URI" => target = Some(value),
            b"HTTP_RANGE" => range = Some(value),
            b"REQUEST_METHOD" => method = Some(value),
            _ => {}
        }
    }
    let path = match (file, root, target) {
        // The name is not escaped.
        (Some(file), ..) if !file.is_empty() => resolve(b"", file).ok()?,
        (_, Some(root), Some(target)) => {
            let path = target.split(|byte| *byte == b'?').next()?;
            resolve(root, &unescape(path).ok()?).ok()?
        }
        _ => return None,
    };
    let part = if method == Some(b"HEAD") { FileRange::NOTHING } else { FileRange::of_range(range) };
    (path.len() <= WARM_PATH_BYTES_MAX).then_some(WarmRequest { path, part })
}

/// The answer to a question about the endpoint itself: the one variable that it knows.
fn values(asked: &[u8]) -> Vec<u8> {
    let name = b"FCGI_MPXS_CONNS";
    let mut values = Vec::new();
    if Pairs(asked).any(|(asked, _)| asked == name) {
        push_pair(&mut values, name, b"0");
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, id: u16, content: &[u8], padding: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        push_record(&mut bytes, kind, id, content);
        bytes[6] = padding;
        bytes.resize(bytes.len() + usize::from(padding), b'P');
        bytes
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        pairs.iter().for_each(|(name, value)| push_pair(&mut bytes, name.as_bytes(), value.as_bytes()));
        bytes
    }

    /// A request as lighttpd 1.4.69 sends it.
    fn request(id: u16, role: u8, flags: u8, params: &[(&str, &str)]) -> Vec<u8> {
        let params = pairs(params);
        let (first, rest) = params.split_at(params.len() / 3);
        [
            record(kind::BEGIN_REQUEST, id, &[0, role, flags, 0, 0, 0, 0, 0], 0),
            record(kind::PARAMS, id, first, 3),
            record(kind::PARAMS, id, rest, 0),
            record(kind::PARAMS, id, &[], 0),
            record(5, id, b"a body", 255),
            record(5, id, &[], 0),
        ]
        .concat()
    }

    fn talk(bytes: &[u8], step: usize, answer: WarmResult) -> (Vec<WarmRequest>, Vec<u8>, bool) {
        let mut connection = FastCgi::default();
        let (mut asks, mut out) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(step) {
            connection.handle_bytes(piece, &mut out);
            while let Next::Request(ask) = connection.poll() {
                asks.push(ask);
                connection.handle_answer(answer, &mut out);
            }
        }
        (asks, out, connection.poll() == Next::End)
    }

    fn answer_of(id: u16, text: &str) -> Vec<u8> {
        let end = record(kind::END_REQUEST, id, &[0; 8], 0);
        [record(kind::STDOUT, id, text.as_bytes(), 0), record(kind::STDOUT, id, &[], 0), end].concat()
    }

    const FILE: &[(&str, &str)] = &[
        ("QUERY_STRING", "x"),
        ("REQUEST_URI", "/a%20b?x"),
        ("SCRIPT_FILENAME", "/srv/www/a b%"),
        ("DOCUMENT_ROOT", "/srv/www"),
        ("REQUEST_METHOD", "GET"),
        ("HTTP_RANGE", "bytes=-9"),
    ];
    const OK: &str = "Status: 200 OK\r\n\r\n";

    #[test]
    fn a_request_of_lighttpd() {
        let bytes = request(1, 2, 0, FILE);
        for step in [1, 5, 8, bytes.len()] {
            let (asks, out, ended) = talk(&bytes, step, WarmResult::Done);
            let part = FileRange::Last { length_bytes: 9 };
            assert_eq!(asks, [WarmRequest { path: b"/srv/www/a b%".to_vec(), part }]);
            assert_eq!((out, ended), (answer_of(1, OK), true));
        }
    }

    #[test]
    fn a_kept_connection_has_one_request_after_another() {
        let long = format!("/{}", "a".repeat(300));
        let by_root =
            [("DOCUMENT_ROOT", long.as_str()), ("REQUEST_URI", "/../%41?b"), ("REQUEST_METHOD", "HEAD")];
        let bytes = [request(1, 2, 1, FILE), request(9, 1, 1, &by_root), request(9, 1, 0, FILE)].concat();
        for step in [1, 100] {
            let busy = WarmResult::Busy { retry_after_ms: 2500 };
            let (asks, out, ended) = talk(&bytes, step, busy);
            assert_eq!(asks.len(), 3);
            assert_eq!(asks[1], WarmRequest { path: format!("{long}/A").into(), part: FileRange::NOTHING });
            let text = String::from_utf8_lossy(&out).into_owned();
            assert_eq!(text.matches("Status: 503 Service Unavailable\r\nRetry-After: 3\r\n").count(), 3);
            assert!(ended);
        }
    }

    #[test]
    fn a_second_request_is_refused() {
        let mut connection = FastCgi::default();
        let mut out = Vec::new();
        let whole = request(7, 2, 1, FILE);
        connection.handle_bytes(&whole, &mut out);
        assert!(matches!(connection.poll(), Next::Request(_)));
        connection.handle_bytes(&request(8, 2, 1, FILE), &mut out);
        assert_eq!(out, record(kind::END_REQUEST, 8, &[0, 0, 0, 0, CANNOT_MULTIPLEX, 0, 0, 0], 0));
        assert_eq!(connection.poll(), Next::Input);
        out.clear();
        connection.handle_answer(WarmResult::Done, &mut out);
        connection.handle_answer(WarmResult::Done, &mut out);
        assert_eq!((out, connection.poll()), (answer_of(7, OK), Next::Input));
        let mut out = Vec::new();
        connection.handle_bytes(&whole, &mut out);
        connection.handle_bytes(&whole, &mut out);
        assert!(matches!(connection.poll(), Next::Request(_)), "an open question comes first");
        assert_eq!(connection.poll(), Next::End, "the same id twice");
    }

    #[test]
    fn refusals_are_answered_with_200() {
        let long = format!("/{}", "a".repeat(5000));
        let most = "a".repeat(70_000);
        for params in [
            &[("REQUEST_METHOD", "GET")][..],
            &[("SCRIPT_FILENAME", "a")],
            &[("SCRIPT_FILENAME", "/a\0")],
            &[("SCRIPT_FILENAME", long.as_str())],
            &[("DOCUMENT_ROOT", "/a"), ("REQUEST_URI", "/%")],
            &[("SCRIPT_FILENAME", "/a"), ("HTTP_COOKIE", &most)],
        ] {
            let params = pairs(params);
            let mut bytes = record(kind::BEGIN_REQUEST, 1, &[0, 2, 0, 0, 0, 0, 0, 0], 0);
            params.chunks(60_000).for_each(|part| bytes.extend(record(kind::PARAMS, 1, part, 0)));
            bytes.extend(record(kind::PARAMS, 1, &[], 0));
            let (asks, out, ended) = talk(&bytes, 1000, WarmResult::Done);
            let refused = answer_of(1, "Status: 200 OK\r\nX-Flash-Warm: refused\r\n\r\n");
            assert_eq!((asks.len(), out, ended), (0, refused, true), "{} bytes", params.len());
        }
    }

    #[test]
    fn management_roles_and_garbage() {
        let asked = pairs(&[("FCGI_MAX_CONNS", ""), ("FCGI_MPXS_CONNS", "")]);
        let (_, out, ended) = talk(&record(kind::GET_VALUES, 0, &asked, 1), 3, WarmResult::Done);
        let known = pairs(&[("FCGI_MPXS_CONNS", "0")]);
        assert_eq!((out, ended), (record(kind::GET_VALUES_RESULT, 0, &known, 0), false));

        let (_, out, ended) = talk(&record(77, 0, b"x", 0), 100, WarmResult::Done);
        assert_eq!((out, ended), (record(kind::UNKNOWN_TYPE, 0, &[77, 0, 0, 0, 0, 0, 0, 0], 0), false));

        let (asks, out, ended) = talk(&request(1, 3, 0, FILE), 100, WarmResult::Done);
        let refused = record(kind::END_REQUEST, 1, &[0, 0, 0, 0, UNKNOWN_ROLE, 0, 0, 0], 0);
        assert_eq!((asks.len(), out, ended), (0, refused, true));

        let begin = record(kind::BEGIN_REQUEST, 1, &[0, 2, 1, 0, 0, 0, 0, 0], 0);
        let abort = [begin, record(kind::ABORT_REQUEST, 1, &[], 0)].concat();
        let (_, out, ended) = talk(&abort, 100, WarmResult::Done);
        assert_eq!((out, ended), (record(kind::END_REQUEST, 1, &[0; 8], 0), true));

        let short = record(kind::BEGIN_REQUEST, 1, &[0, 2, 1], 0);
        for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 8], &short] {
            assert_eq!(talk(garbage, 100, WarmResult::Done), (Vec::new(), Vec::new(), true));
        }
    }
}
