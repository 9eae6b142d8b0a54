//! Files of records: written records read back, and damage is reported.

use std::process::Command;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use tempfile::NamedTempFile;

use super::*;
use crate::measure::{PhaseFacts, measures};
use crate::record::NEVER_NS;
use crate::workload::catalogue::Listed;

fn started() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(1_700_000_000_123_456_789)
}

/// Records with every field at random.
fn random_records(count: usize) -> Vec<Record> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(9);
    let mut record = || {
        let intended_ns = random.random_range(0..1 << 40);
        Record {
            intended_ns,
            begun_ns: random.random(),
            connected_ns: random.random(),
            first_byte_ns: if random.random() { NEVER_NS } else { random.random() },
            last_byte_ns: intended_ns + random.random_range(0..1 << 30),
            body_bytes: random.random_range(0..1 << 50),
            path_id: random.random(),
            status: random.random(),
            outcome: Outcome::ALL[random.random_range(0..Outcome::ALL.len())].0,
            flags: random.random(),
            tries: random.random(),
            thread: random.random(),
        }
    };
    (0..count).map(|_| record()).collect()
}

#[test]
fn the_layout_is_the_documented_one() {
    let record = Record {
        intended_ns: 0x0102_0304_0506_0708,
        begun_ns: 2,
        connected_ns: 3,
        first_byte_ns: NEVER_NS,
        last_byte_ns: 5,
        body_bytes: 6,
        path_id: 0x0708_090a,
        status: 0x0190,
        outcome: Outcome::Unanswered,
        flags: 3,
        tries: 4,
        thread: 5,
    };
    let mut expected = vec![8, 7, 6, 5, 4, 3, 2, 1];
    for long in [2, 3, u64::MAX, 5, 6] {
        expected.extend(long.to_le_bytes());
    }
    expected.extend([0x0a, 9, 8, 7, 0x90, 1, 10, 3, 4, 5]);
    assert_eq!(encode(&record).to_vec(), expected);
    for (number, (outcome, _)) in Outcome::ALL.into_iter().enumerate() {
        assert_eq!(outcome as usize, number);
        let line = include_str!("../../../../docs/records.md");
        assert!(line.contains(&format!("{number} {}", outcome.name())), "{outcome:?}");
    }
}

#[test]
fn what_is_written_reads_back() {
    let scratch = NamedTempFile::new().unwrap();
    let records = random_records(5000);
    let writer = Writer::create(scratch.path(), started());
    assert_eq!(writer.kept(), Kept::default());
    // From two threads: chunks stay whole.
    std::thread::scope(|scope| {
        for half in records.chunks(2500) {
            scope.spawn(|| half.chunks(7).for_each(|chunk| writer.append(chunk)));
        }
    });
    assert_eq!(writer.kept(), Kept { records: 5000, lost: 0, why: None });
    let bytes = std::fs::metadata(scratch.path()).unwrap().len() as usize;
    assert_eq!(bytes, HEADER_BYTES + 5000 * RECORD_BYTES);
    let reader = Reader::open(scratch.path()).unwrap();
    assert_eq!(reader.started_ns(), 1_700_000_000_123_456_789);
    let key = |record: &Record| (record.intended_ns, record.begun_ns);
    let mut back: Vec<_> = reader.map(Result::unwrap).collect();
    let mut expected = records;
    back.sort_by_key(key);
    expected.sort_by_key(key);
    assert_eq!(back, expected);
    assert_eq!(read_all(scratch.path(), 5000).unwrap().len(), 5000);
    let text = read_all(scratch.path(), 4999).unwrap_err().to_string();
    assert!(text.contains("has more than 4999 records"), "{text}");
}

#[test]
fn the_script_of_the_document_agrees() {
    let scratch = NamedTempFile::new().unwrap();
    let records = random_records(3000);
    Writer::create(scratch.path(), started()).append(&records);
    let document = include_str!("../../../../docs/records.md");
    let script = document.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let output = match Command::new("python3").arg("-c").arg(script).arg(scratch.path()).output() {
        Ok(output) => output,
        Err(why) => return crate::skipping::skip(&format!("python3 does not start: {why}")),
    };
    let found = measures(&records, &PhaseFacts::default());
    let count = records.iter().filter(|record| record.counts()).count();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("{count} latencies, p99 {:.6} ms\n", found.latency.p99_ms),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_full_disk_loses_records_and_nothing_else() {
    let writer = Writer::create(Path::new("/dev/full"), started());
    writer.append(&random_records(3000));
    let kept = writer.kept();
    assert_eq!((kept.records, kept.lost), (0, 3000));
    let why = kept.why.unwrap();
    assert!(why.starts_with("cannot create /dev/full: No space left on device"), "{why}");
    let nowhere = Writer::create(Path::new("/nowhere/records"), started());
    nowhere.append(&random_records(1));
    assert_eq!(nowhere.kept().lost, 1);
}

#[test]
fn a_disk_that_fills_keeps_whole_records() {
    let scratch = NamedTempFile::new().unwrap();
    // The file takes its header; from then on every write fails.
    let writer = Writer::create(scratch.path(), started());
    writer.append(&random_records(10));
    writer.lock().file = Some(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    writer.append(&random_records(2000));
    writer.append(&random_records(5));
    let kept = writer.kept();
    assert_eq!((kept.records, kept.lost), (10, 2005));
    assert!(kept.why.unwrap().starts_with("cannot write "));
    assert_eq!(read_all(scratch.path(), 100).unwrap(), random_records(10));
}

#[test]
fn a_write_that_stops_half_way_counts_whole_records() {
    /// Takes this many bytes, a few at a time, and then none.
    struct Small(usize);
    impl Write for Small {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.0).min(100);
            self.0 -= taken;
            if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (written, result) = write_some(&mut Small(10 * RECORD_BYTES + 57), &[0; 20 * RECORD_BYTES]);
    assert_eq!((written / RECORD_BYTES, result.unwrap_err().kind()), (10, io::ErrorKind::StorageFull));
    assert_eq!(write_some(&mut Small(1000), &[0; 1000]).0, 1000);
}

#[test]
fn a_cut_file_is_read_to_its_last_whole_record() {
    let scratch = NamedTempFile::new().unwrap();
    let records = random_records(3);
    Writer::create(scratch.path(), started()).append(&records);
    let whole = std::fs::read(scratch.path()).unwrap();
    for length in HEADER_BYTES..whole.len() {
        std::fs::write(scratch.path(), &whole[..length]).unwrap();
        let count = (length - HEADER_BYTES) / RECORD_BYTES;
        assert_eq!(read_all(scratch.path(), 3).unwrap(), records[..count]);
    }
}

#[test]
fn damaged_files_are_told() {
    let scratch = NamedTempFile::new().unwrap();
    Writer::create(scratch.path(), started()).append(&random_records(2));
    let whole = std::fs::read(scratch.path()).unwrap();
    let said = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        std::fs::write(scratch.path(), bytes).unwrap();
        read_all(scratch.path(), 100).unwrap_err().to_string()
    };
    for (part, text) in [
        (said(&|bytes| bytes[0] = b'F'), "does not begin with 'flashrec'"),
        (said(&|bytes| bytes.clear()), "does not begin with 'flashrec'"),
        (said(&|bytes| bytes.truncate(31)), "cut short in its header: 31 of 32 bytes"),
        (said(&|bytes| bytes[8] = 2), "records of form 2, 58 bytes each: this program reads form 1"),
        (said(&|bytes| bytes[16] = 64), "records of form 1, 64 bytes each"),
        (said(&|bytes| bytes[HEADER_BYTES + RECORD_BYTES + 54] = 12), "record 1 has outcome 12"),
    ] {
        assert!(part.contains(text), "{part}");
    }
    assert!(Reader::open(Path::new("/nowhere/records")).unwrap_err().to_string().contains("cannot open"));
}

#[test]
fn paths_stand_beside_the_records() {
    let scratch = NamedTempFile::new().unwrap();
    let listed = |path: &str, file_bytes| Listed { path: path.into(), file_bytes };
    let catalogue = Catalogue::listed(vec![listed("/a", Some(7)), listed("/b", None), listed("/c", Some(1))]);
    let mut seen = PathsSeen::new(&catalogue);
    let mut records = random_records(3);
    for (record, id) in records.iter_mut().zip([1, 0, 900]) {
        record.path_id = id;
    }
    seen.note(&records);
    seen.note(&records[..1]);
    seen.write(scratch.path(), &catalogue).unwrap();
    assert_eq!(std::fs::read_to_string(scratch.path()).unwrap(), "0 /a 7\n1 /b -\n");
    assert!(seen.write(Path::new("/dev/full"), &catalogue).is_err());
}
