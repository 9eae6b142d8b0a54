//! Which file a request asks for, where that is drawn.
//!
//! [`super::Workload`] draws from it, the hot and cold test takes its weights. Pure and seeded.

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use rand_distr::{Distribution, Zipf};

use crate::files::layout::{CLASSES, FILES_PER_CLASS, FILES_PER_DIRECTORY, File};

/// SPECweb99's shares of the classes, percent (blocking-induced-latency, section 2.3).
pub const CLASS_PERCENT: [u32; CLASSES as usize] = [35, 50, 14, 1];

/// SPECweb99's shares of the files in a class, per mille. They are the rounded shares of a Zipf
/// distribution of nine, and lack one to a thousand.
pub const FILE_PER_MILLE: [u32; FILES_PER_CLASS as usize] = [39, 59, 88, 177, 353, 118, 71, 50, 44];

/// The smallest file of the last size series, "7 - 900 KB" (blocking-induced-latency, Table 3).
const LAST_SERIES_BYTES: u64 = 7 * 1024;

/// How often each of the 36 files of a directory is asked for, as parts of their sum.
///
/// A file's share is its class's times its own in the class. These sum to 99.9 % by the rounded
/// weights. Table 3 of blocking-induced-latency has 25.06, 28.05, 23.55 and 23.34 %: the first three
/// series have what the weights say of a thousand, and the last has what then lacks to 100 % (scaling
/// all weights alike would give 25.09, 28.08, 23.57 and 23.26 %). So here the files of the last
/// series, and they alone, are scaled: by 23,335 to 23,235. Every share that the papers print comes
/// out to its last digit.
pub const FILE_WEIGHTS: [u64; FILES_PER_DIRECTORY as usize] = file_weights();

const fn file_weights() -> [u64; FILES_PER_DIRECTORY as usize] {
    let mut weights = [0; FILES_PER_DIRECTORY as usize];
    let (mut sum, mut sum_last) = (0, 0);
    let mut within = 0;
    while within < FILES_PER_DIRECTORY {
        let File { class, number, .. } = File::from_path_id(within);
        let weight = CLASS_PERCENT[class as usize] as u64 * FILE_PER_MILLE[number as usize - 1] as u64;
        weights[within as usize] = weight;
        sum += weight;
        if is_of_last_series(within) {
            sum_last += weight;
        }
        within += 1;
    }
    within = 0;
    while within < FILES_PER_DIRECTORY {
        let scale = if is_of_last_series(within) { sum_last + 100_000 - sum } else { sum_last };
        weights[within as usize] *= scale;
        within += 1;
    }
    weights
}

const fn is_of_last_series(within: u32) -> bool {
    File::from_path_id(within).file_bytes() >= LAST_SERIES_BYTES
}

/// The sums of the weights up to each file, with it.
static FILE_SUMS: [u64; FILES_PER_DIRECTORY as usize] = {
    let mut sums = FILE_WEIGHTS;
    let mut within = 1;
    while within < sums.len() {
        sums[within] += sums[within - 1];
        within += 1;
    }
    sums
};

/// A way to draw files of a catalogue by their numbers.
#[derive(Clone, Debug)]
pub enum Choice {
    /// The directory by Zipf with alpha 1, the directory's number, from 1, being its rank; the file in
    /// it by [`FILE_WEIGHTS`] (blocking-induced-latency, section 2.3).
    Specweb99(Zipf<f64>),
    /// Each of this many equally often; 1 or more.
    Uniform(u32),
    /// Each once in a random order, then each again in another.
    Deck(Deck),
    /// Each in turn, then each again.
    InTurn(InTurn),
    /// By rank, from 1: each of `files` as often as its rank to the power of -`alpha`.
    Zipf {
        law: Zipf<f64>,
        /// 1 or more.
        files: u32,
        /// 0 or more.
        alpha: f64,
    },
}

/// Files in a random order.
#[derive(Clone, Debug)]
pub struct Deck {
    /// The files up to `taken` are those of this round.
    files: Vec<u32>,
    taken: usize,
}

/// Files in their order, every nth of them by one of n threads.
#[derive(Clone, Copy, Debug)]
pub struct InTurn {
    files: u32,
    next: u32,
    step: u32,
}

impl InTurn {
    fn draw(&mut self) -> u32 {
        let drawn = self.next;
        let next = u64::from(drawn) + u64::from(self.step);
        self.next = (next % u64::from(self.files)) as u32;
        drawn
    }
}

impl Deck {
    fn draw(&mut self, random: &mut Xoshiro256PlusPlus) -> u32 {
        if self.taken == self.files.len() {
            self.taken = 0;
        }
        let drawn = random.random_range(self.taken..self.files.len());
        self.files.swap(self.taken, drawn);
        self.taken += 1;
        self.files[self.taken - 1]
    }
}

impl Choice {
    pub fn specweb99(directories: u32) -> Option<Self> {
        Zipf::new(f64::from(directories), 1.0).ok().map(Self::Specweb99)
    }

    /// Each of this many files equally often; none without files.
    pub fn uniform(files: u32) -> Option<Self> {
        (files > 0).then_some(Self::Uniform(files))
    }

    /// Each of this many files once, then each again; none without files. Where few files have most of the bytes, independent
    /// draws would differ by a fifth in the bytes of a thousand requests; this way any round has the same bytes.
    pub fn deck(files: u32) -> Option<Self> {
        (files > 0).then(|| Self::Deck(Deck { files: (0..files).collect(), taken: 0 }))
    }

    /// Each of this many files in turn, from the first; none without files.
    pub fn in_turn(files: u32) -> Option<Self> {
        (files > 0).then_some(Self::InTurn(InTurn { files, next: 0, step: 1 }))
    }

    /// The choice of one of several threads, which share the turns.
    pub(super) fn of_thread(self, thread: u32, threads: u32) -> Self {
        match self {
            Self::InTurn(InTurn { files, .. }) => {
                Self::InTurn(InTurn { files, next: thread % files, step: threads })
            }
            other => other,
        }
    }

    /// The file with number N as often as 1/(N+1)^`alpha`; none without files, or when alpha is
    /// negative or no number.
    pub fn zipf(files: u32, alpha: f64) -> Option<Self> {
        Zipf::new(f64::from(files), alpha).ok().map(|law| Self::Zipf { law, files, alpha })
    }

    pub fn draw(&mut self, random: &mut Xoshiro256PlusPlus) -> u32 {
        match self {
            Self::Specweb99(directories) => {
                let point = random.random_range(0..FILE_SUMS[FILE_SUMS.len() - 1]);
                let within = FILE_SUMS.partition_point(|&sum| sum <= point) as u32;
                rank(directories, random) * FILES_PER_DIRECTORY + within
            }
            Self::Uniform(count) => random.random_range(0..*count),
            Self::Deck(deck) => deck.draw(random),
            Self::InTurn(turns) => turns.draw(),
            Self::Zipf { law, .. } => rank(law, random),
        }
    }

    /// The mean of `value` over the files, each as often as it is drawn; none where a file has no value. Of SPECweb99, the
    /// files of the first directory stand for those of all.
    pub fn mean(&self, value: impl Fn(u32) -> Option<f64>) -> Option<f64> {
        let weight = |path_id: u32| match self {
            Self::Specweb99(_) => FILE_WEIGHTS[path_id as usize] as f64,
            Self::Uniform(_) | Self::Deck(_) | Self::InTurn(_) => 1.0,
            Self::Zipf { alpha, .. } => f64::from(path_id + 1).powf(-alpha),
        };
        let files = match self {
            Self::Specweb99(_) => FILES_PER_DIRECTORY,
            Self::Uniform(files) | Self::Zipf { files, .. } => *files,
            Self::Deck(deck) => deck.files.len() as u32,
            Self::InTurn(turns) => turns.files,
        };
        let (mut sum, mut weights) = (0.0, 0.0);
        for path_id in 0..files {
            sum += weight(path_id) * value(path_id)?;
            weights += weight(path_id);
        }
        Some(sum / weights)
    }
}

/// A rank, counted from 0.
fn rank(zipf: &Zipf<f64>, random: &mut Xoshiro256PlusPlus) -> u32 {
    zipf.sample(random) as u32 - 1
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    /// The size series of Table 3: up to 510 bytes, up to 4 KB, up to 6 KB, the rest.
    fn series(file: File) -> usize {
        [510, 4 * 1024, 6 * 1024].iter().filter(|&&most| file.file_bytes() > most).count()
    }

    fn draw(choice: &Choice, count: u32) -> Vec<u32> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut choice = choice.clone();
        (0..count).map(|_| choice.draw(&mut random)).collect()
    }

    #[test]
    fn the_weights_give_table_3() {
        // Table 3, in parts of 100,000.
        let table = [25_060, 28_050, 23_550, 23_340];
        let total: u64 = FILE_WEIGHTS.iter().sum();
        assert_eq!(total % 100_000, 0);
        let mut parts = [0; 4];
        for within in 0..FILES_PER_DIRECTORY {
            parts[series(File::from_path_id(within))] += FILE_WEIGHTS[within as usize];
        }
        let exact = parts.map(|part| part / (total / 100_000));
        assert_eq!(exact, [25_060, 28_055, 23_550, 23_335]);
        for (exact, table) in exact.iter().zip(table) {
            assert!(exact.abs_diff(table) <= 5, "half of the table's last digit");
        }
    }

    #[test]
    fn the_weights_keep_the_shares_of_classes_and_files() {
        let total = FILE_WEIGHTS.iter().sum::<u64>() as f64;
        let share = |select: &dyn Fn(File) -> bool| {
            let ids = (0..FILES_PER_DIRECTORY).filter(|&id| select(File::from_path_id(id)));
            ids.map(|id| FILE_WEIGHTS[id as usize]).sum::<u64>() as f64 / total
        };
        for class in 0..CLASSES {
            let percent = share(&|file| file.class == class) * 100.0;
            assert_eq!(percent.round() as u32, CLASS_PERCENT[class as usize]);
        }
        for number in 1..=FILES_PER_CLASS {
            let per_mille = share(&|file| file.number == number) * 1000.0;
            assert_eq!(per_mille.round() as u32, FILE_PER_MILLE[number as usize - 1]);
        }
    }

    #[test]
    fn threads_share_the_turns() {
        let drawn = |thread, threads| draw(&Choice::in_turn(5).unwrap().of_thread(thread, threads), 6);
        assert_eq!(drawn(0, 1), [0, 1, 2, 3, 4, 0]);
        assert_eq!((drawn(0, 2), drawn(1, 2)), (vec![0, 2, 4, 1, 3, 0], vec![1, 3, 0, 2, 4, 1]));
        assert_eq!(drawn(6, 7), [1, 3, 0, 2, 4, 1], "more threads than files");
        assert!(Choice::in_turn(0).is_none());
        assert_eq!(Choice::in_turn(4).unwrap().mean(|id| Some(f64::from(id))), Some(1.5));
    }

    #[test]
    fn draws_of_specweb99_have_the_shares_of_table_3_and_of_zipf() {
        const DRAWS: u32 = 1_000_000;
        let mut parts = [0_u32; 4];
        let mut directories = [0_u32; 600];
        for id in draw(&Choice::specweb99(600).unwrap(), DRAWS) {
            let file = File::from_path_id(id);
            parts[series(file)] += 1;
            directories[file.directory as usize] += 1;
        }
        // Five deviations of a share of a quarter are 0.22 %.
        for (part, share) in parts.iter().zip([0.2506, 0.2805, 0.2355, 0.2334]) {
            assert!((f64::from(*part) / f64::from(DRAWS) - share).abs() < 0.0022, "{parts:?}");
        }
        assert_zipf(&directories, DRAWS, 1.0);
    }

    /// Every rank is within five deviations of count × (1/R^alpha) / (the sum of these).
    fn assert_zipf(counts: &[u32], draws: u32, alpha: f64) {
        let harmonic: f64 = (1..=counts.len()).map(|rank| (rank as f64).powf(-alpha)).sum();
        for (index, &count) in counts.iter().enumerate() {
            let expected = f64::from(draws) * ((index + 1) as f64).powf(-alpha) / harmonic;
            let off = (f64::from(count) - expected).abs();
            assert!(off < 5.0 * expected.sqrt() + 1.0, "rank {}: {count}, not {expected}", index + 1);
        }
    }

    #[test]
    fn zipf_has_the_shares_of_the_harmonic_numbers() {
        // 1 + 1/2 + 1/3 + 1/4 is 25/12, so the shares are 12/25, 6/25, 4/25, 3/25.
        let mut counts = [0_u32; 4];
        for id in draw(&Choice::zipf(4, 1.0).unwrap(), 1_000_000) {
            counts[id as usize] += 1;
        }
        for (count, share) in counts.iter().zip([0.48, 0.24, 0.16, 0.12]) {
            assert!((f64::from(*count) / 1e6 - share).abs() < 0.0025, "{counts:?}");
        }
        for alpha in [0.0, 0.7, 1.2, 2.0] {
            let mut counts = [0; 100];
            for id in draw(&Choice::zipf(100, alpha).unwrap(), 300_000) {
                counts[id as usize] += 1;
            }
            assert_zipf(&counts, 300_000, alpha);
        }
    }

    #[test]
    fn means_are_those_of_many_draws() {
        const DRAWS: u32 = 1_000_000;
        // The number within its directory, so that SPECweb99's has the same of all directories.
        let value = |id: u32| f64::from(id % FILES_PER_DIRECTORY + 1);
        for choice in [
            Choice::specweb99(7).unwrap(),
            Choice::uniform(30).unwrap(),
            Choice::deck(30).unwrap(),
            Choice::zipf(36, 0.7).unwrap(),
            Choice::zipf(1, 2.0).unwrap(),
        ] {
            let drawn = draw(&choice, DRAWS).into_iter().map(value).sum::<f64>() / f64::from(DRAWS);
            let mean = choice.mean(|id| Some(value(id))).unwrap();
            // Five deviations of the mean of values up to 36.
            assert!((mean - drawn).abs() < 5.0 * 18.0 / 1000.0, "{choice:?}: {mean}, not {drawn}");
        }
        let lacking = Choice::uniform(3).unwrap().mean(|id| (id < 2).then_some(1.0));
        assert_eq!(lacking, None);
    }

    #[test]
    fn a_deck_has_each_file_once_a_round_in_another_order() {
        let drawn = draw(&Choice::deck(100).unwrap(), 300);
        let sorted: Vec<u32> = (0..100).collect();
        for round in drawn.chunks(100) {
            let mut files = round.to_vec();
            files.sort_unstable();
            assert_eq!(files, sorted);
            assert_ne!(round, sorted, "in a random order");
        }
        assert_ne!(drawn[..100], drawn[100..200]);
        assert_eq!(draw(&Choice::deck(1).unwrap(), 3), [0, 0, 0]);
        assert!(Choice::deck(0).is_none());
    }

    #[test]
    fn large_and_small_sets() {
        assert!(draw(&Choice::zipf(3_600_000, 1.0).unwrap(), 100_000).iter().all(|&id| id < 3_600_000));
        assert!(draw(&Choice::specweb99(1).unwrap(), 1000).iter().all(|&id| id < 36));
        assert_eq!(draw(&Choice::uniform(1).unwrap(), 3), [0, 0, 0]);
        let drawn = draw(&Choice::uniform(3).unwrap(), 30_000);
        for id in 0..3 {
            assert!(drawn.iter().filter(|&&d| d == id).count().abs_diff(10_000) < 500);
        }
        assert!(Choice::specweb99(0).is_none() && Choice::uniform(0).is_none());
        assert!(Choice::zipf(0, 1.0).is_none() && Choice::zipf(9, f64::NAN).is_none());
    }
}
