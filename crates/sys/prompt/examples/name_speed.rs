//! Measures the table of names alone: the time to enter a name and to find one, present or absent, and the memory that
//! each takes, for a thousand names up to ten million.
//!
//! `cargo run --release -p flash-prompt --example name_speed`

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use flash_prompt::names::{FileState, NameEntry, NameHash, NamesReader, NamesWriter, file_bytes};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};

const COUNTS: [u32; 3] = [1_000, 1_000_000, 10_000_000];
const LOOK_UPS: u32 = 5_000_000;
/// The places of random names in a table, by a generator of 32 bits (Knuth, *Seminumerical Algorithms*, 3.3.4).
const MULTIPLIER: u32 = 1_664_525;
const INCREMENT: u32 = 1_013_904_223;

fn main() -> Result<(), Box<dyn Error>> {
    println!("     names   enter  find present  find absent  memory a name");
    for count in COUNTS {
        let file = memfd_create(c"names", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, file_bytes(count).ok_or("too many names")?)?;
        fcntl_add_seals(&file, SealFlags::SHRINK)?;
        let mut writer = NamesWriter::create(&file, count)?;
        let reader = NamesReader::map(&file)?;
        let site = reader.site(b"a site");
        let name = |number: u32| {
            reader.name(site, format!("/dir{:05}/file{number:08}.html", number % 1_000).as_bytes())
        };
        let began = Instant::now();
        for number in 0..count {
            writer.put(number, &entry(name(number)));
        }
        let enter_ns = each_ns(began, count);
        let present_ns = find(count, |number| reader.find(name(number), 0).is_some());
        let absent_ns = find(count, |number| reader.find(name(count + number), 0).is_none());
        let bytes = fstat(&file)?.st_blocks as u64 * 512;
        println!(
            "{count:>10}  {enter_ns:>3} ns        {present_ns:>3} ns       {absent_ns:>3} ns  {:>6} bytes",
            bytes / u64::from(count)
        );
    }
    println!("(each with the making of its path and its hash)");
    Ok(())
}

/// The time to find one of random names, each of which must be as expected.
fn find(count: u32, is_as_expected: impl Fn(u32) -> bool) -> u128 {
    let mut place = 1_u32;
    let began = Instant::now();
    for _ in 0..LOOK_UPS {
        place = place.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
        assert!(black_box(is_as_expected(((u64::from(place) * u64::from(count)) >> 32) as u32)));
    }
    each_ns(began, LOOK_UPS)
}

fn each_ns(began: Instant, count: u32) -> u128 {
    began.elapsed().as_nanos() / u128::from(count)
}

fn entry(hash: NameHash) -> NameEntry {
    let state = FileState { device: 1, inode: hash.0[0], size_bytes: 1_000, modified_ns: 1, changed_ns: 1 };
    NameEntry { hash, part: 0, kind: 1, forms: 0, index: 0, state, confirmed_ms: 1, watch: 0 }
}
