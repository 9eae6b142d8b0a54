//! Requests that an application answers: the dynamic share of a workload, `flash interfere` beside a slow application, and the
//! reference application itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::harness::{Ended, FLASH, Folder, Served, flash, is_installed, run_json, skip, small_set};

/// The reference application for the small set.
struct Application {
    child: Child,
    address: String,
}

fn program() -> PathBuf {
    let program = std::env::current_exe().unwrap().with_file_name("../examples/application");
    assert!(
        program.exists(),
        "no example application: `cargo test -p flash` builds it, `--test lab` does not"
    );
    program
}

impl Application {
    fn start() -> Self {
        let mut command = Command::new(program());
        command.args(["127.0.0.1:0", small_set()]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on ").unwrap().to_owned();
        Self { child, address }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    /// All that it answers until it closes the connection.
    fn answers(&self, requests: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(requests).unwrap();
        let mut answers = Vec::new();
        stream.read_to_end(&mut answers).unwrap();
        String::from_utf8_lossy(&answers).into_owned()
    }

    /// The answer to a GET of a path.
    fn get(&self, path: &str) -> String {
        self.answers(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_application_answers_with_pages_and_bytes() {
    let application = Application::start();
    let page = application.get("/dynamic/dir00001/class0_1");
    let (head, body) = page.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("text/html"), "{page}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{page}");
    let file = std::fs::read_to_string(format!("{}/dir00001/class0_1", small_set())).unwrap();
    assert!(body.contains("Advertisement 0 of 360") && body.contains(&file), "{page}");
    assert!(application.get("/dynamic/dir00001/class0_1").contains("Advertisement 1 of 360"));
    assert!(application.get("/dynamic/?bytes=5").ends_with("\r\n\r\nxxxxx"));
    assert!(application.get("/dynamic/sleep?ms=1").ends_with("slept for 1 ms\n"));
    // Several requests on a connection: HEAD has no content, and the last one closes it.
    let requests = b"HEAD /dynamic/?bytes=7 HTTP/1.1\r\n\r\nGET /dynamic/?bytes=2 HTTP/1.0\r\n\r\n";
    let both = application.answers(requests);
    assert_eq!(both.matches("HTTP/1.1 200 OK").count(), 2, "{both}");
    assert!(both.contains("Content-Length: 7") && both.ends_with("\r\n\r\nxx"), "{both}");
}

#[test]
fn the_application_refuses_bad_requests_and_lives_on() {
    let application = Application::start();
    for (path, status) in [
        ("/", 404),
        ("/dynamic/", 404),
        ("/dynamic/dir00000", 404),
        ("/dynamic/../dir00000/class0_1", 404),
        ("/dynamic//dir00000/class0_1", 404),
        ("/dynamic/manifest\0", 404),
        ("/dynamic/sleep?ms=x", 400),
        ("/dynamic/sleep?ms=60001", 400),
        ("/dynamic/?bytes=-1", 400),
        ("/dynamic/?bytes=99999999999999999999", 400),
    ] {
        let answer = application.get(path);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
    }
    for (request, status) in [
        (b"\r\n\r\n".to_vec(), "400"),
        (b"GET / HTTP/2\r\n\r\n".to_vec(), "400"),
        (b"GET /\xff HTTP/1.1\r\n\r\n".to_vec(), "400"),
        (b"POST /dynamic/ HTTP/1.1\r\n\r\n".to_vec(), "405"),
        (b"GET /dynamic/ HTTP/1.1\r\nContent-Length: 1\r\n\r\n".to_vec(), "413"),
        (vec![b'x'; 8192], "431"),
    ] {
        let answer = application.answers(&request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    // A client that leaves within its request, and one that leaves before its answer.
    application.connect().write_all(b"GET /dyn").unwrap();
    application.connect().write_all(b"GET /dynamic/?bytes=60000000 HTTP/1.1\r\n\r\n").unwrap();
    assert!(application.get("/dynamic/?bytes=1").ends_with("x"));
}

#[test]
fn many_requests_wait_for_the_application_at_once() {
    let application = Application::start();
    let ask = b"GET /dynamic/sleep?ms=2000 HTTP/1.1\r\nConnection: close\r\n\r\n";
    let mut waiting: Vec<TcpStream> = (0..300).map(|_| application.connect()).collect();
    waiting.iter_mut().for_each(|stream| stream.write_all(ask).unwrap());
    for mut stream in waiting {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("slept for 2000 ms\n"), "{answer}");
    }
}

/// A run that the rest of the machine did not disturb: it is made again, a few times at most, while `is_undisturbed` does
/// not hold.
fn run_undisturbed(
    run: impl Fn(&str) -> Ended,
    is_undisturbed: impl Fn(&Ended, &str) -> bool,
) -> (Folder, Ended) {
    let mut last = None;
    for _ in 0..8 {
        let folder = Folder::new();
        let ended = run(&folder.text("out"));
        if is_undisturbed(&ended, &folder.text("out")) {
            return (folder, ended);
        }
        last = Some(ended);
    }
    panic!("no undisturbed run: {last:?}");
}

#[test]
fn a_share_of_the_requests_is_dynamic() {
    let mut names = vec!["flash"];
    for (program, name) in [
        ("nginx", "nginx"),
        ("apache2", "apache-event"),
        ("lighttpd", "lighttpd"),
        ("h2o", "h2o"),
        ("caddy", "caddy"),
    ] {
        if is_installed(program) {
            names.push(name);
        } else {
            skip(&format!("in part: {program} is not installed"));
        }
    }
    program();
    let load =
        ["--relative-to", "400", "--levels", "1", "--duration", "2s", "--warm-up", "0s", "--rounds", "1"];
    // A server may refuse requests that have waited for too long.
    let (folder, ended) = run_undisturbed(
        |out| {
            let common = ["compare", "--dynamic", "30%", "--files", small_set(), "--verify", "--out", out];
            flash(common.iter().chain(&load).chain(&names).copied())
        },
        |ended, out| ended.code == Some(0) && !run_json(out).to_string().contains("\"status 503\""),
    );
    let out = folder.text("out");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("; dynamic "), "{ended:?}");
    let run = run_json(&out);
    let workload = run["workload"].as_str().unwrap();
    assert!(workload.ends_with("; 30 % of the requests dynamic, below /dynamic/"), "{workload}");
    assert!(run["settings"]["application"].is_string(), "{run}");
    for subject in run["subjects"].as_array().unwrap() {
        let level = &subject["levels"][0];
        let counts = |kind: usize, what: &str| level["kinds"][kind][what].as_u64().unwrap();
        let (all, dynamic) = (counts(0, "asked") + counts(1, "asked"), counts(1, "asked"));
        assert_eq!(level["counts"]["asked"].as_u64(), Some(all), "{level}");
        // Some 800 requests: five deviations are 8 %.
        assert!((0.2..0.4).contains(&(dynamic as f64 / all as f64)), "{dynamic} of {all}");
        assert_eq!((counts(0, "answered"), counts(1, "answered")), (all - dynamic, dynamic), "{subject}");
    }
    let page = std::fs::read_to_string(folder.path("out/report.html")).unwrap();
    assert!(page.contains("Static and dynamic requests") && !page.contains("NaN"));
    let paths = std::fs::read_to_string(folder.path("out/records/paths.txt")).unwrap();
    assert!(paths.contains(" /dynamic/dir0000") && paths.contains(" /dir0000"), "{paths}");
}

#[test]
fn hot_requests_beside_a_slow_application() {
    program();
    let slow = ["--slow-application", "/slow/sleep?ms=2000", "--waiting", "40"];
    let small = ["--hot-dirs", "1", "--hot-rate", "200", "--seconds", "1", "--rounds", "1"];
    // A slow request that begins late is answered after the phase, and none follows it.
    let (folder, ended) = run_undisturbed(
        |out| {
            let common = ["interfere", "flash", "--files", small_set(), "--out", out];
            flash(common.iter().chain(&slow).chain(&small).copied())
        },
        |_, out| run_json(out)["subjects"][0]["levels"][2]["counts"]["asked"] == 40,
    );
    assert_eq!(ended.code, Some(4), "{ended:?}");
    let out = folder.text("out");
    let levels = &run_json(&out)["subjects"][0]["levels"];
    let names: Vec<&str> =
        levels.as_array().unwrap().iter().map(|level| level["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["hot alone", "hot with slow", "slow"]);
    assert_eq!(levels[2]["counts"]["asked"], 40, "each waits through the whole phase");
    assert_eq!(levels[2]["counts"]["answered"], 40);
    assert!(levels[2]["latency"]["p50_ms"].as_f64().unwrap() >= 2000.0);
}

#[test]
fn bad_usage_and_servers_without_an_application_are_errors() {
    let folder = Folder::new();
    let out = folder.text("out");
    let served = Served::folder(small_set());
    let nobody = "http://127.0.0.1:9/";
    let peers = folder.write(
        "peers.toml",
        format!(
            "[[server]]\nname = \"plain\"\n\
             command = [\"{FLASH}\", \"serve\", \"{{root}}\", \"--listen\", \"{{address}}:{{port}}\"]\n"
        ),
    );
    let set = ["--workload", "specweb99", "--files", small_set()];
    let slow =
        ["--slow-application", "/dynamic/sleep?ms=1", "--hot-dirs", "1", "--rounds", "1", "--seconds", "1"];
    let cases: [(&[&str], &[&str], i32, &str); 8] = [
        (&["load", nobody, "--dynamic", "30"], &set, 2, "as in 30%"),
        (&["load", nobody, "--dynamic", "0%"], &set, 2, "as in 30%"),
        (
            &["load", nobody, "--dynamic", "5%", "--dynamic-prefix", "/x"],
            &set,
            2,
            "begin and end with a slash",
        ),
        (&["load", nobody, "--dynamic", "5%", "--link", "1Mbit"], &set, 2, "no --dynamic"),
        (
            &["load", &served.url, "--dynamic", "30%"],
            &set,
            1,
            "does it pass the requests below --dynamic-prefix",
        ),
        (&["interfere", nobody, "--slow-application", "x"], &[], 2, "begins with a slash"),
        (&["interfere", &served.url], &slow, 1, "answered no slow request"),
        (
            &["interfere", "plain", "--servers", &peers, "--files", small_set()],
            &slow,
            1,
            "passes no requests to an application",
        ),
    ];
    for (number, (words, more, code, part)) in cases.into_iter().enumerate() {
        let out = format!("{out}-{number}");
        let ended = flash(words.iter().chain(more).copied().chain(["--out", &out]));
        assert_eq!(ended.code, Some(code), "{words:?}: {ended:?}");
        // Long lines are broken.
        let stderr = ended.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(stderr.contains(part), "{words:?}: {ended:?}");
    }
}
