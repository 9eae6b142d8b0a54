//! Says how to go on where a directory has neither an index file nor a listing, to a client on the operator's own machine. Others
//! get the bare page of a missing file. Called by [`handler`](crate::handler).

use std::net::IpAddr;

use flash_http::response::Status;

use super::error_page::{NOT_FOUND, page_with};
use super::{FileRequest, Step, refuse};
use crate::caches::relative;
use crate::context::Context;
use crate::machine::{FileKind, Machine, Want};

/// Answers a request for a missing path.
pub(super) fn missing<M: Machine>(context: &mut Context<'_, M>, asked: &FileRequest<'_>) -> Step<M::File> {
    if !is_from_operator(asked) || !is_unlisted(context, asked) {
        return refuse(asked.request, NOT_FOUND);
    }
    let index = context.core.rules.site(asked.site).index.first();
    let put = index.map_or(String::new(), |index| format!("put {index} there, or "));
    let text = format!(
        "This directory has no index file. To show a page, {put}list the directory with browse = true or --browse. \
         Only clients on this machine see this hint."
    );
    // A cache could give it to other clients.
    Step::Answer(page_with(
        asked.request,
        (Status::NOT_FOUND, &text),
        ("Cache-Control", "no-store".to_owned()),
    ))
}

/// Whether the operator of this machine seems to ask. A proxy that is not named as trusted sends requests of others from this
/// machine too, mostly with their host.
fn is_from_operator(asked: &FileRequest<'_>) -> bool {
    asked.is_local && is_name_of_loopback(asked.request.host)
}

fn is_name_of_loopback(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Whether there is a directory, as far as can be told without waiting.
fn is_unlisted<M: Machine>(context: &mut Context<'_, M>, asked: &FileRequest<'_>) -> bool {
    if context.core.rules.site(asked.site).browse || !asked.path.ends_with(b"/") {
        return false;
    }
    let found = context.machine.open_cached(asked.site, relative(&asked.path), Want::Stat);
    found.is_ok_and(|found| found.stat.kind == FileKind::Directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_loopback() {
        for host in ["localhost", "LocalHost", "127.0.0.1", "127.8.9.10", "[::1]", "[::ffff:127.0.0.1]"] {
            assert!(is_name_of_loopback(host.as_bytes()), "{host}");
        }
        for host in ["", "localhost.example.org", "example.org", "10.0.0.1", "[::2]", "[localhost", "1"] {
            assert!(!is_name_of_loopback(host.as_bytes()), "{host}");
        }
        assert!(!is_name_of_loopback(b"\xff"));
    }
}
