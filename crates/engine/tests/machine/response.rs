//! Answers, parsed as a strict client would.

/// One answer.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Status line and fields.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = &self.body[..self.body.len().min(80)];
        write!(f, "{}[{} bytes: {}]", self.head, self.body.len(), shown.escape_ascii())
    }
}

impl Response {
    /// The value of a field that occurs at most once.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.head.lines().skip(1).filter_map(|line| {
            let (n, value) = line.split_once(": ")?;
            n.eq_ignore_ascii_case(name).then_some(value)
        });
        let value = values.next();
        assert!(values.next().is_none(), "{name} twice in {}", self.head);
        value
    }

    pub(crate) fn length(&self) -> Option<usize> {
        self.field("Content-Length").map(|value| value.parse().expect("a number"))
    }

    pub(crate) fn closes(&self) -> bool {
        self.field("Connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Parses the head at the front of `bytes`. Also returns its length.
pub(crate) fn parse_head(bytes: &[u8]) -> Option<(Response, usize)> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..end]).expect("a head in ASCII").to_owned();
    let mut words = head.split(' ');
    assert_eq!(words.next(), Some("HTTP/1.1"), "{head}");
    let status = words.next().and_then(|word| word.parse().ok()).expect("a status");
    for line in head.trim_end().lines().skip(1) {
        assert!(line.split_once(": ").is_some_and(|(name, _)| !name.contains(' ')), "a field: {line:?}");
    }
    Some((Response { status, head, body: Vec::new() }, end))
}

/// Parses the whole answers at the front of `bytes`. Also returns their length. `head_only` says whether the
/// answer with this number answers a HEAD request.
pub(crate) fn parse_all(bytes: &[u8], head_only: impl Fn(usize) -> bool) -> (Vec<Response>, usize) {
    let mut all = Vec::new();
    let mut at = 0;
    while let Some((mut response, head_bytes)) = parse_head(&bytes[at..]) {
        let bodiless = head_only(all.len()) || matches!(response.status, 100 | 204 | 304);
        let length = if bodiless { 0 } else { response.length().expect("a length") };
        let body_at = at + head_bytes;
        if bytes.len() < body_at + length {
            break;
        }
        response.body = bytes[body_at..body_at + length].to_vec();
        at = body_at + length;
        all.push(response);
    }
    (all, at)
}

/// The parts of a `multipart/byteranges` body: `Content-Range` and bytes of each.
pub(crate) fn parse_parts(response: &Response) -> Vec<(String, Vec<u8>)> {
    let content_type = response.field("Content-Type").expect("a type");
    let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").expect("multipart");
    let mut parts = Vec::new();
    let mut rest = &response.body[..];
    let (first, next) = (format!("--{boundary}\r\n"), format!("\r\n--{boundary}\r\n"));
    rest = rest.strip_prefix(first.as_bytes()).expect("the first boundary");
    loop {
        let head_end = rest.windows(4).position(|w| w == b"\r\n\r\n").expect("a part's head");
        let head = String::from_utf8(rest[..head_end].to_vec()).expect("text");
        let range =
            head.lines().find_map(|line| line.strip_prefix("Content-Range: ")).expect("a range").to_owned();
        let numbers = range.strip_prefix("bytes ").and_then(|r| r.split('/').next()).expect("bytes");
        let (start, last) = numbers.split_once('-').expect("the first and last byte");
        let length = last.parse::<usize>().expect("last") + 1 - start.parse::<usize>().expect("first");
        rest = &rest[head_end + 4..];
        parts.push((range, rest[..length].to_vec()));
        rest = &rest[length..];
        match rest.strip_prefix(next.as_bytes()) {
            Some(after) => rest = after,
            None => break,
        }
    }
    assert_eq!(rest, format!("\r\n--{boundary}--\r\n").as_bytes(), "the last boundary");
    parts
}
