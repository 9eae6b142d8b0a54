//! Clients behind trusted proxies.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::upstream::Program;
use crate::harness::{Folder, Launch, address_to_give, only_plain, skip, skips, wait_until};

#[test]
fn a_trusted_proxy_names_the_client() {
    let folder = Folder::with_hello();
    let log = folder.path("access.log");
    let start = |trusted: &str| {
        let config = format!(
            "root = \"www\"\nlisten = [\"127.0.0.1:0\"]\nlog_file = \"{}\"\n{trusted}\
             [[rule]]\ndeny = [\"192.0.2.0/24\"]\n",
            log.display()
        );
        Launch::configured(&folder, &config).start()
    };
    let trusting = start("trusted_proxies = [\"loopback\"]\n");
    let mut client = trusting.client();
    for _ in 0..3 {
        for (named_client, status) in [("192.0.2.1", 403), ("198.51.100.7", 200)] {
            let field = format!("X-Forwarded-For: 203.0.113.5, {named_client}");
            assert_eq!(client.request("GET", "/hello.txt", &[&field]).status, status, "{field}");
        }
    }
    let lines_of = |client: &str| {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.lines().filter(|line| line.starts_with(&format!("{client} "))).count()
    };
    wait_until("all lines", || lines_of("192.0.2.1") == 3 && lines_of("198.51.100.7") == 3);
    drop(trusting);
    let trusting_none = start("");
    let page = trusting_none.get_with("/hello.txt", &["X-Forwarded-For: 192.0.2.1"]);
    assert_eq!(page.status, 200);
    wait_until("a line", || lines_of("127.0.0.1") == 1);
}

const HAPROXY: &str = "/usr/sbin/haproxy";

/// The status that curl gets from this address of its own, and what it says.
fn curl(from: &str, url: &str) -> String {
    let words = [
        "-sk",
        "--max-time",
        "60",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code} %{http_version}",
        "--interface",
        from,
    ];
    let output = Command::new("curl").args(words).arg(url).output().expect("curl");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn haproxy_introduces_clients() {
    if only_plain("the test has its own clients")
        || skips(
            &["mp", "mt"],
            "HAProxy keeps connections, each of which holds one of few processes or threads",
        )
    {
        return;
    }
    if !Path::new(HAPROXY).exists() || !Path::new("/usr/bin/curl").exists() {
        return skip("haproxy or curl is not installed");
    }
    let folder = Folder::with_hello();
    let certificate = folder.path("tls");
    fs::create_dir(&certificate).unwrap();
    let made =
        Command::new(env!("CARGO_BIN_EXE_flash")).args(["tls", "self-signed"]).arg(&certificate).output();
    assert!(made.is_ok_and(|made| made.status.success()));
    let log = folder.path("access.log");
    let config = format!(
        "root = \"www\"\nlisten = [\"127.0.0.1:0\"]\nlisten_tls = [\"127.0.0.1:0\"]\n\
         certificate = [\"{tls}/flash.pem\"]\ncertificate_key = [\"{tls}/flash.key\"]\n\
         proxy_protocol = [\"127.0.0.9\"]\ntrusted_proxies = [\"127.0.0.10\"]\nlog_file = \"{}\"\n\
         [[rule]]\ndeny = [\"127.0.0.6\"]\n",
        log.display(),
        tls = certificate.display(),
    );
    let server = Launch::configured(&folder, &config).start();
    let (plain, tls) = (server.addresses[0], server.addresses[1]);
    let ways = [
        ("tcp", format!("server s {plain} source 127.0.0.9 send-proxy"), "http"),
        ("tcp", format!("server s {plain} source 127.0.0.9 send-proxy-v2"), "http"),
        ("tcp", format!("server s {tls} source 127.0.0.9 send-proxy-v2"), "https"),
        ("http", format!("option forwardfor\n  server s {plain} source 127.0.0.10"), "http"),
    ];
    let addresses = [(); 4].map(|()| address_to_give());
    let mut text = "global\n  maxconn 100\ndefaults\n  timeout connect 60s\n  timeout client 60s\n  timeout server 60s\n".to_owned();
    for (number, ((mode, server, _), address)) in ways.iter().zip(addresses).enumerate() {
        let ready = if number == 3 {
            format!("  bind {}\n", folder.path("ready.sock").display())
        } else {
            String::new()
        };
        text += &format!("listen l{number}\n  mode {mode}\n  bind {address}\n{ready}  {server}\n");
    }
    folder.write("haproxy.cfg", text);
    let mut command = Command::new(HAPROXY);
    command.arg("-db").arg("-f").arg(folder.path("haproxy.cfg"));
    let _haproxy = Program::start(command, &folder.path("ready.sock"), &folder.path("haproxy.log"));
    for ((_, way, scheme), address) in ways.iter().zip(addresses) {
        let url = format!("{scheme}://{address}/hello.txt");
        for (from, status) in [("127.0.0.5", "200"), ("127.0.0.6", "403"), ("127.0.0.5", "200")] {
            assert!(curl(from, &url).starts_with(status), "{from} {way}: {}", curl(from, &url));
        }
    }
    assert_eq!(
        curl("127.0.0.5", &format!("https://{}/hello.txt", addresses[2])),
        "200 2",
        "HTTP/2 through HAProxy"
    );
    let lines_of = |client: &str| {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.lines().filter(|line| line.starts_with(&format!("{client} "))).count()
    };
    wait_until("all lines", || lines_of("127.0.0.5") == 9 && lines_of("127.0.0.6") == 4);
    // One that introduces nobody is refused; others need no introduction.
    assert!(curl("127.0.0.9", &format!("http://{plain}/hello.txt")).starts_with("000"));
    server
        .wait_for_stderr("refused a connection from 127.0.0.9, which did not begin with the PROXY protocol");
    assert!(curl("127.0.0.5", &format!("http://{plain}/hello.txt")).starts_with("200"));
}
