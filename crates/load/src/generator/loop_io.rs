//! The state that a generator's flows share: the poller, the timers, the way out for records, the clock.
//!
//! The event loop owns it and lends it to a flow with each call.

use flash_prompt::clock;
use flash_prompt::epoll::Epoll;

use super::collect::{Outbox, Shared};
use super::h2::mux::Mux;
use super::timers::Timers;

/// The state that all flows of a generator share.
pub(crate) struct Io<'a> {
    pub(crate) epoll: Epoll,
    /// The connections of all flows, if these use HTTP/2.
    pub(crate) mux: Option<Mux>,
    /// Room for what is encrypted.
    pub(crate) cipher: Vec<u8>,
    pub(crate) timers: Timers,
    pub(crate) outbox: Outbox,
    pub(crate) shared: &'a Shared,
    pub(crate) thread: u8,
    /// When it last looked at the clock, nanoseconds since the start of the phase.
    pub(crate) now_ns: u64,
}

impl Io<'_> {
    #[inline]
    pub(crate) fn look(&mut self) -> u64 {
        self.now_ns = clock::monotonic_ns().saturating_sub(self.shared.start_ns);
        self.now_ns
    }
}
