//! The engine's [`Machine`] on Linux. Nothing in it waits by itself; files are reached as the architecture
//! says ([`Reach`]).

use std::io::{self, IoSlice};
use std::sync::Arc;

use flash_engine::{
    FilePart, FileSent, FileStat, Files, JobId, Log, LookUpError, Machine, Net, Opened, Resident, SiteId,
    Task, Want,
};
use flash_prompt::OwnedFd;
use flash_prompt::{clock, file, net};

use super::calls::{Call, lap, timed};
use super::complaint::Complaint;
use super::helpers::Helpers;
use super::log::LogBuffer;
use super::own_jobs::OwnJobs;
use super::reach::{Reach, Sending};
use super::site_file::{Closing, SiteFile};
use super::socket::Socket;
use crate::control::{Notice, send_notice};
use crate::convert;
use crate::panics;

/// How long a worker that is done waits for the log writer to take its last lines.
const LAST_LINES_MS: u64 = 1_000;
/// Messages for the operator that wait for the supervisor.
const REPORTS_MAX: usize = 64;

/// Sockets, files, helpers and logs of one worker.
pub struct LinuxSystem {
    /// None where look-ups are jobs: the root is not there, or its file system may wait for somebody
    /// else.
    roots: Vec<Option<OwnedFd>>,
    reach: Reach,
    sending: Sending,
    pub(super) helpers: Helpers,
    /// In place of helpers.
    pub own: Option<OwnJobs>,
    pub(super) log: LogBuffer,
    pub(super) closing: Closing,
    supervisor: OwnedFd,
    reports: Vec<String>,
    said_unknown: bool,
    dropped_lines: Complaint,
    lost_helpers: Complaint,
    overdue: Complaint,
    failures: u64,
    finishing_until_ms: Option<u64>,
}

/// What it is made of.
pub(super) struct Parts {
    pub(super) roots: Vec<Option<OwnedFd>>,
    pub(super) reach: Reach,
    pub(super) sending: Sending,
    pub(super) helpers: Helpers,
    pub(super) own: Option<OwnJobs>,
    pub(super) log: LogBuffer,
    pub(super) supervisor: OwnedFd,
}

impl LinuxSystem {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { roots, reach, sending, helpers, own, log, supervisor } = parts;
        Self {
            roots,
            reach,
            sending,
            helpers,
            own,
            log,
            supervisor,
            closing: Closing::default(),
            reports: Vec::new(),
            said_unknown: false,
            dropped_lines: Complaint::default(),
            lost_helpers: Complaint::default(),
            overdue: Complaint::default(),
            failures: 0,
            finishing_until_ms: None,
        }
    }

    /// The roots under which it looks files up by itself.
    pub fn roots(&self) -> impl Iterator<Item = &OwnedFd> {
        self.roots.iter().flatten()
    }

    pub(super) fn needs_housekeeping(&self) -> bool {
        self.helpers.needs_housekeeping()
            || !self.closing.is_empty()
            || !self.log.is_empty()
            || !self.reports.is_empty()
    }

    /// Does what needs no event, every so often.
    pub(super) fn keep_house(&mut self, now_ms: u64) {
        self.helpers.keep_house(now_ms);
        self.log.flush();
        if self.log.has_dropped() && self.dropped_lines.is_due(now_ms) {
            let dropped = self.log.take_dropped();
            self.report(&format!(
                "dropped {dropped} access-log lines: the log's disk is slower than the requests"
            ));
        }
        self.send_reports();
    }

    /// Whether everything was handed over, so that the worker can end; what the log writer has
    /// not taken after a while is given up.
    pub(super) fn has_finished(&mut self, now_ms: u64) -> bool {
        self.log.flush();
        let until_ms = *self.finishing_until_ms.get_or_insert(now_ms + LAST_LINES_MS);
        if self.log.has_lines() && now_ms < until_ms {
            return false;
        }
        let dropped = self.log.give_up();
        if dropped > 0 {
            self.report(&format!("dropped {dropped} access-log lines"));
        }
        self.send_reports();
        true
    }

    /// Says that the file system failed, at first and then at powers of ten.
    pub(super) fn complain_of_failure(&mut self, number: i32) {
        self.failures += 1;
        if self.failures.ilog10() != (self.failures - 1).checked_ilog10().unwrap_or(u32::MAX) {
            let error = io::Error::from_raw_os_error(number);
            self.report(&format!("the file system failed ({error}); {} failures so far", self.failures));
        }
    }

    /// Says that a helper died at work.
    pub(super) fn complain_of_loss(&mut self) {
        if self.lost_helpers.is_due(clock::monotonic_ms()) {
            self.report("a helper ended before its job was done; its requests were answered 503");
        }
    }

    fn send_reports(&mut self) {
        let mut done = 0;
        for report in &self.reports {
            let sent = send_notice(&self.supervisor, &Notice::Report(report.clone()));
            lap(Call::Message);
            if sent.is_err() {
                break;
            }
            done += 1;
        }
        self.reports.drain(..done);
    }
}

impl Net for LinuxSystem {
    type Socket = Socket;

    #[inline]
    fn recv(&mut self, socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
        let received = net::recv(socket, buffer);
        lap(Call::Receive);
        received
    }

    #[inline]
    fn send(&mut self, socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
        let sent = net::send(socket, bytes);
        lap(Call::Send);
        sent
    }

    fn send_both(&mut self, socket: &Socket, first: &[u8], second: &[u8]) -> io::Result<usize> {
        if first.is_empty() {
            return self.send(socket, second);
        }
        let sent = net::send_parts(socket, &[IoSlice::new(first), IoSlice::new(second)]);
        lap(Call::Send);
        sent
    }

    fn end_sending(&mut self, socket: &Socket) {
        // Fails only when the connection is gone.
        let _ = net::end_sending(socket);
        lap(Call::Send);
    }

    fn reset(&mut self, socket: &Socket) {
        // Fails only when the connection is gone.
        let _ = net::reset(socket);
        lap(Call::Send);
    }

    fn unacknowledged_bytes(&mut self, socket: &Socket) -> u64 {
        let bytes = net::unsent_bytes(socket).unwrap_or(0);
        lap(Call::Send);
        bytes as u64
    }
}

impl Files for LinuxSystem {
    type File = SiteFile;

    fn open_cached(
        &mut self,
        site: SiteId,
        path: &[u8],
        want: Want,
    ) -> Result<Opened<SiteFile>, LookUpError> {
        let root =
            self.roots.get(usize::from(site.0)).and_then(Option::as_ref).ok_or(LookUpError::WouldWait)?;
        let look_up = || (self.reach.look_up)(root, path, convert::sys_want(want));
        let found = timed(Call::LookUp, || Some((site, path)), look_up);
        let mut opened: Opened<SiteFile> = convert::look_up(found)?;
        if let Some(file) = &mut opened.file {
            file.found_at(site, path, self.closing.returned());
        }
        Ok(opened)
    }

    fn read_resident(&mut self, file: &SiteFile, offset: u64, buffer: &mut [u8]) -> io::Result<Resident> {
        let read = timed(Call::Read, || file.name(), || (self.reach.read)(file, offset, buffer));
        Ok(match read? {
            file::Resident::Bytes(bytes) => Resident::Bytes(bytes),
            file::Resident::Absent => Resident::Absent,
            file::Resident::Unknown => {
                if !file::is_place(file)?
                    && !std::mem::replace(&mut self.said_unknown, true)
                    && let Err(e) = file::tells_residency(file)
                {
                    self.report(&format!(
                        "the kernel does not tell which files are in memory ({e}): their reads are \
                         left to helpers or threads; run flash as the files' owner, or with CAP_FOWNER, on Linux 6.5 or later"
                    ));
                }
                Resident::Unknown
            }
        })
    }

    fn stat(&mut self, file: &SiteFile) -> io::Result<FileStat> {
        Ok(convert::stat(&timed(Call::Stat, || file.name(), || (self.reach.stat)(file))?))
    }
}

impl flash_engine::Helpers for LinuxSystem {
    fn start_job(&mut self, id: JobId, task: &Task<SiteFile>, startable: usize) -> bool {
        if let Some(own) = &mut self.own {
            return own.start(id, task);
        }
        let number = if let Task::Close { number } = task { Some(*number) } else { None };
        let aside = number.and_then(|number| self.closing.get(number));
        let started = self.helpers.start(id, task, startable, aside);
        lap(Call::Message);
        if started && let Some(number) = number {
            // The helper, or the message to it, has the file: this is not its last close.
            drop(self.closing.take(number));
        }
        started
    }

    fn abandon_job(&mut self, id: JobId) {
        let message = match &mut self.own {
            Some(own) => {
                own.give_up(id);
                "the disk kept a thread beyond the deadline; its requests were answered 503"
            }
            None => {
                self.helpers.abandon(id);
                lap(Call::Message);
                "a helper passed its deadline and was given up; its requests were answered 503"
            }
        };
        if self.overdue.is_due(clock::monotonic_ms()) {
            self.report(message);
        }
    }
}

impl Log for LinuxSystem {
    fn log_access(&mut self, line: &[u8]) {
        self.log.push(line);
    }

    fn report(&mut self, message: &str) {
        if self.reports.len() < REPORTS_MAX {
            let panic = panics::take_last();
            self.reports.push(if panic.is_empty() {
                message.to_owned()
            } else {
                format!("{message} ({panic})")
            });
        }
    }
}

impl Machine for LinuxSystem {
    fn send_file(
        &mut self,
        socket: &Socket,
        head: &[u8],
        file: &Arc<SiteFile>,
        part: FilePart,
    ) -> io::Result<FileSent> {
        timed(Call::SendFile, || file.name(), || self.sending.send(socket, head, file, part))
    }
}
