//! Messages for the operator on standard error, and start lines on standard output.
//!
//! The supervisor's loop calls it. A write to a pipe that nobody reads would block, so threads write, and the loop only queues: a
//! message that does not fit in the queue is dropped and counted.
//!
//! Other processes have a pipe as their standard error, and a thread prints its lines behind [`OF_OTHERS`]. So no process can
//! print a line as the supervisor, and control characters are escaped.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use flash_prompt::OwnedFd;
use flash_waiting::process::{self, Redirected};
use flash_waiting::successor::Bequest;

const WAITING_MAX: usize = 256;
/// Maximum length of a message; the rest is cut.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Maximum time for all last messages.
const LAST_MESSAGES: Duration = Duration::from_secs(1);
/// Before every line that another process has written on its standard error.
const OF_OTHERS: &str = "| ";
/// Maximum length of such a line; a longer one is several.
const LINE_BYTES_MAX: u64 = 4 * 1024;
/// Time before another try on an output that takes nothing now and does not block.
const FULL_PAUSE: Duration = Duration::from_millis(50);
/// Time between two looks whether all messages are written.
const FLUSH_PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Messages {
    errors: Outlet,
    output: Outlet,
    /// Standard error, as this process was given it.
    stderr: OwnedFd,
    /// The pipe that other processes have as theirs, for the next program.
    of_others: OwnedFd,
    /// Closed when no other process can write any more.
    others_ended: Receiver<()>,
}

impl Messages {
    /// Starts the threads. They inherit the signals and rights of the calling thread, so these must be set before.
    pub(super) fn start() -> io::Result<Self> {
        let Redirected { real, written } = process::redirect_stderr()?;
        let errors = Outlet::start("messages", File::from(real.try_clone()?))?;
        let output = Outlet::start("start lines", io::stdout())?;
        let (end, others_ended) = mpsc::channel();
        let messages = Self { errors, output, stderr: real, of_others: written, others_ended };
        messages.start_to_pass_on(messages.of_others.try_clone()?, end)?;
        Ok(messages)
    }

    /// Passes on the lines of processes that an earlier program has started.
    pub(super) fn adopt(&self, of_others: OwnedFd) -> io::Result<()> {
        self.start_to_pass_on(of_others, mpsc::channel().0)
    }

    fn start_to_pass_on(&self, written: OwnedFd, end: mpsc::Sender<()>) -> io::Result<()> {
        let queue = self.errors.queue.clone();
        thread::Builder::new().name("errors of others".to_owned()).spawn(move || {
            // Dropped with the thread.
            let _end: mpsc::Sender<()> = end;
            pass_on(File::from(written), |line| queue.push(line));
        })?;
        Ok(())
    }

    /// Leaves the lines of other processes to the next program.
    pub(super) fn leave(&self, bequest: &mut Bequest) -> io::Result<usize> {
        bequest.add(&self.of_others)
    }

    /// Waits briefly until all messages are written, and makes standard error what it was while `execute` tries to execute the next
    /// program.
    pub(super) fn pause<T>(&self, execute: impl FnOnce() -> T) -> io::Result<T> {
        let deadline = Instant::now() + LAST_MESSAGES;
        self.errors.queue.flush(deadline);
        self.output.queue.flush(deadline);
        let pipe = io::stderr().as_fd().try_clone_to_owned()?;
        process::restore_stderr(&self.stderr)?;
        let result = execute();
        process::restore_stderr(&pipe)?;
        Ok(result)
    }

    /// Prints a message on standard error, as one line.
    pub(super) fn report(&self, message: &str) {
        self.errors.queue.push(format!("flash: {}", escaped(message)));
    }

    /// Prints a formatted text on standard error.
    pub(super) fn show(&self, text: String) {
        self.errors.queue.push(text);
    }

    pub(super) fn print(&self, line: String) {
        self.output.queue.push(line);
    }

    /// Waits briefly until all messages are written.
    pub(super) fn finish(self) {
        let deadline = Instant::now() + LAST_MESSAGES;
        // Without it, no process is left that holds the pipe. If this fails, the deadline is the end.
        let _ = process::restore_stderr(&self.stderr);
        let _ = self.others_ended.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        self.errors.finish(deadline);
        self.output.finish(deadline);
    }
}

/// Messages on their way to a thread, and the number of those that had no room.
#[derive(Clone, Debug)]
struct Queue {
    messages: SyncSender<String>,
    dropped: Arc<AtomicU64>,
    /// How many messages are not written yet.
    unwritten: Arc<AtomicU64>,
}

impl Queue {
    fn push(&self, mut text: String) {
        let end = (0..=text.len().min(MESSAGE_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.push('\n');
        self.unwritten.fetch_add(1, Ordering::Release);
        if self.messages.try_send(text).is_err() {
            self.unwritten.fetch_sub(1, Ordering::Release);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self, deadline: Instant) {
        while self.unwritten.load(Ordering::Acquire) > 0 && Instant::now() < deadline {
            thread::sleep(FLUSH_PAUSE);
        }
    }
}

/// One output, with its thread and its queue.
#[derive(Debug)]
struct Outlet {
    queue: Queue,
    /// Closed when all is written and the thread ends.
    ended: Receiver<()>,
}

impl Outlet {
    fn start(name: &str, out: impl Write + Send + 'static) -> io::Result<Self> {
        let (queue, messages) = mpsc::sync_channel(WAITING_MAX);
        let queue = Queue { messages: queue, dropped: Arc::default(), unwritten: Arc::default() };
        let (end, ended) = mpsc::channel();
        let (dropped, unwritten) = (Arc::clone(&queue.dropped), Arc::clone(&queue.unwritten));
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            // Dropped with the thread.
            let _end: mpsc::Sender<()> = end;
            write_all(&messages, (&dropped, &unwritten), out);
        })?;
        Ok(Self { queue, ended })
    }

    fn finish(self, deadline: Instant) {
        drop(self.queue);
        // Closed or too late: both are the end.
        let _ = self.ended.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

/// A text on one line, and without characters that control a terminal.
fn escaped(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() && character != '\t' {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

/// Passes on the lines that other processes write, until none is left that could.
fn pass_on(from: impl Read, mut push: impl FnMut(String)) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while let Ok(1..) = from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
        let text = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(&line));
        push(format!("{OF_OTHERS}{}", escaped(&text)));
        line.clear();
    }
}

/// The loop of the thread, until the queue is closed and empty.
fn write_all(
    messages: &Receiver<String>,
    (dropped, unwritten): (&AtomicU64, &AtomicU64),
    mut out: impl Write,
) {
    let write_one = |out: &mut _, text: &str| {
        write(out, text);
        unwritten.fetch_sub(1, Ordering::Release);
    };
    while let Ok(first) = messages.recv() {
        write_one(&mut out, &first);
        // The dropped messages came after all that were queued then.
        messages.try_iter().for_each(|text| write_one(&mut out, &text));
        let count = dropped.swap(0, Ordering::Relaxed);
        if count > 0 {
            write(&mut out, &format!("flash: dropped {count} messages here: their reader was too slow\n"));
        }
    }
}

/// Writes the whole text, unless its reader is gone.
fn write(out: &mut impl Write, text: &str) {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        match out.write(rest) {
            Ok(0) => return,
            Ok(written) => rest = &rest[written..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => thread::sleep(FULL_PAUSE),
            Err(_) => return,
        }
    }
    let _ = out.flush();
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A reader that reads only while the lock is free.
    #[derive(Clone, Default)]
    struct Reader(Arc<Mutex<Vec<u8>>>);

    impl Write for Reader {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("the text").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nothing_waits_for_a_reader_and_what_it_misses_is_counted() {
        let reader = Reader::default();
        let outlet = Outlet::start("test", reader.clone()).expect("a thread");
        let sent = 3 * WAITING_MAX;
        let held = reader.0.lock().expect("the text");
        (0..sent).for_each(|n| outlet.queue.push(format!("message {n}")));
        drop(held);
        outlet.finish(Instant::now() + Duration::from_secs(60));
        let text = String::from_utf8(reader.0.lock().expect("the text").clone()).expect("text");
        let written = text.lines().filter(|line| line.starts_with("message ")).count();
        assert!((WAITING_MAX..=WAITING_MAX + 1).contains(&written), "{written}");
        let expected = format!("dropped {} messages", sent - written);
        assert!(text.lines().last().is_some_and(|line| line.contains(&expected)), "{expected}");
    }

    #[test]
    fn a_reader_that_never_reads_delays_the_end_no_longer_than_allowed() {
        let reader = Reader::default();
        let outlet = Outlet::start("test", reader.clone()).expect("a thread");
        let held = reader.0.lock().expect("the text");
        outlet.queue.push("unread".to_owned());
        outlet.finish(Instant::now() + Duration::from_millis(10));
        assert!(held.is_empty());
    }

    #[test]
    fn no_process_prints_a_line_as_the_supervisor() {
        let mut lines = Vec::new();
        let long = [b'x'; 5000];
        let text = [&b"one\r\nflash: forged\n\x1b[2J\tthree\xff\n"[..], &long].concat();
        pass_on(&text[..], |line| lines.push(line));
        let expected = ["| one\\r", "| flash: forged", "| \\u{1b}[2J\tthree\u{fffd}"];
        assert_eq!(lines[..3], expected);
        assert_eq!(lines[3..].iter().map(String::len).collect::<Vec<_>>(), [2 + 4096, 2 + 904]);
        assert_eq!(escaped("a file\nflash: forged\u{9b}"), "a file\\nflash: forged\\u{9b}");
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let reader = Reader::default();
        let outlet = Outlet::start("test", reader.clone()).expect("a thread");
        outlet.queue.push("x".to_owned() + &"\u{fc}".repeat(MESSAGE_BYTES_MAX));
        outlet.finish(Instant::now() + Duration::from_secs(60));
        let text = String::from_utf8(reader.0.lock().expect("the text").clone()).expect("whole characters");
        assert_eq!(text.len(), MESSAGE_BYTES_MAX);
    }
}
