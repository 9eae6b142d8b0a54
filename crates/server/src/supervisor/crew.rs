//! The processes that a generation is made of: roles with their control channels, and helpers on their way.

use std::collections::HashMap;
use std::io;
use std::process::{Child, ExitStatus};
use std::sync::Arc;

use flash_prompt::epoll::Epoll;
use flash_prompt::{channel, clock};
use flash_waiting::process;

use super::outbox::{Outbox, Shared};
use super::roots::Roots;
use super::starter::Starter;
use crate::sandbox::Role as Part;
use flash_worker::control::InForce;
use flash_worker::control::{CHANNEL_BYTES, Notice, Order, receive_notice};
use flash_worker::protocol::MESSAGE_BYTES_MAX;

/// How long a worker or a log writer may take to begin: generous, since a machine may be busy.
const BEGIN_MS: u64 = 60_000;
/// How long a helper may take to take its roots.
const HELPER_BEGIN_MS: u64 = 10_000;
/// A worker or log writer that ends sooner than this after its start is started again after a pause.
const STEADY_MS: u64 = 1_000;
/// That pause.
pub(super) const RESTART_PAUSE_MS: u64 = 1_000;

/// A process with a control channel.
#[derive(Debug)]
pub(super) struct Role {
    pub(super) child: Child,
    pub(super) orders: Outbox,
    /// What holds it to its part, once it has begun.
    pub(super) ready: Option<InForce>,
    pub(super) started_ms: u64,
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) role: Role,
    pub(super) place: usize,
    pub(super) helpers: HashMap<u64, Child>,
    /// Those of them that have not taken their roots yet.
    pub(super) coming: Vec<Coming>,
}

/// A helper that takes its roots; its worker gets its channel then.
#[derive(Debug)]
pub(super) struct Coming {
    pub(super) number: u64,
    orders: Outbox,
    deadline_ms: u64,
}

/// A worker that ended by itself.
#[derive(Debug)]
pub(super) struct Death {
    pub(super) place: usize,
    pub(super) status: ExitStatus,
    /// What it had said and nobody had heard yet.
    pub(super) last_words: Vec<String>,
}

impl Role {
    /// Starts a process and gives it its settings. It is heard under `number`, once it is watched.
    pub(super) fn start(part: Part, settings_file: &Shared, number: u64) -> io::Result<Self> {
        let (ours, theirs) = channel::pair(CHANNEL_BYTES)?;
        let mut orders = Outbox::new(ours, number)?;
        orders.give_at_start(Order::Settings(Arc::clone(settings_file)))?;
        let name = part.name();
        let child = process::start_role(name, theirs)
            .map_err(|e| io::Error::new(e.kind(), format!("cannot start a {name} process: {e}")))?;
        Ok(Self { child, orders, ready: None, started_ms: clock::monotonic_ms() })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn number(&self) -> u64 {
        self.orders.number()
    }

    /// Until when it must have begun; None if it has.
    pub(super) fn begin_ms(&self) -> Option<u64> {
        self.ready.is_none().then_some(self.started_ms + BEGIN_MS)
    }

    /// Ends it when it has not begun in time. True the first time.
    pub(super) fn give_up_late(&mut self, now_ms: u64) -> bool {
        let is_late = self.begin_ms().is_some_and(|ms| ms <= now_ms);
        if is_late {
            process::kill(&self.child);
            // It is not found late again before it is reaped.
            self.started_ms = now_ms;
        }
        is_late
    }

    /// When this process, which has just ended, is started again: after a pause if it did not live long.
    pub(super) fn restart_ms(&self) -> u64 {
        let now_ms = clock::monotonic_ms();
        if now_ms >= self.started_ms + STEADY_MS { now_ms } else { now_ms + RESTART_PAUSE_MS }
    }

    /// What it had said and nobody had heard yet.
    pub(super) fn last_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        while let Ok(notice) = receive_notice(self.orders.channel()) {
            if let Notice::Report(text) = notice {
                words.push(text);
            }
        }
        words
    }
}

impl Worker {
    pub(super) fn new(role: Role, place: usize) -> Self {
        Self { role, place, helpers: HashMap::new(), coming: Vec::new() }
    }

    /// Starts a helper and gives it what it needs.
    pub(super) fn start_helper(
        &mut self,
        number: u64,
        settings_file: &Shared,
        roots: &Roots,
        starter: &Starter,
    ) -> io::Result<()> {
        let (ours, theirs) = channel::pair(2 * MESSAGE_BYTES_MAX)?;
        let mut orders = Outbox::new(ours, number)?;
        orders.give_at_start(Order::Settings(Arc::clone(settings_file)))?;
        // A channel of many roots is emptied while it is filled, so the helper is there first.
        let child = starter.start(theirs)?;
        if let Err(e) = roots.give(&mut orders).and_then(|()| orders.give_at_start(Order::Begin)) {
            end(child);
            return Err(e);
        }
        self.helpers.insert(number, child);
        let deadline_ms = clock::monotonic_ms() + HELPER_BEGIN_MS;
        self.coming.push(Coming { number, orders, deadline_ms });
        Ok(())
    }

    /// Goes on with the orders that wait, and hands over the helpers that have taken theirs. Gives what the
    /// operator should know.
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
                    "it cannot be watched".to_owned()
                }
                Ok(()) => format!("it did not begin within {} s", HELPER_BEGIN_MS / 1_000),
                Err(e) => e.to_string(),
            };
            self.helpers.get(&coming.number).into_iter().for_each(process::kill);
            let _ = self.role.orders.give(Order::NoHelper);
            news.push(format!("cannot start a helper: {why}"));
        }
        news
    }

    /// When it wants attention.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.coming.iter().map(|coming| coming.deadline_ms).chain(self.role.begin_ms()).min()
    }
}

/// Gives a worker and the log writer the two ends of a channel.
pub(super) fn connect_log(log: &mut Role, worker: &mut Role) -> io::Result<()> {
    let (to_log, from_worker) = channel::pair(8 * flash_worker::BATCH_BYTES_MAX)?;
    log.orders.give_at_start(Order::Log(Arc::new(from_worker)))?;
    worker.orders.give_at_start(Order::Log(Arc::new(to_log)))
}

/// Ends a process that could not be told what it needs.
pub(super) fn end(mut child: Child) {
    process::kill(&child);
    // It is in no call yet that could hang.
    let _ = child.wait();
}

pub(super) fn has_ended(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(Some(_)))
}
