//! Reloads of the configuration: one at a time. HUPs that arrive meanwhile are remembered and cause one further reload, so
//! the last edit before the last HUP is always read.

use std::io;

use flash_waiting::systemd;

use super::Supervisor;
use super::generation::Generation;
use super::life::State;
use super::prepare::Prepared;
use super::reader::Reader;
use super::sockets::Sockets;
use crate::config::FilePath;

/// The reload that is wanted, and the first part of the one under way.
#[derive(Debug, Default)]
pub(super) struct Reload {
    is_wanted: bool,
    pub(super) reader: Option<Reader>,
}

impl Reload {
    /// Whether the configuration is being read, or will be.
    pub(super) fn is_under_way(&self) -> bool {
        self.is_wanted || self.reader.is_some()
    }
}

impl Supervisor<'_> {
    /// Notes that the configuration must be read again.
    pub(super) fn want_reload(&mut self) {
        systemd::notify(systemd::State::Reloading);
        self.reload.is_wanted = true;
    }

    /// Begins a wanted reload when none is under way, and gives up one that is read for too long.
    pub(super) fn advance_reload(&mut self, now_ms: u64) {
        if self.reload.reader.as_ref().is_some_and(|reader| reader.deadline_ms <= now_ms) {
            let why = "cannot read the configuration: it takes too long; see whether its disks and the user database answer";
            self.messages.report(why);
            self.keep_old_configuration(why);
        }
        let is_starting = self.generations.iter().any(|generation| generation.state == State::Starting);
        let is_busy = is_starting || self.reload.reader.is_some() || self.upgrade.is_near();
        if self.stopping.is_some() || !self.reload.is_wanted || is_busy {
            return;
        }
        self.reload.is_wanted = false;
        let server = self.server_for_reader();
        match Reader::start((&self.program, None), server, now_ms, &mut self.resources.poller) {
            Ok(reader) => self.reload.reader = Some(reader),
            Err(e) => {
                let why = format!("cannot start a process that reads the configuration: {e}");
                self.messages.report(&why);
                self.keep_old_configuration(&why);
            }
        }
    }

    /// Whether there is a store, and the paths that the server listens at.
    pub(super) fn server_for_reader(&self) -> (bool, Vec<FilePath>) {
        let paths = self.in_force().map_or(Vec::new(), |generation| generation.sockets.created_paths());
        (self.resources.store.is_some(), paths)
    }

    pub(super) fn handle_reader(&mut self) {
        match self.reload.reader.as_mut().and_then(Reader::receive) {
            None => {}
            Some(Ok(prepared)) => {
                self.reload.reader = None;
                self.start_next(prepared);
            }
            Some(Err(why)) => {
                self.messages.show(why.clone());
                self.keep_old_configuration(why.strip_prefix("flash: ").unwrap_or(&why).trim_end());
            }
        }
    }

    /// Starts the processes of the next configuration; the old ones continue until the new ones are ready, and for good
    /// if they never are.
    fn start_next(&mut self, mut prepared: Prepared) {
        if prepared.settings.control != self.control_wanted.0
            || prepared.settings.admin != self.control_wanted.1
        {
            self.messages.report("the control socket and the addresses of admin stay: a reload cannot change --control or --admin");
        }
        let started = self
            .bind(&mut prepared)
            .and_then(|sockets| Generation::start(prepared, sockets, &mut self.resources));
        match started {
            Ok((mut generation, messages)) => {
                messages.iter().for_each(|text| self.messages.report(text));
                self.configurations += 1;
                generation.number = self.configurations;
                self.generations.push(generation);
            }
            Err(e) => {
                self.messages.report(&e.to_string());
                self.keep_old_configuration(&e.to_string());
            }
        }
    }

    /// The sockets of a configuration, with those that the one in force has.
    pub(super) fn bind(&self, prepared: &mut Prepared) -> io::Result<Sockets> {
        let none = Sockets::default();
        let old = self.in_force().map_or(&none, |generation| &generation.sockets);
        Sockets::of(&prepared.settings, old, std::mem::take(&mut prepared.new_sockets))
    }

    /// Ends a reload that has failed. After an upgrade the last program takes over again.
    pub(super) fn keep_old_configuration(&mut self, why: &str) {
        self.reload.reader = None;
        self.give_back(why);
        self.messages.report("the old configuration stays in force");
        self.end_reload();
    }

    /// Reports to systemd that the last wanted configuration is in force, or cannot be.
    pub(super) fn end_reload(&self) {
        if !self.reload.is_wanted {
            systemd::notify(systemd::State::Ready);
        }
    }

    /// Reports a configuration in force whose number is not the first.
    pub(super) fn report_reload(&self, place: usize) {
        let new = &self.generations[place];
        let mut older = self.generations[..place].iter().rev();
        let is_same = older.next().is_some_and(|old| old.settings == new.settings);
        let same = if is_same { "; no setting has changed" } else { "" };
        self.messages.report(&format!("configuration {} is in force{same}", new.number));
    }
}
