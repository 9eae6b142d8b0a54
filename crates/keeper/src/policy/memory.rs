//! Remembers the uses of evicted blocks in a few bytes each. Only [`super::Policy`] uses it.
//!
//! It is a count-min sketch (Cormode and Muthukrishnan, Journal of Algorithms, 2005) with a single array. A
//! cell has the logarithm of the uses, scaled to the beginning of the period, so that uses lose weight with
//! time although no cell is updated. A key that shares all its cells with other keys is overrated; no key is
//! underrated, except by rounding.

/// Minimum number of cells for each block in the store.
const CELLS_PER_BLOCK: usize = 8;
/// Cells of each key.
const CELLS_PER_KEY: u32 = 3;
/// Steps of a cell for a factor of two: two adjacent steps differ by 9 %.
const STEPS: f32 = 8.0;
/// The logarithm of the smallest number of uses that can be remembered, at the beginning of the period. The
/// largest number at the end of the period is 2 to the power of 255 / 8 - 4 - 16 half-lives: 3,700.
const LEAST_LOG2: f32 = -4.0;

/// How often keys were used.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    /// Each cell is 0 for no uses, otherwise the number of steps above [`LEAST_LOG2`]. The number of cells is
    /// a power of two.
    cells: Vec<u8>,
}

impl Memory {
    /// Makes an empty sketch for a store of this many blocks.
    pub(super) fn new(blocks: usize) -> Self {
        Self { cells: vec![0; (blocks.max(1) * CELLS_PER_BLOCK).next_power_of_two()] }
    }

    /// Grows the sketch for a store of this many blocks. Known keys stay known.
    pub(super) fn fit(&mut self, blocks: usize) {
        while self.cells.len() < blocks * CELLS_PER_BLOCK {
            // The new upper bit of a key's index can be 0 or 1, so both halves need its count.
            self.cells.extend_from_within(..);
        }
    }

    /// Records at least this many uses of a key, given as a logarithm at the beginning of the period.
    pub(super) fn raise(&mut self, key: u32, uses_log2: f32) {
        // With 0.5 added, the conversion rounds to the nearest step. It also clamps to the range of a cell.
        let steps = ((uses_log2 - LEAST_LOG2) * STEPS + 0.5) as u8;
        for index in self.indices(key) {
            self.cells[index] = self.cells[index].max(steps);
        }
    }

    /// The weight of a key's uses at `now`, in half-lives since the beginning of the period.
    pub(super) fn uses(&self, key: u32, now: f64) -> f32 {
        let steps = self.indices(key).map(|index| self.cells[index]).min().unwrap_or(0);
        if steps == 0 {
            return 0.0;
        }
        (f32::from(steps) / STEPS + LEAST_LOG2 - now as f32).exp2()
    }

    /// Begins a period this many half-lives later.
    pub(super) fn lower(&mut self, half_lives: f32) {
        let steps = (half_lives * STEPS) as u8;
        for cell in &mut self.cells {
            *cell = cell.saturating_sub(steps);
        }
    }

    /// The cells of a key: from its low bits and two odd multiples of it, which are independent enough for a
    /// table whose size is a power of two.
    fn indices(&self, key: u32) -> impl Iterator<Item = usize> + use<> {
        let mask = self.cells.len() - 1;
        (0..CELLS_PER_KEY).map(move |row| {
            let mixed = u64::from(key ^ row.wrapping_mul(0x9e37_79b9)).wrapping_mul(0xd6e8_feb8_6659_fd93);
            (mixed ^ (mixed >> 32)) as usize & mask
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_remembered_lose_weight_and_are_forgotten() {
        let mut memory = Memory::new(100);
        memory.raise(7, 3.0);
        memory.raise(7, 1.0);
        assert_eq!(memory.uses(7, 0.0), 8.0);
        assert_eq!(memory.uses(7, 2.0), 2.0);
        assert_eq!(memory.uses(8, 0.0), 0.0);
        memory.fit(5_000);
        assert_eq!((memory.uses(7, 0.0), memory.cells.len()), (8.0, 65_536));
        memory.lower(4.0);
        assert_eq!(memory.uses(7, 0.0), 0.5);
        memory.lower(16.0);
        assert_eq!(memory.uses(7, 0.0), 0.0);
    }

    #[test]
    fn numbers_beyond_the_range_of_a_cell_are_clamped() {
        let mut memory = Memory::new(1);
        memory.raise(1, -90.0);
        assert_eq!(memory.uses(1, 0.0), 0.0);
        memory.raise(1, 90.0);
        assert!(memory.uses(1, 0.0) > 1e8);
    }

    #[test]
    fn few_keys_are_confused_with_others() {
        let mut memory = Memory::new(10_000);
        (0..10_000).for_each(|key| memory.raise(key * 7, 2.0));
        assert!((0..10_000).all(|key| memory.uses(key * 7, 0.0) == 4.0));
        let taken = (0..10_000).filter(|key| memory.uses(key * 7 + 1, 0.0) > 0.0).count();
        assert!(taken < 500, "{taken} of 10,000");
    }
}
