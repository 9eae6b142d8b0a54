//! A worker's start, before its loop: here it may still wait, for the supervisor's orders.

use std::cell::RefCell;
use std::io;

use flash_engine::Engine;
use flash_sys::prompt::channel;
use flash_sys::prompt::epoll::Watch;
use flash_sys::prompt::mechanism::{Kind, Mechanism};
use flash_sys::prompt::timer::Timer;
use flash_sys::sandbox::calls::Calls;
use flash_sys::sandbox::paths::Rights;
use flash_sys::{AsFd, OwnedFd};

use super::complaint::Complaint;
use super::helpers::Helpers;
use super::log::LogBuffer;
use super::system::LinuxSystem;
use super::{EVENTS_MAX, Worker, kind, moment, token};
use crate::config::{HelperKind, Settings};
use crate::control::{Order, receive_order};
use crate::convert;
use crate::helper;
use crate::sandbox::{self, Role};

/// Runs a worker on the orders from `control`.
pub(crate) fn run(control: OwnedFd, settings: &Settings, descriptors_max: u64) -> io::Result<()> {
    let mut roots: Vec<Option<OwnedFd>> = settings.sites.iter().map(|_| None).collect();
    let mut all_roots: Vec<Option<OwnedFd>> = settings.sites.iter().map(|_| None).collect();
    let has_threads = settings.helpers == HelperKind::Threads;
    let event_mechanism = convert::mechanism(settings.event_mechanism);
    let mut mechanism = Mechanism::new(event_mechanism, EVENTS_MAX)?;
    let mut log = LogBuffer::new();
    let mut listeners = Vec::new();
    loop {
        match receive_order(&control)? {
            Order::Root { site, is_local, folder } => {
                if let Some(root) = all_roots.get_mut(site).filter(|_| has_threads) {
                    *root = Some(folder.try_clone()?);
                }
                // Look-ups elsewhere may wait for somebody else: helpers do all.
                if let Some(root) = roots.get_mut(site).filter(|_| is_local) {
                    *root = Some(folder);
                }
            }
            Order::Listener(listener) => {
                mechanism.add(&listener, token(kind::LISTENER, listeners.len() as u64), Watch::Input)?;
                listeners.push(listener);
            }
            Order::Log(channel) => log.connect(channel),
            Order::Begin => break,
            other => return Err(io::Error::new(io::ErrorKind::InvalidData, format!("unexpected {other:?}"))),
        }
    }
    channel::set_nonblocking(&control)?;
    mechanism.add(&control, token(kind::CONTROL, 0), Watch::Input)?;
    let timer = Timer::new()?;
    mechanism.add(&timer, token(kind::TIMER, 0), Watch::Input)?;
    let spare = control.try_clone()?;
    let now = moment();
    let mut helpers =
        Helpers::new(settings.helpers, settings.helpers_max, settings.helper_idle_ms, control.try_clone()?);
    if has_threads {
        for (number, channel) in (0..).zip(helper::start_threads(settings, all_roots)?) {
            if !helpers.add(&mut mechanism, token(kind::HELPER, number), number, channel) {
                return Err(io::Error::other("a helper thread cannot be watched"));
            }
        }
    }
    let sys = LinuxSystem::new(roots, helpers, log, control.try_clone()?);
    let worker = Worker {
        engine: Engine::new(convert::rules(settings, descriptors_max), now),
        sys,
        mechanism,
        timer,
        control,
        listeners,
        spare: Some(spare),
        draining: false,
        housekeeping_ms: now.monotonic_ms,
        refusals: Complaint::default(),
        refused: 0,
        refusal_advice: refusal_advice(event_mechanism),
    };
    keep_panics_quiet();
    let folders: Vec<_> = worker.sys.roots().map(|root| (root, Rights::Read)).collect();
    let calls = Calls::Worker { timer: worker.timer.as_fd(), mechanism: event_mechanism, has_threads };
    let in_force = sandbox::close(Role::Worker, settings, &folders, calls)?;
    worker.ready(in_force)?;
    worker.run()
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
