//! The distribution of service times, as a finite list. [`super`]'s other modules compute with it.

use flash_kit::{Error, Result};

/// More distinct sizes than this are grouped: enough for 25 groups for each power of two from 1 byte to 1 MB.
const ATOMS_MAX: usize = 512;
/// The most sizes that can be given.
const GIVEN_MAX: usize = 10_000_000;

/// A size and its share of the requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Atom {
    /// Bytes that the link carries for one request of this size.
    pub bytes: f64,
    /// The time that the link takes for it alone, seconds; above 0.
    pub service_s: f64,
    /// The share of the requests; all shares add up to 1.
    pub share: f64,
}

/// A distribution of sizes on a link of a fixed rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// At least one, ascending.
    atoms: Vec<Atom>,
}

impl Sizes {
    /// The distribution of these sizes in bytes, each with a weight, on a link of this rate in bytes per second.
    ///
    /// More than a few hundred distinct sizes are grouped by powers, each group at its mean size, so the mean size stays
    /// exactly the same.
    ///
    /// Errors: usage, for no sizes, too many of them, a size of 0 or less, a weight that is not above 0, and a rate that
    /// is not above 0.
    pub fn new(sizes: &[(f64, f64)], rate_bytes_per_s: f64) -> Result<Self> {
        let is_positive = |value: f64| value.is_finite() && value > 0.0;
        if sizes.is_empty() || sizes.len() > GIVEN_MAX {
            return Err(Error::usage(format!(
                "{} sizes for the model: 1 to {GIVEN_MAX} are possible",
                sizes.len()
            )));
        }
        if !is_positive(rate_bytes_per_s)
            || sizes.iter().any(|size| !is_positive(size.0) || !is_positive(size.1))
        {
            return Err(Error::usage("sizes, weights and the link's rate must be finite and above 0"));
        }
        let mut sorted = sizes.to_vec();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        let weight: f64 = sorted.iter().map(|size| size.1).sum();
        let grouped = grouped(&sorted);
        let atom = |(bytes, group): (f64, f64)| Atom {
            bytes,
            service_s: bytes / rate_bytes_per_s,
            share: group / weight,
        };
        Ok(Self { atoms: grouped.into_iter().map(atom).collect() })
    }

    pub fn atoms(&self) -> &[Atom] {
        &self.atoms
    }

    pub fn mean_s(&self) -> f64 {
        self.atoms.iter().map(|atom| atom.share * atom.service_s).sum()
    }

    /// The mean over all sizes, by their shares, of a figure of each size.
    pub fn mean_of(&self, figures: &[f64]) -> f64 {
        self.atoms.iter().zip(figures).map(|(atom, figure)| atom.share * figure).sum()
    }

    /// The rate of arrivals that makes this load, per second.
    pub fn arrivals_per_s(&self, load: f64) -> f64 {
        load / self.mean_s()
    }

    #[cfg(test)]
    pub fn quantile_s(&self, share: f64) -> f64 {
        let mut sum = 0.0;
        let found = self.atoms.iter().find(|atom| {
            sum += atom.share;
            sum >= share
        });
        found.or(self.atoms.last()).map_or(0.0, |atom| atom.service_s)
    }
}

/// Sorted sizes with their weights, equal ones joined, and joined further until there are few enough.
fn grouped(sorted: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let join = |group: &[(f64, f64)]| {
        let weight: f64 = group.iter().map(|size| size.1).sum();
        // The mean of equal sizes must be that size, and not nearly.
        let is_one = group[0].0 == group[group.len() - 1].0;
        let mean = group.iter().map(|size| size.0 * size.1).sum::<f64>() / weight;
        (if is_one { group[0].0 } else { mean }, weight)
    };
    let equal: Vec<_> = sorted.chunk_by(|a, b| a.0 == b.0).map(join).collect();
    if equal.len() <= ATOMS_MAX {
        return equal;
    }
    let (least, most) = (equal[0].0, equal[equal.len() - 1].0);
    let groups_per_e = (ATOMS_MAX - 1) as f64 / (most / least).ln();
    let group = |bytes: f64| ((bytes / least).ln() * groups_per_e) as usize;
    equal.chunk_by(|a, b| group(a.0) == group(b.0)).map(join).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_their_mean_when_they_are_grouped() {
        let many: Vec<(f64, f64)> = (1..=20_000).map(|n| (f64::from(n), 1.0 + f64::from(n % 3))).collect();
        let sizes = Sizes::new(&many, 1000.0).unwrap();
        let weight: f64 = many.iter().map(|size| size.1).sum();
        let mean_s = many.iter().map(|size| size.0 * size.1).sum::<f64>() / weight / 1000.0;
        assert!((sizes.mean_s() / mean_s - 1.0).abs() < 1e-9);
        assert!(sizes.atoms().len() <= ATOMS_MAX && sizes.atoms().len() > ATOMS_MAX / 4);
        assert!((sizes.arrivals_per_s(0.5) * sizes.mean_s() - 0.5).abs() < 1e-9);
        assert!(sizes.quantile_s(0.01) < sizes.quantile_s(0.5) && sizes.quantile_s(1.0) > 19.0);
    }

    #[test]
    fn equal_sizes_are_one() {
        let sizes = Sizes::new(&[(3.0, 1.0), (1.0, 1.0), (3.0, 2.0)], 1.0).unwrap();
        let atoms: Vec<_> = sizes.atoms().iter().map(|atom| (atom.bytes, atom.share)).collect();
        assert_eq!(atoms, [(1.0, 0.25), (3.0, 0.75)]);
    }

    #[test]
    fn a_distribution_without_sense_is_refused() {
        for (sizes, rate) in [
            (vec![], 1.0),
            (vec![(0.0, 1.0)], 1.0),
            (vec![(1.0, -1.0)], 1.0),
            (vec![(f64::NAN, 1.0)], 1.0),
            (vec![(1.0, 1.0)], 0.0),
        ] {
            assert_eq!(Sizes::new(&sizes, rate).unwrap_err().exit_code(), 2);
        }
    }
}
