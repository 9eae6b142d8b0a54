//! Tools for the tests of the lab: running `flash`, a file set, a Flash to measure, and folders that
//! go away.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

#[path = "../skip.rs"]
mod skipping;

pub(crate) use skipping::skip;

/// How long a command may take that should be done in seconds: generous, for a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// The program under test.
pub(crate) const FLASH: &str = env!("CARGO_BIN_EXE_flash");

/// A folder of its own for a test; removed at its end.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        // Servers change their user and still read here.
        let open_to_all = Permissions::from_mode(0o755);
        Self(tempfile::Builder::new().prefix("flash-lab-e2e-").permissions(open_to_all).tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), content).unwrap();
        self.text(name)
    }
}

/// A small SPECweb99 set, made once and kept where cargo keeps what tests make.
pub(crate) fn small_set() -> &'static str {
    static SET: OnceLock<String> = OnceLock::new();
    SET.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("flash-lab-small-set");
        let path = path.to_str().unwrap().to_owned();
        let made = flash(["fileset", "specweb99", &path, "--directories", "2"]);
        assert_eq!(made.code, Some(0), "{made:?}");
        path
    })
}

/// How a run of `flash` ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A `flash` under way.
pub(crate) struct Running {
    child: Child,
    readers: Vec<thread::JoinHandle<String>>,
}

/// Starts `flash` with these words.
pub(crate) fn start<'a>(words: impl IntoIterator<Item = &'a str>) -> Running {
    start_with(words, &[])
}

/// The same with these variables of the environment.
pub(crate) fn start_with<'a>(
    words: impl IntoIterator<Item = &'a str>,
    variables: &[(&str, &str)],
) -> Running {
    let mut command = Command::new(FLASH);
    command.envs(variables.iter().copied());
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    fn read(mut from: impl Read + Send + 'static) -> thread::JoinHandle<String> {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = from.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
    let readers = vec![read(child.stdout.take().unwrap()), read(child.stderr.take().unwrap())];
    Running { child, readers }
}

impl Running {
    /// Sends it a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits until a `flash trace` or `flash doctor` records: it has events of the kernel open, and waits for them.
    #[track_caller]
    pub(crate) fn wait_until_it_records(&mut self) {
        let started = Instant::now();
        let place = format!("/proc/{}", self.child.id());
        let mut times_asleep = 0;
        while times_asleep < 5 {
            assert!(started.elapsed() < PATIENCE, "flash does not record within {PATIENCE:?}");
            assert_eq!(self.child.try_wait().unwrap(), None, "flash has ended");
            thread::sleep(Duration::from_millis(30));
            let descriptors = fs::read_dir(format!("{place}/fd")).unwrap().flatten();
            let mut targets = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
            let has_events = targets.any(|target| target.to_string_lossy().contains("perf_event"));
            let status = fs::read_to_string(format!("{place}/status")).unwrap();
            // One that a busy machine keeps waiting for a processor is not asleep.
            let is_asleep = status.lines().any(|line| line.starts_with("State:\tS"));
            times_asleep = if has_events && is_asleep { times_asleep + 1 } else { 0 };
        }
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn wait(mut self) -> Ended {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if started.elapsed() > PATIENCE {
                let _ = self.child.kill();
                let texts: Vec<String> = self.readers.drain(..).map(|r| r.join().unwrap()).collect();
                panic!("flash did not end within {PATIENCE:?}: {texts:?}");
            }
            thread::sleep(Duration::from_millis(10));
        };
        let mut texts = self.readers.drain(..).map(|reader| reader.join().unwrap());
        Ended { code: status.code(), stdout: texts.next().unwrap(), stderr: texts.next().unwrap() }
    }
}

/// Runs `flash` to its end.
#[track_caller]
pub(crate) fn flash<'a>(words: impl IntoIterator<Item = &'a str>) -> Ended {
    start(words).wait()
}

/// A Flash that serves a folder.
pub(crate) struct Served {
    child: Child,
    pub(crate) url: String,
}

impl Served {
    pub(crate) fn folder(path: &str) -> Self {
        Self::folder_with(path, &[])
    }

    /// The same with these words more.
    pub(crate) fn folder_with(path: &str, words: &[&str]) -> Self {
        let mut command = Command::new(FLASH);
        command
            .args(["serve", path, "--listen", "127.0.0.1:0", "--workers", "1", "--queue-wait", "0s"])
            .args(words);
        if is_root() {
            command.args(["--user", "root"]);
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let at = first.find("http://").unwrap_or_else(|| panic!("no URL in {first:?}"));
        let url = first[at..].split_whitespace().next().unwrap().trim_end_matches(['/', ',', ';']).to_owned();
        Self { child, url }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// Waits until an access log has this many lines.
#[track_caller]
pub(crate) fn wait_for_lines(log: &str, lines: usize) {
    let started = Instant::now();
    while fs::read_to_string(log).unwrap_or_default().lines().count() < lines {
        assert!(started.elapsed() < PATIENCE, "fewer than {lines} requests within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-s", "TERM", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
    }
}

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|found| std::os::unix::fs::MetadataExt::uid(&found) == 0)
}

/// Whether a program is installed.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    path.split(':').any(|folder| Path::new(folder).join(program).is_file())
}

/// The results in a folder.
#[track_caller]
pub(crate) fn run_json(folder: &str) -> Value {
    let text = fs::read_to_string(Path::new(folder).join("run.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}
