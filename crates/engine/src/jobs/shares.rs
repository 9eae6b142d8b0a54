//! Shares of the sites' roots in a bounded resource: helpers, or places in the job queue. Each root has a
//! reserve that others cannot take; the rest is common. So a root whose disk hangs takes no more than its
//! share.
//!
//! Called by [`jobs`](crate::jobs). It decides only which root has room.

/// Shares of a number of places.
#[derive(Debug)]
pub(crate) struct Shares {
    places: usize,
    /// Places reserved for each root.
    reserve: usize,
    /// Places that any root can take.
    common: usize,
    /// Places that each root holds.
    held: Vec<usize>,
    /// Common places that are taken: places held beyond the reserves.
    beyond: usize,
}

impl Shares {
    /// Divides `places`: up to half goes into reserves, the rest is common. With more roots than half the
    /// places, the reserves add up to more than there is, so the roots that come first get them. Even then a
    /// root alone leaves at least one place to others, if there are two.
    pub(crate) fn new(places: usize, roots: usize) -> Self {
        let roots = roots.max(1);
        let mut shares = Self { places, reserve: 0, common: 0, held: vec![0; roots], beyond: 0 };
        shares.divide();
        shares
    }

    /// Adds a root. Places that are held stay held, so others may have no room for a while.
    pub(crate) fn grow(&mut self) {
        self.held.push(0);
        self.divide();
    }

    fn divide(&mut self) {
        let (places, roots) = (self.places, self.held.len());
        let half = (places / 2).max(2).min(places);
        self.reserve = (half / roots).max(1);
        self.common = places - half.min(self.reserve.saturating_mul(roots));
        self.beyond = self.held.iter().map(|held| held.saturating_sub(self.reserve)).sum();
    }

    pub(crate) fn held(&self, root: usize) -> usize {
        self.held[root]
    }

    pub(crate) fn has_room(&self, root: usize) -> bool {
        self.held[root] < self.reserve || self.beyond < self.common
    }

    /// How many more places these roots could take together, each up to the number given with it.
    pub(crate) fn room(&self, wanted: impl Iterator<Item = (usize, usize)>) -> usize {
        let (mut own, mut more) = (0, 0);
        for (root, number) in wanted {
            let reserved = number.min(self.reserve.saturating_sub(self.held[root]));
            own += reserved;
            more += number - reserved;
        }
        own + more.min(self.common.saturating_sub(self.beyond))
    }

    /// Takes a place, even if there is no room.
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

    /// Takes every place that a root can get, and returns their number.
    fn fill(shares: &mut Shares, root: usize) -> usize {
        let before = shares.held(root);
        while shares.has_room(root) {
            shares.take(root);
        }
        shares.held(root) - before
    }

    #[test]
    fn one_root_gets_every_place_and_several_leave_each_other_a_reserve() {
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
    fn an_added_root_gets_its_reserve_when_places_are_returned() {
        let mut shares = Shares::new(16, 1);
        assert_eq!(fill(&mut shares, 0), 16);
        shares.grow();
        assert!(!shares.has_room(0) && shares.has_room(1), "the reserve of the new root is its own");
        shares.take(1);
        (0..4).for_each(|_| shares.give_back(0));
        assert!(!shares.has_room(0), "12 places are the most that one of two roots holds");
        shares.give_back(0);
        assert_eq!((fill(&mut shares, 0), fill(&mut shares, 1)), (1, 3));
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
    fn a_returned_place_can_be_taken_again() {
        let mut shares = Shares::new(16, 2);
        assert_eq!((fill(&mut shares, 1), fill(&mut shares, 0)), (12, 4));
        shares.give_back(1);
        assert_eq!(fill(&mut shares, 0), 1, "only the common places are left");
        shares.give_back(0);
        (0..11).for_each(|_| shares.give_back(1));
        assert_eq!(shares.room([(0, 100), (1, 100)].into_iter()), 12);
        assert_eq!(shares.room([(1, 3)].into_iter()), 3);
        (0..4).for_each(|_| shares.give_back(0));
        assert_eq!(fill(&mut shares, 1), 12);
    }
}
