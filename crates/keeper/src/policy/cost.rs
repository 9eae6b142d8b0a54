//! What a read of the disk costs, learned from reads. Only [`super::Policy`] uses it.
//!
//! A read takes a time that does not depend on its length, and a time for each byte. On a hard disk, whose head must move first,
//! 500 KB take little longer than 5 KB; on flash memory they take several times as long. Both times are those of the line through
//! the typical times of short and long reads. A typical time is a median that follows the reads in small steps, so single slow
//! reads do not matter. Where reads queue, as on a disk with a limit of reads, all wait alike: then the length matters as little
//! as it does there.

/// Reads are grouped by their length: up to 4 KiB, then by powers of two, up to 512 KiB.
const GROUPS: usize = 8;
const LEAST_BYTES_LOG2: u32 = 12;
/// A group is typical after this many reads.
const READS_MIN: u32 = 32;
/// A median moves by this factor at each read.
const STEP: f64 = 1.06;
/// A new line is drawn after this many reads.
const READS_PER_LINE: u32 = 256;
/// The least length that doubles the time of a read. On no disk do a few bytes more matter.
const DOUBLING_BYTES_MIN: f64 = 16.0 * 1024.0;

/// The time of a read: a line over its length.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReadTime {
    /// The time of a read of no bytes in microseconds; 0 if unknown.
    pub read_us: f64,
    /// The time of each further MiB in microseconds; 0 if unknown.
    pub mib_us: f64,
}

impl ReadTime {
    /// The time of a read of this many bytes, in microseconds.
    #[must_use]
    pub fn of(&self, bytes: u64) -> f64 {
        self.read_us + self.mib_us * bytes as f64 / f64::from(1 << 20)
    }

    /// The logarithm of the time of a read of `bytes`, where one of no bytes takes 1. 0 if the times are unknown.
    pub(super) fn cost_log2(&self, bytes: f32) -> f32 {
        let mib_us = self.mib_us.min(self.read_us * f64::from(1 << 20) / DOUBLING_BYTES_MIN);
        if mib_us <= 0.0 {
            0.0
        } else {
            (1.0 + bytes * (mib_us / self.read_us / f64::from(1 << 20)) as f32).log2()
        }
    }
}

/// The typical reads of similar lengths.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    reads: u32,
    bytes: f64,
    time_us: f64,
}

/// Learns the time of a read.
#[derive(Clone, Debug, Default)]
pub(super) struct Learner {
    groups: [Group; GROUPS],
    /// Reads since the last line.
    reads: u32,
    latest: ReadTime,
}

impl Learner {
    /// The last line; zeros if none is known.
    pub(super) fn latest(&self) -> ReadTime {
        self.latest
    }

    /// Notes a read of this many bytes that took so long. Returns a line from time to time, once one is known.
    pub(super) fn note(&mut self, bytes: u64, time_us: u32) -> Option<ReadTime> {
        if bytes == 0 {
            return None;
        }
        let above = (bytes - 1).checked_ilog2().map_or(0, |log2| (log2 + 1).saturating_sub(LEAST_BYTES_LOG2));
        let group = &mut self.groups[(above as usize).min(GROUPS - 1)];
        let (bytes, time_us) = (bytes as f64, f64::from(time_us.max(1)));
        if group.reads == 0 {
            *group = Group { reads: 0, bytes, time_us };
        }
        group.reads = group.reads.saturating_add(1);
        group.bytes += (bytes - group.bytes) / f64::from(READS_MIN);
        group.time_us *= if time_us > group.time_us { STEP } else { 1.0 / STEP };
        self.reads += 1;
        if self.reads < READS_PER_LINE {
            return None;
        }
        self.reads = 0;
        self.latest = self.line()?;
        Some(self.latest)
    }

    /// The line with the least relative errors, if reads of different lengths are known.
    fn line(&self) -> Option<ReadTime> {
        let groups = || self.groups.iter().filter(|group| group.reads >= READS_MIN);
        let (mut all, mut bytes, mut squares, mut times, mut products) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for group in groups() {
            let weight = group.time_us.powi(-2);
            all += weight;
            bytes += weight * group.bytes;
            squares += weight * group.bytes * group.bytes;
            times += weight * group.time_us;
            products += weight * group.bytes * group.time_us;
        }
        let spread = all * squares - bytes * bytes;
        if groups().count() < 2 || spread <= 0.0 {
            return None;
        }
        let byte_us = ((all * products - bytes * times) / spread).max(0.0);
        let read_us = (times - byte_us * bytes) / all;
        (read_us > 0.0).then_some(ReadTime { read_us, mib_us: byte_us * f64::from(1 << 20) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Learns from reads of a disk, of 4 and 16 KiB and up, every eighth of which waits a hundred times as long.
    fn learned(learner: &mut Learner, disk: ReadTime, lengths: &[u64]) -> ReadTime {
        for number in 0..4_000_u64 {
            let bytes = lengths[number as usize % lengths.len()];
            let noise = [0.9, 1.1, 0.95, 1.05, 1.0, 0.98, 1.02][number as usize % 7];
            let wait = if number % 8 == 5 { 100.0 } else { 1.0 };
            learner.note(bytes, (disk.of(bytes) * noise * wait) as u32);
        }
        learner.latest()
    }

    fn is_near(found: ReadTime, disk: ReadTime) -> bool {
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.25;
        near(found.read_us, disk.read_us) && near(found.mib_us, disk.mib_us)
    }

    #[test]
    fn a_disk_is_learned_and_learned_again() {
        let hard_disk = ReadTime { read_us: 8_000.0, mib_us: 7_000.0 };
        let flash_memory = ReadTime { read_us: 90.0, mib_us: 500.0 };
        let lengths = [700, 4_096, 16_000, 100_000, 300_000, 524_288, 524_288];
        let mut learner = Learner::default();
        assert_eq!(learner.latest(), ReadTime::default());
        for disk in [hard_disk, flash_memory, hard_disk] {
            let found = learned(&mut learner, disk, &lengths);
            assert!(is_near(found, disk), "{found:?} is not {disk:?}");
        }
    }

    #[test]
    fn nothing_is_learned_from_reads_of_one_length() {
        let disk = ReadTime { read_us: 90.0, mib_us: 500.0 };
        assert_eq!(learned(&mut Learner::default(), disk, &[524_288]), ReadTime::default());
        assert_eq!(learned(&mut Learner::default(), disk, &[0, 300, 4_096]), ReadTime::default());
    }

    #[test]
    fn reads_that_all_wait_alike_cost_alike() {
        let limited = ReadTime { read_us: 100_000.0, mib_us: 0.0 };
        let found = learned(&mut Learner::default(), limited, &[4_096, 60_000, 524_288]);
        assert!(found.cost_log2(524_288.0) < 0.15, "{found:?}");
    }

    #[test]
    fn the_cost_grows_with_the_length_within_bounds() {
        let cost = |mib_us, bytes| ReadTime { read_us: 100.0, mib_us }.cost_log2(bytes);
        assert_eq!((cost(0.0, 1e6), ReadTime::default().cost_log2(1e6)), (0.0, 0.0));
        assert_eq!(cost(100.0, 1_048_576.0), 1.0);
        assert_eq!(cost(1e12, 16_384.0), 1.0, "bytes never cost more than this");
        let lying = [0, 1, u32::MAX].map(|time_us| {
            let mut learner = Learner::default();
            for number in 0..1_000 {
                learner.note(4_096 << (number % 8), time_us);
            }
            learner.latest().cost_log2(524_288.0)
        });
        assert!(lying.iter().all(|cost_log2| (0.0..=5.1).contains(cost_log2)), "{lying:?}");
    }
}
