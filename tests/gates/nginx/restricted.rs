//! nginx with the gate and a real backend, where less is known about files: without root's rights, and on overlayfs.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use super::server::{Backend, Nginx, Setup, module};
use super::site;
use crate::harness::{Folder, evict, is_root, pattern, skip};

/// Five windows of 64 KiB.
const WINDOWS: u64 = 5;

/// A mount namespace of its own, in which the folder that nginx serves is an overlay on itself.
struct Overlay(Child);

impl Overlay {
    /// None, with the reason printed, where it cannot be mounted.
    #[track_caller]
    fn mount(folder: &Folder) -> Option<Self> {
        let www = folder.path("www");
        for name in ["upper", "work"] {
            std::fs::create_dir(folder.path(name)).unwrap();
        }
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            www.display(),
            folder.path("upper").display(),
            folder.path("work").display()
        );
        let script = "mount -t overlay overlay -o \"$1\" \"$2\" && echo mounted && exec cat";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh", &options]).arg(&www);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().ok()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line == "mounted\n" {
            return Some(Self(child));
        }
        let said = child.wait_with_output().unwrap().stderr;
        skip(&format!("overlayfs cannot be mounted: {}", String::from_utf8_lossy(&said)));
        None
    }

    /// The words that start a program in the namespace.
    fn inside(&self) -> Vec<String> {
        let pid = self.0.id().to_string();
        ["nsenter", "--target", &pid, "--mount"].map(str::to_owned).to_vec()
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two requests for a file out of memory and one for a listing, which are answered without an error or a wait for a deadline.
#[track_caller]
fn assert_served(nginx: &Nginx) {
    for _ in 0..2 {
        assert!(nginx.get("/sent/large.bin").body == pattern(300_001, 5));
    }
    assert_eq!(nginx.get("/hello.txt").body, b"hello\n");
    assert_eq!(nginx.get("/").body, b"<p>top");
    assert_eq!(nginx.get("/none").status, 404);
    assert!(nginx.get("/list/").head.starts_with("HTTP/1.1 200"));
    for name in ["late", "refused", "passed_absent", "passed_lost", "losses", "worker_waiting"] {
        assert_eq!(nginx.counter(name), 0, "{name}: {}", nginx.log());
    }
    assert!(!nginx.log().contains("[alert]"), "{}", nginx.log());
}

#[test]
fn a_real_backend_serves_an_nginx_without_roots_rights() {
    let Some(module) = module() else { return };
    let folder = site();
    std::fs::set_permissions(folder.path(""), Permissions::from_mode(0o777)).unwrap();
    let options: &[&str] = if is_root() { &["--user", "www-data"] } else { &[] };
    let _backend = Backend::real(&folder, options);
    let setup = Setup::new(&folder, module).with("flash_gate_window 64k;").unprivileged();
    let nginx = setup.start().connected();
    // The files are another user's, so cachestat is refused and the module reads.
    evict(&folder.served("large.bin"));
    assert_served(&nginx);
    assert_eq!(nginx.counter("passed_untestable"), 0);
    assert!(nginx.counter("windows_asked") <= WINDOWS);
}

#[test]
fn on_overlayfs_each_window_is_asked_for_once_and_passed() {
    let Some(module) = module() else { return };
    for is_privileged in [true, false] {
        let folder = site();
        std::fs::set_permissions(folder.path(""), Permissions::from_mode(0o777)).unwrap();
        let Some(overlay) = Overlay::mount(&folder) else { return };
        let user = if is_privileged { "root" } else { "www-data" };
        let _backend = Backend::real_through(&folder, &overlay.inside(), &["--user", user]);
        let setup = Setup::new(&folder, module).with("flash_gate_window 64k;");
        let setup = if is_privileged { setup } else { setup.unprivileged() };
        let nginx = setup.through(&overlay.inside()).start().connected();
        evict(&folder.served("large.bin"));
        assert_served(&nginx);
        // Twice the large file, and one window each of the small ones.
        assert_eq!(nginx.counter("windows_asked"), 2 * WINDOWS + 2, "{user}");
        assert_eq!(nginx.counter("asked_again"), 0, "{user}");
        assert_eq!(nginx.counter("passed_untestable"), nginx.counter("windows_asked"), "{user}");
    }
}
