//! Opens the relay of a request: its bytes for the server, in the protocol of its upstream. Called by the wires.

use std::net::SocketAddr;

use flash_http::RequestBuf;
use flash_http::forward::{Forwarding, Script, each_cgi_variable, write_proxy_head};
use flash_http::request::{Body, Method};
use flash_http::upstream_response::ResponseTo;

use super::upload_rate::UploadRate;
use super::{Awaits, BodyWay, Relay, ScriptSearch};
use crate::desk::Desk;
use crate::exchange::{Exchange, Opener, Record, State, Turn};
use crate::fastcgi::client::{write_begin, write_params};
use crate::handler::Routed;
use crate::machine::Machine;
use crate::rules::UpstreamProtocol;
use crate::slab::{ExchangeKey, HeldKey};
use crate::upstream::{FailedServers, LinkPlace, Talk, Upload};

/// Room for the opening of most requests: CGI has long names.
const OPENING_BYTES: usize = 2048;

/// Opens the relay of a request. `peer` is the address of its client, and `local` finds the address that it has reached.
pub(crate) fn open<M: Machine>(
    turn: &mut Turn<'_, M>,
    routed: &Routed<'_>,
    opener: Opener,
    peer: SocketAddr,
    local: impl FnOnce(&mut M) -> Option<SocketAddr>,
) -> ExchangeKey {
    let core = &*turn.desk.core;
    let (request, rules, protocol) = (routed.inbound.request, routed.rules(core), routed.protocol(core));
    let upload = Upload::new(request.body, rules.body_bytes_max);
    let upgrades = protocol == UpstreamProtocol::Http && routed.inbound.asks_upgrade();
    let asking = ResponseTo { is_head: request.method == Method::Head, upgrades };
    let (site, upstream, streams_answers) = (routed.site, rules.upstream, rules.streams_answers);
    let script =
        routed.script_to_find(core).map_or(ScriptSearch::Over, |path| ScriptSearch::Wanted(path.into()));
    let record = Record::new(core, request);
    let mut talk = Talk::new(protocol, asking, upload, write_opening(&mut turn.desk, routed, peer, local));
    // The length of a gathered body is known at its end.
    if !routed.gathers || request.body != Body::Chunked {
        talk.announce(request.body);
    }
    let now_ms = turn.desk.core.clock.ms();
    let upload_rate = UploadRate::new(turn.desk.core.rules.bodies);
    let key = turn.exchanges.reserve();
    let relay = Relay {
        key,
        opener,
        request: RequestBuf::new(request),
        site,
        upstream,
        streams_answers,
        talk,
        checks: routed.checks.clone(),
        verifying: None,
        script,
        body: if routed.gathers { BodyWay::Gathered } else { BodyWay::Streamed },
        refused: None,
        place: LinkPlace::None,
        failed: FailedServers::default(),
        tries: 0,
        needs_new: false,
        reply: None,
        is_invited: false,
        upload_rate,
        accepts_request: true,
        awaits: Awaits::Link,
        since_ms: now_ms,
        receives_since_ms: None,
        due_ms: u64::MAX,
    };
    turn.exchanges.put_back(key, Exchange { opener, record, state: State::Relaying(Box::new(relay)) });
    if routed.gathers {
        turn.desk.core.spool.begin(HeldKey::Request(key), opener.sharer());
    }
    key
}

/// The bytes for the server with which a request begins, up to the framing of its body.
fn write_opening<M: Machine>(
    desk: &mut Desk<'_, M>,
    routed: &Routed<'_>,
    peer: SocketAddr,
    local: impl FnOnce(&mut M) -> Option<SocketAddr>,
) -> Vec<u8> {
    let (inbound, core) = (&routed.inbound, &mut *desk.core);
    core.relayed += 1;
    let protocol = routed.protocol(core);
    let request_id = format!("{:x}-{:x}-{:x}", core.clock.now.wall_ns, peer.port(), core.relayed);
    let new_path = routed.new_path();
    let forwarding = Forwarding {
        peer,
        path: new_path.as_deref().map(str::as_bytes),
        // Only CGI has variables for it.
        server: (protocol == UpstreamProtocol::FastCgi).then(|| local(desk.machine)).flatten(),
        request_id: &request_id,
        upgrade: protocol == UpstreamProtocol::Http && inbound.asks_upgrade(),
    };
    let mut out = Vec::with_capacity(OPENING_BYTES);
    match protocol {
        UpstreamProtocol::Http => write_proxy_head(&mut out, inbound, &forwarding),
        UpstreamProtocol::FastCgi => {
            let root = core.rules.site(routed.site).root.as_os_str();
            let script = Script {
                document_root: root.as_encoded_bytes(),
                script_name: routed.script(),
                path_info: routed.path_info(),
            };
            write_begin(&mut out);
            write_params(&mut out, |param| each_cgi_variable(inbound, &forwarding, &script, param));
        }
    }
    out
}
