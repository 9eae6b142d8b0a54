//! The control socket: a client sends a request on one line and receives one document, and then the connection is closed
//! (`docs/stats.md`).
//!
//! The supervisor's loop calls it. No client can block that loop: no call here waits for a client or a worker, and the number of
//! clients, their input, their time and the questions to workers are bounded.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use flash_prompt::epoll::Watch;
use flash_waiting::local;

use super::generation::Generation;
use super::life::{Duty, State as Phase};
use super::poller::{Poller, Watched};
use super::process::Process;
use crate::certificates;
use crate::config::ControlSocket as Wanted;
use crate::stats::{
    self, Answer, Counters, NetworkStats, Request, STALL_NS, ServerStalls, ServerStats, States, StoreStats,
    WorkerStalls, WorkerStats,
};
use flash_worker::control::Order;

/// Maximum clients at once.
const CLIENTS_MAX: usize = 8;
/// Maximum size of a request, including its end.
const REQUEST_BYTES_MAX: usize = 256;
/// Maximum time of a client to ask and to receive its answer.
const CLIENT_MS: u64 = 5_000;
/// Maximum time of the workers to report.
const WORKERS_MS: u64 = 500;
/// Minimum interval between two questions to the workers.
const PAUSE_MS: u64 = 10;
/// Time without accepting clients when the system has no free descriptor.
const SHORTAGE_MS: u64 = 1_000;

/// The socket and its clients.
#[derive(Debug, Default)]
pub(super) struct ControlSocket {
    listening: Option<Listening>,
    clients: Vec<Client>,
    gathering: Option<Gathering>,
    /// The time from which workers may be asked again.
    next_gathering_ms: u64,
    /// The number of the last question to the workers.
    questions: u64,
}

#[derive(Debug)]
struct Listening {
    listener: Watched<UnixListener>,
    path: PathBuf,
    /// Device and inode: another server may later create a socket at the same path.
    file: (u64, u64),
    /// The listener is not watched until then.
    shortage_until_ms: Option<u64>,
}

#[derive(Debug)]
struct Client {
    token: u64,
    stream: UnixStream,
    deadline_ms: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Sends its request.
    Asks(Vec<u8>),
    /// Waits for the workers' reports.
    Waits(Request),
    /// Receives its answer, of which this many bytes were sent.
    Takes(Vec<u8>, usize),
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
    /// The workers that have not reported yet.
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
    /// Listens at the path of the settings. If the default path cannot be created, the server runs without it, with a
    /// warning.
    ///
    /// Errors: the path of the settings cannot be created.
    pub(super) fn open(wanted: &Wanted, poller: &mut Poller) -> io::Result<(Self, Option<String>)> {
        let listening = match wanted {
            Wanted::Off => return Ok((Self::default(), None)),
            Wanted::At(path) => listen(path.to_path_buf(), poller)?,
            Wanted::Default => {
                let made = stats::own_socket().and_then(|path| listen(path, poller));
                match made {
                    Ok(listening) => listening,
                    Err(e) => {
                        let warning = format!("`flash stats` will not work: {e}; see --control");
                        return Ok((Self::default(), Some(warning)));
                    }
                }
            }
        };
        Ok((Self { listening: Some(listening), ..Self::default() }, None))
    }

    /// Handles the event of `token`; false if it does not belong to the control socket.
    pub(super) fn handle(&mut self, token: u64, now_ms: u64, poller: &mut Poller) -> bool {
        if self.listening.as_ref().is_some_and(|listening| listening.listener.token == token) {
            self.accept(now_ms, poller);
            return true;
        }
        let Some(at) = self.clients.iter().position(|client| client.token == token) else { return false };
        if !self.clients[at].go_on() {
            self.clients.swap_remove(at);
        }
        true
    }

    fn accept(&mut self, now_ms: u64, poller: &mut Poller) {
        let Some(listening) = &mut self.listening else { return };
        // As many as there are places, and one more that is refused.
        for _ in 0..=CLIENTS_MAX {
            let stream = match listening.listener.item.accept() {
                Ok((stream, _)) => stream,
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
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let state = State::Asks(Vec::new());
            let mut client =
                Client { token: poller.new_token(), stream, deadline_ms: now_ms + CLIENT_MS, state };
            if self.clients.len() >= CLIENTS_MAX {
                client.answer(&Answer::refusal("too many clients; try again"));
                continue;
            }
            // Edge-triggered: a client that keeps sending while it waits does not wake the loop all the time.
            if poller.epoll().add(&client.stream, client.token, Watch::Connection).is_ok() && client.go_on() {
                self.clients.push(client);
            }
        }
    }

    /// Stores a worker's report.
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
        if let Some(listening) = &mut self.listening
            && listening.shortage_until_ms.is_some_and(|ms| ms <= now_ms)
            && poller.watch_again(&listening.listener).is_ok()
        {
            listening.shortage_until_ms = None;
        }
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
            let request = gathering.request;
            let answer = gathering.answer(now_ms, subject);
            for client in self.clients.iter_mut().filter(|client| client.waits_for() == Some(request)) {
                client.answer(&answer);
            }
            self.clients.retain_mut(|client| !client.is_done());
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

    /// The next deadline, in milliseconds of the monotonic clock.
    pub(super) fn next_ms(&self) -> Option<u64> {
        let shortage = self.listening.as_ref().and_then(|listening| listening.shortage_until_ms);
        let gathering = match &self.gathering {
            Some(gathering) => Some(gathering.deadline_ms),
            None => self.waiting().next().map(|_| self.next_gathering_ms),
        };
        self.clients.iter().map(|client| client.deadline_ms).chain(shortage).chain(gathering).min()
    }

    /// The requests of waiting clients.
    fn waiting(&self) -> impl Iterator<Item = Request> + '_ {
        self.clients.iter().filter_map(Client::waits_for)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        local::remove(&self.path, self.file);
    }
}

fn listen(path: PathBuf, poller: &mut Poller) -> io::Result<Listening> {
    let failed = |e: io::Error| explain(&path, &e);
    let listener = local::listen(&path).map_err(failed)?;
    let file = local::give_to(&path, None).map_err(failed)?;
    Ok(Listening { listener: poller.watch(listener)?, path, file, shortage_until_ms: None })
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

impl Client {
    /// Receives or sends as much as possible now. False if the client is finished.
    fn go_on(&mut self) -> bool {
        if let State::Asks(request) = &mut self.state {
            let mut buffer = [0; REQUEST_BYTES_MAX];
            loop {
                match self.stream.read(&mut buffer) {
                    Ok(0) => return false,
                    Ok(bytes) => request.extend_from_slice(&buffer[..bytes]),
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(_) => return false,
                }
                if request.len() >= REQUEST_BYTES_MAX || request.contains(&b'\n') {
                    break;
                }
            }
            match asked(request) {
                Asked::Nothing => return true,
                Asked::Wanted(request) => self.state = State::Waits(request),
                Asked::Wrong(why) => self.answer(&Answer::refusal(why)),
            }
        }
        self.send();
        !self.is_done()
    }

    fn answer(&mut self, answer: &Answer) {
        self.state = State::Takes(answer.to_line(), 0);
        self.send();
    }

    /// Sends as much as the client takes now.
    fn send(&mut self) {
        let State::Takes(answer, sent) = &mut self.state else { return };
        while *sent < answer.len() {
            match self.stream.write(&answer[*sent..]) {
                Ok(bytes) => *sent += bytes,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // The client has gone.
                Err(_) => *sent = answer.len(),
            }
        }
        // If the socket closed with unread bytes, the client could see an error instead of the end.
        let _ = self.stream.read(&mut [0; 4 * REQUEST_BYTES_MAX]);
    }

    fn waits_for(&self) -> Option<Request> {
        match self.state {
            State::Waits(request) => Some(request),
            State::Asks(_) | State::Takes(..) => None,
        }
    }

    fn is_done(&self) -> bool {
        matches!(&self.state, State::Takes(answer, sent) if *sent == answer.len())
    }
}

/// The parsed request.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    /// It is incomplete.
    Nothing,
    /// A known request.
    Wanted(Request),
    /// An unknown request, with the error.
    Wrong(String),
}

fn asked(request: &[u8]) -> Asked {
    match request.split(|byte| *byte == b'\n').next() {
        Some(line) if line.len() < request.len() => {
            let word = line.strip_suffix(b"\r").unwrap_or(line);
            if let Some(request) = Request::ALL.into_iter().find(|request| request.word().as_bytes() == word)
            {
                return Asked::Wanted(request);
            }
            let line = String::from_utf8_lossy(line).escape_debug().to_string();
            let all = Request::ALL.map(|request| format!("`{}`", request.word())).join(" or ");
            Asked::Wrong(format!("unknown request `{line}`; expected {all}"))
        }
        _ if request.len() < REQUEST_BYTES_MAX => Asked::Nothing,
        _ => Asked::Wrong(format!("a request must be a line of less than {REQUEST_BYTES_MAX} bytes")),
    }
}

impl Gathering {
    fn answer(self, now_ms: u64, subject: &Subject<'_>) -> Answer {
        match self.request {
            Request::Stats => Answer::of(self.stats(now_ms, subject)),
            Request::Stalls => Answer::of_stalls(self.stalls(now_ms, subject)),
        }
    }

    /// The report of this worker.
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
    /// The configuration in force.
    fn serving(&self) -> Option<&'a Generation> {
        self.generations.iter().rev().find(|generation| generation.state == Phase::Serving)
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
