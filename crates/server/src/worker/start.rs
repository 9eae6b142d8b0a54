//! A worker's start, before its loop: here it may still wait, for the supervisor's orders.

use std::cell::RefCell;
use std::io;

use flash_engine::Engine;
use flash_engine::limits::LOAD_BYTES;
use flash_sys::prompt::epoll::{Epoll, Watch};
use flash_sys::prompt::mapping::Mappings;
use flash_sys::prompt::sendfile::send_resident;
use flash_sys::prompt::timer::Timer;
use flash_sys::prompt::{channel, file};
use flash_sys::sandbox::calls::{Calls, More};
use flash_sys::sandbox::paths::Rights;
use flash_sys::waiting;
use flash_sys::{AsFd, OwnedFd};

use super::complaint::Complaint;
use super::helpers::Helpers;
use super::log::LogBuffer;
use super::reach::{Reach, Sending};
use super::system::LinuxSystem;
use super::{EVENTS_MAX, Worker, kind, moment, token};
use crate::config::{Optimizations, SendBy, Settings};
use crate::control::{Order, receive_order};
use crate::convert;
use crate::sandbox::{self, Role};

/// Runs a worker on the orders from `control`.
pub(crate) fn run(control: OwnedFd, settings: &Settings, descriptors_max: u64) -> io::Result<()> {
    let mut roots: Vec<Option<OwnedFd>> = settings.sites.iter().map(|_| None).collect();
    let epoll = Epoll::new(EVENTS_MAX)?;
    let mut log = LogBuffer::new();
    let mut listeners = Vec::new();
    loop {
        match receive_order(&control)? {
            Order::Root { site, is_local: true, folder } => {
                if let Some(root) = roots.get_mut(site) {
                    *root = Some(folder);
                }
            }
            // Look-ups there may wait for somebody else: helpers do all.
            Order::Root { .. } => {}
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
        reach(&settings.optimizations, descriptors_max),
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
    let folders: Vec<_> = worker.sys.roots().map(|root| (root, Rights::Read)).collect();
    let calls = Calls::Worker { timer: worker.timer.as_fd(), more: more(&settings.optimizations) };
    let in_force = sandbox::close(Role::Worker, settings, &folders, calls)?;
    worker.ready(in_force)?;
    worker.run()
}

/// How it reaches files. Only for experiments are these functions that wait.
fn reach(optimizations: &Optimizations, descriptors_max: u64) -> Reach {
    let asks = optimizations.residency_check;
    Reach {
        look_up: match optimizations.open_in_loop {
            true => |root, path, want| waiting::file::open_in_loop(root, path, want),
            false => |root, path, want| file::open_cached(root, path, want),
        },
        read: match asks {
            true => |file, offset, buffer| file::read_resident(file, offset, buffer),
            false => |file, offset, buffer| waiting::file::read_now(file, offset, buffer),
        },
        send: match (optimizations.send, asks) {
            (SendBy::Read, _) => Sending::Read,
            (SendBy::Sendfile, true) => Sending::Sendfile(|socket, head, file, offset, length| {
                send_resident(socket, head, file, offset, length)
            }),
            (SendBy::Sendfile, false) => Sending::Sendfile(|socket, head, file, offset, length| {
                waiting::file::send_now(socket, head, file, offset, length)
            }),
            (SendBy::Mmap, _) => {
                Sending::Mmap(Mappings::new(LOAD_BYTES, convert::mapped_chunks_max(descriptors_max)))
            }
        },
    }
}

/// The system calls that it needs for that.
fn more(optimizations: &Optimizations) -> More {
    More {
        sendfile: optimizations.send == SendBy::Sendfile,
        map_files: optimizations.send == SendBy::Mmap,
        pread: !optimizations.residency_check,
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
