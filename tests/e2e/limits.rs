//! Bounds of heads, time, connections, descriptors and memory. A request above a bound is refused with an answer where possible,
//! and never affects another client.

use std::collections::VecDeque;
use std::io::Write;
use std::time::{Duration, Instant};

use crate::harness::{
    Answer, Broken, Client, Folder, Launch, Page, Server, pattern, skips, wait_for, wait_until,
};

/// The answer to these bytes, after which the server closes.
#[track_caller]
fn refused(server: &Server, bytes: &[u8]) -> u16 {
    let mut client = server.client();
    client.send(bytes);
    let page = client.page();
    assert!(page.says_close(), "{page:?}");
    client.assert_closed();
    page.status
}

#[test]
fn a_target_has_8_kib() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    let mut client = server.client();
    let target = |bytes: usize| format!("/hello.txt?{}", "x".repeat(bytes - 11));
    assert_eq!(client.get(&target(8192)).brief(), (200, "hello\n".into()));
    client.assert_kept();
    for bytes in [8193, 20_000, 30_000, 60_000] {
        let request = Client::request_bytes("GET", &target(bytes), &[]);
        assert_eq!(refused(&server, &request), 414, "{bytes}");
        // Also before the head has ended.
        assert_eq!(refused(&server, &request[..bytes + 4]), 414, "{bytes}, in part");
    }
}

#[test]
fn a_head_has_32_kib() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    let mut client = server.client();
    let request = |bytes: usize| {
        let empty = Client::request_bytes("GET", "/hello.txt", &["A: "]).len();
        Client::request_bytes("GET", "/hello.txt", &[&format!("A: {}", "x".repeat(bytes - empty))])
    };
    client.send(request(32 * 1024));
    assert_eq!(client.page().brief(), (200, "hello\n".into()));
    client.assert_kept();
    for bytes in [32 * 1024 + 1, 40_000, 200_000] {
        assert_eq!(refused(&server, &request(bytes)), 431, "{bytes}");
    }
    // An endless head is refused once it is too large.
    assert_eq!(refused(&server, &request(100_000)[..40_000]), 431);
    // The same for a large head behind another.
    let mut client = server.client();
    client.send([request(30_000), request(32_000), request(33_000)].concat());
    assert_eq!(client.page().status, 200);
    assert_eq!(client.page().status, 200);
    assert_eq!(client.page().status, 431);
    client.assert_closed();
}

#[test]
fn a_head_has_100_fields() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    let request = |fields: usize| {
        // `Host` counts as one of them.
        let fields: Vec<String> = (1..fields).map(|n| format!("F{n}: x")).collect();
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        Client::request_bytes("GET", "/hello.txt", &fields)
    };
    let mut client = server.client();
    client.send(request(100));
    assert_eq!(client.page().brief(), (200, "hello\n".into()));
    client.assert_kept();
    for fields in [101, 102, 1000] {
        assert_eq!(refused(&server, &request(fields)), 431, "{fields}");
    }
}

#[test]
fn a_head_must_arrive_in_time_however_slowly_it_drips() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).args(["--head-timeout", "3s"]).start();
    let request = Client::request_bytes("GET", "/hello.txt", &[]);
    // On a busy machine this may take as long as the timeout.
    let mut after_another = server.client();
    assert_eq!(after_another.get("/hello.txt").status, 200);
    let started = Instant::now();
    let mut stuck = server.client();
    stuck.send(&request[..30]);
    let mut dripping = server.client();
    after_another.send(&request[..1]);
    let mut in_a_body = server.client();
    in_a_body.send(Client::request_bytes("GET", "/hello.txt", &["Content-Length: 10"]));
    in_a_body.send("123");
    for byte in request.iter().cycle().take(60) {
        // After the refusal, sending may fail.
        let _ = dripping.try_send([*byte]);
        std::thread::sleep(Duration::from_millis(85));
        if started.elapsed() > Duration::from_millis(4700) {
            break;
        }
    }
    for (name, client) in [
        ("stuck", &mut stuck),
        ("dripping", &mut dripping),
        ("after another", &mut after_another),
        ("in a body", &mut in_a_body),
    ] {
        let page = client.receive(Answer::Whole).unwrap_or_else(|broken| panic!("{name}: {broken:?}"));
        assert_eq!(page.status, 408, "{name}");
        assert!(page.says_close(), "{name}");
        client.assert_gone();
    }
    assert!(started.elapsed() >= Duration::from_millis(2900), "not before its time");
    assert_eq!(server.get("/hello.txt").status, 200);
    assert_eq!(server.stderr(), "");
}

#[test]
fn a_silent_connection_is_closed_at_the_head_timeout() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).args(["--head-timeout", "500ms", "--idle-timeout", "60s"]).start();
    let mut client = server.client();
    let started = Instant::now();
    // Without an answer, because there was no request.
    client.assert_closed();
    assert!(started.elapsed() >= Duration::from_millis(400), "not before its time");
}

#[test]
fn head_and_idle_timeouts_do_not_overlap() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).args(["--head-timeout", "500ms", "--idle-timeout", "60s"]).start();
    let mut client = server.client();
    assert_eq!(client.get("/hello.txt").status, 200);
    std::thread::sleep(Duration::from_millis(800));
    assert_eq!(client.get("/hello.txt").status, 200);
    drop(server);
    let server = Launch::new(&folder).args(["--head-timeout", "60s", "--idle-timeout", "300ms"]).start();
    let mut client = server.client();
    let request = Client::request_bytes("GET", "/hello.txt", &[]);
    client.send(&request[..10]);
    std::thread::sleep(Duration::from_millis(800));
    client.send(&request[10..]);
    assert_eq!(client.page().status, 200);
}

#[test]
fn an_idle_connection_is_closed_silently() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).args(["--idle-timeout", "900ms"]).start();
    let (mut client, asked) =
        wait_for("a client that asks in time", || client_that_is_never_idle_for(IDLE, &server));
    client.assert_closed();
    assert!(asked.elapsed() >= Duration::from_millis(800), "not before its time");
}

/// The timeout of the server above.
const IDLE: Duration = Duration::from_millis(900);

/// A client whose requests, each of which starts the time anew, span more than this time, and when it sent the last.
/// None if the machine was too busy for it to send one in time.
fn client_that_is_never_idle_for(timeout: Duration, server: &Server) -> Option<(Client, Instant)> {
    let mut client = server.client();
    let mut asked = Instant::now();
    for _ in 0..9 {
        let asks = Instant::now();
        let page = client.try_get("/hello.txt");
        // From before the one request was sent until after the other was answered: no shorter than the connection was idle.
        if page.is_err() && asked.elapsed() >= timeout {
            return None;
        }
        assert_eq!(page.expect("an answer, in time").status, 200);
        asked = asks;
        std::thread::sleep(Duration::from_millis(150));
    }
    Some((client, asked))
}

/// Larger than all socket buffers.
const FILM_BYTES: usize = 48 << 20;

#[test]
fn a_client_that_reads_too_slowly_is_cut() {
    let folder = Folder::with_hello();
    let film = folder.served("film.bin");
    std::fs::File::create(&film).unwrap().set_len(FILM_BYTES as u64).unwrap();
    // The log shows the worker's view: its own buffers are empty long before those of the kernel, from which a client
    // that was cut can still read.
    let log = folder.path("access.log");
    let rate = ["--least-rate", "128KiB", "--log-format", "json", "--log-file"];
    let server = Launch::new(&folder).args(rate).arg(&log).start();
    let ending = |name: &str| {
        let text = std::fs::read_to_string(&log).unwrap();
        let line = text.lines().find(|line| line.contains(&format!("?{name} ")))?;
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        value["whole"].as_bool()
    };
    // The rate is taken over some seconds, so this one test is slow. "Enough" is a hundred times the least rate: a
    // machine that is busy holds up its reads by far less.
    let started = Instant::now();
    let clients = [("nothing", 0), ("little", 4_000), ("enough", 1_500_000)];
    std::thread::scope(|scope| {
        for (name, bytes) in clients {
            let (server, ending) = (&server, &ending);
            scope.spawn(move || {
                let mut client = server.client();
                client.begin(&format!("/film.bin?{name}"));
                while ending(name).is_none() {
                    assert!(started.elapsed() < Duration::from_secs(300), "{name}: neither served nor cut");
                    client.sip(bytes);
                    std::thread::sleep(Duration::from_millis(100));
                }
                if name != "enough" {
                    // The kernel frees its buffers for the client, and the client sees the reset.
                    client.assert_reset_after_rest();
                }
            });
        }
    });
    let endings = clients.map(|(name, _)| ending(name));
    assert_eq!(endings, [Some(false), Some(false), Some(true)], "{clients:?}");
    let text = std::fs::read_to_string(&log).unwrap();
    assert_eq!(text.lines().count(), clients.len(), "a line for each: {text}");
    assert!(started.elapsed() >= Duration::from_secs(2), "at once is too soon");
    assert_eq!(server.get("/hello.txt").status, 200);
}

#[test]
fn a_connection_above_the_limit_gets_503() {
    if skips(&["mp"], "who finds no process free waits for one") {
        return;
    }
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).args(["--connections", "8", "--head-timeout", "60s"]).start();
    let mut kept: Vec<Client> = (0..8).map(|_| server.client()).collect();
    for client in &mut kept {
        assert_eq!(client.get("/hello.txt").status, 200);
        // An idle connection would make room for the next.
        client.begin_to_ask("/hello.txt");
    }
    for _ in 0..20 {
        let mut client = server.client();
        let page = client.page();
        assert_turned_away(&page);
        client.assert_gone();
        // A client that has already sent a request also gets it.
        let page = server.client().try_get("/hello.txt").unwrap();
        assert_turned_away(&page);
    }
    for client in &mut kept {
        assert_eq!(client.finish().brief(), (200, "hello\n".into()));
        client.begin_to_ask("/hello.txt");
    }
    kept.pop();
    wait_until("a place for a new client", || {
        server.client().try_get("/hello.txt").is_ok_and(|page| page.status == 200)
    });
    server.wait_for_stderr("refused");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(server.stderr().lines().count(), 1, "once a minute: {}", server.stderr());
}

#[test]
fn an_idle_connection_makes_room_for_a_new_one() {
    if skips(&["mp"], "who finds no process free waits for one") {
        return;
    }
    const CONNECTIONS: usize = 16;
    let folder = Folder::with_hello();
    let timeouts = ["--head-timeout", "60s", "--idle-timeout", "60s"];
    let server = Launch::new(&folder).args(["--connections", "16"]).args(timeouts).start();
    let mut busy = server.client();
    busy.begin_to_ask("/hello.txt");
    let mut idle: VecDeque<Client> = (1..CONNECTIONS).map(|_| server.client()).collect();
    for client in &mut idle {
        assert_eq!(client.get("/hello.txt").status, 200);
        // The order of idle connections is known to about 64 ms.
        std::thread::sleep(Duration::from_millis(80));
    }
    for _ in 0..2 * CONNECTIONS {
        let mut newcomer = server.client();
        assert_eq!(newcomer.get("/hello.txt").brief(), (200, "hello\n".into()));
        idle.push_back(newcomer);
        idle.pop_front().unwrap().assert_closed();
        std::thread::sleep(Duration::from_millis(80));
    }
    assert_eq!(busy.finish().brief(), (200, "hello\n".into()));
    assert_eq!(server.stderr(), "");
}

#[track_caller]
fn assert_turned_away(page: &Page) {
    assert_eq!(page.status, 503, "{page:?}");
    assert!(page.says_close(), "{page:?}");
    let seconds: u32 = page.must("Retry-After").parse().unwrap();
    assert!((1..=60).contains(&seconds), "{page:?}");
}

/// A server with this descriptor limit.
fn with_descriptors(folder: &Folder, descriptors: u32) -> Launch {
    let script = format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"");
    Launch::new(folder).through(["sh", "-c", &script])
}

#[test]
fn without_free_descriptors_open_connections_are_served() {
    if skips(&["mp", "mt"], "who finds no process or thread free waits for one") {
        return;
    }
    let folder = Folder::with_hello();
    for n in 0..60 {
        folder.www(&format!("large-{n}.bin"), pattern(200_000, n));
    }
    for descriptors in [200, 128] {
        let server = with_descriptors(&folder, descriptors).args(["--head-timeout", "60s"]).start();
        let mut kept: Vec<Client> = Vec::new();
        let mut refused = 0;
        for _ in 0..300 {
            let mut client = server.client();
            match client.try_get("/hello.txt") {
                Ok(page) if page.status == 200 => {
                    // An idle connection would make room for the next.
                    client.begin_to_ask("/hello.txt");
                    kept.push(client);
                }
                Ok(page) => {
                    assert_turned_away(&page);
                    refused += 1;
                }
                Err(Broken::Unanswered { .. }) => refused += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
        assert!(!kept.is_empty() && refused > 0, "{descriptors}: {} kept, {refused} refused", kept.len());
        // When connections have used their descriptors, some remain for files and helpers.
        for (n, client) in kept.iter_mut().enumerate() {
            assert_eq!(client.finish().brief(), (200, "hello\n".into()));
            let number = n as u64 % 60;
            let page = client.get(&format!("/large-{number}.bin"));
            assert!(page.status == 200 && page.body == pattern(200_000, number), "{}", page.status);
            assert_eq!(client.get(&format!("/unheard-of-{descriptors}-{n}")).status, 404);
        }
        server.wait_for_stderr("limit");
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(server.stderr().lines().count(), 1, "once a minute: {}", server.stderr());
        drop(kept);
        wait_until("new clients to be served", || {
            server.client().try_get("/hello.txt").is_ok_and(|page| page.status == 200)
        });
        assert_eq!(server.role("worker").len(), 1);
    }
}

#[test]
fn with_too_few_descriptors_nothing_hangs() {
    if skips(&["mp", "mt"], "who finds no process or thread free waits for one") {
        return;
    }
    let folder = Folder::with_hello();
    for descriptors in [96, 64, 32, 29] {
        let launch = with_descriptors(&folder, descriptors);
        let server = launch.start();
        let mut answers = 0;
        for n in 0..20 {
            match server.client().try_get(if n % 2 == 0 { "/hello.txt" } else { "/unheard-of" }) {
                Ok(page) => {
                    assert!([200, 404, 503].contains(&page.status), "{descriptors}: {page:?}");
                    answers += 1;
                }
                Err(Broken::Unanswered { .. }) => {}
                Err(other) => panic!("{descriptors}: {other:?}"),
            }
        }
        assert!(answers > 0, "{descriptors}");
    }
}

#[test]
fn slow_clients_hold_no_buffers() {
    if skips(&["mp"], "each has a process") {
        return;
    }
    const CLIENTS: u64 = 60;
    let folder = Folder::with_hello();
    let film = folder.served("film.bin");
    std::fs::File::create(&film).unwrap().set_len(FILM_BYTES as u64).unwrap();
    let server = Launch::new(&folder).start();
    for _ in 0..2 {
        assert_eq!(server.get("/film.bin").body.len(), FILM_BYTES);
    }
    let before = server.worker_memory_kib();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
    for client in &mut clients {
        client.begin("/film.bin");
    }
    assert_eq!(server.get("/hello.txt").status, 200);
    let each = server.worker_memory_kib().saturating_sub(before) / CLIENTS;
    assert!(each < 64, "{each} KiB for each client that reads nothing");
}

#[test]
fn pipelining_is_bounded() {
    if skips(&["mp"], "each has a process") {
        return;
    }
    const REQUESTS: usize = 12_000;
    let folder = Folder::with_hello();
    folder.www("page.txt", "x".repeat(3000));
    let server = Launch::new(&folder).start();
    assert_eq!(server.get("/page.txt").status, 200);
    let before = server.worker_memory_kib();
    let mut client = server.client();
    let mut sender = client.sender();
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || {
            let some = Client::request_bytes("GET", "/page.txt", &[]).repeat(100);
            for _ in 0..REQUESTS / 100 {
                sender.write_all(&some).unwrap();
            }
        });
        // The client does not read: the server stops reading its requests, and serves others.
        std::thread::sleep(Duration::from_millis(700));
        let mut other = server.client();
        for _ in 0..20 {
            assert_eq!(other.get("/hello.txt").brief(), (200, "hello\n".into()));
        }
        let grown = server.worker_memory_kib().saturating_sub(before);
        assert!(grown < 8 * 1024, "{grown} KiB more");
        for n in 0..REQUESTS {
            let page = client.receive(Answer::Whole).unwrap_or_else(|broken| panic!("{n}: {broken:?}"));
            assert!(page.status == 200 && page.body.len() == 3000);
        }
        sending.join().unwrap();
    });
    client.assert_kept();
}

#[test]
fn idle_connections_cost_little() {
    if skips(&["mp", "mt"], "each has a process or a thread") {
        return;
    }
    const CLIENTS: u64 = 400;
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    assert_eq!(server.get("/hello.txt").status, 200);
    let before = server.worker_memory_kib();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/hello.txt").status, 200);
    }
    // The limit is 40 MiB for 10,000 connections.
    let each = server.worker_memory_kib().saturating_sub(before) * 1024 / CLIENTS;
    assert!(each <= 4096 + 1024, "{each} bytes for each idle connection");
}

#[test]
fn random_bytes_do_not_crash_a_worker() {
    let folder = Folder::with_hello();
    folder.www("page.html", "page");
    let server = Launch::new(&folder).start();
    let workers = server.role("worker");
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move |bound: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as usize % bound
    };
    let seeds = [
        "GET /hello.txt HTTP/1.1\r\nHost: h\r\nRange: bytes=0-1,3-4\r\nIf-Range: \"x\"\r\nAccept-Encoding: gzip;q=0.1\r\n\r\n",
        "GET /page.html?x HTTP/1.1\r\nHost: h:80\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\n12345\r\n0\r\nT: x\r\n\r\n",
        "HEAD http://h/%41/../hello.txt HTTP/1.0\r\nConnection: keep-alive\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 10\r\nExpect: 100-continue\r\nIf-None-Match: W/\"a\", \"b\"\r\n\r\n0123456789",
    ];
    for _ in 0..400 {
        let mut bytes: Vec<u8> = (0..=next(3)).flat_map(|_| seeds[next(4)].bytes()).collect();
        for _ in 0..=next(4) {
            let at = next(bytes.len());
            match next(4) {
                0 => bytes[at] = next(256) as u8,
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, b"\r\n \t:/%\"-,;=0\0\xff"[next(15)]),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let mut client = server.client();
        if client.try_send(&bytes).is_ok() {
            client.end_sending();
            // Each answer is well-formed, and the connection ends.
            loop {
                match client.receive_head() {
                    Ok((page, length)) => drop(client.rest(body_length(&page, length, &bytes))),
                    Err(Broken::Unanswered { .. } | Broken::Cut { .. }) => break,
                    Err(other) => panic!("{other:?} to {}", bytes.escape_ascii()),
                }
            }
        }
    }
    assert_eq!(server.role("worker"), workers);
    assert_eq!(server.stderr(), "");
    assert_eq!(server.get("/hello.txt").brief(), (200, "hello\n".into()));
}

/// The length of the body of an answer to random bytes: none if one of them may be a HEAD, which ends the reading.
fn body_length(page: &Page, announced: Option<usize>, request: &[u8]) -> usize {
    let may_be_head = request.windows(4).any(|four| four == b"HEAD");
    match page.status {
        100..=199 | 204 | 304 => 0,
        // Reads as much as arrives.
        _ if may_be_head => usize::MAX,
        _ => announced.unwrap_or(0),
    }
}

#[test]
fn the_worker_sleeps_when_nothing_happens() {
    if skips(&["mp"], "it looks at one worker") {
        return;
    }
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).helpers(["--helper-idle", "200ms"]).start();
    let mut client = server.client();
    assert_eq!(client.get("/hello.txt").status, 200);
    assert_eq!(client.get("/unheard-of").status, 404);
    let worker = server.sole("worker");
    // Some minutes of its life in one of our seconds: its voluntary switches are its wake-ups.
    let wakeups = || {
        let text = std::fs::read_to_string(format!("/proc/{worker}/status")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        line.trim().parse::<u64>().unwrap()
    };
    wait_for("a second with few wake-ups", || {
        let before = wakeups();
        std::thread::sleep(Duration::from_secs(1));
        (wakeups() - before <= 3).then_some(())
    });
    client.assert_kept();
}

/// A worker may lock all its memory, so no client may make it take memory that others need.
#[test]
fn a_worker_is_limited_to_its_share_of_memory() {
    if skips(&["mp"], "its processes have one connection at a time") {
        return;
    }
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).args(["--connections", "1000000", "--cache-memory", "8MiB"]).start();
    let number = |text: &str, name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let machine = number(&std::fs::read_to_string("/proc/meminfo").unwrap(), "MemTotal:") * 1024;
    let workers = server.role("worker");
    let limits = workers.iter().map(|pid| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        number(&text, "Max data size")
    });
    // Each limit without its connections, and with the minimum for connections.
    let apart = (640 + 128) << 20;
    let grows: u64 = limits.map(|limit| limit.saturating_sub(apart)).sum();
    assert!(grows <= machine / 2, "{grows} bytes of {machine} for connections");
    assert_eq!(server.get("/hello.txt").status, 200);
}
