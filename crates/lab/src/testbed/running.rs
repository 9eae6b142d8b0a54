//! A server that runs: started in its testbed, asked until it answers, watched, and ended with all that
//! it started. Its backend, if it has one, runs beside it: started before it, in the same groups, counted with it, and
//! ended with it. So does its application, whose CPU time and memory are not counted.
//!
//! `compare` and the like call it. It ends only what it started, by process id, and removes the groups
//! and the folder that it made, also when the caller fails or unwinds. When the lab itself is killed,
//! the kernel sends the server its stop signal. A server that then leaves children behind, that hangs,
//! or that has changed its user (which clears that arrangement, prctl(2)) outlives the lab, and its
//! groups and folder stay: the next lab removes empty groups.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use flash_waiting::program::{self, Signal};

use super::groups::Groups;
use super::peer::{Kind, LOG, Peer, Recipe, Wait};
use super::prepare::{self, Folder, LAST_BYTES, LOOK};
use super::readiness::ReadinessCheck;
use super::template::{self, Given};
use super::{Testbed, free_port};
use crate::link::Side;
use flash_kit::number;
use flash_kit::processes::{self as tree, Process, Stat};
use flash_kit::{Error, Result};
use flash_load::target::Target;

/// How long a server may take to end when asked to, and again when made to.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// Descriptors that a server may have: enough for 20,000 connections and as many files, and more.
pub(super) const DESCRIPTORS: u64 = 131_072;
/// A server that has read nothing from a disk for this long has ended its start.
const STILL: Duration = Duration::from_millis(200);
/// How long the lab waits for that.
const STILL_PATIENCE: Duration = Duration::from_secs(10);
/// Lines shown of the end of a log.
const LAST_LINES: usize = 4;

/// A server that runs. Dropped, it is stopped.
#[derive(Debug)]
pub struct Running {
    name: String,
    /// Where it answers: `http://HOST:PORT` and, for one that ran already, what follows.
    pub(crate) url: String,
    /// The first line of what it says of its version, when the lab started it.
    pub(crate) version: Option<String>,
    /// How it was started, with the placeholders of what differs between machines and runs; none for one that ran already.
    pub(crate) command: Option<String>,
    /// That of the server itself, when known.
    pub(crate) pid: Option<u32>,
    started: Option<Started>,
}

/// The processes, groups and folder made for a server. Fields are dropped in this order.
#[derive(Debug)]
struct Started {
    /// The application and the backend, if it has them, then the server.
    programs: Vec<Program>,
    /// How many of them, from the first, are not counted: the application.
    uncounted: usize,
    groups: Groups,
    folder: Folder,
    is_over: bool,
}

/// A program that the lab started, from which other processes can descend.
#[derive(Debug)]
struct Program {
    /// Its name in messages.
    what: String,
    child: Child,
    process: Process,
    stop: Signal,
    /// Dropped, it ends the thread that started the program, which must live as long as that.
    _keeper: Sender<()>,
}

impl Peer {
    /// Whether its programs and files are there, without starting it.
    ///
    /// Errors: run, with the Debian package or the command that makes them where that is known.
    pub fn check(&self) -> Result<()> {
        let Kind::Started(recipe) = &self.kind else { return Ok(()) };
        for program in recipe.command.first().into_iter().chain(recipe.backend.first()) {
            prepare::program_path(&self.name, recipe, program)?;
        }
        for (_, find) in recipe.find.iter().filter(|(name, _)| !recipe.set.contains_key(*name)) {
            prepare::found(&self.name, find)?;
        }
        Ok(())
    }

    /// Starts it at `testbed`, on a port of 127.0.0.1, after its application and its backend, and waits until it answers. The disk is not held
    /// back yet. One that runs already is only waited for: it is in no testbed.
    ///
    /// Errors: usage, for a root that is not there; run, for a missing program, a testbed that this
    /// machine does not allow, and a server that ends or does not answer in time, with the end of its
    /// log. Nothing is left behind then.
    pub fn start(&self, testbed: &Testbed) -> Result<Running> {
        match &self.kind {
            Kind::Started(recipe) => self.start_recipe(recipe, testbed, None),
            Kind::Elsewhere { url, pid, wait } => {
                let running = Running {
                    name: self.name.clone(),
                    url: url.trim_end_matches('/').to_owned(),
                    version: None,
                    command: None,
                    pid: *pid,
                    started: None,
                };
                // Whether a remote one may be loaded is for the caller to judge: this only asks.
                let Target { address, is_https, .. } = Target::parse(url, true)?;
                running.wait_until_it_answers(&self.name, ReadinessCheck { address, is_https }, wait)?;
                Ok(running)
            }
        }
    }

    /// Like [`Peer::start`], on one side of a link: it is reached at [`Side::address`] from the other side.
    ///
    /// Errors: those of [`Peer::start`]; usage, for one that runs already.
    pub fn start_behind(&self, testbed: &Testbed, side: &Side) -> Result<Running> {
        match &self.kind {
            Kind::Started(recipe) => self.start_recipe(recipe, testbed, Some(side)),
            Kind::Elsewhere { .. } => Err(Error::usage(format!(
                "{} runs already and cannot be put behind a link: name one that the lab starts",
                self.name
            ))),
        }
    }

    fn start_recipe(&self, recipe: &Recipe, testbed: &Testbed, side: Option<&Side>) -> Result<Running> {
        let name = &self.name;
        let address = SocketAddrV4::new(side.map_or(Ipv4Addr::LOCALHOST, |side| side.address), free_port()?);
        let root = testbed.checked_root()?;
        let application =
            testbed.application.as_ref().map(|behind| Ok((behind, behind.command(&root)?))).transpose()?;
        let given = Given {
            is_root: flash_waiting::sandbox::privileges::is_root(),
            has_application: application.is_some(),
            has_tls: testbed.certificate.is_some(),
            has_http2: testbed.has_http2,
        };
        let folder = Folder::make()?;
        let addresses = (address, application.as_ref().map(|(_, (_, address))| *address));
        let values = prepare::values(name, recipe, testbed, &root, &folder.0, addresses)?;
        prepare::write_certificate(testbed, &folder.0)?;
        for (file, text) in &recipe.files {
            let path = folder.0.join(file);
            let text = template::fill(&template::lines_if_given(text, given), &values);
            fs::write(&path, text).map_err(|why| Error::file("write", &path, &why))?;
        }
        let words = |command: &'_ [String]| -> Vec<String> {
            command.iter().filter_map(|word| template::if_given(word, given)).map(str::to_owned).collect()
        };
        let [command, backend] = [&recipe.command, &recipe.backend].map(|command| words(command));
        let version = prepare::version(name, recipe, &values, &folder.0);
        let groups = Groups::make(testbed, Path::new(&root))?;
        let mut running = Running {
            name: name.clone(),
            url: format!("{}://{address}", if given.has_tls { "https" } else { "http" }),
            version,
            command: Some(prepare::shown(&[&backend, &command], &recipe.set)),
            pid: None,
            started: Some(Started { programs: Vec::new(), uncounted: 0, groups, folder, is_over: false }),
        };
        let start = |running: &mut Running, what: String, words: &[String], core: Option<usize>| {
            let Some(started) = &mut running.started else { return Ok(()) };
            let command = prepare::command(name, recipe, words, &values, &started.folder.0)?;
            let stop = recipe.stop.unwrap_or(Signal::TERM);
            started.start(what, command, &Start { core, side, stop })
        };
        let answers = |running: &Running, what: &str, check: ReadinessCheck, wait: &Wait| {
            // From its own side: the question does not pass the link.
            let wait = || running.wait_until_it_answers(what, check, wait);
            side.map_or_else(wait, |side| side.run(wait)?)
        };
        if let Some((behind, (words, address))) = &application {
            let what = format!("the application behind {name}");
            start(&mut running, what.clone(), words, behind.core)?;
            answers(&running, &what, ReadinessCheck::in_clear(*address), &behind.wait())?;
            running.started.iter_mut().for_each(|started| started.uncounted = started.programs.len());
        }
        if !backend.is_empty() {
            start(&mut running, format!("the backend of {name}"), &backend, testbed.core)?;
            running.wait_until_its_backend_listens(recipe.wait.patience)?;
        }
        start(&mut running, name.clone(), &command, testbed.core)?;
        running.pid = running.pids().last().copied();
        // In clear, HTTP/2 may be all that it speaks there: then a connection must do.
        let is_http2_alone = given.has_http2 && !given.has_tls;
        let path = recipe.wait.path.clone().filter(|_| !is_http2_alone);
        let check = ReadinessCheck { address: address.into(), is_https: given.has_tls };
        answers(&running, name, check, &Wait { path, ..recipe.wait.clone() })?;
        Ok(running)
    }
}

impl Running {
    /// The folder of its own files; none for one that ran already.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.started.as_ref().map(|started| started.folder.0.as_path())
    }

    /// Its process id and that of its backend, if it has one, as far as known: of all that CPU time and memory count for.
    pub fn pids(&self) -> Vec<u32> {
        match &self.started {
            Some(started) => {
                let counted = started.programs.iter().skip(started.uncounted);
                counted.map(|program| program.process.pid).collect()
            }
            None => self.pid.into_iter().collect(),
        }
    }

    /// Holds it to the reads/s and the share of a core of its testbed, or lets it go. Nothing where there is no such bound.
    ///
    /// Errors: run, when the kernel does not take it.
    pub fn throttle(&self, on: bool) -> Result<()> {
        self.started.as_ref().map_or(Ok(()), |started| started.groups.throttle(on))
    }

    /// Waits until it reads nothing from a disk that is to be held: names that it still looks up, files for requests that were
    /// abandoned. They would be a debt: Linux lets reads of metadata pass the bound, and holds those that follow for longer
    /// (`bio_issue_as_root_blkg` in block/blk-throttle.c). False when it reads on.
    pub(crate) fn comes_to_rest(&self) -> bool {
        let Some(started) = self.started.as_ref().filter(|started| started.groups.bounds_reads()) else {
            return true;
        };
        let read = || started.processes().iter().map(|process| tree::read_bytes(process.pid)).sum();
        is_still_within(STILL_PATIENCE, STILL, read)
    }

    /// Why it, its backend or its application does not run any more, with the end of its log; none while they run, or when its process
    /// is not known.
    pub fn ended(&self) -> Option<String> {
        let what = match (&self.started, self.pid) {
            (Some(started), _) => started.dead()?,
            (None, Some(pid)) if Stat::read(pid).is_none_or(|stat| stat.is_zombie) => &self.name,
            (None, _) => return None,
        };
        Some(format!("{what} has ended{}", self.last_words()))
    }

    /// How many of its processes the kernel has killed because the testbed's memory was too small.
    pub fn killed_for_memory(&self) -> u64 {
        self.started.as_ref().map_or(0, |started| started.groups.killed_for_memory())
    }

    /// Ends it, its backend and its application with all that they started, and removes what was made for it. One that ran already goes
    /// on.
    ///
    /// Errors: run, when something can't be ended or removed.
    pub fn stop(mut self) -> Result<()> {
        match self.started.take() {
            Some(mut started) => started.end().map(drop),
            None => Ok(()),
        }
    }

    /// The end of its log, and whether its memory was too small; for the end of a message.
    fn last_words(&self) -> String {
        let Some(started) = &self.started else { return String::new() };
        let words = last_words(&started.folder.0.join(LOG));
        match self.killed_for_memory() {
            0 => format!("; its last words: {words}"),
            n => format!(
                "; its last words: {words}; its memory is too small: the kernel killed {n} of its processes"
            ),
        }
    }

    /// Asks until there is an answer. On an error the caller ends what was started, by dropping it.
    fn wait_until_it_answers(&self, what: &str, check: ReadinessCheck, wait: &Wait) -> Result<()> {
        let failed = format!("{what} does not answer at {}", check.address);
        let task = "it answered (it must stay in the foreground and take its port)";
        self.wait_until(wait.patience, (&failed, task), || check.run(wait.path.as_deref()))
    }

    fn wait_until_its_backend_listens(&self, patience: Duration) -> Result<()> {
        let Some(socket) = self.folder().map(prepare::socket) else { return Ok(()) };
        let failed = format!("the backend of {} does not listen on {}", self.name, socket.display());
        let task = "it listened (it must stay in the foreground and listen on {socket})";
        let try_it =
            || prepare::listens(&socket).then_some(()).ok_or_else(|| "there is no such socket".to_owned());
        self.wait_until(patience, (&failed, task), try_it)
    }

    /// Tries until it succeeds. `failed` begins the error when time is up, `task` is the event that was awaited when a program
    /// ended.
    fn wait_until(
        &self,
        patience: Duration,
        (failed, task): (&str, &str),
        try_it: impl Fn() -> std::result::Result<(), String>,
    ) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(what) = self.started.as_ref().and_then(Started::dead) {
                return Err(Error::run(format!("{what} ended before {task}{}", self.last_words())));
            }
            let Err(why) = try_it() else { return Ok(()) };
            if Instant::now() >= deadline {
                let waited = number::time(patience.as_secs_f64() * 1000.0);
                return Err(Error::run(format!("{failed} after {waited}: {why}{}", self.last_words())));
            }
            thread::sleep(LOOK);
        }
    }
}

/// How a program of a server is started and ended.
struct Start<'a> {
    core: Option<usize>,
    side: Option<&'a Side>,
    stop: Signal,
}

impl Started {
    /// Starts one of its programs, which writes into its log.
    fn start(&mut self, what: String, mut command: Command, start: &Start<'_>) -> Result<()> {
        let Start { core, side, stop } = *start;
        let path = self.folder.0.join(LOG);
        let log = OpenOptions::new().create(true).append(true).open(&path);
        let both = log.and_then(|log| Ok((log.try_clone()?, log)));
        let (out, err) = both.map_err(|why| Error::file("write", &path, &why))?;
        command.stdout(out).stderr(err);
        let program = command.get_program().display().to_string();
        let apart = program::Placement {
            core,
            groups: self.groups.entrances()?.into_iter().map(Into::into).collect(),
            descriptors: DESCRIPTORS,
            network: side.map(Side::entrance).transpose()?,
            parent_death: stop,
        };
        let (mut child, keeper) = prepare::start_kept(command, apart).map_err(|why| {
            let core = core.map(|core| format!(" on core {core}")).unwrap_or_default();
            Error::run(format!("cannot start {what}{core}: {program}: {why}"))
        })?;
        let pid = child.id();
        // It is not waited for yet, so it is there, running or ended.
        let Some(stat) = Stat::read(pid) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Error::run(format!("cannot find {what} (process {pid}) in /proc: mount it there")));
        };
        self.programs.push(Program { what, child, process: stat.process, stop, _keeper: keeper });
        Ok(())
    }

    /// The first of its programs, if any, that has ended.
    fn dead(&self) -> Option<&String> {
        self.programs.iter().find(|program| !tree::is_alive(program.process)).map(|program| &program.what)
    }

    /// Ends all of it: asks the programs first, and kills what is left after a while. The programs themselves are
    /// waited for last, so that meanwhile their ids, and the sessions that have them for names, are their own.
    fn end(&mut self) -> Result<()> {
        if self.is_over {
            return Ok(());
        }
        self.is_over = true;
        // A server in the middle of held-back reads would end slowly.
        let lifted = self.groups.throttle(false);
        // The server first: it should end by itself, and not for the lack of a backend.
        for program in self.programs.iter().rev() {
            let _ = program::signal(program.process.pid, program.stop);
        }
        let mut left = self.wait_for_end(None);
        if !left.is_empty() {
            left = self.wait_for_end(Some(Signal::KILL));
        }
        // Without waiting: one that even that does not end would keep the lab.
        for program in &mut self.programs {
            let _ = program.child.try_wait();
        }
        let removed = self.groups.remove();
        if let Some(process) = left.first() {
            return Err(Error::run(format!(
                "process {} of the server can't be ended; it may hang in a system call: end it by hand",
                process.pid
            )));
        }
        removed.and(lifted)
    }

    /// Waits until no process is left, for a while; gives those that are.
    fn wait_for_end(&self, signal: Option<Signal>) -> Vec<Process> {
        let deadline = Instant::now() + STOP_PATIENCE;
        loop {
            let left = self.processes();
            if left.is_empty() || Instant::now() >= deadline {
                return left;
            }
            // Each time anew: they may start others until they are gone.
            for process in signal.map(|_| &left).into_iter().flatten() {
                if tree::is_alive(*process) {
                    let _ = program::signal(process.pid, Signal::KILL);
                }
            }
            thread::sleep(LOOK);
        }
    }

    /// The server's living processes: what descends from it, is of its session, or in its groups.
    fn processes(&self) -> Vec<Process> {
        let (all, grouped) = (Stat::all(), self.groups.pids());
        let roots: Vec<u32> = self.programs.iter().map(|program| program.process.pid).collect();
        let trees = roots.iter().flat_map(|root| tree::tree(&all, *root));
        let tree: Vec<Process> = trees.map(|stat| stat.process).collect();
        let is_its = |stat: &&Stat| {
            !stat.is_zombie
                && (roots.contains(&stat.session)
                    || grouped.contains(&stat.process.pid)
                    || tree.contains(&stat.process))
        };
        all.iter().filter(is_its).map(|stat| stat.process).collect()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("warning: {error}");
        }
    }
}

/// Whether a count stays the same for this long, before the patience ends.
fn is_still_within(patience: Duration, still: Duration, count: impl Fn() -> u64) -> bool {
    let deadline = Instant::now() + patience;
    let (mut last, mut since) = (count(), Instant::now());
    while since.elapsed() < still {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(still / 10);
        let now = count();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    true
}

/// The end of a log, in one line.
fn last_words(path: &Path) -> String {
    let mut bytes = Vec::new();
    // A log that can't be read has no words.
    let _ = File::open(path).and_then(|mut log| {
        let start = log.metadata()?.len().saturating_sub(LAST_BYTES);
        log.seek(SeekFrom::Start(start))?;
        log.take(LAST_BYTES).read_to_end(&mut bytes)
    });
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match &lines[lines.len().saturating_sub(LAST_LINES)..] {
        [] => "it said nothing".to_owned(),
        last => last.join(" / "),
    }
}

#[cfg(test)]
#[path = "running_tests.rs"]
mod tests;
