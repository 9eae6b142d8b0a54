//! Sends files from memory mappings, and decides which mappings are kept: the paper's mapped file cache
//! (Flash 1999, section 5.4).
//!
//! Used by workers that are configured to send this way. Nothing here reads a mapping: its address is only
//! passed to the kernel, which returns `EFAULT` if the file has become shorter, while a read would cause a
//! SIGBUS. mincore(2) is called before each use, but a page can be evicted between the two calls, and then
//! the send blocks.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, munlock};
use rustix::param::page_size;

use super::file::reports_residency;
use super::mapped::Mapped;
use super::sendfile::Sent;

/// Maximum number of bytes mapped at once. They take address space and at most 2 MiB of page tables; the page
/// cache decides which of them are in memory.
pub const MAPPED_BYTES_MAX: u64 = 1 << 30;

/// A part of one state of a file.
#[derive(Clone, Copy, Debug)]
pub struct MappedPart {
    /// The number of the state; no other state of any file has it.
    pub version: u64,
    /// Length of the whole file in bytes.
    pub size_bytes: u64,
    /// Offset of the part in bytes.
    pub offset: u64,
    /// Length of the part in bytes. It ends within the file and within its chunk.
    pub length: usize,
}

/// Mapped chunks of files, in the order of their last use. If there are too many, or their total length is
/// too large, the chunks unused for longest are unmapped. A chunk is in use only during a call.
#[derive(Debug)]
pub struct Mappings<F> {
    chunks: HashMap<ChunkKey, Chunk<F>>,
    by_use: BTreeMap<u64, ChunkKey>,
    uses: u64,
    bytes: u64,
    chunk_bytes: u64,
    bytes_max: u64,
    chunks_max: usize,
}

/// A version and the number of a chunk in it.
type ChunkKey = (u64, u64);

#[derive(Debug)]
struct Chunk<F> {
    mapping: Mapping,
    used: u64,
    /// Dropped after the mapping, because otherwise unmapping could be the last reference to a deleted file,
    /// and that blocks.
    _file: Arc<F>,
}

impl<F: AsFd> Mappings<F> {
    /// Starts without mappings. Keeps at most `chunks_max` chunks of `chunk_bytes` each (a multiple of the
    /// page size), and at most [`MAPPED_BYTES_MAX`] in total.
    pub fn new(chunk_bytes: u64, chunks_max: usize) -> Self {
        Self::bounded(chunk_bytes, chunks_max, MAPPED_BYTES_MAX)
    }

    fn bounded(chunk_bytes: u64, chunks_max: usize, bytes_max: u64) -> Self {
        assert!(chunk_bytes.is_multiple_of(page_size() as u64), "chunks consist of whole pages");
        Self {
            chunks: HashMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            bytes: 0,
            chunk_bytes,
            bytes_max,
            chunks_max,
        }
    }

    /// Sends `head`, then `part` as far as it is in memory without a gap.
    ///
    /// Errors: any of the socket; `WouldBlock` if it has no room.
    pub fn send(
        &mut self,
        socket: impl AsFd,
        head: &[u8],
        file: &Arc<F>,
        part: MappedPart,
    ) -> io::Result<Sent> {
        let key = (part.version, part.offset / self.chunk_bytes);
        if self.chunks.contains_key(&key) {
            self.touch(key);
        } else if self.map(key, file, part.size_bytes).is_err() {
            return Ok(Sent::Unknown);
        }
        let Some(chunk) = self.chunks.get(&key) else { return Ok(Sent::Unknown) };
        let start = (part.offset % self.chunk_bytes) as usize;
        match chunk.mapping.resident_bytes(start, part.length) {
            Ok(0) => Ok(Sent::Absent),
            Ok(length) => chunk.mapping.send(socket, head, start, length),
            Err(_) => Ok(Sent::Unknown),
        }
    }

    fn touch(&mut self, key: ChunkKey) {
        let Some(chunk) = self.chunks.get_mut(&key) else { return };
        self.uses += 1;
        self.by_use.remove(&std::mem::replace(&mut chunk.used, self.uses));
        self.by_use.insert(self.uses, key);
    }

    fn map(&mut self, key: ChunkKey, file: &Arc<F>, size_bytes: u64) -> io::Result<()> {
        // For a file of another owner, mincore(2) reports all pages as resident.
        reports_residency(&**file)?;
        let offset = key.1 * self.chunk_bytes;
        let length = size_bytes.saturating_sub(offset).min(self.chunk_bytes);
        while !self.chunks.is_empty()
            && (self.chunks.len() >= self.chunks_max || self.bytes + length > self.bytes_max)
        {
            self.unmap_oldest();
        }
        let mapping = Mapping::of(&**file, offset, length as usize)?;
        self.uses += 1;
        self.bytes += length;
        self.by_use.insert(self.uses, key);
        self.chunks.insert(key, Chunk { mapping, used: self.uses, _file: Arc::clone(file) });
        Ok(())
    }

    fn unmap_oldest(&mut self) {
        let Some((_, key)) = self.by_use.pop_first() else { return };
        if let Some(chunk) = self.chunks.remove(&key) {
            self.bytes -= chunk.mapping.0.length() as u64;
        }
    }
}

/// A range of a file, mapped for reading. No code reads or writes through its address.
#[derive(Debug)]
struct Mapping(Mapped);

impl Mapping {
    fn of(file: impl AsFd, offset: u64, length: usize) -> io::Result<Self> {
        let mapped = Mapped::new(file, offset, length, ProtFlags::READ, MapFlags::empty())?;
        // SAFETY: both calls concern only this mapping, of which no page has been touched yet.
        unsafe {
            // A worker locks its memory (mlockall), but the page cache must be able to evict these pages.
            munlock(mapped.address().as_ptr(), length)?;
            // A page fault must read only its own page.
            madvise(mapped.address().as_ptr(), length, Advice::Random)?;
        }
        Ok(Self(mapped))
    }

    /// How many of `length` bytes from `start` on are in memory, up to the first gap.
    fn resident_bytes(&self, start: usize, length: usize) -> io::Result<usize> {
        let before = start % page_size();
        let pages = self.0.pages_in_memory(start - before, before + length)?;
        Ok((pages * page_size()).saturating_sub(before).min(length))
    }

    /// Sends `head`, then `length` bytes from `start` on.
    fn send(&self, socket: impl AsFd, head: &[u8], start: usize, length: usize) -> io::Result<Sent> {
        assert!(start + length <= self.0.length(), "the part ends beyond its chunk");
        let offered = head.len() + length;
        let mut sent = 0;
        // After a short send, only the next call can distinguish a full socket from a file that has become
        // shorter.
        while sent < offered {
            let of_head = sent.min(head.len());
            let of_part = sent - of_head;
            let head = &head[of_head..];
            // SAFETY: within the mapping, as asserted above.
            let part = unsafe { self.0.address().as_ptr().byte_add(start + of_part) };
            let mut parts = [
                libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() },
                libc::iovec { iov_base: part, iov_len: length - of_part },
            ];
            // SAFETY: a zeroed `msghdr` is an empty message. Its parts outlive the call, which only reads
            // them and reports an error if a page of the mapping has no file behind it any more.
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

#[cfg(test)]
#[path = "mapping_tests.rs"]
mod tests;
