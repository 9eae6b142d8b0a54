//! The bytes between a worker and a program of `cgi`, and the end of both. Used by `cgi`.
//!
//! Output is held back until its head is complete and valid, because a worker repeats some requests whose answer has no head. So
//! a program that fails before that is 502 here. If a program is killed later, the connection ends without the end of the
//! request, and the worker cuts the answer.

use std::io::{self, PipeReader, Read, Write};
use std::mem;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStdin, ChildStdout, ExitStatus};
use std::time::{Duration, Instant};

use flash_engine::fastcgi::{kind, push_record};
use flash_engine::limits::ANSWER_HEAD_BYTES_MAX;
use flash_http::{HeadSyntax, ParsedHead, ResponseTo, parse_response};
use flash_prompt::channel;
use flash_prompt::epoll::{Epoll, Watch};

use super::records::{Records, push_answer, push_answer_end};
use super::running::Running;

/// Size of the pieces in which output passes.
const PIECE_BYTES: usize = 32 * 1024;
/// Bytes that wait for the worker or the program; then no more are read.
const WAITING_BYTES_MAX: usize = 64 * 1024;
/// Maximum time between the end of the output and that of the program. Usually both are the same event, and only then it is known
/// whether the program was killed. A program that closes its output and continues costs its client this time.
const CLOSED_TIME: Duration = Duration::from_secs(2);
/// Time of a worker to take a piece of the answer, besides the time that the program may be silent. Clients that read more
/// slowly than `least_rate` are cut long before.
const PIECE_TIME: Duration = Duration::from_secs(15 * 60);
/// Time of a program to end by itself after its answer.
const ANSWERED_TIME: Duration = Duration::from_secs(5);
/// Time of a program to end after SIGTERM.
const TERM_TIME: Duration = Duration::from_secs(2);
/// Each final head is valid or not whatever it answers.
const ANY_REQUEST: ResponseTo = ResponseTo { is_head: false, upgrades: false };

const WORKER: u64 = 0;
const PROGRAM: u64 = 1;
const PIPE: u64 = 2;
const END: u64 = 3;

pub(super) struct Exchange<'s> {
    socket: &'s UnixStream,
    id: u16,
    records: Records,
    /// Whether the head is all of the answer.
    is_head: bool,
    epoll: Epoll,
    program: Running,
    /// The program, for messages.
    name: String,
    /// None once the body has ended, or the program reads no more.
    input: Option<ChildStdin>,
    has_body_ended: bool,
    output: Output,
    to_program: Vec<u8>,
    to_worker: Vec<u8>,
    /// When it is given up unless something moves. A worker has much shorter deadlines, but may be stopped.
    deadline: Instant,
    idle_time: Duration,
}

/// How far the output of a program has come.
enum Output {
    /// These bytes of its head.
    Head(ChildStdout, Vec<u8>),
    /// The head was passed on.
    Body(ChildStdout),
    /// It has ended, and the program is expected to end until this time.
    Closed(Head, Instant),
    /// All of the answer is among the bytes for the worker.
    Over(Ending),
}

/// The head of an output that has ended.
#[derive(Clone, Copy)]
enum Head {
    Missing,
    PassedOn,
}

#[derive(Clone, Copy)]
enum Ending {
    Whole,
    /// The program has failed, or is not wanted any more.
    Failed,
}

/// An event that is not about bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    None,
    /// The worker has closed the connection.
    WorkerGone,
    /// All programs must end.
    MustEnd,
}

impl<'s> Exchange<'s> {
    /// `must_end` is at its end when all programs must end. The program may be silent for `silence`.
    ///
    /// Errors: too few descriptors.
    pub(super) fn new(
        (socket, id, records, is_head): (&'s UnixStream, u16, Records, bool),
        (program, name): (Running, String),
        (input, output): (ChildStdin, ChildStdout),
        (must_end, silence): (&PipeReader, Duration),
    ) -> io::Result<Self> {
        let epoll = Epoll::new(8)?;
        socket.set_nonblocking(true)?;
        channel::set_nonblocking(&input)?;
        channel::set_nonblocking(&output)?;
        epoll.add(socket, WORKER, Watch::Connection)?;
        epoll.add(&input, PIPE, Watch::Connection)?;
        epoll.add(&output, PIPE, Watch::Connection)?;
        epoll.add(must_end, END, Watch::Connection)?;
        program.watch(&epoll, PROGRAM)?;
        Ok(Self {
            socket,
            id,
            records,
            is_head,
            epoll,
            program,
            name,
            input: Some(input),
            has_body_ended: false,
            output: Output::Head(output, Vec::new()),
            to_program: Vec::new(),
            to_worker: Vec::new(),
            deadline: Instant::now() + silence + PIECE_TIME,
            idle_time: silence + PIECE_TIME,
        })
    }

    /// Passes bytes until the answer is complete, and then ends the program: at once if it has failed or the worker is gone.
    pub(super) fn run(mut self) -> io::Result<()> {
        let ending = self.pass_all().unwrap_or(Ending::Failed);
        self.input = None;
        self.output = Output::Over(ending);
        if let Ending::Whole = ending {
            let deadline = Instant::now() + ANSWERED_TIME;
            while self.is_running_before(deadline)? && self.wait(deadline)? != Event::MustEnd {}
            if self.program.status()?.is_some() {
                return Ok(());
            }
        }
        self.program.ask_to_end();
        let deadline = Instant::now() + TERM_TIME;
        while self.is_running_before(deadline)? {
            self.wait(deadline)?;
        }
        self.program.kill();
        Ok(())
    }

    fn is_running_before(&mut self, deadline: Instant) -> io::Result<bool> {
        Ok(self.program.status()?.is_none() && Instant::now() < deadline)
    }

    fn pass_all(&mut self) -> io::Result<Ending> {
        loop {
            // Events tell of changes only, so everything is tried until nothing moves.
            while self.pass_body()? | self.pass_output()? {
                self.deadline = Instant::now() + self.idle_time;
            }
            let deadline = match self.output {
                Output::Over(ending) if self.to_worker.is_empty() => return Ok(ending),
                Output::Closed(_, deadline) => deadline.min(self.deadline),
                _ => self.deadline,
            };
            match self.wait(deadline)? {
                Event::None if Instant::now() >= self.deadline => return Err(io::ErrorKind::TimedOut.into()),
                Event::None => {}
                Event::WorkerGone => return Err(io::ErrorKind::BrokenPipe.into()),
                Event::MustEnd => {
                    self.fail("was ended with the server");
                    self.write_to_worker()?;
                    return Ok(Ending::Failed);
                }
            }
        }
    }

    /// Waits for an event, until a deadline.
    fn wait(&mut self, deadline: Instant) -> io::Result<Event> {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut event = Event::None;
        let mut has_program_ended = false;
        // Rounded up: otherwise the last millisecond would pass without a wait.
        for ready in self.epoll.wait(Some(left.as_millis() as u64 + 1))? {
            match ready.token {
                END => event = Event::MustEnd,
                WORKER if event == Event::None && (ready.hung_up || ready.broken) => {
                    event = Event::WorkerGone;
                }
                PROGRAM => has_program_ended = true,
                _ => {}
            }
        }
        if has_program_ended {
            self.program.status()?;
        }
        Ok(event)
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
        let mut has_moved = self.write_to_worker()?;
        let mut piece = [0; PIECE_BYTES];
        while self.to_worker.len() < WAITING_BYTES_MAX || matches!(self.output, Output::Closed(..)) {
            let (output, head) = match &mut self.output {
                Output::Head(output, _) => (output, Head::Missing),
                Output::Body(output) => (output, Head::PassedOn),
                Output::Closed(head, deadline) => {
                    let (head, deadline) = (*head, *deadline);
                    let status = self.program.status()?;
                    if status.is_none() && Instant::now() < deadline {
                        break;
                    }
                    self.end_output(head, status);
                    return Ok(true);
                }
                Output::Over(_) => break,
            };
            match output.read(&mut piece) {
                Ok(count @ 1..) => self.take_output(&piece[..count]),
                Err(e) if is_for_later(&e) => break,
                Ok(0) | Err(_) => self.output = Output::Closed(head, Instant::now() + CLOSED_TIME),
            }
            has_moved = true;
        }
        Ok(has_moved)
    }

    fn write_to_worker(&mut self) -> io::Result<bool> {
        if self.to_worker.is_empty() {
            return Ok(false);
        }
        match (&mut &*self.socket).write(&self.to_worker) {
            Ok(count) => {
                self.to_worker.drain(..count);
                Ok(count > 0)
            }
            Err(e) if is_for_later(&e) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn take_output(&mut self, bytes: &[u8]) {
        let Output::Head(_, head) = &mut self.output else {
            return push_record(&mut self.to_worker, kind::STDOUT, self.id, bytes);
        };
        head.extend_from_slice(bytes);
        match parse_response(head, HeadSyntax::Cgi, ANY_REQUEST, ANSWER_HEAD_BYTES_MAX) {
            Ok(ParsedHead::Partial | ParsedHead::Interim { .. }) => {}
            Ok(ParsedHead::Complete(_)) => {
                for piece in head.chunks(PIECE_BYTES) {
                    push_record(&mut self.to_worker, kind::STDOUT, self.id, piece);
                }
                let before = mem::replace(&mut self.output, Output::Over(Ending::Whole));
                match before {
                    Output::Head(output, _) if !self.is_head => self.output = Output::Body(output),
                    _ => push_answer_end(&mut self.to_worker, self.id),
                }
            }
            Err(bad) => self.fail(&format!("has a bad answer: {bad}")),
        }
    }

    /// Ends the answer after the output has ended. The program has this status, or continues.
    fn end_output(&mut self, head: Head, status: Option<ExitStatus>) {
        let how = status.map_or("closed its output".to_owned(), |status| format!("ended ({status})"));
        match head {
            Head::Missing => self.fail(&format!("{how} before the head of its answer was complete")),
            Head::PassedOn if status.is_some_and(|status| status.signal().is_some()) => {
                self.fail(&format!("{how} within its answer"));
            }
            Head::PassedOn => {
                push_answer_end(&mut self.to_worker, self.id);
                self.output = Output::Over(Ending::Whole);
            }
        }
    }

    /// Ends an answer that is not over, because the program has failed: as 502 if nothing of it was passed on.
    fn fail(&mut self, why: &str) {
        let is_begun = match self.output {
            Output::Head(..) | Output::Closed(Head::Missing, _) => false,
            Output::Body(_) | Output::Closed(Head::PassedOn, _) => true,
            Output::Over(_) => return,
        };
        let text = format!("{} {why}", self.name);
        push_record(&mut self.to_worker, kind::STDERR, self.id, text.as_bytes());
        if !is_begun {
            push_answer(&mut self.to_worker, self.id, "502 Bad Gateway");
        }
        self.output = Output::Over(Ending::Failed);
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
