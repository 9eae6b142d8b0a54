//! Buffers access-log lines on their way to the log writer. The buffer is bounded and never blocks. Called by
//! [`system`](crate::system).

use std::io::IoSlice;

use flash_engine::limits::LOG_LINE_BYTES_MAX;
use flash_prompt::OwnedFd;
use flash_prompt::channel;

use super::calls::{Call, note_call};

/// Maximum number of bytes of pending lines; later lines are dropped and counted.
const BUFFER_BYTES_MAX: usize = 1024 * 1024;
/// Maximum number of bytes of one message: the number of a log, and lines of it.
pub const BATCH_BYTES_MAX: usize = 32 * 1024;
/// Bytes of the number, little endian.
const NUMBER_BYTES: usize = 2;
const LINES_BYTES_MAX: usize = BATCH_BYTES_MAX - NUMBER_BYTES;

/// The number of the log and its lines in a message of a worker; None if it has none.
#[must_use]
pub fn lines_of_log(message: &[u8]) -> Option<(u16, &[u8])> {
    let (number, lines) = message.split_first_chunk::<NUMBER_BYTES>()?;
    Some((u16::from_le_bytes(*number), lines))
}

/// Lines that wait for the log writer.
#[derive(Debug)]
pub(super) struct LogBuffer {
    channel: Option<OwnedFd>,
    /// Those of each log.
    logs: Vec<Vec<u8>>,
    /// How long they are together.
    bytes: usize,
    dropped: u64,
}

impl LogBuffer {
    pub(super) fn new() -> Self {
        Self { channel: None, logs: Vec::new(), bytes: 0, dropped: 0 }
    }

    /// Sends lines to `channel` from now on.
    pub(super) fn connect(&mut self, channel: OwnedFd) {
        if channel::set_nonblocking(&channel).is_ok() {
            self.channel = Some(channel);
        }
    }

    /// Adds a line of a log. The engine bounds its lines; a longer line would be split, so it is dropped.
    pub(super) fn push(&mut self, log: u16, line: &[u8]) {
        if self.bytes + line.len() >= BUFFER_BYTES_MAX || line.len() >= LINES_BYTES_MAX {
            self.dropped += 1;
            return;
        }
        let number = usize::from(log);
        if self.logs.len() <= number {
            self.logs.resize_with(number + 1, Vec::new);
        }
        let lines = &mut self.logs[number];
        lines.extend_from_slice(line);
        lines.push(b'\n');
        self.bytes += line.len() + 1;
        if lines.len() >= LINES_BYTES_MAX {
            // The rest waits for the lines of later requests: a short message costs as much as a long one.
            self.send(LINES_BYTES_MAX);
        }
    }

    /// Sends as many lines as the log writer accepts now.
    pub(super) fn flush(&mut self) {
        self.send(1);
    }

    /// Sends lines while a log has at least this many bytes of them and the log writer accepts them.
    fn send(&mut self, bytes_min: usize) {
        let Some(channel) = &self.channel else { return };
        if self.bytes == 0 {
            return;
        }
        for (number, lines) in (0u16..).zip(&mut self.logs) {
            let (mut done, number) = (0, number.to_le_bytes());
            while lines.len() - done >= bytes_min {
                let batch = whole_lines(&lines[done..]);
                let parts = [IoSlice::new(&number), IoSlice::new(batch)];
                let sent = channel::send(channel, &parts, &[]);
                note_call(Call::Message);
                if sent.is_err() {
                    // The channel is full, or the log writer is being replaced: try again later.
                    break;
                }
                done += batch.len();
            }
            lines.drain(..done);
            self.bytes -= done;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0 && self.dropped == 0
    }

    pub(super) fn has_lines(&self) -> bool {
        self.bytes > 0
    }

    /// Drops the remaining lines. Returns how many lines were dropped since the last call.
    pub(super) fn give_up(&mut self) -> u64 {
        let lines = self.logs.iter().flatten().filter(|byte| **byte == b'\n').count();
        self.dropped += lines as u64;
        self.logs.clear();
        self.bytes = 0;
        self.take_dropped()
    }

    pub(super) fn has_dropped(&self) -> bool {
        self.dropped > 0
    }

    /// The number of lines dropped since the last call.
    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }
}

/// As many whole lines as fit in a message, at least one.
fn whole_lines(lines: &[u8]) -> &[u8] {
    let front = &lines[..lines.len().min(LINES_BYTES_MAX)];
    let end = front.iter().rposition(|byte| *byte == b'\n').unwrap_or(lines.len() - 1);
    &lines[..=end]
}

const _: () = assert!(LOG_LINE_BYTES_MAX < LINES_BYTES_MAX, "every line fits in one message");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_arrive_whole_and_in_order() {
        let (ours, theirs) = channel::pair(256 * 1024).expect("a pair");
        let mut log = LogBuffer::new();
        log.connect(ours);
        for n in 0..2000 {
            log.push(7, format!("line {n} {}", "x".repeat(40)).as_bytes());
        }
        log.flush();
        assert!(log.is_empty());
        let mut buffer = vec![0; BATCH_BYTES_MAX];
        let mut text = Vec::new();
        channel::set_nonblocking(&theirs).expect("set");
        while let Ok(n) = channel::recv(&theirs, &mut buffer, &mut Vec::new()) {
            assert_eq!(buffer[n - 1], b'\n', "a message ends with a line");
            let (log, lines) = lines_of_log(&buffer[..n]).expect("lines");
            assert_eq!(log, 7);
            text.extend_from_slice(lines);
        }
        let text = String::from_utf8(text).expect("text");
        let numbers: Vec<usize> = text
            .lines()
            .map(|line| line.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number"))
            .collect();
        assert_eq!(numbers, (0..2000).collect::<Vec<_>>());
    }

    #[test]
    fn a_line_longer_than_a_message_is_dropped_and_not_split() {
        let (ours, theirs) = channel::pair(256 * 1024).expect("a pair");
        let mut log = LogBuffer::new();
        log.connect(ours);
        log.push(0, &vec![b'x'; BATCH_BYTES_MAX]);
        log.push(0, b"a line");
        log.flush();
        assert_eq!(log.take_dropped(), 1);
        let mut buffer = vec![0; 2 * BATCH_BYTES_MAX];
        let length = channel::recv(&theirs, &mut buffer, &mut Vec::new()).expect("a message");
        assert_eq!(lines_of_log(&buffer[..length]), Some((0, &b"a line\n"[..])));
    }

    #[test]
    fn without_a_reader_lines_are_bounded_and_counted() {
        let mut log = LogBuffer::new();
        let line = vec![b'x'; 1023];
        for number in 0..2048 {
            log.push(number % 3, &line);
        }
        let kept: usize = log.logs.iter().map(Vec::len).sum();
        assert!(kept <= BUFFER_BYTES_MAX && kept == log.bytes);
        assert_eq!(kept / 1024 + log.take_dropped() as usize, 2048);
    }
}
