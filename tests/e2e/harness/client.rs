//! A strict client: an answer that does not follow HTTP exactly, with exactly the bytes that its head announces, is an error.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use super::wire::connect;

/// Maximum time of a client's read or write.
const SOCKET_TIMEOUT: Duration = super::PATIENCE;

/// A complete answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) status: u16,
    fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Page {
    /// A field's value. No answer of Flash has a field twice.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut found = self.fields.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.as_str())
    }

    /// A field's value; the field must exist.
    #[track_caller]
    pub(crate) fn must(&self, name: &str) -> &str {
        self.field(name).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Status and body, for short answers.
    pub(crate) fn brief(&self) -> (u16, String) {
        (self.status, self.text())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// The fields in order, except `Date`, which changes.
    pub(crate) fn fields_but_date(&self) -> Vec<(String, String)> {
        self.fields.iter().filter(|(name, _)| name != "Date").cloned().collect()
    }

    pub(crate) fn says_close(&self) -> bool {
        self.field("Connection") == Some("close")
    }
}

/// The reason why there is no answer.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The connection ended, by a reset or not, before the first byte of an answer.
    Unanswered { reset: bool },
    /// It ended in the middle of an answer.
    Cut {
        /// The head, if it was complete, and the received part of the body.
        page: Option<Page>,
    },
    /// Nothing arrived in time.
    Silent,
    /// The answer is not strict HTTP.
    Wrong(String),
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unanswered { reset: true } => f.write_str("the connection was reset before an answer"),
            Self::Unanswered { reset: false } => f.write_str("the connection was closed before an answer"),
            Self::Cut { page: Some(page) } => {
                write!(f, "cut after {} bytes of the body of a {}", page.body.len(), page.status)
            }
            Self::Cut { page: None } => f.write_str("cut in the head of an answer"),
            Self::Silent => f.write_str("nothing came"),
            Self::Wrong(why) => f.write_str(why),
        }
    }
}

/// The kind of the expected answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// An answer with the body that its head announces.
    Whole,
    /// An answer to HEAD, without a body, whatever its head announces.
    HeadOnly,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
    /// Received bytes that were not used yet.
    input: Vec<u8>,
}

impl Client {
    #[track_caller]
    pub(crate) fn to(address: SocketAddr) -> Self {
        match Self::try_to(address) {
            Ok(client) => client,
            Err(e) => panic!("cannot connect to {address}: {e}"),
        }
    }

    pub(crate) fn try_to(address: SocketAddr) -> std::io::Result<Self> {
        Self::of(connect(address, None)?)
    }

    /// A client with this address of its own.
    #[track_caller]
    pub(crate) fn from(own: IpAddr, address: SocketAddr) -> Self {
        connect(address, Some(own))
            .and_then(Self::of)
            .unwrap_or_else(|e: std::io::Error| panic!("cannot connect from {own} to {address}: {e}"))
    }

    fn of(stream: TcpStream) -> std::io::Result<Self> {
        stream.set_read_timeout(Some(SOCKET_TIMEOUT))?;
        stream.set_write_timeout(Some(SOCKET_TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, input: Vec::new() })
    }

    /// This client, with another timeout for the next bytes.
    pub(crate) fn patient(self, how_long: Duration) -> Self {
        self.stream.set_read_timeout(Some(how_long)).unwrap();
        self
    }

    #[track_caller]
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).unwrap_or_else(|e| panic!("cannot send: {e}"));
    }

    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Closes the sending side; still receives.
    pub(crate) fn end_sending(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// A second handle of the same socket, to send from another thread.
    pub(crate) fn sender(&self) -> TcpStream {
        self.stream.try_clone().unwrap()
    }

    /// The bytes of a request.
    pub(crate) fn request_bytes(method: &str, target: &str, fields: &[&str]) -> Vec<u8> {
        let mut text = format!("{method} {target} HTTP/1.1\r\nHost: e2e.test\r\n");
        for field in fields {
            let _ = write!(text, "{field}\r\n");
        }
        text.push_str("\r\n");
        text.into_bytes()
    }

    /// Sends a GET and does not wait for the answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, target: &str) {
        self.send(Self::request_bytes("GET", target, &[]));
    }

    /// A request without a body, and its answer.
    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, target: &str, fields: &[&str]) -> Page {
        self.send(Self::request_bytes(method, target, fields));
        self.expect(if method == "HEAD" { Answer::HeadOnly } else { Answer::Whole })
    }

    #[track_caller]
    pub(crate) fn get(&mut self, target: &str) -> Page {
        self.request("GET", target, &[])
    }

    pub(crate) fn try_get(&mut self, target: &str) -> Result<Page, Broken> {
        // The answer shows what went wrong with the sending.
        let _ = self.try_send(Self::request_bytes("GET", target, &[]));
        self.receive(Answer::Whole)
    }

    /// Sends a GET without its whole body, so that the connection is not idle, and waits until the server has read
    /// the head. [`finish`](Self::finish) sends the rest.
    #[track_caller]
    pub(crate) fn begin_to_ask(&mut self, target: &str) {
        let fields = ["Content-Length: 1", "Expect: 100-continue"];
        self.send(Self::request_bytes("GET", target, &fields));
        match self.receive_head() {
            Ok((page, _)) if page.status == 100 => {}
            other => panic!("no interim answer: {other:?}"),
        }
    }

    /// Sends the rest of a begun request, and reads its answer.
    #[track_caller]
    pub(crate) fn finish(&mut self) -> Page {
        self.send("x");
        self.expect(Answer::Whole)
    }

    /// Reads the next answer.
    #[track_caller]
    pub(crate) fn page(&mut self) -> Page {
        self.expect(Answer::Whole)
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, answer: Answer) -> Page {
        // Not a closure, which would hide the caller's line.
        match self.receive(answer) {
            Ok(page) => page,
            Err(broken) => panic!("no answer: {broken}"),
        }
    }

    /// Reads the next answer, if there is one.
    pub(crate) fn receive(&mut self, answer: Answer) -> Result<Page, Broken> {
        let (mut page, announced) = self.receive_head()?;
        let bytes = match (answer, page.status) {
            (Answer::HeadOnly, _) | (_, 100..=199 | 204 | 304) => 0,
            _ => announced.ok_or_else(|| Broken::Wrong(format!("a body without its length: {page:?}")))?,
        };
        while self.input.len() < bytes {
            match self.fill() {
                Ok(()) => {}
                Err(Broken::Unanswered { .. }) => {
                    page.body = std::mem::take(&mut self.input);
                    return Err(Broken::Cut { page: Some(page) });
                }
                Err(other) => return Err(other),
            }
        }
        page.body = self.input.drain(..bytes).collect();
        if !page.body.is_empty() {
            for name in ["Content-Type", "X-Content-Type-Options"] {
                page.field(name).ok_or_else(|| Broken::Wrong(format!("a body without {name}: {page:?}")))?;
            }
        }
        Ok(page)
    }

    /// Reads the head of the next answer; returns it with the announced length.
    pub(crate) fn receive_head(&mut self) -> Result<(Page, Option<usize>), Broken> {
        loop {
            if let Some(end) = self.input.windows(4).position(|four| four == b"\r\n\r\n") {
                let head: Vec<u8> = self.input.drain(..end + 4).collect();
                return parse_head(&head)
                    .map_err(|why| Broken::Wrong(format!("{why}: {}", head.escape_ascii())));
            }
            match self.fill() {
                Err(Broken::Unanswered { .. }) if !self.input.is_empty() => {
                    return Err(Broken::Cut { page: None });
                }
                other => other?,
            }
        }
    }

    /// Receives the next part of a body, at most `bytes`; an empty result is the end.
    pub(crate) fn some(&mut self, bytes: usize) -> Vec<u8> {
        if self.input.is_empty() && self.fill().is_err() {
            return Vec::new();
        }
        self.input.drain(..bytes.min(self.input.len())).collect()
    }

    /// Receives and discards this much of a body, or less at its end.
    pub(crate) fn sip(&mut self, bytes: usize) {
        let mut left = bytes;
        while left > 0 {
            match self.some(left).len() {
                0 => return,
                got => left -= got,
            }
        }
    }

    /// Requests a file and reads the head of the answer; returns the length of the body.
    #[track_caller]
    pub(crate) fn begin(&mut self, target: &str) -> usize {
        self.ask(target);
        match self.receive_head() {
            Ok((page, Some(bytes))) if page.status == 200 => bytes,
            other => panic!("no download of {target}: {other:?}"),
        }
    }

    /// Receives a body of this length: all of it, or less if the connection ends.
    #[track_caller]
    pub(crate) fn rest(&mut self, bytes: usize) -> Vec<u8> {
        while self.input.len() < bytes {
            match self.fill() {
                Ok(()) => {}
                Err(Broken::Unanswered { .. }) => return std::mem::take(&mut self.input),
                Err(other) => panic!("{other:?} after {} of {bytes} bytes", self.input.len()),
            }
        }
        self.input.drain(..bytes).collect()
    }

    fn fill(&mut self) -> Result<(), Broken> {
        let mut buffer = [0; 64 * 1024];
        loop {
            return match self.stream.read(&mut buffer) {
                Ok(0) => Err(Broken::Unanswered { reset: false }),
                Ok(bytes) => {
                    self.input.extend_from_slice(&buffer[..bytes]);
                    Ok(())
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => Err(Broken::Silent),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => Err(Broken::Unanswered { reset: true }),
            };
        }
    }

    /// Checks that the server has closed the connection without further bytes and without a reset, which could
    /// destroy an answer.
    #[track_caller]
    pub(crate) fn assert_closed(&mut self) {
        if self.input.is_empty() {
            match self.fill() {
                Err(Broken::Unanswered { reset: false }) => return,
                Err(other) => panic!("not closed in order: {other:?}"),
                Ok(()) => {}
            }
        }
        panic!("bytes after the end: {}", self.input.escape_ascii());
    }

    /// Checks that the server has ended the connection, in any way.
    #[track_caller]
    pub(crate) fn assert_gone(&mut self) {
        if self.input.is_empty() {
            match self.fill() {
                Err(Broken::Unanswered { .. }) => return,
                Err(other) => panic!("not closed: {other:?}"),
                Ok(()) => {}
            }
        }
        panic!("bytes after the end: {}", self.input.escape_ascii());
    }

    /// Reads the rest of an answer; then the server must have reset the connection.
    #[track_caller]
    pub(crate) fn assert_reset_after_rest(&mut self) {
        loop {
            self.input.clear();
            match self.fill() {
                Ok(()) => {}
                Err(Broken::Unanswered { reset: true }) => return,
                Err(other) => panic!("not reset: {other:?}"),
            }
        }
    }

    /// Checks that the connection persists, and that no unrequested bytes were sent on it.
    #[track_caller]
    pub(crate) fn assert_kept(&mut self) {
        let page = self.request("OPTIONS", "*", &[]);
        assert_eq!(page.status, 204, "{page:?}");
    }

    /// Whether there are bytes to receive, checked once.
    pub(crate) fn has_heard(&mut self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let result = self.fill();
        self.stream.set_nonblocking(false).unwrap();
        !matches!(result, Err(Broken::Silent))
    }

    /// Checks that nothing arrives for a while.
    #[track_caller]
    pub(crate) fn assert_quiet(&mut self, how_long: Duration) {
        self.stream.set_read_timeout(Some(how_long)).unwrap();
        let result = self.fill();
        self.stream.set_read_timeout(Some(SOCKET_TIMEOUT)).unwrap();
        assert!(matches!(result, Err(Broken::Silent)), "{result:?} {}", self.input.escape_ascii());
    }
}

/// Reads a head that ends with its empty line.
fn parse_head(head: &[u8]) -> Result<(Page, Option<usize>), String> {
    let text = std::str::from_utf8(head).map_err(|e| e.to_string())?;
    let mut lines = text.strip_suffix("\r\n\r\n").ok_or("no end")?.split("\r\n").map(|line| {
        match line.bytes().all(|b| matches!(b, b' '..=b'~')) {
            true => Ok(line),
            false => Err(format!("a control byte in {line:?}")),
        }
    });
    let status_line = lines.next().ok_or("no status line")??;
    let status = parse_status_line(status_line)?;
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in lines {
        let line = line?;
        let (name, value) = line.split_once(": ").ok_or_else(|| format!("no field: {line:?}"))?;
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        if name.is_empty() || !name.bytes().all(is_token) || value.trim() != value {
            return Err(format!("not a well-made field: {line:?}"));
        }
        if fields.iter().any(|(known, _)| known == name) {
            return Err(format!("{name} stands there twice"));
        }
        fields.push((name.to_owned(), value.to_owned()));
    }
    let page = Page { status, fields, body: Vec::new() };
    let announced = check_fields(&page)?;
    Ok((page, announced))
}

fn parse_status_line(line: &str) -> Result<u16, String> {
    let wrong = || format!("no status line: {line:?}");
    let (status, reason) =
        line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.split_once(' ')).ok_or_else(wrong)?;
    if status.len() != 3 || reason.is_empty() {
        return Err(wrong());
    }
    status.parse().map_err(|_| wrong())
}

/// Checks the fields that every head must and must not have. Returns the announced length.
fn check_fields(page: &Page) -> Result<Option<usize>, String> {
    let announced = page
        .field("Content-Length")
        .map(|value| match value.parse::<usize>() {
            Ok(length) if length.to_string() == value => Ok(length),
            _ => Err(format!("Content-Length: {value}")),
        })
        .transpose()?;
    if page.field("Transfer-Encoding").is_some() {
        return Err("a Transfer-Encoding, though the length is always known".to_owned());
    }
    match page.status {
        // RFC 9110, section 8.6.
        100..=199 | 204 if announced.is_some() => {
            return Err("a Content-Length where none may be".to_owned());
        }
        100..=199 => return Ok(None),
        _ => {}
    }
    page.field("Server").ok_or("no Server")?;
    match page.field("Date") {
        Some(date) if is_http_date(date) => {}
        Some(date) => return Err(format!("Date: {date}")),
        // RFC 9110, section 6.6.1: a 5xx may omit it.
        None if page.status >= 500 => {}
        None => return Err("no Date".to_owned()),
    }
    Ok(announced)
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, by its form.
fn is_http_date(text: &str) -> bool {
    let shape: String = text
        .chars()
        .map(|c| match c {
            'A'..='Z' => 'A',
            'a'..='z' => 'a',
            '0'..='9' => '0',
            other => other,
        })
        .collect();
    shape == "Aaa, 00 Aaa 0000 00:00:00 AAA" && text.ends_with(" GMT")
}
