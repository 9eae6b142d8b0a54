//! A complete mapping of a memory file (memfd) that is shared with other processes. Used by [`super::table`]
//! and [`super::store_memory`].

use std::io;
use std::ptr::NonNull;

use libc::c_void;
use rustix::fd::AsFd;
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

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
    address: NonNull<c_void>,
    length: usize,
    /// The length of the file when it was mapped; at most the length of the mapping.
    backed_bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; the address and both lengths never change.
unsafe impl Send for SharedMemory {}
// SAFETY: as above. Code that reads or writes through the address is responsible for the ordering.
unsafe impl Sync for SharedMemory {}

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
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses the address, so no mapping in use is replaced.
        let address = unsafe { mmap(std::ptr::null_mut(), length, rights, flags, &file, 0)? };
        let address = NonNull::new(address).ok_or(Errno::NOMEM)?;
        let memory = Self { address, length, backed_bytes: backed as usize };
        // A core dump would contain the contents of all files. If the advice is refused, it does.
        // SAFETY: the advice concerns only this mapping and changes no memory.
        let _ = unsafe { madvise(address.as_ptr(), length, Advice::LinuxDontDump) };
        Ok(memory)
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
        Some(unsafe { self.address.cast::<u8>().add(offset as usize) })
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: every borrow from the mapping borrowed this value. Unmapping a valid mapping cannot fail.
        let _ = unsafe { munmap(self.address.as_ptr(), self.length) };
    }
}
