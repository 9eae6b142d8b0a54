//! HTTPS, as curl and openssl see it.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::harness::{Client, Folder, Launch, Server, kill, pattern, stats_at, wait_for, wait_until};

/// The options of openssl for a kind of key.
pub(crate) const ECDSA: &str = "ec -pkeyopt ec_paramgen_curve:P-256";
pub(crate) const RSA: &str = "rsa:2048";

/// Makes a self-signed certificate `NAME.pem` of this host, and its key `NAME.key`.
fn certificate(folder: &Folder, name: &str, host: &str, kind: &str, days: i64) {
    certificate_of(folder, name, &format!("DNS:{host}"), kind, days);
}

/// The same, for a name such as `DNS:localhost` or `IP:127.0.0.1`.
pub(crate) fn certificate_of(folder: &Folder, name: &str, of: &str, kind: &str, days: i64) {
    let (_, host) = of.split_once(':').unwrap();
    let words = format!(
        "req -x509 -newkey {kind} -nodes -subj /CN={host} -addext subjectAltName={of} -days {days} -keyout {name}.key -out {name}.pem"
    );
    let made = Command::new("openssl").args(words.split(' ')).current_dir(folder.path("")).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    fs::set_permissions(folder.path(format!("{name}.key")), Permissions::from_mode(0o600)).unwrap();
}

/// The configuration of most tests: two kinds of keys for the default site, and two sites with their own.
const CONFIG: &str = "head_timeout = \"10m\"\n\
root = \"www\"
listen = [\"127.0.0.1:0\"]
listen_tls = [\"127.0.0.1:0\"]
workers = 1
control = \"control.sock\"
certificate = [\"ecdsa.pem\", \"rsa.pem\"]
certificate_key = [\"ecdsa.key\", \"rsa.key\"]

[[site]]
hosts = [\"one.example\"]
root = \"one\"
certificate = [\"one.pem\"]
certificate_key = [\"one.key\"]

[[site]]
hosts = [\"*.wild.example\"]
root = \"wild\"
certificate = [\"wild.pem\"]
certificate_key = [\"wild.key\"]
";

fn files() -> Folder {
    let folder = Folder::with_hello();
    for (name, host, kind) in [
        ("ecdsa", "localhost", ECDSA),
        ("rsa", "localhost", RSA),
        ("one", "one.example", ECDSA),
        ("wild", "*.wild.example", ECDSA),
    ] {
        certificate(&folder, name, host, kind, 90);
    }
    for name in ["www", "one", "wild"] {
        folder.write(&format!("{name}/who.txt"), name);
        folder.write(&format!("{name}/large.bin"), pattern(3_000_000, 7));
    }
    folder
}

fn site() -> (Folder, Server) {
    let folder = files();
    let control = folder.path("control.sock");
    let server = Launch::configured(&folder, CONFIG).arg("--control").arg(control).start();
    (folder, server)
}

/// The address for HTTPS, behind the plain one.
fn tls(server: &Server) -> SocketAddr {
    server.announcements()[0][1]
}

fn openssl(address: SocketAddr, words: &str) -> Output {
    openssl_with(address, words, "")
}

/// Runs `openssl s_client` with this input.
fn openssl_with(address: SocketAddr, words: &str, input: &str) -> Output {
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &address.to_string()])
        .args(words.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs curl for this host, and returns what it prints.
fn curl(server: &Server, host: &str, words: &[&str], path: &str) -> Vec<u8> {
    let address = tls(server);
    let made = Command::new("curl")
        .args(["-sS", "--insecure", "--max-time", "60", "--resolve"])
        .arg(format!("{host}:{}:127.0.0.1", address.port()))
        .args(words)
        .arg(format!("https://{host}:{}{path}", address.port()))
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", text(&made));
    made.stdout
}

#[test]
fn files_are_served_over_both_versions() {
    let (_folder, server) = site();
    for version in ["--tlsv1.3", "--tls-max 1.2"] {
        let words: Vec<&str> = version.split(' ').collect();
        assert_eq!(curl(&server, "localhost", &words, "/who.txt"), b"www");
        assert_eq!(curl(&server, "localhost", &words, "/large.bin"), pattern(3_000_000, 7));
    }
    for old in ["-tls1", "-tls1_1"] {
        let refused = text(&openssl(tls(&server), &format!("{old} -cipher DEFAULT@SECLEVEL=0")));
        assert!(!refused.contains("Verify return code") || refused.contains("alert"), "{refused}");
    }
    assert_eq!(server.get("/who.txt").text(), "www", "the plain port still answers");
}

#[test]
fn the_certificate_is_that_of_the_name_and_of_the_clients_kind() {
    let (_folder, server) = site();
    for (words, subject) in [
        ("-servername one.example", "CN = one.example"),
        ("-servername ONE.example", "CN = one.example"),
        ("-servername a.wild.example", "CN = *.wild.example"),
        ("-servername a.b.wild.example", "CN = *.wild.example"),
        ("-servername other.example", "CN = localhost"),
        ("-noservername", "CN = localhost"),
    ] {
        let seen = text(&openssl(tls(&server), words));
        assert!(seen.contains(&format!("subject={subject}")), "{words}: {seen}");
    }
    for (words, kind) in [
        ("-sigalgs ECDSA+SHA256", "id-ecPublicKey"),
        ("-sigalgs RSA-PSS+SHA256", "rsaEncryption"),
        ("-sigalgs ECDSA+SHA256:RSA-PSS+SHA256", "id-ecPublicKey"),
        ("-tls1_2 -sigalgs RSA+SHA256", "rsaEncryption"),
    ] {
        let seen = text(&openssl(tls(&server), words));
        assert!(seen.contains(kind), "{words}: {seen}");
    }
    assert_eq!(curl(&server, "one.example", &[], "/who.txt"), b"one");
    assert_eq!(curl(&server, "x.wild.example", &[], "/who.txt"), b"wild");
}

/// The number of the thread of a worker that computes handshakes, if there is one.
pub(crate) fn handshake_thread(worker: u32) -> Option<u32> {
    let tasks = fs::read_dir(format!("/proc/{worker}/task")).unwrap().flatten();
    let mut ids = tasks.map(|task| task.file_name().to_str().unwrap().parse::<u32>().unwrap());
    ids.find(|id| fs::read_to_string(format!("/proc/{worker}/task/{id}/comm")).unwrap() == "handshake\n")
}

#[test]
fn a_thread_that_gives_way_computes_handshakes_with_rsa_keys() {
    let (folder, server) = site();
    let worker = server.sole("worker");
    let thread = handshake_thread(worker).unwrap();
    let state = fs::read_to_string(format!("/proc/{worker}/task/{thread}/stat")).unwrap();
    // The state follows the name, as field 3; the policy is field 41 (proc_pid_stat(5)).
    let policy = state.rsplit_once(") ").unwrap().1.split(' ').nth(38).unwrap().to_owned();
    assert_eq!(policy, "5", "SCHED_IDLE: {state}");
    let descriptors = fs::read_dir(format!("/proc/{worker}/task/{thread}/fd")).unwrap().count();
    assert_eq!(descriptors, 3, "standard error, and its channel, twice");
    let cpu_ticks = || {
        let state = fs::read_to_string(format!("/proc/{worker}/task/{thread}/stat")).unwrap();
        let fields: Vec<String> = state.rsplit_once(") ").unwrap().1.split(' ').map(str::to_owned).collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let before = cpu_ticks();
    wait_until("handshakes in the thread", || {
        openssl(tls(&server), "-sigalgs RSA-PSS+SHA256");
        cpu_ticks() > before
    });
    drop(server);
    let config = CONFIG.replace(", \"rsa.pem\"", "").replace(", \"rsa.key\"", "");
    let server =
        Launch::configured(&folder, &config).arg("--control").arg(folder.path("control.sock")).start();
    assert_eq!(handshake_thread(server.sole("worker")), None, "other keys are fast");
}

#[test]
fn the_server_chooses_the_cipher_that_costs_least() {
    let (_folder, server) = site();
    for (words, cipher) in [
        (
            "-ciphersuites TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256",
            "TLS_AES_128_GCM_SHA256",
        ),
        ("-ciphersuites TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256"),
        (
            "-tls1_2 -cipher ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES128-GCM-SHA256",
            "ECDHE-ECDSA-AES128-GCM-SHA256",
        ),
    ] {
        let seen = text(&openssl(tls(&server), words));
        assert!(seen.contains(&format!("Cipher is {cipher}")), "{words}: {seen}");
    }
}

#[test]
fn the_protocol_is_agreed_on() {
    let (_folder, server) = site();
    let seen = text(&openssl(tls(&server), "-alpn http/1.1"));
    assert!(seen.contains("ALPN protocol: http/1.1"), "{seen}");
    let seen = text(&openssl(tls(&server), "-alpn http/1.1,h2"));
    assert!(seen.contains("ALPN protocol: h2"), "{seen}");
    for (version, expected) in [("--http2", "2"), ("--http1.1", "1.1")] {
        let options = [version, "--write-out", "%{http_version}"];
        assert_eq!(
            String::from_utf8(curl(&server, "localhost", &options, "/who.txt")).unwrap(),
            format!("www{expected}")
        );
    }
    let refused = text(&openssl(tls(&server), "-alpn something-else"));
    assert!(refused.contains("no application protocol"), "{refused}");
}

#[test]
fn sessions_are_resumed_after_a_reload_and_by_another_worker() {
    let (folder, server) = site();
    for version in ["-tls1_3", "-tls1_2"] {
        let session = folder.path(format!("session{version}"));
        let session = session.display();
        // TLS 1.3 sends its tickets after the handshake, so the client waits for an answer.
        let ask = "GET /who.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let first = openssl_with(tls(&server), &format!("{version} -ign_eof -sess_out {session}"), ask);
        assert!(text(&first).contains("New, "), "{}", text(&first));
        let resumes = || {
            let again = openssl_with(tls(&server), &format!("{version} -ign_eof -sess_in {session}"), ask);
            let again = text(&again);
            assert!(again.contains("Reused, ") && again.contains("200 OK"), "{again}");
        };
        resumes();
        let worker = server.sole("worker");
        kill("KILL", worker);
        wait_until("another worker", || {
            !server.role("worker").is_empty() && server.role("worker") != [worker]
        });
        resumes();
        let before = server.in_force().len();
        server.signal("HUP");
        wait_until("the next configuration", || server.in_force().len() > before);
        resumes();
    }
    let stats = wait_for("the counters", || {
        let stats = stats_at(&folder.path("control.sock"));
        (stats["sum"]["tls"]["resumed"].as_u64()? > 0).then_some(stats)
    });
    assert!(stats["sum"]["tls"]["handshakes"].is_u64(), "{stats}");
}

#[test]
fn certificates_are_replaced_without_a_lost_connection() {
    let (folder, server) = site();
    let mut old = Command::new("openssl")
        .args(["s_client", "-quiet", "-connect", &tls(&server).to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = old.stdin.take().unwrap();
    input.write_all(b"GET /who.txt HTTP/1.1\r\nHost: localhost\r\n").unwrap();
    // A broken pair keeps the old one.
    certificate(&folder, "other", "replaced.example", ECDSA, 90);
    fs::copy(folder.path("other.key"), folder.path("one.key")).unwrap();
    server.signal("HUP");
    server.wait_for_stderr("the key belongs to another certificate");
    server.wait_for_stderr("the old configuration stays in force");
    let subject = || text(&openssl(tls(&server), "-servername one.example"));
    assert!(subject().contains("CN = one.example"));
    // The new pair is noticed without a signal.
    fs::copy(folder.path("other.pem"), folder.path("one.pem")).unwrap();
    wait_until("the new certificate", || subject().contains("CN = replaced.example"));
    input.write_all(b"Connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    old.stdout.take().unwrap().read_to_string(&mut answer).unwrap();
    drop(input);
    assert!(answer.contains("200 OK") && answer.ends_with("www"), "{answer}");
    old.wait().unwrap();
}

#[test]
fn certificates_that_cannot_be_used_are_refused_with_file_and_reason() {
    let folder = files();
    certificate(&folder, "soon", "localhost", ECDSA, 5);
    certificate(&folder, "open", "localhost", ECDSA, 90);
    fs::set_permissions(folder.path("open.key"), Permissions::from_mode(0o644)).unwrap();
    folder.write("garbage.pem", "nonsense");
    let config = |certificate: &str, key: &str| {
        format!(
            "root = \"www\"\nlisten = [\"127.0.0.1:0\"]\nlisten_tls = [\"127.0.0.1:0\"]\nworkers = 1\ncertificate = \
             [{certificate}]\ncertificate_key = [{key}]\n"
        )
    };
    for (certificate, key, why) in [
        ("", "", "listen_tls needs a certificate"),
        ("\"ecdsa.pem\"", "", "each certificate needs its key"),
        ("\"missing.pem\"", "\"ecdsa.key\"", "missing.pem"),
        ("\"garbage.pem\"", "\"ecdsa.key\"", "no certificate in PEM form"),
        ("\"ecdsa.pem\"", "\"garbage.pem\"", "garbage.pem"),
        ("\"ecdsa.pem\"", "\"one.key\"", "belongs to another certificate"),
        ("\"open.pem\"", "\"open.key\"", "every user of this machine can reach this key"),
    ] {
        let (code, _, err) = Launch::configured(&folder, &config(certificate, key)).fail();
        assert!(code == Some(1) && err.contains(why), "{certificate} {key}: {err}");
    }
    let server = Launch::configured(&folder, &config("\"soon.pem\"", "\"soon.key\"")).start();
    server.wait_for_stderr("soon.pem` expires on ");
}

#[test]
fn threads_without_handshakes_and_fastcgi_over_tls_are_refused_with_a_reason() {
    let folder = files();
    let mt =
        Launch::configured(&folder, CONFIG).architecture("mt").arg("--config").arg(folder.path("flash.toml"));
    let (code, _, err) = mt.fail();
    assert!(code == Some(1) && err.contains("`mt`: its threads have no handshakes"), "{err}");
    let route = "root = \"www\"\n[[route]]\nprefix = \"/a/\"\nfastcgi = \"https://127.0.0.1:9\"\n";
    let (code, _, err) = Launch::configured(&folder, route).fail();
    assert!(code == Some(1) && err.contains("FastCGI has no form over TLS"), "{err}");
}

#[test]
fn keys_are_in_no_output() {
    let (folder, server) = site();
    let key = fs::read_to_string(folder.path("ecdsa.key")).unwrap();
    let line = key.lines().nth(1).unwrap();
    let stats = stats_at(&folder.path("control.sock")).to_string();
    for output in [stats, server.stdout(), server.stderr()] {
        assert!(!output.contains(line) && !output.contains("PRIVATE KEY"), "{output}");
    }
    // No user but root may look into a worker, and it leaves no dump.
    let worker = server.sole("worker");
    if let Ok(limits) = fs::read_to_string(format!("/proc/{worker}/limits")) {
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert!(core.split_whitespace().nth(4) == Some("0"), "{core}");
    }
}

#[test]
fn each_port_tells_clients_of_the_other_kind() {
    let (folder, server) = site();
    let mut plain = Client::to(tls(&server));
    let page = plain.get("/who.txt");
    assert!(page.brief().0 == 400 && page.text().contains("https://"), "{page:?}");
    let refused = text(&openssl(server.announcements()[0][0], ""));
    assert!(!refused.contains("BEGIN CERTIFICATE"), "{refused}");
    wait_until("the counters", || {
        let tls = &stats_at(&folder.path("control.sock"))["sum"]["tls"];
        tls["plain_requests"] == 1 && tls["on_plain"] == 1
    });
}

/// A server whose sites redirect plain HTTP to a port of its own: one with 301, one with 308, and one that does not.
fn redirecting() -> (Folder, Server) {
    let folder = files();
    folder.write("www/.well-known/acme-challenge/token", "proof");
    folder.write("www/dir/index.html", "index");
    // Another process can take the port before the server does.
    let server = wait_for("a free port", || {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = CONFIG.replace(
            "listen_tls = [\"127.0.0.1:0\"]",
            &format!(
                "listen_tls = [\"127.0.0.1:{port}\"]\nhsts = \"max-age=31536000\"\nhttps_redirect = \"301\""
            ),
        );
        let one =
            "hsts = \"max-age=7; includeSubDomains\"\nhttps_redirect = \"308\"\nhosts = [\"one.example\"]";
        let config = config.replace("hosts = [\"one.example\"]", one);
        let wild = "hsts = \"off\"\nhttps_redirect = \"off\"\nhosts = [\"*.wild.example\"]";
        let config = config.replace("hosts = [\"*.wild.example\"]", wild);
        Launch::configured(&folder, &config).try_start().ok()
    });
    (folder, server)
}

/// A plain request for a site, with these other fields.
fn plain(server: &Server, (method, host, target): (&str, &str, &str)) -> crate::harness::Page {
    let mut client = Client::to(server.announcements()[0][0]);
    client.send(format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n"));
    client.page()
}

#[test]
fn plain_http_is_redirected_to_https_except_challenges() {
    let (_folder, server) = redirecting();
    let port = tls(&server).port();
    for (asked, status, target) in [
        (("GET", "localhost", "/who.txt"), 301, "/who.txt"),
        (("GET", "localhost:80", "/dir/?a=%20b&c=//d"), 301, "/dir/?a=%20b&c=//d"),
        (("GET", "localhost", "//elsewhere.example/"), 301, "//elsewhere.example/"),
        (("GET", "localhost", "/no/such%2Ffile"), 301, "/no/such%2Ffile"),
        (("GET", "localhost", "http://localhost/who.txt"), 301, "/who.txt"),
        (("POST", "localhost", "/.well-known/other"), 301, "/.well-known/other"),
        (("GET", "ONE.example.", "/who.txt"), 308, "/who.txt"),
        (("PUT", "one.example", "/who.txt"), 308, "/who.txt"),
    ] {
        let page = plain(&server, asked);
        let host = asked.1.split(':').next().unwrap();
        let location = format!("https://{host}:{port}{target}");
        assert_eq!((page.status, page.must("Location")), (status, &*location), "{asked:?}");
        assert_eq!(page.field("Strict-Transport-Security"), None, "RFC 6797, section 7.2");
    }
    // Twice: the second is answered by the bytes of its head.
    for _ in 0..3 {
        let page = plain(&server, ("GET", "localhost", "/.well-known/acme-challenge/token"));
        assert_eq!(page.brief(), (200, "proof".into()));
        assert_eq!(plain(&server, ("GET", "a.wild.example", "/who.txt")).brief(), (200, "wild".into()));
    }
    let none = plain(&server, ("GET", "localhost", "/.well-known/acme-challenge/none"));
    assert_eq!(none.status, 404);
    let outside = plain(&server, ("GET", "localhost", "/.well-known/acme-challenge/../../who.txt"));
    assert_eq!(outside.status, 301, "a path is decoded first");
    let mut old = Client::to(server.announcements()[0][0]);
    old.send("GET /who.txt HTTP/1.0\r\n\r\n");
    assert_eq!(old.page().status, 403);
}

#[test]
fn hsts_is_in_each_answer_over_https_and_in_no_other() {
    let (_folder, server) = redirecting();
    let head = |host: &str, words: &[&str], path: &str| {
        let words = [words, &["--output", "/dev/null", "--dump-header", "-"]].concat();
        String::from_utf8(curl(&server, host, &words, path)).unwrap().to_ascii_lowercase()
    };
    for version in ["--http1.1", "--http2"] {
        for (host, value) in [
            ("localhost", Some("max-age=31536000")),
            ("one.example", Some("max-age=7; includesubdomains")),
            ("a.wild.example", None),
        ] {
            // A hit is answered in another way once its head is known.
            for path in ["/who.txt", "/who.txt", "/who.txt", "/who.txt", "/large.bin", "/none", "/%00"] {
                for words in [&[version][..], &[version, "--head"], &[version, "--range", "0-1"]] {
                    let text = head(host, words, path);
                    let fields: Vec<&str> = text
                        .lines()
                        .filter_map(|line| line.strip_prefix("strict-transport-security: "))
                        .collect();
                    assert_eq!(fields, Vec::from_iter(value), "{host} {words:?} {path}: {text}");
                }
            }
        }
    }
    // The bytes of a request that was answered over HTTPS are redirected over plain HTTP.
    let ask = "GET /who.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    for _ in 0..3 {
        let seen = openssl_with(tls(&server), "-quiet -ign_eof", ask);
        assert!(seen.stdout.ends_with(b"\r\n\r\nwww"), "{}", text(&seen));
        let mut client = Client::to(server.announcements()[0][0]);
        client.send(ask);
        assert_eq!(client.page().status, 301);
    }
}

#[test]
fn statistics_show_when_certificates_expire() {
    let (folder, _server) = site();
    let stats = stats_at(&folder.path("control.sock"));
    let certificates = stats["certificates"].as_array().unwrap();
    let files: Vec<&str> = certificates.iter().map(|it| it["file"].as_str().unwrap()).collect();
    for name in ["ecdsa.pem", "rsa.pem", "one.pem", "wild.pem"] {
        assert!(files.iter().any(|file| file.ends_with(name)), "{files:?}");
    }
    for certificate in certificates {
        let left_s = certificate["left_s"].as_i64().unwrap();
        assert!((89 * 86_400..=90 * 86_400).contains(&left_s), "{certificate}");
    }
}

#[test]
fn hostile_clients_cost_only_themselves() {
    let (folder, server) = site();
    let hello = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
    for bytes in
        [&[0; 100][..], &hello, &[22; 50_000], &[23, 3, 3, 0, 5, 1, 2, 3, 4, 5], &[22, 3, 1, 255, 255]]
    {
        let mut client = TcpStream::connect(tls(&server)).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // The server may close before it has read all.
        let _ = client.write_all(bytes);
        let _ = client.shutdown(std::net::Shutdown::Write);
        let _ = client.read_to_end(&mut Vec::new());
    }
    // Handshakes that do not continue.
    let slow: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(tls(&server)).unwrap()).collect();
    for mut client in &slow {
        client.write_all(&hello).unwrap();
    }
    assert_eq!(curl(&server, "localhost", &[], "/who.txt"), b"www");
    drop(slow);
    wait_until("the failed handshakes", || {
        stats_at(&folder.path("control.sock"))["sum"]["tls"]["failed"].as_u64() >= Some(100)
    });
    assert_eq!(server.role("worker").len(), 1);
    assert_eq!(stats_at(&folder.path("control.sock"))["sum"]["panics"], 0);
}

#[test]
fn requests_in_a_row_and_a_half_close_are_answered() {
    let (_folder, server) = site();
    let ask = "GET /who.txt HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(3);
    // At the end of its input openssl closes its side, with a notice.
    let seen = openssl_with(tls(&server), "-quiet -ign_eof -no_ign_eof", &format!("{ask}Q\n"));
    let _ = text(&seen);
    let all = format!("{ask}GET /large.bin HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let seen = openssl_with(tls(&server), "-quiet -ign_eof", &all);
    assert!(seen.stdout.ends_with(&pattern(3_000_000, 7)), "the last answer is complete");
    let heads = seen.stdout.windows(12).filter(|bytes| bytes == b"HTTP/1.1 200").count();
    assert_eq!(heads, 4);
    assert!(!text(&seen).contains("unexpected eof"), "the end is announced");
}
