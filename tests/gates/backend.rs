//! `flash backend` itself: its protocol, bounds and processes.

pub(crate) mod packets;
mod systemd;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use flash_prompt::AsFd;
use flash_waiting::local;
use flash_waiting::sandbox::privileges::{Account, Keep, with_rights_of};

use crate::harness::disk::Disk;
use crate::harness::{
    Folder, Launch, PATIENCE, Server, evict, is_root, kill, pattern, skip, stats_at, wait_until,
};
use packets::{Packets, Reply, message};

const ENOENT: u32 = 2;
const EACCES: u32 = 13;
const EINVAL: u32 = 22;
const ETIMEDOUT: u32 = 110;

/// A folder, and a backend at `socket` in it.
fn backend() -> (Folder, PathBuf, Server) {
    backend_with(|launch| launch)
}

fn backend_with(change: impl FnOnce(Launch) -> Launch) -> (Folder, PathBuf, Server) {
    let folder = Folder::with_hello();
    let socket = folder.path("socket");
    let server = change(Launch::backend(&socket, None)).start();
    (folder, socket, server)
}

/// A backend, and a disk that hangs on command.
fn backend_and_disk(words: [&str; 2]) -> Option<(Folder, PathBuf, Server, Disk)> {
    let folder = Folder::with_hello();
    for name in ["a", "b", "c", "d"] {
        folder.write(&format!("disk/{name}.txt"), name);
    }
    let disk = Disk::mount(&folder.path("disk"), &folder.path("mount"))?;
    let socket = folder.path("socket");
    let server = Launch::backend(&socket, None).args(words).start();
    Some((folder, socket, server, disk))
}

#[test]
fn names_get_the_result_of_their_file_system() {
    let (folder, socket, mut server) = backend();
    let client = Packets::to(&socket);
    fs::write(folder.served("secret"), "x").unwrap();
    fs::set_permissions(folder.served("secret"), Permissions::from_mode(0o000)).unwrap();
    let readable = |path: &str| folder.served(path);
    for (id, path) in (1..).zip([readable("hello.txt"), readable("."), "/dev/null".into(), "/".into()]) {
        client.name(id, path);
        assert_eq!(client.reply(), Reply::Ready { id });
    }
    client.name(10, folder.served("none"));
    assert_eq!(client.reply(), Reply::Errno { id: 10, number: ENOENT });
    if is_root() {
        client.name(11, folder.served("secret"));
        assert_eq!(client.reply(), Reply::Errno { id: 11, number: EACCES }, "root's rights are given up");
    }
    server.signal("TERM");
    assert_eq!(client.reply(), Reply::End);
    assert_eq!(server.wait().code(), Some(0));
    assert_eq!(server.stderr(), "");
    assert!(!socket.exists(), "the socket is removed");
}

#[test]
fn a_range_is_in_memory_when_its_reply_comes() {
    let (_folder, socket, _server) = backend();
    // On the disk of the sources, because a file in memory is never cold.
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("range-{}.tmp", std::process::id()));
    fs::write(&path, pattern(3 << 20, 5)).unwrap();
    let file = File::open(&path).unwrap();
    evict(&path);
    fs::remove_file(&path).unwrap();
    let resident = |offset, length| flash_prompt::file::resident(&file, offset, length);
    let client = Packets::to(&socket);
    let is_told = resident(0, 1).is_ok();
    for (id, offset, length) in [(1, 0, 1), (2, 1 << 20, 1 << 20), (3, (2 << 20) + 7, 600_000)] {
        client.range(id, &file, (offset, length));
        assert_eq!(client.reply(), Reply::Ready { id });
        if is_told {
            assert_eq!(resident(offset, length as usize), Ok(true), "{length} bytes at {offset}");
        }
    }
    client.range(4, &file, (1 << 40, 1));
    assert_eq!(client.reply(), Reply::Ready { id: 4 }, "beyond the end nothing has to be read");
    client.range(5, &File::open("/dev/zero").unwrap(), (0, 1));
    assert_eq!(client.reply(), Reply::Errno { id: 5, number: EINVAL });
    client.range(6, &file, (u64::MAX, 1));
    assert_eq!(client.reply(), Reply::Errno { id: 6, number: EINVAL });
    if !is_told {
        skip("this kernel or file system does not report residency");
    }
}

#[test]
fn equal_requests_are_read_once() {
    let folder = Folder::with_hello();
    let control = folder.path("control");
    folder.write("disk/a.txt", "a");
    let Some(mut disk) = Disk::mount(&folder.path("disk"), &folder.path("mount")) else { return };
    let socket = folder.path("socket");
    let _server = Launch::backend(&socket, Some(&control)).start();
    let clients = [Packets::to(&socket), Packets::to(&socket)];
    disk.tell("lookup hang");
    clients.iter().for_each(|client| client.name(7, folder.path("mount/a.txt")));
    disk.wait_until_held(1);
    wait_until("both requests", || stats_at(&control)["sum"]["backend"]["pending"] == 2);
    assert_eq!(disk.tell("held"), "1");
    disk.tell("all ok");
    clients.iter().for_each(|client| assert_eq!(client.reply(), Reply::Ready { id: 7 }));
    let stats = stats_at(&control);
    let told = &stats["sum"]["backend"];
    assert_eq!(
        (&told["names"], &told["joined"], &told["ready"]),
        (&2.into(), &1.into(), &2.into()),
        "{told}"
    );
    assert_eq!(told["clients"]["test"]["connections"], 2);
    // A worker that tells its counters too late is missing from a table.
    wait_until("the same counters in a table", || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flash"));
        let output = command.args(["stats", "--control"]).arg(&control).output().unwrap();
        let table = String::from_utf8(output.stdout).unwrap();
        table.contains(" 2 names ") && table.contains(" 1 joined ")
    });
}

#[test]
fn a_hung_file_system_delays_only_its_own_requests() {
    let Some((folder, socket, server, mut disk)) = backend_and_disk(["--job-deadline", "1h"]) else { return };
    let client = Packets::to(&socket);
    for op in ["lookup", "open"] {
        disk.tell(&format!("{op} hang"));
        for (id, name) in (1..).zip(["a", "b", "c", "d"]) {
            client.name_within(id, folder.path(format!("mount/{name}.txt")), 300);
        }
        disk.wait_until_held(1);
        client.name(10, folder.served("hello.txt"));
        let replies: Vec<Reply> = (0..5).map(|_| client.reply()).collect();
        assert!(replies.contains(&Reply::Ready { id: 10 }), "{op}: {replies:?}");
        for id in 1..=4 {
            assert!(replies.contains(&Reply::Errno { id, number: ETIMEDOUT }), "{op}: {replies:?}");
        }
        disk.tell("all ok");
        // A job of this round that still runs would answer a request of the next one.
        for name in ["a", "b", "c", "d"] {
            client.name(11, folder.path(format!("mount/{name}.txt")));
            assert_eq!(client.reply(), Reply::Ready { id: 11 });
        }
    }
    client.name(20, folder.path("mount/a.txt"));
    assert_eq!(client.reply(), Reply::Ready { id: 20 });
    assert_eq!(server.stderr(), "");
}

#[test]
fn a_job_that_hangs_is_given_up_at_its_deadline() {
    let Some((folder, socket, server, mut disk)) = backend_and_disk(["--job-deadline", "500ms"]) else {
        return;
    };
    let client = Packets::to(&socket);
    disk.tell("lookup hang");
    // The start of a helper can take longer than this deadline.
    wait_until("a job that hangs", || {
        client.name(1, folder.path("mount/a.txt"));
        assert_eq!(client.reply(), Reply::Errno { id: 1, number: ETIMEDOUT });
        disk.tell("held") != "0"
    });
    wait_until("a reply of the local disk", || {
        client.name(2, folder.served("hello.txt"));
        client.reply() == Reply::Ready { id: 2 }
    });
    let given_up = server.role("helper").len();
    assert!(given_up >= 2, "the helper that hangs cannot end yet, and another works: {given_up}");
    disk.tell("all ok");
    wait_until("the end of the helper that was given up", || server.role("helper").len() < given_up);
}

/// Set in the process that does one test alone.
const ALONE: &str = "FLASH_GATES_ALONE";

/// The kernel closes the files of a new process when it executes its program. With a file whose close hangs, no other
/// test of this process could start a server, so this one has a process of its own.
#[test]
fn a_file_whose_close_hangs_stops_only_its_own_share() {
    let name = "backend::a_file_whose_close_hangs_stops_only_its_own_share";
    if std::env::var_os(ALONE).is_none() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        let status = alone.args([name, "--exact", "--nocapture"]).env(ALONE, "1").status().unwrap();
        return assert!(status.success());
    }
    let Some((folder, socket, _server, disk)) = backend_and_disk(["--job-deadline", "1h"]) else { return };
    let client = Packets::to(&socket);
    let file = File::open(folder.path("mount/a.txt")).unwrap();
    // Unmounted before the file is closed, also when the test fails.
    let mut disk = disk;
    disk.tell("flush hang");
    client.range(1, &file, (0, 1));
    client.close(&file);
    // The backend's loop and a helper have each a copy to close.
    disk.wait_until_held(2);
    let local = File::open(folder.served("hello.txt")).unwrap();
    for id in 2..10 {
        client.range(id, &local, (0, 1));
        assert_eq!(client.reply(), Reply::Ready { id });
        client.close(&local);
    }
    disk.tell("all ok");
    assert_eq!(client.reply(), Reply::Ready { id: 1 });
}

#[test]
fn a_closed_file_leaves_the_backend() {
    let (folder, socket, server) = backend();
    let client = Packets::to(&socket);
    let path = folder.served("deleted");
    fs::write(&path, "x").unwrap();
    let file = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    client.range(1, &file, (0, 1));
    client.close(&file);
    client.range(2, &file, (0, 1));
    assert_eq!(client.reply(), Reply::Ready { id: 1 });
    assert_eq!(client.reply(), Reply::Ready { id: 2 });
    drop(file);
    let worker = server.sole("worker");
    let holds = |pid: u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.filter_map(|entry| fs::read_link(entry.path()).ok())
            .any(|target| target.to_string_lossy().contains("/deleted"))
    };
    let helpers = server.role("helper");
    wait_until("the file to be closed", || {
        helpers.iter().chain([&worker]).all(|pid| !holds(*pid)) && Path::new("/proc/self").exists()
    });
}

#[test]
fn another_version_is_refused_with_a_reason() {
    let (_folder, socket, _server) = backend();
    let client = Packets::stranger(&socket).unwrap();
    client.hello(2, 0);
    assert_eq!((client.reply(), client.reply()), (Reply::Hello { status: 1 }, Reply::End));
    Packets::to(&socket);
}

#[test]
fn only_allowed_users_are_welcome() {
    if !is_root() {
        return skip("needs root, to connect as other users");
    }
    let (_folder, socket, _server) = backend_with(|launch| launch.args(["--allow", "4242"]));
    let connect_as = |uid| {
        let account = Account { uid, gid: uid, groups: vec![uid] };
        with_rights_of(Some(&account), Keep::Nothing, || Packets::stranger(&socket)).unwrap()
    };
    let refused = connect_as(4243).expect_err("the permissions of the socket");
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    // Whoever opens the socket to others still has the backend's own list.
    fs::set_permissions(socket.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
    for (uid, replies) in
        [(4243, &[Reply::Hello { status: 2 }, Reply::End][..]), (4242, &[Reply::Hello { status: 0 }])]
    {
        let client = connect_as(uid).unwrap();
        client.hello(1, 0);
        for expected in replies {
            assert_eq!(client.reply(), *expected, "{uid}");
        }
    }
}

#[test]
fn garbage_ends_only_its_own_connection() {
    let (folder, socket, server) = backend();
    let witness = Packets::to(&socket);
    let file = File::open("/dev/null").unwrap();
    let name = |path: &[u8]| message(2, 1, &[&[0; 8], path].concat());
    let wrong: [(Vec<u8>, usize); 9] = [
        (message(77, 1, &[]), 0),
        (message(130, 1, &[]), 0),
        (name(b"relative"), 0),
        (name(b"/a\0b"), 0),
        (name(b"/fine"), 1),
        (name(&[b'/'; 5000]), 0),
        (message(4, 0, &[]), 0),
        (message(4, 0, &[]), 2),
        (message(3, 1, &[0; 32]), 1),
    ];
    for (bytes, descriptors) in &wrong {
        for client in [Packets::stranger(&socket).unwrap(), Packets::to(&socket)] {
            client.send(bytes, &vec![file.as_fd(); *descriptors]);
            assert_eq!(client.reply(), Reply::End, "{descriptors} descriptors with {bytes:?}");
        }
    }
    let before_hello = Packets::stranger(&socket).unwrap();
    before_hello.name(1, "/");
    assert_eq!(before_hello.reply(), Reply::End);
    for seed in 0..200 {
        let client = Packets::to(&socket);
        let mut bytes = pattern(1 + seed as usize * 3, seed);
        bytes[0] = 1 + (seed % 6) as u8;
        client.send(&bytes, &vec![file.as_fd(); seed as usize % 3]);
    }
    witness.name(1, folder.served("hello.txt"));
    assert_eq!(witness.reply(), Reply::Ready { id: 1 });
    assert_eq!(server.stderr(), "", "the worker has survived");
}

#[test]
fn connections_without_a_hello_are_bounded() {
    let (_folder, socket, _server) = backend();
    let silent: Vec<Packets> = (0..64).map(|_| Packets::stranger(&socket).unwrap()).collect();
    let refused = Packets::stranger(&socket).unwrap();
    assert_eq!((refused.reply(), refused.reply()), (Reply::Hello { status: 3 }, Reply::End));
    drop(silent);
    wait_until("a free place", || {
        let client = Packets::stranger(&socket).unwrap();
        client.hello(1, 0);
        client.reply() == Reply::Hello { status: 0 }
    });
}

#[test]
fn the_quota_holds_for_all_connections_of_a_group() {
    let folder = Folder::with_hello();
    let (socket, control) = (folder.path("socket"), folder.path("control"));
    let forever = ["--delay", "3600000"];
    let _server = Launch::backend(&socket, Some(&control)).args(forever).start();
    let wait_for_pending = |count: u64| {
        wait_until("the requests", || stats_at(&control)["sum"]["backend"]["pending"] == count);
    };
    let (a, b) = (Packets::limited(&socket, 2), Packets::limited(&socket, 2));
    a.name(1, folder.served("hello.txt"));
    b.name(2, folder.served("hello.txt"));
    wait_for_pending(2);
    a.name(3, "/");
    assert_eq!(a.reply(), Reply::Busy { id: 3 });
    b.cancel(2);
    wait_for_pending(1);
    a.name(4, "/");
    a.name(5, "/");
    assert_eq!(a.reply(), Reply::Busy { id: 5 });
    drop(a);
    wait_for_pending(0);
    assert_eq!(stats_at(&control)["sum"]["backend"]["busy"]["quota"], 2);
}

#[test]
fn a_withdrawn_request_gets_no_reply() {
    let Some((folder, socket, _server, mut disk)) = backend_and_disk(["--job-deadline", "1h"]) else {
        return;
    };
    let client = Packets::to(&socket);
    disk.tell("lookup hang");
    client.name(1, folder.path("mount/a.txt"));
    disk.wait_until_held(1);
    client.cancel(1);
    client.name(2, folder.served("hello.txt"));
    assert_eq!(client.reply(), Reply::Ready { id: 2 });
    disk.tell("all ok");
    client.name(3, folder.path("mount/a.txt"));
    assert_eq!(client.reply(), Reply::Ready { id: 3 });
}

#[test]
fn a_killed_worker_is_replaced_behind_the_same_socket() {
    let (folder, socket, server) = backend();
    let client = Packets::to(&socket);
    let worker = server.sole("worker");
    kill("KILL", worker);
    assert_eq!(client.reply(), Reply::End);
    let again = Packets::to(&socket);
    again.name(1, folder.served("hello.txt"));
    assert_eq!(again.reply(), Reply::Ready { id: 1 });
    assert_ne!(server.sole("worker"), worker);
    server.wait_for_stderr("starting another");
}

#[test]
fn a_killed_helper_costs_its_request_only() {
    let folder = Folder::with_hello();
    let (socket, control) = (folder.path("socket"), folder.path("control"));
    let server = Launch::backend(&socket, Some(&control)).start();
    let client = Packets::to(&socket);
    client.name(1, folder.served("hello.txt"));
    assert_eq!(client.reply(), Reply::Ready { id: 1 });
    let helper = server.sole("helper");
    kill("STOP", helper);
    client.name(2, folder.served("hello.txt"));
    wait_until("the job to be given to it", || stats_at(&control)["sum"]["helpers"]["busy"] == 1);
    kill("KILL", helper);
    assert!(matches!(client.reply(), Reply::Errno { id: 2, .. }));
    client.name(3, folder.served("hello.txt"));
    assert_eq!(client.reply(), Reply::Ready { id: 3 });
}

#[test]
fn only_a_stale_socket_is_replaced() {
    let (folder, socket, mut server) = backend();
    let (code, _, said) = Launch::backend(&socket, None).fail();
    assert_eq!(code, Some(1));
    assert!(said.contains("another backend uses it"), "{said}");
    Packets::to(&socket);
    kill("KILL", server.pid());
    server.wait();
    assert!(socket.exists());
    let again = Launch::backend(&socket, None).start();
    Packets::to(&socket);
    drop(again);
    for (name, expected) in [("www/hello.txt", "not a socket"), ("none/socket", "create its folder")] {
        let (code, _, said) = Launch::backend(&folder.path(name), None).fail();
        assert_eq!(code, Some(1));
        assert!(said.contains(expected) && said.contains("--socket"), "{said}");
    }
    let stream = folder.path("stream");
    let _listener = UnixListener::bind(&stream).unwrap();
    let (_, _, said) = Launch::backend(&stream, None).fail();
    assert!(said.contains("another backend uses it") || said.contains("another program"), "{said}");
}

#[test]
fn a_reload_keeps_the_socket_and_answers_what_it_knows() {
    let Some((folder, socket, mut server, mut disk)) = backend_and_disk(["--job-deadline", "1h"]) else {
        return;
    };
    let (busy, idle) = (Packets::to(&socket), Packets::to(&socket));
    disk.tell("lookup hang");
    busy.name(1, folder.path("mount/a.txt"));
    disk.wait_until_held(1);
    let worker = server.sole("worker");
    server.signal("HUP");
    assert_eq!(idle.reply(), Reply::End, "an idle connection ends at once");
    let new = Packets::to(&socket);
    new.name(1, folder.served("hello.txt"));
    assert_eq!(new.reply(), Reply::Ready { id: 1 });
    assert_eq!(busy.reply_within(Duration::ZERO), None);
    disk.tell("all ok");
    assert_eq!((busy.reply(), busy.reply()), (Reply::Ready { id: 1 }, Reply::End));
    wait_until("the old worker's end", || !server.role("worker").contains(&worker));
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_stop_answers_open_requests_first() {
    let Some((folder, socket, mut server, mut disk)) = backend_and_disk(["--job-deadline", "1h"]) else {
        return;
    };
    let client = Packets::to(&socket);
    disk.tell("lookup hang");
    client.name(1, folder.path("mount/a.txt"));
    disk.wait_until_held(1);
    server.signal("TERM");
    wait_until("the end of the socket", || !socket.exists());
    assert!(!server.has_ended());
    disk.tell("all ok");
    assert_eq!((client.reply(), client.reply()), (Reply::Ready { id: 1 }, Reply::End));
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn systemd_passes_the_socket_and_learns_the_state() {
    let folder = Folder::with_hello();
    let (socket, state) = (folder.path("socket"), folder.path("state"));
    let listener = local::listen_packets(&socket, 0o600).unwrap();
    let states = UnixDatagram::bind(&state).unwrap();
    states.set_read_timeout(Some(PATIENCE)).unwrap();
    // Skips the messages for people.
    let next = || loop {
        let mut text = [0; 100];
        let length = states.recv(&mut text).unwrap();
        let text = String::from_utf8_lossy(&text[..length]);
        if !text.starts_with("STATUS=flash ") {
            return text.into_owned();
        }
    };
    let script =
        "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" backend --control none --user root";
    let script = if is_root() { script } else { script.strip_suffix(" --user root").unwrap() };
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_flash")]).env("NOTIFY_SOCKET", &state);
    let mut child = command.stdin(listener).stdout(Stdio::null()).spawn().unwrap();
    assert_eq!(next(), "READY=1");
    let client = Packets::to(&socket);
    client.name(1, folder.served("hello.txt"));
    assert_eq!(client.reply(), Reply::Ready { id: 1 });
    kill("HUP", child.id());
    assert!(next().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(next(), "READY=1");
    Packets::to(&socket);
    kill("TERM", child.id());
    assert_eq!(next(), "STOPPING=1");
    assert!(child.wait().unwrap().success());
    assert!(socket.exists(), "systemd's socket is not ours to remove");
}
