//! The end of a turn of the supervisor's loop: deadlines that passed, a configuration whose processes are all ready, and the end
//! of the server.

use std::process::ExitCode;

use flash_prompt::clock;
use flash_waiting::subprocess;

use super::generation::Generation;
use super::life::State;
use super::{DRAINING_MAX, Resources, Supervisor};

impl Supervisor<'_> {
    /// Does everything that is due. Returns an exit code when the server is done.
    pub(super) fn settle(&mut self) -> Option<ExitCode> {
        let now_ms = clock::monotonic_ms();
        self.watchdog.iter_mut().for_each(|watchdog| watchdog.feed(now_ms));
        for generation in &mut self.generations {
            generation.advance(now_ms, &mut self.resources);
        }
        let Resources { store, poller, events, .. } = &mut self.resources;
        if let Some(store) = store {
            let users = self.generations.iter_mut().flat_map(Generation::store_users);
            store.advance(now_ms, users, poller, events);
            store.link_watchers(self.generations.iter_mut().filter_map(Generation::watcher_mut));
            let fillers = self.generations.iter().flat_map(Generation::fillers).collect();
            store.note_fillers(&fillers, events);
        }
        self.apply();
        if let Some(code) = self.promote(now_ms) {
            return Some(code);
        }
        self.watch_certificates(now_ms);
        self.advance_reload(now_ms);
        self.advance_upgrade(now_ms);
        self.generations.retain(|generation| !generation.is_gone());
        self.reap_others();
        let store = self.resources.store.as_mut();
        let is_done = self.generations.is_empty() && store.is_none_or(|store| store.has_saved(now_ms));
        is_done.then_some(ExitCode::SUCCESS)
    }

    /// Reaps orphans, and children that were given up.
    fn reap_others(&self) {
        let tables = self.generations.iter().map(|generation| &generation.processes);
        let tables = tables.chain(self.resources.store.as_ref().map(|store| &store.processes));
        subprocess::reap_others(|pid| {
            tables.clone().any(|processes| processes.iter().any(|process| process.pid() == pid))
        });
    }

    /// Puts a ready generation in force and drains the previous one. Returns an exit code if the first one has failed, or if no
    /// worker is left of one that was adopted and none can follow it.
    fn promote(&mut self, now_ms: u64) -> Option<ExitCode> {
        let Some(new) = self.generations.iter().position(|g| g.state == State::Starting) else {
            let is_last = self.stopping.is_none() && !self.reload.is_under_way();
            let has_failed = is_last && self.generations.iter().all(Generation::is_over);
            if has_failed && self.is_serving() {
                self.messages.report("no worker is left of the configuration in force; the server ends");
            }
            return has_failed.then_some(ExitCode::FAILURE);
        };
        if !self.generations[new].is_ready() {
            return None;
        }
        let old = self.generations.iter().position(|g| g.state.is_in_force());
        let Generation { state, settings, settings_file, sockets, .. } = &mut self.generations[new];
        *state = State::Serving;
        // Not earlier: the sockets are those of the old configuration too.
        if let Err(e) = sockets.pace(settings) {
            self.messages.report(&e.to_string());
        }
        // Also to nothing, if this configuration does without it.
        if let Some(store) = &mut self.resources.store {
            store.resize(settings, settings_file);
        }
        if let Some(old) = old {
            self.generations[old].give_way(now_ms);
            self.bound_draining(now_ms);
        }
        self.announce(new);
        None
    }

    /// Kills the longest-draining generation when too many drain.
    fn bound_draining(&mut self, now_ms: u64) {
        // In the order of their start.
        let mut draining = self.generations.iter_mut().filter(|g| g.state == State::Draining);
        if let Some(oldest) = draining.next().filter(|_| draining.count() >= DRAINING_MAX) {
            let loss = oldest.loss();
            oldest.kill(now_ms);
            self.messages.report(&format!("{loss}: {DRAINING_MAX} newer ones are draining"));
        }
    }
}
