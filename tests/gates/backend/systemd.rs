//! The backend under systemd: its units, sockets that `systemd-socket-activate` passes on, and the capability that
//! the unit leaves to the worker.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use flash_prompt::file::is_part_resident;

use super::packets::{Packets, Reply};
use crate::harness::{Folder, Launch, PATIENCE, is_root, kill, skip, stats_at, wait_for, wait_until};

/// A program started by `systemd-socket-activate`, which executes it when the first client connects. Ends with its
/// owner.
struct Activated(Child);

impl Activated {
    /// `flash backend` with these options, and with these sockets as systemd passes them. None without systemd.
    fn start(folder: &Folder, sockets: &[&str], options: &[String]) -> Option<Self> {
        let mut command = Command::new("systemd-socket-activate");
        command.args(sockets).arg(env!("CARGO_BIN_EXE_flash")).args(["backend", "--control", "none"]);
        command.args(options).args(is_root().then_some("--user=root"));
        let stderr = fs::File::create(folder.path("stderr")).unwrap();
        let child =
            command.current_dir(folder.path("")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        match child.spawn() {
            Ok(child) => Some(Self(child)),
            Err(_) => {
                skip("needs Debian's systemd");
                None
            }
        }
    }

    #[track_caller]
    fn code(&mut self) -> Option<i32> {
        wait_for("the backend's end", || self.0.try_wait().unwrap()).code()
    }
}

impl Drop for Activated {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until systemd listens on a socket. Its file is there a moment before.
#[track_caller]
fn wait_for_listener(socket: &Path) {
    const ACCEPTS: &str = " 00010000 ";
    let path = text(socket);
    wait_until("the socket", || {
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        sockets.lines().any(|line| line.ends_with(&path) && line.contains(ACCEPTS))
    });
}

/// The first bytes of the answer to a question about a file.
#[track_caller]
fn ask(socket: &Path, file: &Path) -> String {
    wait_for_listener(socket);
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {} HTTP/1.1\r\nHost: x\r\n\r\n", file.display()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn text(path: impl AsRef<Path>) -> String {
    path.as_ref().to_str().unwrap().to_owned()
}

#[test]
fn the_socket_for_packets_can_come_from_systemd() {
    let folder = Folder::with_hello();
    let socket = folder.path("packets");
    let options = ["--socket".to_owned(), text(folder.path("unused"))];
    let Some(mut backend) = Activated::start(&folder, &["--seqpacket", "-l", &text(&socket)], &options)
    else {
        return;
    };
    wait_for_listener(&socket);
    let client = Packets::to(&socket);
    client.name(1, folder.served("hello.txt"));
    assert_eq!(client.reply(), Reply::Ready { id: 1 });
    assert!(!folder.path("unused").exists(), "the socket of systemd replaces --socket");
    kill("TERM", backend.0.id());
    assert_eq!(backend.code(), Some(0));
    assert!(socket.exists(), "systemd's socket is not ours to remove");
}

#[test]
fn the_sockets_of_the_warm_endpoint_can_come_from_systemd() {
    let folder = Folder::with_hello();
    let (warm, fastcgi) = (folder.path("warm"), folder.path("fastcgi"));
    let options = [
        format!("--socket={}", text(folder.path("own"))),
        format!("--warm=unix:{}", text(&warm)),
        format!("--fastcgi=unix:{}", text(&fastcgi)),
        format!("--warm=unix:{}", text(folder.path("bound"))),
        format!("--warm-root={}", text(folder.served(""))),
    ];
    let sockets = ["-l", &text(&fastcgi), "-l", &text(&warm)];
    let Some(mut backend) = Activated::start(&folder, &sockets, &options) else { return };
    let hello = folder.served("hello.txt");
    assert_eq!(ask(&warm, &hello), "HTTP/1.1 204");
    assert_eq!(ask(&folder.path("bound"), &hello), "HTTP/1.1 204", "systemd passed only the other two");
    Packets::to(&folder.path("own"));
    // Bytes that are no FastCGI end the connection: its own parser has the socket, not that of HTTP.
    let mut stream = UnixStream::connect(&fastcgi).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(!answer.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&answer));
    // The next processes have the same sockets.
    kill("HUP", backend.0.id());
    for _ in 0..10 {
        assert_eq!(ask(&warm, &hello), "HTTP/1.1 204");
    }
    kill("TERM", backend.0.id());
    assert_eq!(backend.code(), Some(0));
    let left = [&warm, &fastcgi, &folder.path("own"), &folder.path("bound")].map(|socket| socket.exists());
    assert_eq!(left, [true, true, false, false], "the backend removes only the sockets that it created");
}

#[test]
fn a_socket_that_no_option_names_is_refused() {
    let folder = Folder::with_hello();
    let socket = folder.path("warm");
    let own = [format!("--socket={}", text(folder.path("own")))];
    let Some(mut backend) = Activated::start(&folder, &["-l", &text(&socket)], &own) else { return };
    wait_for_listener(&socket);
    let _client = UnixStream::connect(&socket).unwrap();
    assert_eq!(backend.code(), Some(1));
    let stderr = fs::read_to_string(folder.path("stderr")).unwrap();
    let advice = format!("which no option names; add --warm unix:{}", text(&socket));
    assert!(stderr.contains(&advice), "{stderr}");
    assert!(!folder.path("own").exists(), "a backend that does not start leaves no socket");
}

/// Checks units with systemd's own reader. None without systemd.
fn verify(units: &[String]) -> Option<(bool, String)> {
    let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(units).output();
    let Ok(output) = verified else {
        skip("needs Debian's systemd");
        return None;
    };
    Some((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

#[test]
fn systemd_accepts_the_units() {
    let folder = Folder::with_hello();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let names = ["flash.service", "flash-backend.service", "flash-backend.socket", "flash-warm.socket"];
    let units = names.map(|name| {
        let unit = fs::read_to_string(shipped.join(name)).unwrap();
        folder.write(name, unit.replace("/usr/bin/flash", env!("CARGO_BIN_EXE_flash")));
        text(folder.path(name))
    });
    let Some((is_right, said)) = verify(&units) else { return };
    assert!(is_right && said.is_empty(), "{said}");
    folder.write("flash-warm.socket", "[Socket]\nListenStream=relative\n");
    assert_ne!(verify(&units), Some((true, String::new())), "systemd notices a wrong unit");
}

#[test]
fn the_worker_sees_that_a_file_of_another_user_is_in_memory() {
    if !is_root() {
        return skip("needs root, to run the backend as another user");
    }
    let folder = Folder::with_hello();
    let hello = folder.served("hello.txt");
    if !is_part_resident(fs::File::open(&hello).unwrap(), 0, 1) {
        return skip("this kernel or file system does not report residency");
    }
    for how in ["auto", "off"] {
        let (control, warm) = (folder.path(format!("control-{how}")), folder.path(format!("warm-{how}")));
        let launch = Launch::backend(&folder.path(format!("own-{how}")), Some(&control)).user(Some("nobody"));
        let launch = launch.args(["--warm", &format!("unix:{}", text(&warm))]);
        let launch = launch.args(["--warm-root", &text(folder.served("")), "--cap-fowner", how]);
        let server = launch.start();
        let ask_twice = || {
            for _ in 0..2 {
                assert_eq!(ask(&warm, &hello), "HTTP/1.1 204");
            }
            let told = &stats_at(&control)["sum"]["backend"];
            ["from_memory", "names"].map(|name| told[name].as_u64().unwrap())
        };
        if how == "auto" {
            assert_eq!(ask_twice(), [2, 2]);
        } else {
            // Without the capability, a helper loads the file for the first question; the second finds it loaded, unless
            // it comes too late.
            wait_until("an answer from memory", || {
                let [from_memory, names] = ask_twice();
                assert!(from_memory < names, "{from_memory} of {names}");
                from_memory >= 1
            });
        }
        assert_eq!(server.stderr(), "", "{how}");
    }
}
