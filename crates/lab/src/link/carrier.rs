//! The thread that carries packets between the two TUN devices of a link, through a [`Pipe`] for each direction.
//!
//! [`Link`](super::Link) starts it. It takes packets in batches and sleeps until the next one comes or is due, to the
//! microsecond. It runs before all ordinary threads where the process is allowed to arrange that, because it stands for a wire,
//! which would not wait for a busy server either. How late it was all the same is counted.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flash_kit::{Error, Result};
use flash_waiting::network::{self, OnTime, Tun, Waker};
use flash_waiting::program;

use super::counters::{Counters, Direction, Punctuality};
use super::pipe::Pipe;
use super::settings::Settings;

/// Packets taken from one device before the other one has its turn.
const BATCH: usize = 64;
/// Longer than any packet of a TUN device.
const BUFFER_BYTES: usize = 65_536;

/// A thread that carries packets until it is dropped.
#[derive(Debug)]
pub(super) struct Carrier {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// The server's, then the client's.
    tuns: [Tun; 2],
    waker: Waker,
    started: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// To the client, then to the server: from the device with the same number.
    pipes: [Pipe; 2],
    punctuality: Punctuality,
    work: Work,
}

/// Whether the thread goes on.
#[derive(Debug)]
enum Work {
    Carry,
    End,
    /// It has ended by itself, for this reason.
    Broken(String),
}

impl Carrier {
    /// Starts the thread. The devices are the server's, then the client's.
    ///
    /// Errors: run, if the system has no thread or descriptor left.
    pub(super) fn start(settings: &Settings, tuns: [Tun; 2]) -> Result<Self> {
        let failed = |why: io::Error| Error::run(format!("cannot start the thread of the link: {why}"));
        // The two directions must not lose the same packets, so each has a seed of its own.
        let seed = settings.seed.wrapping_mul(2);
        let to_client = Pipe::new(&settings.to_client, settings, seed);
        let to_server = Pipe::new(&settings.to_server, settings, seed.wrapping_add(1));
        let state =
            State { pipes: [to_client, to_server], punctuality: Punctuality::default(), work: Work::Carry };
        let shared = Arc::new(Shared {
            tuns,
            waker: Waker::make().map_err(failed)?,
            started: Instant::now(),
            state: Mutex::new(state),
        });
        let its = Arc::clone(&shared);
        let core = settings.core;
        let work = move || {
            network::wake_on_time(OnTime::Device);
            let placed = core.map_or(Ok(()), |core| program::pin_thread(&[core]));
            if let Err(why) = placed.and_then(|()| its.carry()) {
                its.lock().work = Work::Broken(why.to_string());
            }
        };
        let thread = thread::Builder::new().name("link".to_owned()).spawn(work).map_err(failed)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The counts until now, without those of the kernel.
    ///
    /// Errors: run, if the thread has ended by itself.
    pub(super) fn counters(&self) -> Result<Counters> {
        let state = self.shared.lock();
        if let Work::Broken(why) = &state.work {
            return Err(Error::run(format!("the link has broken down: a TUN device failed: {why}")));
        }
        let [to_client, to_server] =
            state.pipes.each_ref().map(|pipe| Direction { bands: pipe.counts, missed_packets: 0 });
        Ok(Counters { to_client, to_server, punctuality: state.punctuality })
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.shared.lock().work = Work::End;
        self.shared.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since the start; 580 years fit.
    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Carries packets until it is told to end.
    fn carry(&self) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            self.waker.clear();
            let due_ns = {
                let mut state = self.lock();
                if !matches!(state.work, Work::Carry) {
                    return Ok(());
                }
                for direction in [0, 1] {
                    self.deliver(&mut state, direction);
                    self.take(&mut state, direction, &mut buffer)?;
                    self.deliver(&mut state, direction);
                }
                state.punctuality.cpu_ns = program::thread_cpu_ns();
                state.pipes.iter().filter_map(Pipe::next_due_ns).min()
            };
            let timeout = due_ns.map(|due_ns| Duration::from_nanos(due_ns.saturating_sub(self.now_ns())));
            if timeout != Some(Duration::ZERO) {
                network::wait([&self.tuns[0], &self.tuns[1]], &self.waker, timeout)?;
            }
        }
    }

    /// Takes the packets that the sender of this direction has sent.
    fn take(&self, state: &mut State, direction: usize, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..BATCH {
            let Some(packet) = self.tuns[direction].read(buffer)? else { return Ok(()) };
            state.pipes[direction].handle_packet(self.now_ns(), packet);
        }
        Ok(())
    }

    /// Passes on the packets that arrive at the receiver of this direction.
    fn deliver(&self, state: &mut State, direction: usize) {
        let State { pipes, punctuality, .. } = state;
        let pipe = &mut pipes[direction];
        loop {
            let now_ns = self.now_ns();
            let Some(delivery) = pipe.poll_delivery(now_ns) else { return };
            punctuality.add(now_ns - delivery.due_ns);
            if self.tuns[1 - direction].write(&delivery.bytes).is_err() {
                pipe.handle_refusal(&delivery);
            }
        }
    }
}
