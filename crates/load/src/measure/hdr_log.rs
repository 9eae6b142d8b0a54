//! Latencies as an HdrHistogram interval log, the standard V2 format, which many tools read.
//!
//! Commands append each phase to one log. A line an interval: its start and length in seconds since
//! the log's base time, its longest latency in milliseconds, its histogram of nanoseconds; the tag
//! is the phase's name. Intervals are the steps of the timeline, by the intended start.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::timeline::{POINTS_MAX, step_ns};
use crate::record::Record;
use flash_kit::{Error, Result};

/// The longest latency that the histograms hold: an hour. Longer latencies count as an hour.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;
/// Decimal digits that the histograms keep.
const DIGITS: u8 = 3;
/// The third field of a line is the longest latency divided by this: milliseconds, as the Java
/// writer has it.
const MAX_DIVISOR: f64 = 1e6;

pub struct HdrLog {
    path: PathBuf,
    started: SystemTime,
    file: BufWriter<File>,
    serializer: V2DeflateSerializer,
    histogram: Histogram<u64>,
}

impl HdrLog {
    /// Begins a log at `path` with `started` as its base time; what was there is gone.
    ///
    /// Errors: run, when the file can't be written.
    pub fn create(path: &Path, started: SystemTime) -> Result<Self> {
        let histogram = Histogram::new_with_bounds(1, LATENCY_MAX_NS, DIGITS)
            .map_err(|why| Error::run(format!("cannot make a histogram: {why}")))?;
        let file = File::create(path).map_err(|why| Error::file("create", path, &why))?;
        let mut log = Self {
            path: path.to_owned(),
            started,
            file: BufWriter::new(file),
            serializer: V2DeflateSerializer::new(),
            histogram,
        };
        let mut head = IntervalLogWriterBuilder::new();
        head.add_comment("[Histogram log format version 1.3]");
        head.add_comment("Latencies in nanoseconds, by the intended start of the request.");
        head.with_start_time(started).with_base_time(started);
        let begun = head.begin_log_with(&mut log.file, &mut log.serializer).map(|_| ());
        begun.and_then(|()| log.file.flush()).map_err(|why| Error::file("write", path, &why))?;
        Ok(log)
    }

    /// Appends the latencies that count of a phase that began at `phase_started` and asked for
    /// `duration_ns`.
    ///
    /// Errors: run, when the file can't be written. It is whole up to the phase before.
    pub fn append(
        &mut self,
        name: &str,
        phase_started: SystemTime,
        duration_ns: u64,
        records: &[Record],
    ) -> Result<()> {
        let offset = phase_started.duration_since(self.started).unwrap_or_default();
        let step_ns = step_ns(duration_ns, POINTS_MAX);
        let tag = tag_of(name);
        let mut by_start: Vec<(u64, u64)> = records
            .iter()
            .filter(|record| record.counts())
            .map(|record| (record.intended_ns / step_ns, record.latency_ns()))
            .collect();
        by_start.sort_unstable();
        let Self { file, serializer, histogram, .. } = self;
        let mut written = || {
            let mut lines = IntervalLogWriterBuilder::new()
                .with_max_value_divisor(MAX_DIVISOR)
                .begin_log_with(file, serializer)?;
            for interval in by_start.chunk_by(|a, b| a.0 == b.0) {
                histogram.reset();
                for &(_, latency_ns) in interval {
                    histogram.saturating_record(latency_ns);
                }
                let start_ns = interval[0].0 * step_ns;
                // The last may be shorter than a step.
                let length_ns = duration_ns.saturating_sub(start_ns).clamp(1, step_ns);
                let (start, length) = (Duration::from_nanos(start_ns), Duration::from_nanos(length_ns));
                lines
                    .write_histogram(histogram, offset + start, length, Tag::new(&tag))
                    .map_err(io::Error::other)?;
            }
            file.flush()
        };
        written().map_err(|why| Error::file("write", &self.path, &why))
    }
}

/// A tag can't have commas or white space.
fn tag_of(name: &str) -> String {
    name.replace([',', ' ', '\r', '\n', '\t'], "_")
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::super::tests::answered;
    use super::*;
    use crate::record::Outcome;

    const MS_NS: u64 = 1_000_000;
    const SECOND_NS: u64 = 1000 * MS_NS;

    #[test]
    fn a_log_reads_back() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let started = SystemTime::UNIX_EPOCH + Duration::from_millis(1_600_000_000_250);
        let mut log = HdrLog::create(file.path(), started).unwrap();
        // A request each 10 ms for 90 s of a phase of 90.5 s, of 1 to 100 ms, and one that counts not.
        let mut records: Vec<_> =
            (0..9000u64).map(|i| answered(i * 10 * MS_NS, (i % 100 + 1) * MS_NS, 1)).collect();
        records.push(answered(90_100 * MS_NS, 3 * MS_NS, 1));
        records.push(answered(0, SECOND_NS, 1));
        records[9001].outcome = Outcome::Refused;
        records.reverse();
        log.append("hot alone, 1", started, 90_500 * MS_NS, &records).unwrap();
        let later = started + Duration::from_secs(100);
        log.append("0.80", later, 90 * SECOND_NS, &records[..1000]).unwrap();
        drop(log);

        let text = std::fs::read(&file).unwrap();
        let mut intervals = Vec::new();
        for entry in IntervalLogIterator::new(&text) {
            match entry.unwrap() {
                LogEntry::Interval(interval) => intervals.push(interval),
                LogEntry::StartTime(since) | LogEntry::BaseTime(since) => {
                    assert_eq!(since, Duration::from_millis(1_600_000_000_250));
                }
            }
        }
        assert_eq!(intervals.len(), 91 + 11);
        let tags: Vec<_> = intervals.iter().map(|i| i.tag().unwrap().as_str()).collect();
        assert_eq!((tags[0], tags[90], tags[91]), ("hot_alone__1", "hot_alone__1", "0.80"));
        let (first, last) = (&intervals[7], &intervals[90]);
        assert_eq!(
            (first.start_timestamp(), first.duration()),
            (Duration::from_secs(7), Duration::from_secs(1))
        );
        assert_eq!(last.duration(), Duration::from_millis(500));
        assert!((first.max() - 100.0).abs() < 0.1, "milliseconds: {}", first.max());
        // The second phase has what began from 80.1 s on, a hundred seconds later.
        assert_eq!(intervals[91].start_timestamp(), Duration::from_secs(180));
        let bytes = base64_decoded(first.encoded_histogram());
        let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
        assert_eq!(histogram.len(), 100);
        assert!(histogram.value_at_quantile(0.5).abs_diff(50 * MS_NS) < 50_000);
        assert!(histogram.max().abs_diff(100 * MS_NS) < 100_000);
    }

    /// Base64 as in RFC 4648, §4.
    fn base64_decoded(text: &str) -> Vec<u8> {
        const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let digits: Vec<u32> = text
            .bytes()
            .filter(|&letter| letter != b'=')
            .map(|letter| LETTERS.iter().position(|&other| other == letter).unwrap() as u32)
            .collect();
        let mut bytes = Vec::new();
        for four in digits.chunks(4) {
            let bits = four.iter().enumerate().fold(0, |bits, (i, digit)| bits | digit << (18 - 6 * i));
            bytes.extend_from_slice(&bits.to_be_bytes()[1..four.len()]);
        }
        bytes
    }

    #[test]
    fn a_full_disk_is_told() {
        let full = Path::new("/dev/full");
        let error = HdrLog::create(full, SystemTime::now()).err().unwrap();
        assert!(error.to_string().starts_with("cannot write /dev/full: "), "{error}");
        assert!(HdrLog::create(Path::new("/nowhere/x"), SystemTime::now()).is_err());
    }
}
