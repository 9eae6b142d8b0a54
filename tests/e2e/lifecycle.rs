//! The life of every role under attack: signals during a start, deaths while a configuration drains, and roles that do not
//! react when they must end. `signals.rs` and `processes.rs` have the usual cases.

use std::time::{Duration, Instant};

use crate::harness::{Client, Folder, Launch, Server, film, kill, wait_for, wait_until};
use crate::processes::{exists, stop_at_start};

/// The settings of a server with every role except programs, and with a short time to stop.
const ALL_ROLES: &str = "listen = [\"127.0.0.1:0\"]\nroot = \"www\"\nworkers = 1\nleast_rate = 0\n\
                         log_file = \"access.log\"\nshutdown_timeout = \"1s\"\n\
                         [[route]]\nprefix = \"/api/\"\nproxy = \"127.0.0.1:1\"\n";

fn with_all_roles(folder: &Folder) -> Server {
    Launch::configured(folder, ALL_ROLES).start()
}

/// A new worker that cannot become ready, because it is stopped.
fn unready_worker(server: &Server) -> u32 {
    wait_for("a worker that is not ready", || {
        let before = server.in_force().len();
        let unready = stop_at_start(server, "worker");
        if unready.is_none() {
            wait_until("the end of the reload", || server.in_force().len() > before);
        }
        unready
    })
}

#[test]
fn a_stop_during_a_start_ends_both_configurations() {
    let folder = Folder::with_hello();
    let mut server = with_all_roles(&folder);
    let unready = unready_worker(&server);
    server.signal("TERM");
    // A second one changes nothing.
    server.signal("TERM");
    server.signal("HUP");
    assert_eq!(server.wait().code(), Some(0), "{}", server.stderr());
    assert!(!exists(unready), "it was killed at the deadline");
    let said = server.stderr();
    assert!(said.contains("cut the remaining requests of configuration"), "{said}");
    assert!(!said.contains("stays in force"), "{said}");
}

#[test]
fn two_interrupts_during_a_start_end_it_at_once() {
    let folder = Folder::with_hello();
    let config = ALL_ROLES.replace("1s", "1h");
    let mut server = Launch::configured(&folder, &config).start();
    let unready = unready_worker(&server);
    server.signal("INT");
    wait_until("the old worker to end", || server.role("worker") == [unready]);
    assert!(!server.has_ended());
    server.signal("INT");
    server.wait();
    assert!(!exists(unready));
}

#[test]
fn a_start_that_is_killed_leaves_the_old_configuration_in_force_once() {
    let folder = Folder::with_hello();
    let mut server = with_all_roles(&folder);
    let unready = unready_worker(&server);
    // Reloads in which the worker was ready before it could be stopped.
    let before = server.in_force().len();
    // Another reload waits for the end of this one.
    server.signal("HUP");
    kill("KILL", unready);
    server.wait_for_stderr("did not start (signal: 9 (SIGKILL)");
    wait_until("the next reload", || server.in_force().len() == before + 1);
    assert_eq!(server.stderr().matches("the old configuration stays in force").count(), 1);
    assert_eq!(server.get("/hello.txt").status, 200);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
}

/// A server whose old configuration drains because of a download.
fn draining(folder: &Folder) -> (Server, Client) {
    folder.www("film.bin", film());
    let server = with_all_roles(folder);
    let mut client = server.client();
    assert_eq!(client.begin("/film.bin"), film().len());
    server.signal("HUP");
    wait_until("the new configuration", || server.in_force().len() == 1);
    (server, client)
}

#[test]
fn the_death_of_any_other_role_while_a_configuration_drains_costs_no_request() {
    let folder = Folder::with_hello();
    let (mut server, mut client) = draining(&folder);
    for (role, count) in [("keeper", 1), ("gateway", 2), ("log", 2), ("helper", 0)] {
        let old = server.role(role);
        old.iter().for_each(|pid| kill("KILL", *pid));
        wait_until("their successors", || {
            let now = server.role(role);
            now.len() >= count && old.iter().all(|pid| !now.contains(pid))
        });
        assert_eq!(server.get("/hello.txt").status, 200, "after the death of each {role}");
    }
    assert!(client.rest(film().len()) == film());
    drop(client);
    wait_until("the end of the old configuration", || {
        ["worker", "gateway", "log"].iter().all(|role| server.role(role).len() == 1)
    });
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0), "{}", server.stderr());
}

#[test]
fn the_death_of_a_worker_that_drains_is_reported_and_ends_its_configuration() {
    let folder = Folder::with_hello();
    let new = |server: &Server, old: &[u32]| {
        server.role("worker").into_iter().filter(|pid| !old.contains(pid)).collect::<Vec<_>>()
    };
    folder.www("film.bin", film());
    let server = with_all_roles(&folder);
    let old = server.role("worker");
    let mut client = server.client();
    assert_eq!(client.begin("/film.bin"), film().len());
    server.signal("HUP");
    wait_until("the new configuration", || server.in_force().len() == 1);
    old.iter().for_each(|pid| kill("KILL", *pid));
    server.wait_for_stderr("before it finished its requests");
    assert!(client.rest(film().len()).len() < film().len());
    wait_until("the end of the old configuration", || {
        ["worker", "gateway", "log"].iter().all(|role| server.role(role).len() == 1)
    });
    assert_eq!(new(&server, &old).len(), 1, "none was started in its place");
    assert_eq!(server.get("/hello.txt").status, 200);
}

#[test]
fn a_role_that_does_not_react_to_a_stop_is_killed_at_the_deadline() {
    for role in ["worker", "gateway", "log", "keeper"] {
        let folder = Folder::with_hello();
        let mut server = with_all_roles(&folder);
        assert_eq!(server.get("/hello.txt").status, 200);
        let stopped = server.sole(role);
        kill("STOP", stopped);
        let asked = Instant::now();
        server.signal("TERM");
        assert_eq!(server.wait().code(), Some(0), "{role}: {}", server.stderr());
        wait_until("its end", || !exists(stopped));
        // The keeper has no list to save, so nothing waits for it.
        let is_needed = role != "keeper";
        let said = server.stderr();
        assert_eq!(said.contains("did not finish in time"), is_needed, "{role}: {said}");
        assert!(!is_needed || asked.elapsed() >= Duration::from_secs(1), "{role} had its time");
    }
}
