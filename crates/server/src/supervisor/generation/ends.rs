//! The ends of a configuration's processes, and their meaning.

use flash_prompt::clock;

use super::Generation;
use crate::role::STALE_ROOT;
use crate::supervisor::life::{Duty, End, State};
use crate::supervisor::processes::{Ended, Kill};
use crate::supervisor::{Event, Resources};

/// The meaning of an end for the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// The process was not needed any more.
    Expected,
    /// A worker has ended before it had answered all requests.
    Unfinished,
    /// Another process must follow.
    Replaced,
    /// Another process must follow, but this program cannot start it: only another configuration replaces it.
    Missed,
    Failure,
}

impl Generation {
    /// The meaning of the end of a process with this duty.
    fn meaning(&self, duty: Duty, end: End) -> Meaning {
        match (self.state, duty) {
            (State::Killed | State::Abandoned, _) | (_, Duty::Helper(_) | Duty::NextLog | Duty::OldLog) => {
                Meaning::Expected
            }
            (_, Duty::Program(..)) if self.is_over() => Meaning::Expected,
            (State::Adopted, _) => Meaning::Missed,
            (_, Duty::Program(..)) | (State::Serving, _) => Meaning::Replaced,
            (State::Starting, _) => Meaning::Failure,
            (State::Draining, Duty::Worker(_)) if end.is_success() => Meaning::Expected,
            (State::Draining, Duty::Worker(_)) => Meaning::Unfinished,
            // When a gateway or a log writer drains, success means that its work is done.
            (State::Draining, _) if end.is_success() || self.is_over() => Meaning::Expected,
            (State::Draining, _) => Meaning::Replaced,
        }
    }

    pub(super) fn handle_end(&mut self, mut ended: Ended, resources: &mut Resources) {
        let reports = ended.process.receive_last().into_iter();
        let (duty, end, name) = (ended.process.duty, ended.end, ended.process.name.clone());
        resources.events.extend(reports.map(|text| Event::Message(format!("{name}: {text}"))));
        match duty {
            Duty::Worker(place) => {
                self.shares.clear(place, &mut resources.files);
                self.kill_helpers(ended.process.token());
                resources.events.extend(ended.process.statistics.take().map(Event::WorkerEnded));
            }
            Duty::Helper(_) => {
                self.introduce_ended(&mut ended.process, resources);
                self.lost_helpers.note(end);
                if end.code() == Some(STALE_ROOT.into()) {
                    self.roots.renew(clock::monotonic_ms(), &mut resources.poller);
                }
            }
            Duty::NextLog => {
                resources.report("the access log continues in the old file".to_owned());
            }
            _ => {}
        }
        let meaning = self.meaning(duty, end);
        let text = match meaning {
            Meaning::Expected => return,
            Meaning::Unfinished => format!("{name} ended ({end}) before it finished its requests"),
            Meaning::Replaced => {
                let pause_s = self.processes.replace(&ended) / 1_000;
                if pause_s == 0 && matches!(duty, Duty::Program(..)) && end.is_success() {
                    return;
                }
                let later = if pause_s > 0 { format!(" in {pause_s} s") } else { String::new() };
                format!("{name} ended ({end}); starting another{later}")
            }
            Meaning::Missed => {
                resources.events.push(Event::Missed);
                format!("{name} ended ({end}); reading the configuration again, to start all processes anew")
            }
            Meaning::Failure => {
                self.stop(clock::monotonic_ms());
                format!("{name} did not start ({end})")
            }
        };
        resources.report(text.clone());
        if meaning == Meaning::Failure {
            resources.events.push(Event::Failed(text));
        }
    }

    /// Reports that a process had to be killed.
    pub(super) fn report_kill(&mut self, kill: &Kill, resources: &mut Resources) {
        let Some(process) = self.processes.get_mut(kill.token) else { return };
        match process.duty {
            Duty::Helper(worker) => self.report_no_helper(worker, &kill.why, resources),
            _ => resources.report(format!("killing {}: {}", process.name, kill.why)),
        }
    }
}
