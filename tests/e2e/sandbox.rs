//! The calls that each role may make and that the kernel forbids it: a tool makes running processes do what an
//! intruder in them would.

use std::fs;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use crate::harness::server::landlock_version;
use crate::harness::{Folder, Launch, Server, evict, is_root, kill, skip, wait_for, wait_until};
use crate::tls::{RSA, certificate_of, handshake_thread};

const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/e2e/tools/");
/// The default user of a server started by root.
const BY_ITSELF: Option<&str> = None;

/// System calls by name and number (x86-64), with arguments for `tools/inject.py`.
type Call = (&'static str, &'static str);

const OPENAT_PASSWD: Call = ("openat", "257:-100:s/etc/passwd:0");
const OPEN: Call = ("open", "2:s/etc/passwd:0");
const EXECVE: Call = ("execve", "59:s/bin/true:0:0");
const SOCKET: Call = ("socket", "41:2:1:0");
const CONNECT: Call = ("connect", "42:0:x02001f907f0000010000000000000000:16");
const BIND: Call = ("bind", "49:0:x02001f907f0000010000000000000000:16");
const FORK: Call = ("fork", "57");
const CLONE: Call = ("clone", "56:17:0:0:0:0");
const PTRACE: Call = ("ptrace", "101:16:1:0:0");
const KILL: Call = ("kill", "62:1:0");
const SETUID: Call = ("setuid", "105:0");
const UNLINK: Call = ("unlink", "87:s/etc/passwd");

// CAP_FOWNER would allow these on files of other owners. Landlock covers neither fchmod nor utimensat, so only
// seccomp forbids those.
const FCHMOD: Call = ("fchmod", "91:-1:0");
const UTIMENSAT: Call = ("utimensat", "280:-100:s/etc/passwd:0:0");
const UNLINKAT: Call = ("unlinkat", "263:-100:s/etc/passwd:0");
const LINKAT: Call = ("linkat", "265:-100:s/etc/passwd:-100:s/tmp/x:0");

/// A listener that is shut down to read can be connected (sendto with MSG_FASTOPEN).
const SHUT_DOWN_BOTH_SIDES: Call = ("shutdown", "48:0:2");

/// Calls that can wait for a disk, or reach outside the process.
const FORBIDDEN_TO_A_WORKER: [Call; 31] = [
    OPENAT_PASSWD,
    OPEN,
    EXECVE,
    SOCKET,
    CONNECT,
    BIND,
    FORK,
    CLONE,
    PTRACE,
    KILL,
    SETUID,
    UNLINK,
    FCHMOD,
    UTIMENSAT,
    UNLINKAT,
    LINKAT,
    ("getdents64", "217:0:0:0"),
    ("sendfile", "40:0:0:0:1"),
    ("pread64", "17:0:0:0:0"),
    ("read", "0:0:0:0"),
    // Without RWF_NOWAIT.
    ("preadv2", "327:0:0:0:0:0:0"),
    // They follow a path: fstat gives the state of an open file.
    ("statx", "332:-100:s/etc/passwd:0:1:0"),
    // The flag AT_EMPTY_PATH does not prevent following a path.
    ("statx", "332:-100:s/etc/passwd:0x1000:1:0"),
    // A mapping of a file: touching it would wait.
    ("mmap", "9:0:4096:1:2:0:0"),
    ("fsync", "74:0"),
    // Another option than SO_LINGER, another level, another request than SIOCOUTQ.
    ("setsockopt", "54:0:1:2:0:0"),
    ("setsockopt", "54:0:6:13:0:0"),
    ("ioctl", "16:0:0x5401:0"),
    // F_SETFL with O_DIRECT: reads would go to the disk.
    ("fcntl", "72:0:4:0x4000"),
    // F_DUPFD_CLOEXEC to the number of standard error, the only one that may be written to.
    ("fcntl", "72:0:1030:2"),
    SHUT_DOWN_BOTH_SIDES,
];

const FORBIDDEN_TO_A_HELPER: [Call; 14] = [
    SOCKET,
    CONNECT,
    BIND,
    EXECVE,
    CLONE,
    PTRACE,
    KILL,
    SETUID,
    FCHMOD,
    UTIMENSAT,
    UNLINKAT,
    LINKAT,
    ("sendto", "44:0:0:0:0:0:0"),
    // It only stops receiving.
    SHUT_DOWN_BOTH_SIDES,
];
const FORBIDDEN_TO_A_GATEWAY: [Call; 9] = [
    // With MSG_FASTOPEN, which connects.
    ("sendmsg", "46:0:0:0x20000000"),
    // A socket of packets, a socket whose calls wait, another option than TCP_NODELAY.
    ("socket", "41:2:0x80802:17"),
    SOCKET,
    ("setsockopt", "54:0:1:2:0:0"),
    BIND,
    EXECVE,
    CLONE,
    OPENAT_PASSWD,
    ("read", "0:0:0:0"),
];
const FORBIDDEN_TO_A_LOG_WRITER: [Call; 6] =
    [SOCKET, CONNECT, EXECVE, CLONE, ("pread64", "17:0:0:0:0"), ("openat", "257:-100:s/dev/null:1")];

/// `struct open_how` without any flag.
const NO_FLAGS: &str = "x000000000000000000000000000000000000000000000000:24";
const EPERM: i64 = -1;
const EBADF: i64 = -9;
const EACCES: i64 = -13;
const EINPROGRESS: i64 = -115;
/// The first version of Landlock that knows ports.
const LANDLOCK_WITH_PORTS: u8 = 4;

/// The reason why these tests cannot run here, if any.
fn cannot_inject() -> Option<&'static str> {
    if !cfg!(target_arch = "x86_64") {
        return Some("the tool that makes a process call something knows x86-64 only");
    }
    if !is_root() {
        return Some("needs root, to make a process call something");
    }
    if Command::new("python3").arg("--version").output().is_err() {
        return Some("needs python3");
    }
    None
}

/// The results of calls made in a process; None for a call that raised SIGSYS.
#[track_caller]
fn inject(pid: u32, calls: &[&str]) -> Vec<Option<i64>> {
    let mut tool = Command::new("python3");
    let done =
        tool.arg(Path::new(TOOLS).join("inject.py")).arg(pid.to_string()).args(calls).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{err}");
    out.lines().map(|line| line.strip_prefix("returned ").map(|n| n.parse().unwrap())).collect()
}

/// Tries a forbidden call in a process: the process must end, with the name of the call on standard error.
#[track_caller]
fn try_forbidden(server: &Server, pid: u32, role: &str, (name, words): (&str, &str)) {
    // One that has taken another's place may have begun just now.
    wait_until("its sandbox", || status(pid, "Seccomp") == "2");
    assert_eq!(inject(pid, &[words]), [None], "{name} in the {role}");
    server.wait_for_stderr(&format!("{role} process {pid} called {name}, which its sandbox forbids"));
    wait_until("its end", || !server.role(role).contains(&pid));
}

fn is_held(server: &Server) -> bool {
    server.stdout().contains("seccomp;") && !server.stdout().contains("no seccomp")
}

#[test]
fn a_worker_is_ended_by_every_call_that_could_wait_and_alone() {
    if let Some(why) = cannot_inject() {
        return skip(why);
    }
    let folder = Folder::with_hello();
    let count = FORBIDDEN_TO_A_WORKER.len() + 1;
    let server = Launch::with_workers(&folder, count).user(BY_ITSELF).start();
    if !is_held(&server) {
        return skip("this kernel has no seccomp");
    }
    wait_until("all workers", || server.role("worker").len() == count);
    let workers = server.role("worker");
    for (pid, call) in workers.iter().zip(FORBIDDEN_TO_A_WORKER) {
        try_forbidden(&server, *pid, "worker", call);
    }
    wait_until("all replaced", || server.role("worker").len() == count);
    assert!(server.role("worker").contains(&workers[count - 1]), "the one that did nothing is left alone");
    server.wait_for_stderr("killed by its sandbox");
    assert_eq!(server.get("/hello.txt").brief(), (200, "hello\n".into()));
}

#[test]
fn a_worker_of_any_architecture_shuts_down_no_listener() {
    if let Some(why) = cannot_inject() {
        return skip(why);
    }
    let folder = Folder::with_hello();
    for architecture in ["sped", "mp", "mt"] {
        let launch = Launch::bare().architecture(architecture).arg(folder.path("www"));
        let server = launch.args(["--listen", "127.0.0.1:0"]).user(BY_ITSELF).start();
        if !is_held(&server) {
            return skip("this kernel has no seccomp");
        }
        let worker = server.some("worker")[0];
        assert_eq!(inject(worker, &["48:-1:1"]), [Some(EBADF)], "{architecture}: it ends sending");
        try_forbidden(&server, worker, "worker", SHUT_DOWN_BOTH_SIDES);
        wait_until("another worker", || {
            server.client().try_get("/hello.txt").is_ok_and(|page| page.status == 200)
        });
        assert_eq!(server.get("/hello.txt").brief(), (200, "hello\n".into()), "{architecture}");
    }
}

#[test]
fn a_worker_reads_no_descriptor() {
    if let Some(why) = cannot_inject() {
        return skip(why);
    }
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).user(BY_ITSELF).start();
    if !is_held(&server) {
        return skip("this kernel has no seccomp");
    }
    // A file can get the number of any descriptor: dup3 is forbidden, but close and openat2 are not.
    let worker = server.sole("worker");
    let fds = fs::read_dir(format!("/proc/{worker}/fd")).unwrap().flatten();
    let is_timer = |path: &Path| fs::read_link(path).is_ok_and(|to| to.ends_with("anon_inode:[timerfd]"));
    let timer = fds.map(|fd| fd.path()).find(|path| is_timer(path)).expect("the timer of the loop");
    let number = timer.file_name().unwrap().to_str().unwrap();
    try_forbidden(&server, worker, "worker", ("read", &format!("0:{number}:0:0")));
}

#[test]
fn a_worker_may_make_only_the_calls_of_its_settings() {
    if let Some(why) = cannot_inject() {
        return skip(why);
    }
    let sendfile = ("sendfile", "40:0:0:0:1");
    let pread = ("pread64", "17:0:0:0:0");
    let mincore = ("mincore", "27:0:0:0");
    // Shared, for reading; a writable mapping is always refused.
    let (map, map_to_write) = (("mmap", "9:0:4096:1:1:99999:0"), ("mmap", "9:0:4096:3:1:99999:0"));
    let folder = Folder::with_hello();
    let cases: [(&[&str], &[Call], &[Call]); 3] = [
        (&["--send", "sendfile"], &[sendfile, map, mincore], &[map_to_write, pread]),
        (&["--send", "mmap"], &[map, mincore], &[sendfile, map_to_write, pread]),
        (&["--no-residency-check"], &[pread], &[sendfile, map, mincore]),
    ];
    for (options, allowed, forbidden) in cases {
        let launch = Launch::with_workers(&folder, forbidden.len()).user(BY_ITSELF);
        let server = options.iter().fold(launch, |launch, option| launch.arg(option)).start();
        if !is_held(&server) {
            return skip("this kernel has no seccomp");
        }
        wait_until("all workers", || server.role("worker").len() == forbidden.len());
        let workers = server.role("worker");
        for (name, words) in allowed {
            assert!(inject(workers[0], &[words])[0].is_some(), "{options:?}: {name}");
        }
        for (pid, call) in workers.iter().zip(forbidden) {
            try_forbidden(&server, *pid, "worker", *call);
        }
    }
}

#[test]
fn a_worker_may_ask_for_unsent_bytes_and_reset_a_socket() {
    if let Some(why) = cannot_inject() {
        return skip(why);
    }
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).user(BY_ITSELF).start();
    // setsockopt of SO_LINGER and ioctl of SIOCOUTQ, on no descriptor.
    let results = inject(server.sole("worker"), &["54:-1:1:13:0:0", "16:-1:0x5411:0"]);
    assert_eq!(results, [Some(EBADF); 2]);
    assert_eq!(server.get("/hello.txt").brief(), (200, "hello\n".into()), "it continues");
}

#[test]
fn a_worker_opens_nothing_outside_the_roots() {
    if let Some(why) = cannot_inject() {
        return skip(why);
    }
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).user(BY_ITSELF).start();
    if server.stdout().contains("no Landlock") {
        return skip("this kernel has no Landlock");
    }
    let hello = folder.served("hello.txt");
    let open = |path: &str| format!("437:-100:s{path}:{NO_FLAGS}");
    let calls = [
        open("/etc/passwd"),
        open("/proc/self/maps"),
        open(hello.to_str().unwrap()),
        // A folder of the site: only helpers list folders.
        open(folder.path("www").to_str().unwrap()),
        // preadv2 with RWF_NOWAIT, on no descriptor.
        "327:-1:0:0:0:0:8".to_owned(),
    ];
    let calls: Vec<&str> = calls.iter().map(String::as_str).collect();
    let results = inject(server.sole("worker"), &calls);
    assert_eq!((results[0], results[1], results[3]), (Some(EACCES), Some(EACCES), Some(EACCES)));
    assert!(results[2].is_some_and(|fd| fd >= 0), "{results:?}");
    assert_eq!(results[4], Some(EBADF));
    assert_eq!(server.get("/hello.txt").brief(), (200, "hello\n".into()), "it continues");
}

/// The only helper, started for a new file.
fn fresh_helper(server: &Server, folder: &Folder, number: usize) -> u32 {
    let name = format!("file-{number}.txt");
    evict(&folder.www(&name, "x"));
    // Until the worker has noticed the death of the helper before this one, it may give it the job.
    let answer =
        wait_for("an answer", || Some(server.get(&format!("/{name}"))).filter(|page| page.status != 503));
    assert_eq!(answer.brief(), (200, "x".into()));
    server.sole("helper")
}

#[test]
fn a_helper_has_the_roots_and_no_network() {
    if let Some(why) = cannot_inject() {
        return skip(why);
    }
    let folder = Folder::with_hello();
    let options = ["--helpers-max", "1", "--helper-idle", "1h"];
    let server = Launch::new(&folder).args(options).user(BY_ITSELF).start();
    if !is_held(&server) || server.stdout().contains("no Landlock") {
        return skip("this kernel has no seccomp, or no Landlock");
    }
    for (number, call) in FORBIDDEN_TO_A_HELPER.into_iter().enumerate() {
        let helper = fresh_helper(&server, &folder, number);
        try_forbidden(&server, helper, "helper", call);
    }
    let helper = fresh_helper(&server, &folder, 100);
    let hello = folder.served("hello.txt");
    let in_root = |flags: &str| format!("257:-100:s{}:{flags}", hello.display());
    let make = format!("257:-100:s{}:0x41:0x1b6", folder.served("made").display());
    let calls = [OPENAT_PASSWD.1, &in_root("0"), &in_root("1"), &make];
    let results = inject(helper, &calls);
    assert_eq!(results[0], Some(EACCES), "outside the roots");
    assert!(results[1].is_some_and(|fd| fd >= 0), "{results:?}");
    assert_eq!((results[2], results[3]), (Some(EACCES), Some(EACCES)), "roots are not written to");
    assert_eq!(server.get("/hello.txt").brief(), (200, "hello\n".into()));
}

#[test]
fn a_helper_thread_and_its_worker_have_separate_sandboxes() {
    if let Some(why) = cannot_inject() {
        return skip(why);
    }
    let folder = Folder::with_hello();
    let threads = ["--helpers", "threads", "--helpers-max", "1"];
    let server = Launch::new(&folder).args(threads).user(BY_ITSELF).start();
    if !is_held(&server) || server.stdout().contains("no Landlock") {
        return skip("this kernel has no seccomp, or no Landlock");
    }
    let helper_of = |worker: u32| {
        let tasks = fs::read_dir(format!("/proc/{worker}/task")).unwrap().flatten();
        let mut ids = tasks.map(|task| task.file_name().to_str().unwrap().parse::<u32>().unwrap());
        ids.find(|id| *id != worker).unwrap()
    };
    let worker = server.sole("worker");
    let results = inject(helper_of(worker), &[OPENAT_PASSWD.1, "17:-1:0:0:0"]);
    assert_eq!(results, [Some(EACCES), Some(EBADF)], "a helper may open and read, in the roots");
    for call in [("pread64", "17:-1:0:0:0"), OPENAT_PASSWD, CLONE] {
        let worker = server.sole("worker");
        try_forbidden(&server, worker, "worker", call);
        wait_until("another worker", || {
            server.client().try_get("/hello.txt").is_ok_and(|page| page.status == 200)
        });
    }
    for (name, words) in [SOCKET, CLONE, EXECVE] {
        let worker = server.sole("worker");
        assert_eq!(inject(helper_of(worker), &[words]), [None], "{name} in a helper thread");
        let said =
            format!("helper thread of worker process {worker} called {name}, which its sandbox forbids");
        server.wait_for_stderr(&said);
        wait_until("another worker", || {
            server.client().try_get("/hello.txt").is_ok_and(|page| page.status == 200)
        });
    }
}

#[test]
fn a_thread_that_computes_handshakes_can_do_nothing_else() {
    if let Some(why) = cannot_inject() {
        return skip(why);
    }
    let folder = Folder::with_hello();
    certificate_of(&folder, "rsa", "DNS:localhost", RSA, 9);
    let [certificate, key] = ["rsa.pem", "rsa.key"].map(|name| folder.path(name));
    let launch =
        Launch::new(&folder).args(["--listen-tls", "127.0.0.1:0"]).arg("--certificate").arg(certificate);
    let server = launch.arg("--certificate-key").arg(key).start();
    if !is_held(&server) {
        return skip("this kernel has no seccomp");
    }
    for (name, words) in [OPENAT_PASSWD, SOCKET, CLONE, EXECVE] {
        let worker = server.sole("worker");
        let thread = handshake_thread(worker).unwrap();
        assert_eq!(inject(thread, &[words]), [None], "{name}");
        let said =
            format!("handshake thread of worker process {worker} called {name}, which its sandbox forbids");
        server.wait_for_stderr(&said);
        wait_until("another worker", || {
            server.client().try_get("/hello.txt").is_ok_and(|page| page.status == 200)
        });
    }
}

#[test]
fn the_log_writer_opens_no_file_and_no_connection() {
    if let Some(why) = cannot_inject() {
        return skip(why);
    }
    let folder = Folder::with_hello();
    let log = folder.write("logs/access.log", "");
    let server = Launch::new(&folder).arg("--log-file").arg(&log).user(BY_ITSELF).start();
    if !is_held(&server) {
        return skip("this kernel has no seccomp");
    }
    for call in FORBIDDEN_TO_A_LOG_WRITER {
        try_forbidden(&server, server.sole("log"), "log", call);
    }
    assert_eq!(server.get("/hello.txt").status, 200);
    wait_until("the line", || fs::read_to_string(&log).unwrap().contains("/hello.txt"));
}

#[test]
fn a_crash_is_not_reported_as_a_forbidden_call() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    for (signal, name) in [("SEGV", "11 (SIGSEGV)"), ("BUS", "7 (SIGBUS)"), ("ABRT", "6 (SIGABRT)")] {
        let worker = server.sole("worker");
        let said = server.stderr().len();
        // The first only makes the handler of the standard library give way: no access to memory has failed.
        wait_until("its end", || {
            kill(signal, worker);
            server.stderr()[said..].contains("worker 0 ended")
        });
        assert!(
            server.stderr()[said..].contains(&format!("worker 0 ended (signal: {name}")),
            "{}",
            server.stderr()
        );
        wait_until("another worker", || server.role("worker").iter().any(|pid| *pid != worker));
    }
    assert!(!server.stderr().contains("sandbox"), "{}", server.stderr());
}

#[test]
fn the_gateway_connects_and_opens_no_file() {
    if let Some(why) = cannot_inject() {
        return skip(why);
    }
    let folder = Folder::with_hello();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    let route = format!("[[route]]\nprefix = \"/api/\"\nproxy = \"127.0.0.1:{port}\"\n");
    let config = format!("root = {:?}\nlisten = [\"127.0.0.1:0\"]\n{route}", folder.path("www"));
    let server = Launch::configured(&folder, &config).user(BY_ITSELF).start();
    if !is_held(&server) {
        return skip("this kernel has no seccomp");
    }
    let gateway = server.sole("gateway");
    let path = folder.path("socket");
    let local = UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let to_tcp = |port: u16| [&[2, 0], &port.to_be_bytes()[..], &[127, 0, 0, 1], &[0; 8]].concat();
    let to_local = [&[1, 0], path.as_os_str().as_bytes(), &[0]].concat();
    let connect = |family: i32, address: Vec<u8>| {
        let Some(fd) = inject(gateway, &[&format!("41:{family}:0x80801:0")])[0] else { panic!("no socket") };
        inject(gateway, &[&format!("42:{fd}:x{}:{}", hex(&address), address.len())])[0]
    };
    for (family, address) in [(2, to_tcp(port)), (1, to_local)] {
        let connected = connect(family, address);
        assert!(connected == Some(0) || connected == Some(EINPROGRESS), "{connected:?}");
    }
    if landlock_version(&server) >= LANDLOCK_WITH_PORTS {
        assert_eq!(connect(2, to_tcp(server.addresses[0].port())), Some(EACCES), "the port of no server");
    }
    tcp.accept().unwrap();
    local.accept().unwrap();
    for call in FORBIDDEN_TO_A_GATEWAY {
        try_forbidden(&server, server.sole("gateway"), "gateway", call);
    }
    assert_eq!(server.get("/hello.txt").status, 200);
}

#[test]
fn the_supervisor_keeps_only_needed_capabilities() {
    if let Some(why) = cannot_inject() {
        return skip(why);
    }
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).user(BY_ITSELF).start();
    let hello = folder.served("hello.txt");
    let results = inject(
        server.pid(),
        &[
            // chown, mount, sethostname, mknod of a device, ptrace of init.
            &format!("92:s{}:1:1", hello.display()),
            "165:snone:s/mnt:stmpfs:0:0",
            "170:sx:1",
            &format!("133:s{}:0x2180:0x103", folder.path("null").display()),
            "101:16:1:0:0",
        ],
    );
    assert_eq!(results, [Some(EPERM); 5]);
    kill("KILL", server.sole("worker"));
    assert_eq!(server.get("/hello.txt").status, 200, "restarting is what it can");
}

/// A field of `/proc/PID/status`.
fn status(pid: u32, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.trim().to_owned()
}

fn limit(pid: u32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().to_owned()
}

#[test]
fn roles_run_without_privilege_and_with_limits() {
    if !is_root() {
        return skip("needs root, to have privileges to give up");
    }
    let folder = Folder::with_hello();
    evict(&folder.served("hello.txt"));
    let log = folder.path("access.log");
    let server = Launch::new(&folder).user(BY_ITSELF).arg("--log-file").arg(&log).start();
    let line = server.stdout();
    // Workers and helpers keep one capability where seccomp confines it, if root has it here.
    let keeps = is_held(&server) && has_fowner(std::process::id());
    let with = if keeps { " with CAP_FOWNER" } else { "" };
    assert!(line.contains(&format!("1 worker as nobody{with}; ")), "{line}");
    assert_eq!(server.get("/hello.txt").status, 200);
    let (worker, helper, log) = (server.sole("worker"), server.some("helper")[0], server.sole("log"));
    for (pid, is_of_all) in [(worker, true), (helper, true), (log, false)] {
        // No other process may signal or trace the one that has root's file open.
        let group = status(pid, "Groups");
        assert!((group == "65534") == is_of_all && group != "0", "{group}");
        for field in ["Uid", "Gid"] {
            let ids = status(pid, field);
            assert!(ids.split_whitespace().all(|id| id == group), "{field} {ids}");
        }
    }
    for pid in [worker, helper, log] {
        assert_eq!(status(pid, "NoNewPrivs"), "1");
        assert_eq!(limit(pid, "Max core file size"), "0");
        assert_ne!(limit(pid, "Max data size"), "unlimited");
        assert_eq!(fs::read(format!("/proc/{pid}/environ")).unwrap(), b"", "a clean environment");
        let kept = match pid == log {
            false if keeps => FOWNER,
            _ => "0000000000000000",
        };
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            let none = matches!(set, "CapInh" | "CapAmb");
            assert_eq!(status(pid, set), if none { "0000000000000000" } else { kept }, "{set} of {pid}");
        }
    }
    assert_eq!(limit(helper, "Max open files"), "1025", "one for the root of the site");
    assert_eq!(status(server.pid(), "NoNewPrivs"), "1");
}

#[test]
fn workers_run_before_helpers() {
    // CAP_SYS_NICE, CAP_SYS_RESOURCE.
    const MAY_GO_FIRST: u64 = 1 << 23 | 1 << 24;
    let have = u64::from_str_radix(&status(std::process::id(), "CapEff"), 16).unwrap();
    let folder = Folder::with_hello();
    evict(&folder.served("hello.txt"));
    let server = Launch::new(&folder).user(BY_ITSELF).start();
    assert_eq!(server.get("/hello.txt").status, 200);
    let ordinary = nice(server.sole("keeper"));
    assert_eq!(nice(server.some("helper")[0]), (ordinary + 10).min(19));
    if have & MAY_GO_FIRST == 0 {
        return skip(
            "in part: needs root with CAP_SYS_NICE or CAP_SYS_RESOURCE, to start workers that go first",
        );
    }
    assert_eq!(nice(server.sole("worker")), ordinary - 5);
}

/// The nice value of a process: the 19th field of `/proc/PID/stat`, where the second one ends with a bracket.
fn nice(pid: u32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').nth(16).unwrap().parse().unwrap()
}

/// The set of capabilities with `CAP_FOWNER` alone.
const FOWNER: &str = "0000000000000008";

/// Whether a process may act as the owner of any file.
fn has_fowner(pid: u32) -> bool {
    u64::from_str_radix(&status(pid, "CapEff"), 16).unwrap() & 8 != 0
}

#[test]
fn with_cap_fowner_workers_see_residency_and_keep_nothing_else() {
    if !is_root() {
        return skip("needs root, to have a capability to keep");
    }
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).user(Some("nobody")).args(["--cap-fowner"]).start();
    let line = server.stdout();
    assert!(line.contains("1 worker as nobody with CAP_FOWNER; "), "{line}");
    if server.lacks_cachestat() {
        return skip("this kernel has no cachestat");
    }
    assert!(line.contains("memory by cachestat"), "{line}");
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        assert_eq!(status(server.sole("worker"), set), FOWNER);
    }
}

#[test]
fn cap_fowner_is_kept_by_default_only_under_seccomp() {
    if !is_root() || !has_fowner(std::process::id()) {
        return skip("needs root, to have a capability to keep");
    }
    let folder = Folder::with_hello();
    let kept = |words: &[&str]| {
        let launch = Launch::new(&folder).user(BY_ITSELF);
        let server = words.iter().fold(launch, |launch, word| launch.arg(word)).start();
        let (line, kept) = (server.stdout(), has_fowner(server.sole("worker")));
        assert_eq!(line.contains("as nobody with CAP_FOWNER; "), kept, "{line}");
        (kept, is_held(&server))
    };
    let (by_itself, held) = kept(&[]);
    assert_eq!(by_itself, held);
    for (words, expected) in [
        (&["--no-cap-fowner"][..], false),
        (&["--sandbox", "off"], false),
        (&["--sandbox", "off", "--cap-fowner"], true),
        (&["--cap-fowner=on"], true),
    ] {
        assert_eq!(kept(words).0, expected, "{words:?}");
    }
}

#[test]
fn cap_fowner_can_be_ambient_and_is_an_error_otherwise() {
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let with_it = [&nobody[..], &["--inh-caps=+fowner", "--ambient-caps=+fowner", "--"]].concat();
    if !crate::paths::can_run_flash(&with_it) {
        return skip("needs root and setpriv, or the program is out of reach for others");
    }
    let folder = Folder::with_hello();
    let launch = Launch::new(&folder).user(None).arg("--cap-fowner");
    let (code, _, err) = launch.through_all(&[&nobody[..], &["--"]].concat()).fail();
    assert_eq!(code, Some(1));
    let why = "`--cap-fowner` cannot be kept: this process does not have CAP_FOWNER";
    assert!(err.contains(why) && err.contains("AmbientCapabilities=CAP_FOWNER"), "{err}");
    evict(&folder.served("hello.txt"));
    let server = Launch::new(&folder).user(None).through_all(&with_it).start();
    let line = server.stdout();
    if !is_held(&server) {
        return skip("this kernel has no seccomp");
    }
    assert!(line.contains("; 1 worker with CAP_FOWNER; "), "{line}");
    assert_eq!(server.get("/hello.txt").status, 200);
    for pid in [server.sole("worker"), server.some("helper")[0]] {
        assert_eq!((status(pid, "CapPrm"), status(pid, "CapEff")), (FOWNER.into(), FOWNER.into()));
        assert_eq!(status(pid, "Uid").split_whitespace().next(), Some("65534"));
    }
}

#[test]
fn roles_of_another_user_end_with_their_supervisor() {
    if !is_root() {
        return skip("needs root, to become another user");
    }
    let folder = Folder::with_hello();
    let mut server = Launch::new(&folder).user(BY_ITSELF).start();
    assert_eq!(server.get("/hello.txt").status, 200);
    let worker = server.sole("worker");
    server.signal("KILL");
    server.wait();
    wait_until("the worker's end", || !Path::new(&format!("/proc/{worker}")).exists());
}

#[test]
fn roles_inherit_no_descriptors_of_the_server() {
    let folder = Folder::with_hello();
    evict(&folder.served("hello.txt"));
    let given = ["sh", "-c", "exec 9</etc/passwd; exec \"$0\" \"$@\""];
    let server = Launch::new(&folder).through(given).start();
    assert_eq!(server.get("/hello.txt").status, 200);
    for pid in [server.sole("worker"), server.some("helper")[0]] {
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
            assert!(fs::read_link(entry.path()).is_ok_and(|file| file != Path::new("/etc/passwd")));
        }
    }
}

#[test]
fn flash_can_be_the_first_process_of_a_container() {
    let first = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    if !Command::new(first[0]).args(&first[1..]).arg("true").status().is_ok_and(|status| status.success()) {
        return skip("needs root and unshare, to be the first process of a namespace");
    }
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).through(first).start();
    assert_eq!(server.get("/hello.txt").brief(), (200, "hello\n".into()));
}

#[test]
fn the_sandbox_can_be_turned_off() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).args(["--sandbox", "off"]).start();
    assert!(server.stdout().contains("; sandbox: off; "), "{}", server.stdout());
    assert_eq!(status(server.sole("worker"), "Seccomp"), "0");
    assert_eq!(status(server.sole("worker"), "NoNewPrivs"), "1", "what costs nothing stays");
    assert_eq!(server.get("/hello.txt").status, 200);
}

/// Words that run a program as on a kernel without these calls.
fn without(numbers: &'static str) -> [&'static str; 3] {
    ["python3", concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/e2e/tools/without_calls.py"), numbers]
}

const LANDLOCK: &str = "444,445,446";
const SECCOMP: &str = "317";
const CACHESTAT_LANDLOCK_SECCOMP: &str = "451,444,445,446,317";

#[test]
fn a_kernel_without_landlock_or_seccomp_is_reported_or_refused() {
    if let Some(why) = cannot_inject() {
        return skip(why);
    }
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).through(without(CACHESTAT_LANDLOCK_SECCOMP)).start();
    let line = server.stdout();
    assert!(line.contains("; sandbox: no Landlock, no seccomp; reads: store of up to "), "{line}");
    assert!(!line.contains("with CAP_FOWNER") && !has_fowner(server.sole("worker")), "{line}");
    assert_eq!(server.get("/hello.txt").brief(), (200, "hello\n".into()));
    for (calls, name) in [(LANDLOCK, "Landlock"), (SECCOMP, "seccomp")] {
        let launch = Launch::new(&folder).args(["--sandbox", "required"]).through(without(calls));
        let (code, out, err) = launch.fail();
        assert_eq!((code, out.as_str()), (Some(1), ""));
        assert!(err.contains(&format!("the sandbox is required, but this kernel has no {name}")), "{err}");
    }
}

#[test]
fn an_invalid_user_is_refused_with_the_reason() {
    let folder = Folder::with_hello();
    let (code, _, err) = Launch::new(&folder).user(Some("no-such-user")).fail();
    assert_eq!(code, Some(1));
    assert!(err.contains("cannot run as `no-such-user`: there is no user `no-such-user`"), "{err}");
    if !is_root() {
        return skip("needs root, to start a server as another user");
    }
    let closed = folder.path("closed");
    fs::create_dir(&closed).unwrap();
    assert!(Command::new("chmod").arg("700").arg(&closed).status().unwrap().success());
    let launch = Launch::bare().user(BY_ITSELF).arg(&closed).args(["--listen", "127.0.0.1:0"]);
    let (code, _, err) = launch.fail();
    assert_eq!(code, Some(1));
    assert!(err.contains("permission denied") && err.contains("serves as user `nobody`"), "{err}");
}

#[test]
fn a_root_may_be_where_its_user_cannot_go() {
    if !is_root() {
        return skip("needs root, to become another user");
    }
    let folder = Folder::new();
    folder.write("closed/www/hello.txt", "hello\n");
    assert!(Command::new("chmod").arg("700").arg(folder.path("closed")).status().unwrap().success());
    let launch = Launch::bare().user(BY_ITSELF).arg(folder.path("closed/www"));
    let server = launch.args(["--listen", "127.0.0.1:0"]).start();
    assert_eq!(server.get("/hello.txt").brief(), (200, "hello\n".into()));
}

/// Every process of a server started by root reaches its root after it has changed its user.
#[test]
fn a_reload_still_has_root() {
    if !is_root() {
        return skip("needs root, to become another user");
    }
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).user(BY_ITSELF).start();
    let old = server.sole("worker");
    server.signal("HUP");
    let new = wait_for("the next worker", || server.role("worker").into_iter().find(|pid| *pid != old));
    wait_until("its user", || status(new, "Uid").starts_with("65534"));
    assert_eq!(server.get("/hello.txt").status, 200);
}
