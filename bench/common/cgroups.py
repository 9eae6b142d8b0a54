"""The testbed: bounded memory and a slow disk for some processes, by cgroups v1 or v2.

Only processes that join are bounded. `close` lifts the bounds and removes the groups, and is called
however a script ends.
"""

import os
import time

V1 = "/sys/fs/cgroup"


class Impossible(Exception):
    """This machine allows no such testbed; the text says why."""


def disk_of(path):
    """MAJ:MIN and the name of the whole disk that holds a path."""
    device = os.stat(path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    link = f"/sys/dev/block/{number}"
    if not os.path.exists(link):
        raise Impossible(f"{path} is not on a disk (device {number}): give a folder on a real one")
    place = os.path.realpath(link)
    if os.path.exists(os.path.join(place, "partition")):
        place = os.path.dirname(place)
    with open(os.path.join(place, "dev")) as file:
        return file.read().strip(), os.path.basename(place)


def disk_reads(name):
    """Reads that reached a disk so far, by anyone: the completed ones and those merged into them.

    The counts of cgroup v1 can't tell: they are of reads asked for, which may still be held back.
    """
    fields = _read(f"/sys/class/block/{name}/stat").split()
    return int(fields[0]) + int(fields[1])


def _write(path, text):
    with open(path, "w") as file:
        file.write(text)


def _read(path):
    with open(path) as file:
        return file.read()


class Group:
    """One cgroup folder."""

    def __init__(self, folder):
        self.folder = folder
        os.mkdir(folder)

    def join(self):
        """Moves the calling process into it."""
        self.set("cgroup.procs", str(os.getpid()))

    def set(self, name, text):
        """Writes one of its files."""
        _write(os.path.join(self.folder, name), text)

    def get(self, name):
        """Reads one of its files."""
        return _read(os.path.join(self.folder, name))

    def remove(self, patience_s=10.0):
        """Removes it once its processes are gone."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                os.rmdir(self.folder)
                return
            except FileNotFoundError:
                return
            except OSError as why:
                if time.monotonic() > deadline:
                    print(f"warning: cannot remove {self.folder}: {why}", flush=True)
                    return
                time.sleep(0.1)


class Testbed:
    """Bounded memory and a bounded disk. Made by `make`."""

    def __init__(self, disk, memory_bytes):
        # The number is what cgroups know a disk by, the name what its counters are under.
        (self.disk, self.disk_name), self.memory_bytes, self.groups = disk, memory_bytes, []

    def add(self, folder):
        """Makes a group that `close` removes."""
        group = Group(folder)
        self.groups.append(group)
        return group

    def close(self):
        """Lifts the bound of the disk and removes the groups."""
        if not self.groups:
            return
        try:
            self.throttle(0)
        except OSError as why:
            print(f"warning: cannot lift the bound of the disk: {why}", flush=True)
        while self.groups:
            self.groups.pop().remove()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class TestbedV1(Testbed):
    """With the controllers `memory` and `blkio` of cgroup v1."""

    version = 1

    def make(self, name):
        """Makes the groups."""
        self.memory = self.add(f"{V1}/memory/{name}")
        self.blkio = self.add(f"{V1}/blkio/{name}")
        self.memory.set("memory.limit_in_bytes", str(self.memory_bytes))

    def throttle(self, reads_per_s):
        """Holds the disk to so many reads a second; 0 lifts it."""
        self.blkio.set("blkio.throttle.read_iops_device", f"{self.disk} {reads_per_s}")

    def memory_used(self):
        """Bytes in use, page cache included."""
        return int(self.memory.get("memory.usage_in_bytes"))

    def reads(self):
        """Reads of the disk so far, and their bytes."""
        files = ("blkio.throttle.io_serviced", "blkio.throttle.io_service_bytes")
        return tuple(self.counted(name, f"{self.disk} Read ") for name in files)

    def counted(self, name, start):
        """The number on the line of a file that begins so; 0 when there is none yet."""
        return next((int(line.split()[2]) for line in self.blkio.get(name).splitlines() if line.startswith(start)), 0)

    def anonymous(self):
        """Bytes that the processes hold and that are no page cache."""
        return int(dict(line.split() for line in self.memory.get("memory.stat").splitlines())["total_rss"])


class TestbedV2(Testbed):
    """With the controllers `memory` and `io` of cgroup v2."""

    version = 2

    def __init__(self, disk, memory_bytes, mount):
        super().__init__(disk, memory_bytes)
        self.mount = mount

    def make(self, name):
        """Makes the group."""
        _write(f"{self.mount}/cgroup.subtree_control", "+memory +io")
        self.group = self.add(f"{self.mount}/{name}")
        self.group.set("memory.max", str(self.memory_bytes))

    def throttle(self, reads_per_s):
        """Holds the disk to so many reads a second; 0 lifts it."""
        self.group.set("io.max", f"{self.disk} riops={reads_per_s or 'max'}")

    def memory_used(self):
        """Bytes in use, page cache included."""
        return int(self.group.get("memory.current"))

    def reads(self):
        """Reads of the disk so far, and their bytes."""
        lines = (line.split() for line in self.group.get("io.stat").splitlines())
        found = {words[0]: dict(word.split("=") for word in words[1:]) for words in lines}.get(self.disk, {})
        return int(found.get("rios", 0)), int(found.get("rbytes", 0))

    def anonymous(self):
        """Bytes that the processes hold and that are no page cache."""
        return int(dict(line.split() for line in self.group.get("memory.stat").splitlines())["anon"])


def make(name, path, memory_bytes):
    """A testbed for files at `path`, or Impossible."""
    if os.geteuid() != 0:
        raise Impossible("cgroups need root")
    disk = disk_of(path)
    if all(os.path.isdir(f"{V1}/{controller}") for controller in ("memory", "blkio")):
        testbed = TestbedV1(disk, memory_bytes)
    else:
        mounts = [f"{V1}/cgroup.controllers", f"{V1}/unified/cgroup.controllers"]
        for mount in filter(os.path.exists, mounts):
            if {"memory", "io"} <= set(_read(mount).split()):
                testbed = TestbedV2(disk, memory_bytes, os.path.dirname(mount))
                break
        else:
            raise Impossible("neither cgroup v1 (memory, blkio) nor v2 (memory, io) is mounted under /sys/fs/cgroup")
    try:
        testbed.make(name)
        testbed.throttle(0)
    except OSError as why:
        testbed.close()
        raise Impossible(f"this machine's cgroups refuse a bound of memory or disk: {why}") from why
    return testbed


def drop_page_cache():
    """Writes back what is dirty and forgets what is clean and not locked."""
    os.sync()
    _write("/proc/sys/vm/drop_caches", "3")
