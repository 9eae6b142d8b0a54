//! Error pages and redirects: a short page with the reason, in HTML or JSON. Called by the handlers, and by
//! the wires for input that is not a valid request.

use flash_http::error_page::error_body;
use flash_http::negotiate::prefers_json;
use flash_http::range::multipart::unsatisfied_content_range;
use flash_http::request::{Method, Request};
use flash_http::response::Status;
use flash_http::target::encode_path;

use super::head::{page_fields, retry_after};
use super::{About, Response};
use crate::body::Body;
use crate::limits::{RETRY_AFTER_S, RETRY_AFTER_S_MAX};

/// Why a request is refused: the status, and a sentence for the page.
pub(crate) type Refusal = (Status, &'static str);

pub(crate) const NOT_FOUND: Refusal = (Status::NOT_FOUND, "There is nothing under this address.");
pub(super) const AMBIGUOUS_PATH: Refusal =
    (Status::BAD_REQUEST, "The application could read this path differently.");
pub(crate) const DENIED: Refusal = (Status::FORBIDDEN, "The server is not permitted to read this.");
pub(super) const NOT_ADMITTED: Refusal = (Status::FORBIDDEN, "Your address is not admitted here.");
pub(super) const TOO_MANY: Refusal =
    (Status::TOO_MANY_REQUESTS, "You send too many requests. Try again later.");
pub(super) const TOO_MANY_OF_ALL: Refusal =
    (Status::UNAVAILABLE, "There are too many requests. Try again soon.");
pub(super) const PASSWORD_NEEDED: Refusal =
    (Status::UNAUTHORIZED, "This needs the name and the password of a user.");
pub(crate) const NO_METHOD_OF_FILES: Refusal =
    (Status::METHOD_NOT_ALLOWED, "This server answers GET, HEAD and OPTIONS.");
pub(super) const NO_SITE: Refusal = (Status::MISDIRECTED, "No site is configured for this host.");
pub(super) const NOT_ACCEPTABLE: Refusal =
    (Status::NOT_ACCEPTABLE, "No coding of this file is acceptable to the client.");
pub(super) const PRECONDITION_FAILED: Refusal =
    (Status::PRECONDITION_FAILED, "The file is not in the state that the request requires.");
pub(crate) const BUSY: Refusal = (Status::UNAVAILABLE, "The disk is too busy. Try again soon.");
pub(crate) const LOST: Refusal = (Status::UNAVAILABLE, "The disk did not answer in time. Try again soon.");
pub(crate) const EXHAUSTED: Refusal = (Status::UNAVAILABLE, "The server is at a limit. Try again soon.");
pub(crate) const READ_FAILED: Refusal = (Status::INTERNAL, "The file could not be read.");
pub(crate) const SPOOL_FAILED: Refusal =
    (Status::UNAVAILABLE, "The server could not hold the request body. Try again soon.");
pub(crate) const UNSTEADY: Refusal = (Status::UNAVAILABLE, "The file keeps changing. Try again soon.");
pub(crate) const TOO_LARGE: Refusal = (Status::PAYLOAD_TOO_LARGE, "The request body is too large.");
pub(crate) const REQUEST_LATE: Refusal = (Status::REQUEST_TIMEOUT, "The request did not arrive in time.");
pub(crate) const PLAIN_HTTP: Refusal =
    (Status::BAD_REQUEST, "This port speaks HTTPS. Use an address that begins with https://.");

pub(super) const LENGTH_REQUIRED: Refusal =
    (Status::LENGTH_REQUIRED, "The application needs to know the length of the request body.");
pub(crate) const NO_LINK: Refusal = (Status::BAD_GATEWAY, "The application cannot be reached.");
pub(crate) const BAD_ANSWER: Refusal = (Status::BAD_GATEWAY, "The application did not answer properly.");
pub(crate) const NO_ANSWER: Refusal = (Status::GATEWAY_TIMEOUT, "The application did not answer in time.");
pub(crate) const UPSTREAM_BUSY: Refusal =
    (Status::UNAVAILABLE, "The application is too busy. Try again soon.");

/// The page for a refused request.
pub(crate) fn error_page<F>(request: &Request<'_>, refusal: Refusal) -> Response<F> {
    page(refusal, Form::of(request), None)
}

/// The page for a request that would have waited `wait_ms` for the disk. `Retry-After` follows the wait if it
/// is known.
pub(crate) fn busy_page<F>(request: &Request<'_>, wait_ms: Option<u64>) -> Response<F> {
    let retry_after_s =
        wait_ms.map_or(RETRY_AFTER_S, |wait_ms| wait_ms.div_ceil(1_000).clamp(1, RETRY_AFTER_S_MAX));
    page(BUSY, Form::of(request), Some(retry_after(retry_after_s)))
}

/// A request that came too soon for the rate of a rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct TooSoon {
    /// When it would be admitted, in microseconds.
    pub(super) wait_us: u64,
    /// Whether its own client sends too many, not all clients together.
    pub(super) is_of_client: bool,
}

/// The page for a request that a rule would admit after a while.
pub(super) fn too_soon_page<F>(request: &Request<'_>, too_soon: TooSoon) -> Response<F> {
    let retry_after_s = too_soon.wait_us.div_ceil(1_000_000).max(1);
    let refusal = if too_soon.is_of_client { TOO_MANY } else { TOO_MANY_OF_ALL };
    page(refusal, Form::of(request), Some(retry_after(retry_after_s)))
}

/// The page for input that is not a valid request.
pub(crate) fn malformed<F>(refusal: Refusal) -> Response<F> {
    page(refusal, Form { json: false, head_only: false }, None)
}

/// Redirects to a directory a client that left out its slash (RFC 9110, section 15.4.2).
pub(super) fn redirect<F>(request: &Request<'_>, path: &[u8]) -> Response<F> {
    let mut location = encode_path(path);
    location.push('/');
    if let Some(query) = request.query {
        location.push('?');
        location.push_str(&String::from_utf8_lossy(query));
    }
    let refusal = (Status::MOVED_PERMANENTLY, "This is a directory; its address ends with a slash.");
    page(refusal, Form::of(request), Some(("Location", location)))
}

/// Redirects a request as a rule says.
pub(super) fn redirect_to<F>(request: &Request<'_>, status: Status, location: String) -> Response<F> {
    page_with(request, (status, "This is at another address."), ("Location", location))
}

/// The page for a refusal or a redirect, with a field of its own.
pub(super) fn page_with<F>(
    request: &Request<'_>,
    refusal: (Status, &str),
    own: (&'static str, String),
) -> Response<F> {
    page(refusal, Form::of(request), Some(own))
}

/// The 416 answer, with the length of the file.
pub(super) fn unsatisfiable<F>(request: &Request<'_>, file_bytes: u64) -> Response<F> {
    let refusal = (Status::RANGE_NOT_SATISFIABLE, "No such part of the file exists.");
    page(refusal, Form::of(request), Some(("Content-Range", unsatisfied_content_range(file_bytes))))
}

/// The form of page that a client prefers.
#[derive(Clone, Copy, Debug)]
struct Form {
    json: bool,
    head_only: bool,
}

impl Form {
    fn of(request: &Request<'_>) -> Self {
        Self { json: prefers_json(request.accept.as_deref()), head_only: request.method == Method::Head }
    }
}

/// A page with a field of its own, if it has one.
fn page<F>((status, detail): (Status, &str), form: Form, own: Option<(&'static str, String)>) -> Response<F> {
    let (content_type, page) = error_body(status, detail, form.json);
    let about = About::Page { content_type, fields: page_fields(status, own) };
    let length = Some(page.len() as u64);
    let body = if form.head_only { Body::Empty } else { Body::Page(page, 0) };
    Response::new(status, about, length, body)
}
