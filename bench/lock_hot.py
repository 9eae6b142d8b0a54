#!/usr/bin/env python3
"""Locks the files of the first directories of a file set in memory, until its input ends.

    lock_hot.py FOLDER DIRECTORIES

bench/interfere.py starts it outside of the server's memory cgroup: the page cache is charged to
who touches it first, so the server's limit does not push the hot files out. It prints one line
when all are locked.
"""

import ctypes
import mmap
import os
import resource
import sys


def lock(path):
    """Maps a file and locks its pages; gives the mapping, which must stay alive."""
    with open(path, "rb") as file:
        length = os.fstat(file.fileno()).st_size
        # Writable for ctypes, but private: what is mapped are the pages of the cache.
        mapping = mmap.mmap(file.fileno(), length, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    libc = ctypes.CDLL(None, use_errno=True)
    # mlock on a private writable mapping would copy each page (it populates for writing), so
    # make it read-only first: then the pages of the page cache themselves are locked.
    for call, arguments in ((libc.mprotect, (mmap.PROT_READ,)), (libc.mlock, ())):
        if call(ctypes.c_void_p(address), ctypes.c_size_t(length), *arguments) != 0:
            sys.exit(f"error: cannot lock {path} in memory: {os.strerror(ctypes.get_errno())}")
    return mapping


def main():
    """Locks, says so, waits."""
    if len(sys.argv) != 3 or not sys.argv[2].isdigit():
        sys.exit(__doc__)
    folder, directories = sys.argv[1], int(sys.argv[2])
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (ValueError, OSError):
        pass  # What is allowed may be enough.
    kept, locked_bytes = [], 0
    for number in range(directories):
        directory = os.path.join(folder, f"dir{number:05}")
        for name in sorted(os.listdir(directory)):
            path = os.path.join(directory, name)
            kept.append(lock(path))
            locked_bytes += os.path.getsize(path)
    print(f"locked {locked_bytes} bytes in {len(kept)} files", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
