//! A disk that hangs, fails or is slow on command: a mounted `examples/hanging_fs.rs`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::{skip, wait_for};

/// A mounted disk. Dropping it unmounts it.
pub(crate) struct Disk {
    child: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    place: PathBuf,
}

impl Disk {
    /// Mounts the contents of `content` on the empty folder `place`, read-only; prints why if that is impossible here.
    #[track_caller]
    pub(crate) fn mount(content: &Path, place: &Path) -> Option<Self> {
        Self::mount_with(content, place, &[])
    }

    /// The same, so that files can be created and written.
    #[track_caller]
    pub(crate) fn mount_writable(content: &Path, place: &Path) -> Option<Self> {
        Self::mount_with(content, place, &["--writable"])
    }

    #[track_caller]
    fn mount_with(content: &Path, place: &Path, options: &[&str]) -> Option<Self> {
        let program = std::env::current_exe().unwrap().with_file_name("../examples/hanging_fs");
        if !Path::new("/dev/fuse").exists() {
            skip("needs /dev/fuse, for a file system that hangs");
            return None;
        }
        assert!(
            program.exists(),
            "no example hanging_fs: `cargo test -p flash` builds it, `--test e2e` does not"
        );
        fs::create_dir_all(place).unwrap();
        let mut command = Command::new(program);
        command.args([place, content]).args(options);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (commands, mut answers) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        if line != "mounted\n" {
            let output = child.wait_with_output().unwrap();
            skip(&format!(
                "needs root, to mount by FUSE: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ));
            return None;
        }
        Some(Self { child, commands, answers, place: place.to_owned() })
    }

    /// Sends it a command and reads the answer.
    #[track_caller]
    pub(crate) fn tell(&mut self, command: &str) -> String {
        writeln!(self.commands.as_ref().unwrap(), "{command}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert!(!line.is_empty() && !line.starts_with("error"), "{command}: {line}");
        line.trim_end().to_owned()
    }

    /// Waits until this many requests hang.
    #[track_caller]
    pub(crate) fn wait_until_held(&mut self, count: usize) {
        wait_for("requests to hang", || (self.tell("held").parse::<usize>().unwrap() >= count).then_some(()));
    }

    /// The kinds of requests that a process has sent it.
    pub(crate) fn asked_by(&mut self, pid: u32) -> Option<String> {
        let askers = self.tell("askers");
        let found = askers.split(' ').filter_map(|asker| asker.split_once(':'));
        found.into_iter().find(|(who, _)| *who == pid.to_string()).map(|(_, what)| what.to_owned())
    }

    /// Unmounts it, and fails if a process still uses it.
    #[track_caller]
    pub(crate) fn unmount(mut self) {
        drop(self.commands.take());
        let status = wait_for("the disk to be unmounted", || self.child.try_wait().unwrap());
        assert!(status.success(), "still in use: {status}");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.commands.take());
        // Once its process is gone, nothing hangs any more.
        let patience = std::time::Instant::now() + super::PATIENCE;
        while std::time::Instant::now() < patience && self.child.try_wait().is_ok_and(|ended| ended.is_none())
        {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let _ = self.child.kill();
        if self.child.wait().is_ok_and(|status| status.signal().is_some()) {
            let _ = Command::new("umount").arg("-l").arg(&self.place).status();
        }
    }
}
