//! The thread that computes TLS handshakes ([`Handshakes`]), as the event loop sees it: a channel of messages, each with the number of a
//! connection that can go on. Called by [`Worker`](crate::Worker).

use std::io::ErrorKind;
use std::sync::Arc;

use flash_engine::Key;
use flash_prompt::{AsFd, BorrowedFd, OwnedFd, channel};
use flash_tls::Handshakes;

/// The length of a message: the number of a connection, of 64 bits.
const MESSAGE_BYTES: usize = 8;
/// Once handshakes have waited for so long while the thread has computed none, since its core is busy, the loop computes one each turn.
const PATIENCE_MS: u64 = 50;

/// The thread.
#[derive(Debug)]
pub(crate) struct HandshakeThread {
    channel: OwnedFd,
    queue: Arc<Handshakes>,
    progress: Progress,
}

/// When the thread last made progress.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// How many handshakes it had computed.
    computed: u64,
    since_ms: u64,
}

impl Progress {
    /// Whether the thread has made none for too long. It needs none while no handshake waits.
    fn is_missed(&mut self, computed: u64, has_waiting: bool, now_ms: u64) -> bool {
        if computed != self.computed || !has_waiting {
            *self = Self { computed, since_ms: now_ms };
        }
        now_ms >= self.since_ms + PATIENCE_MS
    }
}

/// A message of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Computed {
    Nothing,
    /// The handshake of this connection can go on.
    Connection(Key),
    Ended,
}

impl HandshakeThread {
    pub(crate) fn new(channel: OwnedFd, queue: Arc<Handshakes>) -> Self {
        Self { channel, queue, progress: Progress::default() }
    }

    /// The next message. After the end, the loop computes handshakes.
    pub(crate) fn receive(&self) -> Computed {
        let mut bytes = [0; MESSAGE_BYTES];
        match channel::take(&self.channel, &mut bytes) {
            Ok(MESSAGE_BYTES) => Computed::Connection(Key::from_u64(u64::from_ne_bytes(bytes))),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Computed::Nothing,
            Ok(_) | Err(_) => {
                self.queue.thread_ended();
                Computed::Ended
            }
        }
    }

    /// Computes a handshake if the thread does not come to it. Returns the connection that can go on.
    pub(crate) fn help(&mut self, now_ms: u64) -> Option<Key> {
        let is_missed = self.progress.is_missed(self.queue.computed(), self.queue.has_waiting(), now_ms);
        is_missed.then(|| self.queue.help()).flatten().map(Key::from_u64)
    }

    /// When [`HandshakeThread::help`] is next needed.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.queue.has_waiting().then_some(self.progress.since_ms + PATIENCE_MS)
    }
}

impl AsFd for HandshakeThread {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;

    #[test]
    fn the_thread_says_which_connection_goes_on_and_that_it_has_ended() {
        let (ours, theirs) = channel::pair(4096).expect("a pair");
        let mut thread = HandshakeThread::new(ours, Arc::new(Handshakes::new(|| ())));
        assert_eq!(thread.receive(), Computed::Nothing);
        let key = Key::from_u64(7 << 32 | 1);
        channel::send(&theirs, &[IoSlice::new(&key.to_u64().to_ne_bytes())], &[]).expect("sent");
        assert_eq!(thread.receive(), Computed::Connection(key));
        assert_eq!((thread.help(1_000), thread.next_ms()), (None, None), "nothing waits");
        drop(theirs);
        assert_eq!(thread.receive(), Computed::Ended);
    }

    #[test]
    fn the_loop_helps_while_the_thread_computes_nothing() {
        let mut progress = Progress::default();
        // How many the thread has computed, whether others wait, and the time.
        let mut is_missed = |computed, has_waiting, now_ms| progress.is_missed(computed, has_waiting, now_ms);
        assert!(!is_missed(0, false, 10_000), "nothing waits");
        assert!(!is_missed(0, true, 10_000 + PATIENCE_MS - 1));
        assert!(is_missed(0, true, 10_000 + PATIENCE_MS) && is_missed(0, true, 10_000 + PATIENCE_MS));
        assert!(!is_missed(1, true, 11_000), "it has computed one");
        assert!(is_missed(1, true, 11_000 + PATIENCE_MS));
    }
}
