//! The loop of one thread that starts requests on time and takes their answers.
//!
//! [`super::run`] makes one for each thread. While arrivals of an open loop are near it polls without
//! sleeping, since a sleeping thread wakes late by more than a hot answer takes: give it a core of
//! its own ([`Polling`] says how long it may poll). After each receive of at most [`BUFFER_BYTES`] it looks at the clock
//! again, so a long answer does not delay an arrival.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use flash_prompt::clock;
use flash_prompt::epoll::{Epoll, Ready, Watch};
use flash_prompt::timer::Timer as Alarm;

use super::collect::{Outbox, Shared};
use super::h2::mux::{Mux, StreamKey};
use super::loop_io::Io;
use super::polling::Polling;
use super::pool::number_of;
use super::stream::Flow;
use super::timers::{Timer, Timers, Wake};
use super::{Priority, STOPPED_DRAIN_NS, Stream, StreamRan};
use crate::record::{OPEN_STEP_NS, OpenConnections};

/// Descriptors taken from one epoll call.
const EVENTS_MAX: usize = 512;
/// Bytes of one receive: some 15 µs of copying.
const BUFFER_BYTES: usize = 64 * 1024;
/// Bytes of one receive of what is encrypted. With the rest of a record from before, its text has room in a buffer.
const CIPHER_BYTES: usize = 48 * 1024;
/// The longest sleep: so soon it learns that it is to stop.
const SLEEP_MAX_NS: u64 = 20_000_000;

/// So long after the end of the phase what was due before it is still started, if the drain allows less.
const LATE_START_MAX_NS: u64 = 1_000_000_000;
/// The most looks at the open connections: a day of them.
const OPEN_MAX: u64 = 86_400_000_000_000 / OPEN_STEP_NS;
/// The longest that waiting for events takes without sleeping.
const CALL_NS: u64 = 5_000;
/// The token of the alarm. Those of connections have the numbers of their pools ([`number_of`]).
const ALARM: u64 = u64::MAX;

/// The loop, its flows, and its buffers.
pub(crate) struct Generator<'a> {
    io: Io<'a>,
    flows: Vec<Flow>,
    /// Ends a sleep. A timeout of epoll(7) would be set and taken back for each answer, and has the slack of timers (prctl(2)).
    alarm: Alarm,
    events: Vec<Ready>,
    /// Tokens of connections that have something to receive.
    ready: VecDeque<u64>,
    /// How many of them get a turn before new events are taken.
    turns_left: usize,
    buffer: Vec<u8>,
    /// The time of the last look at the clock at the head of the loop, and whether nothing was to
    /// do since; all such time together.
    looked_ns: u64,
    in_vain: bool,
    idle_ns: u64,
    done_ns: u64,
    open_looks: u64,
    polling: Polling,
}

pub(crate) struct Ended {
    pub(crate) streams: Vec<StreamRan>,
    pub(crate) duration_ns: u64,
    pub(crate) drain_ns: u64,
    /// How long there was something to do while requests were started.
    pub(crate) busy_ns: u64,
}

impl<'a> Generator<'a> {
    /// Makes a flow for each stream.
    ///
    /// Errors: those of `epoll_create` and `timerfd_create`.
    pub(crate) fn new(
        thread: u8,
        streams: Vec<Stream>,
        shared: &'a Shared,
        outbox: Outbox,
        priority: Priority,
    ) -> io::Result<Self> {
        let mux = Mux::of(&streams);
        let flows =
            streams.into_iter().enumerate().map(|(number, stream)| Flow::new(number as u8, stream)).collect();
        let (epoll, alarm) = (Epoll::new(EVENTS_MAX)?, Alarm::new()?);
        epoll.add(&alarm, ALARM, Watch::Input)?;
        Ok(Self {
            io: Io {
                epoll,
                mux,
                cipher: vec![0; CIPHER_BYTES],
                timers: Timers::new(),
                outbox,
                shared,
                thread,
                now_ns: 0,
            },
            flows,
            alarm,
            events: Vec::with_capacity(EVENTS_MAX),
            ready: VecDeque::new(),
            turns_left: 0,
            buffer: vec![0; BUFFER_BYTES],
            looked_ns: 0,
            in_vain: false,
            idle_ns: 0,
            done_ns: 0,
            open_looks: 0,
            polling: Polling::new(shared.phase.waiting, priority),
        })
    }

    /// Lets the phase run to its end, waits for the last answers and gives up on the rest.
    ///
    /// Errors: those of `epoll_wait` and `timerfd_settime`.
    pub(crate) fn run(mut self) -> io::Result<Ended> {
        let early_ns = self.io.shared.start_ns.saturating_sub(clock::monotonic_ns());
        std::thread::sleep(Duration::from_nanos(early_ns));
        for flow in &mut self.flows {
            flow.start(&mut self.io);
        }
        let duration_ns = self.start_all()?;
        let busy_ns = duration_ns.saturating_sub(self.idle_ns);
        for flow in &mut self.flows {
            flow.close();
        }
        let end_ns = self.drain(duration_ns)?;
        let streams = self.finish_all();
        self.io.outbox.flush(self.io.shared);
        Ok(Ended { streams, duration_ns, drain_ns: end_ns - duration_ns, busy_ns })
    }

    /// Starts requests until the end of the phase; gives when that was.
    fn start_all(&mut self) -> io::Result<u64> {
        let shared = self.io.shared;
        let phase = shared.phase;
        loop {
            let now_ns = self.look();
            if self.is_stopped() {
                return Ok(now_ns);
            }
            let woken = self.wake_due(now_ns);
            let mut started = 0;
            for flow in &mut self.flows {
                started += flow.start_due(&mut self.io);
            }
            // A request due before the end starts even if the end has passed, unless that takes too long.
            if started == 0 && (now_ns >= phase.duration_ns || self.flows.iter().all(Flow::is_over)) {
                return Ok(now_ns);
            }
            if now_ns >= phase.duration_ns.saturating_add(phase.drain_max_ns.max(LATE_START_MAX_NS)) {
                shared.end_early(|| {
                    "the generator was too slow to start all requests: lower the rate or use more threads"
                        .into()
                });
                return Ok(now_ns);
            }
            self.receive_some(phase.duration_ns, started > 0, woken)?;
        }
    }

    /// Waits for the last answers; gives when that ended.
    fn drain(&mut self, begin_ns: u64) -> io::Result<u64> {
        let mut end_ns = begin_ns.saturating_add(self.io.shared.phase.drain_max_ns);
        let mut stopped = false;
        loop {
            let now_ns = self.look();
            if !stopped && self.is_stopped() {
                stopped = true;
                end_ns = end_ns.min(now_ns.saturating_add(STOPPED_DRAIN_NS));
            }
            if now_ns >= end_ns || self.flows.iter().all(|flow| flow.outstanding() == 0) {
                return Ok(now_ns);
            }
            let woken = self.wake_due(now_ns);
            for flow in &mut self.flows {
                flow.start_due(&mut self.io);
            }
            self.receive_some(end_ns, false, woken)?;
        }
    }

    /// Reads the clock, and counts the time since the last look as idle if that was in vain.
    fn look(&mut self) -> u64 {
        let now_ns = self.io.look();
        if self.in_vain {
            self.idle_ns += now_ns - self.looked_ns;
        }
        self.looked_ns = now_ns;
        // Those that were missed have the connections of now.
        while self.open_looks * OPEN_STEP_NS <= now_ns && self.open_looks < OPEN_MAX {
            self.open_looks += 1;
            let mut shared = self.io.mux.as_ref().map_or(OpenConnections::default(), Mux::count);
            // Connections that all share are those of the first.
            self.flows.iter_mut().for_each(|flow| flow.note_open(std::mem::take(&mut shared)));
            if self.io.shared.is_followed {
                self.io.outbox.flush(self.io.shared);
            }
        }
        now_ns
    }

    fn is_stopped(&self) -> bool {
        let shared = self.io.shared;
        if shared.stop.is_set() {
            shared.end_early(|| "stopped".to_owned());
        }
        shared.ending.load(Ordering::Relaxed)
    }

    /// Deals with the timers that are due; gives whether there were any.
    fn wake_due(&mut self, now_ns: u64) -> bool {
        let mut woken = false;
        while let Some(timer) = self.io.timers.take_due(now_ns) {
            woken = true;
            if let Wake::Stream(stream) = timer.wake {
                self.abort(timer, stream);
            } else if self.flows[number_of(timer.token)].wake(timer, &mut self.io) {
                self.ready.push_back(timer.token);
            }
        }
        let (flows, mux) = (&mut self.flows, &mut self.io.mux);
        self.io.timers.tidy(|timer| match flows.get_mut(number_of(timer.token)) {
            Some(flow) => flow.concerns(timer),
            None => mux.as_mut().is_some_and(|mux| mux.concerns(timer.token)),
        });
        woken
    }

    /// Takes new events when the earlier ones had their turn, then receives once. Requests have `begun` or timers have `woken` users since
    /// the last look.
    fn receive_some(&mut self, end_ns: u64, begun: bool, woken: bool) -> io::Result<()> {
        let busy = begun || woken || !self.ready.is_empty();
        if busy {
            self.done_ns = self.looked_ns;
        }
        let (mut came, mut slept) = (false, false);
        if self.turns_left == 0 {
            (came, slept) = self.take_events(end_ns, self.ready.is_empty())?;
            self.turns_left = self.ready.len();
        }
        if let Some(token) = self.ready.pop_front() {
            self.turns_left = self.turns_left.saturating_sub(1);
            let is_again = match self.flows.get_mut(number_of(token)) {
                Some(flow) => flow.receive(token, &mut self.buffer, &mut self.io),
                None => self.receive_shared(token),
            };
            if is_again {
                self.ready.push_back(token);
            }
        }
        self.settle();
        if came {
            self.done_ns = self.looked_ns;
        }
        self.in_vain = !busy && !came && !slept;
        Ok(())
    }

    /// Takes the events that are there, or sleeps for them if it may and nothing is near. Gives
    /// whether there were any, and whether the time was counted as idle here.
    fn take_events(&mut self, end_ns: u64, may_sleep: bool) -> io::Result<(bool, bool)> {
        let before_ns = self.io.look();
        let until_ns = if may_sleep { self.sleep_until_ns(before_ns, end_ns) } else { before_ns };
        let sleeps = until_ns > before_ns;
        if sleeps {
            self.alarm.at_latest_ns(self.io.shared.start_ns + until_ns)?;
        }
        self.events.clear();
        self.events.extend(self.io.epoll.wait((!sleeps).then_some(0))?);
        if self.events.is_empty() && !sleeps {
            return Ok((false, false));
        }
        let now_ns = self.io.look();
        let slept = sleeps && now_ns - before_ns > CALL_NS;
        if slept {
            self.idle_ns += now_ns - before_ns;
            self.polling.slept(now_ns - before_ns - CALL_NS);
        }
        let mut came = false;
        for at in 0..self.events.len() {
            let event = self.events[at];
            if event.token == ALARM {
                self.alarm.clear()?;
                continue;
            }
            came = true;
            let must_receive = match self.flows.get_mut(number_of(event.token)) {
                Some(flow) => flow.handle_event(event, &mut self.io),
                None => self.handle_shared_event(event),
            };
            if must_receive {
                self.ready.push_back(event.token);
            }
        }
        Ok((came, slept))
    }

    /// The user of a request on a shared connection has waited long enough.
    fn abort(&mut self, timer: Timer, stream: u32) {
        let key = StreamKey { token: timer.token, stream };
        let aborted = self.io.mux.as_mut().and_then(|mux| mux.abort(key));
        if let Some((flow, request)) = aborted {
            self.flows[usize::from(flow)].give_up(request, &mut self.io);
        }
    }

    /// Takes an event of a shared connection; gives whether it is to have a turn.
    fn handle_shared_event(&mut self, event: Ready) -> bool {
        let Io { mux: Some(mux), cipher, .. } = &mut self.io else { return false };
        match mux.handle_event(event, cipher) {
            Ok(handled) => {
                if handled.is_changed {
                    self.advance_all();
                }
                handled.must_receive
            }
            Err(why) => {
                // One request fails for it, so that trying comes to an end.
                if let Some(flow) = self.flows.iter_mut().find(|flow| flow.is_waiting()) {
                    flow.fail_first_waiting(&why, &mut self.io);
                }
                self.advance_all();
                false
            }
        }
    }

    /// Receives once on a shared connection; gives whether it is to be called again for it.
    fn receive_shared(&mut self, token: u64) -> bool {
        let Io { mux: Some(mux), cipher, shared, now_ns, .. } = &mut self.io else { return false };
        mux.receive(token, (&mut self.buffer, cipher), || {
            *now_ns = clock::monotonic_ns().saturating_sub(shared.start_ns);
            *now_ns
        })
    }

    /// Passes on the requests that ended on shared connections, and lets those that wait have their room.
    fn settle(&mut self) {
        while let Some(mux) = self.io.mux.as_mut().filter(|mux| mux.is_changed()) {
            let mut done = mux.take_done();
            for done in done.drain(..) {
                self.flows[usize::from(done.flow)].settle(done, &mut self.io);
            }
            if let Some(mux) = &mut self.io.mux {
                mux.reuse(done);
            }
            self.advance_all();
        }
    }

    fn advance_all(&mut self) {
        for flow in &mut self.flows {
            flow.advance(&mut self.io);
        }
        if let Some(mux) = &mut self.io.mux {
            mux.flush();
        }
    }

    /// Gives up on every request that is not answered, and tells what came of all.
    fn finish_all(&mut self) -> Vec<StreamRan> {
        let mut done = Vec::new();
        if let Some(mux) = &mut self.io.mux {
            mux.finish();
            done = mux.take_done();
        }
        for done in done {
            self.flows[usize::from(done.flow)].settle(done, &mut self.io);
        }
        let mut streams: Vec<StreamRan> =
            self.flows.iter_mut().map(|flow| flow.finish_all(&mut self.io)).collect();
        // Connections that all share are those of the first.
        if let Some((mux, first)) = self.io.mux.as_mut().zip(streams.first_mut()) {
            first.connections += mux.established();
            first.handshakes.extend(mux.take_handshakes());
        }
        streams
    }

    /// Until when nothing will have to be done, if no answer comes: `now_ns` or earlier if something is near.
    fn sleep_until_ns(&mut self, now_ns: u64, end_ns: u64) -> u64 {
        let arrival_ns = self.flows.iter().filter_map(|flow| flow.next_due_ns(end_ns)).min();
        let timer_ns = self.io.timers.next_due_ns();
        let mut until_ns = end_ns.min(now_ns + SLEEP_MAX_NS).min(timer_ns.unwrap_or(u64::MAX));
        if self.flows.iter().any(Flow::is_open_loop) {
            let poll_ns = self.polling.longest_ns(now_ns);
            // A fast answer is not to be measured by how long waking takes.
            let lately = now_ns - self.done_ns < poll_ns;
            if lately && self.flows.iter().any(|flow| flow.outstanding() > 0) {
                return now_ns;
            }
            until_ns = until_ns.min(arrival_ns.unwrap_or(u64::MAX).saturating_sub(poll_ns));
            if let (true, Some(timer_ns)) = (self.flows.iter().any(Flow::has_thinking_users), timer_ns) {
                until_ns = until_ns.min(timer_ns.saturating_sub(poll_ns));
            }
        }
        until_ns
    }
}
