//! A worker's start, before its loop: here it may still wait, for roots to be opened and for
//! the supervisor's orders.

use std::cell::RefCell;
use std::io;

use flash_engine::Engine;
use flash_sys::OwnedFd;
use flash_sys::prompt::epoll::{Epoll, Watch};
use flash_sys::prompt::timer::Timer;
use flash_sys::prompt::{channel, memory};
use flash_sys::waiting::{process, root};

use super::complaint::Complaint;
use super::helpers::Helpers;
use super::log::LogBuffer;
use super::system::LinuxSystem;
use super::{EVENTS_MAX, Worker, kind, moment, token};
use crate::config::{ROOT_PATIENCE, Settings};
use crate::control::{Notice, Order, receive_order, send_notice};
use crate::convert;

/// Runs a worker on the orders from `control`.
pub(crate) fn run(control: OwnedFd, settings: &Settings) -> io::Result<()> {
    let descriptors_max = process::raise_descriptor_limit()?;
    let roots = open_roots(&control, settings)?;
    let epoll = Epoll::new(EVENTS_MAX)?;
    let mut log = LogBuffer::new();
    let mut listeners = Vec::new();
    loop {
        match receive_order(&control)? {
            Order::Listener(listener) => {
                epoll.add(&listener, token(kind::LISTENER, listeners.len() as u64), Watch::Input)?;
                listeners.push(listener);
            }
            Order::Log(channel) => log.connect(channel),
            Order::Begin => break,
            other => return Err(io::Error::new(io::ErrorKind::InvalidData, format!("unexpected {other:?}"))),
        }
    }
    channel::set_nonblocking(&control)?;
    epoll.add(&control, token(kind::CONTROL, 0), Watch::Input)?;
    let timer = Timer::new()?;
    epoll.add(&timer, token(kind::TIMER, 0), Watch::Input)?;
    let spare = control.try_clone()?;
    let now = moment();
    let sys = LinuxSystem::new(
        roots,
        Helpers::new(settings.helpers_max, settings.helper_idle_ms, control.try_clone()?),
        log,
        control.try_clone()?,
    );
    let worker = Worker {
        engine: Engine::new(convert::rules(settings, descriptors_max), now),
        sys,
        epoll,
        timer,
        control,
        listeners,
        spare: Some(spare),
        draining: false,
        housekeeping_ms: now.monotonic_ms,
        refusals: Complaint::default(),
        refused: 0,
    };
    keep_panics_quiet();
    // Where the limit is too low the worker's memory can be paged out like any other; the
    // start line of the supervisor says what is in force.
    let _ = memory::lock_all();
    worker.ready()?;
    worker.run()
}

/// Opens the roots under which the worker itself looks files up: those on local file systems.
fn open_roots(control: &OwnedFd, settings: &Settings) -> io::Result<Vec<Option<OwnedFd>>> {
    let mut roots = Vec::with_capacity(settings.sites.len());
    for (site, root) in settings.sites.iter().zip(root::open_roots(&settings.roots(), ROOT_PATIENCE)) {
        if let Err(e) = &root {
            let text =
                format!("cannot open {}: {e}; helpers try again for each request", site.root.display());
            send_notice(control, &Notice::Report(text))?;
        }
        roots.push(root.ok().filter(|root| root.is_local).map(|root| root.folder));
    }
    Ok(roots)
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
