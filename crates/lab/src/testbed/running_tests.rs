//! Tests of servers that are started and ended: small ones in Python, where that is installed.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;

use super::super::read_peers;
use super::super::watch::{UsageReading, Watch};
use super::*;
use flash_load::tls::{Certificate, KeyKind};

/// The HTTP server of Python's library.
const PYTHON: &str = "name = 'small'\n\
    command = ['python3', '-m', 'http.server', '--bind', '127.0.0.1', '--directory', '{root}', '{port}']\n\
    version = ['python3', '--version']\n";

/// The server of a `[[server]]` table.
fn peer(table: &str) -> Peer {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, format!("[[server]]\n{table}")).unwrap();
    read_peers(file.path()).unwrap().servers.pop().unwrap()
}

fn has_python() -> bool {
    let is_there = Command::new("python3").arg("--version").output().is_ok_and(|said| said.status.success());
    if !is_there {
        crate::skipping::skip("python3 is not installed");
    }
    is_there
}

fn get(url: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

#[test]
fn a_server_behind_a_link_is_reached_only_over_it() {
    let link = match crate::link::Link::start(&crate::link::Settings::default()) {
        Ok(link) if has_python() => link,
        Ok(_) => return,
        Err(why) => return crate::skipping::skip(&format!("no link: {why}")),
    };
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("a.txt"), "hello").unwrap();
    let testbed = Testbed::of(root.path().to_owned());
    let table = PYTHON.replace("127.0.0.1", "{address}");
    let running = peer(&table).start_behind(&testbed, &link.server).unwrap();
    assert!(running.url.starts_with("http://198.18.0.1:"), "{}", &running.url);
    // The question whether it answers does not pass the link.
    assert_eq!(link.counters().unwrap().to_server.total().came_packets, 0);
    let answer = link.client.run(|| get(&running.url, "/a.txt")).unwrap();
    assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
    assert!(link.counters().unwrap().to_client.total().delivered_packets > 0);
    running.stop().unwrap();
    let elsewhere = Peer::elsewhere("there", "http://127.0.0.1:1", None);
    assert_eq!(elsewhere.start_behind(&testbed, &link.server).unwrap_err().exit_code(), 2);
}

#[test]
fn a_server_is_started_answers_and_is_ended() {
    if !has_python() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("a.txt"), "hello").unwrap();
    let testbed = Testbed::of(root.path().to_owned());
    let running = peer(PYTHON).start(&testbed).unwrap();
    assert!(get(&running.url, "/a.txt").ends_with("\r\n\r\nhello"));
    assert!(running.version.as_ref().unwrap().starts_with("Python 3"));
    let command = "python3 -m http.server --bind 127.0.0.1 --directory {root} {port}";
    assert_eq!(running.command.as_deref(), Some(command));
    assert_eq!(running.ended(), None);
    assert!(UsageReading::of(&running.pids()).unwrap().memory_bytes > 1 << 20);
    let before = UsageReading::of(&running.pids()).unwrap();
    let watch = Watch::start(&running.pids()).unwrap();
    for _ in 0..50 {
        get(&running.url, "/a.txt");
    }
    assert!(UsageReading::of(&running.pids()).unwrap().cpu_ns > before.cpu_ns);
    assert!(watch.finish().unwrap().cpu_ns > 0);
    running.throttle(true).unwrap();
    let (pid, made) = (running.pid.unwrap(), running.started.as_ref().unwrap().folder.0.clone());
    assert!(made.join(LOG).exists());
    running.stop().unwrap();
    assert_eq!(Stat::read(pid), None);
    assert!(!made.exists());
}

#[test]
fn one_that_runs_already_is_left_alone() {
    if !has_python() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let testbed = Testbed::of(root.path().to_owned());
    let running = peer(PYTHON).start(&testbed).unwrap();
    let other = Peer::elsewhere("other", &running.url, running.pid);
    let seen = other.start(&testbed).unwrap();
    assert_eq!((&seen.url, seen.version.as_deref(), seen.command.as_deref()), (&running.url, None, None));
    assert!(UsageReading::of(&seen.pids()).unwrap().memory_bytes > 1 << 20);
    seen.stop().unwrap();
    assert_eq!(running.ended(), None);
    let dead = Peer { kind: elsewhere_for("http://127.0.0.1:1", 0.1), ..other };
    let error = dead.start(&testbed).unwrap_err();
    assert!(error.to_string().contains("other does not answer at 127.0.0.1:1 after 100 ms"), "{error}");
}

fn elsewhere_for(url: &str, patience_s: f64) -> Kind {
    let wait = Wait { path: None, patience: Duration::from_secs_f64(patience_s) };
    Kind::Elsewhere { url: url.to_owned(), pid: None, wait }
}

#[test]
fn one_that_ends_at_once_is_an_error_with_its_last_words() {
    let root = tempfile::tempdir().unwrap();
    let table = "name = 'early'\ncommand = ['sh', '-c', 'echo one; echo no such file: {root} >&2; exit 3']\n";
    let error = peer(table).start(&Testbed::of(root.path().to_owned())).unwrap_err();
    let words =
        format!("its last words: one / no such file: {}", root.path().canonicalize().unwrap().display());
    assert!(
        error.to_string().starts_with("early ended before it answered")
            && error.to_string().ends_with(&words)
    );
    assert_eq!(error.exit_code(), 1);
}

#[test]
fn one_that_never_answers_is_ended_with_its_children_and_grandchildren() {
    let root = tempfile::tempdir().unwrap();
    // A grandchild that ignores TERM, and one whose parent is gone.
    let table = "name = 'deaf'\npatience_s = 5\nenv = { ROOT = '{root}' }\n\
        command = ['sh', '{folder}/run']\n\
        [[server.file]]\nname = 'run'\ntext = '''\n\
        sh -c 'trap \"\" TERM; echo $$ > \"$ROOT/stubborn\"; while :; do sleep 1; done' &\n\
        sh -c 'sleep 600 & echo $! > \"$ROOT/orphan\"'\n\
        echo waiting; wait\n'''\n";
    let error = peer(table).start(&Testbed::of(root.path().to_owned())).unwrap_err();
    let shown = error.to_string();
    assert!(
        shown.contains("deaf does not answer at 127.0.0.1:") && shown.ends_with("last words: waiting"),
        "{shown}"
    );
    for name in ["stubborn", "orphan"] {
        let pid: u32 = fs::read_to_string(root.path().join(name)).unwrap().trim().parse().unwrap();
        // An orphan is a zombie until who got it as a child asks.
        assert!(Stat::read(pid).is_none_or(|stat| stat.is_zombie), "{name} is left");
    }
}

/// A backend: it listens on the UNIX socket of this path, and works until it is ended.
const BACKEND: &str = "backend = ['python3', '-c', 'import socket, sys, time; s = socket.socket(socket.AF_UNIX, \
    socket.SOCK_SEQPACKET); s.bind(sys.argv[1]); s.listen(); print(1); time.sleep(600)', '{socket}']\n";

#[test]
fn a_backend_is_started_first_counted_and_ended_with_its_server() {
    if !has_python() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let mut testbed = Testbed::of(root.path().to_owned());
    testbed.memory_bytes = has_groups().then_some(64 << 20);
    let running = peer(&format!("{PYTHON}{BACKEND}")).start(&testbed).unwrap();
    let made = running.started.as_ref().unwrap().folder.0.clone();
    assert!(made.join("backend.sock").exists());
    assert!(
        running
            .command
            .as_deref()
            .unwrap()
            .ends_with("& python3 -m http.server --bind 127.0.0.1 --directory {root} {port}")
    );
    let pids = running.pids();
    assert_eq!((pids.len(), pids.last().copied()), (2, running.pid));
    for pid in testbed.memory_bytes.map(|_| &pids).into_iter().flatten() {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        assert!(groups.contains("/flash-lab-"), "{groups}");
    }
    running.stop().unwrap();
    assert!(pids.iter().all(|pid| Stat::read(*pid).is_none()) && !made.exists());

    // A server whose backend has ended is not the server that was to be measured.
    let running = peer(&format!("{PYTHON}{BACKEND}")).start(&testbed).unwrap();
    program::signal(running.pids()[0], Signal::KILL).unwrap();
    let began = Instant::now();
    while running.ended().is_none() && began.elapsed() < Duration::from_secs(60) {
        thread::sleep(LOOK);
    }
    assert!(running.ended().unwrap().starts_with("the backend of small has ended"), "{:?}", running.ended());
    drop(running);
}

#[test]
fn a_backend_that_does_not_listen_is_an_error_and_the_server_is_not_started() {
    let root = tempfile::tempdir().unwrap();
    let testbed = Testbed::of(root.path().to_owned());
    let table = |backend: &str| {
        format!("name = 'x'\npatience_s = 5\ncommand = ['touch', '{{root}}/started']\nbackend = {backend}\n")
    };
    // A file is no socket.
    for (backend, words) in [
        ("['sh', '-c', 'echo no memory; exit 1']", "the backend of x ended before it listened"),
        (
            "['sh', '-c', 'echo no memory; touch {socket}; exec sleep 60']",
            "the backend of x does not listen on ",
        ),
        ("['no-such-backend']", "no program no-such-backend"),
    ] {
        let error = peer(&table(backend)).start(&testbed).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert!(error.contains("no memory") || words.starts_with("no program"), "{error}");
    }
    assert!(!root.path().join("started").exists());
}

#[test]
fn a_file_is_found_where_it_is_or_the_command_that_builds_it_is_named() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("second.so"), "").unwrap();
    let table = |first: &str| {
        format!(
            "name = 'x'\ncommand = ['test', '{{module}}']\n\
             [server.find.module]\npaths = ['{first}', '{}/second.so']\nbuild = 'make -C modules/x'\n",
            root.path().display()
        )
    };
    let of = |first: &str| peer(&table(first));
    assert!(of("no/such/first.so").check().is_ok());
    let absent = peer(&table("gone.so").replace("second", "third"));
    let error = absent.check().unwrap_err().to_string();
    assert!(
        error.contains("no gone.so and no /") && error.contains("build it with `make -C modules/x`"),
        "{error}"
    );
    assert_eq!(absent.start(&Testbed::of(root.path().to_owned())).unwrap_err().to_string(), error);
    // Named by hand, it is not looked for.
    assert!(absent.with_set("module", "/elsewhere.so").check().is_ok());
    let Kind::Started(recipe) = &absent.with_set("module", "/own.so").with_set("load", "load {module}").kind
    else {
        panic!()
    };
    let testbed = Testbed::of(root.path().to_owned());
    let values =
        prepare::values("x", recipe, &testbed, "/", root.path(), ("127.0.0.1:80".parse().unwrap(), None))
            .unwrap();
    assert_eq!((&*values["load"], &*values["module"]), ("load /own.so", "/own.so"));
    let Kind::Started(recipe) = &of("first.so").kind else { panic!() };
    assert_eq!(prepare::found("x", &recipe.find["module"]).unwrap(), root.path().join("second.so"));
    // Below a folder above this program, which is in target/debug/deps.
    let inside = peer(&table("crates/lab/Cargo.toml"));
    let Kind::Started(recipe) = &inside.kind else { panic!() };
    if let Ok(found) = prepare::found("x", &recipe.find["module"]) {
        assert!(found.ends_with("crates/lab/Cargo.toml") || found.ends_with("second.so"), "{found:?}");
    }
}

#[test]
fn a_missing_program_is_named_with_its_package() {
    let testbed = Testbed::of("/".into());
    let table = "name = 'none'\npackage = 'some-package'\ncommand = ['no-such-program']\n";
    let peer = peer(table);
    let shown = peer.check().unwrap_err().to_string();
    assert!(
        shown.contains("no program no-such-program") && shown.contains("apt-get install some-package"),
        "{shown}"
    );
    assert_eq!(peer.start(&testbed).unwrap_err().to_string(), shown);
}

#[test]
fn a_core_is_needed_where_it_is_used_and_must_be_there() {
    let mut testbed = Testbed::of("/".into());
    let error = peer("name = 'c'\ncommand = ['sh', '{core}']\n").start(&testbed).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    testbed.core = Some(1000);
    let error = peer("name = 'c'\ncommand = ['sh']\n").start(&testbed).unwrap_err();
    assert!(error.to_string().starts_with("cannot start c on core 1000: "), "{error}");
}

#[test]
fn a_server_ends_with_a_caller_that_panics() {
    if !has_python() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let testbed = Testbed::of(root.path().to_owned());
    let pid = std::sync::Mutex::new(0);
    let caller = std::panic::catch_unwind(|| {
        let running = peer(PYTHON).start(&testbed).unwrap();
        *pid.lock().unwrap() = running.pid.unwrap();
        std::panic::resume_unwind(Box::new("over"));
    });
    assert!(caller.is_err());
    assert_eq!(Stat::read(*pid.lock().unwrap()), None);
}

/// Whether there are groups of cgroups v1 to be made here.
fn has_groups() -> bool {
    let is_there = flash_waiting::sandbox::privileges::is_root()
        && ["memory", "blkio", "cpu"].iter().all(|name| Path::new("/sys/fs/cgroup").join(name).exists());
    if !is_there {
        crate::skipping::skip("no root, or no cgroups v1 under /sys/fs/cgroup");
    }
    is_there
}

#[test]
fn a_server_is_in_its_groups_and_they_go_with_it() {
    if !has_groups() || !has_python() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let testbed = Testbed {
        root: Some(root.path().to_owned()),
        core: Some(0),
        memory_bytes: Some(64 << 20),
        reads_per_s: Some(150),
        cpu_percent: Some(20),
        ..Testbed::default()
    };
    testbed.check().unwrap();
    let running = peer(PYTHON).start(&testbed).unwrap();
    let pid = running.pid.unwrap();
    let lines = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let group = |controller: &str| {
        let path = lines.lines().find_map(|line| line.split_once(controller).map(|(_, path)| path)).unwrap();
        PathBuf::from(format!("/sys/fs/cgroup{}{path}", controller.replace(':', "/").trim_end_matches('/')))
    };
    let (memory, blkio, cpu) = (group(":memory:"), group(":blkio:"), group(":cpu:"));
    assert!(memory.file_name().unwrap().to_str().unwrap().starts_with("flash-lab-"), "{lines}");
    let read = |path: PathBuf| fs::read_to_string(path).unwrap().trim().to_owned();
    assert_eq!(read(memory.join("memory.limit_in_bytes")), "67108864");
    assert_eq!(read(memory.join("cgroup.procs")), pid.to_string());
    let throttle = blkio.join("blkio.throttle.read_iops_device");
    let quota = cpu.join("cpu.cfs_quota_us");
    assert_eq!((read(throttle.clone()), read(quota.clone())), (String::new(), "-1".to_owned()));
    running.throttle(true).unwrap();
    assert!(read(throttle.clone()).ends_with(" 150"));
    assert_eq!(read(quota.clone()), "2060");
    running.throttle(false).unwrap();
    assert_eq!((read(throttle), read(quota)), (String::new(), "-1".to_owned()));
    let cores = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(cores.contains("Cpus_allowed_list:\t0\n"));
    running.stop().unwrap();
    assert!(!memory.exists() && !blkio.exists() && !cpu.exists());
}

#[test]
fn one_that_needs_more_memory_than_it_has_says_so() {
    if !has_groups() || !has_python() {
        return;
    }
    let table = "name = 'fat'\ncommand = ['python3', '-c', \"x = b'x' * (1 << 30)\"]\n";
    let testbed = Testbed { memory_bytes: Some(32 << 20), ..Testbed::of("/".into()) };
    let error = peer(table).start(&testbed).unwrap_err();
    assert!(
        error.to_string().ends_with("its memory is too small: the kernel killed 1 of its processes"),
        "{error}"
    );
}

#[test]
fn ready_made_servers_serve_where_they_are_installed() {
    let root = tempfile::tempdir().unwrap();
    // Apache's processes are another user's.
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(root.path().join("a.txt"), "hello").unwrap();
    let testbed = Testbed::of(root.path().to_owned());
    for name in super::super::ready_made_names() {
        let peer = super::super::ready_made(name).unwrap();
        // `{flash}` is this program, which is the tests here. `tests/lab` tests the servers that need it.
        let Kind::Started(recipe) = &peer.kind else { panic!("{peer:?}") };
        if name == "flash" || !recipe.backend.is_empty() {
            continue;
        }
        if let Err(error) = peer.check() {
            crate::skipping::skip(&format!("in part: {error}"));
            continue;
        }
        let running = peer.start(&testbed).unwrap();
        assert!(running.version.is_some(), "{name}");
        let answer = get(&running.url, "/a.txt");
        assert!(answer.contains(" 200 OK\r\n") && answer.ends_with("\r\n\r\nhello"), "{name}: {answer}");
        let started = running.started.as_ref().unwrap();
        let (processes, made) = (started.processes(), started.folder.0.clone());
        assert!(!processes.is_empty());
        running.stop().unwrap();
        assert!(!processes.iter().any(|process| tree::is_alive(*process)), "{name} left a process");
        assert!(!made.exists());
        let speaks_tls = recipe.files.values().any(|text| text.contains("{certificate}"));
        for has_http2 in [false, true] {
            let certificate = Certificate::make(vec!["127.0.0.1".to_owned()], KeyKind::Ecdsa).unwrap();
            let secure = Testbed { certificate: Some(certificate), has_http2, ..testbed.clone() };
            match peer.start(&secure) {
                Ok(running) => assert!(speaks_tls && running.url.starts_with("https://127."), "{name}"),
                Err(why) => assert!(!speaks_tls && why.exit_code() == 2, "{name}: {why}"),
            }
        }
    }
}

#[test]
fn groups_hold_what_left_the_session() {
    if !has_groups() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let table = "name = 'daemon'\npatience_s = 5\nenv = { ROOT = '{root}' }\n\
        command = ['sh', '-c', 'setsid sh {folder}/leave; exec sleep 600']\n\
        [[server.file]]\nname = 'leave'\ntext = 'sleep 600 & echo $! > \"$ROOT/pid\"'\n";
    let testbed = Testbed { memory_bytes: Some(64 << 20), ..Testbed::of(root.path().to_owned()) };
    peer(table).start(&testbed).unwrap_err();
    let pid: u32 = fs::read_to_string(root.path().join("pid")).unwrap().trim().parse().unwrap();
    assert!(Stat::read(pid).is_none_or(|stat| stat.is_zombie), "the daemon is left");
}

#[test]
fn the_kept_thread_ends_with_the_server() {
    let place = program::Placement {
        core: None,
        groups: Vec::new(),
        descriptors: 64,
        network: None,
        parent_death: Signal::TERM,
    };
    let mut command = Command::new("sleep");
    command.arg("600");
    let (mut child, keeper) =
        std::thread::spawn(|| prepare::start_kept(command, place)).join().unwrap().unwrap();
    // The thread that asked for it is gone, and it runs.
    assert!(child.try_wait().unwrap().is_none());
    drop(keeper);
    // As if the lab had been killed: it gets its stop signal.
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
}

#[test]
fn logs_end_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(LOG);
    assert_eq!(last_words(&path), "it said nothing");
    fs::write(&path, "x".repeat(10_000) + "\n\na\n  b \nc\nd\n").unwrap();
    assert_eq!(last_words(&path), "a / b / c / d");
}

#[test]
fn commands_are_shown_as_one_would_type_them() {
    let set = BTreeMap::from([("threads".to_owned(), "2".to_owned())]);
    let words = ["{flash}", "-t{threads}", "{root}", "a b", "it's", ""].map(str::to_owned);
    assert_eq!(prepare::shown(&[&[], &words], &set), "flash -t2 {root} 'a b' 'it'\\''s' ''");
    let backend = ["{flash}", "backend", "{socket}"].map(str::to_owned);
    let nginx = ["nginx".to_owned()];
    assert_eq!(prepare::shown(&[&backend, &nginx], &set), "flash backend {socket} & nginx");
}

#[test]
fn a_count_is_still_when_it_no_longer_changes() {
    let count = std::cell::Cell::new(0);
    let next = |end: u64| {
        count.set((count.get() + 1).min(end));
        count.get()
    };
    let still = Duration::from_millis(10);
    assert!(is_still_within(Duration::from_secs(60), still, || next(5)));
    assert_eq!(count.get(), 5, "it waited until there was no change");
    assert!(!is_still_within(Duration::from_millis(100), still, || next(u64::MAX)));
}
