//! Mappings of files, each of which ends with the value that owns it.

use std::io;
use std::ptr::NonNull;

use libc::c_void;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::page_size;

use super::call::check;

/// The pages that one call of mincore(2) is asked for.
const PAGES_ASKED: usize = 256;

/// A mapping of a part of a file. Its address does not change until it is dropped, which unmaps it.
#[derive(Debug)]
pub struct Mapped {
    address: NonNull<c_void>,
    length: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, and its address and length never change.
unsafe impl Send for Mapped {}
// SAFETY: as above. Code that reads or writes through the address is responsible for the ordering.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps `length` bytes of a file from `offset` on, shared with all others who map it.
    ///
    /// Errors: `EINVAL` for 0 bytes; any of mmap(2).
    pub fn new(
        file: impl AsFd,
        offset: u64,
        length: usize,
        rights: ProtFlags,
        more: MapFlags,
    ) -> io::Result<Self> {
        let flags = MapFlags::SHARED | more;
        // SAFETY: the kernel chooses the address, so no mapping in use is replaced.
        let address = unsafe { mmap(std::ptr::null_mut(), length, rights, flags, &file, offset)? };
        Ok(Self { address: NonNull::new(address).ok_or(Errno::NOMEM)?, length })
    }

    /// The address of its first byte.
    #[inline]
    pub fn address(&self) -> NonNull<c_void> {
        self.address
    }

    /// Its length in bytes.
    #[inline]
    pub fn length(&self) -> usize {
        self.length
    }

    /// How many of its pages from `start` on are in memory, up to the first that is not, or is still being read, and at most
    /// those of `length` bytes. `start` is a multiple of the page size.
    ///
    /// Errors: any of mincore(2).
    pub fn pages_in_memory(&self, start: usize, length: usize) -> io::Result<usize> {
        assert!(start + length <= self.length, "the range ends beyond the mapping");
        let mut count = 0;
        for at in (start..start + length).step_by(PAGES_ASKED * page_size()) {
            let asked = (start + length - at).min(PAGES_ASKED * page_size());
            let mut pages = [0_u8; PAGES_ASKED];
            // SAFETY: the range lies in the mapping, and there is a byte for each of its pages.
            check(unsafe { libc::mincore(self.address.as_ptr().byte_add(at), asked, pages.as_mut_ptr()) })?;
            let pages = &pages[..asked.div_ceil(page_size())];
            let there = pages.iter().take_while(|page| **page & 1 == 1).count();
            count += there;
            if there < pages.len() {
                break;
            }
        }
        Ok(count)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and every borrow of its memory borrowed this value. Unmapping a valid
        // mapping cannot fail.
        let _ = unsafe { munmap(self.address.as_ptr(), self.length) };
    }
}
