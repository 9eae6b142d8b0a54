//! The servers of these tests: a backend with both endpoints, and web servers with the configurations of
//! `modules/endpoint`, in which only the root, the port, the sockets and the user are replaced.

use std::cell::RefCell;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::harness::server::in_a_session;
use crate::harness::{Folder, PATIENCE, is_root, kill, skip, stats_at, wait_for};

/// A web server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Nginx,
    H2o,
    Lighttpd,
}

impl Kind {
    /// The servers that this machine has; prints a skip for each other one.
    pub(super) fn installed() -> Vec<Self> {
        [Self::Nginx, Self::H2o, Self::Lighttpd]
            .into_iter()
            .filter(|kind| {
                let is_there = Path::new(kind.program()).exists();
                if !is_there {
                    skip(&format!("in part: {} is not installed", kind.program()));
                }
                is_there
            })
            .collect()
    }

    /// Whether its configuration serves without a backend. To lighttpd an authorizer is a guard.
    pub(super) fn fails_open(self) -> bool {
        self != Self::Lighttpd
    }

    fn program(self) -> &'static str {
        match self {
            Self::Nginx => "/usr/sbin/nginx",
            Self::H2o => "/usr/bin/h2o",
            Self::Lighttpd => "/usr/sbin/lighttpd",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx.conf",
            Self::H2o => "h2o.conf",
            Self::Lighttpd => "lighttpd.conf",
        }
    }

    /// The shipped configuration, for this folder and port.
    fn config(self, folder: &Folder, port: u16) -> String {
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../modules/endpoint").join(self.name());
        let place = |name: &str| folder.path(name).to_str().unwrap().to_owned();
        let mut text = fs::read_to_string(shipped).unwrap();
        let mut replace = |what: &str, by: &str| {
            assert!(text.contains(what), "{self:?}: no `{what}`");
            text = text.replace(what, by);
        };
        replace("/srv/www", &place("www"));
        match self {
            Self::Nginx => {
                replace("user www-data;", if is_root() { "user root;" } else { "" });
                replace("worker_processes auto;", "worker_processes 1;");
                replace("listen 80;", &format!("listen 127.0.0.1:{port};"));
                replace("/run/flash/warm.sock", &place("warm.sock"));
                let temporary = place("temporary");
                let stderr = "daemon off; error_log stderr;";
                replace("pid /run/nginx.pid;", &format!("pid {}; {stderr}", place("pid")));
                let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                    .map(|kind| format!("{kind}_temp_path {temporary}-{kind};"));
                replace("http {\n", &format!("http {{\naccess_log off; {}\n", paths.concat()));
            }
            Self::H2o => {
                replace("user: www-data", if is_root() { "user: root" } else { "num-threads: 1" });
                if is_root() {
                    replace("hosts:\n", "num-threads: 1\nhosts:\n");
                }
                replace("port: 80", &format!("host: 127.0.0.1\n  port: {port}"));
                replace("/run/flash/warm.sock", &place("warm.sock"));
            }
            Self::Lighttpd => {
                replace("server.username = \"www-data\"\nserver.groupname = \"www-data\"\n", "");
                replace("server.port = 80", &format!("server.bind = \"127.0.0.1\"\nserver.port = {port}"));
                replace("/run/flash/fastcgi.sock", &place("fcgi.sock"));
            }
        }
        text
    }
}

/// A running web server; ends with its owner.
pub(super) struct Web {
    pub(super) kind: Kind,
    address: SocketAddr,
    child: Child,
}

impl Web {
    #[track_caller]
    pub(super) fn start(kind: Kind, folder: &Folder) -> Self {
        // A start fails if another program takes the port before the server does.
        (0..5).find_map(|_| Self::try_start(kind, folder)).expect("no free port")
    }

    /// None if another program has the port.
    #[track_caller]
    fn try_start(kind: Kind, folder: &Folder) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = folder.write(kind.name(), kind.config(folder, port));
        let log = folder.path(format!("{}.log", kind.name()));
        let output = fs::File::create(&log).unwrap();
        let mut command = Command::new(kind.program());
        match kind {
            Kind::Nginx => command.arg("-c").arg(config),
            Kind::H2o => command.arg("-c").arg(config),
            Kind::Lighttpd => command.arg("-D").arg("-f").arg(config),
        };
        let both = output.try_clone().unwrap();
        let child = command.stdin(Stdio::null()).stdout(both).stderr(output).spawn().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut web = Self { kind, address, child };
        let listens = wait_for("the web server to listen", || match web.child.try_wait().unwrap() {
            Some(_) => Some(false),
            None => TcpStream::connect(address).is_ok().then_some(true),
        });
        let said = fs::read_to_string(&log).unwrap();
        assert!(listens || said.contains("in use"), "{kind:?} ended: {said}");
        listens.then_some(web)
    }

    /// Sends a request.
    #[track_caller]
    pub(super) fn ask(&self, target: &str, fields: &str) -> Held {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let more = "Host: gates.test\r\nConnection: close\r\n";
        write!(stream, "GET {target} HTTP/1.1\r\n{more}{fields}\r\n").unwrap();
        Held(stream)
    }

    #[track_caller]
    pub(super) fn get(&self, target: &str, fields: &str) -> Page {
        self.ask(target, fields).page()
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        kill("TERM", self.child.id());
        let _ = self.child.wait();
    }
}

/// A request without its answer.
pub(super) struct Held(TcpStream);

impl Held {
    #[track_caller]
    pub(super) fn page(self) -> Page {
        Page::read(self.0)
    }
}

/// An answer.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) status: u16,
    head: String,
    pub(super) body: Vec<u8>,
}

impl Page {
    /// Reads an answer up to the end of its connection.
    #[track_caller]
    pub(super) fn read(mut stream: impl Read) -> Self {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let end = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Self { status, head, body: bytes[end + 4..].to_vec() }
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(super) fn field(&self, wanted: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
    }
}

/// A running backend with both endpoints at `warm.sock` and `fcgi.sock`; ends with its owner.
pub(super) struct Backend {
    child: RefCell<Child>,
    control: PathBuf,
    log: PathBuf,
}

impl Backend {
    /// A backend for the `www` of a folder.
    #[track_caller]
    pub(super) fn start(folder: &Folder, more: &[&str]) -> Self {
        Self::start_for(folder, &folder.path("www"), more)
    }

    #[track_caller]
    pub(super) fn start_for(folder: &Folder, root: &Path, more: &[&str]) -> Self {
        let place = |name: &str| folder.path(name).to_str().unwrap().to_owned();
        let (log, control) = (folder.path("backend.log"), folder.path("control"));
        let mut command = in_a_session();
        command.arg(env!("CARGO_BIN_EXE_flash"));
        command.args(["backend", "--socket", &place("backend.sock"), "--control", &place("control")]);
        command.args(["--warm", &format!("unix:{}", place("warm.sock"))]);
        command.args(["--fastcgi", &format!("unix:{}", place("fcgi.sock"))]);
        command.arg("--warm-root").arg(root).args(more);
        if is_root() {
            command.args(["--user", "root"]);
        }
        let output = fs::File::create(&log).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(output).spawn().unwrap();
        let backend = Self { child: RefCell::new(child), control, log };
        // The supervisor prints its line when the worker is ready.
        let mut line = [0; 1];
        let stdout = backend.child.borrow_mut().stdout.take();
        stdout.unwrap().read_exact(&mut line).unwrap_or_else(|e| panic!("{e}: {}", backend.stderr()));
        backend
    }

    /// The number of questions so far.
    #[track_caller]
    pub(super) fn asked(&self) -> u64 {
        self.counted("names")
    }

    /// The number of questions that were answered from memory.
    #[track_caller]
    pub(super) fn answered_from_memory(&self) -> u64 {
        self.counted("from_memory")
    }

    /// The number of names that were looked up at the start.
    #[track_caller]
    pub(super) fn looked_up(&self) -> u64 {
        self.counted("looked_up")
    }

    /// The generation of each worker.
    #[track_caller]
    pub(super) fn generations(&self) -> Vec<u64> {
        let stats = stats_at(&self.control);
        let workers = stats["workers"].as_array().unwrap().iter();
        workers.map(|worker| worker["generation"].as_u64().unwrap()).collect()
    }

    #[track_caller]
    fn counted(&self, name: &str) -> u64 {
        let stats = stats_at(&self.control);
        let count = &stats["sum"]["backend"][name];
        count.as_u64().unwrap_or_else(|| panic!("{name}: {count}: {stats}"))
    }

    pub(super) fn stderr(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    pub(super) fn signal(&self, signal: &str) {
        kill(signal, self.child.borrow().id());
    }

    /// Kills it and all of its processes, which end with their parent.
    pub(super) fn kill(&self) {
        self.signal("KILL");
        self.wait();
    }

    #[track_caller]
    pub(super) fn wait(&self) {
        wait_for("the backend to end", || self.child.borrow_mut().try_wait().unwrap());
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Asks for a file by FastCGI as lighttpd does, and returns the answer's bytes.
#[track_caller]
pub(super) fn connect_and_ask(socket: &Path, file: &str) -> Vec<u8> {
    let name = "SCRIPT_FILENAME";
    let mut params = vec![name.len() as u8];
    params.extend((file.len() as u32 | 1 << 31).to_be_bytes());
    params.extend(name.bytes().chain(file.bytes()));
    let length = (params.len() as u16).to_be_bytes();
    let mut bytes = b"\x01\x01\0\x01\0\x08\0\0\0\x02\0\0\0\0\0\0\x01\x04\0\x01".to_vec();
    bytes.extend(length);
    bytes.extend([0, 0]);
    bytes.extend(params);
    bytes.extend(b"\x01\x04\0\x01\0\0\0\0\x01\x05\0\x01\0\0\0\0");
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}
