#!/usr/bin/env python3
"""Storms beneath a root that Flash serves and watches: renames, `git checkout` and `rsync --delete` of 100,000 files, and the indexes that
`apt-ftparchive` makes of as many packages.
How late a change of one more file is seen by clients meanwhile, and how much slower hits are: beside a storm of the same kind
elsewhere, in files that nobody serves, and beside that of the root.

See bench/README.md.
"""

import argparse
import http.client
import os
import shutil
import statistics
import subprocess
import threading
import time

from common import process, results, servers
from common.flash import (FIRST, LOAD_CORE, SERVER_CORE, fill_store, jobs_started, list_paths, load, start, stats, store_of,
                          watched_by, write_files)

WHAT = ["rename", "git", "rsync", "apt"]
HOT = 1000
SIZE_BYTES = 2048
PROBES = [f"/probes/{number}" for number in range(25)]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--what", default=",".join(WHAT), help="which, by commas" + default)
    parser.add_argument("--changes", type=int, default=100_000, help="of a storm, each of another file" + default)
    parser.add_argument("--rate", type=int, default=1000, help="requests/s for files that do not change" + default)
    parser.add_argument("--seconds", type=int, default=10, help="of each load; the storm must last longer" + default)
    parser.add_argument("--rounds", type=int, default=5, help="each without a storm and beside both" + default)
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


# Each file is written anew beside it and renamed.
RENAMES = """
import os, sys
for number in range(int(sys.argv[2])):
    path = f'{sys.argv[1]}/{number // 100:06}/{number % 100:06}.deb'
    with open(path + '.new', 'wb') as file:
        file.write(content(number))
    os.replace(path + '.new', path)
"""

CONTENT = """
def content(number):
    return b'%09d' % number * 300
"""

# A package with a description and no files, as deb(5) says.
PACKAGE = """
import tarfile

def content(number):
    control = f'Package: p{number}\\nVersion: 2\\nArchitecture: all\\nMaintainer: a <a@localhost>\\nDescription: none\\n'.encode()
    head = tarfile.TarInfo('./control')
    head.size = len(control)
    end = bytes(1024)
    members = {'debian-binary': b'2.0\\n', 'control.tar': head.tobuf() + control.ljust(512, bytes(1)) + end, 'data.tar': end}
    ar = [f'{name:<16}0           0     0     100644  {len(data):<10}`\\n'.encode() + data for name, data in members.items()]
    return b'!<arch>\\n' + b''.join(ar)
"""


def rename_storm(root, paths):
    """Other contents by renames."""
    return [["python3", "-c", CONTENT + RENAMES, root, str(len(paths))]]


def apt_storm(root, paths):
    """The indexes of packages, each of which is read; the packages are written before."""
    if not shutil.which("apt-ftparchive"):
        raise servers.Unavailable("apt-ftparchive is not installed")
    subprocess.run(["python3", "-c", PACKAGE + RENAMES, root, str(len(paths))], check=True)
    script = ('cd "$1"; apt-ftparchive packages . >Packages.new; mv Packages.new Packages; apt-ftparchive release . >Release.new; '
              "mv Release.new Release")
    return [["sh", "-ec", script, "sh", root]]


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
    return [[*git, "checkout", "-q", branch] for branch in ("one", "two")]


def write_files_again(root, paths, size_bytes):
    """Other contents of the same files."""
    for number, path in enumerate(paths):
        with open(root + path, "wb") as file:
            file.write((b"%09d" % number).ljust(size_bytes, b"y"))


def rsync_storm(root, paths):
    """Half of the files are gone and the others differ; then all are there again and differ."""
    if not shutil.which("rsync"):
        raise servers.Unavailable("rsync is not installed")
    argvs = []
    for source, chosen, more_bytes in ((f"{root}-half", paths[::2], 3), (f"{root}-all", paths, 4)):
        write_files(source, chosen, [SIZE_BYTES + more_bytes] * len(chosen))
        argvs.append(["rsync", "-r", "--delete", *(f"{source}/{name}" for name in sorted(os.listdir(source))), root])
    return argvs


STORMS = {"rename": rename_storm, "git": git_storm, "rsync": rsync_storm, "apt": apt_storm}


def storm(name, arguments, folder, ports, result):
    """The rounds of one storm: hits and changes without it, and beside it."""
    place = servers.new_place(folder)
    root, elsewhere, listed = (os.path.join(place, name) for name in ("root", "elsewhere", "paths"))
    paths = [f"/{number // 100:06}/{number % 100:06}.deb" for number in range(arguments.changes)]
    hot = [f"/hot/{number:04}" for number in range(HOT)]
    served = paths + hot + PROBES
    write_files(root, served, [SIZE_BYTES] * len(served))
    list_paths(listed, hot, [SIZE_BYTES] * HOT)
    write_files(elsewhere, paths, [SIZE_BYTES] * len(paths))
    storms = {"alone": [None], "elsewhere": STORMS[name](elsewhere, paths), "storm": STORMS[name](root, paths)}
    time.sleep(3)
    watches = arguments.watch == "on"
    running = start(root, place, ports, "--workers", "1", "--watch" if watches else "--no-watch", core=SERVER_CORE)
    try:
        store_of(place, lambda store: not watches or store["subtrees_watched"] > 0)
        how = f"watched by {watched_by(running)}" if watches else "checked"
        result.say(f"{name}: names {how}, {arguments.changes} files")
        rounds = []
        for number in range(arguments.rounds):
            fill_store(running, place, [path for path in served if os.path.exists(root + path)], 240)
            # Each storm comes first in turn.
            order = list(storms)[number % 3:] + list(storms)[:number % 3]
            figures = {when: beside(storms[when][number % len(storms[when])], (root, listed, place), running, arguments)
                       for when in order}
            rounds.append(figures)
            for when in storms:
                say(result, f"{name}, round {number + 1}, {when}", figures[when])
        say_ratios(result, rounds)
        result.data["storms"][name] = {"names": how, "rounds": rounds}
    finally:
        running.stop()


def beside(argv, places, running, arguments):
    """One load, beside a storm if `argv` is one."""
    root, listed, place = places
    before, prober = stats(place), Prober(root, running.port)
    prober.start()
    began = time.monotonic()
    # The generator and the prober share the core, and come first.
    changing = argv and process.start(["nice", "-n", "19", *argv], core=LOAD_CORE)
    level = load(running.url, arguments.seconds, servers.new_place(place), "--workload", "uniform", "--paths", listed, "--rate",
                 str(arguments.rate), first=FIRST)
    if changing:
        if changing.poll() is not None:
            raise servers.Unavailable("the storm ended before the load: use more --changes or fewer --seconds")
        if code := changing.wait(600):
            raise servers.Unavailable(f"{argv[0]} ended with {code}")
    lasted_s = time.monotonic() - began
    delays_ms, after = prober.stop(), stats(place)
    late_ms = [round(delay_ms, 2) for delay_ms in delays_ms if delay_ms > 0]
    return {"latency": level["latency"], "counts": level["counts"], "generator": level["generator"], "changes": len(delays_ms), "late_ms": late_ms,
            "jobs": jobs_started(after) - jobs_started(before), "lasted_s": lasted_s}


def say(result, name, figures):
    """The figures of one load."""
    delays_ms = [0] * (figures["changes"] - len(figures["late_ms"])) + figures["late_ms"]
    part = lambda share: delays_ms[min(len(delays_ms) - 1, int(share * len(delays_ms)))]
    result.say(f"{name}: hits p50 {figures['latency']['p50_ms']:.3f} ms, p99 {figures['latency']['p99_ms']:.3f} ms; the last old "
               f"byte of {len(delays_ms)} changes p50 {part(0.5):.1f} ms, p99 {part(0.99):.1f}, longest {delays_ms[-1]:.1f} ms after "
               f"the change; {figures['jobs']} jobs of helpers; {figures['lasted_s']:.0f} s")


def ratios(rounds, part, when):
    """How many times as long a hit takes at a percentile beside the storm as at another time, in each round, in order of size."""
    return sorted(figures["storm"]["latency"][part] / figures[when]["latency"][part] for figures in rounds)


def say_ratios(result, rounds):
    """How much slower hits are beside the storm."""
    for when, words in (("alone", "without it"), ("elsewhere", "beside the storm elsewhere")):
        p50, p99 = (ratios(rounds, part, when) for part in ("p50_ms", "p99_ms"))
        result.say(f"  a hit takes {statistics.median(p50):.2f} times as long at p50 as {words}, {statistics.median(p99):.2f} times at "
                   f"p99 ({p99[0]:.2f} to {p99[-1]:.2f} in {len(rounds)} rounds)")


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
