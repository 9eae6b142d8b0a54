//! Send header: composes every response head but the one kept with a small file's content, and
//! sets an exchange up to be sent.

use std::collections::VecDeque;

use flash_http::error_page::error_body;
use flash_http::multipart::{boundary, content_range, part_end, part_head, unsatisfied_content_range};
use flash_http::negotiate::prefers_json;
use flash_http::range::ByteRange;
use flash_http::request::{Method, Request, Version as HttpVersion};
use flash_http::response::{HeadWriter, Status};
use flash_http::target::encode_path;

use crate::cache::Version;
use crate::connection::{Next, Phase};
use crate::engine::Engine;
use crate::exchange::{Exchange, Part, Refusal, Source};
use crate::limits::RETRY_AFTER_S;
use crate::slab::Key;
use crate::system::System;

type Boxed<F> = Option<Box<Exchange<F>>>;

/// What an error page needs to know of its request.
struct ErrorForm {
    json: bool,
    head_only: bool,
    http10: bool,
    close: bool,
}

impl<S: System> Engine<S> {
    /// Answers that a request is not served, and why.
    pub(crate) fn refuse(
        &mut self,
        key: Key,
        request: &Request<'_>,
        exchange: Boxed<S::File>,
        refusal: Refusal,
    ) -> Next {
        let form = self.form(request);
        self.send_error(key, exchange, refusal, &form, &[])
    }

    /// Like [`Engine::refuse`], where what follows in the connection cannot be understood.
    pub(crate) fn refuse_and_close(
        &mut self,
        key: Key,
        request: Option<&Request<'_>>,
        refusal: Refusal,
        json: bool,
    ) -> Next {
        let head_only = request.is_some_and(|r| r.method == Method::Head);
        let form = ErrorForm { json, head_only, http10: false, close: true };
        self.send_error(key, None, refusal, &form, &[])
    }

    pub(crate) fn reply_unsatisfiable(
        &mut self,
        key: Key,
        request: &Request<'_>,
        exchange: Boxed<S::File>,
        file_bytes: u64,
    ) -> Next {
        let refusal = (Status::RANGE_NOT_SATISFIABLE, "No such part of the file exists.");
        let form = self.form(request);
        self.send_error(
            key,
            exchange,
            refusal,
            &form,
            &[("Content-Range", unsatisfied_content_range(file_bytes))],
        )
    }

    pub(crate) fn reply_options(
        &mut self,
        key: Key,
        request: &Request<'_>,
        exchange: Boxed<S::File>,
    ) -> Next {
        let close = self.closes(request);
        let out = self.head(Status::NO_CONTENT, request, close, |head| head.field("Allow", ALLOW));
        self.send_reply(key, exchange, Status::NO_CONTENT, out, None, close)
    }

    /// Sends a client that left out a directory's slash to it (RFC 9110, section 15.4.2).
    pub(crate) fn reply_redirect(
        &mut self,
        key: Key,
        request: &Request<'_>,
        exchange: Boxed<S::File>,
        path: &[u8],
    ) -> Next {
        let mut location = encode_path(path).into_bytes();
        location.push(b'/');
        if let Some(query) = request.query {
            location.push(b'?');
            location.extend_from_slice(query);
        }
        let refusal = (Status::MOVED_PERMANENTLY, "This is a directory; its address ends with a slash.");
        let form = self.form(request);
        let location = String::from_utf8_lossy(&location).into_owned();
        self.send_error(key, exchange, refusal, &form, &[("Location", location)])
    }

    /// A 304 repeats the validators and `Vary` (RFC 9110, section 15.4.5).
    pub(crate) fn reply_not_modified(
        &mut self,
        key: Key,
        request: &Request<'_>,
        exchange: Boxed<S::File>,
        version: &Version,
    ) -> Next {
        let close = self.closes(request);
        let out = self.head(Status::NOT_MODIFIED, request, close, |head| {
            head.field("ETag", version.etag.as_bytes());
            head.field("Last-Modified", &flash_http::date::http_date(version.modified_s));
            if version.varies {
                head.field("Vary", b"Accept-Encoding");
            }
        });
        self.send_reply(key, exchange, Status::NOT_MODIFIED, out, None, close)
    }

    pub(crate) fn reply_head_only(
        &mut self,
        key: Key,
        request: &Request<'_>,
        exchange: Boxed<S::File>,
        version: &Version,
    ) -> Next {
        let close = self.closes(request);
        let out = self.whole_head(request, version, close);
        self.send_reply(key, exchange, Status::OK, out, None, close)
    }

    pub(crate) fn reply_whole(
        &mut self,
        key: Key,
        request: &Request<'_>,
        exchange: Boxed<S::File>,
        version: &Version,
        source: Source<S::File>,
    ) -> Next {
        let close = self.closes(request);
        let out = self.whole_head(request, version, close);
        let body = Body { source, at: 0, end: version.stat.size_bytes, parts: VecDeque::new() };
        self.send_reply(key, exchange, Status::OK, out, Some(body), close)
    }

    pub(crate) fn reply_range(
        &mut self,
        key: Key,
        request: &Request<'_>,
        exchange: Boxed<S::File>,
        version: &Version,
        source: Source<S::File>,
        range: ByteRange,
    ) -> Next {
        let close = self.closes(request);
        let out = self.head(Status::PARTIAL_CONTENT, request, close, |head| {
            head.field("Content-Type", version.content_type.as_bytes());
            head.field("Content-Range", content_range(&range, version.stat.size_bytes).as_bytes());
            head.length(range.len());
            head.raw(&version.fields());
        });
        let body = Body { source, at: range.start, end: range.end, parts: VecDeque::new() };
        self.send_reply(key, exchange, Status::PARTIAL_CONTENT, out, Some(body), close)
    }

    pub(crate) fn reply_ranges(
        &mut self,
        key: Key,
        request: &Request<'_>,
        exchange: Boxed<S::File>,
        version: &Version,
        source: Source<S::File>,
        ranges: &[ByteRange],
    ) -> Next {
        let close = self.closes(request);
        self.boundaries += 1;
        let boundary = boundary(self.boundaries ^ self.now.wall_ns as u64);
        let size_bytes = version.stat.size_bytes;
        let mut parts: VecDeque<Part> = ranges
            .iter()
            .enumerate()
            .map(|(number, range)| Part {
                text: part_head(&boundary, &version.content_type, range, size_bytes, number == 0),
                range: Some(*range),
            })
            .collect();
        parts.push_back(Part { text: part_end(&boundary), range: None });
        let length =
            parts.iter().map(|p| p.text.len() as u64 + p.range.as_ref().map_or(0, ByteRange::len)).sum();
        let content_type = format!("multipart/byteranges; boundary={boundary}");
        let out = self.head(Status::PARTIAL_CONTENT, request, close, |head| {
            head.field("Content-Type", content_type.as_bytes());
            head.length(length);
            head.raw(&version.fields());
        });
        let body = Body { source, at: 0, end: 0, parts };
        self.send_reply(key, exchange, Status::PARTIAL_CONTENT, out, Some(body), close)
    }

    fn whole_head(&self, request: &Request<'_>, version: &Version, close: bool) -> Vec<u8> {
        self.head(Status::OK, request, close, |head| {
            head.field("Content-Type", version.content_type.as_bytes());
            head.length(version.stat.size_bytes);
            head.raw(&version.fields());
        })
    }

    fn head(
        &self,
        status: Status,
        request: &Request<'_>,
        close: bool,
        fields: impl FnOnce(&mut HeadWriter<'_>),
    ) -> Vec<u8> {
        self.compose(status, request.version == HttpVersion::Http10, close, fields)
    }

    fn compose(
        &self,
        status: Status,
        http10: bool,
        close: bool,
        fields: impl FnOnce(&mut HeadWriter<'_>),
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        let mut head = HeadWriter::start(&mut out, status, &self.date);
        fields(&mut head);
        if http10 && !close {
            // Persistence is not the default of HTTP/1.0 (RFC 9112, section 9.3).
            head.field("Connection", b"keep-alive");
        }
        head.finish(close, self.rules.optimizations.head_align_bytes());
        out
    }

    fn form(&self, request: &Request<'_>) -> ErrorForm {
        ErrorForm {
            json: prefers_json(request.accept.as_deref()),
            head_only: request.method == Method::Head,
            http10: request.version == HttpVersion::Http10,
            close: self.closes(request),
        }
    }

    /// Whether the connection ends with this request.
    fn closes(&self, request: &Request<'_>) -> bool {
        !request.keep_alive || self.draining
    }

    fn send_error(
        &mut self,
        key: Key,
        exchange: Boxed<S::File>,
        refusal: Refusal,
        form: &ErrorForm,
        fields: &[(&str, String)],
    ) -> Next {
        let (out, head_bytes) = self.error(refusal, form, fields);
        let next = self.send_reply(key, exchange, refusal.0, out, None, form.close);
        if let Some(exchange) = self.connections.get_mut(key).and_then(|c| c.exchange.as_mut()) {
            exchange.head_bytes = head_bytes;
        }
        next
    }

    /// An error's head and page, and how long the head is.
    fn error(
        &self,
        (status, detail): Refusal,
        form: &ErrorForm,
        fields: &[(&str, String)],
    ) -> (Vec<u8>, u64) {
        let (content_type, page) = error_body(status, detail, form.json);
        let mut out = self.compose(status, form.http10, form.close, |head| {
            head.field("Content-Type", content_type.as_bytes());
            head.length(page.len() as u64);
            head.field("X-Content-Type-Options", b"nosniff");
            let vary: &[u8] =
                if status == Status::NOT_ACCEPTABLE { b"Accept, Accept-Encoding" } else { b"Accept" };
            head.field("Vary", vary);
            for (name, value) in fields {
                head.field(name, value.as_bytes());
            }
            match status {
                Status::METHOD_NOT_ALLOWED => head.field("Allow", ALLOW),
                Status::UNAVAILABLE => head.field("Retry-After", RETRY_AFTER_S.to_string().as_bytes()),
                _ => {}
            }
        });
        let head_bytes = out.len() as u64;
        if !form.head_only {
            out.extend_from_slice(&page);
        }
        (out, head_bytes)
    }

    /// Sets an exchange up to be sent.
    fn send_reply(
        &mut self,
        key: Key,
        exchange: Boxed<S::File>,
        status: Status,
        out: Vec<u8>,
        body: Option<Body<S::File>>,
        close: bool,
    ) -> Next {
        self.counters.heads_made += 1;
        let mut exchange = self.boxed(exchange);
        exchange.status = status;
        exchange.head_bytes = out.len() as u64;
        exchange.out = out;
        exchange.close = close;
        if let Some(body) = body {
            exchange.source = body.source;
            exchange.at = body.at;
            exchange.end = body.end;
            exchange.parts = body.parts;
        }
        let Some(connection) = self.connections.get_mut(key) else { return Next::Close };
        connection.phase = Phase::Send;
        connection.exchange = Some(exchange);
        Next::Again
    }
}

/// A body and which part of it comes first.
struct Body<F> {
    source: Source<F>,
    at: u64,
    end: u64,
    parts: VecDeque<Part>,
}

const ALLOW: &[u8] = b"GET, HEAD, OPTIONS";
