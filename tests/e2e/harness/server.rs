//! A private server: started, watched, signalled, and never left behind.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{Client, Folder, PATIENCE, Page, Wire, adapted, is, is_root, wait_for, wait_until};

/// A server to start.
pub(crate) struct Launch {
    words: Vec<OsString>,
    through: Vec<OsString>,
    user: Option<&'static str>,
    /// The environment of the control socket.
    control: &'static str,
}

impl Launch {
    /// `flash serve` of a folder's `www` on any port of 127.0.0.1, with one worker.
    pub(crate) fn new(folder: &Folder) -> Self {
        Self::with_workers(folder, 1)
    }

    pub(crate) fn with_workers(folder: &Folder, workers: usize) -> Self {
        let launch = Self::bare().arg(folder.path("www")).args(["--listen", "127.0.0.1:0"]);
        launch.workers(workers)
    }

    /// With this many workers, or for `mp` with its own number of processes.
    pub(crate) fn workers(self, workers: usize) -> Self {
        let flag = if is(&["mp"]) { "--processes" } else { "--workers" };
        self.arg(flag).arg(super::workers(workers).to_string())
    }

    /// With these flags of helpers, if the architecture has any.
    pub(crate) fn helpers(self, words: [&str; 2]) -> Self {
        if is(&["amped"]) { self.args(words) } else { self }
    }

    /// `flash serve` with this text as its config file, and nothing else.
    pub(crate) fn configured(folder: &Folder, config: &str) -> Self {
        let path = folder.write("flash.toml", adapted(config));
        Self::bare().arg("--config").arg(path)
    }

    /// `flash serve` and nothing else. Started by root it stays root, without root's rights, because the tests' files
    /// belong to root.
    pub(crate) fn bare() -> Self {
        Self::without_architecture().architecture(super::architecture())
    }

    /// `flash backend` at this socket, with a control socket if one is given.
    pub(crate) fn backend(socket: &Path, control: Option<&Path>) -> Self {
        let backend = Self { words: vec!["backend".into()], ..Self::without_architecture() };
        backend.arg("--control").arg(control.unwrap_or(Path::new("none"))).arg("--socket").arg(socket)
    }

    /// `flash serve` without the suite's architecture.
    pub(crate) fn without_architecture() -> Self {
        Self {
            words: vec!["serve".into()],
            through: Vec::new(),
            user: is_root().then_some("root"),
            control: "none",
        }
    }

    /// With another architecture than the suite's, as the first option.
    pub(crate) fn architecture(mut self, name: &str) -> Self {
        self.words.truncate(1);
        self.args(["--architecture", name])
    }

    /// Started by root it runs as this user; for None, as the default user.
    pub(crate) fn user(mut self, user: Option<&'static str>) -> Self {
        self.user = user;
        self
    }

    /// With a control socket in the default place; otherwise there is none, because killed servers would leave theirs
    /// in the user's folder.
    pub(crate) fn with_control(mut self) -> Self {
        self.control = "";
        self
    }

    pub(crate) fn arg(mut self, word: impl AsRef<OsStr>) -> Self {
        self.words.push(word.as_ref().to_owned());
        self
    }

    pub(crate) fn args<const N: usize>(self, words: [&str; N]) -> Self {
        words.into_iter().fold(self, Self::arg)
    }

    /// Starts it through another program that executes it: `setpriv`, or a shell that sets a limit.
    pub(crate) fn through<const N: usize>(mut self, words: [&str; N]) -> Self {
        self.through = words.map(OsString::from).to_vec();
        self
    }

    /// The same, with several words.
    pub(crate) fn through_all(mut self, words: &[&str]) -> Self {
        self.through = words.iter().map(OsString::from).collect();
        self
    }

    /// The flags for HTTPS beside each address of a flag, if the suite's clients speak it.
    fn tls_words(&self) -> Vec<OsString> {
        let flags =
            self.words.windows(2).filter(|pair| pair[0] == "--listen" && super::wire() != Wire::Plain);
        let mut words: Vec<OsString> =
            flags.flat_map(|pair| [OsString::from("--listen-tls"), pair[1].clone()]).collect();
        if !words.is_empty() {
            let [certificate, key] = super::wire::certificate();
            words.extend([
                "--certificate".into(),
                certificate.into(),
                "--certificate-key".into(),
                key.into(),
            ]);
        }
        words
    }

    fn command(&self) -> Command {
        let flash = OsString::from(env!("CARGO_BIN_EXE_flash"));
        let user = self.user.map(|user| OsString::from(format!("--user={user}")));
        let words = self.through.iter().chain([&flash]).chain(&self.words).chain(&user);
        // The session has a process group, so that a signal to the group acts like Ctrl-C.
        let mut command = in_a_session();
        command.args(words).args(self.tls_words()).stdin(Stdio::null());
        // In a folder without files that could be served by mistake.
        command.current_dir("/proc/self/fdinfo");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        without_settings(&mut command);
        command.env("FLASH_CONTROL", self.control);
        if !super::watches() {
            command.env("FLASH_WATCH", "false");
        }
        command
    }

    /// Starts it and waits for the start line.
    #[track_caller]
    pub(crate) fn start(self) -> Server {
        self.try_start().unwrap_or_else(|said| panic!("the server ended at its start: {said}"))
    }

    /// The same; if it ends at its start, what it said on standard error.
    #[track_caller]
    pub(crate) fn try_start(self) -> Result<Server, String> {
        let mut child = self.command().spawn().unwrap();
        let out = Heard::of(child.stdout.take().unwrap());
        let err = Heard::of(child.stderr.take().unwrap());
        let mut server = Server { child, out, err, addresses: Vec::new() };
        let addresses = wait_for("the server's start line", || {
            let has_ended = server.has_ended();
            server.announcements().into_iter().next().map(Some).or(has_ended.then_some(None))
        });
        let Some(addresses) = addresses else {
            let status = server.wait();
            return Err(format!("{status} {}", server.stderr()));
        };
        server.addresses = addresses;
        Ok(server)
    }

    /// Starts it where it must fail: exit code, standard output, standard error.
    #[track_caller]
    pub(crate) fn fail(self) -> (Option<i32>, String, String) {
        let mut child = self.command().spawn().unwrap();
        let out = Heard::of(child.stdout.take().unwrap());
        let err = Heard::of(child.stderr.take().unwrap());
        let mut server = Server { child, out, err, addresses: Vec::new() };
        let status = server.wait();
        (status.code(), server.stdout(), server.stderr())
    }
}

/// A command that executes its arguments in a session of their own, with the same pid. The kernel shares the cores
/// among sessions (sched(7), "The autogroup feature") as it does among services. Otherwise the helpers, which are
/// nice, would get next to nothing beside many other tests.
pub(crate) fn in_a_session() -> Command {
    Command::new("setsid")
}

/// The output of a process and its descendants to a pipe so far.
#[derive(Clone, Default)]
struct Heard {
    bytes: Arc<Mutex<Vec<u8>>>,
    is_over: Arc<AtomicBool>,
}

impl Heard {
    fn of(mut pipe: impl Read + Send + 'static) -> Self {
        let heard = Self::default();
        let copy = heard.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 16 * 1024];
            while let Ok(bytes @ 1..) = pipe.read(&mut buffer) {
                copy.bytes.lock().unwrap().extend_from_slice(&buffer[..bytes]);
            }
            copy.is_over.store(true, Ordering::Release);
        });
        heard
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }
}

/// Whether a line says that the kernel does not report the contents of the page cache: before Linux 6.5.
fn is_about_cachestat(line: &str) -> bool {
    line.contains("does not report which files are in memory (Function not implemented")
}

/// Whether a message names a part of a root that cannot be watched, which depends on its file system and rights.
fn is_about_watching(line: &str) -> bool {
    line.starts_with("flash: the watcher: ") && line.contains("checked instead")
}

fn is_in_force(line: &str) -> bool {
    line.starts_with("flash: configuration ") && line.contains(" is in force")
}

/// A running server. Dropping it ends it and its descendants.
pub(crate) struct Server {
    child: Child,
    out: Heard,
    err: Heard,
    /// Its addresses, from the first start line.
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Server {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn stdout(&self) -> String {
        self.out.text()
    }

    /// Whether its start line says that this kernel has no `cachestat`: before Linux 6.5.
    pub(crate) fn lacks_cachestat(&self) -> bool {
        self.stdout().contains("cachestat: Function not implemented")
    }

    /// Its messages so far, except those about configurations in force and about parts that are not watched.
    pub(crate) fn stderr(&self) -> String {
        let text = self.err.text();
        text.split_inclusive('\n')
            .filter(|line| !is_in_force(line) && !is_about_watching(line) && !is_about_cachestat(line))
            .collect()
    }

    /// The messages about configurations in force, after reloads.
    pub(crate) fn in_force(&self) -> Vec<String> {
        self.err.text().lines().filter(|line| is_in_force(line)).map(str::to_owned).collect()
    }

    /// The addresses of every start line so far; a reload prints another.
    pub(crate) fn announcements(&self) -> Vec<Vec<SocketAddr>> {
        let text = self.stdout() + &self.stderr();
        let lines = text.split_inclusive('\n').filter(|line| {
            line.starts_with("flash ")
                && [" serves ", " listens at "].iter().any(|verb| line.contains(verb))
                && line.ends_with('\n')
        });
        lines.map(addresses_of).collect()
    }

    /// A new connection to its first address.
    #[track_caller]
    pub(crate) fn client(&self) -> Client {
        Client::to(self.addresses[0])
    }

    /// Its answer to a GET on a new connection.
    #[track_caller]
    pub(crate) fn get(&self, target: &str) -> Page {
        self.client().get(target)
    }

    /// Its answer to a GET with these fields on a new connection.
    #[track_caller]
    pub(crate) fn get_with(&self, target: &str, fields: &[&str]) -> Page {
        self.client().request("GET", target, fields)
    }

    /// Sends a signal to the supervisor.
    pub(crate) fn signal(&self, signal: &str) {
        kill(signal, self.pid());
    }

    /// Sends a signal to all its processes, as a terminal does.
    pub(crate) fn signal_group(&self, signal: &str) {
        kill_group(signal, self.pid());
    }

    /// Waits until it and its descendants have ended and written their last output.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let status = wait_for("the end of the server", || self.child.try_wait().unwrap());
        let pipes = [&self.out, &self.err];
        wait_until("the end of what the server started", || {
            pipes.iter().all(|heard| heard.is_over.load(Ordering::Acquire))
        });
        status
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until it has printed this on standard error.
    #[track_caller]
    pub(crate) fn wait_for_stderr(&self, text: &str) {
        let said = format!("{text:?} on standard error");
        wait_until(&said, || {
            let all = self.err.text();
            let messages: String = all.split_inclusive('\n').filter(|line| !is_in_force(line)).collect();
            messages.contains(text)
        });
    }

    /// The processes of a role, by pid.
    pub(crate) fn role(&self, role: &str) -> Vec<u32> {
        roles_of(self.pid(), role)
    }

    /// Its children that have ended and were not reaped, by pid.
    pub(crate) fn zombies(&self) -> Vec<u32> {
        let pids = pids()
            .filter(|pid| state_of(*pid).is_some_and(|(state, parent)| state == "Z" && parent == self.pid()));
        pids.collect()
    }

    /// The only process of a role, once there is exactly one.
    #[track_caller]
    pub(crate) fn sole(&self, role: &str) -> u32 {
        wait_for(&format!("a single {role}"), || match self.role(role)[..] {
            [pid] => Some(pid),
            _ => None,
        })
    }

    /// The processes of a role, once there is any.
    #[track_caller]
    pub(crate) fn some(&self, role: &str) -> Vec<u32> {
        wait_for(&format!("any {role}"), || Some(self.role(role)).filter(|pids| !pids.is_empty()))
    }

    /// The worker's own memory in kibibytes, without what it maps of files and of the store.
    pub(crate) fn worker_memory_kib(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.sole("worker"))).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let workers = self.role("worker");
        let children: Vec<u32> = ["worker", "helper", "keeper", "watcher", "gateway", "program", "log"]
            .iter()
            .flat_map(|role| self.role(role))
            .collect();
        let _ = self.child.kill();
        let _ = self.child.wait();
        // They end with their supervisor, which a test checks; this ensures it.
        for pid in children.into_iter().filter(|pid| role_of(*pid).is_some()) {
            kill("KILL", pid);
        }
        // On a busy machine a worker ends later, and until then it holds the sockets, which another server may need.
        let since = Instant::now();
        while workers.iter().any(|pid| parent_of(*pid).is_some()) && since.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        if std::thread::panicking() {
            eprintln!("--- the server said:\n{}{}---", self.stdout(), self.stderr());
        }
    }
}

/// Keeps the variables of this machine that could be settings of Flash from a command.
pub(crate) fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FLASH_")) {
        command.env_remove(name);
    }
}

/// The version of Landlock that a server reports; 0 if it has none.
pub(crate) fn landlock_version(server: &Server) -> u8 {
    let started = server.stdout();
    let version = started.split("Landlock ").nth(1).and_then(|rest| rest.split(',').next()?.parse().ok());
    version.unwrap_or(0)
}

fn addresses_of(start_line: &str) -> Vec<SocketAddr> {
    // A backend has no address.
    let starts = [" at http", " at unix:"].map(|start| start_line.rfind(start));
    let Some(start) = starts.into_iter().flatten().min() else { return Vec::new() };
    let (urls, _) = start_line[start..].split_once("; ").unwrap();
    let is_of_wire = |url: &&str| super::wire() == Wire::Plain || url.starts_with("https://");
    let addresses = urls.split(' ').filter(|url| url.starts_with("http")).filter(is_of_wire).map(|url| {
        let address = url.rsplit_once("//").and_then(|(_, rest)| rest.strip_suffix('/')).unwrap();
        address.parse().unwrap()
    });
    addresses.collect()
}

/// The processes of a role that `parent` has started, by pid.
fn roles_of(parent: u32, role: &str) -> Vec<u32> {
    pids().filter(|pid| parent_of(*pid) == Some(parent) && role_of(*pid).as_deref() == Some(role)).collect()
}

fn pids() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The parent of a running process, not of a zombie.
fn parent_of(pid: u32) -> Option<u32> {
    state_of(pid).filter(|(state, _)| state != "Z").map(|(_, parent)| parent)
}

/// The state of a process, by its letter, and its parent.
fn state_of(pid: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

fn role_of(pid: u32) -> Option<String> {
    let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = words.split('\0');
    let (program, command) = (words.next()?, words.next()?);
    (program.ends_with("flash") && command == "role").then(|| words.next().map(str::to_owned))?
}

/// The answer of the server with this control socket, with the counters of each worker. On a busy machine a worker may
/// tell them too late for one answer, whose sums then lack its part.
#[track_caller]
pub(crate) fn stats_at(control: &Path) -> serde_json::Value {
    wait_for("every worker to tell its counters", || {
        let stats = stats_once(control);
        let has_told = |worker: &serde_json::Value| !worker["counters"].is_null();
        stats["workers"].as_array()?.iter().all(has_told).then_some(stats)
    })
}

/// One answer of the server with this control socket, where a worker is stopped or dead.
#[track_caller]
pub(crate) fn stats_once(control: &Path) -> serde_json::Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flash"));
    let output = command.args(["stats", "--json", "--control"]).arg(control).stdin(Stdio::null()).output();
    let output = output.unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["version"], 2);
    answer["stats"].clone()
}

/// Sends a signal to a process, which may be gone.
pub(crate) fn kill(signal: &str, pid: u32) {
    send_signal(signal, &pid.to_string());
}

/// Sends a signal to all processes of a group.
pub(crate) fn kill_group(signal: &str, group: u32) {
    send_signal(signal, &format!("-{group}"));
}

fn send_signal(signal: &str, whom: &str) {
    let script = format!("kill -{signal} {whom}");
    let _ = Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).status().unwrap();
}
