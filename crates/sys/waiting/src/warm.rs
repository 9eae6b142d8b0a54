//! Brings a file into memory by its name, for the warm endpoint of `flash backend`: called by helpers. It opens
//! no file outside the given directories.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{self, CWD, Dir, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use flash_prompt::file::FileKind;

use crate::file::{TO_READ, load, open_again, stat};

/// Opens the absolute `path` as a server would, and loads a part of its content: `part` gives the offset and the length in a
/// file of some size. For a directory it reads up to
/// `entries_max` entries and does the same with the file `index` in it.
///
/// Symbolic links are followed, but the file must be beneath one of `roots` in the end; nothing else is opened,
/// except as a place (`O_PATH`). Devices, sockets and FIFOs are not opened.
///
/// Errors: any of openat2(2), getdents64(2) and pread(2), with a loop of symlinks as `ELOOP`; `EXDEV` for a file
/// outside the roots, or if /proc does not tell where it is.
pub fn warm(
    path: &Path,
    part: &dyn Fn(u64) -> (u64, u64),
    roots: &[PathBuf],
    index: &str,
    entries_max: usize,
) -> io::Result<()> {
    let place = open_place(CWD, path)?;
    check_beneath(&place, roots)?;
    match stat(&place)?.kind {
        FileKind::File => load_part(&place, part),
        FileKind::Directory => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            for entry in Dir::read_from(open_again(&place, flags)?)?.take(entries_max) {
                entry?;
            }
            match open_place(&place, Path::new(index)) {
                Ok(file) => {
                    check_beneath(&file, roots)?;
                    if stat(&file)?.kind == FileKind::File { load_part(&file, part) } else { Ok(()) }
                }
                Err(Errno::NOENT) => Ok(()),
                Err(e) => Err(e.into()),
            }
        }
        FileKind::Special => Ok(()),
    }
}

fn open_place(folder: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    fs::openat2(folder, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
}

/// The place must be one of `roots` or beneath it. A root is looked up each time, because it can be a link that
/// is switched to another directory.
fn check_beneath(place: &OwnedFd, roots: &[PathBuf]) -> io::Result<()> {
    let real = real_path(place)?;
    for root in roots {
        if let Ok(root) = open_place(CWD, root)
            && real.starts_with(real_path(&root)?)
        {
            return Ok(());
        }
    }
    Err(Errno::XDEV.into())
}

/// The path of an open file, without links. A file that was deleted meanwhile has the ending ` (deleted)`.
fn real_path(place: &OwnedFd) -> io::Result<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let link = format!("/proc/self/fd/{}", place.as_raw_fd());
    let path = fs::readlinkat(CWD, link, Vec::new()).map_err(|_| Errno::XDEV)?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(path.into_bytes())))
}

/// The kernel checks the rights, reads extended attributes and loads the first blocks of the file's map only
/// when it is opened for reading.
fn load_part(place: &OwnedFd, part: &dyn Fn(u64) -> (u64, u64)) -> io::Result<()> {
    let file = open_again(place, TO_READ)?;
    let (offset, length_bytes) = part(stat(&file)?.size_bytes);
    load(&file, offset, length_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flash_prompt::file::resident;

    const WHOLE: (u64, u64) = (0, 10_000);

    fn number(result: io::Result<()>) -> Option<Errno> {
        result.err().map(|e| Errno::from_io_error(&e).expect("an error of the kernel"))
    }

    #[test]
    fn files_beneath_the_roots_are_loaded_and_others_are_not_opened() {
        let temporary = tempfile::tempdir().expect("a folder");
        let folder = temporary.path();
        std::fs::create_dir_all(folder.join("www/sub")).expect("a folder");
        std::fs::create_dir_all(folder.join("other")).expect("a folder");
        for name in ["www/a", "www/sub/index.html", "other/a", "www2"] {
            std::fs::write(folder.join(name), [b'x'; 10_000]).expect("a file");
        }
        let absolute = folder.join("www/sub");
        for (name, target) in [
            ("www/out", "../other/a"),
            ("www/absolute", absolute.to_str().expect("text")),
            ("www/loop", "loop"),
            ("current", "www"),
        ] {
            std::os::unix::fs::symlink(target, folder.join(name)).expect("a link");
        }
        let roots = [folder.join("none"), folder.join("current")];
        let warmed = |name: &str, part| number(warm(&folder.join(name), &|_| part, &roots, "index.html", 10));
        for name in ["www/a", "current/a", "www/absolute/index.html", "www/sub/", "www/sub", "www", "www/"] {
            assert_eq!(warmed(name, WHOLE), None, "{name}");
        }
        for (name, expected) in [
            ("www/out", Errno::XDEV),
            ("other/a", Errno::XDEV),
            ("www2", Errno::XDEV),
            ("www/../other/a", Errno::XDEV),
            (".", Errno::XDEV),
            ("www/none", Errno::NOENT),
            ("www/a/b", Errno::NOTDIR),
            ("www/loop", Errno::LOOP),
        ] {
            assert_eq!(warmed(name, WHOLE), Some(expected), "{name}");
        }
        for part in [(9_999, 1), (u64::MAX, 0), (0, 0), (10_000, 0)] {
            assert_eq!(warmed("www/a", part), None, "{part:?}");
        }
        let file = std::fs::File::open(folder.join("www/sub/index.html")).expect("the file");
        assert!(resident(&file, 0, 10_000).unwrap_or(true));
    }
}
