//! The files and sockets behind the descriptors of the traced processes, followed through every open and close, so
//! that a descriptor number that is used again does not name the earlier file.
//!
//! The analysis keeps it up to date. It looks unknown descriptors up in `world`, and forgets them with the next
//! change of that number.

use std::collections::HashMap;

use crate::model::{Target, TargetKind};

/// Descriptors that are followed at once, at most; others are looked up each time.
const SLOTS_MAX: usize = 1 << 18;

/// The object behind one descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) kind: TargetKind,
    /// Its name, and since when it is known to be that.
    pub(super) name: Option<(String, u64)>,
}

/// All that is known, by process and number.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    slots: HashMap<u32, HashMap<i32, Slot>>,
    count: usize,
}

impl Descriptors {
    pub(super) fn opened(&mut self, pid: u32, fd: i32, slot: Slot) {
        self.closed(pid, fd);
        if self.count < SLOTS_MAX {
            self.count += 1;
            self.slots.entry(pid).or_default().insert(fd, slot);
        }
    }

    pub(super) fn closed(&mut self, pid: u32, fd: i32) {
        if self.slots.get_mut(&pid).is_some_and(|slots| slots.remove(&fd).is_some()) {
            self.count -= 1;
        }
    }

    pub(super) fn closed_range(&mut self, pid: u32, first: u64, last: u64) {
        let Some(slots) = self.slots.get_mut(&pid) else { return };
        let before = slots.len();
        slots.retain(|fd, _| !(first..=last).contains(&u64::try_from(*fd).unwrap_or(u64::MAX)));
        self.count -= before - slots.len();
    }

    pub(super) fn duplicated(&mut self, pid: u32, from: i32, to: i32) {
        match self.get(pid, from).cloned() {
            Some(slot) if from != to => self.opened(pid, to, slot),
            Some(_) => {}
            None => self.closed(pid, to),
        }
    }

    /// A new process has what the one has that started it.
    pub(super) fn forked(&mut self, parent: u32, child: u32) {
        let slots = self.slots.get(&parent).cloned().unwrap_or_default();
        if self.count + slots.len() <= SLOTS_MAX {
            self.count += slots.len();
            self.slots.insert(child, slots);
        }
    }

    /// It has ended, or executes another program, which closes some of them.
    pub(super) fn forget(&mut self, pid: u32) {
        self.count -= self.slots.remove(&pid).map_or(0, |slots| slots.len());
    }

    pub(super) fn get(&self, pid: u32, fd: i32) -> Option<&Slot> {
        self.slots.get(&pid)?.get(&fd)
    }

    pub(super) fn is_file(&self, pid: u32, fd: i32) -> bool {
        self.get(pid, fd).is_some_and(|slot| slot.kind == TargetKind::File)
    }

    /// The world says what this is, as of `at_ns`.
    pub(super) fn learnt(&mut self, pid: u32, fd: i32, target: &Target, at_ns: u64) {
        let slot = Slot { kind: target.kind, name: Some((target.name.clone(), at_ns)) };
        self.opened(pid, fd, slot);
    }

    /// Its name, if known; uncertain if it was looked up only after `until_ns`.
    pub(super) fn target(&self, pid: u32, fd: i32, until_ns: u64) -> Option<Target> {
        let slot = self.get(pid, fd)?;
        let (name, since_ns) = slot.name.as_ref()?;
        Some(Target { kind: slot.kind, name: name.clone(), is_uncertain: *since_ns > until_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, at_ns: u64) -> Slot {
        Slot { kind: TargetKind::File, name: Some((name.to_owned(), at_ns)) }
    }

    #[test]
    fn a_number_that_is_used_again_is_something_else() {
        let mut descriptors = Descriptors::default();
        descriptors.opened(1, 5, file("/a", 10));
        assert_eq!(descriptors.target(1, 5, 20).unwrap().name, "/a");
        assert!(!descriptors.target(1, 5, 20).unwrap().is_uncertain);
        assert!(descriptors.target(1, 5, 9).unwrap().is_uncertain, "asked after the call");
        descriptors.closed(1, 5);
        assert_eq!(descriptors.target(1, 5, 20), None);
        descriptors.opened(1, 5, Slot { kind: TargetKind::Socket, name: None });
        assert_eq!(descriptors.target(1, 5, 20), None);
        assert!(!descriptors.is_file(1, 5));
        assert_eq!(descriptors.count, 1);
    }

    #[test]
    fn children_copies_and_ranges_are_followed() {
        let mut descriptors = Descriptors::default();
        descriptors.opened(1, 3, file("/a", 0));
        descriptors.duplicated(1, 3, 7);
        descriptors.duplicated(1, 4, 3);
        assert_eq!(descriptors.get(1, 3), None, "a copy of something unknown");
        descriptors.forked(1, 2);
        descriptors.closed_range(1, 5, u64::from(u32::MAX));
        assert_eq!(descriptors.get(1, 7), None);
        assert_eq!(descriptors.target(2, 7, 1).unwrap().name, "/a");
        descriptors.forget(2);
        assert_eq!(descriptors.count, 0);
    }
}
