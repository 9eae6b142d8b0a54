//! Tests of the names table. Those of [`super::super::table`] cover the death of a writer and damaged files.

use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::*;

fn table(slots_max: u32) -> (OwnedFd, NamesWriter, NamesReader) {
    let file = memfd_create(c"flash-test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a file");
    let writer = NamesWriter::create(&file, slots_max);
    fcntl_add_seals(&file, SealFlags::SHRINK).expect("sealed");
    let writer = writer.or_else(|_| NamesWriter::create(&file, slots_max)).expect("created");
    let reader = NamesReader::map(&file).expect("mapped");
    (file, writer, reader)
}

fn entry(hash: NameHash, part: u8, confirmed_ms: u64) -> NameEntry {
    let state = FileState { device: 1, inode: u64::MAX, size_bytes: 5, modified_ns: -7, changed_ns: 8 };
    NameEntry { hash, part, kind: 3, forms: 5, index: 2, state, confirmed_ms, watch: 7 }
}

#[test]
fn a_name_is_found_with_its_parts_by_its_site_and_path() {
    let (file, mut writer, reader) = table(8);
    let (one, other) = (reader.site(b"one"), reader.site(b"other"));
    let name = reader.name(one, b"/page.html");
    for (slot, part) in [(0, 0), (1, 1), (2, 3)] {
        writer.put(slot, &entry(name, part, 10));
    }
    assert_eq!(reader.find(name, 0), Some(entry(name, 0, 10)));
    assert_eq!(reader.find(name, 3), Some(entry(name, 3, 10)));
    assert_eq!(reader.find(name, 2), None);
    assert_eq!(writer.find(name, 1), Some((1, entry(name, 1, 10))));
    for unknown in [reader.name(other, b"/page.html"), reader.name(one, b"/page.htm")] {
        assert_eq!(reader.find(unknown, 0), None);
    }
    writer.put(0, &entry(name, 0, 11));
    assert_eq!(reader.find(name, 0), Some(entry(name, 0, 11)));
    writer.remove(1);
    assert_eq!((reader.find(name, 1), writer.get(1)), (None, None));
    drop(writer);
    let writer = NamesWriter::open(&file).expect("taken over");
    assert_eq!((writer.get(2), writer.slots_used(), writer.slots_max()), (Some(entry(name, 3, 10)), 3, 8));
}

#[test]
fn each_table_has_its_own_key() {
    let [(.., one), (.., other)] = [table(8), table(8)];
    assert_ne!(one.site(b"site"), other.site(b"site"));
    let site = NameHash([1, 2]);
    assert_ne!(one.name(site, b"/"), other.name(site, b"/"));
}

#[test]
fn a_name_takes_at_most_128_bytes() {
    let bytes = |slots| file_bytes(slots).expect("a length");
    assert_eq!(bytes(1 << 20) - bytes(1 << 19), (1 << 19) * 84);
    const { assert!(ENTRY_BYTES <= 128) };
}

#[test]
fn a_watch_is_in_force_until_it_ends_and_its_number_never_comes_again() {
    let (file, mut writer, reader) = table(8);
    let places = u32::from(WATCH_PLACES);
    let numbers = writer.end_watches();
    assert_eq!((numbers.len() as u32, numbers[0], numbers[3]), (places, places, places + 3));
    let watch = places + 3;
    assert_eq!((reader.watched_ms(0), reader.watched_ms(watch), reader.has_watches()), (None, None, false));
    writer.extend_watch(watch, 100);
    assert_eq!(
        (reader.watched_ms(watch), reader.watched_ms(3), reader.watched_ms(watch + 1)),
        (Some(100), None, None)
    );
    writer.extend_watch(watch, 150);
    assert_eq!((reader.watched_ms(watch), reader.has_watches()), (Some(150), true));
    writer.end_watch(watch);
    writer.end_watch(watch);
    assert_eq!((reader.watched_ms(watch), reader.has_watches()), (None, false));
    let next = watch + places;
    writer.extend_watch(next, 200);
    assert_eq!((reader.watched_ms(watch), reader.watched_ms(next)), (None, Some(200)));
    drop(writer);
    let mut writer = NamesWriter::open(&file).expect("taken over");
    assert_eq!(writer.end_watches()[3], next + places, "the next keeper");
    assert_eq!((reader.watched_ms(next), reader.has_watches()), (None, false));
}
