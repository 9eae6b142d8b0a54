//! A request that owns its bytes, for a request that has to wait while the connection's buffer is reused.
//!
//! Used by the engine's exchanges. It holds everything that a [`Request`] holds in one allocation, and
//! returns it without parsing again.

use std::borrow::Cow;

use crate::request::{Body, Method, Request, Version};

/// A range of the buffer.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    end: u32,
}

/// An owned [`Request`].
#[derive(Clone, Debug)]
pub struct RequestBuf {
    bytes: Box<[u8]>,
    head_len: usize,
    method: Method,
    version: Version,
    keep_alive: bool,
    body: Body,
    expect_continue: bool,
    line: Span,
    path: Span,
    host: Span,
    /// The optional fields, in the order of [`RequestBuf::new`].
    optional: [Option<Span>; 12],
}

impl RequestBuf {
    /// Copies a request.
    #[must_use]
    pub fn new(request: &Request<'_>) -> Self {
        let optional: [Option<&[u8]>; 12] = [
            request.query,
            request.accept.as_deref(),
            request.accept_encoding.as_deref(),
            request.if_match.as_deref(),
            request.if_none_match.as_deref(),
            request.range,
            request.if_range,
            request.if_modified_since,
            request.if_unmodified_since,
            request.referer,
            request.user_agent,
            request.origin,
        ];
        let mut bytes = Vec::with_capacity(request.head_len);
        let mut push = |part: &[u8]| {
            let start = bytes.len() as u32;
            bytes.extend_from_slice(part);
            Span { start, end: bytes.len() as u32 }
        };
        let (line, path, host) = (push(request.line), push(request.path), push(request.host));
        let optional = optional.map(|part| part.map(&mut push));
        Self {
            bytes: bytes.into(),
            head_len: request.head_len,
            method: request.method,
            version: request.version,
            keep_alive: request.keep_alive,
            body: request.body,
            expect_continue: request.expect_continue,
            line,
            path,
            host,
            optional,
        }
    }

    /// The same request for another path, still percent-encoded and without a query. The connection closes after
    /// it unless it `persists`.
    #[must_use]
    pub fn for_path(&self, path: &[u8], persists: bool) -> Self {
        let request = self.request();
        let keep_alive = request.keep_alive && persists;
        Self::new(&Request { path, query: None, keep_alive, ..request })
    }

    /// The same request. The connection closes after it unless it `persists`.
    #[must_use]
    pub fn persisting(&self, persists: bool) -> Self {
        Self { keep_alive: self.keep_alive && persists, ..self.clone() }
    }

    fn part(&self, span: Span) -> &[u8] {
        &self.bytes[span.start as usize..span.end as usize]
    }

    /// The request, borrowed from this buffer.
    #[must_use]
    pub fn request(&self) -> Request<'_> {
        let part = |number: usize| self.optional[number].map(|span| self.part(span));
        let list = |number: usize| part(number).map(Cow::Borrowed);
        Request {
            head_len: self.head_len,
            method: self.method,
            version: self.version,
            line: self.part(self.line),
            path: self.part(self.path),
            query: part(0),
            host: self.part(self.host),
            keep_alive: self.keep_alive,
            body: self.body,
            expect_continue: self.expect_continue,
            accept: list(1),
            accept_encoding: list(2),
            if_match: list(3),
            if_none_match: list(4),
            range: part(5),
            if_range: part(6),
            if_modified_since: part(7),
            if_unmodified_since: part(8),
            // A copy has no password, so that none stays in memory for long.
            authorization: None,
            referer: part(9),
            user_agent: part(10),
            origin: part(11),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Head, HeadLimits, parse_head};

    #[test]
    fn a_copy_equals_the_request() {
        let head =
            b"GET /a/b?c=d HTTP/1.1\r\nHost: h:80\r\nAccept: x\r\nAccept: y\r\nAccept-Encoding: gzip\r\n\
            If-Match: \"1\"\r\nIf-None-Match: \"2\"\r\nRange: bytes=0-1\r\nIf-Range: \"3\"\r\n\
            If-Modified-Since: a\r\nIf-Unmodified-Since: b\r\nReferer: r\r\nUser-Agent: u\r\nOrigin: o\r\n\
            Content-Length: 5\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n";
        for head in [&head[..], b"HEAD / HTTP/1.0\r\n\r\n"] {
            let Ok(Head::Complete(request)) = parse_head(head, &HeadLimits::default()) else {
                panic!("{head:?}")
            };
            let copy = RequestBuf::new(&request);
            assert_eq!(format!("{:?}", copy.request()), format!("{request:?}"));
        }
    }
}
