//! The clients of a run: ordinary ones, to which anything can happen, and ones that request only files in
//! memory and must be answered at once.

use std::net::SocketAddr;

use flash_engine::limits::{
    EVICTION_LOOKS_MAX, FILE_IDLE_MS, FILE_SWEEP_MS, LOAD_BYTES, NEWCOMER_GRACE_MS, OPEN_FILES_MAX,
    SHORT_WAIT_MS,
};

use crate::ask::Ask;
use crate::client::{FRAME_BYTES_MAX, Peer, STREAMS_MAX};
use crate::disk::{Lead, Target};
use crate::h2::H2Peer;
use crate::machine::client::pair;
use crate::machine::records::{Seal, ToyRecords};
use crate::machine::{Client, START_WALL_NS};
use crate::properties::Limits;
use crate::run::{Event, Run};

impl Run {
    pub(crate) fn come(&mut self) {
        if self.drained || self.over {
            return;
        }
        let speaks_streams = self.plan.streams && self.rng.chance(50);
        let Some(number) = self.connect_as(false, speaks_streams, None) else {
            return self.after(50, Event::Come);
        };
        let is_encrypted = self.peers[number].client.wire().encrypted().is_some();
        if !speaks_streams && !is_encrypted && !self.hot_targets.is_empty() && self.rng.chance(5) {
            return self.burst(number);
        }
        let rng = &mut self.rng;
        let peer = &mut self.peers[number];
        peer.more = rng.between(1, 8);
        peer.serial = rng.chance(50);
        (peer.piece_bytes, peer.gap_ms) = match rng.below(10) {
            0 => (1, rng.between(0, 5)),
            1 | 2 => (rng.between(5, 100), rng.between(0, 60)),
            _ => (u64::MAX, 0),
        };
        if rng.chance(30) {
            let room = rng.pick(&[0, 1, 500, 20_000, 150_000]);
            peer.room = Some(room);
            peer.slow = true;
            peer.client.set_room(room as usize);
            peer.client.wire().room_event_bytes = rng.pick(&[1, 1, 4_000]);
            self.after(1, Event::Read(number));
        }
        let (leaves, in_ms) = (self.rng.chance(20), self.rng.below(self.plan.chaos_ms));
        if leaves {
            self.after(in_ms, Event::Leave(number));
        }
        let count = if self.peers[number].serial { 1 } else { self.rng.between(1, self.peers[number].more) };
        for _ in 0..count {
            let ask = self.ask_for(speaks_streams);
            self.peers[number].push(ask);
        }
        self.peers[number].more -= count;
        let in_ms = self.rng.pick(&[0, 0, 20, 400]);
        self.after(in_ms, Event::Send(number));
    }

    /// Sends the same request again and again, faster than it is answered.
    fn burst(&mut self, number: usize) {
        let target = self.rng.pick(&self.hot_targets);
        for _ in 0..BURST {
            let ask = Ask::head(&self.disk, target);
            self.peers[number].push(ask);
        }
        self.peers[number].bursts = true;
        self.after(0, Event::Send(number));
    }

    /// Many clients from one address send an unfinished head.
    pub(crate) fn hoard(&mut self) {
        if self.drained || self.over {
            return;
        }
        for _ in 0..self.plan.hoard {
            let Some(peer) = self.connect_as(false, false, Some(HOARDER)) else { return };
            self.peers[peer].crowd = true;
            self.peers[peer].push(Ask::hoarding());
            self.send(peer);
        }
    }

    /// A client requests a file and nothing else.
    pub(crate) fn ask_for_file(&mut self, target: usize) {
        if self.drained || self.over {
            return;
        }
        let ask = Ask::simple(&self.disk, target);
        let Some(number) = self.connect(false) else { return };
        self.peers[number].push(ask);
        self.send(number);
    }

    /// Each client of the crowd requests another name, none of which is in memory. One more client requests a
    /// name of another site.
    pub(crate) fn crowd(&mut self) {
        if self.drained || self.over {
            return;
        }
        for number in 0..self.plan.crowd {
            let ask = self.ask_for_nothing(0, format!("/crowd{number}"));
            let from = self.plan.crowd_is_one.then_some(HOARDER);
            let Some(peer) = self.connect_as(false, false, from) else { break };
            self.peers[peer].crowd = true;
            self.peers[peer].push(ask);
            self.send(peer);
        }
        let Some(guest) = self.connect(false) else { return };
        let ask = self.ask_for_nothing(GUEST_SITE, GUEST_PATH.to_owned());
        self.peers[guest].push(ask);
        self.send(guest);
        self.guest = Some(guest);
    }

    /// A request for an unknown name.
    pub(crate) fn ask_for_nothing(&mut self, site: u16, path: String) -> Ask {
        let target = self.disk.targets.len();
        let content_type = "application/octet-stream";
        self.disk.targets.push(Target { site, path, lead: Lead::Missing, content_type, excuse_ms: 0 });
        Ask::simple(&self.disk, target)
    }

    pub(crate) fn connect(&mut self, hot: bool) -> Option<usize> {
        self.connect_as(hot, false, None)
    }

    /// A new client, with this address if given.
    fn connect_as(&mut self, hot: bool, streams: bool, from: Option<[u8; 4]>) -> Option<usize> {
        let number = self.peers.len();
        let (socket, wire) = pair(number as u64, self.machine.sockets_open.up());
        self.engine.handle_turn(self.machine.now);
        let open = self.engine.counters().connections;
        let evicted = self.engine.counters().evicted;
        let address = from.map_or_else(|| address(number), |ip| SocketAddr::from((ip, 9)));
        let (engine, machine) = (&mut self.engine, &mut self.machine);
        let encrypted = self.sealing.chance(self.plan.encrypted) && !streams;
        let taken = if encrypted {
            engine.handle_accept_encrypted(machine, socket, address, Box::<ToyRecords>::default())
        } else {
            engine.handle_accept(machine, socket, address)
        };
        let taken = taken.ok();
        let evicted = self.engine.counters().evicted - evicted;
        let is_full = open >= self.limits.connections_max;
        self.require(taken.is_some() == (!is_full || evicted == 1), "connections", || {
            format!(
                "{open} connections were open, another was accepted: {}, {evicted} evicted",
                taken.is_some()
            )
        });
        self.require(evicted == 0 || is_full, "eviction", || {
            format!("{evicted} evicted although there was room")
        });
        if is_full {
            self.note_evicted(evicted as usize);
        }
        if encrypted {
            wire.borrow_mut().seal();
        }
        let client = Client::new(taken?, wire);
        let mut peer = Peer::new((client, address.ip()), hot, self.now_ms());
        if streams {
            let (h2, first) = H2Peer::new(number as u64);
            peer.slow |= h2.is_slow();
            peer.unsent.extend(first);
            peer.h2 = Some(Box::new(h2));
        }
        self.peers.push(peer);
        Some(number)
    }

    /// Checks that the connection closed to make room was idle, and that one was closed if one was idle
    /// and not hidden by many others.
    fn note_evicted(&mut self, evicted: usize) {
        let (mut closed, mut idle, mut others) = (0, 0, 0);
        for number in 0..self.peers.len() {
            let peer = &self.peers[number];
            if peer.closed || peer.evicted {
                continue;
            }
            let is_new = peer.answers == 0 && self.now_ms() < peer.came_ms + NEWCOMER_GRACE_MS;
            // Perhaps that its connection closes, of which it has read a part.
            let is_told = peer.client.wire().is_sent_more();
            let has_asked = peer.asks.iter().any(|ask| ask.first_ms != u64::MAX);
            if peer.client.is_closed() {
                closed += 1;
                // Perhaps this turn received only a part of the record of an encrypted request.
                let in_pieces = u64::from(peer.client.wire().encrypted().is_some());
                let unheard = |turn| turn + in_pieces > self.turn;
                let unheard = peer.asks.iter().all(|ask| ask.whole_turn.is_none_or(unheard));
                self.require(peer.reset || (unheard && !peer.has_part()), "eviction", || {
                    format!("client {number} was not idle")
                });
                self.peers[number].evicted = true;
            } else if !is_new && !has_asked && !peer.ended && !peer.last_heard && !peer.reset && !is_told {
                idle += 1;
            } else {
                others += 1;
            }
        }
        self.require(closed == evicted, "eviction", || format!("{closed} closed, {evicted} counted"));
        // A search is bounded, and the next one goes on from there.
        self.require(closed == 1 || idle == 0 || others >= EVICTION_LOOKS_MAX, "eviction", || {
            format!("no connection was evicted although {idle} were idle")
        });
    }

    /// A random request of an ordinary client.
    fn ask_for(&mut self, on_a_stream: bool) -> Ask {
        let mut ask = self.any_ask();
        if on_a_stream {
            while ask.target.is_none() {
                ask = self.any_ask();
            }
            ask = ask.on_a_stream(&mut self.rng, &self.disk);
        }
        self.note_ranges(&ask);
        ask
    }

    /// Records that a part of a file can be read from any offset on.
    fn note_ranges(&mut self, ask: &Ask) {
        let first = ask.ranges.iter().map(|(first, _)| first.unwrap_or(u64::MAX)).max();
        if let (Some(target), Some(first)) = (ask.target, first) {
            self.note_reached(target, first);
        }
    }

    fn any_ask(&mut self) -> Ask {
        if self.rng.chance(4) {
            return Ask::malformed(&mut self.rng);
        }
        if self.frozen && !self.hot_targets.is_empty() && self.rng.chance(50) {
            // If one variant is in memory, another need not be.
            let target = self.rng.pick(&self.hot_targets);
            return Ask::coded(&mut self.rng, &self.disk, target);
        }
        let target = match self.hot_targets.len() {
            hot if hot > 0 && self.rng.chance(35) => self.hot_targets[self.rng.place(hot)],
            _ => self.rng.place(self.targets),
        };
        Ask::random(&mut self.rng, &self.disk, target, !self.plan.default_site)
    }

    pub(crate) fn send(&mut self, number: usize) {
        let (now_ms, turn, over) = (self.now_ms(), self.turn + 1, self.over);
        let peer = &mut self.peers[number];
        if peer.closed || peer.ended || peer.reset || peer.unsent.is_empty() {
            return;
        }
        if peer.bursts {
            return peer.send_burst(now_ms, turn);
        }
        peer.send(now_ms, turn);
        if !peer.unsent.is_empty() {
            let gap_ms = if over { 0 } else { peer.gap_ms };
            self.after(gap_ms, Event::Send(number));
        } else if peer.more == 0 && self.rng.chance(15) && peer.h2.is_none() {
            // The client has no more requests, but still reads.
            peer.client.end();
            peer.ended = true;
        }
    }

    /// A client of HTTP/2 answers frames of the server, behind what it is sending.
    pub(crate) fn reply(&mut self, number: usize, peer: &mut Peer) {
        let Some(h2) = &mut peer.h2 else { return };
        let replies = std::mem::take(&mut h2.codec.replies);
        if !replies.is_empty() && !peer.ended && !peer.reset && !peer.client.is_closed() {
            let waits = !peer.unsent.is_empty();
            peer.unsent.extend(replies);
            if !waits {
                self.after(0, Event::Send(number));
            }
        }
        if peer.last_heard && !peer.ended && !peer.reset {
            peer.client.end();
            peer.ended = true;
        }
    }

    pub(crate) fn make_room(&mut self, number: usize) {
        let peer = &mut self.peers[number];
        let (Some(room), false) = (peer.room, peer.closed) else { return };
        peer.client.add_room(room as usize);
        let in_ms = self.rng.pick(&[1, 10, 200]);
        if room > 0 {
            self.after(in_ms, Event::Read(number));
        }
    }

    pub(crate) fn leave(&mut self, number: usize) {
        let peer = &mut self.peers[number];
        if peer.closed {
            return;
        }
        if self.rng.chance(50) {
            peer.client.reset();
            peer.reset = true;
        } else {
            // The client may still read.
            peer.client.end();
            peer.ended = true;
        }
    }

    /// A client that was answered sends another request, or leaves.
    pub(crate) fn go_on(&mut self, number: usize, peer: &mut Peer) {
        if peer.last_heard || peer.ended || peer.reset || !peer.unsent.is_empty() {
            return;
        }
        if peer.more > 0 && (peer.asks.is_empty() || !peer.serial) {
            let count = if peer.serial { 1 } else { self.rng.between(1, peer.more) };
            for _ in 0..count {
                peer.push(self.ask_for(peer.h2.is_some()));
            }
            peer.more -= count;
            let think_ms = if self.over { 0 } else { self.rng.pick(&[0, 0, 1, 30, 700]) };
            self.after(think_ms, Event::Send(number));
        } else if peer.is_idle() && self.over {
            // Other clients stay until the server closes the connection.
            match self.rng.below(3) {
                0 => peer.client.end(),
                1 => peer.client.reset(),
                _ => {}
            }
            peer.ended = true;
        }
    }

    /// A client that requests only files in memory sends a request if it has been answered.
    pub(crate) fn ask_hot(&mut self, slot: usize) {
        if self.over {
            return;
        }
        let gap_ms = self.rng.pick(&[1, 3, 17, 90, 400]).max(self.plan.chaos_ms / 40);
        self.after(gap_ms, Event::Hot(slot));
        let open = self.hot[slot].filter(|peer| {
            let peer = &self.peers[*peer];
            !peer.closed && !peer.last_heard && !peer.evicted
        });
        if open.is_none() && self.drained {
            return;
        }
        let Some(number) = open.or_else(|| self.connect(true)) else { return };
        self.hot[slot] = Some(number);
        if !self.peers[number].asks.is_empty() {
            return;
        }
        let warm = self.rng.chance(80) && !self.hot_targets.is_empty();
        let target = if warm { self.rng.pick(&self.hot_targets) } else { self.rng.place(self.targets) };
        let mut ask = Ask::simple(&self.disk, target);
        if !self.frozen && self.rng.chance(40) {
            ask = Ask::random(&mut self.rng, &self.disk, target, false);
        }
        self.note_ranges(&ask);
        let peer = &mut self.peers[number];
        peer.push(ask);
        peer.send(self.machine.now.monotonic_ms(), self.turn + 1);
    }

    /// Decides which requests that have just arrived must be answered in this turn.
    pub(crate) fn make_promises(&mut self) {
        for number in self.hot.iter().flatten().copied().collect::<Vec<usize>>() {
            let peer = &self.peers[number];
            let Some(ask) = peer.asks.front().filter(|ask| ask.whole_turn == Some(self.turn)) else {
                continue;
            };
            let in_memory = self.disk.in_memory(&self.machine, ask);
            let until_ms = in_memory.is_none().then(|| self.now_ms() + SHORT_WAIT_MS);
            let turns = in_memory.or_else(|| self.in_store(ask)).map(Limits::turns);
            // A handshake takes turns of its own, and the rest of a record can come a turn later.
            let is_whole = peer.client.wire().encrypted().is_none_or(Seal::is_established)
                && !peer.client.wire().has_more();
            let may_wait = self.is_bounded(ask);
            let turns =
                turns.filter(|_| !may_wait && is_whole && !peer.closed && !peer.reset && !peer.evicted);
            let peer = &mut self.peers[number];
            peer.promised_turn = turns.map(|turns| self.turn + turns);
            (peer.promised_ms, peer.promised_turns) = (until_ms, turns.unwrap_or(0));
        }
    }

    /// Decides the same for connections of several streams, whatever their other requests wait for. The
    /// streams take turns, one frame each.
    pub(crate) fn make_promises_of_streams(&mut self) {
        if !self.plan.streams {
            return;
        }
        for number in 0..self.peers.len() {
            let peer = &self.peers[number];
            if peer.h2.is_none() || peer.closed || peer.reset || peer.slow {
                continue;
            }
            let whole = peer.asks.iter().filter(|ask| ask.whole_turn.is_some_and(|turn| turn <= self.turn));
            let at_once = whole.count();
            if at_once > STREAMS_MAX {
                continue;
            }
            for place in 0..peer.asks.len() {
                let ask = &self.peers[number].asks[place];
                let is_hot = ask.target.is_some_and(|target| self.hot_targets.contains(&target));
                if !is_hot || ask.whole_turn != Some(self.turn) || self.is_bounded(ask) {
                    continue;
                }
                let Some(bytes) = self.disk.in_memory(&self.machine, ask) else { continue };
                let frames = bytes.div_ceil(FRAME_BYTES_MAX as u64);
                let turns = if at_once == 1 { Limits::turns(bytes) } else { frames + 2 };
                self.peers[number].asks[place].promised_turn = Some(self.turn + turns);
            }
        }
    }

    pub(crate) fn check_promises_of_streams(&mut self) {
        for (number, peer) in self.peers.iter().enumerate().filter(|(_, peer)| peer.h2.is_some()) {
            if peer.closed || peer.reset || peer.evicted {
                continue;
            }
            let late = peer.asks.iter().find(|ask| ask.promised_turn.is_some_and(|turn| turn <= self.turn));
            self.require(late.is_none(), "streams", || {
                let ask = late.map(|ask| ask.bytes.escape_ascii().to_string());
                format!("client {number} was not answered beside its waiting requests: {ask:?}")
            });
        }
    }

    /// The length of the answer if it is in the store: the name of the file is known, and every block of it
    /// is stored. A larger file must be open, and no block may leave the store while it is sent. Without the
    /// name cache, no entry leads to the blocks.
    pub(crate) fn in_store(&self, ask: &Ask) -> Option<u64> {
        let keeps = self.limits.name_cache && self.limits.stale_ms == crate::plan::STALE_WITHOUT_END_MS;
        let (target, sent_ms) =
            ask.target.filter(|_| keeps).and_then(|target| self.warm.get_key_value(&target))?;
        let Lead::File { plain, coded } = self.disk.targets[*target].lead else { return None };
        let stat = self.disk.now(plain).file.as_ref()?.0;
        // An open sibling that has changed contradicts what is known.
        if coded.iter().flatten().any(|place| self.disk.named[*place].states.len() > 1) {
            return None;
        }
        // A file that changed shortly before it was found is not considered unchanged.
        let old = stat.changed_ns + 1_000_000_000 < START_WALL_NS;
        let is_open = self.limits.open_files_max >= OPEN_FILES_MAX
            && self.now_ms() - sent_ms < FILE_IDLE_MS - 2 * FILE_SWEEP_MS
            && self.plan.ample
            && !self.limits.send_file;
        let is_there = self.store.host.as_ref()?.borrow().has_all(&stat);
        (is_there && old && self.disk.named[plain].hot && ask.is_simple())
            .then_some(stat.size_bytes)
            .filter(|size_bytes| *size_bytes <= LOAD_BYTES || is_open)
    }

    pub(crate) fn check_promises(&mut self) {
        let now_ms = self.now_ms();
        for number in self.hot.iter().flatten().copied().collect::<Vec<usize>>() {
            let peer = &mut self.peers[number];
            let Some(turn) = peer.promised_turn else { continue };
            if peer.asks.is_empty() {
                peer.promised_turn = None;
                self.promises += 1;
                continue;
            }
            // The turns of its answer begin after the wait, in the first turn that notices its end.
            if let Some(until_ms) = peer.promised_ms {
                peer.promised_turn = Some(self.turn + peer.promised_turns);
                peer.promised_ms = Some(until_ms).filter(|until_ms| now_ms <= *until_ms);
                continue;
            }
            let broken = turn <= self.turn;
            let ask = peer.asks.front().map(|ask| ask.bytes.escape_ascii().to_string());
            self.require(!broken, "the promise", || {
                format!(
                    "client {number} was not answered at once, although everything was in memory: {ask:?}"
                )
            });
        }
    }
}

/// More requests than are answered in one turn.
const BURST: usize = 120;
/// The shared address of many clients.
const HOARDER: [u8; 4] = [127, 0, 0, 99];
/// The request beside a crowd; its site is not the crowd's.
pub(crate) const GUEST_SITE: u16 = 1;
pub(crate) const GUEST_PATH: &str = "/guest";

/// Clients come from a few addresses.
fn address(number: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1 + (number % 5) as u8], 9))
}
