//! Every way reads the same bytes on every file system, and leaves no pages in the page cache.

use std::ffi::CString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::file::{open, open_folder};
use crate::sandbox::paths;
use flash_prompt::file::Want;
use rustix::fd::OwnedFd;

const BLOCK_BYTES: usize = 512 * 1024;

/// A directory of a test, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(above: &Path) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = above.join(format!("past-cache-{}-{number}.tmp", std::process::id()));
        std::fs::create_dir(&path).expect("a folder");
        Self(path)
    }

    /// A directory on the disk of the sources.
    fn on_disk() -> Self {
        Self::new(Path::new(env!("CARGO_MANIFEST_DIR")))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n % 251) as u8).collect()
}

/// A file on the disk and not in the page cache, opened as for a worker.
fn cold_file(folder: &Path, bytes: &[u8]) -> OwnedFd {
    let path = folder.join("file");
    std::fs::write(&path, bytes).expect("a file");
    let root = open_folder(folder).expect("the folder");
    let file = open(&root, b"file", Want::Content).expect("found").file.expect("a file");
    std::fs::remove_file(&path).expect("removed");
    forget(&file);
    file
}

fn forget(file: impl AsFd) {
    fs::fsync(&file).expect("on the disk");
    fs::fadvise(&file, 0, None, Advice::DontNeed).expect("forgotten");
}

/// Parts of a file of `length` bytes: all of it, odd offsets, across its end, and beyond it.
fn parts(length: usize) -> Vec<FileRange> {
    let at = |offset: usize, length| FileRange { offset: offset as u64, length };
    vec![
        at(0, length.min(BLOCK_BYTES)),
        at(0, BLOCK_BYTES),
        at(1, 10),
        at(511, 2),
        at(4095, 4098),
        at(12_345, 300_001),
        at(BLOCK_BYTES, BLOCK_BYTES),
        at(length.saturating_sub(1), 5),
        at(length, 10),
        at(length + 70_000, 10),
    ]
}

/// The bytes read by each way alone; None for ways that do not work here.
fn by_each_way(reader: &mut Reader, file: &OwnedFd, part: FileRange) -> Vec<(Way, Option<Vec<u8>>)> {
    let flags = fs::fcntl_getfl(file).expect("its flags");
    let mut read = Vec::new();
    for way in [Way::Direct, Way::DontCache, Way::Dropped, Way::Cached] {
        let filled = match way {
            Way::Cached => {
                let _ = reader.read_until_end(file, part, ReadWriteFlags::empty());
                reader.read_cached(file, part)
            }
            Way::Direct => reader.read_direct(&Source::Shared(file), flags, part),
            Way::DontCache => reader.read_dont_cache(file, part),
            Way::Dropped => reader.read_and_forget(file, part).map(Some),
        };
        let filled = filled.unwrap_or_else(|e| panic!("{way:?} of {part:?}: {e}"));
        read.push((way, filled.map(|range| reader.block(range, way).bytes.to_vec())));
    }
    read
}

/// Reads files of various lengths in `folder`. Returns the ways that worked.
fn check(folder: &Path) -> Vec<Way> {
    let mut reader = Reader::new(BLOCK_BYTES);
    let mut worked = Vec::new();
    for length in [0, 1, 511, 512, 4096, 4097, 300_000, 1_000_000] {
        let bytes = pattern(length);
        let file = cold_file(folder, &bytes);
        for part in parts(length) {
            let start = length.min(part.offset as usize);
            let expected = &bytes[start..length.min(start + part.length)];
            for (way, read) in by_each_way(&mut reader, &file, part) {
                let Some(read) = read else { continue };
                assert!(read == expected, "{way:?}: {part:?} of {length} bytes");
                // An empty read works in every way, so it proves nothing.
                worked.extend((!read.is_empty()).then_some(way));
            }
            forget(&file);
            let block = reader.read(&Source::Shared(&file), part.offset, part.length).expect("read");
            assert!(block.bytes == expected, "{:?}: {part:?} of {length} bytes", block.way);
            forget(&file);
            let (way, flags) = (block.way, fs::fcntl_getfl(&file).expect("its flags"));
            let block = reader.read(&Source::Own(&file), part.offset, part.length).expect("read");
            assert!(block.bytes == expected, "{:?}: {part:?} of {length} bytes", block.way);
            assert!(block.way == way || block.bytes.is_empty(), "{:?} and not {way:?}", block.way);
            assert_eq!(fs::fcntl_getfl(&file).expect("its flags"), flags);
            let place = Source::Own(open_again(&file, OFlags::PATH).expect("a place"));
            let block = reader.read(&place, part.offset, part.length).expect("read");
            assert!(block.bytes == expected && block.way != Way::Cached, "{part:?} of {length} bytes");
        }
    }
    worked.sort_by_key(|way| *way as u8);
    worked.dedup();
    worked
}

#[test]
fn all_ways_agree_on_a_disk() {
    let folder = Folder::on_disk();
    let worked = check(&folder.0);
    assert!(worked.contains(&Way::Dropped), "{worked:?}");
    println!("on the disk, these ways work: {worked:?}");
}

#[test]
fn all_ways_agree_in_memory() {
    let folder = Path::new("/dev/shm");
    if !folder.is_dir() {
        return crate::skipping::skip("there is no /dev/shm");
    }
    let folder = Folder::new(folder);
    println!("in /dev/shm, these ways work: {:?}", check(&folder.0));
}

#[test]
fn all_ways_agree_on_overlayfs() {
    let folder = Folder::on_disk();
    let run = || match mount_overlay(&folder.0) {
        Ok(merged) => println!("on overlayfs, these ways work: {:?}", check(&merged)),
        Err(e) => crate::skipping::skip(&format!("overlayfs cannot be mounted: {e}")),
    };
    std::thread::scope(|scope| scope.spawn(run).join().expect("all agree"));
}

/// Mounts an overlay of two directories in `folder`, only for this thread; it ends with the thread.
fn mount_overlay(folder: &Path) -> io::Result<PathBuf> {
    for name in ["lower", "upper", "work", "merged"] {
        std::fs::create_dir(folder.join(name))?;
    }
    let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).expect("a path");
    let (merged, root) = (text(&folder.join("merged")), text(Path::new("/")));
    let folder_of = |name| folder.join(name).display().to_string();
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        folder_of("lower"),
        folder_of("upper"),
        folder_of("work")
    );
    let options = CString::new(options)?;
    let null = std::ptr::null();
    let checked = |answer| if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: the calls concern the namespace of this thread; all strings outlive them.
    unsafe {
        checked(libc::unshare(libc::CLONE_NEWNS))?;
        let private = libc::MS_REC | libc::MS_PRIVATE;
        checked(libc::mount(null, root.as_ptr(), null, private, null.cast()))?;
        let kind = c"overlay".as_ptr();
        checked(libc::mount(kind, merged.as_ptr(), kind, 0, options.as_ptr().cast()))?;
    }
    Ok(folder.join("merged"))
}

#[test]
fn holes_read_as_zeros() {
    let folder = Folder::on_disk();
    let path = folder.0.join("sparse");
    let sparse = File::create(&path).expect("a file");
    sparse.set_len(400_000).expect("its length");
    sparse.write_all_at(b"12345", 200_001).expect("written");
    let mut expected = vec![0; 400_000];
    expected[200_001..200_006].copy_from_slice(b"12345");
    let file = File::open(&path).expect("opened").into();
    let mut reader = Reader::new(BLOCK_BYTES);
    for part in [FileRange { offset: 0, length: 400_000 }, FileRange { offset: 199_999, length: 4 }] {
        forget(&sparse);
        let range = part.offset as usize..part.offset as usize + part.length;
        for (way, read) in by_each_way(&mut reader, &file, part) {
            assert!(read.is_none_or(|read| read == expected[range.clone()]), "{way:?}: {part:?}");
        }
    }
}

#[test]
fn no_page_is_left_in_the_page_cache() {
    let folder = Folder::on_disk();
    let file = cold_file(&folder.0, &pattern(1_000_000));
    match resident(&file, 0, 1) {
        Ok(false) => {}
        other => {
            return crate::skipping::skip(&format!(
                "this kernel or file system does not report residency, or does not evict: {other:?}"
            ));
        }
    }
    let mut reader = Reader::new(BLOCK_BYTES);
    let (part, flags) =
        (FileRange { offset: 4096, length: 300_001 }, fs::fcntl_getfl(&file).expect("its flags"));
    let held =
        |file: &OwnedFd| (0..245).filter(|n| resident(file, n * PAGE_BYTES, 1).expect("an answer")).count();
    if reader.read_direct(&Source::Shared(&file), flags, part).expect("read").is_some() {
        assert_eq!(held(&file), 0, "direct");
    } else {
        crate::skipping::skip("in part: no direct reads here");
    }
    // A page that is in use for a moment stays, and goes the next time.
    let mut left = (0..10).map(|_| {
        reader.read_and_forget(&file, part).expect("read");
        held(&file)
    });
    assert!(left.any(|pages| pages == 0), "dropped");
    if reader.read_dont_cache(&file, part).expect("read").is_some() {
        // The kernel drops pages at best effort: a page that is in use for a moment stays.
        println!("{} of 74 pages were left by RWF_DONTCACHE", held(&file));
    } else {
        crate::skipping::skip("in part: no RWF_DONTCACHE here");
    }
}

#[test]
fn pages_in_the_page_cache_are_used_and_stay() {
    let folder = Folder::on_disk();
    let bytes = pattern(100_000);
    let file = cold_file(&folder.0, &bytes);
    if resident(&file, 0, 1).is_err() {
        return crate::skipping::skip("this kernel does not report residency");
    }
    let mut reader = Reader::new(BLOCK_BYTES);
    let warm =
        reader.read_until_end(&file, FileRange { offset: 0, length: 100_000 }, ReadWriteFlags::empty());
    assert_eq!(warm.expect("read"), Some(0..100_000));
    for _ in 0..2 {
        let block = reader.read(&Source::Shared(&file), 0, BLOCK_BYTES).expect("read");
        assert_eq!((block.way, block.bytes), (Way::Cached, &bytes[..]));
    }
}

#[test]
fn a_file_that_cannot_be_opened_again_can_still_be_read() {
    let folder = Folder::on_disk();
    let bytes = pattern(100_000);
    let file = cold_file(&folder.0, &bytes);
    let read = || {
        rustix::thread::set_no_new_privs(true).expect("no new privileges");
        // From now on this thread cannot open any file.
        let landlock = paths::restrict(&[]).expect("restricted");
        let mut reader = Reader::new(BLOCK_BYTES);
        let block = reader.read(&Source::Shared(&file), 0, BLOCK_BYTES).expect("read");
        assert!(block.bytes == bytes, "by {:?}", block.way);
        match landlock {
            Some(_) => assert!(matches!(block.way, Way::DontCache | Way::Dropped), "{:?}", block.way),
            None => crate::skipping::skip("in part: this kernel has no Landlock"),
        }
    };
    std::thread::scope(|scope| scope.spawn(read).join().expect("read"));
}

#[test]
fn a_part_beyond_the_end_of_a_cut_file_is_short() {
    let folder = Folder::on_disk();
    let bytes = pattern(5_000);
    let file = cold_file(&folder.0, &bytes);
    let flags = fs::fcntl_getfl(&file).expect("its flags");
    let mut reader = Reader::new(BLOCK_BYTES);
    // As if the file had been cut after its length was read.
    for part in [FileRange { offset: 1_000, length: 300_000 }, FileRange { offset: 300_000, length: 300_000 }]
    {
        let expected = &bytes[bytes.len().min(part.offset as usize)..];
        if let Some(range) = reader.read_direct(&Source::Shared(&file), flags, part).expect("read") {
            assert_eq!(reader.block(range, Way::Direct).bytes, expected);
        }
        let range = reader.read_and_forget(&file, part).expect("read");
        assert_eq!(reader.block(range, Way::Dropped).bytes, expected);
    }
}

#[test]
fn files_without_a_length_are_read_and_special_files_are_not() {
    let mut reader = Reader::new(BLOCK_BYTES);
    let place =
        |path: &str| fs::open(path, OFlags::PATH | OFlags::CLOEXEC, fs::Mode::empty()).expect("a place");
    let block = reader.read(&Source::Own(place("/proc/version")), 0, 5).expect("read");
    assert_eq!(block.bytes, b"Linux");
    reader.read(&Source::Own(place("/proc/self")), 0, 5).expect_err("not a regular file");
    let file = File::open("/proc/version").expect("opened");
    assert_eq!(reader.read(&Source::Shared(&file), 2, 3).expect("read").bytes, b"nux");
    for (offset, length) in [(0, BLOCK_BYTES + 1), (u64::MAX - 100, 10)] {
        let refused = reader.read(&Source::Shared(&file), offset, length).expect_err("too much");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}
