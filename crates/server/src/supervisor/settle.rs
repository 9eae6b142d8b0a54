//! The end of a turn of the supervisor's loop: processes that ended, deadlines that passed, and a configuration whose
//! processes are all ready.

use std::process::ExitCode;

use flash_prompt::clock;
use flash_waiting::process;

use super::crew::Death;
use super::generation::{Generation, State};
use super::logs::Ended as LogEnd;
use super::reader::Reader;
use super::store::SharedStore;
use super::{DRAINING_MAX, Supervisor};
use crate::stats::Counters;

impl Supervisor<'_> {
    /// Handles every process that has ended or become ready and every deadline that has passed. Returns an exit code
    /// when the server is done.
    pub(super) fn settle(&mut self) -> Option<ExitCode> {
        let now_ms = clock::monotonic_ms();
        for place in 0..self.generations.len() {
            let generation = &mut self.generations[place];
            for death in generation.reap() {
                self.note_death(place, &death);
            }
            let generation = &mut self.generations[place];
            if std::mem::take(&mut generation.root_is_stale) {
                generation.roots.renew(now_ms, &self.epoll, &mut self.numbers);
            }
            if generation.state == State::Serving {
                generation.roots.check_when_due(now_ms, &self.epoll, &mut self.numbers);
            }
            match generation.reap_logs() {
                Ok(None) => {}
                Ok(Some(end)) => self.note_end_of_log(place, end),
                Err(e) => self
                    .messages
                    .say(&format!("cannot connect a worker to the log writer: {e}; its log lines are lost")),
            }
            self.settle_gateway(place, now_ms);
            let generation = &mut self.generations[place];
            generation.settle_programs(now_ms).iter().for_each(|text| self.messages.say(text));
            let generation = &mut self.generations[place];
            if let Err(e) = generation.restart_log_when_due(now_ms, &self.epoll, &mut self.numbers) {
                self.messages
                    .say(&format!("cannot start the log writer: {e}; log lines are lost until it starts"));
            }
            if let Err(e) = generation.restart_workers(now_ms, &self.sockets, &self.epoll, &mut self.numbers)
            {
                self.messages.say(&e.to_string());
            }
            let news = generation.go_on(now_ms, &self.epoll, &mut self.numbers);
            news.iter().for_each(|text| self.messages.say(text));
            if generation.is_overdue(now_ms) {
                if !generation.killed {
                    let loss = generation.loss();
                    self.messages.say(&format!("{loss}: they did not finish in time"));
                }
                generation.kill();
            }
        }
        self.settle_store(now_ms);
        if let Some(code) = self.promote() {
            return Some(code);
        }
        self.go_on_reloading(now_ms);
        // Helpers may be left, which were killed with their worker.
        self.generations.retain(|generation| !generation.is_gone());
        let keeper = self.store.as_ref().and_then(|store| store.borrow().pid());
        let reader = self.reload.reader.as_ref().map(Reader::pid);
        process::reap_strangers(|pid| {
            keeper == Some(pid)
                || reader == Some(pid)
                || self.generations.iter().any(|g| g.pids().any(|other| other == pid))
        });
        let has_saved = |store: &SharedStore| store.borrow_mut().has_saved(now_ms);
        if !self.generations.is_empty() || !self.store.as_ref().is_none_or(has_saved) {
            return None;
        }
        Some(ExitCode::SUCCESS)
    }

    /// Handles the keeper of the store.
    fn settle_store(&mut self, now_ms: u64) {
        let Some(shared) = &self.store else { return };
        let mut store = shared.borrow_mut();
        let fillers = self.generations.iter().flat_map(Generation::filler_pids);
        let (end, last_words) = store.reap(fillers);
        last_words.iter().for_each(|text| self.messages.say(text));
        if let Some(end) = end.filter(|_| self.stopping.is_none()) {
            self.messages.say(&format!(
                "the store's keeper ended ({end}); starting another; the store keeps its contents"
            ));
        }
        let news = end.and_then(|end| store.use_hot_list(end));
        news.iter().for_each(|text| self.messages.say(text));
        if self.stopping.is_some() {
            store.stop();
        }
        if store.is_due(now_ms) {
            let workers = self.generations.iter_mut().flat_map(Generation::knowing_store);
            if let Err(e) = store.start(workers, &self.epoll, &mut self.numbers) {
                self.messages.say(&format!(
                    "cannot start the store's keeper: {e}; nothing is added to the store until it starts"
                ));
                store.start_later(now_ms);
            }
        }
        store.note_gone(|pid| self.generations.iter().flat_map(Generation::filler_pids).any(|p| p == pid));
        store.go_on(now_ms, &self.epoll).iter().for_each(|text| self.messages.say(text));
    }

    fn note_end_of_log(&mut self, place: usize, end: LogEnd) {
        let generation = &mut self.generations[place];
        if end == LogEnd::Next {
            return self.messages.say("the access log continues in the old file");
        }
        match (end, generation.state) {
            (LogEnd::Current { again: true, end }, _) => {
                self.messages.say(&format!("the log writer ended ({end}); starting another"));
            }
            (_, State::Starting) => generation.stop(clock::monotonic_ms()),
            _ => {}
        }
    }

    /// Handles the gateway of a generation.
    fn settle_gateway(&mut self, place: usize, now_ms: u64) {
        let generation = &mut self.generations[place];
        let need = generation.need();
        if let Some(end) = generation.gateway.reap(need) {
            match generation.state {
                _ if need.wants_another(end) => {
                    self.messages.say(&format!("the gateway ended ({end}); starting another"));
                }
                State::Starting => {
                    self.messages.say(&format!("the gateway did not start ({end})"));
                    generation.stop(now_ms);
                }
                State::Serving | State::Draining { .. } => {}
            }
        }
        if let Err(e) = generation.restart_gateway_when_due(now_ms, &self.epoll, &mut self.numbers) {
            self.messages
                .say(&format!("cannot start the gateway: {e}; requests of routes fail until it starts"));
        }
    }

    fn note_death(&mut self, place: usize, death: &Death) {
        for text in &death.last_words {
            self.messages.say(&format!("worker {}: {text}", death.place));
        }
        let counters = death.counters.as_deref().and_then(|json| serde_json::from_str::<Counters>(json).ok());
        counters.iter().for_each(|counters| self.ended.merge(&counters.ended()));
        let end = death.end;
        let generation = &mut self.generations[place];
        match generation.state {
            State::Serving => {
                self.messages.say(&format!("worker {} ended ({end}); starting another", death.place));
            }
            State::Draining { .. } if end.is_success() || generation.killed => {}
            State::Draining { .. } => {
                self.messages
                    .say(&format!("worker {} ended ({end}) before it finished its requests", death.place));
            }
            State::Starting => {
                self.messages.say(&format!("worker {} did not start ({end})", death.place));
                generation.stop(clock::monotonic_ms());
            }
        }
    }

    /// Puts a ready generation in force and drains the previous one. Returns an exit code if the first one has
    /// failed.
    fn promote(&mut self) -> Option<ExitCode> {
        let serving = self.generations.iter().position(|g| g.state == State::Serving);
        let Some(new) = self.generations.iter().position(|g| g.state == State::Starting) else {
            if let (Some(_), Some(_)) = (serving, self.next_sockets.take()) {
                self.keep_old_configuration();
            }
            if serving.is_none()
                && self.stopping.is_none()
                && self.generations.iter().all(Generation::is_over)
            {
                return Some(ExitCode::FAILURE);
            }
            return None;
        };
        if !self.generations[new].is_ready() {
            return None;
        }
        self.generations[new].state = State::Serving;
        if let Some(store) = &self.store {
            self.generations[new].size_store(store);
        }
        if let Some(old) = serving {
            self.generations[old].give_way(clock::monotonic_ms());
            self.bound_draining();
        }
        if let Some(sockets) = self.next_sockets.take() {
            self.sockets = sockets;
        }
        self.announce(new);
        None
    }

    /// Kills the longest-draining generation when too many drain.
    fn bound_draining(&mut self) {
        if self.generations.iter().filter(|generation| generation.drains()).count() <= DRAINING_MAX {
            return;
        }
        // In the order of their start.
        if let Some(oldest) = self.generations.iter_mut().find(|generation| generation.drains()) {
            let loss = oldest.loss();
            self.messages.say(&format!("{loss}: {DRAINING_MAX} newer ones are draining"));
            oldest.kill();
        }
    }
}
