//! Redirects from plain HTTP to HTTPS. Called by the [gate](super::gate).

use flash_http::request::Request;
use flash_http::response::Status;

use super::Response;
use super::error_page::{error_page, page_with};
use crate::rules::HttpsRedirect;

/// The files that prove to an issuer of certificates that a domain is the operator's (RFC 8555, section 8.3). Issuers ask for
/// them over plain HTTP.
const CHALLENGES: &[u8] = b"/.well-known/acme-challenge/";
/// The port that an `https` address does not name.
const HTTPS_PORT: u16 = 443;

/// Whether a decoded path leads to a challenge of an issuer of certificates.
pub(super) fn is_challenge(path: &[u8]) -> bool {
    path.starts_with(CHALLENGES)
}

/// Sends a client to the same address over HTTPS.
pub(super) fn to_https<F>(request: &Request<'_>, rules: HttpsRedirect) -> Response<F> {
    // HTTP/1.0 allows a request without a host, and so without an address to send the client to.
    if request.host.is_empty() {
        return error_page(request, (Status::FORBIDDEN, "This site is served over HTTPS only."));
    }
    let mut location = b"https://".to_vec();
    location.extend_from_slice(request.host);
    if rules.port != HTTPS_PORT {
        location.extend_from_slice(format!(":{}", rules.port).as_bytes());
    }
    location.extend_from_slice(request.path);
    if let Some(query) = request.query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    let location = String::from_utf8_lossy(&location).into_owned();
    page_with(request, (rules.status, "This site is served over HTTPS."), ("Location", location))
}
