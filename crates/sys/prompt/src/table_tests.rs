//! Tests of the table: entries are found, the death of a writer does no harm, and a damaged file does not
//! affect memory safety.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};

use super::*;
use crate::slots::PAGE_BYTES;

const SLOT_BYTES: u64 = 64;

fn memory_file(bytes: u64) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create(c"flash-test", flags).expect("a memory file");
    ftruncate(&file, bytes).expect("its length");
    fcntl_add_seals(&file, SealFlags::SHRINK).expect("sealed");
    file
}

fn table(slots_max: u32) -> (OwnedFd, TableWriter, TableReader) {
    let file = memory_file(0);
    let writer = TableWriter::create(&file, slots_max).expect("created");
    let reader = TableReader::map(&file).expect("mapped");
    (file, writer, reader)
}

fn key(number: u64) -> BlockKey {
    let file = FileState {
        device: 7 << 32 | 1,
        inode: number,
        size_bytes: 1000 + number,
        modified_ns: -5,
        changed_ns: i64::MAX,
    };
    BlockKey { file, block: number as u32 % 3 }
}

fn extent(number: u64) -> Extent {
    Extent { offset: number << 20, length: number as u32 + 1 }
}

/// A short sequence of numbers that is the same in every run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[test]
fn an_entry_is_found_until_it_is_removed() {
    let (_file, mut writer, reader) = table(100);
    assert_eq!((reader.find(&key(1)), writer.get(3), writer.slots_max()), (None, None, 100));
    writer.put(3, &key(1), extent(1));
    assert_eq!((reader.find(&key(1)), writer.get(3)), (Some((3, extent(1))), Some((key(1), extent(1)))));
    // Each part of a key matters.
    let one = key(1);
    let of = |file| BlockKey { file, ..one };
    for other in [
        of(FileState { device: 0, ..one.file }),
        of(FileState { inode: 0, ..one.file }),
        of(FileState { size_bytes: 0, ..one.file }),
        of(FileState { modified_ns: 0, ..one.file }),
        of(FileState { changed_ns: 0, ..one.file }),
        BlockKey { block: 0, ..one },
    ] {
        assert_eq!(reader.find(&other), None, "{other:?}");
    }
    writer.put(3, &key(2), extent(2));
    assert_eq!((reader.find(&key(1)), reader.find(&key(2))), (None, Some((3, extent(2)))));
    writer.remove(3);
    writer.remove(3);
    writer.remove(100);
    assert_eq!((reader.find(&key(2)), writer.get(3), writer.get(100)), (None, None, None));
}

#[test]
fn the_table_agrees_with_a_map_after_many_changes() {
    // There are fewer buckets than keys, so chains are long and slots are removed from every position in
    // them.
    let (file, mut writer, reader) = table(64);
    let mut expected: HashMap<u32, u64> = HashMap::new();
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for step in 0..20_000 {
        let (slot, number) = ((numbers.next() % 64) as u32, numbers.next() % 200);
        if numbers.next().is_multiple_of(3) {
            writer.remove(slot);
            expected.remove(&slot);
        } else if !expected.iter().any(|(other, there)| *there == number && *other != slot) {
            writer.put(slot, &key(number), extent(number));
            expected.insert(slot, number);
        }
        if step % 5_000 == 0 {
            drop(writer);
            writer = TableWriter::open(&file).expect("taken over");
        }
        if step % 50 == 0 {
            agree(&reader, &writer, &expected);
        }
    }
    agree(&reader, &writer, &expected);
}

fn agree(reader: &TableReader, writer: &TableWriter, expected: &HashMap<u32, u64>) {
    for slot in 0..writer.slots_max() {
        let entry = expected.get(&slot).map(|number| (key(*number), extent(*number)));
        assert_eq!(writer.get(slot), entry, "slot {slot}");
    }
    for number in 0..200 {
        let found = expected.iter().find(|(_, there)| **there == number);
        assert_eq!(reader.find(&key(number)), found.map(|(slot, _)| (*slot, extent(number))), "{number}");
    }
}

/// Stops a writer before each of the stores of `last` and checks the result: the slot has the entry `before`
/// or `after`, everything else is unchanged, and the table still works.
fn cut_short(last: impl Fn(&mut TableWriter), before: Option<u64>, after: Option<u64>) {
    let mut seen = [false; 2];
    for stores in 0.. {
        assert!(stores < 100, "the writer never finishes");
        // There are few buckets, so the slot has others before and after it in its chain.
        let (file, mut writer, reader) = table(4);
        for (slot, number) in [(0, 10), (1, 11), (2, 12)] {
            writer.put(slot, &key(number), extent(number));
        }
        writer.remove(1);
        if let Some(number) = before {
            writer.put(1, &key(number), extent(number));
            writer.put(3, &key(13), extent(13));
        }
        writer.writer.stores_left.set(stores);
        last(&mut writer);
        let is_whole = writer.writer.stores_left.get() > 0;
        drop(writer);

        // Without a writer, readers find no wrong entry.
        for number in 10..20 {
            let found = reader.find(&key(number));
            assert!(found.is_none_or(|(_, found)| found == extent(number)), "{number} after {stores} stores");
        }
        let mut writer = TableWriter::open(&file).expect("taken over");
        let entry = |number: Option<u64>| number.map(|number| (key(number), extent(number)));
        let found = writer.get(1);
        // A put over an existing entry first removes that, and can stop there.
        assert!([entry(before), entry(after), None].contains(&found), "{found:?} after {stores} stores");
        seen[0] |= found == entry(before);
        seen[1] |= found == entry(after);
        let mut expected = HashMap::from([(0, 10), (2, 12)]);
        expected.extend(before.map(|_| (3, 13)));
        expected.extend(found.map(|(key, _)| (1, key.file.inode)));
        agree(&reader, &writer, &expected);
        writer.put(1, &key(15), extent(15));
        expected.insert(1, 15);
        agree(&reader, &writer, &expected);
        if is_whole {
            assert!(found == entry(after) && seen == [true; 2], "{found:?}, {seen:?}");
            return;
        }
    }
}

#[test]
fn a_writer_can_die_at_any_store() {
    // The chains depend on the table's random key.
    for _ in 0..30 {
        cut_short(|writer| writer.put(1, &key(11), extent(11)), None, Some(11));
        cut_short(|writer| writer.put(1, &key(14), extent(14)), Some(11), Some(14));
        cut_short(|writer| writer.remove(1), Some(11), None);
    }
}

#[test]
fn a_writer_can_die_at_the_first_use_of_a_slot() {
    for stores in 0..12 {
        let (file, mut writer, reader) = table(10);
        writer.writer.stores_left.set(stores);
        writer.put(7, &key(1), extent(1));
        let found = TableWriter::open(&file).expect("taken over").get(7);
        // The store before the last fills the slot; opening the table makes up for the last one.
        assert_eq!(found, (stores >= 10).then_some((key(1), extent(1))), "{stores} stores");
        assert_eq!(reader.find(&key(1)).is_some(), stores >= 10, "{stores} stores");
    }
}

#[test]
fn unused_slots_cost_no_memory() {
    let (file, mut writer, _reader) = table(1 << 22);
    for slot in 0..100 {
        writer.put(slot, &key(slot.into()), extent(0));
    }
    drop(writer);
    let writer = TableWriter::open(&file).expect("taken over");
    let there = (0..writer.slots_max()).filter(|slot| writer.get(*slot).is_some()).count();
    assert_eq!((there, writer.slots_used()), (100, 100));
    let held_bytes = fstat(&file).expect("its state").st_blocks as u64 * 512;
    // At most all heads: 4 bytes for each bucket. The slots are 256 MiB long.
    assert!(held_bytes <= (16 << 20) + (4 << 20), "{held_bytes}");
}

#[test]
fn an_invalid_table_is_refused_with_the_reason() {
    let refused = |file: &OwnedFd, what: &str| {
        for error in
            [TableReader::map(file).expect_err("no table"), TableWriter::open(file).expect_err("none")]
        {
            assert!(error.to_string().contains(what), "{error}");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        }
    };
    refused(&memory_file(0), "0 bytes");
    refused(&memory_file(1 << 20), "begins with 0x0");
    let changed = |offset: u64, bytes: &[u8]| {
        let (file, writer, _) = table(1_000);
        drop(writer);
        rustix::io::pwrite(&file, bytes, offset).expect("written");
        file
    };
    refused(&changed(0, b"FlashTbk"), "begins with");
    refused(&changed(8, &2_u32.to_ne_bytes()), "version 2");
    refused(&changed(12, &0_u32.to_ne_bytes()), "0 slots");
    refused(&changed(12, &u32::MAX.to_ne_bytes()), "4294967295 slots");
    refused(&changed(12, &1_025_u32.to_ne_bytes()), "1024 buckets");
    refused(&changed(12, &1_024_u32.to_ne_bytes()), "slots need");
    let (file, ..) = table(10);
    assert_eq!(TableWriter::create(&file, 10).expect_err("twice").kind(), io::ErrorKind::AlreadyExists);
    for slots_max in [0, SLOTS_MAX + 1] {
        let refused = TableWriter::create(memory_file(0), slots_max).expect_err("no such table");
        assert_eq!((refused.kind(), file_bytes(slots_max)), (io::ErrorKind::InvalidInput, None));
    }
    TableWriter::create(memory_file(file_bytes(10).expect("a length")), 10).expect("in a file of its length");
}

#[test]
fn a_damaged_table_harms_neither_readers_nor_a_writer() {
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    for _ in 0..200 {
        let (file, mut writer, reader) = table(16);
        for slot in 0..16 {
            writer.put(slot, &key(slot.into()), extent(slot.into()));
        }
        let length = file_bytes(16).expect("a length");
        for _ in 0..400 {
            // The header is not damaged, because it is checked only once. Small numbers are valid slots and
            // make loops.
            let at = PAGE_BYTES + numbers.next() % (length - PAGE_BYTES);
            let value = if numbers.next().is_multiple_of(2) { numbers.next() % 18 } else { numbers.next() };
            let bytes = (value as u32).to_ne_bytes();
            rustix::io::pwrite(&file, &bytes, at & !3).expect("written");
        }
        let look = |writer: &TableWriter| {
            for number in 0..20 {
                let _ = reader.find(&key(number));
                let _ = writer.get(number as u32);
            }
        };
        look(&writer);
        for slot in 0..16 {
            writer.remove(slot);
            writer.put(slot, &key(u64::from(slot) + 1), extent(1));
        }
        drop(writer);
        look(&TableWriter::open(&file).expect("taken over"));
    }
}

#[test]
fn a_loop_ends_a_look_up() {
    let (file, mut writer, reader) = table(1);
    writer.put(0, &key(1), extent(1));
    // The slot links to itself.
    let at = file_bytes(1).expect("a length") - SLOT_BYTES + 4;
    rustix::io::pwrite(&file, &1_u32.to_ne_bytes(), at).expect("written");
    assert_eq!((reader.find(&key(2)), reader.find(&key(1))), (None, Some((0, extent(1)))));
    writer.remove(0);
    assert_eq!(reader.find(&key(1)), None);
}

#[test]
fn readers_never_see_a_mixture() {
    const CHANGES: u64 = 60_000;
    let (_file, mut writer, reader) = table(8);
    let is_over = AtomicBool::new(false);
    let found = std::thread::scope(|scope| {
        let read = || {
            let mut found = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                for number in 0..16 {
                    // Every value of an entry follows from its key.
                    if let Some((_, at)) = reader.find(&key(number)) {
                        assert_eq!(at, extent(number), "block {number}");
                        found += 1;
                    }
                }
            }
            found
        };
        let readers = [scope.spawn(read), scope.spawn(read)];
        let mut numbers = Numbers(0xdead_beef_cafe_f00d);
        for _ in 0..CHANGES {
            // Each key can be in one of two slots, so that no key is in two slots at once and slots change
            // their keys.
            let slot = numbers.next() % 8;
            let number = slot + 8 * (numbers.next() % 2);
            writer.put(slot as u32, &key(number), extent(number));
        }
        is_over.store(true, Ordering::Relaxed);
        readers.map(|reader| reader.join().expect("no mixture")).iter().sum::<u64>()
    });
    println!("{found} entries were found meanwhile");
}
