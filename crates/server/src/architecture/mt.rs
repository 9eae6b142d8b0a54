//! MT, multi-threaded: each thread serves one connection at a time, from accept to close, and waits for the disk itself; all
//! threads share one engine and its caches (flash-1999, section 3.2).
//!
//! A turn of the engine runs under a lock and makes only calls that do not wait. Work that may wait leaves it as a job: the
//! thread releases the lock, does the job, and takes the lock again. The main thread has no connection: it receives the
//! supervisor's orders, keeps the time, and continues connections whose threads sleep.

use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use flash_engine::{JobId, Key, Outcome};
use flash_prompt::OwnedFd;
use flash_prompt::epoll::{Epoll, Ready, Watch};
use flash_prompt::mechanism::{Awaited, Mechanism, MechanismKind};
use flash_prompt::{channel, net};
use flash_waiting::process;
use flash_worker::amped::PROMPT;
use flash_worker::control::CHANNEL_BYTES;
use flash_worker::{
    Accepts, Call, OwnJob, OwnJobs, SiteFile, Socket, Worker, kind, note_call, of_job, parts, timed, token,
};

use crate::config::Settings;
use crate::config::architecture::STACK_BYTES;
use crate::helper::DiskWork;
use crate::start::{Begun, close};
use crate::threads::{self, Confined};

/// Maximum times that a thread lets waiting threads go first before each turn of a long answer.
const YIELDS_MAX: usize = 100;
/// Ready descriptors taken from the kernel at once: a thread has one connection, and one more descriptor can wake it.
const EVENTS_MAX: usize = 8;

struct Shared {
    state: Mutex<State>,
    /// Threads that wait for the lock, or are about to take it.
    waiting: AtomicUsize,
    work: DiskWork,
    /// A thread that leaves a job to others sends on it, which wakes a thread without a connection.
    wake_up: (OwnedFd, OwnedFd),
}

struct State {
    worker: Worker,
    listeners: Vec<OwnedFd>,
    /// Threads that take the lock again at once, because their connections continue.
    going_on: usize,
    /// The error with which a thread ended, which ends all threads.
    failure: Option<io::Error>,
}

pub(super) fn run(mut begun: Begun, settings: &Settings, descriptors_max: u64) -> io::Result<()> {
    let work = begun.disk_work(settings)?;
    let listeners = std::mem::take(&mut begun.listeners);
    let mut worker =
        begun.worker(settings, descriptors_max, PROMPT, Some(OwnJobs::default()), Accepts::All)?;
    // The main thread waits without the lock.
    let mut mechanism = std::mem::replace(&mut worker.mechanism, Mechanism::new(MechanismKind::Epoll, 1)?);
    let wake_up = channel::pair(CHANNEL_BYTES)?;
    channel::set_nonblocking(&wake_up.0)?;
    channel::set_nonblocking(&wake_up.1)?;
    let idle = Epoll::new(EVENTS_MAX)?;
    idle.add(&wake_up.1, token(kind::WAKE_UP, 0), Watch::Input)?;
    // One extra thread never has a connection, so that jobs are done even while all others are busy.
    let spare = Epoll::new(EVENTS_MAX)?;
    spare.add(&wake_up.1, token(kind::WAKE_UP, 0), Watch::Input)?;
    worker.begin_turn(0);
    let state = State { worker, listeners, going_on: 0, failure: None };
    // The threads use it until the process ends.
    let shared: &Shared =
        Box::leak(Box::new(Shared { state: Mutex::new(state), waiting: AtomicUsize::new(0), work, wake_up }));
    start_threads(shared, settings, spare, &idle).map_err(|e| {
        let advice = "use fewer --threads, or raise the descriptor limit (ulimit -n)";
        io::Error::new(e.kind(), format!("cannot start {} threads: {e}; {advice}", settings.threads))
    })?;
    {
        let state = shared.lock();
        state.worker.ready(close(&state.worker, settings, Some(&shared.work))?)?;
        // Only now, because a thread must not serve before the worker is ready. Edge-triggered: of several waiting
        // threads, one wakes.
        for (number, listener) in state.listeners.iter().enumerate() {
            idle.add(listener, token(kind::LISTENER, number as u64), Watch::Connection)?;
        }
    }
    shared.keep_time(&mut mechanism, &idle)
}

/// Starts the threads, one of them with `spare`, and waits until each has closed its sandbox: a thread started after
/// the process has closed its own would not have one.
fn start_threads(shared: &'static Shared, settings: &Settings, spare: Epoll, idle: &Epoll) -> io::Result<()> {
    let mut waits = vec![spare];
    for _ in 0..settings.threads {
        waits.push(idle.try_clone()?);
    }
    let mut threads = Vec::with_capacity(waits.len());
    for idle in waits {
        let settings = settings.clone();
        let thread = Thread { shared, idle, busy: Epoll::new(EVENTS_MAX)?, key: None, handle: None };
        threads.push(Confined {
            confine: move || {
                // If this fails, threads are only switched more often.
                let _ = process::never_preempt_others();
                close(&shared.lock().worker, &settings, Some(&shared.work)).map(drop)
            },
            work: move || thread.run(),
        });
    }
    threads::start("connection", Some(STACK_BYTES), threads)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // The engine closes a connection whose turn panics and stays consistent; other panics are handled below.
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        state
    }

    /// Takes the lock in a thread that has just released it: waiting threads go first, which the lock itself does not
    /// ensure.
    fn lock_again(&self) -> MutexGuard<'_, State> {
        for _ in 0..YIELDS_MAX {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                break;
            }
            thread::yield_now();
        }
        self.lock()
    }

    /// The loop of the main thread. It starts no job, and so never waits for a disk.
    fn keep_time(&self, mechanism: &mut Mechanism, idle: &Epoll) -> io::Result<()> {
        let mut timeout_ms = Some(0);
        let mut batch = Vec::new();
        loop {
            batch.clear();
            mechanism.wait(timeout_ms, |_| Some(Awaited::INPUT), &mut batch)?;
            let mut state = self.lock();
            state.begin_turn(batch.len(), false);
            // A new channel to another keeper is watched by this thread.
            std::mem::swap(mechanism, &mut state.worker.mechanism);
            let handled = state.worker.dispatch(&batch);
            std::mem::swap(mechanism, &mut state.worker.mechanism);
            handled?;
            state.worker.end_turn();
            if state.worker.is_draining() {
                // The supervisor and other workers keep theirs, and were also woken for the queued connections.
                for listener in state.listeners.drain(..) {
                    let _ = idle.remove(&listener);
                }
            }
            if let Some(error) = state.failure.take() {
                return Err(error);
            }
            if state.worker.is_over() {
                return Ok(());
            }
            timeout_ms = state.worker.until_next()?;
            state.pass_jobs_on(&self.wake_up.0);
            drop(state);
        }
    }
}

impl State {
    /// Begins a turn of a thread with these events; `has_room` is whether it can do a job afterwards.
    fn begin_turn(&mut self, events: usize, has_room: bool) {
        self.worker.begin_turn(events);
        if let Some(own) = &mut self.worker.sys.own {
            own.has_room = has_room;
        }
    }

    /// Handles the work that a thread leaves when it releases the lock for longer.
    fn leave(&mut self, wake_up: &OwnedFd) -> io::Result<()> {
        self.worker.close_returned();
        self.worker.release_blocks();
        // Continues connections whose own threads may be asleep.
        if self.worker.until_next()? == Some(0) && self.going_on == 0 {
            self.worker.wake_loop()?;
        }
        self.pass_jobs_on(wake_up);
        Ok(())
    }

    /// Makes a thread without a connection take jobs that found no other thread.
    fn pass_jobs_on(&mut self, wake_up: &OwnedFd) {
        if self.worker.sys.own.as_mut().is_some_and(|own| std::mem::take(&mut own.refused)) {
            // A full counter already wakes a thread.
            let _ = channel::send(wake_up, &[io::IoSlice::new(&[0])], &[]);
            note_call(Call::Message);
        }
    }
}

struct Thread {
    shared: &'static Shared,
    /// The epoll that it waits on without a connection, shared by all.
    idle: Epoll,
    /// The epoll that it waits on with a connection.
    busy: Epoll,
    key: Option<Key>,
    /// Keeps the connection's socket open to wait on, in case the engine closes it meanwhile.
    handle: Option<Arc<OwnedFd>>,
}

impl Thread {
    fn run(mut self) {
        let mut batch = Vec::with_capacity(EVENTS_MAX);
        loop {
            let epoll = if self.handle.is_some() { &mut self.busy } else { &mut self.idle };
            batch.clear();
            let turned = epoll.wait(None).map(|ready| batch.extend(ready)).and_then(|()| {
                catch_unwind(AssertUnwindSafe(|| self.turn(&batch))).unwrap_or_else(|_| self.cut())
            });
            if let Err(e) = turned {
                let mut state = self.shared.lock();
                state.failure.get_or_insert(e);
                // Without a timer no thread can be woken.
                let _ = state.worker.wake_loop();
                return;
            }
        }
    }

    /// A bug: the thread panicked outside of a connection's turn. It costs its connection.
    fn cut(&mut self) -> io::Result<()> {
        self.handle = None;
        let mut state = self.shared.lock();
        state.begin_turn(0, false);
        if let Some(key) = self.key.take() {
            state.worker.cut(key);
        }
        state.leave(&self.shared.wake_up.0)
    }

    fn turn(&mut self, batch: &[Ready]) -> io::Result<()> {
        let shared = self.shared;
        let mut state = shared.lock();
        self.handle = None;
        state.begin_turn(batch.len(), true);
        state.worker.count_dispatch(batch);
        for ready in batch {
            match parts(ready.token) {
                (kind::CONNECTION, _) => state.worker.handle_event(*ready)?,
                (kind::LISTENER, number) => self.accept(&mut state, number as usize)?,
                _ => {
                    // One thread takes it, and that thread has room for a job.
                    let _ = channel::recv(&shared.wake_up.1, &mut [0], &mut Vec::new());
                }
            }
        }
        let mut state = go_on(shared, state, self.key)?;
        let socket = self.key.and_then(|key| state.worker.engine.connection(key));
        self.handle = socket.and_then(Socket::share);
        if self.handle.is_none() {
            self.key = None;
        }
        state.leave(&shared.wake_up.0)
    }

    fn accept(&mut self, state: &mut State, number: usize) -> io::Result<()> {
        let Some(listener) = state.listeners.get(number) else { return Ok(()) };
        if self.key.is_none() {
            let accepted = net::accept(listener);
            note_call(Call::Accept);
            match accepted {
                Ok((socket, peer)) => {
                    let socket = Socket::Shared(Arc::new(socket));
                    self.key = state.worker.welcome(socket, peer, Some(&self.busy));
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The client has left.
                Err(e) if matches!(e.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(_) => state.worker.accept_at_limit(listener),
            }
        }
        // More may be queued for other threads; the kernel wakes them only on a change.
        let listener = state.listeners.get(number);
        listener.map_or(Ok(()), |listener| {
            self.idle.change(listener, token(kind::LISTENER, number as u64), Watch::Connection)
        })
    }
}

/// Does a job without the lock.
fn do_job(shared: &Shared, job: OwnJob) -> (JobId, Outcome<SiteFile>) {
    match job {
        OwnJob::Task(id, task) => {
            let do_it = || catch_unwind(AssertUnwindSafe(|| shared.work.do_task(&task)));
            let outcome = timed(Call::Job, || of_job(&task), do_it);
            (id, outcome.unwrap_or(Outcome::Lost))
        }
        OwnJob::Close(id, file) => {
            timed(Call::CloseFile, || None, || drop(file));
            (id, Outcome::Closed)
        }
    }
}

/// Continues with the rest of the turn and does the jobs that it started, until the thread's connection has nothing
/// left to do.
fn go_on(
    shared: &'static Shared,
    mut state: MutexGuard<'static, State>,
    key: Option<Key>,
) -> io::Result<MutexGuard<'static, State>> {
    loop {
        state.worker.go_on();
        if let Some(job) = state.worker.take_job() {
            state.leave(&shared.wake_up.0)?;
            drop(state);
            let (id, outcome) = do_job(shared, job);
            state = shared.lock();
            state.begin_turn(0, true);
            state.worker.finish_own(id, outcome);
        } else if key.is_some_and(|key| state.worker.engine.is_continued(key)) {
            state.going_on += 1;
            drop(state);
            state = shared.lock_again();
            state.going_on -= 1;
            state.begin_turn(0, true);
        } else {
            return Ok(state);
        }
    }
}
