//! The processes of a configuration that answer requests of its routes (`app`, `cgi`).
//!
//! All processes of a program accept from one listening socket, so the kernel gives each connection to an idle one, whichever
//! worker made it. The socket outlives them: requests that arrive while another process starts wait. A process that fails soon
//! after its start starts again after a pause that doubles. While all of them pause, the program has no socket, so that its
//! requests fail at once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::Arc;

use flash_engine::UpstreamId;
use flash_waiting::local;
use flash_waiting::successor::Bequest;
use flash_worker::control::Order;

use super::Generation;
use crate::config::Settings;
use crate::supervisor::Resources;
use crate::supervisor::estate::Estate;
use crate::supervisor::life::{Duty, State};
use crate::supervisor::outbox::{Outbox, Shared};
use crate::supervisor::process::Process;

/// The sockets of all programs, each from the start of its first process.
#[derive(Debug, Default)]
pub(super) struct Programs(BTreeMap<UpstreamId, Socket>);

/// A listening socket, and its place for the gateway.
#[derive(Debug)]
struct Socket {
    listener: Shared,
    place: Shared,
}

impl Programs {
    /// The processes of the programs in these settings.
    pub(super) fn duties(settings: &Settings) -> impl Iterator<Item = Duty> {
        (0..).map(UpstreamId).zip(settings.routes()).flat_map(|(route, settings)| {
            let processes = settings.program.as_ref().map_or(0, |program| program.processes);
            (1..=processes).map(move |number| Duty::Program(route, number))
        })
    }

    /// Reports to a gateway where the processes listen.
    pub(super) fn give(&self, gateway: &mut Outbox) -> io::Result<()> {
        self.0
            .iter()
            .try_for_each(|(route, socket)| gateway.give(Order::Program(*route, Arc::clone(&socket.place))))
    }

    /// Leaves them to the next program: each with its place.
    pub(super) fn leave(&self, bequest: &mut Bequest) -> io::Result<BTreeMap<UpstreamId, (usize, usize)>> {
        let mut leave = |(route, socket): (&UpstreamId, &Socket)| {
            Ok((*route, (bequest.add(&*socket.listener)?, bequest.add(&*socket.place)?)))
        };
        self.0.iter().map(&mut leave).collect()
    }

    /// Takes over those of an earlier program.
    pub(super) fn adopt(left: BTreeMap<UpstreamId, (usize, usize)>, estate: &mut Estate) -> io::Result<Self> {
        let adopt = |(route, (listener, place))| {
            let listener = Arc::new(estate.take(listener)?);
            Ok((route, Socket { listener, place: Arc::new(estate.take(place)?) }))
        };
        Ok(Self(left.into_iter().map(adopt).collect::<io::Result<_>>()?))
    }

    fn socket(&mut self, route: UpstreamId) -> io::Result<&Socket> {
        match self.0.entry(route) {
            Entry::Occupied(found) => Ok(found.into_mut()),
            Entry::Vacant(vacant) => {
                let (listener, place) = local::listen_in_private()
                    .map_err(|e| io::Error::new(e.kind(), format!("cannot make a socket for it: {e}")))?;
                Ok(vacant.insert(Socket { listener: Arc::new(listener), place: Arc::new(place) }))
            }
        }
    }

    /// Makes an empty connection to a program, so that accept(2) returns in one of its processes. After a signal that a process
    /// handles, many languages call it again, even if the process waited with poll(2) first and another one has taken the
    /// connection.
    fn wake(&self, route: UpstreamId) {
        // Without it, the process ends only when it is killed.
        self.0.get(&route).map(|socket| local::connect_in_private(&socket.place));
    }
}

impl Generation {
    pub(super) fn start_program(
        &mut self,
        route: UpstreamId,
        number: u64,
        resources: &mut Resources,
    ) -> io::Result<()> {
        let socket = self.programs.socket(route)?;
        let duty = Duty::Program(route, number);
        let mut process = Process::start(duty, &self.settings_file, &mut resources.poller)?;
        let program = self.settings.routes().nth(route.0.into()).and_then(|found| found.program.as_ref());
        process.name = program.map_or_else(|| duty.to_string(), |program| program.process_name(number));
        process.orders.give_at_start(Order::Program(route, Arc::clone(&socket.listener)))?;
        if let Some(gateway) = self.processes.of_mut(Duty::Gateway) {
            // A gateway that does not receive this is replaced, and the next one knows the socket.
            let _ = gateway.orders.give(Order::Program(route, Arc::clone(&socket.place)));
        }
        self.processes.insert(process, &resources.poller)
    }

    /// Closes the sockets of programs of which no process runs: requests would wait for the end of a pause.
    pub(super) fn close_idle_sockets(&mut self) {
        let runs = |route: UpstreamId| {
            self.processes.iter().any(|process| matches!(process.duty, Duty::Program(of, _) if of == route))
        };
        self.programs.0.retain(|route, _| runs(*route));
    }

    /// Asks all programs to end.
    pub(super) fn end_programs(&mut self, now_ms: u64) {
        self.processes.cancel_restarts(|duty| matches!(duty, Duty::Program(..)));
        let mut ending = Vec::new();
        for process in self.processes.iter_mut().filter(|process| process.state == State::Serving) {
            let Duty::Program(route, _) = process.duty else { continue };
            process.drain(Some(now_ms + process.duty.rules().grace_ms));
            ending.push(route);
        }
        ending.into_iter().for_each(|route| self.programs.wake(route));
    }
}
