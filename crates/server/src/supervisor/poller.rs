//! The supervisor's epoll instance, and the tokens of everything that it watches.

use std::io;

use flash_prompt::AsFd;
use flash_prompt::epoll::{Epoll, Watch};

/// The descriptors that the loop watches.
pub(super) struct Poller {
    pub(super) epoll: Epoll,
    pub(super) last_token: u64,
}

/// A descriptor that is watched for input, with the token of its events.
#[derive(Debug)]
pub(super) struct Watched<T> {
    pub(super) token: u64,
    pub(super) item: T,
}

impl Poller {
    /// With tokens after this one.
    ///
    /// Errors: `EMFILE`, `ENFILE`.
    pub(super) fn new(last_token: u64) -> io::Result<Self> {
        Ok(Self { epoll: Epoll::new(64)?, last_token })
    }

    /// A token that nothing else has had.
    pub(super) fn new_token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }

    /// Watches `item` for input, under a new token.
    pub(super) fn watch<T: AsFd>(&mut self, item: T) -> io::Result<Watched<T>> {
        let token = self.new_token();
        self.epoll.add(&item, token, Watch::Input)?;
        Ok(Watched { token, item })
    }

    /// Watches again what was forgotten.
    pub(super) fn watch_again<T: AsFd>(&self, watched: &Watched<T>) -> io::Result<()> {
        self.epoll.add(&watched.item, watched.token, Watch::Input)
    }

    /// Watches it no longer. For a descriptor of which another process may have a copy: closing it is not enough then.
    pub(super) fn forget<T: AsFd>(&self, watched: &Watched<T>) {
        // This fails only if it is not watched.
        let _ = self.epoll.remove(&watched.item);
    }

    /// The tokens of descriptors with events, after up to `timeout_ms` milliseconds; None has no limit.
    pub(super) fn events(&mut self, timeout_ms: Option<u64>) -> io::Result<Vec<u64>> {
        Ok(self.epoll.wait(timeout_ms)?.map(|ready| ready.token).collect())
    }
}
