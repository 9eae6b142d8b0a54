//! A private Apache with the module, a backend for it, and a client that reads whatever Apache sends.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use crate::harness::server::in_a_session;
use crate::harness::{Folder, PATIENCE, is_root, kill, skip, wait_for, wait_until};

pub(super) const MPMS: [&str; 3] = ["event", "worker", "prefork"];
const LIBRARY: &str = "/usr/lib/apache2/modules";
/// Modules of every configuration.
const MODULES: [&str; 14] = [
    "authz_core",
    "authz_host",
    "alias",
    "dir",
    "mime",
    "autoindex",
    "negotiation",
    "headers",
    "filter",
    "deflate",
    "include",
    "rewrite",
    "status",
    "asis",
];
/// A start fails if another process takes the port before Apache does.
const START_ATTEMPTS: usize = 5;

/// `modules/apache` of the project.
fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../modules/apache").canonicalize().unwrap()
}

/// The module, built once for a run; None, with the reason printed, if Apache is not installed.
pub(super) fn module() -> Option<&'static Path> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    is_installed().then(|| BUILT.get_or_init(|| build("flashpache", "")).as_path())
}

/// The module with checks of memory accesses.
pub(super) fn checked_module() -> Option<&'static Path> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    is_installed().then(|| BUILT.get_or_init(|| build("flashpache-asan", "-fsanitize=address")).as_path())
}

fn is_installed() -> bool {
    let found = |program: &str| {
        let script = format!("command -v {program}");
        Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).status().is_ok_and(|s| s.success())
    };
    let installed = found("apxs") && found("apache2") && Path::new(LIBRARY).exists();
    if !installed {
        skip("needs Debian's apache2 and apache2-dev");
    }
    installed
}

fn build(name: &str, checks: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut make = Command::new("make");
    make.arg("-C").arg(source()).arg(format!("BUILD={}", place.display()));
    let output = make.arg(format!("CHECKS={checks}")).output().unwrap();
    assert!(output.status.success(), "make failed: {}", String::from_utf8_lossy(&output.stderr));
    let said = [output.stdout, output.stderr].concat();
    assert!(!String::from_utf8_lossy(&said).contains("warning:"), "{}", String::from_utf8_lossy(&said));
    // In a place of its own that Apache's user can read.
    place.join(".libs/mod_flashpache.so")
}

/// A backend, or a process that acts as one. Dropping it kills it.
pub(super) struct Backend {
    child: Child,
    log: PathBuf,
}

impl Backend {
    /// `fake_backend.py` at the folder's socket, with these options.
    #[track_caller]
    pub(super) fn fake(folder: &Folder, options: &[&str]) -> Self {
        Self::script(folder, &source().join("../client/tests/fake_backend.py"), &[], options)
    }

    /// The same, whose rule holds only for names that contain `text`.
    #[track_caller]
    pub(super) fn choosy(folder: &Folder, text: &str, options: &[&str]) -> Self {
        Self::script(folder, &source().join("tests/choosy_backend.py"), &[text], options)
    }

    fn script(folder: &Folder, script: &Path, first: &[&str], options: &[&str]) -> Self {
        let log = folder.path("backend.log");
        let mut command = Command::new("python3");
        command.arg(script).args(first).arg(folder.path("backend.sock")).args(options).arg("--log").arg(&log);
        Self::start(command, log)
    }

    /// `flash backend` at the folder's socket.
    #[track_caller]
    pub(super) fn real(folder: &Folder, options: &[&str]) -> Self {
        let log = folder.path("backend.log");
        let mut command = in_a_session();
        command
            .arg(env!("CARGO_BIN_EXE_flash"))
            .args(["backend", "--control", "none", "--socket"])
            .arg(folder.path("backend.sock"))
            .args(options);
        command.stderr(fs::File::create(&log).unwrap());
        Self::start(command, log)
    }

    fn start(mut command: Command, log: PathBuf) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "no backend: {}", fs::read_to_string(&log).unwrap_or_default());
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Self { child, log }
    }

    /// The messages that a fake backend has received.
    pub(super) fn messages(&self) -> Vec<String> {
        fs::read_to_string(&self.log).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// How many of them begin with this.
    pub(super) fn count(&self, kind: &str) -> usize {
        self.messages().iter().filter(|message| message.starts_with(kind)).count()
    }

    /// Stops or continues it.
    pub(super) fn signal(&self, signal: &str) {
        kill(signal, self.child.id());
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        // `flash backend` ends its processes by itself when its supervisor is killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Reply {
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Without what differs from one answer to the next: the date, the boundary of several ranges, and the order of the
    /// methods in `Allow`.
    pub(super) fn lasting(&self) -> (String, Vec<u8>) {
        let lasting = |line: &str| match line.strip_prefix("Allow: ") {
            Some(methods) => {
                let mut methods: Vec<&str> = methods.split(',').collect();
                methods.sort_unstable();
                format!("Allow: {}\n", methods.join(","))
            }
            None => format!("{line}\n"),
        };
        let head: String =
            self.head.lines().filter(|line| !line.starts_with("Date: ")).map(lasting).collect();
        let boundary = self.field("Content-Type").and_then(|value| value.split_once("boundary="));
        let Some((_, boundary)) = boundary else { return (head, self.body.clone()) };
        // Its length varies, and with it that of the body.
        let length = format!("Content-Length: {}\n", self.body.len());
        assert!(head.contains(&length), "{head}");
        let bytes = self.body.escape_ascii().to_string().replace(boundary, "BOUNDARY").into_bytes();
        (head.replace(boundary, "BOUNDARY").replace(&length, ""), bytes)
    }
}

/// A request whose answer has not been read.
pub(super) struct Pending(TcpStream);

impl Pending {
    #[track_caller]
    pub(super) fn to(address: SocketAddr, method: &str, target: &str, fields: &[&str]) -> Self {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut text = format!("{method} {target} HTTP/1.1\r\nConnection: close\r\n");
        if !fields.iter().any(|field| field.starts_with("Host:")) {
            text.push_str("Host: e2e.test\r\n");
        }
        for field in fields {
            let _ = write!(text, "{field}\r\n");
        }
        stream.write_all((text + "\r\n").as_bytes()).unwrap();
        Self(stream)
    }

    /// Whether no byte has arrived.
    pub(super) fn is_held(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        let result = self.0.peek(&mut [0]);
        self.0.set_nonblocking(false).unwrap();
        matches!(result, Err(e) if e.kind() == ErrorKind::WouldBlock)
    }

    /// The answer, up to the end of the connection.
    #[track_caller]
    pub(super) fn reply(mut self) -> Reply {
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes).unwrap();
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no answer: {}", bytes.escape_ascii()));
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status =
            head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{head}"));
        let reply = Reply { status, head, body: bytes[end + 4..].to_vec() };
        if reply.field("Transfer-Encoding").is_none() {
            return reply;
        }
        Reply { body: unchunked(&reply.body), ..reply }
    }

    /// Ends the connection before the answer.
    pub(super) fn abort(self) {
        drop(self);
    }
}

/// The bytes of a body in chunks.
fn unchunked(mut chunks: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = chunks.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&chunks[..end]).unwrap(), 16).unwrap();
        body.extend_from_slice(&chunks[end + 2..end + 2 + size]);
        chunks = &chunks[end + 4 + size..];
    }
    body
}

/// An Apache to start.
pub(super) struct Setup<'a> {
    folder: &'a Folder,
    root: PathBuf,
    mpm: &'a str,
    module: Option<&'a Path>,
    directives: String,
    preload: Option<String>,
}

impl<'a> Setup<'a> {
    /// Apache without the module.
    pub(super) fn stock(folder: &'a Folder, mpm: &'a str) -> Self {
        Self { folder, root: folder.path("www"), mpm, module: None, directives: String::new(), preload: None }
    }

    /// Apache with the module, which is on and has its backend in the folder.
    pub(super) fn new(folder: &'a Folder, mpm: &'a str, module: &'a Path) -> Self {
        let directives = format!(
            "Flashpache On\nFlashpacheBackend {}\n<Location /counters>\nSetHandler flashpache-status\nFlashpache Off\n</Location>\n",
            folder.path("backend.sock").display()
        );
        Self { module: Some(module), directives, ..Self::stock(folder, mpm) }
    }

    /// With the files of another folder.
    pub(super) fn root(mut self, other: &Folder) -> Self {
        self.root = other.path("www");
        self
    }

    /// More directives, at the end.
    pub(super) fn with(mut self, directives: &str) -> Self {
        self.directives.push_str(directives);
        self.directives.push('\n');
        self
    }

    /// Asks for everything, also for what is in memory.
    pub(super) fn forced(self) -> Self {
        self.with("FlashpacheForce On")
    }

    /// With this library in the process before all others.
    pub(super) fn preload(mut self, library: String) -> Self {
        self.preload = Some(library);
        self
    }

    fn configuration(&self, port: u16) -> String {
        let place = self.folder.path("");
        let place = place.to_str().unwrap().trim_end_matches('/');
        let mut text = format!("ServerRoot {place}\nServerName e2e.test\nListen 127.0.0.1:{port}\n");
        let modules = [format!("mpm_{}", self.mpm)].into_iter().chain(MODULES.map(str::to_owned));
        for name in modules {
            let _ = writeln!(text, "LoadModule {name}_module {LIBRARY}/mod_{name}.so");
        }
        if let Some(module) = self.module {
            let _ = writeln!(text, "LoadModule flashpache_module {}", module.display());
        }
        if is_root() {
            text.push_str("User www-data\nGroup www-data\n");
        }
        let root = self.root.display();
        let workers = match self.mpm {
            "prefork" => "StartServers 4\nMinSpareServers 1\nMaxRequestWorkers 12\nServerLimit 12\n",
            _ => {
                "StartServers 1\nServerLimit 2\nThreadsPerChild 12\nMaxRequestWorkers 12\nMinSpareThreads 1\nMaxSpareThreads 12\n"
            }
        };
        let _ = write!(
            text,
            "{workers}DefaultRuntimeDir {place}\nPidFile {place}/apache.pid\nErrorLog {place}/error.log\nLogLevel info\n\
             LogFormat \"%U %>s %{{flashpache}}n %{{flashpache-us}}n\" short\nCustomLog {place}/access.log short\n\
             GracefulShutdownTimeout 60\nKeepAlive On\nExtendedStatus On\n\
             TypesConfig /etc/mime.types\nAddOutputFilter INCLUDES .shtml\nAddHandler send-as-is .asis\n\
             DocumentRoot {root}\nDirectoryIndex index.html index.txt\n\
             <Directory {root}>\nRequire all granted\nAllowOverride All\nOptions Indexes FollowSymLinks Includes MultiViews\n\
             </Directory>\n<Location /server-status>\nSetHandler server-status\n</Location>\n{}",
            self.directives
        );
        text
    }

    fn command(&self, port: u16) -> Command {
        let file = self.folder.write("apache.conf", self.configuration(port));
        let mut command = Command::new("apache2");
        // Apache signals its whole group when it stops.
        command.arg("-f").arg(file).stdin(Stdio::null()).process_group(0);
        if let Some(library) = &self.preload {
            command.env("LD_PRELOAD", library).env("ASAN_OPTIONS", "detect_leaks=0:log_path=stderr");
        }
        command
    }

    /// The result of a check of the configuration: whether it is right, and the words.
    pub(super) fn check(&self) -> (bool, String) {
        let output = self.command(80).arg("-t").output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    #[track_caller]
    pub(super) fn start(self) -> Apache {
        for _ in 0..START_ATTEMPTS {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let stderr = fs::File::create(self.folder.path("stderr.log")).unwrap();
            let child = self.command(port).arg("-DFOREGROUND").stderr(stderr).spawn().unwrap();
            let mut apache = Apache {
                child,
                address: SocketAddr::from(([127, 0, 0, 1], port)),
                folder: self.folder.path(""),
            };
            let started = wait_for("Apache's start", || match apache.child.try_wait().unwrap() {
                Some(_) => Some(false),
                None => TcpStream::connect(apache.address).is_ok().then_some(true),
            });
            if started {
                return apache;
            }
            let said = apache.read("stderr.log") + &apache.read("error.log");
            assert!(said.contains("could not bind"), "Apache did not start: {said}");
        }
        panic!("no free port");
    }
}

/// A running Apache. Dropping it ends it.
pub(super) struct Apache {
    child: Child,
    pub(super) address: SocketAddr,
    folder: PathBuf,
}

impl Apache {
    fn read(&self, name: &str) -> String {
        fs::read(self.folder.join(name))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    #[track_caller]
    pub(super) fn ask(&self, target: &str) -> Pending {
        Pending::to(self.address, "GET", target, &[])
    }

    #[track_caller]
    pub(super) fn get(&self, target: &str) -> Reply {
        self.ask(target).reply()
    }

    /// The same, repeated while it gets 503: with a short timeout on a busy machine, the backend's answer may take longer.
    #[track_caller]
    pub(super) fn get_in_time(&self, target: &str) -> Reply {
        wait_for("another answer than 503", || Some(self.get(target)).filter(|reply| reply.status != 503))
    }

    #[track_caller]
    pub(super) fn get_with(&self, target: &str, fields: &[&str]) -> Reply {
        Pending::to(self.address, "GET", target, fields).reply()
    }

    /// A counter of the module.
    #[track_caller]
    pub(super) fn counter(&self, name: &str) -> u64 {
        let page = self.get("/counters").text();
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no counter {name}: {page}"))
    }

    /// Requests that the backend was asked about with a message that has these words, and that it does not answer.
    ///
    /// A request counts as waiting from before its connection to the backend, and goes on if a busy machine makes the
    /// backend's welcome late. Only the messages show what is held, and a request that went on is asked again.
    #[track_caller]
    pub(super) fn hold(&self, backend: &Backend, target: &str, words: &str, count: usize) -> Vec<Pending> {
        let mut held: Vec<Pending> = Vec::new();
        let asked = || backend.messages().iter().filter(|message| message.contains(words)).count();
        let before = asked();
        wait_until("requests to be held", || {
            held.retain(Pending::is_held);
            while held.len() < count {
                held.push(self.ask(target));
            }
            asked() == before + count && self.counter("waiting") >= count as u64
        });
        held
    }

    /// A request that waits for a backend without a log of its messages. One that has its answer before it is seen to
    /// wait is sent again.
    #[track_caller]
    pub(super) fn hold_one(&self, target: &str) -> Pending {
        let mut asked: Option<Pending> = None;
        wait_for("a request to be held", || {
            let held = asked.take().filter(Pending::is_held).unwrap_or_else(|| self.ask(target));
            if self.counter("waiting") == 1 && held.is_held() {
                return Some(held);
            }
            asked = Some(held);
            None
        })
    }

    /// Waits until this many requests are held.
    #[track_caller]
    pub(super) fn wait_until_held(&self, count: u64) {
        wait_until("requests to be held", || self.counter("waiting") == count);
    }

    pub(super) fn errors(&self) -> String {
        self.read("error.log")
    }

    pub(super) fn stderr(&self) -> String {
        self.read("stderr.log")
    }

    /// Waits until the access log has this line.
    #[track_caller]
    pub(super) fn wait_for_log(&self, start: &str) -> String {
        wait_for(start, || {
            self.read("access.log").lines().find(|line| line.starts_with(start)).map(str::to_owned)
        })
    }

    pub(super) fn signal(&self, signal: &str) {
        kill(signal, self.child.id());
    }

    /// Its children, by pid.
    pub(super) fn children(&self) -> Vec<u32> {
        let path = format!("/proc/{0}/task/{0}/children", self.child.id());
        fs::read_to_string(path).unwrap().split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    }

    /// Waits for its end.
    #[track_caller]
    pub(super) fn wait(&mut self) {
        wait_until("the end of Apache", || self.child.try_wait().unwrap().is_some());
    }
}

impl Drop for Apache {
    fn drop(&mut self) {
        let children = self.children_or_none();
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            kill("TERM", self.child.id());
        }
        let patience = std::time::Instant::now() + PATIENCE;
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) && std::time::Instant::now() < patience
        {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in children.into_iter().filter(|pid| Path::new(&format!("/proc/{pid}/exe")).exists()) {
            kill("KILL", pid);
        }
        if std::thread::panicking() {
            eprintln!("--- Apache said:\n{}{}---", self.stderr(), self.errors());
        }
    }
}

impl Apache {
    fn children_or_none(&self) -> Vec<u32> {
        let path = format!("/proc/{0}/task/{0}/children", self.child.id());
        let text = fs::read_to_string(path).unwrap_or_default();
        text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }
}
