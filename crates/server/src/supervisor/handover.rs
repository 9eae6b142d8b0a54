//! The end of this program in the process of the supervisor, and the beginning of the next one: what it leaves, and how that is
//! taken over.
//!
//! The process stays the same, and so do its children: the next program has their control channels, the listening sockets and the
//! files of the store. It reads the configuration as for a reload, with the processes of the last program in force until its own
//! are ready. If they never are, it executes the last program again, which takes everything back in the same way.

use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use flash_prompt::OwnedFd;
use flash_waiting::process;
use flash_waiting::successor::{self, Bequest};

use super::control_socket::{ControlSocket, LeftListener};
use super::estate::Estate;
use super::generation::{Generation, LeftGeneration};
use super::messages::Messages;
use super::poller::{Poller, Watched};
use super::process::Process;
use super::shared_files::{LeftFiles, SharedFiles};
use super::store::{LeftStore, Store};
use super::tls::{CertificateWatch, TicketSecret};
use super::upgrade::{Replaced, Upgrade};
use super::watchdog::Watchdog;
use super::{Program, Reload, Resources, Signals, Supervisor};
use crate::config::{self, FilePath};
use crate::stats::Counters;

/// Everything that a program leaves to the next one. Numbers stand for descriptors.
#[derive(Debug, Serialize, Deserialize)]
struct Document {
    /// The version of the program that leaves it.
    program: String,
    /// The file of that program.
    executable: usize,
    /// The path of that file, where later upgrades look.
    path: FilePath,
    /// Why the program before it must serve again; None for an upgrade.
    failure: Option<String>,
    /// The client that wanted the upgrade.
    client: Option<usize>,
    /// The pipe that the processes have as standard error.
    errors_of_others: usize,
    last_token: u64,
    configurations: u64,
    started_ms: u64,
    ended: Counters,
    tickets: Option<usize>,
    files: LeftFiles,
    control_wanted: (config::ControlSocket, Vec<SocketAddr>),
    control: Vec<LeftListener>,
    store: Option<LeftStore>,
    generations: Vec<LeftGeneration>,
}

/// The document and the descriptors of the last program.
#[derive(Debug)]
pub(super) struct Left {
    text: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl Left {
    /// Takes what the last program of this process has left; None if this one is the first.
    pub(super) fn take() -> io::Result<Option<Self>> {
        Ok(successor::inherit()?.map(|(text, descriptors)| Self { text, descriptors }))
    }
}

/// Everything as it was left, with copies of the descriptors: if this program cannot take over, the last one serves again.
struct Retreat {
    document: Document,
    bequest: Bequest,
    executable: OwnedFd,
}

impl Retreat {
    fn of(left: &Left) -> io::Result<Self> {
        let document: Document = serde_json::from_slice(&left.text)?;
        let mut bequest = Bequest::default();
        left.descriptors.iter().try_for_each(|own| bequest.add(own).map(drop))?;
        let executable = left.descriptors.get(document.executable).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { executable: executable.try_clone()?, document, bequest })
    }

    /// Executes the last program, unless that is here because this one has failed before. Returns only if that fails.
    fn execute(self, why: &str, messages: &Messages) {
        let Self { mut document, bequest, executable } = self;
        if document.failure.replace(why.to_owned()).is_some() {
            return;
        }
        messages.report(&format!("cannot take over: {why}; flash {} takes over again", document.program));
        let Ok(text) = serde_json::to_vec(&document) else { return };
        let (Ok(e) | Err(e)) = messages.pause(|| bequest.execute(&executable, &text));
        messages.report(&e.to_string());
    }
}

impl<'m> Supervisor<'m> {
    /// Executes another program, which continues for this one, or serves again because of this failure. Returns only if that
    /// fails.
    pub(super) fn hand_over(
        &self,
        executable: &OwnedFd,
        client: Option<&OwnedFd>,
        failure: Option<String>,
    ) -> io::Error {
        let mut bequest = Bequest::default();
        let text = self.leave(client, failure, &mut bequest).and_then(|left| Ok(serde_json::to_vec(&left)?));
        match text.and_then(|text| self.messages.pause(|| bequest.execute(executable, &text))) {
            Ok(error) | Err(error) => error,
        }
    }

    fn leave(
        &self,
        client: Option<&OwnedFd>,
        failure: Option<String>,
        bequest: &mut Bequest,
    ) -> io::Result<Document> {
        let Resources { store, tickets, poller, files, .. } = &self.resources;
        let generations = self.generations.iter().map(|generation| generation.leave(bequest));
        Ok(Document {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            generations: generations.collect::<io::Result<_>>()?,
            executable: bequest.add(successor::open_program("/proc/self/exe".as_ref())?)?,
            path: self.path.as_path().into(),
            failure,
            client: client.map(|client| bequest.add(client)).transpose()?,
            errors_of_others: self.messages.leave(bequest)?,
            last_token: poller.last_token,
            configurations: self.configurations,
            started_ms: self.started_ms,
            ended: self.ended.clone(),
            tickets: tickets.leave(bequest)?,
            files: files.leave(bequest)?,
            control_wanted: self.control_wanted.clone(),
            control: self.control.leave(bequest)?,
            store: store.as_ref().map(|store| store.leave(bequest)).transpose()?,
        })
    }

    /// Takes over from the last program, and wants the configuration to be read. If that fails, the last program is executed.
    pub(super) fn adopt(
        program: Program,
        left: Left,
        signals: Signals,
        messages: &'m Messages,
    ) -> io::Result<Self> {
        let retreat = Retreat::of(&left)?;
        let adopt = AssertUnwindSafe(|| Self::try_to_adopt(program, left, signals, messages));
        let panicked = |_| Err(io::Error::other("it has panicked, which is a bug"));
        std::panic::catch_unwind(adopt).unwrap_or_else(panicked).inspect_err(|e| {
            retreat.execute(&e.to_string(), messages);
        })
    }

    fn try_to_adopt(
        program: Program,
        left: Left,
        signals: Signals,
        messages: &'m Messages,
    ) -> io::Result<Self> {
        process::take_own_name();
        let document: Document = serde_json::from_slice(&left.text)?;
        let mut estate = Estate::new(left.descriptors);
        messages.adopt(estate.take(document.errors_of_others)?)?;
        let mut poller = Poller::new(document.last_token)?;
        let signals: Watched<Signals> = poller.watch(signals)?;
        let mut files = SharedFiles::adopt(&document.files, &mut estate)?;
        let executable = Arc::new(estate.take(document.executable)?);
        let mut generations = Vec::with_capacity(document.generations.len());
        for generation in document.generations {
            let shared = (&poller, &mut files);
            generations.push(Generation::adopt(generation, &executable, &mut estate, shared)?);
        }
        let store = document.store.map(|store| Store::adopt(store, &mut estate, &mut poller)).transpose();
        let store = store.unwrap_or_else(|e| {
            messages
                .report(&format!("the store begins empty: that of the last program has another form ({e})"));
            None
        });
        if store.is_none() {
            generations.iter_mut().for_each(Generation::lose_store);
        }
        let tickets = TicketSecret::adopt(document.tickets, &mut estate)?;
        let control = ControlSocket::adopt(document.control, &mut estate, &mut poller)?;
        let client = document.client.map(|number| estate.take(number)).transpose()?;
        let replaced = Replaced { version: document.program, executable, failure: document.failure, client };
        let mut supervisor = Self {
            messages,
            program,
            path: document.path.to_path_buf(),
            signals,
            resources: Resources { poller, store, files, events: Vec::new(), tickets, kept: Vec::new() },
            reload: Reload::default(),
            upgrade: Upgrade::TakesOver(replaced),
            watchdog: Watchdog::of_systemd(),
            control,
            control_wanted: document.control_wanted,
            configurations: document.configurations,
            started_ms: document.started_ms,
            ended: document.ended,
            certificates: CertificateWatch::default(),
            generations,
            stopping: None,
        };
        // Not earlier: until now, the last program could have them back.
        for generation in &mut supervisor.generations {
            generation.processes.iter_mut().for_each(Process::keep);
        }
        supervisor.want_reload();
        Ok(supervisor)
    }
}
