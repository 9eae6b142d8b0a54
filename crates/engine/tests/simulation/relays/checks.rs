//! The bounds and the leaks of a world with routes, after each turn and whenever its loop has nothing to do.

use std::collections::BTreeMap;

use flash_engine::limits::{LINK_PAUSE_MS, SERVER_DOWN_MS, SPOOL_KEPT_SLOTS, SPOOL_PIECE_BYTES_MAX};
use flash_engine::{ServerId, UpstreamId};

use super::Relays;
use super::application::Application;
use super::lanes::Lane;
use super::ledger::require;
use super::visitor::Visitor;

impl Relays {
    /// The connections of each server, in the making or not.
    pub(super) fn links(&self) -> BTreeMap<(u16, u16), usize> {
        let mut links = BTreeMap::new();
        let made = self.applications.iter().filter(|application| !application.end.is_closed());
        let servers = made.map(|application| application.server);
        let asked = self.world.machine.asked.iter().map(|(_, server)| *server);
        for server in servers.chain(asked.filter(|server| !self.plan.is_gatekeeper(*server))) {
            *links.entry(place_of(server)).or_default() += 1;
        }
        links
    }

    pub(super) fn check_bounds(&mut self) {
        let counters = self.world.engine.counters();
        require(counters.panics == 0, "no panic", || self.world.machine.reports.join("; "));
        for ((upstream, server), links) in self.links() {
            let most = self.judge.upstreams[usize::from(upstream)].connections_max;
            require(links <= most, "bounds", || {
                format!("server {server} of upstream {upstream} has {links} connections, of {most}")
            });
        }
        let most: usize = self.judge.upstreams.iter().map(|rules| rules.queue_max).sum();
        let waiting = counters.links.waiting;
        require(waiting <= most, "bounds", || format!("{waiting} requests wait, of {most}"));
    }

    /// The clients that share an address have one share together.
    fn check_shares(&self) {
        let crowd = self.visitors.iter().filter(|visitor| visitor.is_of_crowd);
        let asks: Vec<usize> = crowd.flat_map(Visitor::begun).map(|pending| pending.ask).collect();
        for (upstream, rules) in self.judge.upstreams.iter().enumerate() {
            let is_theirs = |application: &&Application| {
                let ask = application.under_way(&self.ledger).filter(|ask| asks.contains(ask));
                usize::from(application.server.upstream.0) == upstream && ask.is_some()
            };
            let held = self.applications.iter().filter(is_theirs).count();
            let all = rules.connections_max * rules.servers.len();
            require(held <= all.div_ceil(2), "shares", || {
                format!("one client has {held} of {all} connections of upstream {upstream}")
            });
        }
    }

    /// Checks what holds while the loop has nothing to do.
    pub(super) fn check_at_rest(&mut self) {
        for visitor in &self.visitors {
            self.judge.check_patience(&self.ledger, visitor);
            self.judge.check_pace(&self.ledger, visitor);
        }
        let lacked: Vec<usize> = self.applications.iter().filter_map(Application::lacks).collect();
        for visitor in self.visitors.iter().filter(|visitor| visitor.has_sent_all() && !visitor.ended) {
            let sent = visitor.waits().map(|pending| pending.ask);
            let lacked = sent.filter(|ask| lacked.contains(ask) && self.ledger.asks[*ask].refusal.is_none());
            // A helper may still have to read it, by a job that has begun since the helpers were looked after.
            let lacked = lacked.filter(|_| self.world.machine.helpers.running.is_empty());
            require(lacked.is_none(), "bodies", || {
                format!("an application lacks a part of request {lacked:?}, all of which was sent")
            });
        }
        let counters = self.world.engine.counters();
        let asked = self.world.machine.asked.iter().filter(|(_, server)| self.plan.is_gatekeeper(*server));
        let links: usize = self.links().values().sum();
        let links = links + self.gatekeepers.len() + asked.count();
        require(counters.links.links == links, "leaks", || {
            format!("the engine has {} connections to servers, the servers {links}", counters.links.links)
        });
        let of_connection = |visitor: &&Visitor| visitor.lane.as_ref().is_none_or(Lane::is_first);
        let clients = self.visitors.iter().filter(of_connection).map(|visitor| &visitor.client);
        let clients = clients.chain([&self.hot]);
        let clients = clients.filter(|client| !client.is_closed()).count();
        let sockets = self.world.machine.sockets_open.get();
        let servers = self.applications.len() + self.gatekeepers.len();
        require(sockets == clients + servers, "leaks", || {
            format!("{sockets} sockets for {clients} clients and {servers} servers")
        });
        let waiting = counters.links.waiting;
        let asking = self.visitors.iter().filter(|visitor| visitor.begun().next().is_some()).count();
        require(waiting <= asking, "waiting", || format!("{waiting} requests of {asking} clients wait"));
        let (failures, failed_ms) = self.failures;
        let is_calm = failures == 0 || self.judge.now_ms > failed_ms + SERVER_DOWN_MS;
        self.check_idle(waiting > 0 && is_calm);
        self.check_shares();
    }

    /// Checks that the room of bodies goes back to the file system.
    pub(super) fn check_room(&mut self) {
        let Some(file) = self.world.spool.clone() else { return };
        for _ in 0..16 {
            // A helper can take 200 ms.
            self.world.advance(self.plan.spool_idle_ms + 200);
            self.rest();
        }
        let kept_bytes = if self.plan.has_holes {
            0
        } else {
            SPOOL_KEPT_SLOTS.min(self.plan.spool_slots.div_ceil(2)) as usize * SPOOL_PIECE_BYTES_MAX
        };
        let content = file.borrow().content.whole();
        let last = content.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        require(last <= kept_bytes, "room", || format!("{last} bytes of the file, of {kept_bytes}"));
    }

    /// Checks the number of idle connections, and that no request waits while a server has room.
    fn check_idle(&mut self, waits: bool) {
        let mut idle: BTreeMap<(u16, u16), usize> = BTreeMap::new();
        let unanswered: Vec<usize> =
            self.visitors.iter().filter_map(Visitor::waits).map(|pending| pending.ask).collect();
        for application in &mut self.applications {
            // The client has not necessarily read everything yet. An answer that is gathered keeps no application.
            let may_hold = |ask: &&usize| unanswered.contains(ask) && self.ledger.may_hold(**ask);
            let holds = application.answered.last().as_ref().is_some_and(may_hold);
            let is_idle = application.is_idle() && !holds && application.end.received_len() == 0;
            if is_idle {
                *idle.entry(place_of(application.server)).or_default() += 1;
            }
            let now_ms = self.judge.now_ms;
            let since_ms = application.idle_since_ms.filter(|_| is_idle).unwrap_or(now_ms);
            application.idle_since_ms = is_idle.then_some(since_ms);
            let rules = &self.judge.upstreams[usize::from(application.server.upstream.0)];
            require(rules.idle_max > 0 || now_ms <= since_ms + LINK_PAUSE_MS, "idle", || {
                format!("a process is kept from others for {} ms", now_ms - since_ms)
            });
            require(!application.is_over || !application.is_idle() || holds, "idle", || {
                "a connection stays although its application has closed it".into()
            });
        }
        for ((upstream, server), idle) in &idle {
            // Without kept ones each waits a moment for the next request.
            let rules = &self.judge.upstreams[usize::from(*upstream)];
            let most = if rules.idle_max > 0 { rules.idle_max } else { rules.connections_max };
            require(*idle <= most, "bounds", || {
                format!("server {server} of upstream {upstream} has {idle} idle connections, of {most}")
            });
        }
        // A crowd waits while others have room, and so does a client for whose earlier request a connection is in the making.
        let waits = waits && self.world.machine.asked.is_empty();
        if let ([rules], true, 0) = (&self.judge.upstreams[..], waits, self.plan.crowd) {
            let links = self.links();
            let is_down = |server: u16| self.down.contains(&ServerId { upstream: UpstreamId(0), server });
            let servers = 0..rules.servers.len() as u16;
            let all_down = servers.clone().all(is_down);
            let has_room = servers.filter(|server| all_down || !is_down(*server)).find(|server| {
                let at = |map: &BTreeMap<_, usize>| map.get(&(0, *server)).copied().unwrap_or(0);
                at(&links) - at(&idle) < rules.connections_max
            });
            require(has_room.is_none(), "waiting", || {
                format!("requests wait although server {has_room:?} has room: {links:?}, idle {idle:?}")
            });
        }
    }
}

fn place_of(server: ServerId) -> (u16, u16) {
    let UpstreamId(upstream) = server.upstream;
    (upstream, server.server)
}
