//! The watchdog of systemd (`WatchdogSec=`): it hears that the supervisor's loop turns, and ends the service when it does not. The
//! supervisor itself replaces processes whose loops do not turn (`pulse.rs`). No loop that is asked waits for a disk, so a disk that
//! hangs ends nothing.

use flash_prompt::clock;
use flash_waiting::systemd;

#[derive(Debug)]
pub(super) struct Watchdog {
    interval_ms: u64,
    pub(super) next_ms: u64,
}

impl Watchdog {
    /// None if systemd wants to hear nothing.
    pub(super) fn of_systemd() -> Option<Self> {
        // Half of the time, as sd_watchdog_enabled(3) recommends.
        let interval_ms = systemd::watchdog()?.as_millis() as u64 / 2;
        Some(Self { interval_ms: interval_ms.max(1), next_ms: clock::monotonic_ms() })
    }

    /// Reports when it is time.
    pub(super) fn feed(&mut self, now_ms: u64) {
        if now_ms >= self.next_ms {
            systemd::notify(systemd::State::Alive);
            self.next_ms = now_ms + self.interval_ms;
        }
    }
}
