//! Handshakes that a thread of its own computes. A signature with an RSA key keeps a core for half a millisecond, and in the event loop
//! all other clients would wait for it. So the connection leaves the loop for as long: the loop queues it ([`RecordLayer::pull`]), the thread
//! computes it ([`Handshakes::compute`]), and the loop takes it back when it is told.
//!
//! The loop waits for no lock here: if the thread has one at that moment, the loop does the work itself or looks again later. The thread runs
//! only while its core is free, so the loop also computes what waits while the thread computes nothing ([`Handshakes::help`]).

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flash_engine::{Handshake, ReceiveCall, RecordLayer, SendCall};
use rustls::ServerConnection;

use crate::records::TlsRecords;

type Records = Box<TlsRecords<ServerConnection>>;

/// The connections whose handshakes wait for the thread. The engine bounds them for each client and in total.
pub struct Handshakes {
    waiting: Mutex<VecDeque<Arc<Job>>>,
    wake: Box<dyn Fn() + Send + Sync>,
    has_thread: AtomicBool,
    /// How many have been queued.
    queued: AtomicU64,
    /// How many of them the thread or the loop has taken.
    taken: AtomicU64,
    /// How many the thread has computed.
    computed: AtomicU64,
}

impl fmt::Debug for Handshakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handshakes")
    }
}

/// A connection outside of the loop.
#[derive(Debug)]
struct Job {
    connection: Arc<AtomicU64>,
    stage: Mutex<Stage>,
}

#[derive(Debug)]
enum Stage {
    Waiting(Records),
    Computed(Records, io::Result<()>),
    /// The thread has it, or the loop.
    Elsewhere,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Handshakes {
    /// `wake` wakes the thread. It must not wait.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            waiting: Mutex::default(),
            wake: Box::new(wake),
            has_thread: AtomicBool::new(true),
            queued: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            computed: AtomicU64::new(0),
        }
    }

    /// The thread has ended: from now on the loop computes all handshakes. Those under way end at their deadlines.
    pub fn thread_ended(&self) {
        self.has_thread.store(false, Relaxed);
    }

    /// Whether handshakes wait, for the loop.
    pub fn has_waiting(&self) -> bool {
        self.queued.load(Relaxed) > self.taken.load(Relaxed)
    }

    /// How many the thread has computed.
    pub fn computed(&self) -> u64 {
        self.computed.load(Relaxed)
    }

    /// Computes the next handshake, in the thread. Returns the number of its connection, which can go on then; None if no handshake
    /// waits.
    pub fn compute(&self) -> Option<u64> {
        let job = lock(&self.waiting).pop_front()?;
        let connection = self.work(&job);
        self.computed.fetch_add(1, Relaxed);
        Some(connection)
    }

    /// The same in the loop.
    pub fn help(&self) -> Option<u64> {
        let job = self.waiting.try_lock().ok()?.pop_front()?;
        Some(self.work(&job))
    }

    fn work(&self, job: &Arc<Job>) -> u64 {
        self.taken.fetch_add(1, Relaxed);
        if Arc::strong_count(job) == 1 {
            // The connection has closed.
            return job.connection.load(Relaxed);
        }
        let stage = std::mem::replace(&mut *lock(&job.stage), Stage::Elsewhere);
        if let Stage::Waiting(mut records) = stage {
            let result = records.process();
            *lock(&job.stage) = Stage::Computed(records, result);
        }
        job.connection.load(Relaxed)
    }

    /// Queues a connection. Returns it if the loop must compute its handshake itself.
    fn submit(&self, records: Records, connection: &Arc<AtomicU64>) -> Result<Arc<Job>, Records> {
        let Ok(mut waiting) = self.waiting.try_lock() else { return Err(records) };
        if !self.has_thread.load(Relaxed) {
            return Err(records);
        }
        let stage = Mutex::new(Stage::Waiting(records));
        let job = Arc::new(Job { connection: Arc::clone(connection), stage });
        waiting.push_back(Arc::clone(&job));
        self.queued.fetch_add(1, Relaxed);
        drop(waiting);
        (self.wake)();
        Ok(job)
    }
}

/// The record layer of a connection whose handshake the thread computes.
#[derive(Debug)]
pub(crate) struct AwayRecords {
    place: Place,
    handshakes: Arc<Handshakes>,
    connection: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Place {
    Here(Records),
    Away(Arc<Job>),
    /// Only while it changes between the two.
    Between,
}

impl AwayRecords {
    /// A new connection. The loop writes its number to `connection` before it receives.
    pub(crate) fn new(
        records: TlsRecords<ServerConnection>,
        handshakes: Arc<Handshakes>,
        connection: Arc<AtomicU64>,
    ) -> Self {
        Self { place: Place::Here(Box::new(records)), handshakes, connection }
    }

    fn here(&self) -> Option<&Records> {
        match &self.place {
            Place::Here(records) => Some(records),
            Place::Away(_) | Place::Between => None,
        }
    }

    fn here_mut(&mut self) -> Option<&mut Records> {
        match &mut self.place {
            Place::Here(records) => Some(records),
            Place::Away(_) | Place::Between => None,
        }
    }
}

impl RecordLayer for AwayRecords {
    fn is_handshaking(&self) -> bool {
        self.here().is_none_or(|records| records.is_handshaking())
    }

    fn handshake(&self) -> Option<Handshake> {
        self.here()?.handshake()
    }

    fn take_back(&mut self) -> io::Result<bool> {
        let Place::Away(job) = &self.place else { return Ok(true) };
        let Ok(mut stage) = job.stage.try_lock() else { return Ok(false) };
        if !matches!(*stage, Stage::Computed(..)) {
            return Ok(false);
        }
        let Stage::Computed(records, result) = std::mem::replace(&mut *stage, Stage::Elsewhere) else {
            return Ok(false);
        };
        drop(stage);
        self.place = Place::Here(records);
        result.map(|()| true)
    }

    fn pull(&mut self, receive: &mut ReceiveCall<'_>) -> io::Result<usize> {
        let Some(records) = self.here_mut() else { return Err(ErrorKind::WouldBlock.into()) };
        if !records.is_handshaking() {
            return records.pull(receive);
        }
        let received = records.receive(receive)?;
        if received == 0 {
            return records.process().map(|()| 0);
        }
        let Place::Here(records) = std::mem::replace(&mut self.place, Place::Between) else {
            return Ok(received);
        };
        match self.handshakes.submit(records, &self.connection) {
            Ok(job) => {
                self.place = Place::Away(job);
                Ok(received)
            }
            Err(mut records) => {
                let processed = records.process();
                self.place = Place::Here(records);
                processed.map(|()| received)
            }
        }
    }

    fn read(&mut self, plaintext: &mut [u8]) -> usize {
        self.here_mut().map_or(0, |records| records.read(plaintext))
    }

    fn has_plaintext(&self) -> bool {
        self.here().is_some_and(|records| records.has_plaintext())
    }

    fn has_ended(&self) -> bool {
        self.here().is_some_and(|records| records.has_ended())
    }

    fn write(&mut self, first: &[u8], second: &[u8]) {
        if let Some(records) = self.here_mut() {
            records.write(first, second);
        }
    }

    fn end(&mut self) {
        if let Some(records) = self.here_mut() {
            records.end();
        }
    }

    fn wants_write(&self) -> bool {
        self.here().is_some_and(|records| records.wants_write())
    }

    fn push(&mut self, send: &mut SendCall<'_>) -> io::Result<usize> {
        self.here_mut().map_or(Ok(0), |records| records.push(send))
    }
}
