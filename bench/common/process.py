"""Processes: starting one in its place, its whole tree, its CPU time and memory, and its end.

Only processes that a script started are ever ended, by their ids.
"""

import os
import resource
import signal
import subprocess
import sys
import time

CLOCK_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def raise_descriptor_limit(wanted=131_072):
    """Lets this process and its children have many connections; as root beyond the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
            return
        except (ValueError, OSError):
            pass
    top = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, top), hard))


def clean_up_when_ended():
    """Lets a script that is terminated, or whose terminal goes away, end what it started."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(128 + number))


def drop_page_cache():
    """Has all files read from the disk again. Needs root."""
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")


def start(argv, core=None, env=None, log=None, **options):
    """Starts a program in a session of its own, pinned to a core from its first instruction; its children inherit
    the core."""

    def prepare():
        if core is not None:
            os.sched_setaffinity(0, {core})

    return subprocess.Popen(
        argv,
        preexec_fn=prepare,
        start_new_session=True,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=options.pop("stdout", log),
        stderr=options.pop("stderr", log),
        **options,
    )


def _stat(pid):
    """The fields of /proc/PID/stat after the name, or nothing when it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def tree(root):
    """The ids of a process and of all that descend from it."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _stat(name)):
            children.setdefault(int(fields[1]), []).append(int(name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        if _stat(pid):
            found.append(pid)
        todo.extend(children.get(pid, ()))
    return found


class CpuTime:
    """CPU time of each process of a tree so far, in nanoseconds by process id.

    `ns` is the sum of /proc/PID/task/*/schedstat where the kernel has it, else utime + stime of
    /proc/PID/stat. Threads that end between two readings are lost to the first; `ticks_ns`, by
    clock ticks, keeps them and is there to compare.
    """

    def __init__(self, root):
        pids = tree(root)
        self.ticks_ns = {pid: self._ticks(pid) * CLOCK_TICK_NS for pid in pids}
        if os.path.exists("/proc/self/schedstat"):
            self.source, self.ns = "schedstat", {pid: self._schedstat(pid) for pid in pids}
        else:
            self.source, self.ns = "stat", self.ticks_ns

    @staticmethod
    def _ticks(pid):
        fields = _stat(pid)
        return int(fields[11]) + int(fields[12]) if fields else 0

    @staticmethod
    def _schedstat(pid):
        total = 0
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/schedstat") as file:
                    total += int(file.read().split()[0])
        except OSError:
            pass  # It has just ended.
        return total


def user_and_system_s(root):
    """CPU time of a process and each of its descendants so far, in seconds, by process id: outside the kernel, and in it."""
    fields = {pid: found for pid in tree(root) if (found := _stat(pid))}
    return {pid: tuple(int(of[number]) * CLOCK_TICK_NS / 1e9 for number in (11, 12)) for pid, of in fields.items()}


def memory_group(pid):
    """The folder of the control group that pays for the memory of a process. Needs cgroup v1."""
    with open(f"/proc/{pid}/cgroup") as file:
        path = next(line.strip().split(":", 2)[2] for line in file if ":memory:" in line)
    return f"/sys/fs/cgroup/memory{path}"


def in_group_of(pid, do):
    """Does something in a child that the control group of this process pays for."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with open(f"{memory_group(pid)}/cgroup.procs", "w") as file:
                file.write(str(os.getpid()))
            do()
            code = 0
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1] != 0:
        raise RuntimeError("the child failed")


def group_memory_bytes(pid):
    """The memory of the control group of a process by kind. Needs cgroup v1."""
    folder = memory_group(pid)
    with open(f"{folder}/memory.stat") as file:
        parts = {name: int(value) for name, value in (line.split() for line in file)}
    with open(f"{folder}/memory.usage_in_bytes") as usage, open(f"{folder}/memory.kmem.usage_in_bytes") as kernel:
        return {"all": int(usage.read()), "processes": parts["total_rss"], "store": parts["total_shmem"],
                "page cache": parts["total_cache"] - parts["total_shmem"], "kernel": int(kernel.read())}


# A process that had this share of the tree's time and is gone has taken a part of the figure along.
GONE_SHARE_MAX = 0.02


def cpu_between(before, after):
    """Nanoseconds of CPU between two readings, and where they come from. When the two kinds of
    count disagree by more than rounding explains, threads have ended meanwhile: then the ticks
    count. None when a process that mattered has ended: there is no figure then."""
    gone_ns = sum(spent for pid, spent in before.ns.items() if pid not in after.ns)
    if gone_ns > GONE_SHARE_MAX * sum(before.ns.values()):
        return None, "a process of the server ended"
    spent = sum(total - before.ns.get(pid, 0) for pid, total in after.ns.items())
    by_ticks = sum(total - before.ticks_ns.get(pid, 0) for pid, total in after.ticks_ns.items())
    rounding = 2 * CLOCK_TICK_NS * len(after.ns)
    if abs(by_ticks - spent) > 0.03 * spent + rounding:
        return by_ticks, "stat"
    return spent, after.source


def stop(process, patience_s=5.0):
    """Ends a started process and what descends from it: asks first, then insists."""
    if process.poll() is not None and not tree(process.pid):
        return
    members = tree(process.pid)
    _signal([process.pid], signal.SIGTERM)
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if process.poll() is not None and not _alive(members, process.pid):
            return
        time.sleep(0.02)
    # Orphans of the session are included: their ids were taken while their parent lived.
    _signal(set(_alive(members, process.pid)) | set(tree(process.pid)), signal.SIGKILL)
    process.wait()


def _alive(pids, session):
    """Those of `pids` that still run, in the session that was started for them: an id that was
    given to another process since is not ours."""
    alive = []
    for pid in pids:
        fields = _stat(pid)
        if fields and int(fields[3]) == session and fields[0] != "Z":
            alive.append(pid)
    return alive


def _signal(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


class SlowDisk:
    """A control group of blkio in which reads of the disk of a path are slow. Needs root and cgroup v1.

    Unlike `flash testbed --reads`, it begins when it is entered, with processes that already run: what comes before is fast.
    """

    GROUPS = "/sys/fs/cgroup/blkio"

    def __init__(self, path, reads_per_s):
        self.folder = os.path.join(self.GROUPS, f"flash-bench-{os.getpid()}")
        device = os.stat(path).st_dev
        block = os.path.realpath(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
        # Only whole disks have bounds.
        disk = os.path.dirname(block) if os.path.exists(os.path.join(block, "partition")) else block
        with open(os.path.join(disk, "dev")) as file:
            self.bound = f"{file.read().strip()} {reads_per_s}"

    def __enter__(self):
        os.mkdir(self.folder)
        self._write("blkio.throttle.read_iops_device", self.bound)
        return self

    def join(self, root):
        """Takes a process and all that descends from it."""
        for pid in tree(root):
            self._write("cgroup.procs", str(pid))

    def __exit__(self, *_):
        # A group with processes cannot be removed.
        with open(os.path.join(self.folder, "cgroup.procs")) as file:
            left = file.read().split()
        for pid in left:
            with open(os.path.join(self.GROUPS, "cgroup.procs"), "w") as file:
                file.write(pid)
        os.rmdir(self.folder)

    def _write(self, name, text):
        with open(os.path.join(self.folder, name), "w") as file:
            file.write(text)
