//! Files mapped into memory to be sent from there, and which of their mappings are kept: the paper's
//! mapped file cache (Flash 1999, section 5.4).
//!
//! For a worker that was told to send so. Nothing here looks at a mapping: its address is only ever
//! given to the kernel, which answers `EFAULT` where a file has become shorter; reading from it would be
//! a SIGBUS. mincore(2) is asked before each use, but a page may be evicted between the question and
//! the call, which then waits.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use libc::c_void;
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munlock, munmap};
use rustix::param::page_size;

use super::file::tells_residency;
use super::sendfile::Sent;

/// Bytes mapped at once, at most. They are addresses, and at most 2 MiB of page tables; what of them is
/// in memory is the page cache's.
pub const MAPPED_BYTES_MAX: u64 = 1 << 30;

/// A part of one state of a file.
#[derive(Clone, Copy, Debug)]
pub struct MappedPart {
    /// Which state: the number stands for no other one, of no other file.
    pub version: u64,
    /// How long the whole file is.
    pub size_bytes: u64,
    /// Where the part begins.
    pub offset: u64,
    /// How long it is; it ends within the file and within its chunk.
    pub length: usize,
}

/// Chunks of files that are mapped, those used last at the end of a list; when there are too many, or
/// they are too long together, the first are unmapped. Only for the time of a call is any of them in use.
#[derive(Debug)]
pub struct Mappings<F> {
    chunks: HashMap<Place, Chunk<F>>,
    by_use: BTreeMap<u64, Place>,
    uses: u64,
    bytes: u64,
    chunk_bytes: u64,
    bytes_max: u64,
    chunks_max: usize,
    /// A byte for each page, as mincore(2) wants it.
    pages: Vec<u8>,
}

/// A version and the number of a chunk in it.
type Place = (u64, u64);

#[derive(Debug)]
struct Chunk<F> {
    mapping: Mapping,
    used: u64,
    /// Dropped after the mapping, which would otherwise be the last to let go of a deleted file: that
    /// waits.
    _file: Arc<F>,
}

impl<F: AsFd> Mappings<F> {
    /// None yet; at most `chunks_max` of them, each of `chunk_bytes`, a multiple of the size of a page,
    /// and together of [`MAPPED_BYTES_MAX`].
    pub fn new(chunk_bytes: u64, chunks_max: usize) -> Self {
        Self::bounded(chunk_bytes, chunks_max, MAPPED_BYTES_MAX)
    }

    fn bounded(chunk_bytes: u64, chunks_max: usize, bytes_max: u64) -> Self {
        assert!(chunk_bytes.is_multiple_of(page_size() as u64), "chunks are of whole pages");
        Self {
            chunks: HashMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            bytes: 0,
            chunk_bytes,
            bytes_max,
            chunks_max,
            pages: Vec::new(),
        }
    }

    /// Sends `head`, then what is in memory of `part`, as far as it is there without a gap.
    ///
    /// Errors: those of the socket; `WouldBlock` when it has no room.
    pub fn send(
        &mut self,
        socket: impl AsFd,
        head: &[u8],
        file: &Arc<F>,
        part: MappedPart,
    ) -> io::Result<Sent> {
        let place = (part.version, part.offset / self.chunk_bytes);
        if self.chunks.contains_key(&place) {
            self.touch(place);
        } else if self.map(place, file, part.size_bytes).is_err() {
            return Ok(Sent::Unknown);
        }
        let Some(chunk) = self.chunks.get(&place) else { return Ok(Sent::Unknown) };
        let start = (part.offset % self.chunk_bytes) as usize;
        match chunk.mapping.resident_bytes(start, part.length, &mut self.pages) {
            Ok(0) => Ok(Sent::Absent),
            Ok(length) => chunk.mapping.send(socket, head, start, length),
            Err(_) => Ok(Sent::Unknown),
        }
    }

    fn touch(&mut self, place: Place) {
        let Some(chunk) = self.chunks.get_mut(&place) else { return };
        self.uses += 1;
        self.by_use.remove(&std::mem::replace(&mut chunk.used, self.uses));
        self.by_use.insert(self.uses, place);
    }

    fn map(&mut self, place: Place, file: &Arc<F>, size_bytes: u64) -> io::Result<()> {
        // mincore says of a file of another owner that all of it is in memory.
        tells_residency(&**file)?;
        let offset = place.1 * self.chunk_bytes;
        let length = size_bytes.saturating_sub(offset).min(self.chunk_bytes);
        while !self.chunks.is_empty()
            && (self.chunks.len() >= self.chunks_max || self.bytes + length > self.bytes_max)
        {
            self.unmap_oldest();
        }
        let mapping = Mapping::of(&**file, offset, length as usize)?;
        self.uses += 1;
        self.bytes += length;
        self.by_use.insert(self.uses, place);
        self.chunks.insert(place, Chunk { mapping, used: self.uses, _file: Arc::clone(file) });
        Ok(())
    }

    fn unmap_oldest(&mut self) {
        let Some((_, place)) = self.by_use.pop_first() else { return };
        if let Some(chunk) = self.chunks.remove(&place) {
            self.bytes -= chunk.mapping.length as u64;
        }
    }
}

/// A part of a file, mapped for reading.
#[derive(Debug)]
struct Mapping {
    address: NonNull<c_void>,
    length: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, and nobody reads or writes through it.
unsafe impl Send for Mapping {}

impl Mapping {
    fn of(file: impl AsFd, offset: u64, length: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses where, so nothing that is in use is replaced.
        let address =
            unsafe { mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, &file, offset)? };
        let address = NonNull::new(address).ok_or(Errno::NOMEM)?;
        let mapping = Self { address, length };
        // SAFETY: both concern this mapping alone, of which nothing has been touched yet.
        unsafe {
            // A worker locks what it maps (mlockall); these pages are the page cache's to evict.
            munlock(address.as_ptr(), length)?;
            // A fault reads no more than its page.
            madvise(address.as_ptr(), length, Advice::Random)?;
        }
        Ok(mapping)
    }

    /// How many of `length` bytes from `start` on are in memory, without a gap.
    fn resident_bytes(&self, start: usize, length: usize, pages: &mut Vec<u8>) -> io::Result<usize> {
        assert!(start + length <= self.length, "a part beyond its chunk");
        let page_bytes = page_size();
        let before = start % page_bytes;
        pages.clear();
        pages.resize((before + length).div_ceil(page_bytes), 0);
        // SAFETY: the range lies in the mapping, and there is a byte for each page of it.
        let answer = unsafe {
            let first = self.address.as_ptr().byte_add(start - before);
            libc::mincore(first, before + length, pages.as_mut_ptr())
        };
        if answer != 0 {
            return Err(io::Error::last_os_error());
        }
        let there = pages.iter().take_while(|page| **page & 1 == 1).count();
        Ok((there * page_bytes).saturating_sub(before).min(length))
    }

    /// Sends `head`, then `length` bytes from `start` on.
    fn send(&self, socket: impl AsFd, head: &[u8], start: usize, length: usize) -> io::Result<Sent> {
        assert!(start + length <= self.length, "a part beyond its chunk");
        let offered = head.len() + length;
        let mut sent = 0;
        // Short of all, only the next call tells a full socket from a file that has become shorter.
        while sent < offered {
            let of_head = sent.min(head.len());
            let of_part = sent - of_head;
            let head = &head[of_head..];
            // SAFETY: within the mapping, as asserted above.
            let part = unsafe { self.address.as_ptr().byte_add(start + of_part) };
            let mut parts = [
                libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() },
                libc::iovec { iov_base: part, iov_len: length - of_part },
            ];
            // SAFETY: a `msghdr` of zeros is an empty message; its parts outlive the call, which only
            // reads them, and of a mapping that is not backed any more says so.
            let answer = unsafe {
                let mut message: libc::msghdr = std::mem::zeroed();
                message.msg_iov = parts.as_mut_ptr();
                message.msg_iovlen = parts.len() as _;
                let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
                libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, flags)
            };
            if answer >= 0 {
                sent += answer as usize;
                continue;
            }
            let e = io::Error::last_os_error();
            match Errno::from_io_error(&e) {
                Some(Errno::INTR) => {}
                Some(Errno::FAULT) if sent == 0 => return Ok(Sent::Ended),
                Some(Errno::FAULT) => return Ok(Sent::Took { offered: sent, sent }),
                _ if sent > 0 => break,
                _ => return Err(e),
            }
        }
        Ok(Sent::Took { offered, sent })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing else knows of this mapping. It fails for no valid one.
        let _ = unsafe { munmap(self.address.as_ptr(), self.length) };
    }
}

#[cfg(test)]
#[path = "mapping_tests.rs"]
mod tests;
