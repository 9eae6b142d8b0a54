//! A FUSE file system that hangs, fails or is slow on command: the disk of the tests in
//! `tests/e2e/hung_disks.rs` and of `bench/hung.py`.
//!
//! `hanging_fs MOUNTPOINT FOLDER` reads the small FOLDER into memory and mounts it read-only; with `--writable` behind, so
//! that files can be created and written, but not removed or renamed. Then it reads commands from standard input and answers each with a line:
//!
//! | command | effect |
//! |---|---|
//! | `OP hang`, `OP eio`, `OP slow MS`, `OP ok` | sets the mode of requests of this kind |
//! | `ttl MS` | sets how long the kernel may cache answers; 0 at first |
//! | `put PATH TEXT` | changes a file's content |
//! | `replace PATH TEXT` | replaces a file; the old one is gone, even for processes that have it open |
//! | `remove PATH` | deletes a file, even for processes that have it open |
//! | `held` | prints the number of hanging requests |
//! | `askers` | prints the processes that have sent requests, by ID, and the kinds of requests |
//!
//! OP is `lookup`, `getattr`, `open`, `read`, `flush`, `opendir`, `readdir`, `statfs`, `write` or `all`. Hanging requests
//! continue when their kind is `ok` again. The end of standard input unmounts it, and so does [`LIFE_TIME`]; if a
//! process still has an open file, it unmounts lazily, with exit code 3.

#[path = "hanging_fs/tree.rs"]
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};
use std::{io, thread};

use fuser::{
    BsdFileFlags, Errno, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use tree::{Node, Tree};

/// A disk that its starter forgets unmounts itself after this time.
const LIFE_TIME: Duration = Duration::from_secs(600);
/// Maximum requests that hang at once; further ones fail.
const HELD_MAX: usize = 4096;
const OPS: [&str; 9] =
    ["lookup", "getattr", "open", "read", "flush", "opendir", "readdir", "statfs", "write"];

#[derive(Clone, Copy, Default)]
enum Mode {
    #[default]
    Ok,
    Hang,
    Eio,
    Slow(Duration),
}

/// The pending answer to a request.
type Answer = Box<dyn FnOnce(Result<(), Errno>) + Send>;

#[derive(Default)]
struct State {
    tree: Tree,
    modes: BTreeMap<String, Mode>,
    held: Vec<(&'static str, Answer)>,
    askers: BTreeMap<u32, BTreeSet<&'static str>>,
    ttl: Duration,
}

#[derive(Clone, Default)]
struct HangingFs(Arc<Mutex<State>>);

impl HangingFs {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nothing panics under the lock")
    }

    /// Answers a request according to the current mode of its kind.
    fn go(
        &self,
        op: &'static str,
        request: &Request,
        answer: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let mut state = self.state();
        state.askers.entry(request.pid()).or_default().insert(op);
        let mode = state.modes.get(op).copied().unwrap_or_default();
        if matches!(mode, Mode::Hang) && state.held.len() < HELD_MAX {
            state.held.push((op, Box::new(answer)));
            return;
        }
        drop(state);
        match mode {
            Mode::Ok => answer(Ok(())),
            Mode::Hang | Mode::Eio => answer(Err(Errno::EIO)),
            Mode::Slow(time) => {
                thread::spawn(move || {
                    thread::sleep(time);
                    answer(Ok(()));
                });
            }
        }
    }

    fn obey(&self, line: &str) -> Result<String, String> {
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        let millis = |text: &str| text.parse().map(Duration::from_millis).map_err(|e| e.to_string());
        match words[..] {
            ["held"] => Ok(self.state().held.len().to_string()),
            ["askers"] => {
                let state = self.state();
                let askers = state
                    .askers
                    .iter()
                    .map(|(pid, ops)| format!("{pid}:{}", Vec::from_iter(ops.iter().copied()).join(",")));
                Ok(askers.collect::<Vec<_>>().join(" "))
            }
            ["ttl", ms] => {
                self.state().ttl = millis(ms)?;
                Ok("ok".to_owned())
            }
            ["remove", path] => {
                self.state().tree.remove(path).map(|()| "ok".to_owned()).map_err(|e| format!("{e:?}"))
            }
            [verb @ ("put" | "replace"), path, text] => {
                let mut state = self.state();
                let done =
                    if verb == "put" { state.tree.put(path, text) } else { state.tree.replace(path, text) };
                done.map(|()| "ok".to_owned()).map_err(|e| format!("{e:?}"))
            }
            [op, mode, ref rest @ ..] if op == "all" || OPS.contains(&op) => {
                let mode = match (mode, rest) {
                    ("ok", []) => Mode::Ok,
                    ("hang", []) => Mode::Hang,
                    ("eio", []) => Mode::Eio,
                    ("slow", [ms]) => Mode::Slow(millis(ms)?),
                    _ => return Err(format!("no such mode: {line}")),
                };
                self.set_mode(op, mode);
                Ok("ok".to_owned())
            }
            _ => Err(format!("no such command: {line}")),
        }
    }

    fn set_mode(&self, op: &str, mode: Mode) {
        let mut state = self.state();
        for name in OPS.iter().filter(|name| op == "all" || **name == op) {
            state.modes.insert((*name).to_owned(), mode);
        }
        if matches!(mode, Mode::Hang) {
            return;
        }
        let held = std::mem::take(&mut state.held);
        let (freed, kept): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|(name, _)| op == "all" || *name == op);
        state.held = kept;
        drop(state);
        for (_, answer) in freed {
            answer(Ok(()));
        }
    }
}

impl Filesystem for HangingFs {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Otherwise the kernel sends one look-up per folder at a time. An old kernel always does.
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (fs, name) = (self.clone(), name.to_string_lossy().into_owned());
        self.go("lookup", request, move |result| {
            let state = fs.state();
            let found = result
                .and_then(|()| state.tree.child(parent, &name))
                .and_then(|child| state.tree.attributes(child));
            match found {
                Ok(attributes) => reply.entry(&state.ttl, &attributes, Generation(0)),
                Err(e) => reply.error(e),
            }
        });
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let fs = self.clone();
        self.go("getattr", request, move |result| {
            let state = fs.state();
            match result.and_then(|()| state.tree.attributes(ino)) {
                Ok(attributes) => reply.attr(&state.ttl, &attributes),
                Err(e) => reply.error(e),
            }
        });
    }

    fn open(&self, request: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let fs = self.clone();
        self.go("open", request, move |result| match result.and_then(|()| fs.state().tree.attributes(ino)) {
            Ok(_) => reply.opened(FileHandle(0), FopenFlags::empty()),
            Err(e) => reply.error(e),
        });
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let fs = self.clone();
        self.go("read", request, move |result| {
            let content = result.and_then(|()| match fs.state().tree.node(ino)? {
                Node::File { content, .. } => Ok(Arc::clone(content)),
                _ => Err(Errno::EISDIR),
            });
            match content {
                Ok(content) => {
                    let start = content.len().min(offset as usize);
                    let end = content.len().min(start + size as usize);
                    reply.data(&content[start..end]);
                }
                Err(e) => reply.error(e),
            }
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let (fs, name) = (self.clone(), name.to_string_lossy().into_owned());
        self.go("write", request, move |result| {
            let mut state = fs.state();
            let made = result
                .and_then(|()| state.tree.create(parent, name))
                .and_then(|new| state.tree.attributes(new));
            match made {
                Ok(made) => {
                    reply.created(&state.ttl, &made, Generation(0), FileHandle(0), FopenFlags::empty());
                }
                Err(e) => reply.error(e),
            }
        });
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (fs, data) = (self.clone(), data.to_vec());
        self.go("write", request, move |result| {
            let end = offset as usize + data.len();
            let edit = |content: &mut Vec<u8>| {
                content.resize(content.len().max(end), 0);
                content[offset as usize..end].copy_from_slice(&data);
            };
            match result.and_then(|()| fs.state().tree.edit(ino, edit)) {
                Ok(()) => reply.written(data.len() as u32),
                Err(e) => reply.error(e),
            }
        });
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let fs = self.clone();
        self.go("write", request, move |result| {
            let mut state = fs.state();
            let cut = |content: &mut Vec<u8>| content.resize(size.map_or(content.len(), |n| n as usize), 0);
            let changed =
                result.and_then(|()| state.tree.edit(ino, cut)).and_then(|()| state.tree.attributes(ino));
            match changed {
                Ok(attributes) => reply.attr(&state.ttl, &attributes),
                Err(e) => reply.error(e),
            }
        });
    }

    fn flush(&self, request: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.go("flush", request, move |result| match result {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        });
    }

    fn opendir(&self, request: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.go("opendir", request, move |result| match result {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::empty()),
            Err(e) => reply.error(e),
        });
    }

    fn readdir(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let fs = self.clone();
        self.go("readdir", request, move |result| {
            let state = fs.state();
            let children = match result.and_then(|()| state.tree.node(ino)) {
                Ok(Node::Folder(children)) => children,
                Ok(_) => return reply.error(Errno::ENOTDIR),
                Err(e) => return reply.error(e),
            };
            for (at, (name, child)) in children.iter().enumerate().skip(offset as usize) {
                let kind = match state.tree.node(INodeNo(*child)) {
                    Ok(Node::File { .. }) => FileType::RegularFile,
                    _ => FileType::Directory,
                };
                if reply.add(INodeNo(*child), at as u64 + 1, kind, name) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn statfs(&self, request: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.go("statfs", request, move |result| match result {
            Ok(()) => reply.statfs(0, 0, 0, 0, 0, 4096, 255, 0),
            Err(e) => reply.error(e),
        });
    }
}

/// Reads commands until standard input ends.
fn obey_all(fs: &HangingFs) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let answer = fs.obey(line.trim()).unwrap_or_else(|why| format!("error: {why}"));
        if writeln!(io::stdout(), "{answer}").is_err() {
            return;
        }
    }
}

fn main() -> ExitCode {
    let words: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [mountpoint, folder, more @ ..] = &words[..] else {
        eprintln!("usage: hanging_fs MOUNTPOINT FOLDER [--writable]");
        return ExitCode::from(2);
    };
    let access = if more.is_empty() { MountOption::RO } else { MountOption::RW };
    let fs = HangingFs::default();
    if let Err(e) = fs.state().tree.add(folder) {
        eprintln!("cannot read {}: {e}", folder.display());
        return ExitCode::FAILURE;
    }
    let mut options = fuser::Config::default();
    options.mount_options = vec![access, MountOption::FSName("hanging".to_owned())];
    options.acl = fuser::SessionACL::All;
    let mounted = fuser::Session::new(fs.clone(), mountpoint, &options).and_then(fuser::Session::spawn);
    let session = match mounted {
        Ok(session) => session,
        Err(e) => {
            eprintln!("cannot mount on {}: {e}", mountpoint.display());
            return ExitCode::FAILURE;
        }
    };
    println!("mounted");
    let obeyed = thread::spawn({
        let fs = fs.clone();
        move || obey_all(&fs)
    });
    let ends = SystemTime::now() + LIFE_TIME;
    while !obeyed.is_finished() && SystemTime::now() < ends {
        thread::sleep(Duration::from_millis(20));
    }
    fs.set_mode("all", Mode::Ok);
    if session.umount_and_join().is_ok() {
        return ExitCode::SUCCESS;
    }
    // The mount disappears at once, and ends with this process.
    let _ = Command::new("umount").arg("-l").arg(mountpoint).status();
    ExitCode::from(3)
}
