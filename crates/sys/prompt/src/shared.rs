//! A complete mapping of a memory file (memfd) that is shared with other processes. Used by the tables and counts
//! of this crate and by [`super::store_memory`].

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use rustix::fd::AsFd;
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise};

use super::mapped::Mapped;

/// How a process uses a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read only.
    Read,
    /// Read and write.
    Write,
}

/// A mapping of the first bytes of a memory file. Its address does not change until it is dropped.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    mapped: Mapped,
    /// The length of the file when it was mapped; at most the length of the mapping.
    backed_bytes: usize,
}

impl SharedMemory {
    /// Maps `bytes` of `file`. This can be more than the machine has memory, because no page is touched.
    ///
    /// Errors: `InvalidInput` for 0 bytes, and for a file that can become shorter (F_SEAL_SHRINK is missing,
    /// or it is not a memory file), because every read beyond its new end would cause a SIGBUS; those of
    /// mmap(2).
    pub(crate) fn map(file: impl AsFd, bytes: u64, access: Access) -> io::Result<Self> {
        let seals = fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
        if !seals.contains(SealFlags::SHRINK) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "cannot map a file that can become shorter: it is not a memory file with F_SEAL_SHRINK",
            ));
        }
        let length = usize::try_from(bytes).map_err(|_| Errno::NOMEM)?;
        let backed = u64::try_from(fstat(&file)?.st_size).unwrap_or(0).min(bytes);
        let rights = match access {
            Access::Read => ProtFlags::READ,
            Access::Write => ProtFlags::READ | ProtFlags::WRITE,
        };
        let mapped = Mapped::new(file, 0, length, rights, MapFlags::NORESERVE)?;
        // A core dump would contain the contents of all files. If the advice is refused, it does.
        // SAFETY: the advice concerns only this mapping and changes no memory.
        let _ = unsafe { madvise(mapped.address().as_ptr(), length, Advice::LinuxDontDump) };
        Ok(Self { mapped, backed_bytes: backed as usize })
    }

    /// The number of bytes, from the start of the mapping, that the file permanently backs.
    #[inline]
    pub(crate) fn backed_bytes(&self) -> u64 {
        self.backed_bytes as u64
    }

    /// The address of `bytes` bytes at `offset`; None unless the file backs all of them.
    #[inline]
    pub(crate) fn at(&self, offset: u64, bytes: u64) -> Option<NonNull<u8>> {
        let end = offset.checked_add(bytes)?;
        if end > self.backed_bytes() {
            return None;
        }
        // SAFETY: the offset is within the mapping, as just checked.
        Some(unsafe { self.mapped.address().cast::<u8>().add(offset as usize) })
    }

    /// The word at a multiple of four bytes, of which all accesses must be atomic.
    #[inline]
    pub(crate) fn word(&self, offset: u64) -> Option<&AtomicU32> {
        let at = self.at(offset, size_of::<AtomicU32>() as u64).filter(|_| offset.is_multiple_of(4))?;
        // SAFETY: the file backs the word, which is aligned because the mapping is.
        Some(unsafe { at.cast().as_ref() })
    }
}

/// A memory file of zeros for a test, which cannot become shorter.
#[cfg(test)]
pub(crate) fn sealed_file(bytes: u64) -> crate::OwnedFd {
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    let file = memfd_create(c"test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a file");
    ftruncate(&file, bytes).expect("a length");
    fcntl_add_seals(&file, SealFlags::SHRINK).expect("a seal");
    file
}
