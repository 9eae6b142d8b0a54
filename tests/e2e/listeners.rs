//! Listeners besides addresses: Unix sockets at a path, and sockets of systemd.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::upstream::{Message, Peer, Program, Upstream, ok, proxy};
use crate::harness::{
    Folder, Launch, Server, address_to_give, film, is_root, kill, only_plain, raise_own_descriptor_limit,
    skip, skips, stats_at, wait_until,
};

/// The status of a GET over a new connection at a path.
#[track_caller]
fn status(path: &Path, target: &str) -> u16 {
    Peer::at(path).get(target).status()
}

/// The settings of a server at `http.sock` in the folder, with more lines.
fn config(more: &str) -> String {
    format!("root = \"www\"\nlisten = [\"unix:http.sock\", \"127.0.0.1:0\"]\nworkers = 2\n{more}")
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o7777
}

/// Makes the server read this config file, and waits until it is in force.
#[track_caller]
fn reload(server: &Server, folder: &Folder, text: &str) {
    let before = server.in_force().len();
    folder.write("flash.toml", crate::harness::adapted(text));
    server.signal("HUP");
    wait_until("the next configuration", || server.in_force().len() > before);
}

#[test]
fn a_unix_socket_serves_like_an_address() {
    if only_plain("the test has its own clients") {
        return;
    }
    let folder = Folder::with_hello();
    let (socket, log, control) =
        (folder.path("http.sock"), folder.path("access.log"), folder.path("control"));
    let more = "log_file = \"access.log\"\nlisten_mode = \"0640\"\n";
    let start =
        || Launch::configured(&folder, &config(more)).args(["--control", control.to_str().unwrap()]).start();
    let mut server = start();
    let shown = format!("unix:{}", socket.display());
    let line = server.stdout() + &server.stderr();
    assert!(line.contains(&format!(" at {shown} http://127.0.0.1:")), "{line}");
    assert_eq!(mode(&socket), 0o640);
    let mut client = Peer::at(&socket);
    for _ in 0..3 {
        let answer = client.get("/hello.txt");
        assert_eq!((answer.status(), answer.body), (200, fs::read(folder.served("hello.txt")).unwrap()));
    }
    assert_eq!(client.get("/none").status(), 404);
    assert_eq!(server.get("/hello.txt").status, 200);
    let lines_of = |client: &str| {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.lines().filter(|line| line.starts_with(&format!("{client} - - ["))).count()
    };
    wait_until("all lines", || lines_of("unix:") == 4 && lines_of("127.0.0.1") == 1);
    let stats = stats_at(&control);
    assert_eq!(stats["network"]["listeners"][0]["address"], shown);
    // A killed server leaves its socket, which the next one replaces.
    server.signal("KILL");
    server.wait();
    assert_eq!(UnixStream::connect(&socket).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    let mut server = start();
    assert_eq!(status(&socket, "/hello.txt"), 200);
    let mut open = Peer::at(&socket);
    assert_eq!(open.get("/hello.txt").status(), 200);
    server.signal("TERM");
    open.wait_for_end();
    assert_eq!(server.wait().code(), Some(0));
    assert!(!socket.exists(), "the server removes its socket");
}

#[test]
fn curl_and_large_files() {
    if only_plain("the test has its own clients") {
        return;
    }
    if !Path::new("/usr/bin/curl").exists() {
        return skip("curl is not installed");
    }
    let folder = Folder::with_hello();
    folder.www("film.bin", film());
    let _server = Launch::configured(&folder, &config("")).start();
    let words = [
        "-s",
        "--max-time",
        "60",
        "--unix-socket",
        folder.path("http.sock").to_str().unwrap(),
        "http://x/film.bin",
    ]
    .map(str::to_owned);
    let output = Command::new("curl").args(words).output().unwrap();
    assert!(output.status.success() && output.stdout == film(), "{} bytes", output.stdout.len());
}

#[test]
fn the_socket_belongs_to_the_user_of_the_workers() {
    if only_plain("the test has its own clients") {
        return;
    }
    if !is_root() || !Path::new("/usr/bin/curl").exists() {
        return skip("needs root and curl, to connect as another user");
    }
    let folder = Folder::with_hello();
    let socket = folder.path("http.sock");
    // The folder is root's, and closed to other writers.
    let server = Launch::configured(&folder, &config("")).user(Some("nobody")).start();
    let found = socket.symlink_metadata().unwrap();
    assert_eq!((found.uid(), mode(&socket)), (65_534, 0o660));
    assert_eq!(status(&socket, "/hello.txt"), 200);
    // One that a reload adds, and that the supervisor's umask would restrict.
    let more = config("").replace("[\"unix:http.sock\"", "[\"unix:http.sock\", \"unix:more.sock\"");
    reload(&server, &folder, &more);
    let found = folder.path("more.sock").symlink_metadata().unwrap();
    assert_eq!((found.uid(), mode(&folder.path("more.sock"))), (65_534, 0o660));
    let as_user = |user: &str, socket: &str| {
        let user = format!("--reuid={user}");
        let who =
            [user.as_str(), "--regid=65533", "--clear-groups", "/usr/bin/curl", "-s", "--max-time", "60"];
        let words = ["-o", "/dev/null", "--unix-socket", socket, "http://x/hello.txt"];
        Command::new("setpriv").args(who).args(words).output().unwrap().status.success()
    };
    fs::set_permissions(folder.path(""), Permissions::from_mode(0o755)).unwrap();
    let socket = socket.to_str().unwrap();
    assert_eq!([as_user("65534", socket), as_user("65533", socket)], [true, false]);
}

#[test]
fn nothing_else_at_the_path_is_touched() {
    if only_plain("the test has its own clients") {
        return;
    }
    let folder = Folder::with_hello();
    let socket = folder.path("http.sock");
    let fails = |part: &str| {
        let (code, _, stderr) = Launch::configured(&folder, &config("")).fail();
        let what = format!("cannot listen on `unix:{}`: ", socket.display());
        assert!(code == Some(1) && stderr.contains(&what) && stderr.contains(part), "{stderr}");
    };
    let file = folder.write("file", "precious");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    symlink(&file, &socket).unwrap();
    fails("it exists and is not a socket; choose another path");
    // A link to a socket that nobody listens at is not followed either.
    let other = folder.path("other");
    drop(UnixListener::bind(&other).unwrap());
    fs::remove_file(&socket).unwrap();
    symlink(&other, &socket).unwrap();
    fails("it exists and is not a socket; choose another path");
    assert!(other.exists() && fs::read_link(&socket).unwrap() == other);
    assert_eq!((mode(&file), fs::read(&file).unwrap()), (0o600, b"precious".to_vec()));
    fs::remove_file(&socket).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    fails("a process listens there; stop it, or choose another path");
    drop(listener);
    fs::remove_file(&socket).unwrap();
    // A socket that another process has made in its place meanwhile is not removed at the end.
    let mut server = Launch::configured(&folder, &config("")).start();
    fs::remove_file(&socket).unwrap();
    let _listener = UnixListener::bind(&socket).unwrap();
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    assert!(socket.exists());
}

#[test]
fn what_cannot_be_bound_is_told() {
    if only_plain("the test has its own clients") {
        return;
    }
    let folder = Folder::with_hello();
    let fails = |path: &str, part: &str| {
        let text = config("").replace("http.sock", path);
        let (code, _, stderr) = Launch::configured(&folder, &text).fail();
        assert!(code == Some(1) && stderr.contains(part), "{stderr}");
    };
    fails("none/http.sock", "its folder does not exist; create it first");
    fails(&"a".repeat(200), "and a socket can have 107 (unix(7))");
    if is_root() {
        fails("/proc/http.sock", "cannot listen on `unix:/proc/http.sock`");
    } else {
        fails("/http.sock", "this user cannot create or replace it");
    }
    // An address that cannot be had leaves no socket behind.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let text = config("").replace("127.0.0.1:0", &taken.local_addr().unwrap().to_string());
    let (code, _, stderr) = Launch::configured(&folder, &text).fail();
    assert!(code == Some(1) && stderr.contains("another program uses it"), "{stderr}");
    assert!(!folder.path("http.sock").exists());
}

#[test]
fn reloads_keep_add_and_drop_sockets() {
    if only_plain("the test has its own clients") {
        return;
    }
    let folder = Folder::with_hello();
    let [http, more] = ["http.sock", "more.sock"].map(|name| folder.path(name));
    folder.www("film.bin", film());
    let file = |path: &Path| path.symlink_metadata().unwrap().ino();
    let mut server = Launch::configured(&folder, &config("")).start();
    let first = file(&http);
    let all_answer = |paths: &[&PathBuf]| {
        // More often than there are workers.
        for path in paths.iter().flat_map(|path| [path; 5]) {
            assert_eq!(status(path, "/hello.txt"), 200, "{}", path.display());
        }
    };
    let both = config("").replace("\"unix:http.sock\"", "\"unix:http.sock\", \"unix:more.sock\"");
    reload(&server, &folder, &both);
    assert_eq!(file(&http), first, "it is the same socket");
    all_answer(&[&http, &more]);
    // A configuration that cannot be had changes nothing, and leaves nothing.
    folder.write(
        "flash.toml",
        crate::harness::adapted(&both.replace("more.sock\"", "more.sock\", \"unix:new\", \"unix:none/a\"")),
    );
    server.signal("HUP");
    server.wait_for_stderr("its folder does not exist");
    server.wait_for_stderr("the old configuration stays in force");
    all_answer(&[&http, &more]);
    assert!(!folder.path("new").exists());
    // An answer under way at a socket that is dropped is completed.
    let mut slow = Peer::at(&more);
    slow.ask("/film.bin");
    assert!(slow.head().is_ok_and(|head| head.status() == 200));
    reload(&server, &folder, &config(""));
    wait_until("the path to be removed", || !more.exists());
    assert!(slow.exactly(film().len()) == film(), "the old configuration drains");
    slow.wait_for_end();
    all_answer(&[&http]);
    reload(&server, &folder, &both);
    all_answer(&[&http, &more]);
    assert_eq!(file(&http), first);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    assert!(!http.exists() && !more.exists());
}

#[test]
fn no_client_waits_forever_over_reloads() {
    if only_plain("the test has its own clients")
        || skips(&["mp", "mt"], "its few processes or threads each have one connection")
    {
        return;
    }
    let folder = Folder::with_hello();
    let socket = folder.path("http.sock");
    let server = Launch::configured(&folder, &config("")).start();
    let ends = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (socket, ends) = (socket.clone(), Arc::clone(&ends));
            std::thread::spawn(move || {
                let (mut answered, mut lost) = (0, 0);
                while !ends.load(Ordering::Relaxed) {
                    let mut client = Peer::at(&socket);
                    let sent =
                        client.try_send("GET /hello.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
                    match sent.ok().and_then(|()| client.receive().ok()) {
                        Some(answer) => {
                            assert_eq!(answer.status(), 200);
                            answered += 1;
                        }
                        // A worker that drains closes a connection whose request has not come yet.
                        None => lost += 1,
                    }
                }
                (answered, lost)
            })
        })
        .collect();
    for _ in 0..5 {
        let before = server.in_force().len();
        server.signal("HUP");
        wait_until("the next configuration", || server.in_force().len() > before);
    }
    ends.store(true, Ordering::Relaxed);
    let (answered, lost) = clients
        .into_iter()
        .map(|client| client.join().unwrap())
        .fold((0, 0), |(answered, lost), (more, less)| (answered + more, lost + less));
    // No client has waited forever, and each worker that drained has closed at most one connection of each client.
    assert!(answered > 0 && lost <= 5 * 4 * 2, "{answered} answered, {lost} closed");
}

#[test]
fn a_thousand_connections_and_a_bound_of_all() {
    const CLIENTS: usize = 1_000;
    if only_plain("the test has its own clients")
        || skips(&["mp", "mt"], "its few processes or threads each have one connection")
    {
        return;
    }
    if !raise_own_descriptor_limit(2 * CLIENTS as u64 + 200) {
        return skip("needs more descriptors than this process may have");
    }
    let folder = Folder::with_hello();
    let socket = folder.path("http.sock");
    // A client by address could have one connection here. A busy machine may be slow to accept and to ask.
    let patient = "client_exempt = []\naccept_wait = \"0s\"\nhead_timeout = \"1h\"\nidle_timeout = \"1h\"\n";
    let server = Launch::configured(&folder, &config(&format!("client_connections = 1\n{patient}"))).start();
    let mut clients: Vec<Peer> = (0..CLIENTS).map(|_| Peer::at(&socket)).collect();
    for _ in 0..2 {
        clients.iter_mut().for_each(|client| client.ask("/hello.txt"));
        for client in &mut clients {
            assert_eq!(client.message().status(), 200);
        }
    }
    assert_eq!(server.stderr(), "");
    drop((clients, server));
    // Those beyond the bound of all take the places of idle ones.
    let text = config(&format!("connections = 10\n{patient}")).replace("workers = 2", "workers = 1");
    let _server = Launch::configured(&folder, &text).start();
    let mut clients: Vec<Peer> = Vec::new();
    for _ in 0..30 {
        let mut client = Peer::at(&socket);
        assert_eq!(client.get("/hello.txt").status(), 200);
        clients.push(client);
    }
}

#[test]
fn rules_and_proxies_know_the_clients_of_unix_sockets() {
    if only_plain("the test has its own clients") {
        return;
    }
    let folder = Folder::with_hello();
    for name in ["all", "unix", "none"] {
        fs::create_dir(folder.served(name)).unwrap();
        folder.www(&format!("{name}/a.txt"), "a");
    }
    let socket = folder.path("http.sock");
    let start = |more: &str| {
        // A process that the last server was just starting can hold the socket for a moment.
        wait_until("nobody listens", || UnixStream::connect(&socket).is_err());
        let rules = "[[rule]]\npath = \"/unix/*\"\nallow = [\"unix\"]\n\
                     [[rule]]\npath = \"/none/*\"\ndeny = [\"unix\"]\n\
                     [[rule]]\npath = \"/all/*\"\ndeny = [\"0.0.0.0/0\", \"::/0\"]\n\
                     [[rule]]\npath = \"/hello.txt\"\ndeny = [\"192.0.2.0/24\"]\n";
        Launch::configured(&folder, &config(&format!("{more}{rules}"))).start()
    };
    let server = start("");
    let of = |target: &str| [status(&socket, target), server.get(target).status];
    assert_eq!(["/unix/a.txt", "/none/a.txt", "/all/a.txt"].map(of), [[200, 403], [403, 200], [200, 403]]);
    let named = |client: &str| {
        Peer::at(&socket).get_with("/hello.txt", &[&format!("X-Forwarded-For: {client}")]).status()
    };
    assert_eq!(named("192.0.2.1"), 200, "nobody is trusted");
    drop(server);
    let server = start("trusted_proxies = [\"unix\"]\n");
    let by_address =
        |client: &str| server.get_with("/hello.txt", &[&format!("X-Forwarded-For: {client}")]).status;
    assert_eq!((named("192.0.2.1"), by_address("192.0.2.1")), (403, 200), "an address is not a Unix socket");
    let at_unix = |client: &str| {
        Peer::at(&socket).get_with("/unix/a.txt", &[&format!("X-Forwarded-For: {client}")]).status()
    };
    // No field makes a client one of a Unix socket. One that names no address leaves the proxy.
    assert_eq!(["198.51.100.1", "0.0.0.0", "unix:"].map(at_unix), [403, 200, 200]);
    drop(server);
    let server = start("proxy_protocol = [\"unix\"]\n");
    let introduced = |line: &str| {
        let mut client = Peer::at(&socket);
        client.send(line);
        client.get("/hello.txt").status()
    };
    assert_eq!(introduced("PROXY TCP4 192.0.2.1 192.0.2.9 1 80\r\n"), 403);
    assert_eq!(introduced("PROXY TCP4 198.51.100.1 192.0.2.9 1 80\r\n"), 200);
    assert_eq!(server.get("/hello.txt").status, 200);
    let mut client = Peer::at(&socket);
    client.ask("/hello.txt");
    client.assert_ended();
    server.wait_for_stderr("refused a connection from unix:, which did not begin with the PROXY protocol");
}

#[test]
fn servers_of_routes_are_told_that_there_is_no_address() {
    if only_plain("the test has its own clients") || skips(&["mp", "mt"], "it has no routes") {
        return;
    }
    let folder = Folder::with_hello();
    let upstream = Upstream::tcp();
    let route = proxy("/api/", &upstream.address, "");
    let fields = ["X-Forwarded-For", "Forwarded", "X-Forwarded-Proto"];
    let _upstream = upstream.answer(move |request: &Message| {
        let values = fields.map(|name| request.field(name).unwrap_or("none").to_owned());
        ok(values.join(" "))
    });
    let _server = Launch::configured(&folder, &config(&route)).start();
    let answer = Peer::at(&folder.path("http.sock")).get("/api/");
    assert_eq!(answer.text(), "unix: for=unknown;host=e2e.test;proto=http http");
}

#[test]
fn nginx_and_haproxy_connect_by_unix_sockets() {
    if only_plain("the test has its own clients")
        || skips(
            &["mp", "mt"],
            "proxies keep connections, each of which holds one of few processes or threads",
        )
    {
        return;
    }
    let [nginx, haproxy] = ["/usr/sbin/nginx", "/usr/sbin/haproxy"].map(Path::new);
    if !haproxy.exists() || !Path::new("/usr/bin/curl").exists() {
        return skip("haproxy or curl is not installed");
    }
    let folder = Folder::with_hello();
    let path = |name: &str| folder.path(name).display().to_string();
    let more = format!(
        "listen_mode = \"0666\"\ntrusted_proxies = [\"unix\"]\nlog_file = {:?}\n[[rule]]\ndeny = [\"127.0.0.6\"]\n",
        path("access.log")
    );
    let _server = Launch::configured(&folder, &config(&more)).start();
    let introduced = Folder::with_hello();
    let config =
        config("listen_mode = \"0666\"\nproxy_protocol = [\"unix\"]\n[[rule]]\ndeny = [\"127.0.0.6\"]\n");
    let _introduced = Launch::configured(&introduced, &config).start();
    let addresses = [(); 3].map(|()| address_to_give());
    folder.write(
        "haproxy.cfg",
        format!(
            "global\n  maxconn 100\ndefaults\n  timeout connect 60s\n  timeout client 60s\n  timeout server 60s\n\
             listen a\n  mode http\n  bind {}\n  bind {}\n  option forwardfor\n  server s unix@{}\n\
             listen b\n  mode tcp\n  bind {}\n  server s unix@{} send-proxy-v2\n",
            addresses[0],
            path("ready.sock"),
            path("http.sock"),
            addresses[1],
            introduced.path("http.sock").display()
        ),
    );
    let mut command = Command::new(haproxy);
    command.arg("-db").arg("-f").arg(folder.path("haproxy.cfg"));
    let _haproxy = Program::start(command, &folder.path("ready.sock"), &folder.path("haproxy.log"));
    let mut ways = vec![("haproxy", addresses[0]), ("haproxy, introduced", addresses[1])];
    let mut programs = Vec::new();
    if nginx.exists() {
        fs::set_permissions(folder.path(""), Permissions::from_mode(0o755)).unwrap();
        folder.write(
            "nginx.conf",
            format!(
                "daemon off; master_process off; pid {}; error_log stderr; events {{}}\n\
                 http {{ access_log off; client_body_temp_path {t}; proxy_temp_path {t}; fastcgi_temp_path {t}; \
                 uwsgi_temp_path {t}; scgi_temp_path {t};\n\
                 upstream flash {{ server unix:{}; keepalive 4; }}\n\
                 server {{ listen {}; listen unix:{}; location / {{ proxy_pass http://flash; proxy_http_version 1.1; \
                 proxy_set_header Connection \"\"; proxy_set_header X-Forwarded-For $remote_addr; }} }} }}\n",
                path("nginx.pid"),
                path("http.sock"),
                addresses[2],
                path("nginx.sock"),
                t = path("temp")
            ),
        );
        let mut command = Command::new(nginx);
        command.arg("-p").arg(folder.path("")).arg("-c").arg(folder.path("nginx.conf"));
        programs.push(Program::start(command, &folder.path("nginx.sock"), &folder.path("nginx.log")));
        ways.push(("nginx", addresses[2]));
    } else {
        skip("in part: /usr/sbin/nginx is not installed");
    }
    for (way, address) in ways {
        for (from, status) in [("127.0.0.5", "200"), ("127.0.0.6", "403"), ("127.0.0.5", "200")] {
            let words =
                ["-s", "--max-time", "60", "-o", "/dev/null", "-w", "%{http_code}", "--interface", from];
            let url = format!("http://{address}/hello.txt");
            let output = Command::new("curl").args(words).arg(url).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), status, "{way} from {from}");
        }
    }
    let log = fs::read_to_string(folder.path("access.log")).unwrap_or_default();
    assert!(!log.contains("unix:"), "{log}");
}

#[test]
fn tls_over_a_unix_socket() {
    if only_plain("the test has its own clients") || skips(&["mt"], "it has no HTTPS") {
        return;
    }
    if !Path::new("/usr/bin/curl").exists() {
        return skip("curl is not installed");
    }
    let folder = Folder::with_hello();
    let tls = folder.path("tls");
    fs::create_dir(&tls).unwrap();
    let made = Command::new(env!("CARGO_BIN_EXE_flash")).args(["tls", "self-signed"]).arg(&tls).output();
    assert!(made.is_ok_and(|made| made.status.success()));
    let more = format!(
        "listen_tls = [\"unix:https.sock\"]\ncertificate = [\"{tls}/flash.pem\"]\ncertificate_key = [\"{tls}/flash.key\"]\n\
         https_redirect = 301\n",
        tls = tls.display()
    );
    let server = Launch::configured(&folder, &config(&more)).start();
    let line = server.stdout() + &server.stderr();
    assert!(line.contains(&format!(" unix:{} (TLS)", folder.path("https.sock").display())), "{line}");
    let curl = |socket: &str, url: &str| {
        let words = [
            "-sk",
            "--max-time",
            "60",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code} %{redirect_url}",
            "--unix-socket",
        ];
        let output = Command::new("curl").args(words).arg(folder.path(socket)).arg(url).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(curl("https.sock", "https://localhost/hello.txt"), "200 ");
    assert_eq!(curl("http.sock", "http://localhost/hello.txt"), "301 https://localhost/hello.txt");
}

/// `flash serve` that `systemd-socket-activate` starts with these sockets, once the test has connected to the first one, a path.
/// None without systemd.
fn activated(folder: &Folder, sockets: &[&str], names: &str, config: &str) -> Option<Launch> {
    if Command::new("systemd-socket-activate").arg("--version").output().is_err() {
        skip("needs Debian's systemd");
        return None;
    }
    let mut words = vec!["systemd-socket-activate".to_owned(), format!("--fdname={names}")];
    for socket in sockets {
        words.extend(["-l".to_owned(), (*socket).to_owned()]);
    }
    let path = PathBuf::from(sockets[0]);
    std::thread::spawn(move || {
        // It starts the program when a client connects, which the program then answers or drops.
        wait_until("systemd to listen", || UnixStream::connect(&path).is_ok());
    });
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Some(Launch::configured(folder, config).args(["--control", "none"]).through_all(&words))
}

/// Whether a process has a copy of the listening socket at this path.
fn holds(pid: u32, socket: &Path) -> bool {
    const ACCEPTS: &str = " 00010000 ";
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    let path = socket.to_str().unwrap();
    let line = sockets.lines().find(|line| line.ends_with(path) && line.contains(ACCEPTS)).unwrap();
    let link = format!("socket:[{}]", line.split_ascii_whitespace().nth(6).unwrap());
    // It may have ended.
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    let mut links = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.any(|found| found.as_os_str() == link.as_str())
}

#[test]
fn sockets_of_systemd_take_the_place_of_the_default() {
    if only_plain("the test has its own clients") {
        return;
    }
    let folder = Folder::with_hello();
    let (path, address) = (folder.path("http.sock"), address_to_give());
    let sockets = [path.to_str().unwrap(), &address.to_string()];
    let Some(launch) = activated(&folder, &sockets, "local:tcp", "root = \"www\"\nworkers = 2\n") else {
        return;
    };
    let mut server = launch.start();
    let line = server.stdout() + &server.stderr();
    let shown = format!(" at unix:{} (systemd:local) http://{address}/ (systemd:tcp);", path.display());
    assert!(line.contains(&shown), "{line}");
    let answers = || {
        for _ in 0..5 {
            assert_eq!(status(&path, "/hello.txt"), 200);
            assert_eq!(crate::harness::Client::to(address).get("/hello.txt").status, 200);
        }
    };
    answers();
    let before = server.in_force().len();
    server.signal("HUP");
    wait_until("the next configuration", || server.in_force().len() > before);
    answers();
    wait_until("every worker to accept", || server.some("worker").iter().all(|pid| holds(*pid, &path)));
    for pid in ["keeper", "watcher", "helper", "log", "gateway"].iter().flat_map(|role| server.role(role)) {
        assert!(!holds(pid, &path), "{pid} has no need of it");
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&environment).contains("LISTEN_"), "{pid}");
    }
    // A worker that dies is replaced at the same sockets.
    let first = server.some("worker")[0];
    kill("KILL", first);
    wait_until("another worker", || {
        !server.role("worker").contains(&first) && !server.role("worker").is_empty()
    });
    answers();
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    assert!(path.exists(), "systemd's socket is not ours to remove");
}

#[test]
fn sockets_of_systemd_are_named() {
    if only_plain("the test has its own clients") {
        return;
    }
    let folder = Folder::with_hello();
    let path = folder.path("http.sock");
    let sockets = [path.to_str().unwrap()];
    let config = "root = \"www\"\nlisten = [\"systemd:web\", \"127.0.0.1:0\"]\n";
    let Some(launch) = activated(&folder, &sockets, "web", config) else { return };
    let server = launch.start();
    assert_eq!(status(&path, "/hello.txt"), 200);
    assert_eq!(server.get("/hello.txt").status, 200);
    // A reload that does not name it any more would leave its clients without an answer.
    folder.write("flash.toml", crate::harness::adapted("root = \"www\"\nlisten = [\"127.0.0.1:0\"]\n"));
    server.signal("HUP");
    server.wait_for_stderr(
        "which no setting names; add `systemd:web` to listen or listen_tls, or stop its unit",
    );
    server.wait_for_stderr("the old configuration stays in force");
    assert_eq!(status(&path, "/hello.txt"), 200);
    drop(server);
    fs::remove_file(&path).unwrap();
    let fails = |names: &str, config: &str, part: &str| {
        let launch = activated(&folder, &sockets, names, config).unwrap();
        let (code, _, stderr) = launch.fail();
        assert!(code == Some(1) && stderr.contains(part), "{stderr}");
        fs::remove_file(&path).unwrap();
    };
    fails("web", "root = \"www\"\nlisten = [\"127.0.0.1:0\"]\n", "which no setting names");
    fails(
        "web",
        "root = \"www\"\nlisten = [\"systemd:http\"]\n",
        "of `web`; set FileDescriptorName=http in its socket unit",
    );
    let (code, _, stderr) = Launch::configured(&folder, config).fail();
    assert!(code == Some(1) && stderr.contains("`systemd:web`: systemd has passed no socket"), "{stderr}");
}
