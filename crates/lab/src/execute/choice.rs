//! The sequences of files that hot and cold requests name.
//!
//! [`super::Streams`] draws from them. Seeded, so that every server gets the same sequence. Pure.

use std::ops::Range;

use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use flash_load::files::layout::{CLASSES, FILES_PER_CLASS, FILES_PER_DIRECTORY, File};
use flash_load::measure::SeriesBounds;
use flash_load::workload::choice::{CLASS_PERCENT, FILE_PER_MILLE};

/// The number of classes in the small mix, from the first.
const SMALL_CLASSES: u32 = 3;

/// The files of the hot directories that are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum HotMix {
    /// SPECweb99's shares: classes 35, 50, 14 and 1 %; 15 KB on average. One request in a hundred
    /// is for 100 to 900 KB, so the p99 lies where these begin.
    Specweb99,
    /// The files of classes 0 to 2 (102 bytes to 92 KB), each as often as any other.
    Small,
}

impl HotMix {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Specweb99 => "SPECweb99's shares",
            Self::Small => "the small files, equally often,",
        }
    }

    pub(super) fn series(self) -> SeriesBounds {
        match self {
            Self::Specweb99 => SeriesBounds::Specweb99,
            Self::Small => SeriesBounds::Quartiles,
        }
    }
}

pub(crate) struct HotFiles {
    random: Xoshiro256PlusPlus,
    mix: HotMix,
    directories: u32,
}

impl HotFiles {
    pub(super) fn new(seed: u64, mix: HotMix, directories: u32) -> Self {
        Self { random: Xoshiro256PlusPlus::seed_from_u64(seed), mix, directories }
    }

    /// The files that the sequence is drawn from.
    pub(crate) fn all(mix: HotMix, directories: u32) -> Vec<u32> {
        let classes = match mix {
            HotMix::Specweb99 => CLASSES,
            HotMix::Small => SMALL_CLASSES,
        };
        let files = (0..directories * FILES_PER_DIRECTORY).map(File::from_path_id);
        files.filter(|file| file.class < classes).map(File::path_id).collect()
    }

    pub(super) fn next(&mut self) -> u32 {
        let directory = self.random.random_range(0..self.directories);
        let (class, number) = match self.mix {
            HotMix::Specweb99 => (self.weighted(&CLASS_PERCENT), 1 + self.weighted(&FILE_PER_MILLE)),
            HotMix::Small => {
                (self.random.random_range(0..SMALL_CLASSES), self.random.random_range(1..=FILES_PER_CLASS))
            }
        };
        File { directory, class, number }.path_id()
    }

    /// An index into `weights`, each as often as its weight says.
    fn weighted(&mut self, weights: &[u32]) -> u32 {
        let mut draw = self.random.random_range(0..weights.iter().sum::<u32>());
        for (index, &weight) in weights.iter().enumerate() {
            if draw < weight {
                return index as u32;
            }
            draw -= weight;
        }
        unreachable!("a draw below the sum of the weights falls on one of them")
    }
}

/// A sequence of cold files, none of them twice.
///
/// It visits the directories in random order and takes one file of each, then visits them again and takes another file
/// of each. Files of all 36 kinds come equally often, and on the first visit the directories are cold too.
pub(super) struct ColdFiles {
    order: Vec<(u32, u32)>,
    /// How many were requested, also by earlier phases.
    pub(super) taken: u32,
}

/// The step from one file of a directory to the next. It shares no factor with 36, so every file is taken once.
const FILE_STRIDE: u32 = 7;

impl ColdFiles {
    pub(super) fn new(seed: u64, directories: Range<u32>) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut order: Vec<_> =
            directories.map(|d| (d, random.random_range(0..FILES_PER_DIRECTORY))).collect();
        order.shuffle(&mut random);
        Self { order, taken: 0 }
    }

    /// The number of the next file. After the last file it begins again, which the check of the options prevents.
    pub(super) fn next(&mut self) -> u32 {
        let count = self.order.len() as u32;
        let (directory, first) = self.order[(self.taken % count) as usize];
        let within = (first + self.taken / count * FILE_STRIDE) % FILES_PER_DIRECTORY;
        self.taken += 1;
        directory * FILES_PER_DIRECTORY + within
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn hot_files_have_the_shares_of_specweb99() {
        let mut hot = HotFiles::new(1, HotMix::Specweb99, 20);
        let files: Vec<_> = (0..200_000).map(|_| File::from_path_id(hot.next())).collect();
        let share = |select: &dyn Fn(&File) -> bool| files.iter().filter(|f| select(f)).count() as f64 / 2e5;
        for class in 0..CLASSES {
            let expected = f64::from(CLASS_PERCENT[class as usize]) / 100.0;
            assert!((share(&|f| f.class == class) - expected).abs() < 0.005, "class {class}");
        }
        assert!((share(&|f| f.number == 5) - 0.353 / 0.999).abs() < 0.005);
        assert!((share(&|f| f.number == 1) - 0.039 / 0.999).abs() < 0.002);
        assert!(files.iter().all(|f| f.directory < 20));
    }

    #[test]
    fn small_hot_files_are_small() {
        let mut hot = HotFiles::new(1, HotMix::Small, 3);
        let all: HashSet<_> = HotFiles::all(HotMix::Small, 3).into_iter().collect();
        let drawn: HashSet<_> = (0..10_000).map(|_| hot.next()).collect();
        assert_eq!(drawn, all);
        assert_eq!(all.len(), 3 * 27);
    }

    #[test]
    fn cold_files_come_once_each_and_new_directories_first() {
        let mut cold = ColdFiles::new(1, 20..120);
        let files: Vec<_> = (0..3600).map(|_| cold.next()).collect();
        let directories: HashSet<_> = files[..100].iter().map(|id| id / 36).collect();
        assert_eq!(directories.len(), 100);
        assert_eq!(files.iter().collect::<HashSet<_>>().len(), 3600);
        assert!(files.iter().all(|id| (20..120).contains(&(id / 36))));
        let mut rest = ColdFiles { taken: 3590, ..ColdFiles::new(1, 20..120) };
        assert_eq!((0..10).map(|_| rest.next()).collect::<Vec<_>>(), files[3590..]);
        assert_ne!(ColdFiles::new(2, 20..120).next(), ColdFiles::new(3, 20..120).next());
    }
}
