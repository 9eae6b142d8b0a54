//! One process of the server: its child process, its control channel and its state.

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use flash_prompt::OwnedFd;
use flash_prompt::epoll::Watch;
use flash_prompt::{channel, clock};
use flash_waiting::subprocess::Subprocess;
use flash_waiting::successor::Bequest;
use flash_worker::control::{InForce, Notice, Order, receive_notice};

use super::estate::Estate;
use super::life::{Duty, End, Pings, State};
use super::outbox::{Outbox, Shared};
use super::poller::Poller;
use super::pulse::{Pulse, SILENCE_MS};

/// A process that the supervisor has started. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) duty: Duty,
    pub(super) name: String,
    child: Subprocess,
    pub(super) orders: Outbox,
    pub(super) state: State,
    /// The end of its time to drain, or after a kill to end.
    deadline_ms: Option<u64>,
    pub(super) is_ready: bool,
    /// Its sandbox, as it has reported it.
    pub(super) in_force: Option<InForce>,
    pub(super) started_ms: u64,
    pub(super) pings: Pings,
    pulse: Pulse,
    /// The last statistics that it has reported, as JSON.
    pub(super) statistics: Option<String>,
    /// Whether dropping it must not kill it: it was reaped, or it belongs to the last program until all is taken over.
    is_apart: bool,
}

/// A process as the next program takes it over.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LeftProcess {
    duty: Duty,
    name: String,
    pid: u32,
    token: u64,
    /// None for a helper, whose worker has it.
    channel: Option<usize>,
    state: State,
    deadline_ms: Option<u64>,
    is_ready: bool,
    started_ms: u64,
    statistics: Option<String>,
}

impl Process {
    /// Starts a process and gives it its settings.
    ///
    /// Errors: those of starting a process; `EMFILE`, `ENFILE`.
    pub(super) fn start(duty: Duty, settings_file: &Shared, poller: &mut Poller) -> io::Result<Self> {
        let name = duty.rules().name;
        Self::start_by(duty, settings_file, poller, |channel| {
            Subprocess::start_role(None, name, channel)
                .map_err(|e| io::Error::new(e.kind(), format!("cannot start a {name} process: {e}")))
        })
    }

    /// The same for a process that `start` starts, with a control channel as its standard input.
    pub(super) fn start_by(
        duty: Duty,
        settings_file: &Shared,
        poller: &mut Poller,
        start: impl FnOnce(OwnedFd) -> io::Result<Subprocess>,
    ) -> io::Result<Self> {
        let rules = duty.rules();
        let (ours, theirs) = channel::pair(rules.channel_bytes)?;
        let mut orders = Outbox::new(ours, poller.new_token())?;
        orders.give_at_start(Order::Settings(Arc::clone(settings_file)))?;
        let process = Self {
            duty,
            name: duty.to_string(),
            child: start(theirs)?,
            orders,
            state: if rules.start_ms.is_some() { State::Starting } else { State::Serving },
            deadline_ms: None,
            is_ready: rules.start_ms.is_none(),
            in_force: None,
            started_ms: clock::monotonic_ms(),
            pings: rules.pings,
            pulse: Pulse::default(),
            statistics: None,
            is_apart: false,
        };
        // Its end and its messages have the same token.
        poller.epoll.add(&process.child, process.token(), Watch::Input)?;
        Ok(process)
    }

    /// Leaves it to the next program.
    pub(super) fn leave(&self, bequest: &mut Bequest) -> io::Result<LeftProcess> {
        Ok(LeftProcess {
            duty: self.duty,
            name: self.name.clone(),
            pid: self.pid(),
            token: self.token(),
            channel: self.orders.channel.as_ref().map(|channel| bequest.add(channel)).transpose()?,
            state: self.state,
            deadline_ms: self.deadline_ms,
            is_ready: self.is_ready,
            started_ms: self.started_ms,
            statistics: self.statistics.clone(),
        })
    }

    /// Takes over a process that an earlier program has started.
    pub(super) fn adopt(left: LeftProcess, estate: &mut Estate, poller: &Poller) -> io::Result<Self> {
        let LeftProcess {
            duty,
            name,
            pid,
            token,
            channel,
            state,
            deadline_ms,
            is_ready,
            started_ms,
            statistics,
        } = left;
        let process = Self {
            duty,
            name,
            child: Subprocess::adopt(pid)?,
            orders: Outbox::adopt(channel.map(|number| estate.take(number)).transpose()?, token),
            state,
            deadline_ms,
            is_ready,
            in_force: None,
            started_ms,
            pings: duty.rules().pings,
            pulse: Pulse::default(),
            statistics,
            is_apart: true,
        };
        poller.epoll.add(&process.child, process.token(), Watch::Input)?;
        Ok(process)
    }

    /// Notes that it belongs to this program now.
    pub(super) fn keep(&mut self) {
        self.is_apart = false;
    }

    pub(super) fn token(&self) -> u64 {
        self.orders.token
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Receives one message. Returns it if it does not only concern the state of this process.
    pub(super) fn receive(&mut self, poller: &Poller) -> Option<Notice> {
        match receive_notice(self.orders.channel.as_ref()?) {
            Ok(Notice::Ready(in_force)) => {
                self.in_force = Some(in_force);
                self.become_ready();
                None
            }
            Ok(Notice::Pong) => {
                self.pulse.note_answer(clock::monotonic_ms());
                None
            }
            Ok(Notice::Stats(question, json)) => {
                self.statistics = Some(json.clone());
                Some(Notice::Stats(question, json))
            }
            Ok(notice) => Some(notice),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
            Err(_) => {
                // It has ended, or is about to: that is another event.
                self.orders.unwatch(&poller.epoll);
                None
            }
        }
    }

    /// The reports that it has sent before its end, and that were not received yet.
    pub(super) fn receive_last(&mut self) -> Vec<String> {
        let mut reports = Vec::new();
        while let Some(Ok(notice)) = self.orders.channel.as_ref().map(receive_notice) {
            match notice {
                Notice::Report(text) => reports.push(text),
                Notice::Stats(_, json) => self.statistics = Some(json),
                _ => {}
            }
        }
        reports
    }

    /// Notes that it has begun its work.
    pub(super) fn become_ready(&mut self) {
        self.is_ready = true;
        if self.state == State::Starting {
            self.state = State::Serving;
        }
    }

    /// Makes it finish its work and end, before `deadline_ms` if there is one.
    pub(super) fn drain(&mut self, deadline_ms: Option<u64>) {
        if matches!(self.state, State::Killed | State::Abandoned) {
            return;
        }
        (self.state, self.deadline_ms) = (State::Draining, deadline_ms);
        if self.duty.rules().leads_group {
            self.child.end_group();
        } else if self.orders.give(Order::Drain).is_err() {
            self.kill();
        }
    }

    /// Kills it. [`Process::end`] reports its end, and [`Process::advance`] abandons it if that does not come.
    pub(super) fn kill(&mut self) {
        self.send_kill();
        if !matches!(self.state, State::Killed | State::Abandoned) {
            self.state = State::Killed;
            self.deadline_ms = self.duty.rules().abandon_ms.map(|ms| clock::monotonic_ms() + ms);
        }
    }

    fn send_kill(&self) {
        if self.duty.rules().leads_group {
            self.child.kill_group();
        } else {
            self.child.kill();
        }
    }

    /// Its end, if it has ended or is abandoned. That reaps it.
    pub(super) fn end(&mut self) -> Option<End> {
        if self.state == State::Abandoned {
            return Some(End { status: None, is_own: true });
        }
        let status = self.child.peek().ok()??;
        if self.duty.rules().leads_group {
            // Processes that it has left behind would go on accepting requests. Until it is reaped, no other group can have
            // its number.
            self.child.kill_rest_of_group();
        }
        self.is_apart = self.child.reap().is_ok();
        Some(End { status: Some(status), is_own: self.state == State::Killed })
    }

    /// Continues sending orders, and acts on deadlines. Returns the reason if it had to be killed before its time.
    pub(super) fn advance(&mut self, now_ms: u64, poller: &Poller) -> Option<String> {
        let is_over = self.deadline_ms.is_some_and(|ms| ms <= now_ms);
        if matches!(self.state, State::Killed | State::Abandoned) {
            if is_over {
                self.state = State::Abandoned;
            }
            return None;
        }
        let sent = self.orders.go_on().and_then(|()| self.orders.watch(&poller.epoll));
        let why = if let Err(e) = sent {
            Some(format!("cannot send it orders: {e}"))
        } else if self.start_deadline_ms().is_some_and(|ms| ms <= now_ms) {
            Some("it was not ready in time".to_owned())
        } else if self.is_pinged() && self.pulse.is_silent(now_ms, &mut self.orders) {
            Some(format!("it has not answered for {} s", SILENCE_MS / 1_000))
        } else {
            None
        };
        if why.is_some() || is_over {
            self.kill();
        }
        why
    }

    /// The deadline until which it must be ready; None if it is.
    fn start_deadline_ms(&self) -> Option<u64> {
        let start_ms = self.duty.rules().start_ms.filter(|_| !self.is_ready)?;
        Some(self.started_ms + start_ms)
    }

    fn is_pinged(&self) -> bool {
        self.is_ready
            && match self.pings {
                Pings::Never => false,
                Pings::WhileServing => self.state == State::Serving,
                Pings::Always => true,
            }
    }

    /// The next time at which [`Process::advance`] has something to do.
    pub(super) fn next_ms(&self) -> Option<u64> {
        match self.state {
            State::Killed => self.deadline_ms,
            State::Abandoned => None,
            _ => {
                let ping_ms = if self.is_pinged() { self.pulse.next_ms() } else { None };
                [self.deadline_ms, self.start_deadline_ms(), ping_ms].into_iter().flatten().min()
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that hangs ends when the kernel lets it, and is reaped with the orphans.
        if !self.is_apart {
            self.send_kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use flash_waiting::file;

    use super::*;

    /// A process that reads nothing and never becomes ready.
    fn asleep(duty: Duty, poller: &mut Poller) -> Process {
        let settings = Arc::new(file::memory_file(b"").expect("a file"));
        Process::start_by(duty, &settings, poller, |channel| {
            let mut command = Command::new("/bin/sleep");
            Subprocess::new(&command.arg("600").stdin(Stdio::from(channel)).spawn()?)
        })
        .expect("started")
    }

    #[test]
    fn a_process_that_is_not_ready_in_time_is_killed_and_then_abandoned() {
        let mut poller = Poller::new(0).expect("a poller");
        let mut process = asleep(Duty::Gateway, &mut poller);
        let late_ms = process.next_ms().expect("a deadline");
        assert_eq!(process.advance(late_ms - 1, &poller), None);
        assert_eq!(process.state, State::Starting);
        assert_eq!(process.advance(late_ms, &poller).as_deref(), Some("it was not ready in time"));
        assert_eq!(process.state, State::Killed);
        let hung_ms = process.next_ms().expect("a deadline");
        assert_eq!(process.advance(hung_ms - 1, &poller), None);
        assert_eq!(process.state, State::Killed);
        assert_eq!(process.advance(hung_ms, &poller), None, "it is reported when it ends");
        process.drain(None);
        process.kill();
        assert_eq!((process.state, process.next_ms()), (State::Abandoned, None));
        assert_eq!(process.end(), Some(End { status: None, is_own: true }));
    }

    #[test]
    fn a_process_that_drains_has_its_time_and_stays_killed() {
        let mut poller = Poller::new(0).expect("a poller");
        let mut process = asleep(Duty::Log, &mut poller);
        process.become_ready();
        assert_eq!((process.state, process.next_ms()), (State::Serving, None));
        process.drain(None);
        assert_eq!((process.state, process.next_ms()), (State::Draining, None));
        process.drain(Some(5));
        assert_eq!((process.advance(4, &poller), process.state), (None, State::Draining));
        assert_eq!((process.advance(5, &poller), process.state), (None, State::Killed));
        process.drain(Some(9));
        assert_eq!(process.state, State::Killed);
    }

    #[test]
    fn the_end_of_a_process_is_an_event() {
        let mut poller = Poller::new(0).expect("a poller");
        let mut process = asleep(Duty::Keeper, &mut poller);
        assert_eq!(process.end(), None);
        process.kill();
        assert_eq!(poller.events(Some(60_000)).expect("an event"), [process.token()]);
        let end = process.end().expect("an end");
        assert_eq!(end.to_string(), "signal: 9 (SIGKILL)");
    }
}
