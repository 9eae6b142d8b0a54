//! The four architectures: the same behaviour, whichever process waits for the disk, and the documented cost of a crash. The rest of the
//! suite also runs once for each of them.

use std::time::Duration;

use crate::harness::{Client, Folder, Launch, Page, Server, evict, kill, pattern, wait_for, wait_until};

const ALL: [&str; 4] = ["amped", "sped", "mp", "mt"];

/// One worker, or with `mp` its default number of processes.
fn launch(folder: &Folder, architecture: &str) -> Launch {
    let launch = Launch::bare().architecture(architecture).arg(folder.path("www"));
    let launch = launch.args(["--listen", "127.0.0.1:0"]);
    if architecture == "mp" { launch } else { launch.args(["--workers", "1"]) }
}

/// Removes the values that differ between servers or from second to second.
fn essence(page: &Page) -> (u16, Vec<(String, String)>, Vec<u8>) {
    (page.status, page.fields_but_date(), page.body.clone())
}

#[test]
fn all_architectures_answer_with_the_same_bytes() {
    let folder = Folder::with_hello();
    folder.www("sub/index.html", "<p>sub");
    folder.www("list/a.txt", "a");
    folder.www("page.html", "<p>plain");
    folder.www("page.html.gz", "not really gzip");
    for (name, length) in [("small", 10_000), ("edge", 131_072), ("large", 700_001)] {
        evict(&folder.www(&format!("{name}.bin"), pattern(length, length as u64)));
    }
    let requests: [(&str, &str, &[&str]); 16] = [
        ("GET", "/hello.txt", &[]),
        ("GET", "/hello.txt", &[]),
        ("HEAD", "/hello.txt", &[]),
        ("GET", "/small.bin", &[]),
        ("GET", "/edge.bin", &[]),
        ("GET", "/large.bin", &[]),
        ("GET", "/large.bin", &["Range: bytes=500000-600000"]),
        ("GET", "/large.bin", &["Range: bytes=-7"]),
        ("GET", "/sub", &[]),
        ("GET", "/sub/", &[]),
        ("GET", "/list/", &[]),
        ("GET", "/list/", &["Accept: application/json"]),
        ("GET", "/page.html", &["Accept-Encoding: gzip"]),
        ("GET", "/gone", &[]),
        ("POST", "/hello.txt", &[]),
        ("GET", "/../etc/passwd", &[]),
    ];
    let answers = ALL.map(|architecture| {
        let server = launch(&folder, architecture).arg("--browse").start();
        // Twice, because the second answer comes from memory.
        let twice = [(); 2].map(|()| {
            requests.map(|(method, target, fields)| essence(&server.client().request(method, target, fields)))
        });
        assert_eq!(server.stderr(), "", "{architecture}");
        twice
    });
    for (architecture, theirs) in ALL.iter().zip(&answers) {
        for (round, (ours, theirs)) in answers[0].iter().zip(theirs).enumerate() {
            for ((request, ours), theirs) in requests.iter().zip(ours).zip(theirs) {
                assert!(ours == theirs, "{architecture}, round {round}, {request:?}: {ours:?} {theirs:?}");
            }
        }
    }
}

#[test]
fn each_reports_its_work() {
    let folder = Folder::with_hello();
    let path = folder.path("control.sock");
    for architecture in ALL {
        let server = launch(&folder, architecture).arg("--control").arg(&path).start();
        for _ in 0..20 {
            assert_eq!(server.get("/hello.txt").status, 200);
        }
        assert_eq!(server.get("/unheard-of").status, 404);
        let stats = crate::harness::stats_at(&path);
        let sum = &stats["sum"];
        assert_eq!((&sum["requests"], &sum["responses"]["2xx"]), (&21.into(), &20.into()), "{architecture}");
        assert_eq!(sum["connections"]["accepted"], 21, "{architecture}");
        let [dispatches, events] = ["count", "sum"].map(|field| sum["dispatches"][field].as_u64());
        assert!(dispatches > Some(0) && events >= Some(21), "{architecture}: {}", sum["dispatches"]);
        assert_eq!(stats["settings"]["architecture"], architecture);
    }
}

#[test]
fn only_amped_has_helpers_and_the_start_line_names_the_architecture() {
    let folder = Folder::with_hello();
    for (architecture, said) in [
        ("amped", "; 1 worker"),
        ("sped", "; 1 worker, SPED"),
        ("mp", "; 32 processes, MP"),
        ("mt", "; 1 worker of 64 threads, MT"),
    ] {
        let server = launch(&folder, architecture).start();
        assert!(server.stdout().contains(said), "{architecture}: {}", server.stdout());
        // A name that is not in the kernel's cache needs a wait.
        assert_eq!(server.get("/unheard-of").status, 404);
        let helpers = server.role("helper").len();
        assert_eq!(helpers > 0, architecture == "amped", "{architecture}: {helpers} helpers");
        let processes = if architecture == "mp" { 32 } else { 1 };
        assert_eq!(server.role("worker").len(), processes, "{architecture}");
    }
}

#[test]
fn settings_without_effect_are_refused_with_the_reason() {
    let folder = Folder::with_hello();
    for (architecture, words, why) in [
        ("amped", ["--processes", "4"], "only `mp` has a process for each connection"),
        ("sped", ["--threads", "4"], "only `mt` has threads"),
        ("mp", ["--workers", "4"], "`processes` sets its number of worker processes"),
        ("mt", ["--helpers-max", "4"], "only `amped` has helpers"),
        ("sped", ["--helper-idle", "4s"], "only `amped` has helpers"),
        ("mp", ["--event-mechanism", "poll"], "only `amped` and `sped` have an event loop"),
    ] {
        let launch = Launch::bare().architecture(architecture).arg(folder.path("www"));
        let (code, out, err) = launch.args(words).fail();
        assert_eq!((code, out.as_str()), (Some(1), ""), "{architecture} {words:?}");
        let named = format!("`{}` cannot be used here: the architecture is `{architecture}`", words[0]);
        assert!(err.contains(&named) && err.contains(why), "{err}");
    }
    let (code, _, err) = Launch::bare().architecture("spdy").arg(folder.path("www")).fail();
    assert_eq!(code, Some(2));
    assert!(err.contains("must be amped, sped, mp or mt"), "{err}");
}

/// Clients of a server, one more than it has places, none of which has sent a request.
fn one_too_many(server: &Server, places: usize) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..places).map(|_| server.client()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/hello.txt").status, 200);
    }
    clients.push(server.client());
    clients
}

#[test]
fn a_client_waits_for_a_free_process_or_thread() {
    let folder = Folder::with_hello();
    for (architecture, places) in [("mp", "--processes"), ("mt", "--threads")] {
        let server = launch(&folder, architecture).args([places, "3"]).start();
        let mut clients = one_too_many(&server, 3);
        let mut last = clients.pop().unwrap();
        last.ask("/hello.txt");
        last.assert_quiet(Duration::from_millis(300));
        // The others continue, and one leaves.
        for client in &mut clients {
            assert_eq!(client.get("/hello.txt").status, 200, "{architecture}");
        }
        drop(clients.pop());
        assert_eq!(last.page().brief(), (200, "hello\n".into()), "{architecture}");
        assert_eq!(server.stderr(), "", "{architecture}: nobody was refused");
    }
}

#[test]
fn an_idle_connection_gives_its_place_back_in_time() {
    let folder = Folder::with_hello();
    for (architecture, places) in [("mp", "--processes"), ("mt", "--threads")] {
        let server = launch(&folder, architecture).args([places, "2", "--idle-timeout", "700ms"]).start();
        let mut clients = one_too_many(&server, 2);
        let mut last = clients.pop().unwrap();
        assert_eq!(last.get("/hello.txt").status, 200, "{architecture}");
        for client in &mut clients {
            client.assert_closed();
        }
    }
}

#[test]
fn a_killed_mp_process_costs_only_its_request() {
    let folder = Folder::with_hello();
    folder.www("film.bin", crate::harness::film());
    let server = launch(&folder, "mp").args(["--processes", "4"]).start();
    let before = server.role("worker");
    // Each download has a process, which its client blocks.
    let mut downloads: Vec<Client> = (0..3).map(|_| server.client()).collect();
    for client in &mut downloads {
        assert_eq!(client.begin("/film.bin"), crate::harness::film().len());
    }
    // Long enough that the fourth connection is the only one in the accept queue.
    std::thread::sleep(Duration::from_millis(1100));
    let mut kept = server.client();
    assert_eq!(kept.get("/hello.txt").status, 200);
    let killed = before[0];
    kill("KILL", killed);
    wait_until("another process in its place", || {
        let now = server.role("worker");
        now.len() == 4 && !now.contains(&killed)
    });
    // All downloads except one continue to their end.
    let whole = downloads.iter_mut().filter_map(|client| {
        (client.rest(crate::harness::film().len()) == crate::harness::film()).then_some(())
    });
    let whole = whole.count() + usize::from(kept.try_get("/hello.txt").is_ok());
    assert_eq!(whole, 3);
    for _ in 0..8 {
        assert_eq!(server.get("/hello.txt").brief(), (200, "hello\n".into()));
    }
    server.wait_for_stderr("starting another");
}

#[test]
fn a_slow_reader_of_mt_delays_no_other_client() {
    let folder = Folder::with_hello();
    folder.www("film.bin", crate::harness::film());
    let server = launch(&folder, "mt").args(["--threads", "4"]).start();
    let mut slow: Vec<Client> = (0..3).map(|_| server.client()).collect();
    for client in &mut slow {
        client.begin("/film.bin");
    }
    for n in 0..30 {
        assert_eq!(server.get("/hello.txt").status, 200);
        assert_eq!(server.get(&format!("/unheard-of-{n}")).status, 404);
    }
    for client in &mut slow {
        assert!(client.rest(crate::harness::film().len()) == crate::harness::film());
    }
    assert_eq!(server.stderr(), "");
}

#[test]
fn many_clients_share_the_threads_of_mt() {
    let folder = Folder::new();
    for n in 0..40_usize {
        evict(&folder.www(&format!("{n}.bin"), pattern(n * 9_770, n as u64)));
    }
    let server = launch(&folder, "mt").args(["--threads", "6"]).start();
    std::thread::scope(|scope| {
        for thread in 0..12 {
            let server = &server;
            scope.spawn(move || {
                for turn in 0..3 {
                    // Twelve clients share six threads: they wait for each other, so each leaves soon.
                    let mut client = server.client();
                    for n in 0..15_usize {
                        let n = (n * 7 + thread * 3 + turn) % 40;
                        let page = client.get(&format!("/{n}.bin"));
                        assert!(page.status == 200 && page.body == pattern(n * 9_770, n as u64), "{n}");
                    }
                }
            });
        }
    });
    assert_eq!(server.stderr(), "");
}

#[test]
fn a_reload_may_change_the_architecture() {
    let folder = Folder::with_hello();
    let config = |architecture: &str| {
        format!("root = \"www\"\nlisten = [\"127.0.0.1:0\"]\narchitecture = \"{architecture}\"\n")
    };
    let path = folder.write("flash.toml", config("mt"));
    let server = Launch::without_architecture().arg("--config").arg(&path).start();
    let address = server.addresses[0];
    for architecture in ["mp", "sped", "amped", "mp", "mt"] {
        let lines = server.announcements().len();
        crate::harness::write_aside(&path, config(architecture));
        server.signal("HUP");
        // No connection is lost, and none waits forever.
        wait_for("the new start line", || {
            assert_eq!(Client::to(address).get("/hello.txt").brief(), (200, "hello\n".into()));
            (server.announcements().len() > lines).then_some(())
        });
        for _ in 0..20 {
            assert_eq!(Client::to(address).get("/hello.txt").status, 200, "{architecture}");
        }
    }
    assert_eq!(server.stderr(), "");
}
