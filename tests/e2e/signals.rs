//! Signals: a stop that cuts no request, and a reload that no client notices.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{
    self, Broken, Client, Folder, Launch, Server, adapted, film, kill, skips, stats_at, wait_for, wait_until,
    workers, write_aside,
};

/// A server in the middle of a download, which it does not cut however slowly the client reads.
fn with_download(launch: impl FnOnce(&Folder) -> Launch) -> (Folder, Server, Client) {
    let folder = Folder::with_hello();
    folder.www("film.bin", film());
    let server = launch(&folder).args(["--least-rate", "0"]).start();
    let mut client = server.client();
    assert_eq!(client.begin("/film.bin"), film().len());
    (folder, server, client)
}

/// Waits until no process listens any more.
#[track_caller]
fn wait_for_refusal(address: SocketAddr) {
    wait_until("new connections to be refused", || Client::try_to(address).is_err());
}

#[test]
fn a_stop_lets_downloads_finish() {
    for signal in ["TERM", "INT", "QUIT"] {
        let (_folder, mut server, mut client) = with_download(Launch::new);
        server.signal(signal);
        wait_for_refusal(server.addresses[0]);
        assert!(!server.has_ended(), "{signal}");
        assert!(client.rest(film().len()) == film(), "{signal}");
        client.assert_closed();
        assert_eq!(server.wait().code(), Some(0), "{signal} {}", server.stderr());
        assert_eq!(server.stderr(), "", "{signal}");
    }
}

#[test]
fn a_stop_without_open_requests_is_immediate() {
    for signal in ["TERM", "INT", "QUIT"] {
        let folder = Folder::with_hello();
        let forever = ["--shutdown-timeout", "1h", "--idle-timeout", "1h"];
        let mut server = Launch::with_workers(&folder, 2).args(forever).start();
        assert_eq!(server.get("/unheard-of").status, 404);
        let mut idle = server.client();
        assert_eq!(idle.get("/hello.txt").status, 200);
        server.signal(signal);
        assert_eq!(server.wait().code(), Some(0), "{signal}");
        idle.assert_closed();
        assert_eq!(server.stderr(), "", "{signal}");
    }
}

#[test]
fn ctrl_c_reaches_every_process_and_cuts_no_download() {
    let (_folder, mut server, mut client) = with_download(|folder| Launch::with_workers(folder, 2));
    assert_eq!(server.get("/unheard-of").status, 404);
    server.signal_group("INT");
    wait_for_refusal(server.addresses[0]);
    assert!(client.rest(film().len()) == film());
    assert_eq!(server.wait().code(), Some(0), "{}", server.stderr());
}

#[test]
fn a_hangup_of_the_terminal_or_a_broken_pipe_hurts_no_worker() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    let before = server.role("worker");
    for signal in ["HUP", "PIPE", "USR1", "INT", "TERM", "QUIT"] {
        before.iter().for_each(|worker| kill(signal, *worker));
    }
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(server.get("/hello.txt").status, 200);
    assert_eq!(server.role("worker"), before);
}

#[test]
fn a_second_int_ends_at_once() {
    let (_folder, mut server, mut client) =
        with_download(|folder| Launch::new(folder).args(["--shutdown-timeout", "1h"]));
    server.signal("INT");
    wait_for_refusal(server.addresses[0]);
    assert!(!server.has_ended());
    server.signal("INT");
    server.wait();
    let got = client.rest(film().len());
    assert!(got.len() < film().len() && film().starts_with(&got));
}

#[test]
fn a_second_term_is_not_a_second_int() {
    let (_folder, mut server, mut client) = with_download(Launch::new);
    server.signal("TERM");
    wait_for_refusal(server.addresses[0]);
    server.signal("TERM");
    server.signal("HUP");
    std::thread::sleep(Duration::from_millis(200));
    assert!(!server.has_ended());
    assert!(client.rest(film().len()) == film());
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_stop_has_a_deadline() {
    let (_folder, mut server, mut client) =
        with_download(|folder| Launch::new(folder).args(["--shutdown-timeout", "700ms"]));
    let started = Instant::now();
    server.signal("TERM");
    let status = server.wait();
    assert!(started.elapsed() >= Duration::from_millis(600));
    let got = client.rest(film().len());
    assert!(got.len() < film().len() && film().starts_with(&got));
    assert!(!server.stderr().is_empty(), "it is said that something was cut");
    // The man page of `flash serve`: "0: stopped by a signal, after open requests finished or were cut".
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_request_that_waits_for_a_helper_is_answered_before_the_end() {
    if skips(&["sped", "mp", "mt"], "it has no helpers") {
        return;
    }
    let folder = Folder::with_hello();
    let control = folder.path("control.sock");
    let launch = Launch::new(&folder).helpers(["--helpers-max", "1"]);
    let mut server = launch.arg("--control").arg(&control).start();
    assert_eq!(server.get("/unheard-of").status, 404);
    let helper = server.sole("helper");
    kill("STOP", helper);
    let mut client = server.client();
    client.ask("/unheard-of-too");
    wait_until("the helper to have it", || stats_at(&control)["sum"]["helpers"]["busy"] == 1);
    server.signal("TERM");
    wait_for_refusal(server.addresses[0]);
    kill("CONT", helper);
    let page = client.page();
    assert_eq!((page.status, page.says_close()), (404, true));
    client.assert_closed();
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_request_that_has_begun_to_arrive_is_answered_before_the_end() {
    let folder = Folder::with_hello();
    let mut server = Launch::new(&folder).start();
    let request = Client::request_bytes("GET", "/hello.txt", &[]);
    let mut client = server.client();
    // After the answer to the first of these, the server has read the beginning of the second.
    client.send([&request, &request[..20]].concat());
    assert_eq!(client.page().brief(), (200, "hello\n".into()));
    server.signal("TERM");
    wait_for_refusal(server.addresses[0]);
    client.send(&request[20..]);
    let page = client.page();
    assert_eq!(page.brief(), (200, "hello\n".into()));
    assert!(page.says_close(), "{page:?}");
    client.assert_closed();
    assert_eq!(server.wait().code(), Some(0));
}

/// Writes a config file of `folder` with these lines.
fn configure(folder: &Folder, root: &str, workers: usize, more: &str) -> String {
    let text = format!("root = \"{root}\"\nlisten = [\"127.0.0.1:0\"]\nworkers = {workers}\n{more}");
    let text = adapted(&text);
    // Atomically: a reload must not see half of it.
    write_aside(&folder.path("flash.toml"), &text);
    text
}

/// Whether the page is like this. A failed request counts as no: other tests check that none fails.
fn serves(server: &Server, text: &str) -> bool {
    server.client().try_get("/hello.txt").is_ok_and(|page| page.text() == text)
}

/// Reloads and waits until the new configuration is in force and the old workers are gone.
#[track_caller]
fn reload(server: &Server, workers: usize) {
    let before = server.announcements().len();
    let old = server.role("worker");
    server.signal("HUP");
    wait_until("the new start line", || server.announcements().len() > before);
    wait_until("the new workers alone", || {
        let now = server.role("worker");
        now.len() == harness::workers(workers) && now.iter().all(|pid| !old.contains(pid))
    });
}

#[test]
fn a_reload_puts_a_new_configuration_in_force() {
    let folder = Folder::with_hello();
    folder.write("other/hello.txt", "other\n");
    folder.write("other/list/x.txt", "x");
    let config = configure(&folder, "www", 1, "");
    let server = Launch::configured(&folder, &config).start();
    let address = server.addresses[0];
    assert_eq!(server.get("/hello.txt").text(), "hello\n");
    configure(&folder, "other", 2, "browse = true\n");
    reload(&server, 2);
    for _ in 0..10 {
        assert_eq!(server.get("/hello.txt").text(), "other\n");
    }
    assert_eq!(server.get("/list/").status, 200);
    assert_eq!(server.announcements().last().unwrap()[..], [address], "the port is kept");
    configure(&folder, "www", 1, "");
    reload(&server, 1);
    assert_eq!(server.get("/hello.txt").text(), "hello\n");
    assert_eq!(server.get("/list/").status, 404);
    assert_eq!(server.stderr(), "");
}

#[test]
fn a_reload_lets_downloads_of_the_old_configuration_finish() {
    let folder = Folder::with_hello();
    folder.www("film.bin", film());
    folder.write("other/hello.txt", "other\n");
    let config = configure(&folder, "www", 1, "least_rate = \"0\"\n");
    let server = Launch::configured(&folder, &config).start();
    let mut client = server.client();
    assert_eq!(client.begin("/film.bin"), film().len());
    configure(&folder, "other", 1, "");
    server.signal("HUP");
    wait_until("the new configuration", || serves(&server, "other\n"));
    wait_until("the end of the reload", || server.announcements().len() == 2);
    wait_until("the old worker that is at work", || server.role("worker").len() == workers(1) + 1);
    // Another reload, while the first still drains.
    configure(&folder, "www", 1, "");
    server.signal("HUP");
    wait_until("the newest configuration", || serves(&server, "hello\n"));
    assert!(client.rest(film().len()) == film());
    client.assert_closed();
    wait_until("the old workers' end", || server.role("worker").len() == workers(1));
    assert_eq!(server.get("/hello.txt").text(), "hello\n");
    assert_eq!(server.stderr(), "");
}

/// A server with these lines in its config file, and a client in the middle of a download, which is not cut however slowly
/// it reads.
fn configured_with_download(more: &str) -> (Folder, Server, Client) {
    let folder = Folder::with_hello();
    folder.www("film.bin", film());
    let config = configure(&folder, "www", 1, &format!("{more}least_rate = \"0\"\n"));
    let server = Launch::configured(&folder, &config).start();
    let client = begin_download(&server);
    (folder, server, client)
}

fn begin_download(server: &Server) -> Client {
    let mut client = server.client();
    assert_eq!(client.begin("/film.bin"), film().len());
    client
}

/// Reloads and waits until the new configuration is in force, whether or not the old one is gone.
#[track_caller]
fn reload_meanwhile(server: &Server) {
    let before = server.announcements().len();
    server.signal("HUP");
    wait_until("the new start line", || server.announcements().len() > before);
}

#[track_caller]
fn assert_cut(mut client: Client) {
    let got = client.rest(film().len());
    assert!(got.len() < film().len() && film().starts_with(&got), "{}", got.len());
}

#[test]
fn a_reload_lets_downloads_continue_longer_than_a_stop() {
    let (_folder, server, mut client) = configured_with_download("shutdown_timeout = \"200ms\"\n");
    reload_meanwhile(&server);
    std::thread::sleep(Duration::from_millis(600));
    assert!(client.rest(film().len()) == film());
    client.assert_closed();
    wait_until("the old workers' end", || server.role("worker").len() == workers(1));
    assert_eq!(server.stderr(), "");
}

#[test]
fn a_stop_while_a_reload_drains_has_its_deadline() {
    let (_folder, mut server, client) = configured_with_download("shutdown_timeout = \"200ms\"\n");
    reload_meanwhile(&server);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    assert_cut(client);
}

#[test]
fn a_reload_deadline_cuts_requests_and_reports_it() {
    let (_folder, server, client) = configured_with_download("reload_timeout = \"200ms\"\n");
    reload_meanwhile(&server);
    server.wait_for_stderr("configuration 1");
    assert_cut(client);
    let client = begin_download(&server);
    reload_meanwhile(&server);
    server.wait_for_stderr("configuration 2");
    assert_cut(client);
    wait_until("the old workers' end", || server.role("worker").len() == workers(1));
}

#[test]
fn at_most_four_old_configurations_drain() {
    let (_folder, server, first) = configured_with_download("");
    let mut clients = vec![first];
    for _ in 0..5 {
        reload_meanwhile(&server);
        clients.push(begin_download(&server));
    }
    server.wait_for_stderr("configuration 1");
    reload_meanwhile(&server);
    server.wait_for_stderr("configuration 2");
    let mut kept = clients.split_off(2);
    clients.into_iter().for_each(assert_cut);
    wait_until("the end of those", || server.role("worker").len() == 4 + workers(1));
    for client in &mut kept {
        assert!(client.rest(film().len()) == film());
    }
    wait_until("the old workers' end", || server.role("worker").len() == workers(1));
    assert_eq!(server.stderr().lines().count(), 2, "{}", server.stderr());
}

/// Edits the configuration twice, with a HUP after each, and this pause between them.
fn edit_twice(folder: &Folder, server: &Server, round: usize, (workers, gap_ms): (usize, u64)) {
    let names = [format!("first-{round}"), format!("last-{round}")];
    names.iter().for_each(|name| drop(folder.write(&format!("{name}/hello.txt"), name)));
    for name in &names {
        configure(folder, name, workers, "");
        server.signal("HUP");
        std::thread::sleep(std::time::Duration::from_millis(gap_ms));
    }
    wait_until("the last edit", || serves(server, &names[1]));
}

#[test]
fn the_last_edit_is_in_force_with_many_workers_too() {
    let folder = Folder::with_hello();
    let server = Launch::configured(&folder, &configure(&folder, "www", 16, "")).start();
    for (round, gap_ms) in [0, 5, 20].into_iter().enumerate() {
        edit_twice(&folder, &server, round, (16, gap_ms));
    }
}

#[test]
fn the_last_edit_before_the_last_hup_is_in_force() {
    let folder = Folder::with_hello();
    let config = configure(&folder, "www", 1, "");
    let server = Launch::configured(&folder, &config).start();
    for round in 0..10 {
        edit_twice(&folder, &server, round, (1, 0));
    }
    let before = server.in_force().len();
    for _ in 0..50 {
        server.signal("HUP");
    }
    wait_until("another reload", || server.in_force().len() > before);
    // On a busy machine old processes end late, and only a few configurations may drain at once.
    let said = server.stderr();
    let said: Vec<&str> = said.lines().filter(|line| !line.ends_with("newer ones are draining")).collect();
    assert!(said.is_empty(), "{said:?}");
}

#[test]
fn a_reload_reports_what_is_in_force() {
    let folder = Folder::with_hello();
    let config = configure(&folder, "www", 1, "");
    let server = Launch::configured(&folder, &config).start();
    reload(&server, 1);
    configure(&folder, "www", 1, "etag = \"changed\"\n");
    reload(&server, 1);
    let expected =
        ["flash: configuration 2 is in force; no setting has changed", "flash: configuration 3 is in force"];
    wait_until("both messages", || server.in_force() == expected);
}

#[test]
fn a_reload_opens_new_addresses_and_closes_old_ones() {
    let folder = Folder::with_hello();
    let text = |listen: &str| adapted(&format!("root = \"www\"\nworkers = 1\nlisten = [{listen}]\n"));
    let server = Launch::configured(&folder, &text("\"127.0.0.1:0\"")).start();
    let first = server.addresses[0];
    write_aside(&folder.path("flash.toml"), text("\"127.0.0.1:0\", \"127.0.0.2:0\""));
    reload(&server, 1);
    let both = server.announcements().pop().unwrap();
    assert_eq!((both.len(), both[0]), (2, first));
    for address in &both {
        assert_eq!(Client::to(*address).get("/hello.txt").status, 200, "{address}");
    }
    write_aside(&folder.path("flash.toml"), text("\"127.0.0.2:0\""));
    reload(&server, 1);
    wait_for_refusal(first);
    assert_eq!(Client::to(both[1]).get("/hello.txt").status, 200);
    assert_eq!(server.stderr(), "");
}

#[test]
fn a_wrong_configuration_leaves_the_old_one_in_force() {
    let folder = Folder::with_hello();
    let config = configure(&folder, "www", 1, "");
    let server = Launch::configured(&folder, &config).start();
    let worker = server.role("worker");
    let wrong = [
        ("workrs = 2\n", "workrs"),
        ("workers = 0\n", "workers"),
        ("root = \"gone\"\n", "gone"),
        ("root = \"www\"\nlisten = [\"203.0.113.1:1\"]\n", "203.0.113.1"),
        ("this is no TOML", "flash.toml:1"),
        ("", "no directory to serve is named"),
    ];
    for (text, told) in wrong {
        let said = server.stderr().len();
        write_aside(&folder.path("flash.toml"), text);
        server.signal("HUP");
        wait_until(told, || server.stderr()[said..].contains(told));
        wait_until("what becomes of the old one", || server.stderr()[said..].contains("stays in force"));
        assert_eq!(server.get("/hello.txt").text(), "hello\n", "{text:?}");
    }
    fs::remove_file(folder.path("flash.toml")).unwrap();
    let said = server.stderr().len();
    server.signal("HUP");
    wait_until("the missing file", || server.stderr()[said..].contains("stays in force"));
    assert_eq!(server.role("worker"), worker);
    configure(&folder, "www", 1, "");
    reload(&server, 1);
    assert_eq!(server.get("/hello.txt").text(), "hello\n");
    assert_eq!(server.announcements().len(), 2, "one start line for each configuration in force");
}

#[test]
fn a_configuration_whose_processes_cannot_start_leaves_the_old_one_in_force() {
    let folder = Folder::with_hello();
    let config = configure(&folder, "www", 1, "");
    let server = Launch::configured(&folder, &config).start();
    let worker = server.role("worker");
    configure(&folder, "www", 2, "log_file = \"not-there/access.log\"\n");
    for _ in 0..2 {
        let said = server.stderr().len();
        server.signal("HUP");
        wait_until("why not", || server.stderr()[said..].contains("not-there/access.log"));
        wait_until("what becomes of the old one", || server.stderr()[said..].contains("stays in force"));
        assert_eq!(server.get("/hello.txt").text(), "hello\n");
        wait_until("the old worker alone", || server.role("worker") == worker);
    }
    configure(&folder, "www", 1, "");
    reload(&server, 1);
    assert_eq!(server.get("/hello.txt").text(), "hello\n");
}

#[test]
fn signals_without_effect_do_no_harm() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    server.signal("USR1");
    assert_eq!(server.get("/hello.txt").text(), "hello\n");
    // Without a config file, a reload still reads the flags and the environment.
    reload(&server, 1);
    server.signal("USR1");
    assert_eq!(server.get("/hello.txt").text(), "hello\n");
    assert_eq!(server.stderr(), "");
}

/// The behaviour of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Habit {
    /// One request per connection, sent at once.
    Fresh,
    /// One request per connection, sent a moment after connecting, as over a slow network.
    Hesitant,
    /// Many requests per connection; a connection that ends between two is opened again, once.
    Keeping,
}

/// Sends requests until told to stop; every one must be answered. Returns their number, or the error.
pub(crate) fn run_client(server: &Server, habit: Habit, over: &AtomicBool) -> Result<usize, String> {
    let address = server.addresses[0];
    let connect = || Client::try_to(address).map_err(|e| format!("{habit:?}: connect: {e}"));
    let mut answered = 0;
    let mut kept: Option<Client> = None;
    while !over.load(Ordering::Relaxed) {
        let is_reused = kept.is_some();
        let mut client = match kept.take() {
            Some(client) => client,
            None => connect()?,
        };
        if matches!(habit, Habit::Hesitant) {
            std::thread::sleep(Duration::from_millis(3));
        }
        let mut page = client.try_get("/hello.txt");
        if is_reused && matches!(page, Err(Broken::Unanswered { .. })) {
            // RFC 9112, section 9.3.1: a client may retry once on a new connection.
            client = connect()?;
            page = client.try_get("/hello.txt");
        }
        match page {
            Ok(page) if page.brief() == (200, "hello\n".into()) => {
                answered += 1;
                if matches!(habit, Habit::Keeping) && !page.says_close() && answered % 25 != 0 {
                    kept = Some(client);
                }
            }
            other => return Err(format!("{habit:?}, request {answered}: {other:?}")),
        }
    }
    Ok(answered)
}

fn reload_under_load(habit: Habit) {
    let folder = Folder::with_hello();
    let config = configure(&folder, "www", 2, "");
    let server = Launch::configured(&folder, &config).start();
    let over = AtomicBool::new(false);
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let result = run_client(&server, habit, &over);
                    over.store(true, Ordering::Relaxed);
                    result.map(|n| answered.fetch_add(n, Ordering::Relaxed))
                })
            })
            .collect();
        for workers in [1, 3, 1, 2, 4, 1, 2, 2] {
            if over.load(Ordering::Relaxed) {
                break;
            }
            configure(&folder, "www", workers, "");
            reload(&server, workers);
        }
        over.store(true, Ordering::Relaxed);
        let failures: Vec<String> =
            clients.into_iter().filter_map(|client| client.join().unwrap().err()).collect();
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    });
    assert!(answered.load(Ordering::Relaxed) > 50);
    // The process that looks at the root may wait for the processor as long as it may wait for the disk.
    let said = server.stderr();
    let said: Vec<&str> = said.lines().filter(|line| !line.contains("did not answer within")).collect();
    assert!(said.is_empty(), "{said:?}");
}

#[test]
fn reloads_fail_no_request_of_clients_with_a_connection_each_time() {
    reload_under_load(Habit::Fresh);
}

#[test]
fn reloads_fail_no_request_of_clients_that_connect_and_then_ask() {
    reload_under_load(Habit::Hesitant);
}

#[test]
fn reloads_fail_no_request_of_clients_that_keep_connections() {
    reload_under_load(Habit::Keeping);
}

#[test]
fn reloads_leave_no_process_behind() {
    let folder = Folder::with_hello();
    let config = configure(&folder, "www", 1, "");
    let server = Launch::configured(&folder, &config).start();
    for n in 0..8 {
        // It needs a helper, which briefly outlives its worker.
        assert_eq!(server.get(&format!("/unheard-of-{n}")).status, 404);
        let old = [server.role("worker"), server.role("watcher")].concat();
        reload(&server, 1);
        // On a busy machine they end late, and only a few configurations may drain at once.
        wait_until("the old processes to be gone", || {
            old.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
        });
    }
    wait_until("every one that has ended to be reaped", || server.zombies().is_empty());
    assert_eq!(server.stderr(), "");
}

#[test]
fn a_request_that_was_sent_before_the_reload_is_answered() {
    if skips(&["mp"], "which process has a connection is not known") {
        return;
    }
    let folder = Folder::with_hello();
    let config = configure(&folder, "www", 1, "");
    let server = Launch::configured(&folder, &config).start();
    let mut client = server.client();
    assert_eq!(client.get("/hello.txt").status, 200);
    // The worker is stopped, so that the request and the order to drain arrive together.
    let worker = server.sole("worker");
    kill("STOP", worker);
    client.ask("/hello.txt");
    let mut fresh = server.client();
    fresh.ask("/hello.txt");
    server.signal("HUP");
    wait_until("the next worker", || server.role("worker").len() == 2);
    wait_until("the new start line", || server.announcements().len() == 2);
    kill("CONT", worker);
    for client in [&mut client, &mut fresh] {
        assert_eq!(client.page().brief(), (200, "hello\n".into()));
    }
}

#[test]
fn reloads_in_quick_succession_end_well() {
    let folder = Folder::with_hello();
    let config = configure(&folder, "www", 1, "");
    let server = Launch::configured(&folder, &config).start();
    for n in 0..10 {
        configure(&folder, "www", 1 + n % 3, "");
        server.signal("HUP");
    }
    wait_until("a second start line", || server.announcements().len() >= 2);
    configure(&folder, "www", 2, "");
    wait_until("two workers", || {
        server.signal("HUP");
        std::thread::sleep(Duration::from_millis(150));
        server.role("worker").len() == workers(2)
    });
    assert_eq!(server.get("/hello.txt").text(), "hello\n");
}

#[test]
fn a_reload_keeps_the_command_line() {
    let folder = Folder::with_hello();
    folder.write("other/hello.txt", "other\n");
    let config = configure(&folder, "other", 1, "");
    let server = Launch::configured(&folder, &config).arg(folder.path("www")).workers(2).start();
    assert_eq!(server.get("/hello.txt").text(), "hello\n");
    configure(&folder, "other", 3, "");
    reload(&server, 2);
    assert_eq!(server.get("/hello.txt").text(), "hello\n");
}

#[test]
fn usr1_reopens_the_log_file() {
    let folder = Folder::with_hello();
    let log = folder.path("access.log");
    let server = Launch::with_workers(&folder, 2).arg("--log-file").arg(&log).start();
    let lines = |name: &str| fs::read_to_string(folder.path(name)).unwrap_or_default();
    for round in 0..3 {
        for n in 0..20 {
            assert_eq!(server.get(&format!("/hello.txt?{round}-{n}-")).status, 200);
        }
        wait_until("the lines", || lines("access.log").lines().count() == 20);
        let rotated = format!("access.log.{round}");
        fs::rename(&log, folder.path(&rotated)).unwrap();
        server.signal("USR1");
        // Until the next log writer takes over, lines go to the old file.
        wait_until("the next log writer", || log.exists() && server.role("log").len() == 1);
        let text = lines(&rotated);
        assert!((0..20).all(|n| text.contains(&format!("?{round}-{n}- "))), "{text}");
    }
    assert_eq!(server.stderr(), "");
}

#[test]
fn no_line_is_lost_during_a_rotation() {
    let folder = Folder::with_hello();
    let log = folder.path("access.log");
    let mut server = Launch::new(&folder).arg("--log-file").arg(&log).start();
    let mut client = server.client();
    for n in 0..600 {
        assert_eq!(client.get(&format!("/hello.txt?{n}-")).status, 200);
        if n % 200 == 100 {
            fs::rename(&log, folder.path(format!("old-{n}"))).unwrap();
            server.signal("USR1");
            wait_until("the new file", || log.exists());
        }
    }
    drop(client);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    let names = ["old-100", "old-300", "old-500", "access.log"];
    let text: String = names.iter().map(|name| fs::read_to_string(folder.path(name)).unwrap()).collect();
    let numbers: Vec<usize> = text
        .lines()
        .map(|line| line.split_once('?').unwrap().1.split_once('-').unwrap().0.parse().unwrap())
        .collect();
    assert_eq!(numbers, (0..600).collect::<Vec<_>>());
}

#[test]
fn a_reload_may_change_the_log() {
    let folder = Folder::with_hello();
    let config = configure(&folder, "www", 1, "log_file = \"one.log\"\n");
    let server = Launch::configured(&folder, &config).start();
    let has = |name: &str, text: &str| fs::read_to_string(folder.path(name)).is_ok_and(|t| t.contains(text));
    assert_eq!(server.get("/hello.txt?first").status, 200);
    wait_until("the first line", || has("one.log", "?first "));
    configure(&folder, "www", 1, "log_file = \"two.log\"\nlog_format = \"json\"\n");
    reload(&server, 1);
    assert_eq!(server.get("/hello.txt?second").status, 200);
    wait_until("the second line", || has("two.log", "?second "));
    assert!(!has("one.log", "?second "));
    wait_for("the old log writer's end", || (server.role("log").len() == 1).then_some(()));
}

/// Makes the root another folder with `change`, and checks that this is reported, and served after a reload.
fn assert_a_replaced_root_is_reported(root: &str, change: impl FnOnce(&Folder)) {
    let folder = Folder::with_hello();
    folder.write("next/hello.txt", "next\n");
    std::os::unix::fs::symlink("www", folder.path("link")).unwrap();
    let config = configure(&folder, root, 1, "");
    let server = Launch::configured(&folder, &config).start();
    assert_eq!(server.get("/hello.txt").text(), "hello\n");
    change(&folder);
    let path = folder.path(root).display().to_string();
    let report = format!("{path} was replaced");
    server.wait_for_stderr(&report);
    assert_eq!(server.get("/hello.txt").text(), "hello\n", "until it is told to");
    reload(&server, 1);
    assert_eq!(server.get("/hello.txt").text(), "next\n");
    assert_eq!(server.stderr().matches(&report).count(), 1, "{}", server.stderr());
}

#[test]
fn a_replaced_root_is_reported() {
    assert_a_replaced_root_is_reported("www", |folder| {
        fs::rename(folder.path("www"), folder.path("old")).unwrap();
        fs::rename(folder.path("next"), folder.path("www")).unwrap();
    });
}

#[test]
fn a_root_whose_symlink_changes_is_reported() {
    assert_a_replaced_root_is_reported("link", |folder| {
        std::os::unix::fs::symlink("next", folder.path("link.new")).unwrap();
        fs::rename(folder.path("link.new"), folder.path("link")).unwrap();
    });
}

#[test]
fn a_removed_root_is_reported_and_still_served() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    assert_eq!(server.get("/hello.txt").status, 200);
    fs::rename(folder.path("www"), folder.path("old")).unwrap();
    server.wait_for_stderr("cannot open root");
    assert_eq!(server.get("/hello.txt").text(), "hello\n");
    assert_eq!(server.get("/unheard-of").status, 404);
}
