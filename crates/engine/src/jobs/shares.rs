//! Shares of the sites' roots in bounded resources: helpers, and places in the queue of jobs.
//! Each root has a reserve that the others cannot take, and the rest is common to all, so that a
//! root whose disk hangs takes no more than its share.
//!
//! Used by [`jobs`](crate::jobs); decides only which root has room.

/// Shares of a number of places.
#[derive(Debug)]
pub(crate) struct Shares {
    /// Places kept for each root.
    reserve: usize,
    /// Places for all.
    common: usize,
    /// Places that each root holds.
    held: Vec<usize>,
    /// Places held beyond reserves: the common ones that are taken.
    beyond: usize,
}

impl Shares {
    /// Up to half of `places` is kept in reserves, the rest is common. With more roots than that
    /// half has places, the reserves together are more than there is: they serve as many roots
    /// as come first. Even then one root alone leaves a place to the others, if there are two.
    pub(crate) fn new(places: usize, roots: usize) -> Self {
        let roots = roots.max(1);
        let half = (places / 2).max(2).min(places);
        let reserve = (half / roots).max(1);
        let common = places - half.min(reserve.saturating_mul(roots));
        Self { reserve, common, held: vec![0; roots], beyond: 0 }
    }

    /// The most that one root may hold.
    pub(crate) fn most(&self) -> usize {
        self.reserve + self.common
    }

    pub(crate) fn held(&self, root: usize) -> usize {
        self.held[root]
    }

    pub(crate) fn has_room(&self, root: usize) -> bool {
        self.held[root] < self.reserve || self.beyond < self.common
    }

    /// How many could be taken by these roots together, each up to the number with it.
    pub(crate) fn room(&self, wanted: impl Iterator<Item = (usize, usize)>) -> usize {
        let (mut own, mut more) = (0, 0);
        for (root, number) in wanted {
            let reserved = number.min(self.reserve.saturating_sub(self.held[root]));
            own += reserved;
            more += number - reserved;
        }
        own + more.min(self.common.saturating_sub(self.beyond))
    }

    /// Takes a place, also where there is no room.
    pub(crate) fn take(&mut self, root: usize) {
        self.beyond += usize::from(self.held[root] >= self.reserve);
        self.held[root] += 1;
    }

    pub(crate) fn give_back(&mut self, root: usize) {
        self.held[root] -= 1;
        self.beyond -= usize::from(self.held[root] >= self.reserve);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes all that a root gets.
    fn fill(shares: &mut Shares, root: usize) -> usize {
        let before = shares.held(root);
        while shares.has_room(root) {
            shares.take(root);
        }
        shares.held(root) - before
    }

    #[test]
    fn one_root_has_all_and_of_more_each_leaves_the_others_theirs() {
        for places in [1, 2, 3, 16, 256] {
            assert_eq!(fill(&mut Shares::new(places, 1), 0), places);
        }
        let table: [(usize, &[usize]); 6] = [
            (2, &[1, 1]),
            (3, &[2, 1]),
            (16, &[12, 4]),
            (16, &[12, 2, 2]),
            (16, &[9, 1, 1, 1, 1, 1, 1, 1]),
            (1024, &[768, 256]),
        ];
        for (places, expected) in table {
            let mut shares = Shares::new(places, expected.len());
            let filled: Vec<usize> = (0..expected.len()).map(|root| fill(&mut shares, root)).collect();
            assert_eq!(filled, expected, "{places} places");
        }
    }

    #[test]
    fn with_more_roots_than_reserves_one_root_leaves_a_place() {
        for places in 2..40 {
            for roots in 2..80 {
                let taken = fill(&mut Shares::new(places, roots), 0);
                assert!(taken < places, "{taken} of {places} for one of {roots} roots");
                assert!(taken >= places / 2, "{taken} of {places} for one of {roots} roots");
            }
        }
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let mut shares = Shares::new(16, 2);
        assert_eq!((fill(&mut shares, 1), fill(&mut shares, 0)), (12, 4));
        shares.give_back(1);
        assert_eq!(fill(&mut shares, 0), 1, "of the common part");
        shares.give_back(0);
        (0..11).for_each(|_| shares.give_back(1));
        assert_eq!(shares.room([(0, 100), (1, 100)].into_iter()), 12);
        assert_eq!(shares.room([(1, 3)].into_iter()), 3);
        (0..4).for_each(|_| shares.give_back(0));
        assert_eq!(fill(&mut shares, 1), 12);
    }
}
