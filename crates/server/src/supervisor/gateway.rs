//! The gateway of a generation, if its configuration has routes.

use std::io;
use std::process::ExitStatus;

use flash_prompt::epoll::Epoll;
use flash_waiting::process;

use super::crew::{RESTART_PAUSE_MS, Role, Worker};
use super::outbox::{self, Shared};
use super::programs::Programs;
use crate::sandbox::Role as Part;
use flash_worker::control::Order;

/// Room for pending messages between the gateway and a worker, in bytes.
const LINK_BYTES: usize = 256 * 1024;

/// The gateway, and its restart.
#[derive(Debug, Default)]
pub(super) struct Gateway {
    /// None without routes, or while another one must be started.
    pub(super) role: Option<Role>,
    restart_ms: Option<u64>,
}

impl Gateway {
    /// Starts it.
    pub(super) fn start(&mut self, settings: &Shared, epoll: &Epoll, numbers: &mut u64) -> io::Result<()> {
        self.role = Some(Role::start_watched(Part::Gateway, settings, epoll, numbers)?);
        Ok(())
    }

    /// Connects a worker with it, if it is there.
    pub(super) fn connect(&mut self, worker: &mut Role) -> io::Result<()> {
        let Some(role) = &mut self.role else { return Ok(()) };
        outbox::link(&mut role.orders, &mut worker.orders, Order::Gateway, LINK_BYTES)
    }

    /// Gives it an order, if it is there.
    pub(super) fn give(&mut self, order: Order<Shared>) -> io::Result<()> {
        self.role.as_mut().map_or(Ok(()), |role| role.orders.give_at_start(order))
    }

    /// Whether it is ready, or not needed.
    pub(super) fn is_ready(&self) -> bool {
        self.role.as_ref().is_none_or(|role| role.ready.is_some())
    }

    /// Reaps it if it has ended. If it is `needed`, another one is started.
    pub(super) fn reap(&mut self, needed: bool) -> Option<ExitStatus> {
        let status = self.role.as_mut()?.child.try_wait().ok()??;
        let role = self.role.take()?;
        self.restart_ms = needed.then(|| role.restart_ms());
        Some(status)
    }

    /// Starts another one when its time has come, connects every worker with it, and tells it of the programs.
    pub(super) fn restart_when_due(
        &mut self,
        now_ms: u64,
        (workers, programs): (&mut [Worker], &Programs),
        settings: &Shared,
        (epoll, numbers): (&Epoll, &mut u64),
    ) -> io::Result<()> {
        if self.restart_ms.is_none_or(|ms| ms > now_ms) {
            return Ok(());
        }
        self.restart_ms = Some(now_ms + RESTART_PAUSE_MS);
        self.start(settings, epoll, numbers)?;
        let connected = workers.iter_mut().try_for_each(|worker| self.connect(&mut worker.role));
        let connected = connected.and_then(|()| programs.introduce(self));
        match connected {
            Ok(()) => self.restart_ms = None,
            // A worker would stay without it: the next one starts after a pause.
            Err(_) => self.end(),
        }
        connected
    }

    /// Makes it end when the last worker has ended.
    pub(super) fn drain(&mut self) {
        self.restart_ms = None;
        self.role.iter_mut().for_each(Role::drain);
    }

    /// Kills it and forgets it.
    pub(super) fn end(&mut self) {
        self.role.take().into_iter().for_each(|role| process::kill(&role.child));
    }

    /// Kills it.
    pub(super) fn kill(&self) {
        self.role.iter().for_each(|role| process::kill(&role.child));
    }

    /// The next deadline.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.role.as_ref().and_then(Role::begin_ms).into_iter().chain(self.restart_ms).min()
    }
}
