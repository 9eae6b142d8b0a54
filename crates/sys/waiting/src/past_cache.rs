//! Reads blocks of files without leaving them in the page cache, if possible with one disk read per block.
//! Helpers fill the store this way, because a block that also stayed in the page cache would be in memory
//! twice.
//!
//! There are four ways, tried in this order ([`Way`]). The file system, the kernel and the rights of the
//! process decide which of them work; the bytes are the same.

use std::io::{self, IoSliceMut};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, Advice, AtFlags, OFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

use flash_prompt::file::resident;

use super::file::{TO_READ, open_again, open_place, stat};

/// How a block was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// From the page cache: all of it was there or already being read.
    Cached,
    /// From the disk into the reader's memory (`O_DIRECT`).
    Direct,
    /// Through the page cache, from which the kernel dropped it at once (`RWF_DONTCACHE`, Linux 6.14).
    DontCache,
    /// Through the page cache, followed by the advice to drop it (`POSIX_FADV_DONTNEED`).
    Dropped,
}

/// A block of a file, in the memory of the [`Reader`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<'memory> {
    /// Its bytes; fewer than requested only at the end of the file.
    pub bytes: &'memory [u8],
    /// How they were read.
    pub way: Way,
}

/// A file to read.
#[derive(Clone, Copy, Debug)]
pub enum Source<F> {
    /// This process has opened it, and nobody else uses the same description.
    Own(F),
    /// Any other.
    Shared(F),
}

impl<F: AsFd> AsFd for Source<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let (Source::Own(file) | Source::Shared(file)) = self;
        file.as_fd()
    }
}

/// Memory for one block at a time. Each helper has one.
#[derive(Debug)]
pub struct Reader {
    memory: Vec<u8>,
    /// Offset of the first page in `memory`.
    start: usize,
    bytes_max: usize,
}

/// The unit of the page cache, and the alignment of the reader's memory. On machines with larger pages this
/// is a part of a page, and a page that was only partly read is not dropped.
const PAGE_BYTES: u64 = 4096;

/// File systems whose direct reads need a larger alignment than this are read in another way.
const ALIGNMENT_MAX_BYTES: u64 = 64 * 1024;

/// Since Linux 6.14; rustix has no name for it.
const DONT_CACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// The part to read.
#[derive(Clone, Copy, Debug)]
struct FileRange {
    offset: u64,
    length: usize,
}

/// The range of the reader's memory (counted from its first page) that has the bytes of a part. None if this
/// way does not work.
type Filled = Option<std::ops::Range<usize>>;

impl Reader {
    /// Makes a reader for blocks of up to `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        // A direct read begins and ends up to one alignment outside the block. Memory that is never written
        // costs nothing.
        let memory = vec![0; bytes_max + 2 * ALIGNMENT_MAX_BYTES as usize + PAGE_BYTES as usize];
        let start = memory.as_ptr().align_offset(PAGE_BYTES as usize);
        // `align_offset` is allowed to fail in theory. Then direct reads are refused, and the other ways
        // work.
        let start = if start < PAGE_BYTES as usize { start } else { 0 };
        Self { memory, start, bytes_max }
    }

    /// Reads up to `length` bytes at `offset`. Stops early only at the end of the file, and requests no byte
    /// beyond the known length of a regular file. A file opened with `O_PATH` is opened again, as
    /// [`read`](super::file::read) does.
    ///
    /// The access time changes as the descriptor and the mount demand. A descriptor that is read through the
    /// page cache is marked `POSIX_FADV_RANDOM`.
    ///
    /// Errors: `InvalidInput` for more than `bytes_max` bytes; any of pread(2); for an `O_PATH` descriptor
    /// those of openat(2), and `EINVAL` if it is no longer a regular file.
    pub fn read(&mut self, file: &Source<impl AsFd>, offset: u64, length: usize) -> io::Result<Block<'_>> {
        if length > self.bytes_max || offset.checked_add(length as u64 + ALIGNMENT_MAX_BYTES).is_none() {
            let what = format!("{length} bytes at {offset} do not fit a reader of {} bytes", self.bytes_max);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let flags = fs::fcntl_getfl(file)?;
        let size_bytes = stat(file)?.size_bytes;
        // A file of /proc has a length of 0 but does have content, so it is read until it ends.
        let length = match size_bytes.checked_sub(offset) {
            Some(rest) if rest > 0 => length.min(usize::try_from(rest).unwrap_or(length)),
            _ => length,
        };
        let part = FileRange { offset, length };
        let is_path_only = flags.contains(OFlags::PATH);
        if !is_path_only && let Some(range) = self.read_cached(file, part)? {
            return Ok(self.block(range, Way::Cached));
        }
        if let Some(range) = self.read_direct(file, flags, part)? {
            return Ok(self.block(range, Way::Direct));
        }
        if is_path_only {
            let file = open_place(file, OFlags::empty())?;
            return self.read_and_drop(file, part);
        }
        self.read_and_drop(file, part)
    }

    fn block(&self, range: std::ops::Range<usize>, way: Way) -> Block<'_> {
        Block { bytes: &self.memory[self.start..][range], way }
    }

    /// Reads from the page cache, if the kernel reports that all of it is there.
    fn read_cached(&mut self, file: impl AsFd, part: FileRange) -> io::Result<Filled> {
        // A page that is still being read counts too: waiting for it is one disk read less than reading it
        // again. If the kernel does not report residency, the other ways are used.
        if part.length == 0 || !resident(&file, part.offset, part.length).unwrap_or(false) {
            return Ok(None);
        }
        self.read_until_end(file, part, ReadWriteFlags::empty())
    }

    /// Reads from the disk into this memory.
    fn read_direct(
        &mut self,
        file: &Source<impl AsFd>,
        flags: OFlags,
        part: FileRange,
    ) -> io::Result<Filled> {
        let Some(alignment) = direct_alignment(file) else { return Ok(None) };
        // Fails without /proc, under Landlock, after a change of the file's mode, or on a file system without
        // direct reads.
        let Ok(direct) = Direct::of(file, flags) else { return Ok(None) };
        self.read_aligned(&direct, alignment, part)
    }

    /// Reads all aligned units that a part touches.
    fn read_aligned(&mut self, direct: &impl AsFd, alignment: u64, part: FileRange) -> io::Result<Filled> {
        let before = (part.offset % alignment) as usize;
        let from = part.offset - before as u64;
        let end = before + part.length;
        let whole = end.next_multiple_of(alignment as usize);
        let memory = &mut self.memory[self.start..][..whole];
        let mut done = 0;
        while done < end {
            match rustix::io::pread(direct, &mut memory[done..], from + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => continue,
                // The file was opened but cannot be read this way.
                Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(None),
                Err(e) => return Err(e.into()),
            }
            if !(done as u64).is_multiple_of(alignment) {
                // Only the end of the file has such an odd length.
                break;
            }
        }
        Ok(Some(before.min(done)..end.min(done)))
    }

    /// Reads through the page cache, and drops the pages again.
    fn read_and_drop(&mut self, file: impl AsFd, part: FileRange) -> io::Result<Block<'_>> {
        // With this advice the kernel reads exactly the requested part in one step; otherwise it reads in
        // steps of its readahead.
        let _ = fs::fadvise(&file, 0, None, Advice::Random);
        if let Some(range) = self.read_dont_cache(&file, part)? {
            return Ok(self.block(range, Way::DontCache));
        }
        let range = self.read_and_forget(&file, part)?;
        Ok(self.block(range, Way::Dropped))
    }

    /// With the flag that makes the kernel drop the pages that this read brought into the page cache.
    fn read_dont_cache(&mut self, file: impl AsFd, part: FileRange) -> io::Result<Filled> {
        self.read_until_end(file, part, DONT_CACHE)
    }

    /// An ordinary read, followed by the advice to drop the pages.
    fn read_and_forget(&mut self, file: impl AsFd, part: FileRange) -> io::Result<std::ops::Range<usize>> {
        let range = self.read_until_end(&file, part, ReadWriteFlags::empty())?.unwrap_or(0..0);
        // Only whole pages are dropped. Blocks begin at page boundaries, so no page belongs to a neighbour.
        let from = part.offset - part.offset % PAGE_BYTES;
        let to = (part.offset + part.length as u64).next_multiple_of(PAGE_BYTES);
        // This is only advice: a page that another process maps or has written stays.
        let _ = fs::fadvise(&file, from, std::num::NonZeroU64::new(to - from), Advice::DontNeed);
        Ok(range)
    }

    /// Reads a part by preadv2(2) with `flags`; None if the kernel does not know them, or not for this file.
    fn read_until_end(
        &mut self,
        file: impl AsFd,
        part: FileRange,
        flags: ReadWriteFlags,
    ) -> io::Result<Filled> {
        let memory = &mut self.memory[self.start..][..part.length];
        let mut done = 0;
        while done < part.length {
            let at = part.offset + done as u64;
            let answer = if flags.is_empty() {
                rustix::io::pread(&file, &mut memory[done..], at)
            } else {
                rustix::io::preadv2(&file, &mut [IoSliceMut::new(&mut memory[done..])], at, flags)
            };
            match answer {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) if !flags.is_empty() => return Ok(None),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(Some(0..done))
    }
}

/// A file that is read directly, for as long as this exists.
enum Direct<'file> {
    /// Opened again: the flag is one of a description, which others may use.
    Again(OwnedFd),
    /// The description itself, and its flags without direct reads.
    Itself(BorrowedFd<'file>, OFlags),
}

impl<'file> Direct<'file> {
    /// `flags` are those of the file.
    ///
    /// Errors: of fcntl(2) or openat(2); `EINVAL` if the file system has no direct reads.
    fn of(file: &'file Source<impl AsFd>, flags: OFlags) -> io::Result<Self> {
        // The owner is the same, or the flag would not be set, so it is allowed here too.
        let more = OFlags::DIRECT | flags & OFlags::NOATIME;
        match file {
            _ if flags.contains(OFlags::PATH) => Ok(Self::Again(open_place(file, more)?)),
            Source::Own(file) => {
                let flags = flags & (OFlags::NONBLOCK | OFlags::NOATIME);
                fs::fcntl_setfl(file, flags | OFlags::DIRECT)?;
                Ok(Self::Itself(file.as_fd(), flags))
            }
            Source::Shared(file) => Ok(Self::Again(open_again(file, TO_READ | more)?)),
        }
    }
}

impl AsFd for Direct<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Again(file) => file.as_fd(),
            Self::Itself(file, _) => *file,
        }
    }
}

impl Drop for Direct<'_> {
    fn drop(&mut self) {
        if let Self::Itself(file, flags) = self {
            // Cannot fail: the flags were in force before.
            let _ = fs::fcntl_setfl(*file, *flags);
        }
    }
}

/// The alignment that the offset and the length of a direct read need. None if there are no direct reads, or
/// not into this reader's memory.
fn direct_alignment(file: impl AsFd) -> Option<u64> {
    // Returns only what the kernel knows, without asking a remote file system.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let known = fs::statx(file, c"", flags, StatxFlags::DIOALIGN).ok();
    let known = known.filter(|known| known.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    // Before Linux 6.1, and on file systems that do not report it: a page is enough for all of them, or they
    // refuse the read.
    let Some(known) = known else { return Some(PAGE_BYTES) };
    let (memory, offset) = (u64::from(known.stx_dio_mem_align), u64::from(known.stx_dio_offset_align));
    let is_possible = memory <= PAGE_BYTES && (1..=ALIGNMENT_MAX_BYTES).contains(&offset);
    // 0 means that there are no direct reads.
    (is_possible && memory > 0).then_some(offset)
}

#[cfg(test)]
#[path = "past_cache_tests.rs"]
mod tests;
