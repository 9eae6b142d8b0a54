//! The processes of a generation: roles with their control channels, and helpers that are starting.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use flash_prompt::epoll::Epoll;
use flash_prompt::{channel, clock};
use flash_waiting::process;

use super::child::{Ending, Subprocess};
use super::outbox::{self, Outbox, Shared};
use super::pulse::{Pulse, SILENCE_MS};
use super::roots::Roots;
use super::starter::Starter;
use super::store::SharedStore;
use crate::sandbox::Role as Part;
use flash_worker::control::InForce;
use flash_worker::control::{CHANNEL_BYTES, Notice, Order, receive_notice};
use flash_worker::protocol::MESSAGE_BYTES_MAX;

/// Maximum time until a worker or a log writer is ready: generous, since a machine may be busy.
const BEGIN_MS: u64 = 60_000;
/// Maximum time until a helper has read its roots.
const HELPER_BEGIN_MS: u64 = 10_000;
/// A worker or log writer that ends earlier than this after its start is restarted after a pause.
pub(super) const STEADY_MS: u64 = 1_000;
/// The pause before such a restart.
pub(super) const RESTART_PAUSE_MS: u64 = 1_000;

/// A process with a control channel.
#[derive(Debug)]
pub(super) struct Role {
    pub(super) child: Subprocess,
    pub(super) orders: Outbox,
    /// Its sandbox, once it is ready.
    pub(super) ready: Option<InForce>,
    pub(super) started_ms: u64,
    /// For roles that must answer pings.
    pub(super) pulse: Pulse,
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) role: Role,
    pub(super) place: usize,
    pub(super) helpers: HashMap<u64, Subprocess>,
    /// The last counters that it has reported.
    pub(super) counters: Option<String>,
    /// The helpers that have not read their roots yet.
    pub(super) coming: Vec<Coming>,
}

/// A helper that reads its roots; its worker gets its channel afterwards.
#[derive(Debug)]
pub(super) struct Coming {
    pub(super) number: u64,
    orders: Outbox,
    deadline_ms: u64,
}

/// A worker that ended unexpectedly.
#[derive(Debug)]
pub(super) struct Death {
    pub(super) place: usize,
    pub(super) end: Ending,
    /// Its messages that were not read yet.
    pub(super) last_words: Vec<String>,
    /// The last counters that it has reported, as JSON.
    pub(super) counters: Option<String>,
}

impl Role {
    /// Starts a process and gives it its settings. Its events have the token `number`, once it is watched.
    pub(super) fn start(part: Part, settings_file: &Shared, number: u64) -> io::Result<Self> {
        let (ours, theirs) = channel::pair(CHANNEL_BYTES)?;
        let mut orders = Outbox::new(ours, number)?;
        orders.give_at_start(Order::Settings(Arc::clone(settings_file)))?;
        let name = part.name();
        let child = process::start_role(name, theirs)
            .map_err(|e| io::Error::new(e.kind(), format!("cannot start a {name} process: {e}")))?;
        let child = child.into();
        Ok(Self { child, orders, ready: None, started_ms: clock::monotonic_ms(), pulse: Pulse::default() })
    }

    /// Starts a process that needs only its settings, and watches it.
    pub(super) fn start_watched(
        part: Part,
        settings_file: &Shared,
        epoll: &Epoll,
        numbers: &mut u64,
    ) -> io::Result<Self> {
        *numbers += 1;
        let mut role = Self::start(part, settings_file, *numbers)?;
        if let Err(e) = role.orders.watch(epoll) {
            role.child.kill();
            return Err(e);
        }
        Ok(role)
    }

    /// Makes it finish its work and end.
    pub(super) fn drain(&mut self) {
        if self.orders.give(Order::Drain).is_err() {
            self.child.kill();
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn number(&self) -> u64 {
        self.orders.number()
    }

    /// The deadline until which it must be ready; None if it is.
    pub(super) fn begin_ms(&self) -> Option<u64> {
        self.ready.is_none().then_some(self.started_ms + BEGIN_MS)
    }

    /// Kills it if it is not ready in time. True the first time.
    pub(super) fn give_up_late(&mut self, now_ms: u64) -> bool {
        let is_late = self.begin_ms().is_some_and(|ms| ms <= now_ms);
        if is_late {
            self.child.kill();
            // Otherwise it would be found late again before it is reaped.
            self.started_ms = now_ms;
        }
        is_late
    }

    /// Kills it if it does not answer pings. Returns the reason the first time.
    pub(super) fn give_up_silent(&mut self, now_ms: u64) -> Option<String> {
        let is_silent = self.ready.is_some() && self.pulse.look(now_ms, &mut self.orders);
        is_silent.then(|| {
            self.child.kill();
            format!("it has not answered for {} s", SILENCE_MS / 1_000)
        })
    }

    /// The restart time of this process, which has just ended: after a pause if it lived only briefly.
    pub(super) fn restart_ms(&self) -> u64 {
        let now_ms = clock::monotonic_ms();
        if now_ms >= self.started_ms + STEADY_MS { now_ms } else { now_ms + RESTART_PAUSE_MS }
    }

    /// Its messages that were not read yet, and the last counters among them.
    pub(super) fn last_words(&self) -> (Vec<String>, Option<String>) {
        let (mut words, mut counters) = (Vec::new(), None);
        while let Ok(notice) = receive_notice(self.orders.channel()) {
            match notice {
                Notice::Report(text) => words.push(text),
                Notice::Stats(_, json) => counters = Some(json),
                _ => {}
            }
        }
        (words, counters)
    }
}

/// The things that a helper needs before it begins.
#[derive(Clone, Copy)]
pub(super) struct HelperNeeds<'a> {
    pub(super) settings_file: &'a Shared,
    pub(super) roots: &'a Roots,
    pub(super) store: Option<&'a SharedStore>,
}

impl Worker {
    pub(super) fn new(role: Role, place: usize) -> Self {
        Self { role, place, helpers: HashMap::new(), counters: None, coming: Vec::new() }
    }

    /// Starts a helper and sends it everything that it needs.
    pub(super) fn start_helper(
        &mut self,
        number: u64,
        needs: HelperNeeds<'_>,
        starter: &Starter,
    ) -> io::Result<()> {
        let (ours, theirs) = channel::pair(2 * MESSAGE_BYTES_MAX)?;
        let mut orders = Outbox::new(ours, number)?;
        orders.give_at_start(Order::Settings(Arc::clone(needs.settings_file)))?;
        // The channel may be too small for many roots, so the helper must already read it.
        let child = Subprocess::from(starter.start(theirs)?);
        let mut told = needs.roots.give(&mut orders);
        if let Some(store) = needs.store {
            told = told.and_then(|()| store.borrow_mut().give_filler(&mut orders, 1));
        }
        if let Err(e) = told.and_then(|()| orders.give_at_start(Order::Begin)) {
            child.kill();
            return Err(e);
        }
        self.helpers.insert(number, child);
        let deadline_ms = clock::monotonic_ms() + HELPER_BEGIN_MS;
        self.coming.push(Coming { number, orders, deadline_ms });
        Ok(())
    }

    /// Continues sending orders, and hands over the helpers that have read theirs. Returns messages for the operator.
    pub(super) fn go_on(&mut self, now_ms: u64, epoll: &Epoll) -> Vec<String> {
        let mut news = Vec::new();
        for mut coming in std::mem::take(&mut self.coming) {
            let sent = coming.orders.go_on();
            let why = match sent {
                Ok(()) if coming.orders.is_empty() => {
                    let channel = Arc::new(coming.orders.into_channel(epoll));
                    // Without it the helper ends, and the job that wants one asks again.
                    match self.role.orders.give(Order::Helper(coming.number, channel)) {
                        Ok(()) => continue,
                        Err(e) => e.to_string(),
                    }
                }
                Ok(()) if now_ms < coming.deadline_ms => {
                    if coming.orders.watch(epoll).is_ok() {
                        self.coming.push(coming);
                        continue;
                    }
                    "cannot watch its channel".to_owned()
                }
                Ok(()) => format!("it was not ready within {} s", HELPER_BEGIN_MS / 1_000),
                Err(e) => e.to_string(),
            };
            self.helpers.get(&coming.number).into_iter().for_each(Subprocess::kill);
            let _ = self.role.orders.give(Order::NoHelper);
            news.push(format!("cannot start a helper: {why}"));
        }
        news
    }

    /// The next deadline.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.coming.iter().map(|coming| coming.deadline_ms).chain(self.role.begin_ms()).min()
    }
}

/// Connects a worker with the log writer.
pub(super) fn connect_log(log: &mut Role, worker: &mut Role) -> io::Result<()> {
    outbox::link(&mut log.orders, &mut worker.orders, Order::Log, 8 * flash_worker::BATCH_BYTES_MAX)
}
