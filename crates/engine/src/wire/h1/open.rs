//! Opens the relay of a request: its bytes for the server, in the protocol of its upstream. Called by
//! [`relay`](super::relay), and by [`upload`](super::upload) if they depend on the length of the body.

use flash_http::RequestBuf;
use flash_http::answer::AnswerTo;
use flash_http::forward::{Forwarding, Script, each_cgi_variable, each_field, write_proxy_head};
use flash_http::request::{Body, Method, Request, Version};

use crate::desk::{Core, Desk};
use crate::exchange::{Relay, ScriptSearch};
use crate::fastcgi::client::{write_begin, write_stdin_end};
use crate::handler::{LENGTH_REQUIRED, Refusal, Routed, refusal_of_path};
use crate::limits::RECEIVE_BYTES;
use crate::machine::Machine;
use crate::rules::UpstreamProtocol;
use crate::upstream::{Framing, Talk, Upload};
use crate::wire::conn::Conn;

/// The length of most openings beyond that of the client's head: CGI has long names.
const OPENING_BYTES: usize = 1024;

/// Opens the relay of a request, whose bytes are `head`.
///
/// # Errors
/// The body is too long, or a server could read the path differently.
pub(super) fn open<M: Machine>(
    desk: &mut Desk<'_, M>,
    conn: &Conn<M::Socket>,
    (request, head): (&Request<'_>, &[u8]),
    (routed, is_gathered): (&Routed, bool),
) -> Result<Relay, Refusal> {
    if let Some(refusal) = refusal_of_path(desk.core, request.path, routed) {
        return Err(refusal);
    }
    let (upstream, bytes_max, streams_answers) = {
        let rules = routed.rules(desk.core);
        (rules.upstream, rules.body_bytes_max, rules.streams_answers)
    };
    let protocol = desk.core.rules.upstreams[usize::from(upstream.0)].protocol;
    let upload = Upload::new(request.body, bytes_max)?;
    let upgrades = protocol == UpstreamProtocol::Http && asks_upgrade(request, head);
    let asking = AnswerTo { is_head: request.method == Method::Head, upgrades };
    let mut talk = Talk::new(protocol, asking, upload);
    // The length of a gathered body is known at its end.
    if !is_gathered || request.body != Body::Chunked {
        write_opening(desk, conn, (request, head), routed, (&mut talk, request.body));
    }
    let place = (routed.site, upstream, streams_answers);
    let mut relay =
        Relay::new(RequestBuf::new(request), place, talk, (desk.core.rules.bodies, desk.core.clock.ms()));
    if let Some(script) = routed.script_to_find(desk.core) {
        relay.script = ScriptSearch::Wanted(script.into());
    }
    Ok(relay)
}

/// Whether the spool takes the body of a request before a server gets it.
///
/// # Errors
/// The upstream needs to know the length, and nothing can find it out.
pub(super) fn is_gathered<F>(
    core: &Core<F>,
    request: &Request<'_>,
    routed: &Routed,
) -> Result<bool, Refusal> {
    let rules = routed.rules(core);
    let protocol = core.rules.upstreams[usize::from(rules.upstream.0)].protocol;
    let fits_memory = match request.body {
        Body::None | Body::Length(0) => return Ok(false),
        Body::Length(bytes) => bytes <= RECEIVE_BYTES as u64,
        Body::Chunked => false,
    };
    let is_gathered = !rules.streams_bodies && (fits_memory || core.spool.has_file());
    // CGI has no way to say that the length is unknown (RFC 3875, section 4.1.2).
    if !is_gathered && request.body == Body::Chunked && protocol == UpstreamProtocol::FastCgi {
        return Err(LENGTH_REQUIRED);
    }
    Ok(is_gathered)
}

/// Writes the bytes for the server with which a request begins. `body` is the framing that it announces.
pub(super) fn write_opening<M: Machine>(
    desk: &mut Desk<'_, M>,
    conn: &Conn<M::Socket>,
    (request, head): (&Request<'_>, &[u8]),
    routed: &Routed,
    (talk, body): (&mut Talk, Body),
) {
    let (core, peer) = (&mut *desk.core, conn.peer);
    core.relayed += 1;
    let is_cgi = talk.protocol() == UpstreamProtocol::FastCgi;
    let request_id = format!("{:x}-{:x}-{:x}", core.clock.now.wall_ns, peer.port(), core.relayed);
    let forwarding = Forwarding {
        peer,
        scheme: "http",
        // Only CGI has variables for it.
        server: is_cgi
            .then(|| *conn.local.get_or_init(|| desk.machine.local_address(conn.transport.socket())))
            .flatten(),
        request_id: &request_id,
        body,
        upgrade: talk.asks_upgrade(),
    };
    let mut opening = Vec::with_capacity(head.len() + OPENING_BYTES);
    let framing = match talk.protocol() {
        UpstreamProtocol::Http => {
            write_proxy_head(&mut opening, request, head, &forwarding);
            if body == Body::Chunked { Framing::Chunks } else { Framing::Plain }
        }
        UpstreamProtocol::FastCgi => {
            let root = core.rules.sites[usize::from(routed.site.0)].root.as_os_str();
            let script = Script {
                document_root: root.as_encoded_bytes(),
                script_name: routed.script(),
                path_info: routed.path_info(),
            };
            write_begin(&mut opening, |param| each_cgi_variable(request, head, &forwarding, &script, param));
            if matches!(body, Body::None | Body::Length(0)) {
                write_stdin_end(&mut opening);
            }
            Framing::Records
        }
    };
    talk.open(opening, framing);
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
