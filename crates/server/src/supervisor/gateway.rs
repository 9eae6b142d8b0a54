//! The gateway of a generation, if its configuration has routes.

use std::io;

use flash_prompt::epoll::Epoll;

use super::child::Ending;
use super::crew::{Role, Worker};
use super::outbox::{self, Shared};
use super::programs::Programs;
use super::restart::{Need, Restart};
use crate::sandbox::Role as Part;
use flash_worker::control::Order;

/// Room for pending messages between the gateway and a worker, in bytes.
const LINK_BYTES: usize = 256 * 1024;

/// The gateway, and its restart.
#[derive(Debug, Default)]
pub(super) struct Gateway {
    /// None without routes, or while another one must be started.
    pub(super) role: Option<Role>,
    restart: Restart,
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
        self.role.as_mut().map_or(Ok(()), |role| role.orders.give(order))
    }

    /// Whether it is ready, or not needed.
    pub(super) fn is_ready(&self) -> bool {
        self.role.as_ref().is_none_or(|role| role.ready.is_some())
    }

    /// Reaps it if it has ended. If it is needed, another one is started.
    pub(super) fn reap(&mut self, need: Need) -> Option<Ending> {
        let end = self.role.as_mut()?.child.ending()?;
        let role = self.role.take()?;
        if need.wants_another(end) {
            self.restart.plan(&role);
        }
        Some(end)
    }

    /// Starts another one when its time has come, connects every worker with it, and tells it of the programs. One for
    /// workers that drain drains too.
    pub(super) fn restart_when_due(
        &mut self,
        (now_ms, need): (u64, Need),
        (workers, programs): (&mut [Worker], &Programs),
        settings: &Shared,
        (epoll, numbers): (&Epoll, &mut u64),
    ) -> io::Result<()> {
        if !self.restart.take_due(now_ms) {
            return Ok(());
        }
        self.restart.plan_again(now_ms);
        self.start(settings, epoll, numbers)?;
        let connected = workers.iter_mut().try_for_each(|worker| self.connect(&mut worker.role));
        let connected = connected.and_then(|()| programs.introduce(self));
        match connected {
            Ok(()) => {
                self.restart.cancel();
                if need == Need::ToDrain {
                    self.role.iter_mut().for_each(Role::drain);
                }
            }
            // A worker would stay without it: the next one starts after a pause.
            Err(_) => self.end(),
        }
        connected
    }

    /// Makes it end when the last worker has ended.
    pub(super) fn drain(&mut self) {
        self.restart.cancel();
        self.role.iter_mut().for_each(Role::drain);
    }

    /// Kills it and forgets it.
    pub(super) fn end(&mut self) {
        self.role.take().into_iter().for_each(|role| role.child.kill());
    }

    /// Kills it.
    pub(super) fn kill(&self) {
        self.role.iter().for_each(|role| role.child.kill());
    }

    /// The next deadline.
    pub(super) fn next_ms(&self) -> Option<u64> {
        let of_role = |role: &Role| role.begin_ms().into_iter().chain(role.pulse.next_ms()).min();
        self.role.as_ref().and_then(of_role).into_iter().chain(self.restart.next_ms()).min()
    }
}
