//! The memory files of the store, for the processes that write them: the supervisor makes them and keeps them
//! open, helpers write file contents, and the keeper returns memory. Workers map them read-only
//! (`flash_prompt::store_memory`, `flash_prompt::table`).

use std::ffi::CStr;
use std::io;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::{Errno, retry_on_intr};

use super::file::open_again;

/// Makes a memory file of `bytes` bytes that is one hole: it costs no memory until it is written. `name` is
/// shown in /proc/PID/maps.
///
/// Its length is permanently fixed, so that no mapping of it can be cut (SIGBUS), and it cannot be executed
/// if the kernel can forbid that (Linux 6.3). Its mode is 0600: it belongs to the user of this process, and a
/// process of another user cannot reopen its read-only descriptor for writing.
pub fn create(name: &CStr, bytes: u64) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3, the flag is unknown.
        Err(Errno::INVAL) => fs::memfd_create(name, flags)?,
        other => other?,
    };
    fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    fs::ftruncate(&file, bytes)?;
    fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(file)
}

/// Opens a memory file again for reading only: no mapping of that descriptor can be made writable.
///
/// Errors: any of openat(2); `NotFound` without /proc.
pub fn read_only(fd: impl AsFd) -> io::Result<OwnedFd> {
    open_again(fd, OFlags::RDONLY)
}

/// Bytes of one write. A kernel that does not preempt system calls lets no other process have the core before the end of one, and 512 KiB
/// take up to 2 ms, in which a worker would wait (measured, 6.18 with `PREEMPT_NONE`).
const PART_BYTES: usize = 32 * 1024;

/// Writes all of `bytes` at `offset`, in parts.
///
/// Errors: any of pwrite(2): `ENOSPC` or `ENOMEM` if there is no memory, while a write through a mapping
/// would end the process (SIGBUS); `EPERM` beyond the end. A part may have been written.
pub fn write(fd: impl AsFd, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let part = &bytes[done..bytes.len().min(done + PART_BYTES)];
        match retry_on_intr(|| rustix::io::pwrite(&fd, part, offset + done as u64))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => done += count,
        }
    }
    Ok(())
}

/// Returns the memory of a part of the file to the system; it reads as zeros from now on. If the part covers
/// a page only partly, the covered bytes become zeros and the page stays in memory.
pub fn give_back(fd: impl AsFd, offset: u64, length_bytes: u64) -> io::Result<()> {
    if length_bytes == 0 {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(retry_on_intr(|| fs::fallocate(&fd, flags, offset, length_bytes))?)
}

/// Whether an error says that the file system cannot do this.
pub fn is_unsupported(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::OPNOTSUPP | Errno::NOSYS))
}

/// Cuts the file off: all room behind `length_bytes` returns to the system.
pub fn cut(fd: impl AsFd, length_bytes: u64) -> io::Result<()> {
    Ok(retry_on_intr(|| fs::ftruncate(&fd, length_bytes))?)
}

/// The length of the file in bytes.
pub fn length_bytes(fd: impl AsFd) -> io::Result<u64> {
    Ok(u64::try_from(fs::fstat(fd)?.st_size).unwrap_or(0))
}

/// The memory that the file holds in bytes, including swapped-out pages.
pub fn held_bytes(fd: impl AsFd) -> io::Result<u64> {
    Ok(u64::try_from(fs::fstat(fd)?.st_blocks).unwrap_or(0) * 512)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flash_prompt::names::FileState;
    use flash_prompt::store_memory::StoreMemory;
    use flash_prompt::table::{BlockKey, Extent, TableReader, TableWriter, file_bytes};

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_is_held_from_a_write_until_it_is_returned() {
        let file = create(c"flash-test", 64 << 30).expect("a memory file");
        assert_eq!(held_bytes(&file).expect("its state"), 0);
        let bytes: Vec<u8> = (0..MIB).map(|n| (n % 251) as u8).collect();
        let offset = (40 << 30) + 4096;
        write(&file, offset, &bytes).expect("written");
        let store = StoreMemory::map(read_only(&file).expect("opened"), 64 << 30).expect("mapped");
        assert_eq!(store.bytes(Extent { offset, length: MIB as u32 }), Some(&bytes[..]));
        let held = held_bytes(&file).expect("its state");
        assert!(held >= MIB, "{held}");
        give_back(&file, offset, 0).expect("nothing");
        assert_eq!(held_bytes(&file).expect("its state"), held);
        give_back(&file, offset, MIB / 2).expect("given back");
        assert!(held_bytes(&file).expect("its state") <= held - MIB / 2);
        let half = MIB as usize / 2;
        let place = |offset, length: usize| Extent { offset, length: length as u32 };
        assert_eq!(
            store.bytes(place(offset, half)),
            Some(&vec![0; half][..]),
            "a returned part reads as zeros"
        );
        assert_eq!(store.bytes(place(offset + MIB / 2, half)), Some(&bytes[half..]), "the other bytes stay");
    }

    #[test]
    fn a_file_is_cut_off() {
        let file = fs::memfd_create(c"flash-test", MemfdFlags::CLOEXEC).expect("a memory file");
        write(&file, 0, &[7; 2 << 20]).expect("written");
        cut(&file, MIB).expect("cut");
        assert_eq!(fs::fstat(&file).expect("its state").st_size as u64, MIB);
        assert!(held_bytes(&file).expect("its state") < 2 * MIB);
        for (number, is_it) in [(libc::EOPNOTSUPP, true), (libc::ENOSYS, true), (libc::EIO, false)] {
            assert_eq!(is_unsupported(&io::Error::from_raw_os_error(number)), is_it);
        }
    }

    #[test]
    fn the_length_is_fixed_and_a_reader_cannot_write() {
        let file = create(c"flash-test", MIB).expect("a memory file");
        for bytes in [MIB - 1, MIB + 1] {
            assert_eq!(fs::ftruncate(&file, bytes), Err(Errno::PERM), "{bytes}");
        }
        let refused = write(&file, MIB - 2, b"12345").expect_err("beyond the end");
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
        assert_eq!(fs::fstat(&file).expect("its state").st_mode & 0o777, 0o600);
        let reader = read_only(&file).expect("opened");
        assert_eq!(write(&reader, 0, b"1").expect_err("read-only").raw_os_error(), Some(libc::EBADF));
        give_back(&reader, 0, 4096).expect_err("read-only");
        assert!(TableWriter::create(&reader, 10).is_err());
        let flags = rustix::io::fcntl_getfd(&reader).expect("its flags");
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }

    #[test]
    fn a_table_can_be_made_in_a_file_of_the_right_length() {
        let file = create(c"flash-test", file_bytes(1000).expect("a length")).expect("a memory file");
        let mut writer = TableWriter::create(&file, 1000).expect("created");
        let reader = TableReader::map(read_only(&file).expect("opened")).expect("mapped");
        let file = FileState { device: 1, inode: 2, size_bytes: 3, modified_ns: 4, changed_ns: 5 };
        let key = BlockKey { file, block: 6 };
        let place = Extent { offset: 4096, length: 3 };
        writer.put(999, &key, place);
        assert_eq!(reader.find(&key), Some((999, place)));
    }
}
