//! Runs programs for requests (RFC 3875): a FastCGI application that starts one process per request, and passes bytes between
//! it and a worker.
//!
//! Each connection has one request and a thread. Bytes pass as they come, one piece of each direction at a time, so a program
//! that does not read, or a client that does not, slows only its own request down. A worker that closes its connection ends the
//! program.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use flash_engine::fastcgi::{COMPLETE, Pairs, RESPONDER, kind, push_record};
use flash_prompt::epoll::{Epoll, Watch};
use flash_prompt::{OwnedFd, channel};
use flash_waiting::{process, program};

use super::records::Records;
use super::script::{NoScript, Script, Variable};
use crate::config::RoutePaths;

/// Maximum bytes of the variables of a request.
const VARIABLES_BYTES_MAX: usize = 256 * 1024;
/// Size of the pieces in which output passes.
const PIECE_BYTES: usize = 32 * 1024;
/// Bytes that wait for the worker or the program; then no more are read.
const WAITING_BYTES_MAX: usize = 64 * 1024;
/// Maximum programs at once: each needs four descriptors of this process, which has 1,024.
const PROGRAMS_MAX: u64 = 200;
/// Time before connections are accepted again after a failure, which is usually a lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// Stack of a thread.
const STACK_BYTES: usize = 256 * 1024;
/// Maximum time of a program after the end of its output.
const LAST_MS: u64 = 5_000;
/// Time after which a program that has ended its output is looked at again.
const LOOK: Duration = Duration::from_millis(5);
/// `protocolStatus` of a request that is not for a responder (section 5.5).
const UNKNOWN_ROLE: u8 = 3;

/// The programs of a route.
#[derive(Debug)]
struct Cgi {
    folder: PathBuf,
    paths: RoutePaths,
    /// How many more programs can run.
    room: Mutex<u64>,
    has_room: Condvar,
}

/// A request of a worker.
#[derive(Debug)]
struct Asked {
    id: u16,
    variables: Vec<Variable>,
}

/// Answers requests, at most `programs_max` at once, until this process is killed.
pub(super) fn run(listener: OwnedFd, (folder, paths): (&Path, &RoutePaths), programs_max: u64) -> ! {
    let cgi = Arc::new(Cgi {
        folder: folder.to_owned(),
        paths: paths.clone(),
        room: Mutex::new(programs_max.min(PROGRAMS_MAX)),
        has_room: Condvar::new(),
    });
    let listener = UnixListener::from(listener);
    loop {
        let place = Place::wait(&cgi);
        let Ok((socket, _)) = listener.accept() else {
            thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        // Without a thread the connection closes, and the worker answers 502.
        let _ = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            // The worker is told of every failure that it can be told of.
            let _ = place.0.serve(&socket);
        });
    }
}

/// The right to run a program.
struct Place(Arc<Cgi>);

impl Place {
    fn wait(cgi: &Arc<Cgi>) -> Self {
        let room = cgi.room.lock().unwrap_or_else(PoisonError::into_inner);
        let mut room =
            cgi.has_room.wait_while(room, |room| *room == 0).unwrap_or_else(PoisonError::into_inner);
        *room -= 1;
        Self(Arc::clone(cgi))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.room.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.has_room.notify_one();
    }
}

impl Cgi {
    fn serve(&self, socket: &UnixStream) -> io::Result<()> {
        let mut records = Records::default();
        let Asked { id, variables } = read_request(socket, &mut records)?;
        let mut out = Vec::new();
        match Script::find(&self.folder, &self.paths, variables) {
            Err(NoScript::NotFound) => push_answer(&mut out, id, "404 Not Found"),
            Err(NoScript::Forbidden) => push_answer(&mut out, id, "403 Forbidden"),
            Ok(script) => match start(&script) {
                Ok((child, input, output)) => {
                    return Exchange::new((socket, id), records, (input, output))?.run(child);
                }
                Err(e) => {
                    let text = format!("cannot start {}: {e}", script.file.display());
                    push_record(&mut out, kind::STDERR, id, text.as_bytes());
                    push_answer(&mut out, id, "502 Bad Gateway");
                }
            },
        }
        (&*socket).write_all(&out)
    }
}

/// Reads the beginning of a request, up to its body.
fn read_request(socket: &UnixStream, records: &mut Records) -> io::Result<Asked> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let (mut id, mut params) = (None, Vec::new());
    loop {
        let Some((header, content)) = records.next()? else {
            if !records.fill(socket)? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            continue;
        };
        match (header.kind, id) {
            (kind::BEGIN_REQUEST, None) => {
                if content.first_chunk() != Some(&RESPONDER.to_be_bytes()) {
                    let mut out = Vec::new();
                    push_end(&mut out, header.id, UNKNOWN_ROLE);
                    (&*socket).write_all(&out)?;
                    return Err(invalid());
                }
                id = Some(header.id);
            }
            (kind::PARAMS, Some(id)) if header.id == id && content.is_empty() => {
                let variables = Pairs(&params).map(|(name, value)| (name.to_vec(), value.to_vec()));
                return Ok(Asked { id, variables: variables.collect() });
            }
            (kind::PARAMS, Some(id)) if header.id == id => {
                params.extend_from_slice(&content);
                if params.len() > VARIABLES_BYTES_MAX {
                    return Err(invalid());
                }
            }
            _ => return Err(invalid()),
        }
    }
}

/// Starts a program in its directory, in a session of its own. It ends with the calling thread.
fn start(script: &Script) -> io::Result<(Child, ChildStdin, ChildStdout)> {
    let mut command = super::command(&script.file)?;
    for (name, value) in &script.variables {
        command.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.current_dir(script.file.parent().unwrap_or(Path::new("/")));
    let place = program::Place {
        core: None,
        groups: Vec::new(),
        descriptors: 0,
        network: None,
        parent_death: program::Signal::KILL,
    };
    let mut child = program::start(&mut command, place)?;
    match (child.stdin.take(), child.stdout.take()) {
        (Some(input), Some(output)) => Ok((child, input, output)),
        _ => Err(io::Error::other("it has no pipes")),
    }
}

/// A whole answer without a program.
fn push_answer(out: &mut Vec<u8>, id: u16, status: &str) {
    let text = format!("Status: {status}\r\nContent-Type: text/plain\r\n\r\n{status}\n");
    push_record(out, kind::STDOUT, id, text.as_bytes());
    push_end(out, id, COMPLETE);
}

/// The end of a request (section 5.5).
fn push_end(out: &mut Vec<u8>, id: u16, status: u8) {
    push_record(out, kind::STDOUT, id, &[]);
    push_record(out, kind::END_REQUEST, id, &[0, 0, 0, 0, status, 0, 0, 0]);
}

/// The bytes between a worker and a program.
struct Exchange<'s> {
    socket: &'s UnixStream,
    id: u16,
    records: Records,
    epoll: Epoll,
    /// None once the body has ended, or the program reads no more.
    input: Option<ChildStdin>,
    has_body_ended: bool,
    /// None once its output has ended.
    output: Option<ChildStdout>,
    to_program: Vec<u8>,
    to_worker: Vec<u8>,
}

/// The epoll token of the connection to the worker.
const SOCKET: u64 = 0;
const OTHER: u64 = 1;

impl<'s> Exchange<'s> {
    fn new(
        (socket, id): (&'s UnixStream, u16),
        records: Records,
        (input, output): (ChildStdin, ChildStdout),
    ) -> io::Result<Self> {
        let epoll = Epoll::new(4)?;
        socket.set_nonblocking(true)?;
        channel::set_nonblocking(&input)?;
        channel::set_nonblocking(&output)?;
        epoll.add(socket, SOCKET, Watch::Connection)?;
        epoll.add(&input, OTHER, Watch::Connection)?;
        epoll.add(&output, OTHER, Watch::Connection)?;
        Ok(Self {
            socket,
            id,
            records,
            epoll,
            input: Some(input),
            has_body_ended: false,
            output: Some(output),
            to_program: Vec::new(),
            to_worker: Vec::new(),
        })
    }

    /// Passes bytes until the answer is complete, and then waits for the program. Kills the program if the worker is gone.
    fn run(mut self, mut child: Child) -> io::Result<()> {
        let passed = self.pass_all();
        if passed.is_err() {
            process::kill_group(&child);
        }
        drop((self.input.take(), self.output.take()));
        let deadline = Instant::now() + Duration::from_millis(LAST_MS);
        while child.try_wait()?.is_none() {
            if Instant::now() >= deadline {
                process::kill(&child);
                child.wait()?;
                break;
            }
            thread::sleep(LOOK);
        }
        passed
    }

    fn pass_all(&mut self) -> io::Result<()> {
        loop {
            // Events tell of changes only, so everything is tried until nothing moves.
            while self.pass_body()? | self.pass_output()? {}
            if self.output.is_none() && self.to_worker.is_empty() {
                return Ok(());
            }
            if self.epoll.wait(None)?.any(|ready| ready.token == SOCKET && (ready.hung_up || ready.broken)) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
    }

    /// Moves a piece of the request's body towards the program. True if something moved.
    fn pass_body(&mut self) -> io::Result<bool> {
        let mut has_moved = false;
        if let (Some(input), false) = (&mut self.input, self.to_program.is_empty()) {
            match input.write(&self.to_program) {
                Ok(count) => {
                    self.to_program.drain(..count);
                    has_moved = count > 0;
                }
                Err(e) if is_for_later(&e) => {}
                // The program reads no more, which is its right.
                Err(_) => self.input = None,
            }
        }
        if self.input.is_none() {
            self.to_program.clear();
        }
        if self.has_body_ended && self.to_program.is_empty() {
            self.input = None;
        }
        Ok(self.read_body()? || has_moved)
    }

    /// Takes records of the body while there is room.
    fn read_body(&mut self) -> io::Result<bool> {
        let mut has_moved = false;
        while self.to_program.len() < WAITING_BYTES_MAX {
            match self.records.next()? {
                Some((header, content)) if header.kind == kind::STDIN && header.id == self.id => {
                    self.has_body_ended |= content.is_empty();
                    self.to_program.extend_from_slice(&content);
                    has_moved = true;
                }
                Some((header, _)) if header.kind == kind::ABORT_REQUEST => {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                Some(_) => {}
                None => match self.records.fill(self.socket) {
                    Ok(true) => {}
                    Ok(false) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Err(e) if is_for_later(&e) => break,
                    Err(e) => return Err(e),
                },
            }
        }
        Ok(has_moved)
    }

    /// Moves a piece of output towards the worker. True if something moved.
    fn pass_output(&mut self) -> io::Result<bool> {
        let mut has_moved = false;
        if !self.to_worker.is_empty() {
            match (&mut &*self.socket).write(&self.to_worker) {
                Ok(count) => {
                    self.to_worker.drain(..count);
                    has_moved = count > 0;
                }
                Err(e) if is_for_later(&e) => {}
                Err(e) => return Err(e),
            }
        }
        let mut piece = [0; PIECE_BYTES];
        while let Some(output) = self.output.as_mut().filter(|_| self.to_worker.len() < WAITING_BYTES_MAX) {
            match output.read(&mut piece) {
                Ok(count @ 1..) => push_record(&mut self.to_worker, kind::STDOUT, self.id, &piece[..count]),
                Err(e) if is_for_later(&e) => break,
                Ok(0) | Err(_) => {
                    push_end(&mut self.to_worker, self.id, COMPLETE);
                    self.output = None;
                }
            }
            has_moved = true;
        }
        Ok(has_moved)
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
