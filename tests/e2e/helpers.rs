//! Helpers wait for the disk in the worker's place. A helper that dies or hangs fails only its own requests.

use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use flash_prompt::{AsFd, OwnedFd, channel};

use crate::harness::{
    Answer, Broken, Client, Folder, Launch, Page, Server, evict, kill, pattern, raise_own_descriptor_limit,
    skip, stats_at, wait_for, wait_until,
};
use crate::hung_disks::in_time;
use crate::paths::can_run_flash;

/// A new target, so that only a helper can find that it is missing.
fn unheard_of() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("/unheard-of-{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Neither the helper nor a request in the queue is given up while the test holds the helper, however busy the machine is.
const UNHURRIED: [&str; 4] = ["--helper-idle", "60s", "--queue-wait", "1h"];

/// A server with at most one helper, which is running. It has no store, which would give the helper jobs that no
/// request waits for. None if hits need a helper, which is said as the reason of a skip.
fn with_one_helper<const N: usize>(folder: &Folder, more: [&str; N]) -> Option<(Server, u32)> {
    let launch = Launch::new(folder).args(["--helpers-max", "1", "--cache-memory", "0"]);
    let server = launch.args(more).arg("--control").arg(folder.path("control.sock")).start();
    if server.lacks_cachestat() {
        skip("this kernel has no cachestat");
        return None;
    }
    assert_eq!(in_time(|| server.get("/hello.txt")).text(), "hello\n");
    assert_eq!(in_time(|| server.get(&unheard_of())).status, 404);
    let helper = server.sole("helper");
    Some((server, helper))
}

/// Waits until the worker has given a job to the helper.
#[track_caller]
fn wait_until_busy(folder: &Folder) {
    let control = folder.path("control.sock");
    wait_until("the helper to have a job", || stats_at(&control)["sum"]["helpers"]["busy"] == 1);
}

#[track_caller]
fn assert_hits_flow(server: &Server) {
    let mut client = server.client();
    for _ in 0..20 {
        assert_eq!(client.get("/hello.txt").brief(), (200, "hello\n".into()));
    }
}

#[track_caller]
fn assert_refused(page: &Page) {
    assert_eq!(page.status, 503, "{page:?}");
    let seconds: u32 = page.must("Retry-After").parse().unwrap();
    assert!((1..=120).contains(&seconds), "{page:?}");
}

#[test]
fn helpers_start_on_demand_and_end_when_idle() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).args(["--helper-idle", "3s"]).start();
    for _ in 0..2 {
        assert_eq!(server.get(&unheard_of()).status, 404);
        let helpers = server.some("helper");
        wait_until("the idle helpers to end", || server.role("helper").is_empty());
        for helper in helpers {
            let place = format!("/proc/{helper}");
            wait_until("the supervisor to reap it", || !std::path::Path::new(&place).exists());
        }
    }
    assert_eq!(server.stderr(), "");
}

#[test]
fn one_miss_starts_one_helper_however_busy_the_worker_is() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).args(["--helper-idle", "5s", "--freshness", "1h"]).start();
    // The first look-up of its siblings is a miss, too.
    assert_eq!(server.get("/hello.txt").status, 200);
    wait_until("the idle helper to end", || server.role("helper").is_empty());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The worker is busy while the helper starts.
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = server.client();
                while !over.load(Ordering::Relaxed) {
                    assert_eq!(client.get("/hello.txt").status, 200);
                }
            });
        }
        let page = server.client().try_get(&unheard_of());
        std::thread::sleep(Duration::from_millis(300));
        over.store(true, Ordering::Relaxed);
        assert_eq!(page.map(|page| page.status).ok(), Some(404));
    });
    assert_eq!(server.role("helper").len(), 1);
}

#[test]
fn idle_helpers_are_reused_and_their_number_is_bounded() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).args(["--helpers-max", "3"]).start();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = server.client();
                    for _ in 0..40 {
                        assert_eq!(client.get(&unheard_of()).status, 404);
                    }
                })
            })
            .collect();
        while !clients.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            assert!(server.role("helper").len() <= 3);
        }
    });
    assert!(!server.role("helper").is_empty(), "kept for the next miss");
}

#[test]
fn an_idle_helper_that_dies_costs_nothing() {
    let folder = Folder::with_hello();
    let Some((server, helper)) = with_one_helper(&folder, UNHURRIED) else { return };
    for _ in 0..3 {
        for helper in server.role("helper") {
            kill("KILL", helper);
        }
        // Also at once, before the worker may know of it.
        let page = server.get(&unheard_of());
        assert!([404, 503].contains(&page.status), "{page:?}");
        assert_hits_flow(&server);
        assert_eq!(server.get(&unheard_of()).status, 404);
    }
    assert_ne!(server.sole("helper"), helper, "it was replaced");
    server.wait_for_stderr(
        "flash: a helper ended (signal: 9 (SIGKILL), not sent by Flash; if memory ran out, dmesg says so)",
    );
}

#[test]
fn a_busy_helper_that_dies_costs_only_its_own_request() {
    let folder = Folder::with_hello();
    let Some((server, helper)) = with_one_helper(&folder, UNHURRIED) else { return };
    kill("STOP", helper);
    let mut of_its_own = server.client();
    of_its_own.ask(&unheard_of());
    wait_until_busy(&folder);
    // These wait for any helper, not for this one.
    let mut queued: Vec<Client> = (0..5).map(|_| server.client()).collect();
    for client in &mut queued {
        client.ask(&unheard_of());
    }
    assert_hits_flow(&server);
    queued[0].assert_quiet(Duration::from_millis(50));
    kill("KILL", helper);
    let page = of_its_own.page();
    if page.status != 404 {
        assert_refused(&page);
        assert!(!page.says_close(), "only the request is lost");
        assert_eq!(of_its_own.get("/hello.txt").text(), "hello\n");
    }
    for client in &mut queued {
        assert_eq!(client.page().status, 404);
    }
    assert_ne!(server.sole("helper"), helper, "it was replaced");
    assert_hits_flow(&server);
    server.wait_for_stderr("helper");
}

#[test]
fn the_error_of_a_lost_request_has_the_accepted_form() {
    let folder = Folder::with_hello();
    for (method, fields) in
        [("HEAD", &[][..]), ("GET", &["Accept: application/json"]), ("GET", &["Connection: close"])]
    {
        let Some((server, helper)) = with_one_helper(&folder, UNHURRIED) else { return };
        kill("STOP", helper);
        let mut client = server.client();
        client.send(Client::request_bytes(method, &unheard_of(), fields));
        wait_until_busy(&folder);
        kill("KILL", helper);
        let page = client.expect(if method == "HEAD" { Answer::HeadOnly } else { Answer::Whole });
        assert_refused(&page);
        match fields {
            [] => assert_ne!(page.must("Content-Length"), "0"),
            ["Connection: close"] => assert!(page.says_close()),
            _ => assert_eq!(page.json()["status"], 503),
        }
        match page.says_close() {
            true => client.assert_closed(),
            false => client.assert_kept(),
        }
    }
}

#[test]
fn a_hung_helper_is_given_up_at_the_deadline() {
    let folder = Folder::with_hello();
    let Some((server, helper)) = with_one_helper(&folder, ["--job-deadline", "800ms"]) else { return };
    kill("STOP", helper);
    let started = Instant::now();
    let mut client = server.client();
    client.ask(&unheard_of());
    while started.elapsed() < Duration::from_millis(500) {
        assert_hits_flow(&server);
    }
    assert_refused(&client.page());
    assert!(started.elapsed() >= Duration::from_millis(700), "not before its time");
    client.assert_kept();
    wait_until("the hung helper's end", || !server.role("helper").contains(&helper));
    assert_eq!(in_time(|| server.get(&unheard_of())).status, 404);
    assert_ne!(server.sole("helper"), helper, "it was replaced");
    server.wait_for_stderr("deadline");
}

#[test]
fn with_every_helper_hung_hits_continue_even_when_stale() {
    let folder = Folder::with_hello();
    folder.www("page.html", "page");
    folder.www("page.html.gz", "coded");
    let Some((server, helper)) = with_one_helper(&folder, ["--freshness", "20ms"]) else { return };
    let mut client = server.client();
    let coded = ["Accept-Encoding: gzip"];
    assert_eq!(client.request("GET", "/page.html", &coded).text(), "coded");
    kill("STOP", helper);
    let mut stuck = server.client();
    stuck.ask(&unheard_of());
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(client.get("/hello.txt").text(), "hello\n");
        assert_eq!(client.get("/page.html").text(), "page");
        assert_eq!(client.request("GET", "/page.html", &coded).text(), "coded");
        assert_eq!(client.get("/%zz").status, 400);
        if client.try_get("/hello.txt").is_err() {
            client = server.client();
        }
    }
    kill("CONT", helper);
    assert_eq!(stuck.page().status, 404);
}

#[test]
fn a_full_queue_gives_503_at_once() {
    const CLIENTS: usize = 1200;
    if !raise_own_descriptor_limit(CLIENTS as u64 + 300) {
        return skip("needs more descriptors than this process may have");
    }
    let folder = Folder::with_hello();
    // Without a bound on the wait, which would refuse earlier.
    let Some((server, helper)) = with_one_helper(&folder, ["--job-deadline", "60s", "--queue-wait", "0s"])
    else {
        return;
    };
    kill("STOP", helper);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
    for client in &mut clients {
        client.ask(&unheard_of());
    }
    // Requests that find the queue full are refused without a helper.
    let mut refused = 0;
    wait_until("a hundred to be refused", || {
        clients.retain_mut(|client| {
            let has_heard = client.has_heard();
            if has_heard {
                assert_refused(&client.page());
                client.assert_kept();
                refused += 1;
            }
            !has_heard
        });
        refused >= 100
    });
    assert_hits_flow(&server);
    kill("CONT", helper);
    let mut found = 0;
    for client in &mut clients {
        let page = client.page();
        if page.status == 404 {
            found += 1;
        } else {
            assert_refused(&page);
        }
    }
    assert!(found >= 500, "{found} of {CLIENTS} had their answer");
}

#[test]
fn all_clients_that_wait_for_one_cold_file_get_it() {
    let folder = Folder::with_hello();
    let [small, large] = [(100_000, 1), (1_500_000, 2)].map(|(bytes, seed)| pattern(bytes, seed));
    evict(&folder.www("small.bin", &small));
    evict(&folder.www("large.bin", &large));
    let Some((server, helper)) = with_one_helper(&folder, UNHURRIED) else { return };
    kill("STOP", helper);
    let mut clients: Vec<(Client, &[u8])> = Vec::new();
    for n in 0..30 {
        let mut client = server.client();
        let (target, content) = if n % 2 == 0 { ("/small.bin", &small) } else { ("/large.bin", &large) };
        client.ask(target);
        clients.push((client, content));
    }
    assert_hits_flow(&server);
    // A third of them leave early.
    let mut number = 0;
    clients.retain(|_| {
        number += 1;
        number % 3 != 0
    });
    kill("CONT", helper);
    for (mut client, content) in clients {
        let page = client.page();
        assert!(page.status == 200 && page.body == content);
    }
    assert_hits_flow(&server);
}

#[test]
fn clients_that_leave_while_they_wait_leave_nothing_behind() {
    let folder = Folder::with_hello();
    let Some((server, helper)) = with_one_helper(&folder, UNHURRIED) else { return };
    kill("STOP", helper);
    for _ in 0..100 {
        let mut client = server.client();
        client.ask(&unheard_of());
    }
    assert_hits_flow(&server);
    kill("CONT", helper);
    assert_eq!(server.get(&unheard_of()).status, 404);
    assert_eq!(server.sole("helper"), helper);
    assert_eq!(server.stderr(), "");
}

#[test]
fn while_helpers_die_a_cold_file_is_whole_or_cut_and_never_wrong() {
    let folder = Folder::with_hello();
    let content = pattern(12 << 20, 3);
    let path = folder.www("film.bin", &content);
    let server = Launch::new(&folder).args(["--helpers-max", "4"]).start();
    assert_hits_flow(&server);
    for _ in 0..6 {
        evict(&path);
        let mut client = server.client();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..4 {
                    std::thread::sleep(Duration::from_millis(7));
                    server.role("helper").into_iter().for_each(|pid| kill("KILL", pid));
                }
            });
            match client.try_get("/film.bin") {
                Ok(page) if page.status == 200 => assert!(page.body == content),
                Ok(page) => assert_refused(&page),
                Err(Broken::Cut { page: Some(page) }) => assert!(content.starts_with(&page.body)),
                Err(other) => panic!("{other:?}"),
            }
        });
        assert_hits_flow(&server);
    }
    let whole = wait_for("the film, whole", || match server.client().try_get("/film.bin") {
        Ok(page) if page.status == 200 => Some(page.body),
        _ => None,
    });
    assert!(whole == content);
    assert_eq!(server.role("worker").len(), 1);
}

/// Two sites with the roots `one` and `two`, and a single helper for each.
fn two_sites(folder: &Folder, job_deadline: &str) -> Server {
    folder.write("one/hello.txt", "hello\n");
    folder.write("two/hello.txt", "hello\n");
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\nworkers = 1\nhelpers_max = 2\nhelper_idle = \"60s\"\n\
         job_deadline = \"{job_deadline}\"\n\
         [[site]]\nhosts = [\"one\"]\nroot = \"one\"\n[[site]]\nhosts = [\"two\"]\nroot = \"two\"\n"
    );
    Launch::configured(folder, &config).start()
}

/// Sends a request for a missing file of a site.
fn miss(server: &Server, host: &str) -> Client {
    let mut client = server.client();
    client.send(format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", unheard_of()));
    client
}

#[test]
fn a_site_that_hangs_leaves_the_others_their_helpers() {
    let folder = Folder::new();
    let server = two_sites(&folder, "60s");
    assert_eq!(miss(&server, "one").page().status, 404);
    let helper = server.sole("helper");
    kill("STOP", helper);
    let mut stuck: Vec<Client> = (0..4).map(|_| miss(&server, "one")).collect();
    for _ in 0..20 {
        assert_eq!(miss(&server, "two").page().status, 404);
    }
    // The other helper is idle, but reserved for the other site.
    for client in &mut stuck {
        client.assert_quiet(Duration::from_millis(50));
    }
    assert_eq!(server.role("helper").len(), 2);
    kill("CONT", helper);
    for client in &mut stuck {
        assert_eq!(client.page().status, 404);
    }
    assert_eq!(server.stderr(), "");
}

#[test]
fn a_hung_site_regains_its_share_when_its_helpers_are_gone() {
    let folder = Folder::new();
    let server = two_sites(&folder, "1s");
    for _ in 0..2 {
        assert_eq!(in_time(|| miss(&server, "one").page()).status, 404);
        server.role("helper").into_iter().for_each(|helper| kill("STOP", helper));
        assert_refused(&miss(&server, "one").page());
        assert_eq!(in_time(|| miss(&server, "one").page()).status, 404);
        assert_eq!(in_time(|| miss(&server, "two").page()).status, 404);
    }
}

#[test]
fn a_helper_that_cannot_start_is_not_retried_forever() {
    // A user without other processes: the limit counts all of a user.
    let user = format!("--reuid={}", 1_000_000 + std::process::id());
    let other = ["setpriv", &user, "--clear-groups", "--"];
    if !can_run_flash(&other) {
        return skip("needs root, setpriv and prlimit, to limit the server's processes");
    }
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).user(None).args(["--job-deadline", "2s"]).through(other).start();
    let limit = ["prlimit", "--nproc=1", "--pid", &server.pid().to_string()];
    let limited = std::process::Command::new(other[0]).args(&other[1..]).args(limit).status();
    assert!(limited.expect("prlimit runs").success());
    assert_refused(&server.get("/hello.txt"));
    server.wait_for_stderr("cannot start a helper");
    let lines = server.stderr().lines().count();
    assert!(lines < 100, "{lines} lines of complaint about one miss");
}

/// Puts this many descriptors into messages that nobody receives, until the result is dropped.
fn put_in_transit(count: usize) -> (OwnedFd, OwnedFd) {
    let file = std::fs::File::open("/dev/null").expect("/dev/null");
    let (ours, theirs) = channel::pair(1 << 20).expect("a pair");
    for _ in 0..count.div_ceil(channel::DESCRIPTORS_MAX) {
        let copies = [file.as_fd(); channel::DESCRIPTORS_MAX];
        channel::send(&ours, &[IoSlice::new(b"x")], &copies).expect("sent");
    }
    (ours, theirs)
}

#[test]
fn an_answer_waits_while_other_processes_have_many_descriptors_in_messages() {
    let folder = Folder::with_hello();
    folder.write("www/other.txt", "other\n");
    let Some((server, _)) = with_one_helper(&folder, UNHURRIED) else { return };
    // More than a helper may have open, which is what the kernel compares.
    let many = put_in_transit(2_000);
    std::thread::scope(|scope| {
        let page = scope.spawn(|| server.get("/other.txt"));
        wait_until_busy(&folder);
        assert_hits_flow(&server);
        drop(many);
        assert_eq!(page.join().expect("no panic").brief(), (200, "other\n".into()));
    });
    assert_eq!(server.stderr(), "");
}
