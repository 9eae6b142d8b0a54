//! Bands of responses by the bytes that they have left, and the sizes that separate the bands. Called by
//! [`schedule`](super), the machine and the server's configuration. It must not know sockets or time.

/// The number of bands. The paper uses five and finds that more improve little (overload-and-srpt, section
/// 2.2).
pub const BANDS: usize = 5;
/// Maximum number of cutoffs: one between each two bands.
pub const CUTOFFS_MAX: usize = BANDS - 1;

/// The urgency of a response: band 0 goes first and has the fewest bytes left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Band(u8);

impl Band {
    /// The most urgent band. A new connection has it without any system call.
    pub const FIRST: Self = Band(0);

    /// Its number, below [`BANDS`].
    #[must_use]
    pub fn number(self) -> usize {
        usize::from(self.0)
    }
}

/// The sizes that separate the bands, in bytes, ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cutoffs {
    /// Cutoffs that are not in use are `u64::MAX`, so that no response reaches them.
    bytes: [u64; CUTOFFS_MAX],
}

impl Cutoffs {
    /// The cutoffs of the paper's experiments: 1, 2, 5 and 50 KB (overload-and-srpt, section 2.2).
    pub const OF_THE_PAPER: Self = Self { bytes: [1_000, 2_000, 5_000, 50_000] };

    /// Makes cutoffs of these sizes in bytes. None if there are none or more than [`CUTOFFS_MAX`], if one is 0
    /// or `u64::MAX`, or if they do not ascend.
    #[must_use]
    pub fn new(sizes: &[u64]) -> Option<Self> {
        let fits = (1..=CUTOFFS_MAX).contains(&sizes.len());
        let ascends = sizes.windows(2).all(|pair| pair[0] < pair[1]);
        if !fits || !ascends || sizes[0] == 0 || sizes.contains(&u64::MAX) {
            return None;
        }
        let mut bytes = [u64::MAX; CUTOFFS_MAX];
        bytes[..sizes.len()].copy_from_slice(sizes);
        Some(Self { bytes })
    }

    /// The band of a response with this many bytes left: the number of cutoffs that it reaches.
    #[inline]
    #[must_use]
    pub fn band(&self, left_bytes: u64) -> Band {
        Band(self.bytes.iter().map(|cutoff| u8::from(left_bytes >= *cutoff)).sum())
    }

    /// The sizes in use, in bytes.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.bytes.iter().copied().filter(|bytes| *bytes != u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_in_the_band_of_the_bytes_it_has_left() {
        let bands = |cutoffs: Cutoffs, left: &[u64]| -> Vec<usize> {
            left.iter().map(|left| cutoffs.band(*left).number()).collect()
        };
        let left = [0, 999, 1_000, 1_999, 2_000, 5_000, 49_999, 50_000, u64::MAX - 1];
        assert_eq!(bands(Cutoffs::OF_THE_PAPER, &left), [0, 0, 1, 1, 2, 3, 3, 4, 4]);
        let two = Cutoffs::new(&[10, 20]).expect("cutoffs");
        assert_eq!(bands(two, &[9, 10, 20, u64::MAX - 1]), [0, 1, 2, 2]);
        assert_eq!(two.iter().collect::<Vec<_>>(), [10, 20]);
    }

    #[test]
    fn cutoffs_must_ascend_from_one_byte() {
        assert!(Cutoffs::new(&[1]).is_some() && Cutoffs::new(&[1, 2, 3, 4]).is_some());
        for wrong in [&[][..], &[0], &[0, 1], &[2, 1], &[1, 1], &[1, 2, 3, 4, 5], &[1, u64::MAX]] {
            assert_eq!(Cutoffs::new(wrong), None, "{wrong:?}");
        }
    }
}
