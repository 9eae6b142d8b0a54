//! Upgrades: the supervisor executes the program again from the path that it was started from, where another version may be now
//! (`handover.rs`). Before that, a process of the new version reads the configuration, so a program that cannot run or does not
//! know a setting never takes over.

use std::fmt;
use std::io;

use flash_prompt::{OwnedFd, net};
use flash_waiting::{successor, systemd};

use super::Supervisor;
use super::generation::Generation;
use super::outbox::Shared;
use super::reader::Reader;
use crate::stats::Answer;

/// The upgrade that is wanted or under way.
#[derive(Debug, Default)]
pub(super) enum Upgrade {
    #[default]
    None,
    /// For this client, or a signal.
    Wanted(Option<OwnedFd>),
    /// The new program reads the configuration.
    Tried(Candidate, Reader),
    /// It can; it takes over when no process is being started or told.
    Ready(Candidate, u64),
    /// This program has taken over, and its processes are not ready yet.
    TakesOver(Replaced),
}

/// The program that would take over.
#[derive(Debug)]
pub(super) struct Candidate {
    executable: OwnedFd,
    client: Option<OwnedFd>,
}

/// The program that this one has replaced.
#[derive(Debug)]
pub(super) struct Replaced {
    pub(super) version: String,
    pub(super) executable: Shared,
    /// Why this program serves again: that one had replaced it before, and failed.
    pub(super) failure: Option<String>,
    /// The client that wanted the upgrade.
    pub(super) client: Option<OwnedFd>,
}

const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

impl Upgrade {
    /// Whether a configuration of this program must not begin to start.
    pub(super) fn is_near(&self) -> bool {
        matches!(self, Upgrade::Tried(..) | Upgrade::Ready(..))
    }

    /// The program that this one has replaced, if it still takes over.
    fn take_replaced(&mut self) -> Option<Replaced> {
        match std::mem::take(self) {
            Upgrade::TakesOver(replaced) => Some(replaced),
            other => {
                *self = other;
                None
            }
        }
    }

    pub(super) fn is(&self, token: u64) -> bool {
        matches!(self, Upgrade::Tried(_, reader) if reader.is(token))
    }

    pub(super) fn next_ms(&self) -> Option<u64> {
        match self {
            Upgrade::Tried(_, reader) => Some(reader.deadline_ms),
            Upgrade::Ready(_, deadline_ms) => Some(*deadline_ms),
            _ => None,
        }
    }
}

impl Supervisor<'_> {
    /// Notes that an upgrade is wanted, by this client or a signal. One at a time.
    pub(super) fn want_upgrade(&mut self, client: Option<OwnedFd>) {
        match self.upgrade {
            Upgrade::None if self.stopping.is_none() => self.upgrade = Upgrade::Wanted(client),
            _ => answer(client, &Answer::refusal("an upgrade or a stop is under way already")),
        }
    }

    /// Begins a wanted upgrade when no reload is under way, and ends one that takes too long.
    pub(super) fn advance_upgrade(&mut self, now_ms: u64) {
        if let Some(client) = self.control.take_upgrader() {
            self.want_upgrade(Some(client));
        }
        let is_late = self.upgrade.next_ms().is_some_and(|ms| ms <= now_ms);
        let is_calm = self.reload.reader.is_none() && self.generations.iter().all(Generation::is_calm);
        match std::mem::take(&mut self.upgrade) {
            Upgrade::Wanted(client) if is_calm => self.try_program(client, now_ms),
            Upgrade::Tried(Candidate { client, .. }, _) if is_late => {
                self.refuse_upgrade(client, "the new version takes too long to read the configuration");
            }
            Upgrade::Ready(Candidate { client, .. }, _) if is_late => {
                self.refuse_upgrade(client, "a process does not read its orders");
            }
            Upgrade::Ready(Candidate { executable, client }, _) if is_calm => {
                let why = self.hand_over(&executable, client.as_ref(), None);
                self.refuse_upgrade(client, &cannot_execute(why));
            }
            other => self.upgrade = other,
        }
    }

    /// Lets the program read the configuration.
    fn try_program(&mut self, client: Option<OwnedFd>, now_ms: u64) {
        let opened = successor::open_program(&self.path);
        let started = opened.and_then(|executable| {
            let server = self.server_for_reader();
            let poller = &mut self.resources.poller;
            let reader = Reader::start((&self.program, Some(&executable)), server, now_ms, poller)?;
            Ok((executable, reader))
        });
        match started {
            Ok((executable, reader)) => {
                systemd::notify(systemd::State::Reloading);
                self.upgrade = Upgrade::Tried(Candidate { executable, client }, reader);
            }
            Err(why) => self.refuse_upgrade(client, &cannot_execute(why)),
        }
    }

    /// Handles an answer of the new program.
    pub(super) fn handle_candidate(&mut self) {
        let Upgrade::Tried(_, reader) = &mut self.upgrade else { return };
        let Some(read) = reader.receive() else { return };
        let Upgrade::Tried(candidate, reader) = std::mem::take(&mut self.upgrade) else { return };
        match read {
            // It reads the configuration again when it has taken over: the files of this one are not needed.
            Ok(mut prepared) => match self.bind(&mut prepared) {
                Ok(_) => self.upgrade = Upgrade::Ready(candidate, reader.deadline_ms),
                Err(why) => self.refuse_upgrade(candidate.client, &why.to_string()),
            },
            Err(why) => {
                let why = why.strip_prefix("flash: ").unwrap_or(&why);
                self.refuse_upgrade(candidate.client, why.trim_end());
            }
        }
    }

    fn refuse_upgrade(&mut self, client: Option<OwnedFd>, why: &str) {
        self.messages.report(&format!("cannot upgrade: {why}; flash {OWN_VERSION} serves on"));
        answer(client, &Answer::refusal(why));
        self.end_reload();
    }

    /// Ends an upgrade because the server stops.
    pub(super) fn cancel_upgrade(&mut self) {
        let client = match std::mem::take(&mut self.upgrade) {
            Upgrade::None => None,
            Upgrade::Wanted(client) => client,
            Upgrade::Tried(Candidate { client, .. }, _) | Upgrade::Ready(Candidate { client, .. }, _) => {
                client
            }
            Upgrade::TakesOver(Replaced { client, .. }) => client,
        };
        answer(client, &Answer::refusal("the server stops"));
    }

    /// The processes of this program cannot start: the one that it has replaced serves again, if it has not failed before.
    pub(super) fn give_back(&mut self, why: &str) {
        let Some(Replaced { version, executable, failure, client }) = self.upgrade.take_replaced() else {
            return;
        };
        if failure.is_none() {
            self.messages.report(&format!("cannot take over: {why}; flash {version} takes over again"));
            let error = self.hand_over(&executable, client.as_ref(), Some(why.to_owned()));
            self.messages.report(&cannot_execute(error));
        }
        self.messages.report("the processes of the last program serve on; reload when the cause is removed");
        answer(client, &Answer::refusal(why));
    }

    /// The processes of this program serve.
    pub(super) fn end_upgrade(&mut self) {
        let Some(Replaced { version, failure, client, .. }) = self.upgrade.take_replaced() else { return };
        match failure {
            None => {
                let text = format!("flash {OWN_VERSION} has taken over from flash {version}");
                self.messages.report(&text);
                answer(client, &Answer::of_upgrade(text));
            }
            Some(why) => {
                let text =
                    format!("flash {version} could not take over: {why}; flash {OWN_VERSION} serves again");
                self.messages.report(&text);
                answer(client, &Answer::refusal(text));
            }
        }
    }
}

fn cannot_execute(why: impl fmt::Display) -> String {
    format!("cannot execute the new version: {why}")
}

/// Answers a client that has waited, whose socket has room for this.
fn answer(client: Option<OwnedFd>, answer: &Answer) {
    let sent: io::Result<usize> = client.map_or(Ok(0), |client| net::send(&client, &answer.to_line()));
    // The client may have gone.
    drop(sent);
}
