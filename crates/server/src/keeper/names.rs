//! The names of the blocks in the store, for the list of hot files. Workers report them, and a worker can be compromised: so
//! the names are never more than the list can hold. Called by [`keeper`](super).

use std::collections::HashMap;

use crate::hot_list::{Hot, LINES_MAX, LIST_BYTES_MAX};

/// The names of blocks, by slot.
#[derive(Debug)]
pub(super) struct Names {
    by_slot: HashMap<u32, Hot>,
    /// Bytes of all roots and paths.
    bytes: usize,
    names_max: usize,
    bytes_max: usize,
}

impl Names {
    /// Without a name. A list that fits its bounds has names that fit these.
    pub(super) fn new() -> Self {
        Self::with_bounds(LINES_MAX, LIST_BYTES_MAX as usize)
    }

    fn with_bounds(names_max: usize, bytes_max: usize) -> Self {
        Self { by_slot: HashMap::new(), bytes: 0, names_max, bytes_max }
    }

    /// Keeps the name of the block in a slot, instead of an earlier one, if there is room for it.
    pub(super) fn insert(&mut self, slot: u32, name: Hot) {
        let before = self.by_slot.get(&slot);
        let others = self.by_slot.len() - usize::from(before.is_some());
        let bytes = self.bytes - before.map_or(0, bytes_of) + bytes_of(&name);
        if others < self.names_max && bytes <= self.bytes_max {
            self.bytes = bytes;
            self.by_slot.insert(slot, name);
        }
    }

    /// Forgets the name of the block in a slot.
    pub(super) fn remove(&mut self, slot: u32) {
        if let Some(name) = self.by_slot.remove(&slot) {
            self.bytes -= bytes_of(&name);
        }
    }

    /// All names, with their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Hot)> {
        self.by_slot.iter().map(|(slot, name)| (*slot, name))
    }
}

fn bytes_of(name: &Hot) -> usize {
    name.root.len() + name.path.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(path_bytes: usize) -> Hot {
        Hot { root: b"/r".to_vec(), path: vec![b'/'; path_bytes], block: 0 }
    }

    fn slots(names: &Names) -> Vec<u32> {
        let mut slots: Vec<u32> = names.iter().map(|(slot, _)| slot).collect();
        slots.sort_unstable();
        slots
    }

    #[test]
    fn the_names_have_a_bound_in_bytes() {
        let mut names = Names::with_bounds(1_000, 100);
        for slot in 0..20 {
            names.insert(slot, name(8));
            assert!(names.bytes <= 100);
        }
        assert_eq!(slots(&names), (0..10).collect::<Vec<_>>(), "ten names of 10 bytes");
        names.insert(3, name(9));
        assert_eq!((names.by_slot[&3].path.len(), names.bytes), (8, 100), "a longer name has no room");
        names.insert(3, name(2));
        assert_eq!(names.bytes, 94);
        names.remove(4);
        names.remove(4);
        names.insert(30, name(14));
        assert_eq!((slots(&names).len(), names.bytes), (10, 100));
        (0..40).for_each(|slot| names.remove(slot));
        assert_eq!((slots(&names).len(), names.bytes), (0, 0));
    }

    #[test]
    fn the_names_have_a_bound_in_number() {
        let mut names = Names::with_bounds(3, 1_000);
        (0..10).for_each(|slot| names.insert(slot, name(1)));
        names.insert(1, name(5));
        assert_eq!((slots(&names), names.bytes), (vec![0, 1, 2], 3 + 7 + 3));
    }
}
