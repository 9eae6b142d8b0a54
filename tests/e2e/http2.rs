//! HTTP/2 with the clients that people use: curl, nghttp and h2load. The tests of the engine are about hostile ones.

use std::fs;
use std::process::Command;

use crate::harness::{Client, Folder, Launch, Server, browse, skip};

/// Runs a client. None if it is not installed.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = match Command::new(program).args(arguments).output() {
        Ok(output) => output,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            skip(&format!("{program} is not installed"));
            return None;
        }
        Err(e) => panic!("{program}: {e}"),
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {stderr}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn url(server: &Server, path: &str) -> String {
    format!("http://{}{path}", server.addresses[0])
}

#[test]
fn curl_gets_files_parts_and_errors() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    let get = |more: &[&str], path: &str| {
        let arguments =
            ["--silent", "--http2-prior-knowledge", "--write-out", "|%{http_code} %{http_version}"];
        run("curl", &[&arguments, more, &[&url(&server, path)]].concat())
    };
    let Some(hello) = get(&[], "/hello.txt") else { return };
    assert_eq!(hello, "hello\n|200 2");
    assert_eq!(get(&["--range", "1-2"], "/hello.txt").as_deref(), Some("el|206 2"));
    assert_eq!(get(&["--head", "--output", "/dev/null"], "/hello.txt").as_deref(), Some("|200 2"));
    let codes = [("/none", "404"), ("/%00", "400")];
    for (path, code) in codes {
        assert_eq!(get(&["--output", "/dev/null"], path), Some(format!("|{code} 2")), "{path}");
    }
    let posted = get(&["--data", "body", "--output", "/dev/null"], "/hello.txt");
    assert_eq!(posted.as_deref(), Some("|405 2"));
    // The same address still speaks HTTP/1.1.
    assert_eq!(server.get("/hello.txt").brief(), (200, "hello\n".into()));
}

#[test]
fn a_large_file_comes_whole() {
    let folder = Folder::with_hello();
    let bytes: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_be_bytes).collect();
    fs::write(folder.served("large"), &bytes).expect("a file");
    let server = Launch::new(&folder).start();
    let copy = folder.path("copy");
    let to = copy.to_str().expect("a path in UTF-8");
    if run("curl", &["--silent", "--http2-prior-knowledge", "--output", to, &url(&server, "/large")])
        .is_some()
    {
        assert!(fs::read(&copy).expect("the copy") == bytes);
    }
}

#[test]
fn nghttp_gets_many_files_on_one_connection() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    let hello = url(&server, "/hello.txt");
    let Some(text) = run("nghttp", &["--no-verify-peer", "--multiply=20", &hello]) else { return };
    assert_eq!(text, "hello\n".repeat(20));
}

#[test]
fn h2load_loses_no_request() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    let hello = url(&server, "/hello.txt");
    let Some(text) = run("h2load", &["-n", "3000", "-c", "3", "-m", "100", &hello]) else { return };
    assert!(text.contains("3000 succeeded, 0 failed, 0 errored, 0 timeout"), "{text}");
}

#[test]
fn http2_can_be_switched_off() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).args(["--no-http2"]).start();
    let mut client = Client::to(server.addresses[0]);
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_eq!(client.page().status, 505);
}

#[test]
fn a_browser_loads_a_page_over_http2() {
    let folder = Folder::with_hello();
    folder.write("www/index.html", "<!doctype html><html><script src=script.js></script><p>text</html>");
    folder.write("www/script.js", "document.documentElement.dataset.script = 'ran'");
    let path = |name: &str| folder.path(name).to_str().expect("a path in UTF-8").to_owned();
    run(env!("CARGO_BIN_EXE_flash"), &["tls", "self-signed", &path("")]).expect("a certificate");
    let words = ["--certificate", &path("flash.pem"), "--certificate-key", &path("flash.key")];
    let server = Launch::new(&folder).args(["--listen-tls", "127.0.0.1:0"]).args(words).start();
    let url = format!("https://{}/", server.addresses[1]);
    let log = path("net.json");
    let words = ["--ignore-certificate-errors", &format!("--log-net-log={log}")];
    let Some(page) = browse(&folder, &url, &words) else { return };
    assert!(page.contains("data-script=\"ran\"") && page.contains("<p>text"), "{page}");
    // The page and its script came on one connection of HTTP/2, as the browser's trace shows.
    let trace: serde_json::Value = serde_json::from_slice(&fs::read(log).expect("the trace")).expect("JSON");
    let count = |name: &str| {
        let kind = &trace["constants"]["logEventTypes"][name];
        let events = trace["events"].as_array().expect("events");
        events.iter().filter(|event| kind.is_number() && event["type"] == *kind).count()
    };
    assert_eq!(count("HTTP2_SESSION_INITIALIZED"), 1);
    assert!(count("HTTP2_SESSION_RECV_HEADERS") >= 2);
}
