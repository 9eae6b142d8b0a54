//! Tests of servers that are started and ended: small ones in Python, where that is installed.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;

use super::super::{Wishes, read_peers};
use super::*;

/// The HTTP server of Python's library.
const PYTHON: &str = "name = 'small'\n\
    command = ['python3', '-m', 'http.server', '--bind', '127.0.0.1', '--directory', '{root}', '{port}']\n\
    version = ['python3', '--version']\n";

/// A fresh folder for a test.
fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("flash-lab-test-{name}-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    path
}

/// The server of a `[[server]]` table.
fn peer(name: &str, table: &str) -> Peer {
    let folder = folder(&format!("{name}-toml"));
    let path = folder.join("peers.toml");
    fs::write(&path, format!("[[server]]\n{table}")).unwrap();
    let peer = read_peers(&path).unwrap().servers.pop().unwrap();
    fs::remove_dir_all(folder).unwrap();
    peer
}

fn has_python() -> bool {
    let is_there = Command::new("python3").arg("--version").output().is_ok_and(|said| said.status.success());
    if !is_there {
        eprintln!("skipped: python3 is not installed");
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
fn a_server_is_started_answers_and_is_ended() {
    if !has_python() {
        return;
    }
    let root = folder("started");
    fs::write(root.join("a.txt"), "hello").unwrap();
    let place = Wishes::default().place(root.clone());
    let running = peer("started", PYTHON).start(&place).unwrap();
    assert!(get(running.url(), "/a.txt").ends_with("\r\n\r\nhello"));
    assert!(running.version().unwrap().starts_with("Python 3"));
    let command = "python3 -m http.server --bind 127.0.0.1 --directory {root} {port}";
    assert_eq!(running.command(), Some(command));
    assert_eq!(running.ended(), None);
    assert!(running.usage().unwrap().memory_bytes > 1 << 20);
    let before = running.usage().unwrap();
    let watch = running.watch().unwrap().unwrap();
    for _ in 0..50 {
        get(running.url(), "/a.txt");
    }
    assert!(running.usage().unwrap().cpu_ns > before.cpu_ns);
    assert!(watch.finish().unwrap().cpu_ns > 0);
    running.throttle(true).unwrap();
    let (pid, made) = (running.pid().unwrap(), running.started.as_ref().unwrap().folder.0.clone());
    assert!(made.join(LOG).exists());
    running.stop().unwrap();
    assert_eq!(Stat::read(pid), None);
    assert!(!made.exists());
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn one_that_runs_already_is_left_alone() {
    if !has_python() {
        return;
    }
    let root = folder("elsewhere");
    let place = Wishes::default().place(root.clone());
    let running = peer("elsewhere", PYTHON).start(&place).unwrap();
    let other = Peer::elsewhere("other", running.url(), running.pid());
    let seen = other.start(&place).unwrap();
    assert_eq!((seen.url(), seen.version(), seen.command()), (running.url(), None, None));
    assert!(seen.usage().unwrap().memory_bytes > 1 << 20);
    seen.stop().unwrap();
    assert_eq!(running.ended(), None);
    let dead = Peer { kind: elsewhere_for("http://127.0.0.1:1", 0.1), ..other };
    let error = dead.start(&place).unwrap_err();
    assert!(error.to_string().contains("other does not answer at 127.0.0.1:1 after 0.1 s"), "{error}");
    fs::remove_dir_all(root).unwrap();
}

fn elsewhere_for(url: &str, patience_s: f64) -> Kind {
    let wait = Wait { path: None, patience: Duration::from_secs_f64(patience_s) };
    Kind::Elsewhere { url: url.to_owned(), pid: None, wait }
}

#[test]
fn one_that_ends_at_once_is_an_error_with_its_last_words() {
    let root = folder("early");
    let table = "name = 'early'\ncommand = ['sh', '-c', 'echo one; echo no such file: {root} >&2; exit 3']\n";
    let error = peer("early", table).start(&Wishes::default().place(root.clone())).unwrap_err();
    let words = format!("its last words: one / no such file: {}", root.canonicalize().unwrap().display());
    assert!(
        error.to_string().starts_with("early ended before it answered")
            && error.to_string().ends_with(&words)
    );
    assert_eq!(error.exit_code(), 1);
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn one_that_never_answers_is_ended_with_its_children_and_grandchildren() {
    let root = folder("deaf");
    // A grandchild that ignores TERM, and one whose parent is gone.
    let table = "name = 'deaf'\npatience_s = 1\nenv = { ROOT = '{root}' }\n\
        command = ['sh', '{folder}/run']\n\
        [[server.file]]\nname = 'run'\ntext = '''\n\
        sh -c 'trap \"\" TERM; echo $$ > \"$ROOT/stubborn\"; while :; do sleep 1; done' &\n\
        sh -c 'sleep 600 & echo $! > \"$ROOT/orphan\"'\n\
        echo waiting; wait\n'''\n";
    let error = peer("deaf", table).start(&Wishes::default().place(root.clone())).unwrap_err();
    let shown = error.to_string();
    assert!(
        shown.contains("deaf does not answer at 127.0.0.1:") && shown.ends_with("last words: waiting"),
        "{shown}"
    );
    for name in ["stubborn", "orphan"] {
        let pid: u32 = fs::read_to_string(root.join(name)).unwrap().trim().parse().unwrap();
        // An orphan is a zombie until who got it as a child asks.
        assert!(Stat::read(pid).is_none_or(|stat| stat.is_zombie), "{name} is left");
    }
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn a_missing_program_is_named_with_its_package() {
    let place = Wishes::default().place("/".into());
    let table = "name = 'none'\npackage = 'some-package'\ncommand = ['no-such-program']\n";
    let peer = peer("none", table);
    let shown = peer.check().unwrap_err().to_string();
    assert!(
        shown.contains("no program no-such-program") && shown.contains("apt-get install some-package"),
        "{shown}"
    );
    assert_eq!(peer.start(&place).unwrap_err().to_string(), shown);
}

#[test]
fn a_core_is_needed_where_it_is_used_and_must_be_there() {
    let mut place = Wishes::default().place("/".into());
    let error = peer("core", "name = 'c'\ncommand = ['sh', '{core}']\n").start(&place).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    place.core = Some(1000);
    let error = peer("cores", "name = 'c'\ncommand = ['sh']\n").start(&place).unwrap_err();
    assert!(error.to_string().starts_with("cannot start c on core 1000: sh: "), "{error}");
}

#[test]
fn a_server_ends_with_a_caller_that_panics() {
    if !has_python() {
        return;
    }
    let root = folder("panic");
    let place = Wishes::default().place(root.clone());
    let pid = std::sync::Mutex::new(0);
    let caller = std::panic::catch_unwind(|| {
        let running = peer("panic", PYTHON).start(&place).unwrap();
        *pid.lock().unwrap() = running.pid().unwrap();
        std::panic::resume_unwind(Box::new("over"));
    });
    assert!(caller.is_err());
    assert_eq!(Stat::read(*pid.lock().unwrap()), None);
    fs::remove_dir_all(root).unwrap();
}

/// Whether there are groups of cgroups v1 to be made here.
fn has_groups() -> bool {
    let is_there = flash_waiting::sandbox::privileges::is_root()
        && ["memory", "blkio"].iter().all(|name| Path::new("/sys/fs/cgroup").join(name).exists());
    if !is_there {
        eprintln!("skipped: no root, or no cgroups v1 under /sys/fs/cgroup");
    }
    is_there
}

#[test]
fn a_server_is_in_its_groups_and_they_go_with_it() {
    if !has_groups() || !has_python() {
        return;
    }
    let root = folder("groups");
    let place = Place {
        root: root.clone(),
        core: Some(0),
        memory_bytes: Some(64 << 20),
        reads_per_s: Some(150),
        cpu_percent: None,
    };
    place.check().unwrap();
    let running = peer("groups", PYTHON).start(&place).unwrap();
    let pid = running.pid().unwrap();
    let lines = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let group = |controller: &str| {
        let path = lines.lines().find_map(|line| line.split_once(controller).map(|(_, path)| path)).unwrap();
        PathBuf::from(format!("/sys/fs/cgroup{}{path}", controller.replace(':', "/").trim_end_matches('/')))
    };
    let (memory, blkio) = (group(":memory:"), group(":blkio:"));
    assert!(memory.file_name().unwrap().to_str().unwrap().starts_with("flash-lab-"), "{lines}");
    let read = |path: PathBuf| fs::read_to_string(path).unwrap().trim().to_owned();
    assert_eq!(read(memory.join("memory.limit_in_bytes")), "67108864");
    assert_eq!(read(memory.join("cgroup.procs")), pid.to_string());
    let throttle = blkio.join("blkio.throttle.read_iops_device");
    assert_eq!(read(throttle.clone()), "");
    running.throttle(true).unwrap();
    assert!(read(throttle.clone()).ends_with(" 150"));
    running.throttle(false).unwrap();
    assert_eq!(read(throttle), "");
    let cores = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(cores.contains("Cpus_allowed_list:\t0\n"));
    running.stop().unwrap();
    assert!(!memory.exists() && !blkio.exists());
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn one_that_needs_more_memory_than_it_has_says_so() {
    if !has_groups() || !has_python() {
        return;
    }
    let table = "name = 'fat'\ncommand = ['python3', '-c', \"x = b'x' * (1 << 30)\"]\n";
    let place = Place { memory_bytes: Some(32 << 20), ..Wishes::default().place("/".into()) };
    let error = peer("fat", table).start(&place).unwrap_err();
    assert!(
        error.to_string().ends_with("its memory is too small: the kernel killed 1 of its processes"),
        "{error}"
    );
}

#[test]
fn ready_made_servers_serve_where_they_are_installed() {
    let root = folder("ready-made");
    // Apache's processes are another user's.
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(root.join("a.txt"), "hello").unwrap();
    let place = Wishes::default().place(root.clone());
    // `{flash}` is this program, which is the tests here.
    for name in super::super::ready_made_names().into_iter().filter(|name| *name != "flash") {
        let peer = super::super::ready_made(name).unwrap();
        if let Err(error) = peer.check() {
            eprintln!("skipped: {error}");
            continue;
        }
        let running = peer.start(&place).unwrap();
        assert!(running.version().is_some(), "{name}");
        let answer = get(running.url(), "/a.txt");
        assert!(answer.contains(" 200 OK\r\n") && answer.ends_with("\r\n\r\nhello"), "{name}: {answer}");
        let started = running.started.as_ref().unwrap();
        let (processes, made) = (started.processes(), started.folder.0.clone());
        assert!(!processes.is_empty());
        running.stop().unwrap();
        assert!(!processes.iter().any(|process| tree::is_alive(*process)), "{name} left a process");
        assert!(!made.exists());
    }
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn groups_hold_what_left_the_session() {
    if !has_groups() {
        return;
    }
    let root = folder("daemon");
    let table = "name = 'daemon'\npatience_s = 1\nenv = { ROOT = '{root}' }\n\
        command = ['sh', '-c', 'setsid sh {folder}/leave; exec sleep 600']\n\
        [[server.file]]\nname = 'leave'\ntext = 'sleep 600 & echo $! > \"$ROOT/pid\"'\n";
    let place = Place { memory_bytes: Some(64 << 20), ..Wishes::default().place(root.clone()) };
    peer("daemon", table).start(&place).unwrap_err();
    let pid: u32 = fs::read_to_string(root.join("pid")).unwrap().trim().parse().unwrap();
    assert!(Stat::read(pid).is_none_or(|stat| stat.is_zombie), "the daemon is left");
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn the_kept_thread_ends_with_the_server() {
    let place =
        program::Place { core: None, groups: Vec::new(), descriptors: 64, parent_death: Signal::TERM };
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
    let folder = folder("words");
    let path = folder.join(LOG);
    assert_eq!(last_words(&path), "it said nothing");
    fs::write(&path, "x".repeat(10_000) + "\n\na\n  b \nc\nd\n").unwrap();
    assert_eq!(last_words(&path), "a / b / c / d");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn commands_are_shown_as_one_would_type_them() {
    let set = BTreeMap::from([("threads".to_owned(), "2".to_owned())]);
    let words = ["{flash}", "-t{threads}", "{root}", "a b", "it's", ""];
    assert_eq!(prepare::shown(&words, &set), "flash -t2 {root} 'a b' 'it'\\''s' ''");
}
