//! The process that reads the configuration on HUP: files, roots and the user database may hang, and the supervisor must
//! not wait for them.
//!
//! The supervisor executes its own command line again as `flash role config serve ...`. The process answers over its
//! standard input: descriptors first, one in each message, then a document about them.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice, Read, Seek};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use flash_prompt::{OwnedFd, channel};
use flash_waiting::guarded::GuardedFile;
use flash_waiting::root::Root;
use flash_waiting::subprocess::Subprocess;
use flash_waiting::{file, process, signal};
use flash_worker::control::CHANNEL_BYTES;

use super::Program;
use super::estate;
use super::hot_list_files::HotList;
use super::local_socket::{self, LocalSocket};
use super::poller::{Poller, Watched};
use super::prepare::{Certificates, FoundRoot, Prepared, prepare};
use crate::certificates::Expiry;
use crate::config::{FilePath, Settings};
use crate::trust;

/// The name of the process, as `flash role` knows it.
pub const ROLE: &str = "config";

const READ_MS: u64 = 60_000;

/// Messages: a descriptor that the document is about, and the document itself, in a memory file.
const DESCRIPTOR: u8 = 1;
const DOCUMENT: u8 = 2;

#[derive(Debug, Serialize, Deserialize)]
enum Document {
    /// The configuration cannot be used: a text for standard error.
    Refused(String),
    /// It can.
    Prepared {
        /// See [`estate::VERSION`].
        handover: u32,
        /// As the roles get them.
        settings: String,
        roots: Vec<SentRoot>,
        residency: Result<(), String>,
        /// When the certificates expire, if there are any.
        expiries: Option<Vec<Expiry>>,
        /// None if there is no list of hot files, or no new one.
        list: Option<SentList>,
        sockets: Vec<SentSocket>,
    },
}

/// The facts about the server that the process needs.
#[derive(Debug, Serialize, Deserialize)]
struct Server {
    /// The directory that it was started in, which could be gone, and its name with it.
    folder: FilePath,
    has_store: bool,
    /// The paths that it listens at already.
    paths: Vec<FilePath>,
}

/// A new [`LocalSocket`] without its descriptor.
#[derive(Debug, Serialize, Deserialize)]
struct SentSocket {
    path: FilePath,
    file: (u64, u64),
}

/// A [`HotList`] without its three descriptors.
#[derive(Debug, Serialize, Deserialize)]
struct SentList {
    /// See [`GuardedFile::into_parts`].
    owner: Option<u32>,
}

/// A [`FoundRoot`] without its descriptor.
#[derive(Debug, Serialize, Deserialize)]
enum SentRoot {
    Open { is_local: bool, reports_changes: bool, identity: (u64, u64) },
    Hangs,
    Failed(String),
}

/// The process, and its answer so far.
#[derive(Debug)]
pub(super) struct Reader {
    child: Subprocess,
    channel: Watched<OwnedFd>,
    pub(super) deadline_ms: u64,
    descriptors: Vec<OwnedFd>,
}

impl Reader {
    /// Starts it, as a process of `executable` or of this program, for a server that has a store or not, and listens at these
    /// paths.
    ///
    /// Errors: a process cannot be started.
    pub(super) fn start(
        (program, executable): (&Program, Option<&OwnedFd>),
        (has_store, paths): (bool, Vec<FilePath>),
        now_ms: u64,
        poller: &mut Poller,
    ) -> io::Result<Self> {
        let (ours, theirs) = channel::pair(CHANNEL_BYTES)?;
        channel::set_nonblocking(&ours)?;
        let server = Server { folder: program.folder().into(), has_store, paths };
        let server = file::memory_file(&serde_json::to_vec(&server)?)?;
        channel::send(&ours, &[IoSlice::new(&[DOCUMENT])], &[server.as_fd()])?;
        let channel = poller.watch(ours)?;
        let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        let child = Subprocess::start_again(executable, ROLE, &arguments, theirs)?;
        let deadline_ms = now_ms + READ_MS;
        Ok(Self { child, channel, deadline_ms, descriptors: Vec::new() })
    }

    pub(super) fn is(&self, token: u64) -> bool {
        self.channel.token == token
    }

    /// Receives its answer, as far as it has come: the configuration, or why it cannot be used.
    pub(super) fn receive(&mut self) -> Option<Result<Prepared, String>> {
        loop {
            let (mut tag, mut descriptors) = ([0], Vec::new());
            let received = channel::recv(&self.channel.item, &mut tag, &mut descriptors);
            match (received, tag, descriptors.pop()) {
                (Err(e), ..) if e.kind() == io::ErrorKind::WouldBlock => return None,
                (Ok(1), [DESCRIPTOR], Some(descriptor)) => self.descriptors.push(descriptor),
                (Ok(1), [DOCUMENT], Some(document)) => {
                    let descriptors = std::mem::take(&mut self.descriptors);
                    let failed = |e: io::Error| format!("flash: cannot read the configuration: {e}");
                    return Some(read_document(document, descriptors).unwrap_or_else(|e| Err(failed(e))));
                }
                _ => {
                    let text = "flash: cannot read the configuration: the process that reads it has ended";
                    return Some(Err(text.to_owned()));
                }
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // It is reaped with the orphans: one that hangs ends when its file system lets it.
        self.child.kill();
    }
}

/// The configuration of a document, or the reason against it.
///
/// Errors: the document is none.
fn read_document(document: OwnedFd, descriptors: Vec<OwnedFd>) -> io::Result<Result<Prepared, String>> {
    let (settings, sent, residency, expiries, (list, sockets)) = match serde_json::from_slice(&contents(
        document,
    )?)? {
        Document::Refused(why) => return Ok(Err(why)),
        Document::Prepared { handover, .. } if handover != estate::VERSION => {
            let why =
                "flash: this version cannot take over the processes of the one that runs; restart the server";
            return Ok(Err(why.to_owned()));
        }
        Document::Prepared { settings, roots, residency, expiries, list, sockets, .. } => {
            (settings, roots, residency, expiries, (list, sockets))
        }
    };
    let settings = Settings::from_toml(&settings).map_err(io::Error::other)?;
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or(io::ErrorKind::InvalidData);
    let mut roots = Vec::with_capacity(sent.len());
    for root in sent {
        roots.push(match root {
            SentRoot::Open { is_local, reports_changes, identity } => {
                FoundRoot::Open(Root { folder: next()?, is_local, reports_changes, identity })
            }
            SentRoot::Hangs => FoundRoot::Hangs,
            SentRoot::Failed(why) => FoundRoot::Failed(why),
        });
    }
    let certificates = match expiries {
        Some(expiries) => Some(Certificates { file: next()?, expiries }),
        None => None,
    };
    let trust = if trust::is_needed(&settings) { Some(next()?) } else { None };
    let hot_list = match (list, &settings.cache_list) {
        (Some(SentList { owner }), Some(path)) => {
            let (load, save) = (Arc::new(next()?), Arc::new(next()?));
            HotList::from_parts(load, save, GuardedFile::from_parts(next()?, owner, path)?)
        }
        _ => HotList::default(),
    };
    let new_sockets = sockets
        .into_iter()
        .map(|SentSocket { path, file }| Ok(LocalSocket::from_parts((next()?, path.to_path_buf(), file))));
    let new_sockets = new_sockets.collect::<io::Result<_>>()?;
    Ok(Ok(Prepared { settings, roots, residency, certificates, trust, hot_list, new_sockets }))
}

fn contents(file: OwnedFd) -> io::Result<Vec<u8>> {
    let (mut file, mut bytes) = (File::from(file), Vec::new());
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Runs the process. `program` makes the program from the command line, for a server that was started in this directory.
pub(crate) fn run(program: impl FnOnce(PathBuf) -> Result<Program, ExitCode>) -> ExitCode {
    match answer(program) {
        Ok(code) => code,
        // The supervisor has ended, or reports that there was no answer.
        Err(_) => ExitCode::FAILURE,
    }
}

fn answer(program: impl FnOnce(PathBuf) -> Result<Program, ExitCode>) -> io::Result<ExitCode> {
    signal::leave_to_supervisor();
    process::die_with_parent()?;
    let channel = io::stdin().as_fd().try_clone_to_owned()?;
    let mut descriptors = Vec::new();
    channel::recv(&channel, &mut [0], &mut descriptors)?;
    let server = contents(descriptors.pop().ok_or(io::ErrorKind::InvalidData)?)?;
    let Server { folder, has_store, paths } = serde_json::from_slice(&server)?;
    let program = match program(folder.to_path_buf()) {
        Ok(program) => program,
        Err(code) => return Ok(code),
    };
    let refused = |text: String| send_descriptor(&channel, DOCUMENT, &document(&Document::Refused(text))?);
    match program.load() {
        Err(error) => refused(error.text_for_stderr())?,
        Ok(settings) => {
            // The sockets come last, so that nothing is created for settings that cannot be used.
            let prepared = prepare(settings, has_store).and_then(|prepared| {
                let new_sockets = local_socket::bind_new(&prepared.settings, &paths)?;
                Ok(Prepared { new_sockets, ..prepared })
            });
            match prepared {
                Err(e) => refused(format!("flash: {e}"))?,
                Ok(prepared) => send_prepared(&channel, prepared)?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn send_prepared(channel: &OwnedFd, prepared: Prepared) -> io::Result<()> {
    let Prepared { settings, roots, residency, certificates, trust, hot_list, new_sockets } = prepared;
    let mut sent = Vec::with_capacity(roots.len());
    for root in roots {
        sent.push(match root {
            FoundRoot::Open(Root { folder, is_local, reports_changes, identity }) => {
                send_descriptor(channel, DESCRIPTOR, &folder)?;
                SentRoot::Open { is_local, reports_changes, identity }
            }
            FoundRoot::Hangs => SentRoot::Hangs,
            FoundRoot::Failed(why) => SentRoot::Failed(why),
        });
    }
    if let Some(certificates) = &certificates {
        send_descriptor(channel, DESCRIPTOR, &certificates.file)?;
    }
    if let Some(trust) = &trust {
        send_descriptor(channel, DESCRIPTOR, trust)?;
    }
    let list = match hot_list.into_parts() {
        Some((load, save, place)) => {
            let (folder, owner) = place.into_parts();
            for descriptor in [&load, &save, &folder] {
                send_descriptor(channel, DESCRIPTOR, descriptor)?;
            }
            Some(SentList { owner })
        }
        None => None,
    };
    let mut sockets = Vec::with_capacity(new_sockets.len());
    for socket in new_sockets {
        let (listener, path, file) = socket.into_parts()?;
        send_descriptor(channel, DESCRIPTOR, &listener)?;
        sockets.push(SentSocket { path: path.into(), file });
    }
    let settings = settings.to_toml();
    let expiries = certificates.map(|certificates| certificates.expiries);
    let handover = estate::VERSION;
    let prepared = Document::Prepared { handover, settings, roots: sent, residency, expiries, list, sockets };
    send_descriptor(channel, DOCUMENT, &document(&prepared)?)
}

fn document(document: &Document) -> io::Result<OwnedFd> {
    file::memory_file(&serde_json::to_vec(document)?)
}

fn send_descriptor(channel: &OwnedFd, tag: u8, descriptor: &OwnedFd) -> io::Result<()> {
    channel::send(channel, &[IoSlice::new(&[tag])], &[descriptor.as_fd()])
}

impl Program {
    /// The directory that the server was started in.
    fn folder(&self) -> &Path {
        match self {
            Program::Serve(sources) => &sources.cwd,
            Program::Backend(options) => &options.cwd,
        }
    }
}
