#!/usr/bin/env python3
"""Storms of changes beneath a root that Flash serves and watches: renames, `git checkout` and `rsync --delete` of 100,000 files.
How late a change of one more file is seen by clients meanwhile, and how much slower hits are: beside a storm of the same kind
elsewhere, in files that nobody serves, and beside that of the root.

See bench/README.md.
"""

import argparse
import http.client
import os
import shutil
import subprocess
import threading
import time

from common import process, results, servers
from common.flash import (FIRST, LOAD_CORE, SERVER_CORE, fill_store, jobs_started, list_paths, load, start, stats, store_of,
                          write_files)

WHAT = ["rename", "git", "rsync"]
HOT = 1000
SIZE_BYTES = 2048
PROBES = [f"/probes/{number}" for number in range(25)]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--what", default=",".join(WHAT), help="which, by commas" + default)
    parser.add_argument("--changes", type=int, default=100_000, help="of a storm, each of another file" + default)
    parser.add_argument("--rate", type=int, default=1000, help="requests/s for files that do not change" + default)
    parser.add_argument("--seconds", type=int, default=20, help="of each load; the storm must last longer" + default)
    parser.add_argument("--watch", choices=("on", "off"), default="on", help="whether Flash watches the names" + default)
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


class Prober(threading.Thread):
    """Replaces some files in turn, each at most twice a second, and asks for each until its new content comes."""

    def __init__(self, root, port):
        super().__init__(daemon=True)
        self.root, self.port, self.delays_ms, self.is_over = root, port, [], False

    def run(self):
        os.sched_setaffinity(0, {LOAD_CORE})
        connection, number = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60), 0
        while not self.is_over:
            path, number = PROBES[number % len(PROBES)], number + 1
            content, fresh = b"%09d" % number, os.path.join(self.root, "fresh")
            with open(fresh, "wb") as file:
                file.write(content)
            os.replace(fresh, self.root + path)
            changed = old_at = time.monotonic()
            while True:
                connection.request("GET", path)
                if connection.getresponse().read() == content:
                    break
                # The last old byte.
                old_at = time.monotonic()
                time.sleep(0.001)
            self.delays_ms.append(1000 * (old_at - changed))
            time.sleep(0.02)

    def stop(self):
        self.is_over = True
        self.join()
        return sorted(self.delays_ms)


def rename_storm(root, paths):
    """Each file is written anew beside it and renamed."""
    code = ("import os, sys\nroot, count = sys.argv[1], int(sys.argv[2])\n"
            "for number in range(count):\n"
            "    path = f'{root}/{number // 100:06}/{number % 100:06}'\n"
            "    with open(path + '.new', 'wb') as file:\n"
            "        file.write(b'%09d' % number * 300)\n"
            "    os.replace(path + '.new', path)\n")
    return ["python3", "-c", code, root, str(len(paths))]


def git_storm(root, paths):
    """Another branch, in which every file differs."""
    git = ["git", "-C", root, "-c", "user.name=a", "-c", "user.email=a@localhost"]
    folders = sorted({path.split("/")[1] for path in paths})

    def commit(message):
        subprocess.run([*git, "add", "-A", *folders], check=True)
        subprocess.run([*git, "commit", "-q", "-m", message], check=True)

    subprocess.run([*git, "init", "-q", "-b", "one"], check=True)
    commit("one")
    subprocess.run([*git, "checkout", "-q", "-b", "two"], check=True)
    write_files_again(root, paths, SIZE_BYTES + 2)
    commit("two")
    return [*git, "checkout", "-q", "one"]


def write_files_again(root, paths, size_bytes):
    """Other contents of the same files."""
    for number, path in enumerate(paths):
        with open(root + path, "wb") as file:
            file.write((b"%09d" % number).ljust(size_bytes, b"y"))


def rsync_storm(root, paths):
    """Half of the files are gone and the others differ."""
    if not shutil.which("rsync"):
        raise servers.Unavailable("rsync is not installed")
    source = f"{root}-source"
    write_files(source, paths[::2], [SIZE_BYTES + 3] * len(paths[::2]))
    folders = [f"{source}/{name}" for name in sorted(os.listdir(source))]
    return ["rsync", "-r", "--delete", *folders, root]


STORMS = {"rename": rename_storm, "git": git_storm, "rsync": rsync_storm}


def storm(name, arguments, folder, ports, result):
    """One storm: hits and changes without it, and beside it."""
    place = servers.new_place(folder)
    root, listed = os.path.join(place, "root"), os.path.join(place, "paths")
    paths = [f"/{number // 100:06}/{number % 100:06}" for number in range(arguments.changes)]
    hot = [f"/hot/{number:04}" for number in range(HOT)]
    write_files(root, paths + hot + PROBES, [SIZE_BYTES] * (len(paths) + HOT + len(PROBES)))
    list_paths(listed, hot, [SIZE_BYTES] * HOT)
    elsewhere = os.path.join(place, "elsewhere")
    write_files(elsewhere, paths, [SIZE_BYTES] * len(paths))
    storms = {"alone": None, "elsewhere": STORMS[name](elsewhere, paths), "storm": STORMS[name](root, paths)}
    time.sleep(3)
    watches = arguments.watch == "on"
    running = start(root, place, ports, "--workers", "1", "--watch" if watches else "--no-watch", core=SERVER_CORE)
    try:
        store_of(place, lambda store: not watches or store["subtrees_watched"] > 0)
        fill_store(running, place, paths + hot + PROBES, 240)
        ask = ["--workload", "uniform", "--paths", listed, "--rate", str(arguments.rate)]
        figures = {}
        for when, argv in storms.items():
            before, prober = stats(place), Prober(root, running.port)
            prober.start()
            began = time.monotonic()
            changing = None
            if argv:
                # The generator and the prober share the core, and come first.
                changing = process.start(["nice", "-n", "19", *argv], core=LOAD_CORE)
            level = load(running.url, arguments.seconds, f"{place}/{when}", *ask, first=FIRST)
            if changing and changing.poll() is not None:
                raise servers.Unavailable("the storm ended before the load: use more --changes or fewer --seconds")
            code = changing.wait(600) if changing else 0
            lasted_s = time.monotonic() - began
            if code:
                raise servers.Unavailable(f"{argv[0]} ended with {code}")
            delays_ms, after = prober.stop(), stats(place)
            figures[when] = {"latency": level["latency"], "counts": level["counts"], "delays_ms": delays_ms,
                             "jobs": jobs_started(after) - jobs_started(before), "lasted_s": lasted_s}
            say(result, name, when, figures[when])
        for when, beside in (("alone", "without it"), ("elsewhere", "beside the storm elsewhere")):
            p50, p99 = (figures["storm"]["latency"][part] / figures[when]["latency"][part] for part in ("p50_ms", "p99_ms"))
            result.say(f"  a hit takes {p50:.2f} times as long at p50 as {beside}, {p99:.2f} times at p99")
        result.data["storms"][name] = figures
    finally:
        running.stop()


def say(result, name, when, figures):
    """The figures of one load."""
    delays_ms = figures["delays_ms"]
    part = lambda share: delays_ms[min(len(delays_ms) - 1, int(share * len(delays_ms)))]
    result.say(f"{name}, {when}: hits p50 {figures['latency']['p50_ms']:.3f} ms, p99 {figures['latency']['p99_ms']:.3f} ms; the last old "
               f"byte of {len(delays_ms)} changes p50 {part(0.5):.1f} ms, p99 {part(0.99):.1f}, longest {delays_ms[-1]:.1f} ms after "
               f"the change; {figures['jobs']} jobs of helpers; {figures['lasted_s']:.0f} s")


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    ports = servers.Ports()
    with results.kept("storms", "Storms of changes", arguments, servers.flash_binary()) as (result, folder):
        result.data["storms"] = {}
        for name in arguments.what.split(","):
            try:
                storm(name, arguments, folder, ports, result)
            except servers.Unavailable as why:
                result.data["skipped"][name] = str(why)
                result.say(f"{name}: skipped: {why}")


if __name__ == "__main__":
    main()
