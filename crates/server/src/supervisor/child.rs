//! The supervisor's children: who ended them.

use std::cell::Cell;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use flash_waiting::process;
use flash_waiting::sandbox::VIOLATION_EXIT_CODE;

/// The signal that the kernel sends when memory runs out.
const SIGKILL: i32 = 9;
/// Helpers that others end are reported at most this often.
const REPORT_PAUSE_MS: u64 = 10_000;

/// A child process, and whether the supervisor has killed it.
#[derive(Debug)]
pub(super) struct Subprocess {
    child: Child,
    is_killed: Cell<bool>,
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    status: ExitStatus,
    /// Whether the supervisor has killed it.
    is_own: bool,
}

/// The helpers that others than Flash have ended.
#[derive(Debug, Default)]
pub(super) struct LostHelpers {
    count: u64,
    last: Option<Ending>,
    pause_until_ms: u64,
}

impl Subprocess {
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn kill(&self) {
        self.is_killed.set(true);
        process::kill(&self.child);
    }

    /// Its end, if it has ended. That reaps it.
    pub(super) fn ending(&mut self) -> Option<Ending> {
        let status = self.child.try_wait().ok()??;
        Some(Ending { status, is_own: self.is_killed.get() })
    }
}

impl From<Child> for Subprocess {
    fn from(child: Child) -> Self {
        Self { child, is_killed: Cell::new(false) }
    }
}

impl Ending {
    pub(super) fn is_success(self) -> bool {
        self.status.success()
    }

    pub(super) fn code(self) -> Option<i32> {
        self.status.code()
    }
}

impl From<ExitStatus> for Ending {
    /// The end of a process that the supervisor has not killed.
    fn from(status: ExitStatus) -> Self {
        Self { status, is_own: false }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.status.code() == Some(VIOLATION_EXIT_CODE) {
            return f.write_str("killed by its sandbox");
        }
        write!(f, "{}", self.status)?;
        if self.status.signal() == Some(SIGKILL) && !self.is_own {
            f.write_str(", not sent by Flash; if memory ran out, dmesg says so")?;
        }
        Ok(())
    }
}

impl LostHelpers {
    /// Notes the end of a helper.
    pub(super) fn note(&mut self, end: Ending) {
        if end.status.signal().is_some() && !end.is_own {
            self.count += 1;
            self.last = Some(end);
        }
    }

    /// A message for the operator, if there is one and it is time.
    pub(super) fn report(&mut self, now_ms: u64) -> Option<String> {
        let end = self.last.filter(|_| now_ms >= self.pause_until_ms)?;
        self.pause_until_ms = now_ms + REPORT_PAUSE_MS;
        self.last = None;
        Some(match std::mem::take(&mut self.count) {
            1 => format!("a helper ended ({end})"),
            count => format!("{count} helpers ended, the last one ({end})"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_kill_by_others_hints_at_memory() {
        let hint = ", not sent by Flash; if memory ran out, dmesg says so";
        let text = |raw, is_own| Ending { status: ExitStatus::from_raw(raw), is_own }.to_string();
        assert_eq!(text(SIGKILL, false), format!("signal: 9 (SIGKILL){hint}"));
        assert_eq!(text(SIGKILL, true), "signal: 9 (SIGKILL)");
        assert_eq!(text(15, false), "signal: 15 (SIGTERM)");
        assert_eq!(text(1 << 8, false), "exit status: 1");
        assert_eq!(text(VIOLATION_EXIT_CODE << 8, false), "killed by its sandbox");
    }

    #[test]
    fn many_lost_helpers_make_few_messages() {
        let mut lost = LostHelpers::default();
        let of = |raw, is_own| Ending { status: ExitStatus::from_raw(raw), is_own };
        lost.note(of(SIGKILL, true));
        lost.note(of(0, false));
        assert_eq!(lost.report(100), None, "nothing that others did");
        let mut said = 0;
        for now_ms in 0..=REPORT_PAUSE_MS {
            lost.note(of(11, false));
            said += u64::from(lost.report(now_ms).is_some());
        }
        assert_eq!((said, lost.count), (2, 0));
    }
}
