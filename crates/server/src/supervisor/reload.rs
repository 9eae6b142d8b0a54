//! Reloads of the configuration: one at a time. HUPs that arrive meanwhile are remembered and cause one further reload, so
//! the last edit before the last HUP is always read.

use flash_waiting::systemd;

use super::Supervisor;
use super::generation::{Generation, State};
use super::prepare::Prepared;
use super::reader::Reader;
use super::sockets::Sockets;

/// The reload that is wanted, and the first part of the one under way.
#[derive(Debug, Default)]
pub(super) struct Reload {
    is_wanted: bool,
    /// The process that reads the configuration.
    pub(super) reader: Option<Reader>,
}

impl Supervisor<'_> {
    /// Notes that the configuration must be read again.
    pub(super) fn want_reload(&mut self) {
        systemd::notify(systemd::State::Reloading);
        self.reload.is_wanted = true;
    }

    /// Gives up every reload, because the server stops.
    pub(super) fn stop_reloading(&mut self) {
        self.reload = Reload::default();
    }

    /// Begins a wanted reload when none is under way, and gives up one that is read for too long.
    pub(super) fn go_on_reloading(&mut self, now_ms: u64) {
        if self.reload.reader.as_ref().is_some_and(|reader| reader.deadline_ms() <= now_ms) {
            self.messages.say(
                "cannot read the configuration: it takes too long; see whether its disks and the user database answer",
            );
            self.keep_old_configuration();
        }
        let is_starting = self.generations.iter().any(|generation| generation.state == State::Starting);
        if self.stopping.is_some() || !self.reload.is_wanted || is_starting || self.reload.reader.is_some() {
            return;
        }
        self.reload.is_wanted = false;
        let loop_parts = (&self.epoll, &mut self.numbers);
        match Reader::start(&self.program, self.store.is_some(), now_ms, loop_parts) {
            Ok(reader) => self.reload.reader = Some(reader),
            Err(e) => {
                self.messages.say(&format!("cannot start a process that reads the configuration: {e}"));
                self.keep_old_configuration();
            }
        }
    }

    /// Handles a message of the process that reads the configuration.
    pub(super) fn hear_reader(&mut self) {
        match self.reload.reader.as_mut().and_then(Reader::hear) {
            None => {}
            Some(Ok(prepared)) => {
                self.reload.reader = None;
                self.start_next(prepared);
            }
            Some(Err(why)) => {
                self.messages.show(why);
                self.keep_old_configuration();
            }
        }
    }

    /// Starts the processes of the next configuration; the old ones continue until the new ones are ready, and for good
    /// if they never are.
    fn start_next(&mut self, prepared: Prepared) {
        if prepared.settings.control != self.control_wanted {
            self.messages.say("the control socket stays where it is: a reload cannot change --control");
        }
        let started = Sockets::of(&prepared.settings, &self.sockets).and_then(|sockets| {
            let shared = (&sockets, &mut self.store, &mut self.uplink);
            let (generation, news) = Generation::start(prepared, shared, &self.epoll, &mut self.numbers)?;
            news.iter().for_each(|text| self.messages.say(text));
            Ok((generation, sockets))
        });
        match started {
            Ok((mut generation, sockets)) => {
                self.configurations += 1;
                generation.number = self.configurations;
                self.generations.push(generation);
                self.next_sockets = Some(sockets);
            }
            Err(e) => {
                self.messages.say(&e.to_string());
                self.keep_old_configuration();
            }
        }
    }

    /// Ends a reload that has failed.
    pub(super) fn keep_old_configuration(&mut self) {
        self.reload.reader = None;
        self.messages.say("the old configuration stays in force");
        self.end_reload();
    }

    /// Reports to systemd that the last wanted configuration is in force, or cannot be.
    pub(super) fn end_reload(&self) {
        if !self.reload.is_wanted {
            systemd::notify(systemd::State::Ready);
        }
    }

    /// Reports a configuration in force whose number is not the first.
    pub(super) fn tell_reloaded(&self, place: usize) {
        let new = &self.generations[place];
        let mut older = self.generations[..place].iter().rev();
        let is_same = older.next().is_some_and(|old| old.settings == new.settings);
        let same = if is_same { "; no setting has changed" } else { "" };
        self.messages.say(&format!("configuration {} is in force{same}", new.number));
    }
}
