//! Logs that are made up, for those who have none: seeded, with a given data set, locality and size of files.
//!
//! `flash experiment site-logs` writes them; they are read like any other log. It says nothing of how a real
//! site is used beyond what its numbers say.
//!
//! Lengths are log-normal, and popular files are rather short (Barford and Crovella, *Generating
//! representative Web workloads*, 1998; their tail is cut at 4 MB). Every file is asked for
//! once; beyond that, files by Zipf's law.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, LogNormal, StandardNormal};

use crate::workload::choice::Choice;
use flash_kit::{Error, Result};

const FILE_BYTES_MAX: f64 = 4e6;
/// The most files and requests; their times have to fit into one day.
const FILES_MAX: usize = 1_000_000;
const REQUESTS_MAX: usize = 8_000_000;
/// The deviation of the logarithm of lengths.
const SIGMA: f64 = 1.4;
/// By how many such deviations popularity strays from length.
const STRAY: f64 = 2.0;
const REQUESTS_PER_S: usize = 100;

#[derive(Clone, Debug, PartialEq)]
pub struct MadeLog {
    pub name: String,
    /// All files that are asked for, together.
    pub dataset_bytes: u64,
    /// The length that half of the files exceed.
    pub median_bytes: f64,
    /// The exponent of Zipf's law: the higher, the more requests are for few files.
    pub alpha: f64,
    pub requests_per_file: usize,
}

impl MadeLog {
    /// Writes it in the Common Log Format.
    ///
    /// Errors: run, when it cannot be written.
    pub fn write(&self, path: &Path, seed: u64) -> Result<()> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let lengths = self.lengths(&mut random);
        let numbers = self.numbers(lengths.len(), &mut random);
        let write = || -> std::io::Result<()> {
            let mut log = BufWriter::new(File::create(path)?);
            for (index, number) in numbers.iter().enumerate() {
                let second = index / REQUESTS_PER_S;
                let (hour, minute, second) = (second / 3600 % 24, second / 60 % 60, second % 60);
                let (name, bytes) = (&self.name, lengths[*number as usize]);
                writeln!(
                    log,
                    "127.0.0.1 - - [01/Mar/1999:{hour:02}:{minute:02}:{second:02} +0000] \"GET /{name}/{number} \
                     HTTP/1.0\" 200 {bytes}"
                )?;
            }
            log.flush()
        };
        write().map_err(|why| Error::file("write", path, &why))
    }

    /// The lengths of the files, the most popular first.
    fn lengths(&self, random: &mut Xoshiro256PlusPlus) -> Vec<u64> {
        let mut files: Vec<(f64, u64)> = Vec::new();
        let mut sum_bytes = 0;
        // Both are sound: neither is negative or no number.
        let Ok(law) = LogNormal::new(self.median_bytes.max(1.0).ln(), SIGMA) else { return vec![1] };
        while files.is_empty() || (sum_bytes < self.dataset_bytes && files.len() < FILES_MAX) {
            let length = law.sample(random).clamp(1.0, FILE_BYTES_MAX);
            let stray: f64 = StandardNormal.sample(random);
            files.push((length.ln() + stray * SIGMA * STRAY, length as u64));
            sum_bytes += length as u64;
        }
        files.sort_by(|a, b| a.0.total_cmp(&b.0));
        files.into_iter().map(|(_, length)| length).collect()
    }

    /// The files in the order in which they are asked for.
    fn numbers(&self, files: usize, random: &mut Xoshiro256PlusPlus) -> Vec<u32> {
        let count = files.saturating_mul(self.requests_per_file).clamp(files, REQUESTS_MAX);
        let mut numbers: Vec<u32> = (0..files as u32).collect();
        if let Some(mut choice) = Choice::zipf(files as u32, self.alpha) {
            numbers.extend((files..count).map(|_| choice.draw(random)));
        }
        numbers.shuffle(random);
        // A looped log begins elsewhere each time: its beginning must not matter.
        let start = random.random_range(0..numbers.len());
        numbers.rotate_left(start);
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::super::AccessLog;
    use super::*;

    fn made(name: &str, alpha: f64, median_bytes: f64) -> (AccessLog, String) {
        let log = MadeLog {
            name: name.to_owned(),
            dataset_bytes: 4_000_000,
            median_bytes,
            alpha,
            requests_per_file: 10,
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        log.write(file.path(), 7).unwrap();
        (AccessLog::read(file.path(), None).unwrap(), std::fs::read_to_string(&file).unwrap())
    }

    #[test]
    fn a_log_has_what_was_asked_for_and_is_the_same_for_the_same_seed() {
        let (read, text) = made("a", 1.0, 3_000.0);
        assert!(read.warnings().is_empty(), "{:?}", read.warnings());
        assert_eq!(read.len(), read.files().len() * 10);
        let bytes: u64 = read.files().iter().filter_map(|file| file.file_bytes).sum();
        assert!((4_000_000..4_000_000 + FILE_BYTES_MAX as u64).contains(&bytes), "{bytes}");
        assert_eq!(made("a", 1.0, 3_000.0).1, text);
    }

    #[test]
    fn more_locality_means_shorter_answers_for_fewer_files() {
        let share_of_top = |text: &str| {
            let top = text.lines().filter(|line| {
                let number = line.split(['/', ' ', '"']).skip_while(|word| *word != "GET").nth(3).unwrap();
                number.parse::<u32>().unwrap() < 10
            });
            top.count() as f64 / text.lines().count() as f64
        };
        let [high, low] = [1.0, 0.6].map(|alpha| share_of_top(&made("b", alpha, 3_000.0).1));
        assert!(high > 2.0 * low, "{high} {low}");
    }
}
