//! The control socket: a client sends a request on one line and receives one document, and then the connection is closed
//! (`docs/stats.md`). It also speaks HTTP ([`http`]), as the addresses of `admin` do.
//!
//! The supervisor's loop calls it. No client can block that loop: no call here waits for a client or a worker, and the number of
//! clients, their input, their time and the questions to workers are bounded.

mod client;
mod http;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use flash_prompt::epoll::Watch;
use flash_prompt::{OwnedFd, net};
use flash_waiting::local;
use flash_waiting::successor::Bequest;

use client::Client;
use http::{Content, HttpRequest, Wanted as Asked};

use super::estate::Estate;
use super::generation::Generation;
use super::life::Duty;
use super::poller::{Poller, Watched};
use super::process::Process;
use crate::certificates;
use crate::config::{ControlSocket as Wanted, FilePath};
use crate::stats::{
    self, Answer, Counters, NetworkStats, Request, STALL_NS, ServerStalls, ServerStats, States, StoreStats,
    WorkerStalls, WorkerStats,
};
use flash_worker::control::Order;

/// Maximum clients at once of the socket of this user, and of the addresses of `admin`.
const CLIENTS_MAX: usize = 8;
/// Maximum time of a client to ask and to receive its answer.
const CLIENT_MS: u64 = 5_000;
/// Maximum time of the workers to report.
const WORKERS_MS: u64 = 500;
/// Minimum interval between two questions to the workers.
const PAUSE_MS: u64 = 10;
/// Time without accepting clients when the system has no free descriptor.
const SHORTAGE_MS: u64 = 1_000;

/// The sockets and their clients.
#[derive(Debug, Default)]
pub(super) struct ControlSocket {
    listening: Vec<Listening>,
    clients: Vec<Client>,
    gathering: Option<Gathering>,
    /// The time from which workers may be asked again.
    next_gathering_ms: u64,
    /// The number of the last question to the workers.
    questions: u64,
    /// The last counters of each worker that is there, by its token: for scrapers a worker that is late has those.
    last_counters: BTreeMap<u64, Counters>,
}

/// A listening socket: of this user, or an address of `admin`.
#[derive(Debug)]
struct Listening {
    listener: Watched<OwnedFd>,
    /// The path of the socket of this user, with its device and inode: another server may later create a socket at the same path.
    own: Option<(PathBuf, (u64, u64))>,
    /// The listener is not watched until then.
    shortage_until_ms: Option<u64>,
}

impl Listening {
    fn new(
        listener: impl Into<OwnedFd>,
        own: Option<(PathBuf, (u64, u64))>,
        poller: &mut Poller,
    ) -> io::Result<Self> {
        Ok(Self { listener: poller.watch(listener.into())?, own, shortage_until_ms: None })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some((path, file)) = &self.own {
            local::remove(path, *file);
        }
    }
}

/// A [`Listening`] as the next program takes it over.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LeftListener {
    socket: usize,
    own: Option<(FilePath, (u64, u64))>,
}

/// A question to all workers, and their reports so far.
#[derive(Debug)]
struct Gathering {
    request: Request,
    question: u64,
    deadline_ms: u64,
    states: States,
    network: NetworkStats,
    /// The reports as JSON, by the tokens of the workers.
    received: Vec<(u64, String)>,
    missing: Vec<u64>,
}

/// The data of an answer about the server itself.
pub(super) struct Subject<'a> {
    pub(super) generations: &'a [Generation],
    pub(super) started_ms: u64,
    pub(super) ended: &'a Counters,
    pub(super) store: Option<StoreStats>,
}

impl ControlSocket {
    /// Listens at the path and the addresses of the settings. If the default path cannot be created, the server runs without
    /// it, with a warning.
    ///
    /// Errors: the path or an address of the settings cannot be had.
    pub(super) fn open(
        wanted: &Wanted,
        admin: &[SocketAddr],
        poller: &mut Poller,
    ) -> io::Result<(Self, Option<String>)> {
        let mut listening = Vec::new();
        let mut warning = None;
        match wanted {
            Wanted::Off => {}
            Wanted::At(path) => listening.push(listen(path.to_path_buf(), poller)?),
            Wanted::Default => match stats::own_socket().and_then(|path| listen(path, poller)) {
                Ok(own) => listening.push(own),
                Err(e) => warning = Some(format!("`flash stats` will not work: {e}; see --control")),
            },
        }
        for address in admin {
            listening.push(listen_at(*address, poller)?);
        }
        Ok((Self { listening, ..Self::default() }, warning))
    }

    /// Leaves the sockets to the next program. Clients are lost.
    pub(super) fn leave(&self, bequest: &mut Bequest) -> io::Result<Vec<LeftListener>> {
        let leave = |listening: &Listening| {
            let socket = bequest.add(&listening.listener.item)?;
            let own = listening.own.as_ref().map(|(path, file)| (path.as_path().into(), *file));
            Ok(LeftListener { socket, own })
        };
        self.listening.iter().map(leave).collect()
    }

    /// Takes over the sockets of an earlier program.
    pub(super) fn adopt(
        left: Vec<LeftListener>,
        estate: &mut Estate,
        poller: &mut Poller,
    ) -> io::Result<Self> {
        let mut listening = Vec::with_capacity(left.len());
        for LeftListener { socket, own } in left {
            let own = own.map(|(path, file)| (path.to_path_buf(), file));
            listening.push(Listening::new(estate.take(socket)?, own, poller)?);
        }
        Ok(Self { listening, ..Self::default() })
    }

    /// Takes out a client that wants an upgrade. It gets its answer when that is done.
    pub(super) fn take_upgrader(&mut self) -> Option<OwnedFd> {
        let wants = |client: &Client| client.waits_for() == Some(Asked::Upgrade);
        let at = self.clients.iter().position(wants)?;
        Some(self.clients.swap_remove(at).socket)
    }

    /// The addresses of `admin`, with the ports that they got.
    pub(super) fn admin_addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let of_admin = self.listening.iter().filter(|listening| listening.own.is_none());
        of_admin.filter_map(|listening| net::local_address(&listening.listener.item).ok())
    }

    /// Handles the event of `token`; false if it does not belong to the control socket.
    pub(super) fn handle(&mut self, token: u64, now_ms: u64, poller: &mut Poller) -> bool {
        if let Some(at) = self.listening.iter().position(|listening| listening.listener.token == token) {
            self.accept(at, now_ms, poller);
            return true;
        }
        let Some(at) = self.clients.iter().position(|client| client.token == token) else { return false };
        if !self.clients[at].go_on() {
            self.clients.swap_remove(at);
        }
        true
    }

    fn accept(&mut self, at: usize, now_ms: u64, poller: &mut Poller) {
        // As many as there are places, and one more that is refused.
        for _ in 0..=CLIENTS_MAX {
            let listening = &mut self.listening[at];
            let is_own = listening.own.is_some();
            let socket = match net::accept(&listening.listener.item) {
                Ok((socket, _)) => socket,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => {
                    // The client stays in the queue and the listener ready, so the listener is not watched for a
                    // while.
                    poller.forget(&listening.listener);
                    listening.shortage_until_ms = Some(now_ms + SHORTAGE_MS);
                    return;
                }
            };
            let of_its_kind = self.clients.iter().filter(|client| client.is_own == is_own).count();
            let mut client = Client::new(poller.new_token(), (socket, is_own), now_ms + CLIENT_MS);
            if of_its_kind >= CLIENTS_MAX {
                client.refuse("too many clients; try again");
                continue;
            }
            // Edge-triggered: a client that keeps sending while it waits does not wake the loop all the time.
            if poller.epoll.add(&client.socket, client.token, Watch::Connection).is_ok() && client.go_on() {
                self.clients.push(client);
            }
        }
    }

    pub(super) fn take(&mut self, worker: u64, question: u64, json: String) {
        let Some(gathering) = self.gathering.as_mut().filter(|g| g.question == question) else { return };
        if !gathering.missing.contains(&worker) {
            return;
        }
        gathering.missing.retain(|number| *number != worker);
        gathering.received.push((worker, json));
    }

    /// Asks workers for waiting clients, answers these when the workers have reported, and drops clients that took
    /// too long.
    pub(super) fn settle(&mut self, now_ms: u64, poller: &Poller, subject: &Subject<'_>) {
        self.clients.retain(|client| client.deadline_ms > now_ms);
        for listening in &mut self.listening {
            if listening.shortage_until_ms.is_some_and(|ms| ms <= now_ms)
                && poller.watch_again(&listening.listener).is_ok()
            {
                listening.shortage_until_ms = None;
            }
        }
        self.answer_ready(subject);
        let wanted = self.waiting().next();
        if let Some(request) = wanted.filter(|_| self.gathering.is_none() && self.next_gathering_ms <= now_ms)
        {
            self.begin(request, now_ms, subject);
        }
        let Some(gathering) = &mut self.gathering else { return };
        let is_there = |number: &u64| subject.generations.iter().any(|g| g.processes.has(*number));
        gathering.missing.retain(is_there);
        if !gathering.missing.is_empty() && now_ms < gathering.deadline_ms {
            return;
        }
        if let Some(gathering) = self.gathering.take() {
            self.answer_waiting(gathering, now_ms, subject);
        }
    }

    /// Answers whether new requests are served, which needs no worker.
    fn answer_ready(&mut self, subject: &Subject<'_>) {
        let (status, text) = match subject.serving() {
            Some(_) => ("200 OK", "serving\n"),
            None => ("503 Service Unavailable", "starting or draining\n"),
        };
        for client in &mut self.clients {
            if let Some(Asked::Http(request)) = client.waits_for()
                && request.content == Content::Ready
            {
                let text = text.as_bytes();
                client.answer(http::answer(status, "text/plain; charset=utf-8", text, request.is_head));
            }
        }
        self.clients.retain(|client| !client.is_done());
    }

    fn answer_waiting(&mut self, gathering: Gathering, now_ms: u64, subject: &Subject<'_>) {
        let request = gathering.request;
        let mut answer = gathering.answer(now_ms, subject);
        let line = answer.to_line();
        if let Some(stats) = &mut answer.stats {
            self.complete(stats, subject);
        }
        for client in &mut self.clients {
            let Some(asked) = client.waits_for().filter(|asked| asked.request() == Some(request)) else {
                continue;
            };
            let bytes = match (asked, &answer.stats) {
                (Asked::Http(HttpRequest { content: Content::Metrics(format), is_head }), Some(stats)) => {
                    let text = stats::metrics(stats, format);
                    http::answer("200 OK", format.content_type(), text.as_bytes(), is_head)
                }
                (Asked::Http(asked), _) => http::answer("200 OK", "application/json", &line, asked.is_head),
                (Asked::Line(_) | Asked::Upgrade, _) => line.clone(),
            };
            client.answer(bytes);
        }
        self.clients.retain(|client| !client.is_done());
    }

    /// Adds to the sum the last counters of workers that did not answer in time: to a scraper, a count never falls.
    fn complete(&mut self, stats: &mut ServerStats, subject: &Subject<'_>) {
        let tokens: Vec<u64> = subject.workers().map(|(_, _, worker)| worker.token()).collect();
        self.last_counters.retain(|token, _| tokens.contains(token));
        for (_, _, worker) in subject.workers() {
            let Some(told) = stats.workers.iter().find(|told| told.pid == worker.pid()) else { continue };
            match &told.counters {
                Some(counters) => drop(self.last_counters.insert(worker.token(), counters.clone())),
                None => self.last_counters.get(&worker.token()).iter().for_each(|last| stats.sum.merge(last)),
            }
        }
    }

    /// Samples the processes and the network, then asks every worker: their answering would show in the sample.
    fn begin(&mut self, request: Request, now_ms: u64, subject: &Subject<'_>) {
        let generations = subject.generations;
        self.questions += 1;
        self.next_gathering_ms = now_ms + PAUSE_MS;
        let states = States {
            workers: stats::sample(generations.iter().flat_map(|g| g.processes.workers()).map(Process::pid)),
            helpers: stats::sample(generations.iter().flat_map(|g| g.processes.helpers()).map(Process::pid)),
        };
        let network = match request {
            Request::Stats => {
                stats::network(subject.serving().into_iter().flat_map(|g| g.sockets.listening()))
            }
            Request::Stalls => NetworkStats::default(),
        };
        let order = match request {
            Request::Stats => Order::Stats(self.questions),
            Request::Stalls => Order::Stalls(self.questions),
        };
        let workers = subject.workers().map(|(_, _, worker)| worker);
        let asked = workers.filter(|worker| worker.orders.give_now(&order).is_ok());
        self.gathering = Some(Gathering {
            request,
            question: self.questions,
            deadline_ms: now_ms + WORKERS_MS,
            states,
            network,
            received: Vec::new(),
            missing: asked.map(Process::token).collect(),
        });
    }

    pub(super) fn next_ms(&self) -> Option<u64> {
        let shortage = self.listening.iter().filter_map(|listening| listening.shortage_until_ms);
        let gathering = match &self.gathering {
            Some(gathering) => Some(gathering.deadline_ms),
            None => self.waiting().next().map(|_| self.next_gathering_ms),
        };
        self.clients.iter().map(|client| client.deadline_ms).chain(shortage).chain(gathering).min()
    }

    /// The requests to workers of waiting clients.
    fn waiting(&self) -> impl Iterator<Item = Request> + '_ {
        self.clients.iter().filter_map(|client| client.waits_for()?.request())
    }
}

fn listen(path: PathBuf, poller: &mut Poller) -> io::Result<Listening> {
    let failed = |e: io::Error| explain(&path, &e);
    let listener = local::listen(&path).map_err(failed)?;
    let file = local::give_to(&path, None).map_err(failed)?;
    Listening::new(listener, Some((path, file)), poller)
}

fn listen_at(address: SocketAddr, poller: &mut Poller) -> io::Result<Listening> {
    let listener = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    let listener = listener.map_err(|e| {
        let why = match e.kind() {
            io::ErrorKind::AddrInUse => {
                "another program or `listen` uses it; choose another address".to_owned()
            }
            _ => e.to_string(),
        };
        io::Error::new(e.kind(), format!("cannot listen on {address} for admin: {why}"))
    })?;
    Listening::new(listener, None, poller)
}

fn explain(path: &std::path::Path, error: &io::Error) -> io::Error {
    let why = match error.kind() {
        io::ErrorKind::AddrInUse => "another server uses it; choose another path".to_owned(),
        io::ErrorKind::AlreadyExists => "it exists and is not a socket; choose another path".to_owned(),
        io::ErrorKind::NotFound => "its folder does not exist; create it first".to_owned(),
        _ => error.to_string(),
    };
    io::Error::new(error.kind(), format!("cannot create the control socket `{}`: {why}", path.display()))
}

impl Gathering {
    fn answer(self, now_ms: u64, subject: &Subject<'_>) -> Answer {
        match self.request {
            Request::Stats => Answer::of(self.stats(now_ms, subject)),
            Request::Stalls => Answer::of_stalls(self.stalls(now_ms, subject)),
        }
    }

    fn of<T: serde::de::DeserializeOwned>(&self, worker: &Process) -> Option<T> {
        let (_, json) = self.received.iter().find(|(number, _)| *number == worker.token())?;
        serde_json::from_str(json).ok()
    }

    fn stats(self, now_ms: u64, subject: &Subject<'_>) -> ServerStats {
        let network = self.network.clone();
        let workers = subject.workers().map(|(generation, place, worker)| WorkerStats {
            generation: generation.number,
            state: generation.state.name().to_owned(),
            place,
            pid: worker.pid(),
            uptime_ms: now_ms.saturating_sub(worker.started_ms),
            counters: self.of::<Counters>(worker),
        });
        let in_force = subject.serving().or(subject.generations.last());
        let settings = in_force.map(|generation| single_values(&generation.settings));
        let expiries = in_force.map_or(&[][..], |generation| &generation.expiries);
        let mut stats = ServerStats {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_ms: now_ms.saturating_sub(subject.started_ms),
            settings: settings.unwrap_or_default(),
            ended: subject.ended.clone(),
            states: self.states,
            network,
            certificates: certificates::stats(expiries),
            store: subject.store.clone(),
            workers: workers.collect(),
            ..ServerStats::default()
        };
        stats.workers.sort_by_key(|worker| (worker.generation, worker.place));
        stats.sum_up();
        stats
    }

    fn stalls(self, now_ms: u64, subject: &Subject<'_>) -> ServerStalls {
        let workers = subject.workers().map(|(generation, place, worker)| WorkerStalls {
            generation: generation.number,
            place,
            pid: worker.pid(),
            uptime_ms: now_ms.saturating_sub(worker.started_ms),
            stalls: self.of(worker),
        });
        let mut workers: Vec<_> = workers.collect();
        workers.sort_by_key(|worker| (worker.generation, worker.place));
        ServerStalls { pid: std::process::id(), stall_ns: STALL_NS, workers }
    }
}

impl<'a> Subject<'a> {
    fn serving(&self) -> Option<&'a Generation> {
        self.generations.iter().rev().find(|generation| generation.state.is_in_force())
    }

    /// All workers, with their configurations and places.
    fn workers(&self) -> impl Iterator<Item = (&'a Generation, usize, &'a Process)> {
        let all = self.generations.iter().flat_map(|g| g.processes.workers().map(move |worker| (g, worker)));
        all.filter_map(|(generation, worker)| match worker.duty {
            Duty::Worker(place) => Some((generation, place, worker)),
            _ => None,
        })
    }
}

/// The settings that are numbers, words or switches.
fn single_values(settings: &crate::config::Settings) -> serde_json::Map<String, serde_json::Value> {
    let Ok(serde_json::Value::Object(mut all)) = serde_json::to_value(settings) else {
        return serde_json::Map::new();
    };
    all.retain(|_, value| value.is_number() || value.is_string() || value.is_boolean());
    all
}

#[cfg(test)]
#[path = "control_socket_tests.rs"]
mod tests;
