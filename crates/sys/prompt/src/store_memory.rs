//! The store's file contents, mapped read-only: workers send hits from here.
//!
//! The contents are in one memory file. Helpers write it (`flash_waiting::store_file`), the keeper decides
//! which extent has which block, and [`super::table`] lists the extents for workers. The file is sparse and
//! much longer than the part in use, so that extents rarely have to move: its length costs addresses, not
//! memory.

use std::io;

use rustix::fd::AsFd;

use super::shared::{Access, SharedMemory};
use super::table::Extent;

/// The memory file of contents, mapped read-only. Several threads can use it.
///
/// # The contract
///
/// [`bytes`](Self::bytes) returns a plain slice of memory that other processes can write. It is sound only as
/// long as no process writes to an extent that a reader can use. No type can check that across processes, so
/// these rules must hold:
///
/// - Helpers write only to extents that no reader knows. An extent is added to the table after its last byte was
///   written, and by [`TableWriter::put`](super::table::TableWriter::put), which orders the two.
/// - The keeper reuses an extent, or returns its memory (by punching a hole into the file), only after it has
///   removed the extent from the table and every worker has released it.
/// - A worker takes extents only from the table, and drops every slice of an extent before it releases the
///   extent.
/// - The file cannot become shorter (F_SEAL_SHRINK, checked by [`map`](Self::map)).
///
/// A violation would send bytes of another file, but it would not cause a memory fault: pages that were never
/// written, or were returned, read as zeros. Reading such a page makes the kernel add a page of zeros to the
/// file, which counts as memory in use.
#[derive(Debug)]
pub struct StoreMemory {
    memory: SharedMemory,
}

impl StoreMemory {
    /// Maps the first `bytes` bytes of the file. No page is touched and no memory is reserved.
    ///
    /// In a process that locked its future memory (mlockall(2) with `MCL_FUTURE | MCL_ONFAULT`), pages are
    /// locked when they are first read, so they are not swapped out.
    ///
    /// Errors: `InvalidInput` for 0 bytes and for a file without F_SEAL_SHRINK; `ENOMEM` if the address space
    /// (`RLIMIT_AS`) or the locked memory (`RLIMIT_MEMLOCK`) is limited; others of mmap(2).
    pub fn map(fd: impl AsFd, bytes: u64) -> io::Result<Self> {
        Ok(Self { memory: SharedMemory::map(fd, bytes, Access::Read)? })
    }

    /// The bytes of an extent, under the contract above. None for an extent that ends beyond the mapping, or
    /// beyond the end of the file at the time it was mapped.
    #[inline]
    #[must_use]
    pub fn bytes(&self, extent: Extent) -> Option<&[u8]> {
        let start = self.memory.at(extent.offset, u64::from(extent.length))?;
        // SAFETY: `at` has checked that the file backs the range, whose mapping lives as long as `self`. By
        // the contract of this type, no process writes to it meanwhile.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), extent.length as usize) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::OwnedFd;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};

    const FILE_BYTES: u64 = 96 << 30;

    fn sealed(bytes: u64) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create(c"flash-test", flags).expect("a memory file");
        ftruncate(&file, bytes).expect("its length");
        fcntl_add_seals(&file, SealFlags::SHRINK).expect("sealed");
        file
    }

    fn extent(offset: u64, length: u32) -> Extent {
        Extent { offset, length }
    }

    #[test]
    fn written_bytes_are_visible_in_a_file_longer_than_memory() {
        let file = sealed(FILE_BYTES);
        let store = StoreMemory::map(&file, FILE_BYTES).expect("mapped");
        for offset in [0, 4_095, 1 << 20, FILE_BYTES - 5] {
            rustix::io::pwrite(&file, b"12345", offset).expect("written");
            assert_eq!(store.bytes(extent(offset, 5)), Some(&b"12345"[..]));
        }
        assert_eq!(store.bytes(extent(1 << 30, 3)), Some(&[0; 3][..]), "never written");
        let held = fstat(&file).expect("its state").st_blocks as u64 * 512;
        assert!(held < 32 << 20, "the file's length must cost no memory: {held} bytes");
    }

    #[test]
    fn no_place_beyond_the_mapping_or_the_file_is_read() {
        let file = sealed(10_000);
        let mapped_longer = StoreMemory::map(&file, 1 << 20).expect("mapped");
        let mapped_shorter = StoreMemory::map(&file, 5_000).expect("mapped");
        for (store, end) in [(&mapped_longer, 10_000), (&mapped_shorter, 5_000)] {
            assert_eq!(store.bytes(extent(end - 1, 1)), Some(&[0][..]));
            assert_eq!(store.bytes(extent(end, 0)), Some(&[][..]));
            for (offset, length) in
                [(end - 1, 2), (end, 1), (end + 1, 0), (0, u32::MAX), (u64::MAX, 1), (u64::MAX - 3, u32::MAX)]
            {
                assert_eq!(store.bytes(extent(offset, length)), None, "{length} bytes at {offset}");
            }
        }
        // The file grows, but bytes beyond its end at the time of the mapping are not read.
        ftruncate(&file, 1 << 20).expect("longer");
        assert_eq!(mapped_longer.bytes(extent(10_000, 1)), None);
    }

    #[test]
    fn a_file_that_can_become_shorter_is_not_mapped() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create(c"flash-test", flags).expect("a memory file");
        ftruncate(&file, 4_096).expect("its length");
        let refused = StoreMemory::map(&file, 4_096).expect_err("not sealed");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        let refused = StoreMemory::map(std::fs::File::open("/proc/version").expect("it"), 4_096);
        assert_eq!(refused.expect_err("not a memory file").kind(), io::ErrorKind::InvalidInput);
        StoreMemory::map(sealed(4_096), 0).expect_err("no bytes to map");
    }
}
