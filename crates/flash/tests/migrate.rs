//! `flash migrate`: its exit codes and its errors, `flash check` of its results, and nginx beside Flash with the configuration that
//! it makes of nginx's.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use skip::skip;
use tempfile::TempDir;

#[path = "../../../tests/documented.rs"]
#[expect(dead_code, reason = "the other function is for other crates")]
mod documented;
#[path = "../../../tests/skip.rs"]
mod skip;

const NGINX: &str = "/usr/sbin/nginx";
/// A file of users, in place of those of the trials.
const USERS: &str = "ann:$2y$05$h6UM9HCarBAVMwnRiQYRuOYeRV4x/6TcBjwooJMlnuMEYyNSMmXa.\n";
/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);

fn folder() -> TempDir {
    let above = std::env::temp_dir().canonicalize().unwrap();
    let open_to_all = Permissions::from_mode(0o755);
    tempfile::Builder::new().prefix("flash-migrate-").permissions(open_to_all).tempdir_in(above).unwrap()
}

fn write(folder: &Path, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name.trim_start_matches('/'));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

fn flash(args: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flash"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FLASH_")) {
        command.env_remove(name);
    }
    command.args(args).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn what_is_lost_is_said() {
    let folder = folder();
    let config = "server {\n    listen 80;\n    root /srv/www;\n\n    sub_filter a b;\n    location ~ ^/item/(\\d+)$ { expires 1d; }\n}\n";
    write(folder.path(), "site.conf", config);
    let output = flash(&["migrate", "nginx", "site.conf"], folder.path());
    assert_eq!(output.status.code(), Some(1));
    let block = documented::block("docs/migrate.md", "what_is_lost_is_said");
    let shown = text(&output.stderr) + &text(&output.stdout);
    assert_eq!(shown, block.strip_prefix("$ flash migrate nginx site.conf\n").unwrap());

    write(folder.path(), "site.conf", config.replace("sub_filter a b;", "").replace("(\\d+)", "(.*)"));
    let output = flash(&["migrate", "nginx", "site.conf"], folder.path());
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

#[test]
fn bad_files_have_errors_with_their_lines() {
    let folder = folder();
    let write = |name: &str, bytes: &[u8]| drop(write(folder.path(), name, bytes));
    write("brace.conf", b"server {\n  location / {\n  }\n");
    write("end.conf", b"server {\n  root /srv\n}\n");
    write("loop.conf", b"server {}\ninclude loop.conf;\n");
    write("one.conf", b"\ninclude two.conf;\n");
    write("two.conf", b"\n\ninclude one.conf;\n");
    write("deep.conf", &b"a {\n".repeat(100_000));
    write("bytes.conf", b"server {\n  root /\xff;\n}\n");
    write("large.conf", &vec![b'x'; 10_000_000]);
    write(
        "garbage.conf",
        &(0..1_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 25) as u8).collect::<Vec<u8>>(),
    );
    write("empty.conf", b"");
    for (name, start, part) in [
        ("brace.conf", "brace.conf:1: ", "without `}`"),
        ("end.conf", "end.conf:2: ", "without `;`"),
        ("loop.conf", "loop.conf:2: ", "include each other"),
        ("one.conf", "", "include each other"),
        ("deep.conf", "deep.conf:", "nested"),
        ("bytes.conf", "bytes.conf:2: ", "UTF-8"),
        ("large.conf", "large.conf: ", "more than 4 MiB"),
        ("garbage.conf", "garbage.conf:", ""),
        ("empty.conf", "empty.conf: ", "no `server`"),
        ("none.conf", "none.conf: ", "No such file"),
        (".", "", "regular file"),
    ] {
        let output = flash(&["migrate", "nginx", name], folder.path());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(said.starts_with(&format!("error: {start}")) && said.contains(part), "{name}: {said}");
        assert!(output.stdout.is_empty() && said.lines().count() == 1, "{name}: {said}");
    }
    let usage = flash(&["migrate", "iis", "x"], folder.path());
    assert_eq!(usage.status.code(), Some(2));
}

/// The texts between quotes of the lines that begin with a key.
fn values<'t>(config: &'t str, key: &str) -> Vec<&'t str> {
    let start = format!("{key} = ");
    let lines = config.lines().filter_map(|line| line.strip_prefix(&start));
    lines.flat_map(|line| line.split('"').skip(1).step_by(2)).collect()
}

/// The configurations of the trials, with their roots, certificates, pages and users made, are accepted.
#[test]
fn results_are_valid_settings() {
    let trials = Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrate/tests");
    let mut count = 0;
    for server in
        fs::read_dir(&trials).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir())
    {
        for file in fs::read_dir(server).unwrap().map(|entry| entry.unwrap().path()) {
            if file.extension().is_some_and(|end| end == "toml") {
                count += 1;
                check(&file);
            }
        }
    }
    assert!(count >= 20, "the trials were not found: {count}");
}

fn check(file: &Path) {
    let folder = folder();
    let made = flash(&["tls", "self-signed"], folder.path());
    assert!(made.status.success(), "{}", text(&made.stderr));
    let mut config = String::new();
    // Another user, and a log of the system, are not for tests.
    for line in fs::read_to_string(file)
        .unwrap()
        .lines()
        .filter(|line| !["user ", "log_"].iter().any(|key| line.starts_with(key)))
    {
        let key = line.split(' ').next().unwrap();
        let line = match key {
            "root" | "alias" => line.replacen("\"/", &format!("\"{}/", folder.path().display()), 1),
            "certificate" => "certificate = [\"flash.pem\"]".to_owned(),
            "users" => "users = \"users\"".to_owned(),
            "certificate_key" => "certificate_key = [\"flash.key\"]".to_owned(),
            _ => line.to_owned(),
        };
        config += &(line + "\n");
    }
    values(&config, "alias").into_iter().for_each(|folder| fs::create_dir_all(folder).unwrap());
    for root in values(&config, "root") {
        fs::create_dir_all(root).unwrap();
        for page in values(&config, "error_page") {
            write(Path::new(root), page, "a page");
        }
    }
    let users = write(folder.path(), "users", USERS);
    fs::set_permissions(users, Permissions::from_mode(0o600)).unwrap();
    write(folder.path(), "flash.toml", &config);
    let output = flash(&["check", "--config", "flash.toml"], folder.path());
    let said = text(&output.stderr);
    assert!(output.status.success(), "{}: {said}\n{config}", file.display());
    assert!(!said.contains("has its paths"), "a rule that is never reached: {}: {said}", file.display());
}

/// A server. Dropping it kills it.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The site of both servers; `LISTEN`, `DIR` and `MAIN` are replaced.
const SITE: &str = r#"
MAIN
events {}
http {
    include mime.types;
    access_log off;
    absolute_redirect off;
    server {
        listen LISTEN;
        root DIR/www;
        index index.html;
        error_page 404 /404.html;
        rewrite ^/blog/(.*)\.php$ /articles/$1.html permanent;
        rewrite ^/user-([^/]+)$ /users/$1.html last;
        location / { try_files $uri $uri/ =404; }
        location /app/ { try_files $uri $uri/ /app/index.html; }
        location /assets/ { expires 1y; add_header Cache-Control "public, immutable"; }
        location ~* \.(css|js)$ { expires 1h; }
        location = /exact { return 302 /docs/; }
        location = /app/index.html { add_header Cache-Control "no-cache"; }
        location /old/ { return 301 https://example.org$request_uri; }
        location /img/ { alias DIR/www/assets/pictures/; expires 7d; }
        location /files/ { alias DIR/apart/; expires 1d; }
        location /more { root DIR/apart; }
        location ^~ /raw/ { }
        location /closed/ { deny all; }
        location ~ ^/(en|de)/(.*)$ { return 308 /$2; }
    }
}
"#;

const FILES: &[&str] = &[
    "index.html",
    "404.html",
    "docs/index.html",
    "docs/a b.html",
    "app/index.html",
    "app/app.css",
    "assets/a.bin",
    "assets/a.css",
    "assets/pictures/p.txt",
    "users/ann.html",
    "raw/a.css",
    "raw/a.txt",
    "closed/a.txt",
];

/// Files beside the root.
const FILES_APART: &[&str] = &["index.html", "a.txt", "part/index.html", "more/x.txt"];

/// Requests, and whether the answers are errors with pages of their own.
const REQUESTS: &[&str] = &[
    "/",
    "/index.html",
    "/docs",
    "/docs/",
    "/docs/a%20b.html",
    "/none",
    "/files/",
    "/files/a.txt",
    "/files/none",
    "/files/part",
    "/files/part/",
    "/files/../a.txt",
    "/more",
    "/more/x.txt",
    "/app/",
    "/app/deep/link",
    "/app/index.html",
    "/app/app.css",
    "/app/none.css",
    "/assets/a.bin",
    "/assets/a.css",
    "/assets/none.bin",
    "/exact",
    "/exact/",
    "/old/x/y?q=1",
    "/old",
    "/blog/post.php",
    "/user-ann",
    "/user-bob",
    "/user-a/b",
    "/img/p.txt",
    "/img/none.txt",
    "/raw/a.css",
    "/raw/a.txt",
    "/closed/a.txt",
    "/en/docs/",
    "/fr/docs/",
];

/// The parts of an answer that both servers must agree on.
#[derive(Debug, PartialEq)]
struct Answer {
    status: u16,
    location: String,
    /// The words of all Cache-Control fields, sorted.
    cache: Vec<String>,
    body: Option<Vec<u8>>,
}

fn ask(mut stream: impl Read + Write, path: &str) -> Answer {
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())
        .unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let at =
        bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_else(|| panic!("{path}: no head"));
    let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
    let fields = |name: &str| -> Vec<String> {
        let each = head.lines().filter_map(|line| line.split_once(": "));
        each.filter(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).collect()
    };
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut cache: Vec<String> =
        fields("cache-control").join(",").split(',').map(|word| word.trim().to_owned()).collect();
    cache.sort();
    // The server's own pages are its own.
    let body = (status == 200 || status == 404).then(|| bytes[at + 4..].to_vec());
    Answer { status, location: fields("location").concat(), cache, body }
}

fn start_nginx(folder: &Path) -> Server {
    let socket = folder.join("nginx.sock");
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {}/{name};\n", folder.display()))
        .concat();
    let user = if fs::metadata(folder).unwrap().uid() == 0 { "user root;" } else { "" };
    let main = format!(
        "daemon off; master_process off; {user} pid {0}/pid; error_log {0}/error.log;",
        folder.display()
    );
    let config = SITE.replace("MAIN", &main).replace("LISTEN", &format!("unix:{}", socket.display()));
    let config =
        config.replace("http {", &format!("http {{ {temporary}")).replace("DIR", folder.to_str().unwrap());
    let config =
        write(folder, "nginx.conf", config.replace("include mime.types", "include /etc/nginx/mime.types"));
    let log = folder.join("error.log");
    let mut command = Command::new(NGINX);
    command
        .arg("-p")
        .arg(folder)
        .arg("-c")
        .arg(config)
        .arg("-e")
        .arg(&log)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let mut server = Server(command.spawn().unwrap());
    let began = Instant::now();
    while UnixStream::connect(&socket).is_err() {
        let said = || fs::read_to_string(&log).unwrap_or_default();
        assert!(
            server.0.try_wait().unwrap().is_none() && began.elapsed() < PATIENCE,
            "nginx did not start: {}",
            said()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    server
}

/// Flash with this file, and its address.
fn start_flash(folder: &Path, config: &Path) -> (Server, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flash"));
    command.args(["serve", "--workers", "1", "--control", "none", "--config"]).arg(config);
    if fs::metadata(folder).unwrap().uid() == 0 {
        command.arg("--user=root");
    }
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let out = child.stdout.take().unwrap();
    let server = Server(child);
    let mut said = String::new();
    let mut lines = BufReader::new(out);
    while lines.read_line(&mut said).unwrap() > 0 {
        if let Some((_, rest)) = said.split_once("127.0.0.1:") {
            let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
            return (server, format!("127.0.0.1:{port}"));
        }
    }
    panic!("flash did not start: {said}");
}

#[test]
fn nginx_and_flash_answer_alike() {
    if !Path::new(NGINX).exists() {
        return skip("needs Debian's nginx and nginx-dev");
    }
    let folder = folder();
    for name in FILES {
        write(folder.path(), &format!("www/{name}"), format!("contents of {name}"));
    }
    for name in FILES_APART {
        write(folder.path(), &format!("apart/{name}"), format!("contents apart of {name}"));
    }
    let site = SITE
        .replace("MAIN", "")
        .replace("LISTEN", "127.0.0.1:80")
        .replace("DIR", folder.path().to_str().unwrap());
    write(folder.path(), "site.conf", site);
    let output = flash(&["migrate", "nginx", "site.conf"], folder.path());
    let notes = text(&output.stderr);
    assert!(notes.lines().all(|line| line.contains("only for lower case")), "{notes}");
    let toml = text(&output.stdout).replace("127.0.0.1:80", "127.0.0.1:0");
    let config = write(folder.path(), "flash.toml", &toml);
    let _nginx = start_nginx(folder.path());
    let (_flash, address) = start_flash(folder.path(), &config);
    let mut complaints = String::new();
    for path in REQUESTS {
        let nginx = UnixStream::connect(folder.path().join("nginx.sock")).unwrap();
        nginx.set_read_timeout(Some(PATIENCE)).unwrap();
        let flash = TcpStream::connect(&address).unwrap();
        flash.set_read_timeout(Some(PATIENCE)).unwrap();
        let (theirs, ours) = (ask(nginx, path), ask(flash, path));
        if theirs != ours {
            complaints += &format!("{path}:\n  nginx {theirs:?}\n  Flash {ours:?}\n");
        }
    }
    assert!(complaints.is_empty(), "{complaints}\n{toml}");
}
