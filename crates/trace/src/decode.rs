//! The kernel's records (perf_event_open(2), "MMAP layout") as events.
//!
//! `recorder` calls it with the bytes of a ring. It trusts no length: what makes no sense is counted and
//! skipped.

use std::collections::HashMap;

use crate::event::{Event, What};

// Kinds of records.
const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const THROTTLE: u32 = 5;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const SWITCH: u32 = 14;

/// `PERF_RECORD_MISC_SWITCH_OUT`, `PERF_RECORD_MISC_COMM_EXEC`.
const MISC_OUT_OR_EXEC: u16 = 1 << 13;
/// `PERF_RECORD_MISC_SWITCH_OUT_PREEMPT`.
const MISC_PREEMPT: u16 = 1 << 14;
/// `PERF_CONTEXT_MAX`: from here on a frame is a mark, not an address.
const CONTEXT_MAX: u64 = u64::MAX - 4095;

/// Which tracepoint an event is of, and where its fields are (`events/GROUP/NAME/format` in tracefs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// `raw_syscalls:sys_enter`
    Enter { id: usize, args: usize },
    /// `raw_syscalls:sys_exit`
    Exit { id: usize, ret: usize },
    /// `sched:sched_switch`
    Switch,
}

/// Which event has which identifier: its source, and the thread that it was opened for.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    sources: HashMap<u64, (Source, u32)>,
    /// For each thread, the thread whose events follow it. One that is started while events are being
    /// opened has inherited some, and then got its own: only those count. A thread that it starts has both, and is followed
    /// in the same way. Where this is unknown, the first events that arrive count.
    roots: HashMap<u32, u32>,
    /// Who executed a program as the last record told, and whose events it was followed by before. Of one that is
    /// followed twice the next record tells it again.
    executed: Option<(u32, Option<u32>)>,
    /// Records that made no sense.
    pub(crate) broken: u64,
}

/// The most threads whose roots are known; beyond that, those that begin twice count twice.
const ROOTS_MAX: usize = 1 << 18;

impl Decoder {
    /// Records with `identifier` are of `source`, opened for the thread `root`.
    pub(crate) fn add(&mut self, identifier: u64, source: Source, root: u32) {
        self.sources.insert(identifier, (source, root));
    }

    /// The thread has all of its own events, whatever it has inherited.
    pub(crate) fn follow(&mut self, tid: u32) {
        self.roots.insert(tid, tid);
    }

    /// The events of whole records that were taken from the ring of `core`, appended to `into`.
    pub(crate) fn decode(&mut self, core: u32, bytes: &[u8], into: &mut Vec<Event>) {
        let mut rest = bytes;
        while rest.len() >= 8 {
            let mut head = Fields(rest);
            let (kind, misc, size) = (head.u32(), head.u16(), head.u16());
            let size = usize::from(size.unwrap_or(0));
            if size < 8 || size > rest.len() {
                // The start of the next record is unknown.
                self.broken += 1;
                return;
            }
            let body = &rest[8..size];
            let executed = self.executed.take();
            let event = match kind.unwrap_or(0) {
                SAMPLE => self.sample(core, body),
                kind => self.other(core, kind, misc.unwrap_or(0), body, executed),
            };
            match event {
                Some(Some(event)) => into.push(event),
                Some(None) => {}
                None => self.broken += 1,
            }
            rest = &rest[size..];
        }
    }

    /// None: it makes no sense. Nothing in it: it is of no interest.
    fn sample(&mut self, core: u32, body: &[u8]) -> Option<Option<Event>> {
        let mut fields = Fields(body);
        let identifier = fields.u64()?;
        let (pid, tid, time_ns) = (fields.u32()?, fields.u32()?, fields.u64()?);
        let Some((source, root)) = self.sources.get(&identifier).copied() else { return Some(None) };
        if !self.is_of(tid, root) {
            return Some(None);
        }
        let what = match source {
            Source::Enter { id, args } => {
                let raw = fields.raw()?;
                let mut values = [0; 6];
                for (at, value) in values.iter_mut().enumerate() {
                    *value = Fields(raw.get(args + at * 8..)?).u64()?;
                }
                What::Enter { call: Fields(raw.get(id..)?).u64()?, args: values }
            }
            Source::Exit { id, ret } => {
                let raw = fields.raw()?;
                What::Exit {
                    call: Fields(raw.get(id..)?).u64()?,
                    result: Fields(raw.get(ret..)?).u64()?.cast_signed(),
                }
            }
            Source::Switch => {
                let count = fields.u64()?;
                let mut frames = Vec::with_capacity(count.min(64) as usize);
                for _ in 0..count {
                    frames.push(fields.u64()?);
                }
                frames.retain(|address| *address < CONTEXT_MAX);
                What::Stack { frames }
            }
        };
        Some(Some(Event { time_ns, core, pid, tid, what }))
    }

    fn other(
        &mut self,
        core: u32,
        kind: u32,
        misc: u16,
        body: &[u8],
        executed: Option<(u32, Option<u32>)>,
    ) -> Option<Option<Event>> {
        if !matches!(kind, LOST | COMM | EXIT | FORK | SWITCH | THROTTLE) {
            return Some(None);
        }
        // Every record ends with what a sample begins with.
        let mut trailer = Fields(body.get(body.len().checked_sub(24)?..)?);
        let (pid, tid, time_ns, identifier) =
            (trailer.u32()?, trailer.u32()?, trailer.u64()?, trailer.u64()?);
        let mut fields = Fields(body);
        let event = |pid, tid, what| Some(Some(Event { time_ns, core, pid, tid, what }));
        match kind {
            LOST => {
                fields.u64()?;
                return event(0, 0, What::Lost { count: fields.u64()? });
            }
            // The kernel held back an unknown number.
            THROTTLE => return event(0, 0, What::Lost { count: 1 }),
            _ => {}
        }
        let Some(root) = self.sources.get(&identifier).map(|(_, root)| *root) else { return Some(None) };
        if kind == FORK || kind == EXIT {
            let (of_pid, parent_pid) = (fields.u32()?, fields.u32()?);
            let (of_tid, parent_tid) = (fields.u32()?, fields.u32()?);
            let about = if kind == FORK { parent_tid } else { of_tid };
            if !self.is_of(about, root) {
                return Some(None);
            }
            if kind == FORK {
                // Whoever had the number before.
                self.set_root(of_tid, root);
                return event(parent_pid, parent_tid, What::Fork { child_pid: of_pid, child_tid: of_tid });
            }
            self.roots.remove(&of_tid);
            return event(of_pid, of_tid, What::End);
        }
        let executes = kind == COMM && misc & MISC_OUT_OR_EXEC != 0;
        if executes {
            self.executes(tid, root, executed);
        }
        if !self.is_of(tid, root) {
            return Some(None);
        }
        match kind {
            COMM => {
                let name = body.get(8..body.len() - 24)?;
                let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                let name = String::from_utf8_lossy(name).into_owned();
                event(pid, tid, What::Name { name, executed: executes })
            }
            _ if misc & MISC_OUT_OR_EXEC != 0 => {
                event(pid, tid, What::Off { runnable: misc & MISC_PREEMPT != 0 })
            }
            _ => event(pid, tid, What::On),
        }
    }

    /// A thread that executes a program becomes the first one of its process: from now on it has that one's
    /// number, and still its own events.
    fn executes(&mut self, tid: u32, root: u32, executed: Option<(u32, Option<u32>)>) {
        match executed.filter(|(of, _)| *of == tid) {
            // It was the first one already.
            Some((_, before)) if before == Some(root) => self.set_root(tid, root),
            Some(_) => {}
            None => {
                self.executed = Some((tid, self.roots.get(&tid).copied()));
                self.set_root(tid, root);
            }
        }
    }

    fn is_of(&mut self, tid: u32, root: u32) -> bool {
        if let Some(known) = self.roots.get(&tid) {
            return *known == root;
        }
        self.set_root(tid, root);
        true
    }

    fn set_root(&mut self, tid: u32, root: u32) {
        if self.roots.len() < ROOTS_MAX || self.roots.contains_key(&tid) {
            self.roots.insert(tid, root);
        }
    }
}

/// Reads numbers from the front of bytes.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*front)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    fn raw(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()? as usize;
        self.0.get(..length)
    }
}

/// The offset of a field in a tracepoint's format.
pub(crate) fn offset_of(format: &str, field: &str) -> Option<usize> {
    let is_it = |declaration: &str| {
        let declared = declaration.rsplit([' ', '*']).next().unwrap_or_default();
        declared.split('[').next() == Some(field)
    };
    format.lines().find_map(|line| {
        let mut parts = line.trim().strip_prefix("field:")?.split(';');
        let found = is_it(parts.next()?.trim());
        let offset = parts.next()?.trim().strip_prefix("offset:")?;
        if found { offset.parse().ok() } else { None }
    })
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
