//! A server that runs: started in its place, asked until it answers, watched, and ended with all that
//! it started.
//!
//! `compare` and the like call it. It ends only what it started, by process id, and removes the groups
//! and the folder that it made, also when the caller fails or unwinds. When the lab itself is killed,
//! the kernel sends the server its stop signal. A server that then leaves children behind, that hangs,
//! or that has changed its user (which clears that arrangement, prctl(2)) outlives the lab, and its
//! groups and folder stay: the next lab removes empty groups.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Child;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use flash_waiting::program::{self, Signal};

use super::groups::Groups;
use super::peer::{Kind, LOG, Peer, Recipe, Wait};
use super::prepare::{self, Folder};
use super::tree::{self, Process, Stat};
use super::watch::{UsageReading, Watch};
use super::{Place, free_port, template};
use crate::error::{Error, Result};
use crate::target::Target;

/// How long a server may take to end when asked to, and again when made to.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// How long one question whether a server answers may take.
const ASK_PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks at something that is waited for.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// Descriptors that a server may have: enough for 20,000 connections and as many files, and more.
const DESCRIPTORS: u64 = 131_072;
/// What is shown of the end of a log.
const LAST_LINES: usize = 4;
/// What is read of it for that.
pub(super) const LAST_BYTES: u64 = 4096;

/// A server that runs. Dropped, it is stopped.
#[derive(Debug)]
pub struct Running {
    name: String,
    url: String,
    version: Option<String>,
    command: Option<String>,
    pid: Option<u32>,
    started: Option<Started>,
}

/// What was started and made for a server. Fields are dropped in this order.
#[derive(Debug)]
struct Started {
    child: Child,
    process: Process,
    stop: Signal,
    /// Dropped, it ends the thread that started the server, which must live as long as that.
    _keeper: Sender<()>,
    groups: Groups,
    folder: Folder,
    is_over: bool,
}

impl Peer {
    /// Whether its program is installed, without starting it.
    ///
    /// Errors: run, with the Debian package where that is known.
    pub fn check(&self) -> Result<()> {
        match &self.kind {
            Kind::Started(recipe) => prepare::program_path(&self.name, recipe, &recipe.command[0]).map(drop),
            Kind::Elsewhere { .. } => Ok(()),
        }
    }

    /// Starts it at `place`, on a port of 127.0.0.1, and waits until it answers. The disk is not held
    /// back yet. One that runs already is only waited for: it is in no testbed.
    ///
    /// Errors: usage, for a root that is not there; run, for a missing program, a testbed that this
    /// machine does not allow, and a server that ends or does not answer in time, with the end of its
    /// log. Nothing is left behind then.
    pub fn start(&self, place: &Place) -> Result<Running> {
        match &self.kind {
            Kind::Started(recipe) => self.start_recipe(recipe, place, free_port()?),
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
                let address = Target::parse(url, true)?.address;
                running.wait_until_it_answers(address, wait)?;
                Ok(running)
            }
        }
    }

    fn start_recipe(&self, recipe: &Recipe, place: &Place, port: u16) -> Result<Running> {
        let name = &self.name;
        let is_root = flash_waiting::sandbox::privileges::is_root();
        let root = place.checked_root()?;
        let folder = Folder::make()?;
        let values = prepare::values(name, recipe, place, &root, &folder.0, port)?;
        for (file, text) in &recipe.files {
            let path = folder.0.join(file);
            let text = template::fill(&template::lines_for_user(text, is_root), &values);
            fs::write(&path, text).map_err(|why| Error::file("write", &path, &why))?;
        }
        let words: Vec<&str> =
            recipe.command.iter().filter_map(|word| template::for_user(word, is_root)).collect();
        let version = prepare::version(name, recipe, &values, &folder.0);
        let mut command = prepare::command(name, recipe, &words, &values, &folder.0)?;
        let path = folder.0.join(LOG);
        let log = OpenOptions::new().create(true).append(true).open(&path);
        let both = log.and_then(|log| Ok((log.try_clone()?, log)));
        let (out, err) = both.map_err(|why| Error::file("write", &path, &why))?;
        command.stdout(out).stderr(err);

        let groups = place.groups(Path::new(&root))?;
        let stop = recipe.stop.unwrap_or(Signal::TERM);
        let apart = program::Place {
            core: place.core,
            groups: groups.entrances()?.into_iter().map(Into::into).collect(),
            descriptors: DESCRIPTORS,
            parent_death: stop,
        };
        let (mut child, keeper) = prepare::start_kept(command, apart).map_err(|why| {
            let core = place.core.map(|core| format!(" on core {core}")).unwrap_or_default();
            Error::run(format!("cannot start {name}{core}: {}: {why}", recipe.command[0]))
        })?;
        let pid = child.id();
        // It is not waited for yet, so it is there, running or ended.
        let Some(stat) = Stat::read(pid) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Error::run(format!("cannot find {name} (process {pid}) in /proc: mount it there")));
        };
        let running = Running {
            name: name.clone(),
            url: format!("http://127.0.0.1:{port}"),
            version,
            command: Some(prepare::shown(&words, &recipe.set)),
            pid: Some(pid),
            started: Some(Started {
                child,
                process: stat.process,
                stop,
                _keeper: keeper,
                groups,
                folder,
                is_over: false,
            }),
        };
        running.wait_until_it_answers(SocketAddr::from(([127, 0, 0, 1], port)), &recipe.wait)?;
        Ok(running)
    }
}

impl Running {
    /// Where it answers: `http://HOST:PORT` and, for one that ran already, what follows.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The first line of what it says of its version, when the lab started it.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// How it was started, with the placeholders of what differs between machines and runs; none for
    /// one that ran already.
    pub fn command(&self) -> Option<&str> {
        self.command.as_deref()
    }

    /// The folder of its own files; none for one that ran already.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.started.as_ref().map(|started| started.folder.0.as_path())
    }

    /// Its process id, when known.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// What it has used until now with all that it started; none when its process is not known or
    /// has ended.
    pub fn usage(&self) -> Option<UsageReading> {
        UsageReading::of(self.pid?)
    }

    /// Begins to watch what it uses; none when its process is not known.
    ///
    /// Errors: as [`Watch::start`].
    pub fn watch(&self) -> Result<Option<Watch>> {
        self.pid.map(Watch::start).transpose()
    }

    /// Holds its disk to the reads/s of its place, or lets it go. Nothing where there is no such bound.
    ///
    /// Errors: run, when the kernel does not take it.
    pub fn throttle(&self, on: bool) -> Result<()> {
        self.started.as_ref().map_or(Ok(()), |started| started.groups.throttle(on))
    }

    /// Why it does not run any more, with the end of its log; none while it runs, or when its process
    /// is not known.
    pub fn ended(&self) -> Option<String> {
        let is_alive = match (&self.started, self.pid) {
            (Some(started), _) => tree::is_alive(started.process),
            (None, Some(pid)) => Stat::read(pid).is_some_and(|stat| !stat.is_zombie),
            (None, None) => true,
        };
        (!is_alive).then(|| format!("{} has ended{}", self.name, self.last_words()))
    }

    /// How many of its processes the kernel has killed because the place's memory was too small.
    pub fn killed_for_memory(&self) -> u64 {
        self.started.as_ref().map_or(0, |started| started.groups.killed_for_memory())
    }

    /// Ends it with all that it started, and removes what was made for it. One that ran already goes on.
    ///
    /// Errors: run, when something can't be ended or removed.
    pub fn stop(mut self) -> Result<()> {
        match self.started.take() {
            Some(mut started) => started.end().map(drop),
            None => Ok(()),
        }
    }

    /// What its log and its groups say of its end; for the end of a message.
    fn last_words(&self) -> String {
        let Some(started) = &self.started else {
            return String::new();
        };
        let words = last_words(&started.folder.0.join(LOG));
        match self.killed_for_memory() {
            0 => format!("; its last words: {words}"),
            n => format!(
                "; its last words: {words}; its memory is too small: the kernel killed {n} of its processes"
            ),
        }
    }

    /// Asks until there is an answer. On an error what was started is ended.
    fn wait_until_it_answers(&self, address: SocketAddr, wait: &Wait) -> Result<()> {
        let deadline = Instant::now() + wait.patience;
        loop {
            let is_alive = self.started.as_ref().is_none_or(|started| tree::is_alive(started.process));
            if !is_alive {
                return Err(Error::run(format!(
                    "{} ended before it answered (it must stay in the foreground and take its port){}",
                    self.name,
                    self.last_words()
                )));
            }
            let why = match answers(address, wait.path.as_deref()) {
                Ok(()) => return Ok(()),
                Err(why) => why,
            };
            if Instant::now() >= deadline {
                return Err(Error::run(format!(
                    "{} does not answer at {address} after {:.1} s: {why}{}",
                    self.name,
                    wait.patience.as_secs_f64(),
                    self.last_words()
                )));
            }
            thread::sleep(LOOK);
        }
    }
}

impl Started {
    /// Ends all of it: asks the server first, and kills what is left after a while. The server itself is
    /// waited for last, so that meanwhile its id, and the session that has it for a name, are its own.
    fn end(&mut self) -> Result<()> {
        if self.is_over {
            return Ok(());
        }
        self.is_over = true;
        // A server in the middle of held-back reads would end slowly.
        let lifted = self.groups.throttle(false);
        let _ = program::signal(self.process.pid, self.stop);
        let mut left = self.wait_for_end(None);
        if !left.is_empty() {
            left = self.wait_for_end(Some(Signal::KILL));
        }
        // Without waiting: one that even that does not end would keep the lab.
        let _ = self.child.try_wait();
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
        let (all, grouped, root) = (Stat::all(), self.groups.pids(), self.process.pid);
        let tree: Vec<Process> = tree::tree(&all, root).iter().map(|stat| stat.process).collect();
        let is_its = |stat: &&Stat| {
            !stat.is_zombie
                && (stat.session == root
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

/// Whether there is an answer: any HTTP response, or without a path a connection.
fn answers(address: SocketAddr, path: Option<&str>) -> std::result::Result<(), String> {
    let text = |why: std::io::Error| why.to_string();
    let mut stream = TcpStream::connect_timeout(&address, ASK_PATIENCE).map_err(text)?;
    let Some(path) = path else {
        return Ok(());
    };
    stream.set_read_timeout(Some(ASK_PATIENCE)).map_err(text)?;
    stream.set_write_timeout(Some(ASK_PATIENCE)).map_err(text)?;
    let ask = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).map_err(text)?;
    // "HTTP/1.1 200": whatever the status is, somebody is there who speaks HTTP.
    let mut head = [0; 12];
    stream.read_exact(&mut head).map_err(text)?;
    let is_http = head.starts_with(b"HTTP/1.") && head[9..].iter().all(u8::is_ascii_digit);
    if is_http { Ok(()) } else { Err("what it answers is not HTTP".to_owned()) }
}

#[cfg(test)]
#[path = "running_tests.rs"]
mod tests;
