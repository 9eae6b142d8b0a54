//! Opens the relay of a request: its bytes for the server, in the protocol of its upstream. Called by the wires.

use std::net::SocketAddr;

use flash_http::RequestBuf;
use flash_http::answer::AnswerTo;
use flash_http::forward::{Forwarding, Inbound, Script, each_cgi_variable, write_proxy_head};
use flash_http::request::{Body, Method};

use super::pace::BodyPace;
use super::{Awaits, BodyWay, Relay, ScriptSearch};
use crate::desk::{Core, Desk};
use crate::exchange::{Exchange, Opener, Record, State, Turn};
use crate::fastcgi::client::{write_begin, write_params};
use crate::handler::{LENGTH_REQUIRED, Refusal, Routed, refusal_of_path};
use crate::limits::RECEIVE_BYTES;
use crate::machine::Machine;
use crate::rules::UpstreamProtocol;
use crate::slab::{ExchangeKey, HeldKey};
use crate::upstream::{FailedServers, LinkPlace, Talk, Upload};

/// Room for the opening of most requests: CGI has long names.
const OPENING_BYTES: usize = 2048;

/// A request that an upstream answers, and its connection.
pub(crate) struct RelayOpening<'a> {
    pub(crate) inbound: Inbound<'a>,
    pub(crate) routed: Routed,
    pub(crate) opener: Opener,
    pub(crate) peer: SocketAddr,
}

impl RelayOpening<'_> {
    /// Whether the request must not be forwarded any further (RFC 9110, section 7.6.2). An application of FastCGI is a part
    /// of this server.
    pub(crate) fn ends_here<F>(&self, core: &Core<F>) -> bool {
        self.protocol(core) == UpstreamProtocol::Http && self.inbound.max_forwards() == Some(0)
    }

    fn protocol<F>(&self, core: &Core<F>) -> UpstreamProtocol {
        core.rules.upstreams[usize::from(self.routed.rules(core).upstream.0)].protocol
    }

    /// Whether the spool takes the body before a server gets it.
    ///
    /// # Errors
    /// The upstream needs to know the length, and nothing can find it out.
    fn is_gathered<F>(&self, core: &Core<F>) -> Result<bool, Refusal> {
        let body = self.inbound.request.body;
        let fits_memory = match body {
            Body::None | Body::Length(0) => return Ok(false),
            Body::Length(bytes) => bytes <= RECEIVE_BYTES as u64,
            Body::Chunked => false,
        };
        let streams = self.routed.rules(core).streams_bodies;
        let is_gathered = !streams && (fits_memory || core.spool.has_file());
        // CGI has no way to say that the length is unknown (RFC 3875, section 4.1.2).
        let needs_length = self.protocol(core) == UpstreamProtocol::FastCgi && body == Body::Chunked;
        if needs_length && !is_gathered { Err(LENGTH_REQUIRED) } else { Ok(is_gathered) }
    }
}

/// Opens the relay of a request. `local` finds the address that the client has reached.
///
/// # Errors
/// The body is too long, or a server could read the path differently.
pub(crate) fn open<M: Machine>(
    turn: &mut Turn<'_, M>,
    opening: &RelayOpening<'_>,
    local: impl FnOnce(&mut M) -> Option<SocketAddr>,
) -> Result<ExchangeKey, Refusal> {
    let RelayOpening { inbound, routed, opener, .. } = opening;
    let core = &*turn.desk.core;
    let gathers = opening.is_gathered(core)?;
    if let Some(refusal) = refusal_of_path(core, inbound.request.path, routed) {
        return Err(refusal);
    }
    let (request, rules, protocol) = (inbound.request, routed.rules(core), opening.protocol(core));
    let upload = Upload::new(request.body, rules.body_bytes_max)?;
    let upgrades = protocol == UpstreamProtocol::Http && inbound.asks_upgrade();
    let asking = AnswerTo { is_head: request.method == Method::Head, upgrades };
    let (site, upstream, streams_answers) = (routed.site, rules.upstream, rules.streams_answers);
    let script =
        routed.script_to_find(core).map_or(ScriptSearch::Over, |path| ScriptSearch::Wanted(path.into()));
    let record = Record::new(core, request);
    let mut talk = Talk::new(protocol, asking, upload, write_opening(&mut turn.desk, opening, local));
    // The length of a gathered body is known at its end.
    if !gathers || request.body != Body::Chunked {
        talk.announce(request.body);
    }
    let now_ms = turn.desk.core.clock.ms();
    let pace = BodyPace::new(turn.desk.core.rules.bodies);
    let key = turn.exchanges.insert_with(|key| {
        let relay = Relay {
            key,
            opener: *opener,
            request: RequestBuf::new(request),
            site,
            upstream,
            streams_answers,
            talk,
            script,
            body: if gathers { BodyWay::Gathered } else { BodyWay::Streamed },
            refused: None,
            place: LinkPlace::None,
            failed: FailedServers::default(),
            tries: 0,
            needs_new: false,
            reply: None,
            is_invited: false,
            pace,
            is_heard: true,
            awaits: Awaits::Link,
            since_ms: now_ms,
            hears_since_ms: None,
            due_ms: u64::MAX,
        };
        Exchange { opener: *opener, record, state: State::Relaying(Box::new(relay)) }
    });
    if gathers {
        turn.desk.core.spool.begin(HeldKey::Request(key), opener.sharer());
    }
    Ok(key)
}

/// The bytes for the server with which a request begins, up to the framing of its body.
fn write_opening<M: Machine>(
    desk: &mut Desk<'_, M>,
    opening: &RelayOpening<'_>,
    local: impl FnOnce(&mut M) -> Option<SocketAddr>,
) -> Vec<u8> {
    let RelayOpening { inbound, routed, peer, .. } = opening;
    let core = &mut *desk.core;
    core.relayed += 1;
    let protocol = opening.protocol(core);
    let request_id = format!("{:x}-{:x}-{:x}", core.clock.now.wall_ns, peer.port(), core.relayed);
    let forwarding = Forwarding {
        peer: *peer,
        // Only CGI has variables for it.
        server: (protocol == UpstreamProtocol::FastCgi).then(|| local(desk.machine)).flatten(),
        request_id: &request_id,
        upgrade: protocol == UpstreamProtocol::Http && inbound.asks_upgrade(),
    };
    let mut out = Vec::with_capacity(OPENING_BYTES);
    match protocol {
        UpstreamProtocol::Http => write_proxy_head(&mut out, inbound, &forwarding),
        UpstreamProtocol::FastCgi => {
            let root = core.rules.sites[usize::from(routed.site.0)].root.as_os_str();
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
