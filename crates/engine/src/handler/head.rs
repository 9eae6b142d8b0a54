//! The head of a response: the fields of each kind of answer, and their form in HTTP/1, changed as the rules of a site say
//! ([`HeadChanges`]). Called by the handlers, which say what an answer is [`About`], and by the wires, which write its head.

use std::sync::Arc;

use flash_http::date::http_date;
use flash_http::range::ByteRange;
use flash_http::range::multipart::content_range;
use flash_http::request::{Request, Version as HttpVersion};
use flash_http::response::{HeadWriter, ServerField, Status};
use flash_http::upstream_response::{ResponseBody, ResponseHead};

use crate::caches::{Persistence, Version, VersionKind};
use crate::context::Core;
use crate::head_changes::{HeadChanges, has_hsts};
use crate::limits::RETRY_AFTER_S;

/// The subject of a response's fields.
#[derive(Debug)]
pub(crate) enum About {
    /// A version of a file, or a listing.
    File(Arc<Version>, Extent),
    /// A version that the client already has.
    NotModified(Arc<Version>),
    /// A page made for this response.
    Page { content_type: &'static str, fields: Vec<(&'static str, String)> },
    /// The methods that are served.
    Methods,
}

/// How much of a file the body has.
#[derive(Debug)]
pub(crate) enum Extent {
    Whole,
    Range(ByteRange),
    /// Several ranges, separated by this boundary.
    Ranges(String),
}

/// The fields of every head: `Date`, and `Server` if it is sent.
#[derive(Clone, Copy)]
pub(crate) struct CommonFields {
    pub(crate) date: [u8; 29],
    pub(crate) server: ServerField,
}

impl CommonFields {
    /// Those of a worker's heads now.
    pub(crate) fn of<F>(core: &Core<F>) -> Self {
        Self { date: core.clock.date, server: core.rules.server_field }
    }
}

/// The form of heads of HTTP/1.
#[derive(Clone, Copy)]
pub(crate) struct HeadForm<'a> {
    pub(crate) common: CommonFields,
    /// Heads are padded to a multiple of this.
    pub(crate) align_bytes: usize,
    /// How rules change them.
    pub(crate) changes: Option<&'a HeadChanges>,
}

/// The head of an answer of a server.
#[derive(Clone, Copy)]
pub(crate) struct RelayedHead<'a> {
    pub(crate) answer: &'a ResponseHead,
    /// Its fields change as those of an answer with this status.
    pub(crate) ruled_as: Status,
}

impl<'a> HeadForm<'a> {
    /// The form of a worker's heads now.
    pub(crate) fn of<F>(core: &'a Core<F>) -> Self {
        Self {
            common: CommonFields::of(core),
            align_bytes: core.rules.optimizations.head_align_bytes(),
            changes: None,
        }
    }

    /// The same, changed as rules say.
    pub(crate) fn changed<F>(core: &'a Core<F>, changes: Option<&'a HeadChanges>) -> Self {
        Self { changes, ..Self::of(core) }
    }
}

/// How a client must name itself (RFC 7617).
const CHALLENGE: &str = "Basic realm=\"Restricted\", charset=\"UTF-8\"";
/// The methods that are served, for `Allow`.
const ALLOW: &str = "GET, HEAD, OPTIONS";
const RETRY_AFTER: &str = "Retry-After";

impl About {
    /// Calls `field` with each field before `Content-Length`.
    pub(crate) fn each_leading_field(&self, mut field: impl FnMut(&str, &[u8])) {
        match self {
            About::File(version, Extent::Whole) => field("Content-Type", version.content_type.as_bytes()),
            About::File(version, Extent::Range(range)) => {
                field("Content-Type", version.content_type.as_bytes());
                field("Content-Range", content_range(range, version.stat.size_bytes).as_bytes());
            }
            About::File(_, Extent::Ranges(boundary)) => {
                field("Content-Type", format!("multipart/byteranges; boundary={boundary}").as_bytes());
            }
            About::Page { content_type, .. } => field("Content-Type", content_type.as_bytes()),
            About::NotModified(_) | About::Methods => {}
        }
    }

    /// Calls `field` with each field after `Content-Length`.
    pub(crate) fn each_trailing_field(&self, mut field: impl FnMut(&str, &[u8])) {
        match self {
            About::File(version, _) => each_file_field(version, field),
            About::NotModified(version) => each_validator(version, field),
            About::Page { fields, .. } => {
                fields.iter().for_each(|(name, value)| field(name, value.as_bytes()));
            }
            About::Methods => field("Allow", ALLOW.as_bytes()),
        }
    }
}

fn each_file_field(version: &Version, mut field: impl FnMut(&str, &[u8])) {
    if version.is_listing() {
        field("X-Content-Type-Options", b"nosniff");
        field("Cache-Control", b"no-cache");
        if let Some(coding) = version.coding {
            field("Content-Encoding", coding.token().as_bytes());
        }
        return field("Vary", if version.varies { b"Accept, Accept-Encoding" } else { b"Accept" });
    }
    each_own_field(version, &mut field);
    each_shared_field(version, field);
}

/// Calls `field` with the fields of a file that hardly another file has with the same value.
pub(crate) fn each_own_field(version: &Version, mut field: impl FnMut(&str, &[u8])) {
    field("ETag", version.etag.as_bytes());
    field("Last-Modified", &http_date(version.modified_s));
}

/// Calls `field` with the fields of a file that most files have with the same value.
pub(crate) fn each_shared_field(version: &Version, mut field: impl FnMut(&str, &[u8])) {
    // A range of a form would be a range of bytes that nobody keeps.
    if version.kind != VersionKind::Form {
        field("Accept-Ranges", b"bytes");
    }
    field("X-Content-Type-Options", b"nosniff");
    if let Some(coding) = version.coding {
        field("Content-Encoding", coding.token().as_bytes());
    }
    if version.varies {
        field("Vary", b"Accept-Encoding");
    }
}

/// The validators and `Vary`, which a 304 repeats (RFC 9110, section 15.4.5).
fn each_validator(version: &Version, mut field: impl FnMut(&str, &[u8])) {
    field("ETag", version.etag.as_bytes());
    field("Last-Modified", &http_date(version.modified_s));
    if version.varies {
        field("Vary", b"Accept-Encoding");
    }
}

/// The fields of a page besides those that only this page has.
pub(super) fn page_fields(
    status: Status,
    own: Option<(&'static str, String)>,
) -> Vec<(&'static str, String)> {
    let vary = if status == Status::NOT_ACCEPTABLE { "Accept, Accept-Encoding" } else { "Accept" };
    let mut fields = vec![("X-Content-Type-Options", "nosniff".to_owned()), ("Vary", vary.to_owned())];
    match status {
        Status::UNAUTHORIZED => fields.push(("WWW-Authenticate", CHALLENGE.to_owned())),
        Status::METHOD_NOT_ALLOWED => fields.push(("Allow", ALLOW.to_owned())),
        Status::UNAVAILABLE if own.is_none() => fields.push(retry_after(RETRY_AFTER_S)),
        _ => {}
    }
    fields.extend(own);
    fields
}

pub(super) fn retry_after(seconds: u64) -> (&'static str, String) {
    (RETRY_AFTER, seconds.to_string())
}

/// Whether the connection persists after the answer to this request (RFC 9112, section 9.3).
pub(crate) fn persistence(request: &Request<'_>, is_last: bool) -> Persistence {
    match request.version {
        _ if !request.keep_alive || is_last => Persistence::Closes,
        HttpVersion::Http10 => Persistence::SaidToPersist,
        HttpVersion::Http11 | HttpVersion::Http2 => Persistence::Persists,
    }
}

/// Appends the head of a response of HTTP/1. Returns the offset of its date, if no rule changes the head.
pub(crate) fn write_head(
    out: &mut Vec<u8>,
    form: HeadForm<'_>,
    (status, length): (Status, Option<u64>),
    about: &About,
    persistence: Persistence,
) -> usize {
    let start = out.len();
    let mut head = HeadWriter::start(out, status, form.common.server, &form.common.date);
    about.each_leading_field(|name, value| head.field(name, value));
    if let Some(bytes) = length {
        head.length(bytes);
    }
    match about {
        About::File(version, _) => head.raw(&version.kept_lines(|| lines(version))),
        other => other.each_trailing_field(|name, value| head.field(name, value)),
    }
    let date_at = finish(head, persistence, form.align_bytes);
    change(out, start, (form, status), &[]);
    date_at
}

/// Changes the head that begins at `start` as rules say. `fields` are lines of a server in it.
fn change(out: &mut Vec<u8>, start: usize, (form, status): (HeadForm<'_>, Status), fields: &[u8]) {
    if let Some(changes) = form.changes.and_then(|changes| changes.of(status)) {
        let head = out.split_off(start);
        changes.copy(out, &head, has_hsts(fields));
    }
}

/// The lines of a file's fields, which its version keeps.
fn lines(version: &Version) -> Vec<u8> {
    let mut lines = Vec::with_capacity(192);
    each_file_field(version, |name, value| {
        [name.as_bytes(), b": ", value, b"\r\n"].iter().for_each(|part| lines.extend_from_slice(part));
    });
    lines
}

/// Appends the head of an upstream's answer, in HTTP/1. Returns whether the connection ends after it: if it `is_last`, or if
/// the client wants that.
pub(crate) fn write_relayed_head(
    out: &mut Vec<u8>,
    form: HeadForm<'_>,
    (request, is_last): (&Request<'_>, bool),
    RelayedHead { answer, ruled_as }: RelayedHead<'_>,
) -> bool {
    let mut persistence = persistence(request, is_last);
    let closes = persistence == Persistence::Closes;
    let has_no_end = matches!(answer.body, ResponseBody::Chunked | ResponseBody::UntilEnd);
    let start = out.len();
    let mut head = HeadWriter::start(out, answer.status, form.common.server, &form.common.date);
    if let Some(bytes) = answer.length_bytes.filter(|_| !has_no_end && answer.status.0 >= 200) {
        head.length(bytes);
    }
    if has_no_end && request.version == HttpVersion::Http11 {
        head.field("Transfer-Encoding", b"chunked");
    }
    head.raw(&answer.fields);
    if closes && answer.body == ResponseBody::Upgraded {
        persistence = Persistence::Persists;
    }
    finish(head, persistence, 1);
    change(out, start, (form, ruled_as), &answer.fields);
    closes
}

fn finish(mut head: HeadWriter<'_>, persistence: Persistence, align_bytes: usize) -> usize {
    if persistence == Persistence::SaidToPersist {
        // HTTP/1.0 connections do not persist by default (RFC 9112, section 9.3).
        head.field("Connection", b"keep-alive");
    }
    head.finish(persistence == Persistence::Closes, align_bytes)
}
