//! A private nginx with the gate module, a backend for it, and a client that reads until the connection ends.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use crate::harness::server::in_a_session;
use crate::harness::{Folder, PATIENCE, address_to_give, is_root, kill, skip, wait_for, wait_until};

const NGINX: &str = "/usr/sbin/nginx";
const HEADERS: &str = "/usr/share/nginx/src/configure";

/// `modules/nginx` of the project.
fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../modules/nginx").canonicalize().unwrap()
}

/// The module, built once for a run; None, with the reason printed, if nginx is not installed.
pub(super) fn module() -> Option<&'static Path> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    is_installed().then(|| BUILT.get_or_init(|| build("")).as_path())
}

/// The module with checks of memory accesses.
pub(super) fn checked_module() -> Option<&'static Path> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    is_installed().then(|| BUILT.get_or_init(|| build("address")).as_path())
}

fn is_installed() -> bool {
    let installed = Path::new(NGINX).exists() && Path::new(HEADERS).exists();
    if !installed {
        skip("needs Debian's nginx and nginx-dev");
    }
    installed
}

fn build(sanitizer: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("flash-gate{sanitizer}"));
    let mut make = Command::new("make");
    make.arg("-C")
        .arg(source())
        .arg(format!("BUILD={}", place.display()))
        .arg(format!("SANITIZE={sanitizer}"));
    let output = make.output().unwrap();
    assert!(output.status.success(), "make failed: {}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("warning:"), "{said}");
    place.join("ngx_http_flash_gate_module.so")
}

/// A program, started by these words if there are any.
fn command_of(through: &[String], program: &str) -> Command {
    let mut words = through.iter().map(String::as_str).chain([program]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    command
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
        let log = folder.path("asked.log");
        let _ = fs::remove_file(&log);
        let mut command = Command::new("python3");
        command.arg(source().join("../client/tests/fake_backend.py")).arg(folder.path("backend.sock"));
        command.args(options).arg("--log").arg(&log);
        Self::start(command, log)
    }

    /// `flash backend` at the folder's socket, as the tests' user if the options name no other.
    #[track_caller]
    pub(super) fn real(folder: &Folder, options: &[&str]) -> Self {
        Self::real_through(folder, &[], options)
    }

    /// The same, started by these words.
    #[track_caller]
    pub(super) fn real_through(folder: &Folder, through: &[String], options: &[&str]) -> Self {
        let log = folder.path("backend.log");
        let mut command = in_a_session();
        command
            .args(through)
            .arg(env!("CARGO_BIN_EXE_flash"))
            .args(["backend", "--control", "none", "--socket"])
            .arg(folder.path("backend.sock"))
            .args(options);
        if is_root() && !options.contains(&"--user") {
            command.args(["--user", "root"]);
        }
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

    /// Stops or continues it.
    pub(super) fn signal(&self, signal: &str) {
        kill(signal, self.child.id());
    }

    /// How many messages of this kind a fake backend has received.
    pub(super) fn count(&self, kind: &str) -> usize {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().filter(|line| line.starts_with(kind)).count()
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer as it came.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Reply {
    /// Without what differs from one answer to the next: the date, and the boundary of several ranges.
    pub(super) fn lasting(&self) -> (String, Vec<u8>) {
        let head: Vec<&str> = self.head.lines().filter(|line| !line.starts_with("Date: ")).collect();
        let head = head.join("\n");
        let Some((_, boundary)) = self.head.split_once("boundary=") else { return (head, self.body.clone()) };
        let boundary = boundary.lines().next().unwrap();
        let body = self.body.escape_ascii().to_string().replace(boundary, "BOUNDARY").into_bytes();
        (head.replace(boundary, "BOUNDARY"), body)
    }
}

/// A request whose answer has not been read.
pub(super) struct Pending(TcpStream);

impl Pending {
    #[track_caller]
    pub(super) fn to(address: SocketAddr, method: &str, target: &str, fields: &[&str]) -> Self {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut text = format!("{method} {target} HTTP/1.1\r\nHost: e2e.test\r\nConnection: close\r\n");
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

    /// All that arrives before the connection ends, also by a reset.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.0.read_to_end(&mut bytes) {
            Err(e) if e.kind() != ErrorKind::ConnectionReset => panic!("{e}"),
            _ => bytes,
        }
    }

    /// The answer, up to the end of the connection; its body may be in chunks.
    #[track_caller]
    pub(super) fn reply(mut self) -> Reply {
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes).unwrap();
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no answer: {}", bytes.escape_ascii()));
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status =
            head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{head}"));
        let body = bytes[end + 4..].to_vec();
        if head.contains("Transfer-Encoding: chunked") {
            return Reply { status, head, body: unchunked(&body) };
        }
        Reply { status, head, body }
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

/// An nginx that runs. Dropping it ends its master and its workers.
pub(super) struct Nginx {
    child: Child,
    pub(super) address: SocketAddr,
    /// Where it speaks TLS, if it has a certificate.
    pub(super) secure: SocketAddr,
    folder: PathBuf,
}

/// An nginx to start.
pub(super) struct Setup<'a> {
    folder: &'a Folder,
    module: Option<&'a Path>,
    http: String,
    preload: Option<String>,
    has_certificate: bool,
    through: Vec<String>,
}

impl<'a> Setup<'a> {
    /// nginx without the module.
    pub(super) fn stock(folder: &'a Folder) -> Self {
        Self {
            folder,
            module: None,
            http: String::new(),
            preload: None,
            has_certificate: false,
            through: Vec::new(),
        }
    }

    /// nginx with the gate on and its backend in the folder.
    pub(super) fn new(folder: &'a Folder, module: &'a Path) -> Self {
        let http =
            format!("flash_gate on;\nflash_gate_backend unix:{};\n", folder.path("backend.sock").display());
        Self { module: Some(module), http, ..Self::stock(folder) }
    }

    /// With the module loaded, and no directive of its own.
    pub(super) fn module(mut self, module: &'a Path) -> Self {
        self.module = Some(module);
        self
    }

    /// More directives of `http`.
    pub(super) fn with(mut self, directives: &str) -> Self {
        self.http.push_str(directives);
        self.http.push('\n');
        self
    }

    /// Every name and every window is held once.
    pub(super) fn forced(self) -> Self {
        self.with("flash_gate_force on;")
    }

    /// With this library in the process before all others.
    pub(super) fn preload(mut self, library: String) -> Self {
        self.preload = Some(library);
        self
    }

    /// Makes a certificate for [`Self::secure`]. False, with the reason printed, if no certificate can be made.
    #[track_caller]
    pub(super) fn make_certificate(folder: &Folder) -> bool {
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        command.args(["-subj", "/CN=localhost", "-days", "2", "-keyout"]).arg(folder.path("tls.key"));
        match command.arg("-out").arg(folder.path("tls.crt")).output() {
            Ok(output) => {
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                true
            }
            Err(_) => {
                skip("needs openssl, for a certificate");
                false
            }
        }
    }

    /// With a second port, which speaks TLS, HTTP/1.1 and HTTP/2 with the folder's certificate.
    pub(super) fn secure(mut self) -> Self {
        self.has_certificate = true;
        self
    }

    /// Without root's rights, also in the master, if the tests have them.
    pub(super) fn unprivileged(mut self) -> Self {
        if is_root() {
            let words = ["setpriv", "--reuid", "www-data", "--regid", "www-data", "--clear-groups"];
            self.through.extend(words.map(str::to_owned));
        }
        self
    }

    /// Started by these words, which come before all others.
    pub(super) fn through(mut self, words: &[String]) -> Self {
        self.through.splice(0..0, words.iter().cloned());
        self
    }

    fn program(&self) -> Command {
        command_of(&self.through, NGINX)
    }

    fn configuration(&self, port: u16, secure: u16) -> String {
        let place = self.folder.path("");
        let place = place.to_str().unwrap().trim_end_matches('/');
        let load = self.module.map_or(String::new(), |module| format!("load_module {};\n", module.display()));
        let user =
            if is_root() && !self.through.iter().any(|word| word == "setpriv") { "user root;\n" } else { "" };
        let status = if self.module.is_some() { "location = /counters { flash_gate_status; }\n" } else { "" };
        let tls = if self.has_certificate {
            format!(
                "listen 127.0.0.1:{secure} ssl http2;\nssl_certificate {place}/tls.crt;\n\
                 ssl_certificate_key {place}/tls.key;\n"
            )
        } else {
            String::new()
        };
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .fold(String::new(), |text, kind| text + &format!("{kind}_temp_path {place}/{kind};\n"));
        format!(
            "{load}{user}daemon off;\nworker_processes 1;\npid {place}/nginx.pid;\nerror_log {place}/error.log info;\n\
             events {{ worker_connections 2048; }}\n\
             http {{\n{temporary}access_log off;\ndefault_type text/plain;\n{}\
             server {{\nlisten 127.0.0.1:{port};\n{tls}root {place}/www;\n{status}\
             location /list/ {{ autoindex on; }}\n\
             location /copied/ {{ alias {place}/www/; sendfile off; output_buffers 1 4k; }}\n\
             location /sent/ {{ alias {place}/www/; sendfile on; }}\n\
             location /zipped/ {{ alias {place}/www/; gzip on; gzip_types *; }}\n\
             location /ssi/ {{ alias {place}/www/; ssi on; ssi_types *; }}\n\
             location /tried/ {{ try_files $uri.none /large.bin; }}\n\
             location /lost/ {{ error_page 404 =200 /hello.txt; }}\n}}\n}}\n",
            self.http
        )
    }

    /// `nginx -t`, and what it prints.
    pub(super) fn test(&self) -> Output {
        let file = self.folder.write("test.conf", self.configuration(1, 2));
        self.program().arg("-t").arg("-c").arg(file).output().unwrap()
    }

    #[track_caller]
    pub(super) fn start(self) -> Nginx {
        let ports = [address_to_give(), address_to_give()];
        let file = self.folder.write("nginx.conf", self.configuration(ports[0].port(), ports[1].port()));
        let mut command = self.program();
        command.arg("-c").arg(file).stdin(Stdio::null()).stderr(
            fs::File::options().create(true).append(true).open(self.folder.path("stderr.log")).unwrap(),
        );
        if let Some(library) = &self.preload {
            // nginx keeps its configuration until it ends, which is no leak that matters.
            command.env("LD_PRELOAD", library).env("ASAN_OPTIONS", "detect_leaks=0:detect_odr_violation=0");
        }
        let child = command.spawn().unwrap();
        let nginx = Nginx { child, address: ports[0], secure: ports[1], folder: self.folder.path("") };
        wait_until("nginx listens", || TcpStream::connect(nginx.address).is_ok());
        nginx
    }
}

impl Nginx {
    #[track_caller]
    pub(super) fn get(&self, target: &str) -> Reply {
        self.ask(target).reply()
    }

    #[track_caller]
    pub(super) fn ask(&self, target: &str) -> Pending {
        Pending::to(self.address, "GET", target, &[])
    }

    /// A value of the status page.
    #[track_caller]
    pub(super) fn counter(&self, name: &str) -> u64 {
        let text = String::from_utf8(self.get("/counters").body).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    /// Waits until the worker has its connection to the backend.
    #[track_caller]
    pub(super) fn connected(self) -> Self {
        wait_until("the worker is connected", || self.counter("worker_connected") == 1);
        self
    }

    /// The descriptors that the worker has open.
    #[track_caller]
    pub(super) fn descriptors(&self) -> usize {
        let pid = self.counter("worker_pid");
        fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("error.log")).unwrap_or_default()
    }

    pub(super) fn signal(&self, signal: &str) {
        kill(signal, self.child.id());
    }

    /// Whether it ended by itself.
    #[track_caller]
    pub(super) fn ended(mut self) -> bool {
        wait_for("nginx ends", || self.child.try_wait().unwrap()).success()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            kill("TERM", self.child.id());
            let _ = self.child.wait();
        }
    }
}
