//! The life of every process of the server, and of a configuration: its states, the rules of each role, and the pauses before
//! a process is replaced.

use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use serde::{Deserialize, Serialize};

use flash_engine::UpstreamId;
use flash_waiting::sandbox::VIOLATION_EXIT_CODE;
use flash_worker::control::CHANNEL_BYTES;
use flash_worker::protocol::MESSAGE_BYTES_MAX;

use crate::program;
use crate::sandbox::Role;

/// The signal that the kernel sends when memory runs out.
const SIGKILL: i32 = 9;
/// Maximum time until a role is ready: generous, since a machine may be busy.
const START_MS: u64 = 60_000;
/// Maximum time until a helper has read its orders.
const HELPER_START_MS: u64 = 10_000;
/// Time after a kill: a process that still exists hangs in the kernel.
const ABANDON_MS: u64 = 2_000;
/// Time of a log writer for the last lines after its workers were killed.
const LAST_LINES_MS: u64 = 2_000;
/// Time of a program to end once no request is left. That of `cgi` needs 2 s for programs that ignore SIGTERM.
const PROGRAM_END_MS: u64 = 3_000;

/// The state of a process, or of all processes of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    Starting,
    Serving,
    /// Serves for an earlier program, until a configuration of this one is ready: nothing of it is replaced.
    Adopted,
    Draining,
    Killed,
    /// The kernel holds it in a call that hangs, so the supervisor does not wait for its end.
    Abandoned,
}

impl State {
    /// Whether new requests are answered.
    pub(super) fn is_in_force(self) -> bool {
        matches!(self, State::Serving | State::Adopted)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Serving => "serving",
            State::Adopted => "adopted",
            State::Draining => "draining",
            State::Killed => "killed",
            State::Abandoned => "abandoned",
        }
    }
}

/// The work that a process has within its configuration, or for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Duty {
    Keeper,
    Log,
    /// Opens the log file again, and takes the place of the log writer when it is ready.
    NextLog,
    /// Writes the last lines that it has.
    OldLog,
    Gateway,
    Watcher,
    /// A process of the program of a route, by number from 1.
    Program(UpstreamId, u64),
    /// A worker, by its place among the workers.
    Worker(usize),
    /// A helper of the worker whose process has this token.
    Helper(u64),
}

/// When a role is asked whether its event loop turns. Only for roles whose loop never waits for a disk: a log writer that is
/// silent may wait for its disk, and another one would wait for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pings {
    Never,
    /// Not while it drains: then it writes to a disk.
    WhileServing,
    Always,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// The name of the role on the command line.
    pub(super) name: &'static str,
    /// Buffer size of its control channel.
    pub(super) channel_bytes: usize,
    /// Maximum time until it is ready; None for a role that does not say so.
    pub(super) start_ms: Option<u64>,
    pub(super) pings: Pings,
    /// Whether it leads a process group, and ends at SIGTERM instead of an order.
    pub(super) leads_group: bool,
    /// Its time to end when its configuration is killed.
    pub(super) grace_ms: u64,
    /// The time after which a killed one is abandoned. None for helpers, whose number a hung one counts towards.
    pub(super) abandon_ms: Option<u64>,
    pub(super) pauses: Pauses,
    /// The consequence for the operator when none can be started.
    pub(super) without: &'static str,
}

/// The pauses before a process that ended is followed by another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pauses {
    /// After a shorter life there is always a pause.
    pub(super) short_ms: u64,
    /// After a longer life there is none, and the pauses begin anew.
    pub(super) calm_ms: u64,
    /// Pauses double up to this one.
    pub(super) max_ms: u64,
}

impl Duty {
    pub(super) fn rules(self) -> Rules {
        let pauses = Pauses { short_ms: 1_000, calm_ms: 60_000, max_ms: 8_000 };
        let rules = Rules {
            name: "",
            channel_bytes: CHANNEL_BYTES,
            start_ms: Some(START_MS),
            pings: Pings::Never,
            leads_group: false,
            grace_ms: 0,
            abandon_ms: Some(ABANDON_MS),
            pauses,
            without: "",
        };
        match self {
            Duty::Keeper => Rules {
                name: Role::Keeper.name(),
                pings: Pings::WhileServing,
                without: "nothing is added to the store until it starts",
                ..rules
            },
            Duty::Log | Duty::NextLog | Duty::OldLog => Rules {
                name: Role::Log.name(),
                grace_ms: LAST_LINES_MS,
                without: "log lines are lost until it starts",
                ..rules
            },
            Duty::Watcher => Rules {
                name: Role::Watcher.name(),
                without: "names are checked, each every freshness, until it starts",
                ..rules
            },
            Duty::Gateway => Rules {
                name: Role::Gateway.name(),
                pings: Pings::Always,
                without: "requests of routes fail until it starts",
                ..rules
            },
            Duty::Program(..) => Rules {
                name: program::ROLE,
                start_ms: None,
                leads_group: true,
                grace_ms: PROGRAM_END_MS,
                pauses: Pauses { short_ms: 5_000, calm_ms: 5_000, max_ms: 30_000 },
                without: "its requests are late or fail until it starts",
                ..rules
            },
            Duty::Worker(_) => Rules {
                name: Role::Worker.name(),
                pauses: Pauses { short_ms: 1_000, calm_ms: 1_000, max_ms: 1_000 },
                without: "its connections are not accepted until it starts",
                ..rules
            },
            Duty::Helper(_) => Rules {
                name: Role::Helper.name(),
                channel_bytes: 2 * MESSAGE_BYTES_MAX,
                start_ms: Some(HELPER_START_MS),
                abandon_ms: None,
                ..rules
            },
        }
    }

    /// The pauses after a process of this duty has ended so.
    pub(super) fn pauses_after(self, end: End) -> Pauses {
        let pauses = self.rules().pauses;
        match self {
            // It may end as it should, for example after some number of requests.
            Duty::Program(..) if end.is_success() => Pauses { short_ms: 1_000, calm_ms: 1_000, ..pauses },
            _ => pauses,
        }
    }
}

impl fmt::Display for Duty {
    /// The process, for messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Duty::Keeper => f.write_str("the store's keeper"),
            Duty::Log | Duty::NextLog | Duty::OldLog => f.write_str("the log writer"),
            Duty::Gateway => f.write_str("the gateway"),
            Duty::Watcher => f.write_str("the watcher"),
            Duty::Program(UpstreamId(route), number) => write!(f, "process {number} of route {route}"),
            Duty::Worker(place) => write!(f, "worker {place}"),
            Duty::Helper(_) => f.write_str("a helper"),
        }
    }
}

/// The message for a process that could not be started again.
pub(super) fn not_started(duty: Duty, error: &io::Error) -> String {
    format!("cannot start {duty}: {error}; {}", duty.rules().without)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// None if it was abandoned.
    pub(super) status: Option<ExitStatus>,
    /// Whether the supervisor has killed it.
    pub(super) is_own: bool,
}

impl End {
    pub(super) fn is_success(self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    pub(super) fn code(self) -> Option<i32> {
        self.status?.code()
    }

    /// Whether another process, or the kernel, has ended it by a signal.
    pub(super) fn is_by_others(self) -> bool {
        !self.is_own && self.status.is_some_and(|status| status.signal().is_some())
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(status) = self.status else { return f.write_str("killed, but it hangs in the kernel") };
        if status.code() == Some(VIOLATION_EXIT_CODE) {
            return f.write_str("killed by its sandbox");
        }
        write!(f, "{status}")?;
        if status.signal() == Some(SIGKILL) && !self.is_own {
            f.write_str(", not sent by Flash; if memory ran out, dmesg says so")?;
        }
        Ok(())
    }
}

/// When a process is replaced. The first time at once, unless it lived only briefly; one that ends again and again is replaced
/// after pauses that double, so that it takes no core from the workers.
#[derive(Debug, Default)]
pub(super) struct Restart {
    /// None while there is a process.
    pub(super) due_ms: Option<u64>,
    /// The next pause; 0 at first.
    pause_ms: u64,
}

impl Restart {
    /// Plans the replacement of a process that has lived so long. One that could not be started has lived 0 ms. Returns the
    /// pause in milliseconds.
    pub(super) fn plan(&mut self, lived_ms: u64, pauses: Pauses, now_ms: u64) -> u64 {
        if lived_ms >= pauses.calm_ms {
            self.pause_ms = 0;
        } else if lived_ms < pauses.short_ms {
            self.pause_ms = self.pause_ms.max(FIRST_PAUSE_MS);
        }
        let pause_ms = self.pause_ms;
        self.due_ms = Some(now_ms + pause_ms);
        self.pause_ms = (2 * pause_ms).clamp(FIRST_PAUSE_MS, pauses.max_ms);
        pause_ms
    }
}

const FIRST_PAUSE_MS: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_kill_by_others_hints_at_memory() {
        let hint = ", not sent by Flash; if memory ran out, dmesg says so";
        let text = |raw, is_own| End { status: Some(ExitStatus::from_raw(raw)), is_own }.to_string();
        assert_eq!(text(SIGKILL, false), format!("signal: 9 (SIGKILL){hint}"));
        assert_eq!(text(SIGKILL, true), "signal: 9 (SIGKILL)");
        assert_eq!(text(15, false), "signal: 15 (SIGTERM)");
        assert_eq!(text(1 << 8, false), "exit status: 1");
        assert_eq!(text(VIOLATION_EXIT_CODE << 8, false), "killed by its sandbox");
        assert!(!End { status: None, is_own: true }.is_success());
    }

    /// The pauses of a process with these lives, in milliseconds.
    fn pauses(rules: Pauses, lives: &[u64]) -> Vec<u64> {
        let mut restart = Restart::default();
        lives.iter().map(|lived_ms| restart.plan(*lived_ms, rules, 100)).collect()
    }

    #[test]
    fn a_role_that_ends_again_and_again_starts_later_and_later() {
        let rules = Duty::Gateway.rules().pauses;
        let lives = [5_000; 6];
        assert_eq!(pauses(rules, &lives), [0, 1_000, 2_000, 4_000, 8_000, 8_000]);
        assert_eq!(pauses(rules, &[rules.calm_ms, 10]), [0, 1_000]);
        assert_eq!(pauses(rules, &[10, rules.calm_ms, 10]), [1_000, 0, 1_000]);
    }

    #[test]
    fn workers_and_programs_have_pauses_of_their_own() {
        let worker = Duty::Worker(0).rules().pauses;
        assert_eq!(pauses(worker, &[999, 0, 0, 1_000, 1_000]), [1_000, 1_000, 1_000, 0, 0]);
        let program = Duty::Program(UpstreamId(0), 1);
        let end = |raw| End { status: Some(ExitStatus::from_raw(raw)), is_own: false };
        let failing = program.pauses_after(end(1 << 8));
        let lives = [0, 0, 4_999, 0, 0, 0, 0, 5_000, 0];
        assert_eq!(pauses(failing, &lives), [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 0, 1_000]);
        assert_eq!(pauses(program.pauses_after(end(0)), &[1_000, 999, 999]), [0, 1_000, 2_000]);
    }
}
