//! A worker's start, before its loop: here it may still wait, for the supervisor's orders.

use std::cell::RefCell;
use std::io;

use flash_engine::Engine;
use flash_sys::prompt::epoll::Watch;
use flash_sys::prompt::mechanism::{Kind, Mechanism};
use flash_sys::prompt::timer::Timer;
use flash_sys::prompt::{channel, clock};
use flash_sys::sandbox::calls::{Calls, More};
use flash_sys::sandbox::paths::Rights;
use flash_sys::{AsFd, OwnedFd};

use super::complaint::Complaint;
use super::helpers::Helpers;
use super::log::LogBuffer;
use super::own_jobs::OwnJobs;
use super::reach::{Reach, Sending};
use super::system::LinuxSystem;
use super::{Accepts, EVENTS_MAX, Worker, calls, kind, moment, token};
use crate::config::{HelperKind, SendBy, Settings};
use crate::control::{Order, receive_order};
use crate::convert;
use crate::helper::{self, DiskWork};
use crate::sandbox::{self, InForce, Role};

/// What a worker was given before it began.
pub(crate) struct Begun {
    control: OwnedFd,
    /// Those that answered in time; whether each is local.
    roots: Vec<Option<(OwnedFd, bool)>>,
    pub(crate) listeners: Vec<OwnedFd>,
    log: LogBuffer,
}

/// Takes the orders from `control` up to the one to begin.
pub(crate) fn begin(control: OwnedFd, settings: &Settings) -> io::Result<Begun> {
    calls::know_roots(settings);
    let roots = settings.sites.iter().map(|_| None).collect();
    let mut begun = Begun { control, roots, listeners: Vec::new(), log: LogBuffer::new() };
    loop {
        match receive_order(&begun.control)? {
            Order::Root { site, is_local, folder } => {
                if let Some(root) = begun.roots.get_mut(site) {
                    *root = Some((folder, is_local));
                }
            }
            Order::Listener(listener) => begun.listeners.push(listener),
            Order::Log(channel) => begun.log.connect(channel),
            Order::Begin => return Ok(begun),
            other => return Err(io::Error::new(io::ErrorKind::InvalidData, format!("unexpected {other:?}"))),
        }
    }
}

impl Begun {
    /// Gives the work that may wait the roots that there are.
    pub(crate) fn disk_work(&self, settings: &Settings) -> io::Result<DiskWork> {
        let mut work = DiskWork::new(settings);
        for (site, root) in self.roots.iter().enumerate() {
            if let Some((folder, _)) = root {
                work.set_root(site, folder.try_clone()?);
            }
        }
        Ok(work)
    }

    /// Helpers: none yet, or all that there will be where they are threads.
    fn helpers(&self, settings: &Settings, mechanism: &mut Mechanism) -> io::Result<Helpers> {
        let Settings { helpers: kind, helpers_max, helper_idle_ms, .. } = *settings;
        let mut helpers = Helpers::new(kind, helpers_max, helper_idle_ms, self.control.try_clone()?);
        if kind == HelperKind::Threads {
            let channels = helper::start_threads(settings, self.disk_work(settings)?)?;
            for (number, channel) in (0..).zip(channels) {
                if !helpers.add(mechanism, token(kind::HELPER, number), number, channel) {
                    return Err(io::Error::other("a helper thread cannot be watched"));
                }
            }
        }
        Ok(helpers)
    }

    /// A worker that reaches files as `reach` says, with helpers or, if they are given, jobs of its own.
    pub(crate) fn worker(
        self,
        settings: &Settings,
        descriptors_max: u64,
        reach: Reach,
        own: Option<OwnJobs>,
        accepts: Accepts,
    ) -> io::Result<Worker> {
        let event_mechanism = convert::mechanism(settings.event_mechanism);
        let mut mechanism = Mechanism::new(event_mechanism, EVENTS_MAX)?;
        channel::set_nonblocking(&self.control)?;
        mechanism.add(&self.control, token(kind::CONTROL, 0), Watch::Input)?;
        let timer = Timer::new()?;
        mechanism.add(&timer, token(kind::TIMER, 0), Watch::Input)?;
        let now = moment(clock::monotonic_ns());
        let helpers = self.helpers(settings, &mut mechanism)?;
        // Under the others look-ups may wait for somebody else: they are jobs.
        let looks_up = |(folder, is_local)| (reach.under_all_roots || is_local).then_some(folder);
        let sys = LinuxSystem::new(
            self.roots.into_iter().map(|root| root.and_then(looks_up)).collect(),
            reach,
            Sending::new(
                settings.optimizations.send,
                &reach,
                convert::mapped_chunks_max(settings, descriptors_max),
            ),
            helpers,
            own,
            self.log,
            self.control.try_clone()?,
        );
        let mut worker = Worker {
            engine: Engine::new(convert::rules(settings, descriptors_max), now),
            sys,
            mechanism,
            timer,
            spare: Some(self.control.try_clone()?),
            control: self.control,
            listeners: self.listeners,
            accepts,
            listening: false,
            draining: false,
            now_ms: now.monotonic_ms,
            housekeeping_ms: now.monotonic_ms,
            refusals: Complaint::default(),
            refused: 0,
            refusal_advice: refusal_advice(event_mechanism),
        };
        worker.listen(true)?;
        Ok(worker)
    }
}

impl Worker {
    /// Has the kernel hold the calling thread to a worker's part from now on. `work` is what it does
    /// besides, if it does a helper's work, too.
    pub(crate) fn close(&self, settings: &Settings, work: Option<&DiskWork>) -> io::Result<InForce> {
        keep_panics_quiet();
        let (timer, more) = (self.timer.as_fd(), more(settings));
        match work {
            None => {
                let folders: Vec<_> = self.sys.roots().map(|root| (root, Rights::Read)).collect();
                sandbox::close(Role::Worker, settings, &folders, Calls::Worker { timer, more })
            }
            Some(work) => {
                let folders: Vec<_> = work.roots().map(|root| (root, Rights::ReadAndList)).collect();
                sandbox::close(Role::Worker, settings, &folders, Calls::WaitingWorker { timer, more })
            }
        }
    }
}

/// The system calls that it needs for what it was told to do otherwise.
fn more(settings: &Settings) -> More {
    More {
        sendfile: settings.optimizations.send == SendBy::Sendfile,
        map_files: settings.optimizations.send == SendBy::Mmap,
        pread: !settings.optimizations.residency_check,
        mechanism: convert::mechanism(settings.event_mechanism),
        has_threads: settings.helpers == HelperKind::Threads,
    }
}

/// What to do about clients that had to be refused.
fn refusal_advice(mechanism: Kind) -> &'static str {
    match mechanism {
        Kind::Select => "select has room for no more: take --event-mechanism epoll",
        _ => "raise --connections or the descriptor limit (ulimit -n)",
    }
}

thread_local! {
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps what a panic says for [`last_panic`]: the default, a write to stderr, may wait.
fn keep_panics_quiet() {
    std::panic::set_hook(Box::new(|panic| LAST_PANIC.with(|last| *last.borrow_mut() = panic.to_string())));
}

/// What the last panic said; empty when there was none since.
pub(super) fn last_panic() -> String {
    LAST_PANIC.with(std::cell::RefCell::take)
}
