//! A configuration that an earlier program of the supervisor has started: this one takes over its processes, starts helpers of that
//! program for them, and drains them when a configuration of its own is ready.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use flash_engine::UpstreamId;
use flash_waiting::successor::Bequest;

use super::helpers::LostHelpers;
use super::programs::Programs;
use super::{Generation, WatchBy};
use crate::config::Settings;
use crate::supervisor::estate::Estate;
use crate::supervisor::life::{Duty, State};
use crate::supervisor::outbox::Shared;
use crate::supervisor::poller::Poller;
use crate::supervisor::process::{LeftProcess, Process};
use crate::supervisor::processes::Processes;
use crate::supervisor::roots::{LeftRoots, Roots};
use crate::supervisor::shared_files::{LeftShares, SharedFiles, Shares};
use crate::supervisor::sockets::{LeftSockets, Sockets};
use crate::supervisor::spool::Spool;

/// A [`Generation`] as the next program takes it over.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::supervisor) struct LeftGeneration {
    number: u64,
    settings: String,
    settings_file: usize,
    worker_settings_file: usize,
    sockets: LeftSockets,
    roots: LeftRoots,
    has_store: bool,
    shares: LeftShares,
    state: State,
    deadline_ms: Option<u64>,
    processes: Vec<LeftProcess>,
    programs: BTreeMap<UpstreamId, (usize, usize)>,
    /// The program of its processes; None for the program that leaves them.
    program: Option<usize>,
}

impl Generation {
    /// Whether every process has its orders, and none takes the place of another: then the next program can take them over.
    pub(in crate::supervisor) fn is_calm(&self) -> bool {
        let is_calm = |own: &Process| {
            let starts = own.state == State::Starting && !matches!(own.duty, Duty::Helper(_));
            own.orders.is_sent() && !starts && own.duty != Duty::NextLog
        };
        self.state != State::Starting && self.processes.iter().all(is_calm)
    }

    /// Notes that the store of its workers is not that of the supervisor: they go on without a keeper.
    pub(in crate::supervisor) fn lose_store(&mut self) {
        self.has_store = false;
    }

    pub(in crate::supervisor) fn leave(&self, bequest: &mut Bequest) -> io::Result<LeftGeneration> {
        Ok(LeftGeneration {
            number: self.number,
            settings: self.settings.to_toml(),
            settings_file: bequest.add(&*self.settings_file)?,
            worker_settings_file: bequest.add(&*self.worker_settings_file)?,
            sockets: self.sockets.leave(bequest)?,
            roots: self.roots.leave(bequest)?,
            has_store: self.has_store,
            shares: self.shares.leave(),
            state: self.state,
            deadline_ms: self.deadline_ms,
            processes: self.processes.iter().map(|own| own.leave(bequest)).collect::<io::Result<_>>()?,
            programs: self.programs.leave(bequest)?,
            program: self.program.as_ref().map(|program| bequest.add(&**program)).transpose()?,
        })
    }

    /// Takes over a configuration whose processes are of `last`, or of a program before that.
    pub(in crate::supervisor) fn adopt(
        left: LeftGeneration,
        last: &Shared,
        estate: &mut Estate,
        (poller, files): (&Poller, &mut SharedFiles),
    ) -> io::Result<Self> {
        let settings = settings(&left.settings);
        let program = left.program.map(|number| estate.take(number).map(Arc::new)).transpose()?;
        let mut processes = Processes::default();
        for process in left.processes {
            processes.insert(Process::adopt(process, estate, poller)?, poller)?;
        }
        Ok(Self {
            number: left.number,
            settings_file: Arc::new(estate.take(left.settings_file)?),
            worker_settings_file: Arc::new(estate.take(left.worker_settings_file)?),
            sockets: Sockets::adopt(left.sockets, estate)?,
            roots: Roots::adopt(left.roots, estate)?,
            residency: Ok(()),
            certificates: None,
            expiries: Vec::new(),
            trust: None,
            has_store: left.has_store,
            watch_by: WatchBy::Inotify,
            shares: Shares::adopt(&left.shares, files),
            spool: Spool::none(),
            settings,
            state: if left.state == State::Serving { State::Adopted } else { left.state },
            deadline_ms: left.deadline_ms,
            processes,
            programs: Programs::adopt(left.programs, estate)?,
            lost_helpers: LostHelpers::default(),
            reopens_log_again: false,
            program: Some(program.unwrap_or_else(|| Arc::clone(last))),
        })
    }
}

/// The settings that another version has written, as far as this one knows them.
fn settings(text: &str) -> Settings {
    if let Ok(settings) = Settings::from_toml(text) {
        return settings;
    }
    let own = Settings::default();
    let (Ok(theirs), Ok(mut known)) = (text.parse::<toml::Table>(), own.to_toml().parse::<toml::Table>())
    else {
        return own;
    };
    for (name, value) in theirs {
        // Tables have names that may be others.
        let is_single = !value.is_table() && !value.is_array();
        if is_single && known.get(&name).is_some_and(|old| old.same_type(&value)) {
            known.insert(name, value);
        }
    }
    Settings::from_toml(&known.to_string()).unwrap_or(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_another_version_are_read_as_far_as_they_are_known() {
        let own = Settings { shutdown_timeout_ms: 7, helpers_max: 3, ..Settings::default() };
        let text = own.to_toml();
        assert_eq!(settings(&text), own);
        let other = format!("new = true\n{}", text.replace("reload_timeout_ms = 0\n", ""));
        assert_ne!(other.len(), text.len() + "new = true\n".len());
        assert_eq!(settings(&other), own);
        assert_eq!(settings("\0"), Settings::default());
    }
}
