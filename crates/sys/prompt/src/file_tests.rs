//! Look-ups and their facts, reads of what is in memory, and what a test of residency must not do.

use std::fs::{File, FileTimes};
use std::io::Write;
use std::num::NonZeroU64;
use std::os::unix::fs::{MetadataExt, symlink};
use std::time::{Duration, UNIX_EPOCH};

use super::*;

#[test]
fn stat_agrees_with_statx() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    std::fs::write(&path, "12345").expect("a file");
    let file = File::open(&path).expect("opened");
    // The standard library calls statx(2), which returns both halves of the device number separately.
    let known = file.metadata().expect("its metadata");
    let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
    let (major, minor) = (fs::major(known.dev()), fs::minor(known.dev()));
    let expected = Stat {
        kind: FileKind::File,
        device: u64::from(major) << 32 | u64::from(minor),
        inode: known.ino(),
        size_bytes: 5,
        modified_ns: ns(known.mtime(), known.mtime_nsec()),
        changed_ns: ns(known.ctime(), known.ctime_nsec()),
    };
    assert_eq!(stat(&file).expect("its state"), expected);
    assert!(!is_deleted(&file).expect("its names"));
    let link = path.with_extension("link");
    symlink(&path, &link).expect("a link");
    std::fs::remove_file(&link).expect("removed");
    assert!(!is_deleted(&file).expect("its names"), "a symlink does not count as a name");
    std::fs::remove_file(&path).expect("removed");
    assert!(is_deleted(&file).expect("its names"));
    assert_eq!(stat(File::open("/").expect("/")).expect("its state").kind, FileKind::Directory);
    assert_eq!(stat(File::open("/dev/null").expect("it")).expect("its state").kind, FileKind::Special);
}

#[test]
fn the_identity_of_a_file_is_the_same_for_every_descriptor() {
    let open = |path, flags| fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).expect("opened");
    let program = std::env::current_exe().expect("this program");
    let [read, place] =
        [OFlags::RDONLY, OFlags::PATH].map(|flags| identity(open(&program, flags)).expect("its identity"));
    assert_eq!((read, read.kind), (place, FileKind::File));
    let stat = stat(open(&program, OFlags::RDONLY)).expect("its state");
    assert_eq!((read.device, read.inode), (stat.device, stat.inode));
    let folder = identity(open(&std::path::PathBuf::from("/"), OFlags::PATH)).expect("its identity");
    assert_eq!(folder.kind, FileKind::Directory);
    assert_ne!(folder.inode, read.inode);
}

/// Shows nothing on a disk that is quicker than the test; on others `cachestat` counts parts that no read gets: of a file that
/// is being read, and of one whose ends are in memory and whose middle is being read.
#[test]
fn a_part_that_is_still_being_read_is_not_given() {
    const PARTS: usize = 256;
    const PART_BYTES: usize = 128 << 10;
    // On the disk of the sources, because the kernel never reads a file in memory.
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = folder.join(format!("in-flight-{}.tmp", std::process::id()));
    std::fs::write(&path, vec![7; PARTS * PART_BYTES]).expect("a file");
    let file = File::open(&path).expect("opened");
    std::fs::remove_file(&path).expect("removed");
    file.sync_all().expect("on the disk");
    if read_start(&file, 0, 1).expect("an answer") == Resident::Unknown {
        return crate::skipping::skip("this kernel or file system does not report residency");
    }
    let read_anew = |offset: usize, length: usize| {
        let length = NonZeroU64::new(length as u64);
        for advice in [Advice::DontNeed, Advice::WillNeed] {
            fs::fadvise(&file, offset as u64, length, advice).expect("taken");
        }
    };
    let check_part = |offset: usize| {
        if let Resident::Bytes(length) = read_start(&file, offset as u64, PART_BYTES).expect("an answer") {
            for at in (offset..offset + length).step_by(PAGE_BYTES) {
                let read = read_resident(&file, at as u64, &mut [0]).expect("an answer");
                assert_eq!(read, Resident::Bytes(1), "{at} of the part at {offset}");
            }
        }
    };
    for _ in 0..20 {
        read_anew(0, PARTS * PART_BYTES);
        (0..PARTS).for_each(|part| check_part(part * PART_BYTES));
        for part in 0..PARTS {
            read_anew(part * PART_BYTES + PART_BYTES / 4, PART_BYTES / 2);
            check_part(part * PART_BYTES);
        }
    }
}

/// The kernel counts each read as a use of the page, and so evicts it later.
#[test]
fn a_test_of_a_part_reads_none_of_it() {
    const PAGES: usize = 256;
    let mut file =
        tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("a file on the disk of the sources");
    file.write_all(&[7; PAGES * PAGE_BYTES]).expect("written");
    // `None` if the kernel does not count them (proc_pid_io(5)).
    let bytes_read = || {
        let counts = std::fs::read_to_string("/proc/thread-self/io").ok()?;
        counts.strip_prefix("rchar: ")?.lines().next()?.parse::<usize>().ok()
    };
    let (Some(first), Some(second)) = (bytes_read(), bytes_read()) else {
        return crate::skipping::skip("this kernel does not count the bytes that a thread reads");
    };
    let answer = read_start(&file, 5, PAGES * PAGE_BYTES - 5).expect("an answer");
    let third = bytes_read().expect("counted before");
    if answer == Resident::Unknown {
        return crate::skipping::skip("this kernel or file system does not report residency");
    }
    assert_eq!(answer, Resident::Bytes(PAGES * PAGE_BYTES - 5));
    // Looking at the counts reads them, and they can have got a few digits more.
    assert!(third - second < second - first + PAGES / 4, "{first} bytes, {second}, {third}");
}

#[test]
fn reading_leaves_the_access_time_alone() {
    let old = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    // The file is on the disk of the sources and has an access time that any read would update (mount(8),
    // relatime).
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let make = |kind: &str| {
        let name = format!("atime-{}-{kind}.tmp", std::process::id());
        let mut file = File::create(folder.join(&name)).expect("a file");
        file.write_all(b"12345").expect("written");
        file.set_times(FileTimes::new().set_accessed(old)).expect("its times set");
        name
    };
    let accessed =
        |name: &str| std::fs::metadata(folder.join(name)).expect("there").accessed().expect("a time");
    let (ours, other) = (make("ours"), make("other"));
    let root = File::open(folder).expect("the folder");
    let file = open_cached(&root, ours.as_bytes(), Want::Content).expect("found").file.expect("a file");
    let read = read_resident(&file, 0, &mut [0; 5]).expect("an answer");
    std::fs::read(folder.join(&other)).expect("read");
    let (ours_now, other_now) = (accessed(&ours), accessed(&other));
    for name in [ours, other] {
        std::fs::remove_file(folder.join(name)).expect("removed");
    }
    if read == Resident::Unknown || other_now == old {
        return crate::skipping::skip(
            "this file system cannot read without blocking, or keeps no access times",
        );
    }
    assert_eq!((read, ours_now), (Resident::Bytes(5), old));
}
