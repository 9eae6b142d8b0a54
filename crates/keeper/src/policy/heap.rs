//! A binary heap of slots, lowest value first, that also knows the place of each slot, so that any slot can
//! be removed. Only [`super::Policy`] uses it.

/// The place of a slot that is not in the heap.
const NOWHERE: u32 = u32::MAX;

/// Slots with the values that they had when the heap last compared them.
#[derive(Clone, Debug, Default)]
pub(super) struct Heap {
    nodes: Vec<Node>,
    /// The index of each slot in `nodes`, or [`NOWHERE`].
    places: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    value: f32,
    slot: u32,
}

impl Heap {
    /// The number of slots.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether the heap contains a slot.
    pub(super) fn contains(&self, slot: u32) -> bool {
        self.places.get(slot as usize).is_some_and(|place| *place != NOWHERE)
    }

    /// Adds a slot that the heap does not contain.
    pub(super) fn push(&mut self, slot: u32, value: f32) {
        debug_assert!(!self.contains(slot));
        let index = slot as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, NOWHERE);
        }
        self.nodes.push(Node { value, slot });
        self.rise(self.nodes.len() - 1);
    }

    /// The slot with the lowest value, and that value.
    pub(super) fn least(&self) -> Option<(u32, f32)> {
        self.nodes.first().map(|node| (node.slot, node.value))
    }

    /// Raises the value of the lowest slot.
    pub(super) fn raise_least(&mut self, value: f32) {
        if let Some(node) = self.nodes.first_mut() {
            node.value = value;
            self.sink(0);
        }
    }

    /// Removes a slot. Returns whether the heap contained it.
    pub(super) fn remove(&mut self, slot: u32) -> bool {
        if !self.contains(slot) {
            return false;
        }
        let place = std::mem::replace(&mut self.places[slot as usize], NOWHERE) as usize;
        self.nodes.swap_remove(place);
        if place < self.nodes.len() {
            // The node that took its place can belong above or below it.
            self.sink(place);
            self.rise(place);
        }
        true
    }

    /// Lowers all values by the same amount.
    pub(super) fn lower(&mut self, by: f32) {
        for node in &mut self.nodes {
            node.value -= by;
        }
    }

    /// Moves the node at `place` up to its position.
    fn rise(&mut self, mut place: usize) {
        let node = self.nodes[place];
        while place > 0 {
            let above = (place - 1) / 2;
            if self.nodes[above].value <= node.value {
                break;
            }
            self.put(place, self.nodes[above]);
            place = above;
        }
        self.put(place, node);
    }

    /// Moves the node at `place` down to its position.
    fn sink(&mut self, mut place: usize) {
        let node = self.nodes[place];
        loop {
            let left = 2 * place + 1;
            let Some(mut below) = self.nodes.get(left).copied() else { break };
            let mut next = left;
            if let Some(right) = self.nodes.get(left + 1).filter(|right| right.value < below.value) {
                (below, next) = (*right, left + 1);
            }
            if node.value <= below.value {
                break;
            }
            self.put(place, below);
            place = next;
        }
        self.put(place, node);
    }

    fn put(&mut self, place: usize, node: Node) {
        self.nodes[place] = node;
        self.places[node.slot as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares pushes, raises and removals with a plain list.
    #[test]
    fn the_least_is_always_first() {
        let (mut heap, mut plain) = (Heap::default(), Vec::<(u32, u32)>::new());
        let mut random = 1_u32;
        for _ in 0..20_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (slot, value) = ((random >> 8) % 300, random >> 16);
            match random >> 29 {
                0..=3 if !heap.contains(slot) => {
                    heap.push(slot, value as f32);
                    plain.push((value, slot));
                }
                0..=4 => {
                    let place = plain.iter().position(|(_, other)| *other == slot);
                    assert_eq!(heap.remove(slot), place.is_some());
                    place.map(|place| plain.swap_remove(place));
                }
                _ => {
                    let Some((slot, least)) = heap.least() else { continue };
                    heap.raise_least(least + 100.0);
                    let entry = plain.iter_mut().find(|(_, other)| *other == slot).unwrap();
                    entry.0 += 100;
                }
            }
            let least = plain.iter().map(|(value, _)| *value as f32).min_by(f32::total_cmp);
            assert_eq!(heap.least().map(|(_, value)| value), least);
            assert_eq!(heap.len(), plain.len());
        }
        heap.lower(1e9);
        let least = heap.least().unwrap();
        assert!(least.1 < 0.0);
    }
}
