//! Runs programs for requests (RFC 3875): a FastCGI application that starts one process per request, and passes bytes between
//! it and a worker.
//!
//! Each connection has one request and a thread. Bytes pass as they come, one piece of each direction at a time, so a program
//! that does not read, or a client that does not, slows only its own request down. A worker that closes its connection ends the
//! program. SIGTERM ends all programs, and then this process; it also comes when the supervisor is gone.

use std::ffi::OsStr;
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use flash_engine::fastcgi::{Pairs, RESPONDER, UNKNOWN_ROLE, kind, push_end, push_record};
use flash_prompt::OwnedFd;
use flash_waiting::program;
use flash_waiting::signal::{self, Signal, Signals};

use super::exchange::Exchange;
use super::records::{Records, push_answer};
use super::running::Running;
use super::script::{NoScript, Script, Variable};
use crate::config::RoutePaths;

/// Maximum bytes of the variables of a request.
const VARIABLES_BYTES_MAX: usize = 256 * 1024;
/// Maximum programs at once: each needs a thread and five descriptors.
const PROGRAMS_MAX: u64 = 200;
/// Time before connections are accepted again after a failure, which is usually a lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
const STACK_BYTES: usize = 256 * 1024;
/// Time of a worker to send the beginning of a request, which it has when it connects.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Time of a worker to take an answer that is shorter than the buffers of its connection.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Time of all programs to end: they are killed after 2 s. The supervisor waits a little longer.
const END_TIME: Duration = Duration::from_millis(2_500);

#[derive(Debug)]
pub(super) struct Programs {
    pub(super) folder: PathBuf,
    pub(super) paths: RoutePaths,
    pub(super) authorization: bool,
    /// Maximum time without a byte from a program.
    pub(super) silence: Duration,
    /// Maximum private memory of a program, in bytes.
    pub(super) memory_bytes_max: u64,
}

#[derive(Debug)]
struct Cgi {
    programs: Programs,
    running: Mutex<u64>,
    has_ended: Condvar,
    /// At its end when all programs must end.
    must_end: PipeReader,
}

/// Answers requests, at most `programs_max` at once, until this process ends.
///
/// Errors: the process cannot watch for SIGTERM.
pub(super) fn run(listener: OwnedFd, programs: Programs, programs_max: u64) -> io::Result<()> {
    let (must_end, unless_ended) = io::pipe()?;
    let cgi = Arc::new(Cgi { programs, running: Mutex::new(0), has_ended: Condvar::new(), must_end });
    let ends = Arc::clone(&cgi);
    // Before the first thread, which inherits the blocked signals.
    let signals = signal::watch()?;
    thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || ends.end_when_told(&signals, unless_ended))?;
    let listener = UnixListener::from(listener);
    loop {
        let Ok((socket, _)) = listener.accept() else {
            thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let permit = Permit::wait(&cgi, programs_max.min(PROGRAMS_MAX));
        // Without a thread the connection closes, and the worker answers 502.
        let _ = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            // The worker is told of every failure that it can be told of.
            let _ = permit.0.serve(&socket);
        });
    }
}

/// The right to run a program.
struct Permit(Arc<Cgi>);

impl Permit {
    fn wait(cgi: &Arc<Cgi>, programs_max: u64) -> Self {
        let running = cgi.running.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |running: &mut u64| *running >= programs_max;
        let mut running = cgi.has_ended.wait_while(running, is_full).unwrap_or_else(PoisonError::into_inner);
        *running += 1;
        Self(Arc::clone(cgi))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.0.running.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.has_ended.notify_all();
    }
}

impl Cgi {
    /// Waits for SIGTERM, and ends all programs and this process.
    fn end_when_told(&self, signals: &Signals, unless_ended: PipeWriter) -> ! {
        while !matches!(signals.take(), Some(Signal::Stop { .. })) {
            if signals.wait().is_err() {
                break;
            }
        }
        drop(unless_ended);
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        // Programs that are left are killed with this process.
        let _ = self.has_ended.wait_timeout_while(running, END_TIME, |running| *running > 0);
        std::process::exit(0)
    }

    fn serve(&self, socket: &UnixStream) -> io::Result<()> {
        let mut records = Records::default();
        socket.set_write_timeout(Some(ANSWER_TIME))?;
        let (id, variables) = read_request(socket, &mut records, Instant::now() + REQUEST_TIME)?;
        let is_head = variables.iter().any(|(name, value)| name == b"REQUEST_METHOD" && value == b"HEAD");
        let Programs { folder, paths, authorization, silence, memory_bytes_max } = &self.programs;
        let mut out = Vec::new();
        match Script::find(folder, paths, variables, *authorization) {
            Err(NoScript::NotFound) => push_answer(&mut out, id, "404 Not Found"),
            Err(NoScript::Forbidden) => push_answer(&mut out, id, "403 Forbidden"),
            Ok(script) => {
                let name = script.file.display().to_string();
                let started = start(&script, *memory_bytes_max).and_then(|(program, pipes)| {
                    Exchange::new(
                        (socket, id, records, is_head),
                        (program, name.clone()),
                        pipes,
                        (&self.must_end, *silence),
                    )
                });
                match started {
                    Ok(exchange) => return exchange.run(),
                    Err(e) => {
                        let text = format!("cannot start {name}: {e}");
                        push_record(&mut out, kind::STDERR, id, text.as_bytes());
                        // The user of the programs cannot execute it, or its interpreter.
                        let is_forbidden = e.kind() == io::ErrorKind::PermissionDenied;
                        let status = if is_forbidden { "403 Forbidden" } else { "502 Bad Gateway" };
                        push_answer(&mut out, id, status);
                    }
                }
            }
        }
        // It can have become non-blocking, but has room for a short answer.
        (&*socket).write_all(&out)
    }
}

/// Reads the number and the variables of a request, up to its body, until `deadline`: meanwhile the request holds one of few permits.
fn read_request(
    socket: &UnixStream,
    records: &mut Records,
    deadline: Instant,
) -> io::Result<(u16, Vec<Variable>)> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let (mut id, mut params) = (None, Vec::new());
    loop {
        let Some((header, content)) = records.next()? else {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // It ends at the deadline too: the next turn finds no time left.
            socket.set_read_timeout(Some(left))?;
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
                return Ok((id, variables.collect()));
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
fn start(script: &Script, memory_bytes_max: u64) -> io::Result<(Running, (ChildStdin, ChildStdout))> {
    let mut command = super::command(&script.file, memory_bytes_max)?;
    for (name, value) in &script.variables {
        command.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.current_dir(script.file.parent().unwrap_or(Path::new("/")));
    let place = program::Placement {
        core: None,
        groups: Vec::new(),
        descriptors: 0,
        network: None,
        parent_death: program::Signal::KILL,
    };
    let mut child = program::start(&mut command, place)?;
    let pipes = (child.stdin.take(), child.stdout.take());
    let program = Running::new(child)?;
    match pipes {
        (Some(input), Some(output)) => Ok((program, (input, output))),
        _ => Err(io::Error::other("it has no pipes")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use std::io::Read;

    use flash_engine::fastcgi::push_pair;

    use super::*;

    fn cgi(folder: &Path, authorization: bool) -> (Cgi, PipeWriter) {
        let (must_end, unless_ended) = io::pipe().expect("a pipe");
        let programs = Programs {
            folder: folder.to_owned(),
            paths: RoutePaths::Prefix("/p/".to_owned()),
            authorization,
            silence: Duration::from_secs(60),
            memory_bytes_max: 1 << 30,
        };
        (Cgi { programs, running: Mutex::new(0), has_ended: Condvar::new(), must_end }, unless_ended)
    }

    /// The beginning of a request with these variables.
    fn request(variables: &[(&str, &str)]) -> Vec<u8> {
        let (mut sent, mut params) = (Vec::new(), Vec::new());
        push_record(&mut sent, kind::BEGIN_REQUEST, 1, &[0, 1, 0, 0, 0, 0, 0, 0]);
        variables.iter().for_each(|(name, value)| push_pair(&mut params, name.as_bytes(), value.as_bytes()));
        push_record(&mut sent, kind::PARAMS, 1, &params);
        push_record(&mut sent, kind::PARAMS, 1, b"");
        push_record(&mut sent, kind::STDIN, 1, b"");
        sent
    }

    #[test]
    fn whoever_sends_a_request_cannot_change_how_programs_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let (plain, file) = (folder.path().join("plain"), folder.path().join("env"));
        std::fs::write(&plain, "#!/bin/bash\nprintf 'Content-Type: text/plain\\n\\n'; env\n")
            .expect("a script");
        // Another process writes it: a process that a test starts at this moment could have it open for writing.
        let mut install = std::process::Command::new("install");
        assert!(install.args(["-m", "755"]).args([&plain, &file]).status().expect("installed").success());
        let evil = folder.path().join("evil");
        std::fs::write(&evil, "echo EVIL >&2; printf 'X-Evil: 1\\n'\n").expect("a script");
        let evil = evil.to_str().expect("text");
        let mut variables =
            vec![("SCRIPT_NAME", "/p"), ("PATH_INFO", "/env"), ("QUERY_STRING", "q"), ("HTTP_X_A", "1")];
        let dangerous = [
            "BASH_ENV",
            "ENV",
            "LD_PRELOAD",
            "LD_AUDIT",
            "PERL5OPT",
            "PYTHONPATH",
            "RUBYOPT",
            "NODE_OPTIONS",
            "PHPRC",
            "IFS",
            "HTTP_PROXY",
            "BASH_FUNC_printf%%",
            "HTTP_A=B",
            "REMOTE_IDENT",
        ];
        variables.extend(dangerous.map(|name| (name, evil)));
        variables.extend([("PATH", "/x"), ("HTTP_AUTHORIZATION", "secret"), ("HTTP_NUL", "a\0b")]);
        for authorization in [false, true] {
            let (cgi, _unless_ended) = cgi(folder.path(), authorization);
            let (worker, socket) = UnixStream::pair().expect("a pair");
            (&worker).write_all(&request(&variables)).expect("sent");
            thread::scope(|scope| {
                // The end of the program's parent thread would end the program, so this thread serves.
                let reads = scope.spawn(|| {
                    let mut answer = Vec::new();
                    (&worker).read_to_end(&mut answer).expect("an answer");
                    String::from_utf8_lossy(&answer).into_owned()
                });
                cgi.serve(&socket).expect("served");
                socket.shutdown(std::net::Shutdown::Both).expect("shut down");
                let answer = reads.join().expect("read");
                assert!(answer.contains("QUERY_STRING=q") && answer.contains("HTTP_X_A=1"), "{answer}");
                assert!(answer.contains("PATH=/usr/local/sbin") && !answer.contains(evil), "{answer}");
                assert!(!answer.contains("EVIL") && !answer.contains("NUL"), "{answer}");
                assert_eq!(answer.contains("secret"), authorization, "{answer}");
            });
        }
    }

    #[test]
    fn a_request_that_does_not_begin_is_given_up() {
        let sent = request(&[("SCRIPT_NAME", "/p")]);
        for length in [0, 1, 8, sent.len() - 20] {
            let (worker, socket) = UnixStream::pair().expect("a pair");
            (&worker).write_all(&sent[..length]).expect("sent");
            let deadline = Instant::now() + Duration::from_millis(20);
            let error = read_request(&socket, &mut Records::default(), deadline).expect_err("no request");
            let is_late = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
            assert!(is_late && Instant::now() >= deadline, "{length}: {error}");
        }
    }

    #[test]
    fn permits_are_bounded_and_come_back() {
        let (cgi, _unless_ended) = cgi(Path::new(""), false);
        let cgi = Arc::new(cgi);
        let (now, most) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let permit = Permit::wait(&cgi, 3);
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        thread::yield_now();
                        now.fetch_sub(1, Ordering::SeqCst);
                        drop(permit);
                    }
                });
            }
        });
        assert!(most.into_inner() <= 3);
        assert_eq!(*cgi.running.lock().expect("the count"), 0);
    }
}
