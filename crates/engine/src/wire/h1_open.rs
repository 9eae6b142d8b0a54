//! Opens the relay of a request: its bytes for the server, in the protocol of its upstream. Called by
//! [`h1_relay`](super::h1_relay).

use std::net::SocketAddr;

use flash_http::RequestBuf;
use flash_http::answer::AnswerTo;
use flash_http::forward::{Forwarding, Script, each_cgi_variable, each_field, write_proxy_head};
use flash_http::request::{Body, Method, Request, Version};

use crate::desk::Desk;
use crate::exchange::Relay;
use crate::fastcgi::client::{write_begin, write_stdin_end};
use crate::handler::{LENGTH_REQUIRED, Refusal, Routed};
use crate::machine::Machine;
use crate::rules::UpstreamProtocol;
use crate::upstream::{Talk, Upload};

/// Opens the relay of a request, whose bytes are `head`.
///
/// # Errors
/// The body is too long, or its length is unknown and the upstream needs it.
pub(super) fn open<M: Machine>(
    desk: &mut Desk<'_, M>,
    peer: SocketAddr,
    (request, head): (&Request<'_>, &[u8]),
    routed: &Routed,
) -> Result<Relay, Refusal> {
    let core = &mut *desk.core;
    core.relayed += 1;
    let request_id = format!("{:x}-{:x}-{:x}", core.clock.now.wall_ns, peer.port(), core.relayed);
    let (upstream, bytes_max) = {
        let rules = routed.rules(core);
        (rules.upstream, rules.body_bytes_max)
    };
    let protocol = core.rules.upstreams[usize::from(upstream.0)].protocol;
    let upload = Upload::new(request.body, bytes_max)?;
    let upgrades = protocol == UpstreamProtocol::Http && asks_upgrade(request, head);
    let forwarding = Forwarding {
        peer,
        scheme: "http",
        server: None,
        request_id: &request_id,
        body: request.body,
        upgrade: upgrades,
    };
    let mut opening = Vec::with_capacity(head.len() + 512);
    match protocol {
        UpstreamProtocol::Http => write_proxy_head(&mut opening, request, head, &forwarding),
        // CGI has no way to say that the length is unknown (RFC 3875, section 4.1.2).
        UpstreamProtocol::FastCgi if request.body == Body::Chunked => return Err(LENGTH_REQUIRED),
        UpstreamProtocol::FastCgi => {
            let root = core.rules.sites[usize::from(routed.site.0)].root.as_os_str();
            let script = Script {
                document_root: root.as_encoded_bytes(),
                script_name: routed.script(),
                path_info: routed.path_info(),
            };
            write_begin(&mut opening, |param| each_cgi_variable(request, head, &forwarding, &script, param));
            if matches!(upload, Upload::Done) {
                write_stdin_end(&mut opening);
            }
        }
    }
    let asking = AnswerTo { is_head: request.method == Method::Head, upgrades };
    let talk = Talk::new(protocol, asking, upload, opening);
    Ok(Relay::new(RequestBuf::new(request), (routed.site, upstream), talk, core.clock.ms()))
}

/// Whether a request asks to change the protocol of its connection (RFC 9110, section 7.8) to one that can be passed
/// on. One with a body does not, because its body would have to come first. HTTP/2 is another way to send requests:
/// they would pass by every rule of this server.
fn asks_upgrade(request: &Request<'_>, head: &[u8]) -> bool {
    let has_body = !matches!(request.body, Body::None | Body::Length(0));
    if request.version == Version::Http10 || has_body {
        return false;
    }
    let (mut has_upgrade, mut is_named, mut is_http) = (false, false, false);
    let begins = |text: &[u8], start: &[u8]| {
        text.get(..start.len()).is_some_and(|text| text.eq_ignore_ascii_case(start))
    };
    each_field(head, |name, value| {
        let mut options = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        if name.eq_ignore_ascii_case(b"upgrade") {
            has_upgrade = true;
            is_http |= options.any(|protocol| begins(protocol, b"h2") || begins(protocol, b"http"));
        } else if name.eq_ignore_ascii_case(b"connection") {
            is_named |= options.any(|option| option.eq_ignore_ascii_case(b"upgrade"));
        }
    });
    has_upgrade && is_named && !is_http
}
