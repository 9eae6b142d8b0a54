#!/usr/bin/env python3
"""Flash in small control groups, with `cache_memory = "auto"`: processes that the kernel kills for lack of memory, and the
latency of hits, while clients ask for more files than the group holds, while the configuration is reloaded, and while a
neighbour in the same group takes memory.

See bench/README.md. Needs root, and control groups of version 1 or 2 with the memory controller.
"""

import argparse
import os
import signal
import subprocess
import sys
import threading
import time

from common import flash, process, results, servers

FILES = os.path.join(servers.REPOSITORY, "bench", ".cache", "small-groups")
SIZES_KIB = (16, 64, 256, 1024)
HOT = 50
VERSION_1, VERSION_2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"
# Takes memory at a rate until it has enough, and keeps it.
NEIGHBOUR = """
import sys, time
mib, mib_per_s = int(sys.argv[1]), int(sys.argv[2])
held = []
for number in range(mib):
    held.append(bytearray(b"x" * 2**20))
    time.sleep(1 / mib_per_s)
time.sleep(600)
"""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--what", default="load,reload,neighbour", help="which, by commas" + default)
    parser.add_argument("--memory", default="64,96,128,256,512", help="limits of the group in MiB" + default)
    parser.add_argument("--workers", default="1,2,8,16", help="numbers of workers" + default)
    parser.add_argument("--seconds", type=int, default=25, help="length of a run" + default)
    parser.add_argument("--cold-rate", type=int, default=300, help="requests/s for all files" + default)
    parser.add_argument("--hot-rate", type=int, default=300, help=f"requests/s for {HOT} files of 16 KiB" + default)
    parser.add_argument("--neighbour", default="250,190", help="its MiB, and MiB/s" + default)
    parser.add_argument("--files", default=FILES, help="the folder for the file set" + default)
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


class Group:
    """A control group with a limit, removed at the end."""

    def __init__(self, mib):
        self.is_first = os.path.exists(f"{VERSION_1}/memory.limit_in_bytes")
        self.path = f"{VERSION_1 if self.is_first else VERSION_2}/flash-bench-{os.getpid()}"
        os.mkdir(self.path)
        limits = [("memory.limit_in_bytes", mib << 20)] if self.is_first else [("memory.max", mib << 20)]
        swap = ("memory.swappiness", 0) if self.is_first else ("memory.swap.max", 0)
        for name, value in [*limits, swap]:
            if os.path.exists(f"{self.path}/{name}"):
                with open(f"{self.path}/{name}", "w") as file:
                    file.write(str(value))

    def enter(self):
        """The words before a command that has to run in it."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', f"{self.path}/cgroup.procs"]

    def kills(self):
        """How many processes the kernel has killed here for lack of memory."""
        with open(f"{self.path}/{'memory.oom_control' if self.is_first else 'memory.events'}") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("oom_kill "))

    def remove(self):
        """Waits until its processes are gone."""
        for _ in range(100):
            try:
                return os.rmdir(self.path)
            except OSError:
                time.sleep(0.1)


def make_files(folder, mib):
    """A set of this size, and the lists of its paths: hot ones and all others."""
    os.makedirs(folder, exist_ok=True)
    hot, cold, total, number = [], [], 0, 0
    while total < mib << 10:
        kib = SIZES_KIB[0] if number < HOT else SIZES_KIB[number % len(SIZES_KIB)]
        path = f"{folder}/{number}"
        if not os.path.exists(path) or os.path.getsize(path) != kib << 10:
            with open(path, "wb") as file:
                file.write(b"%010d" % number + os.urandom((kib << 10) - 10))
        (hot if number < HOT else cold).append(f"/{number} {kib << 10}\n")
        total, number = total + kib, number + 1
    return hot, cold


def run(arguments, result, folder, ports, what, mib, workers):
    """One group: kills, ends of processes, latency of hits."""
    hot, cold = make_files(arguments.files, mib * 3 // 2)
    place = servers.new_place(folder)
    lists = {}
    for name, paths in (("hot", hot), ("cold", cold)):
        lists[name] = f"{place}/{name}.paths"
        with open(lists[name], "w") as file:
            file.writelines(paths)
    process.drop_page_cache()
    group = Group(mib)
    running = neighbour = None
    levels = {}
    try:
        running = flash.start(arguments.files, place, ports, "--workers", str(workers), testbed=group.enter())
        flash.load(running.url, 3, f"{place}/warm", "--workload", "uniform", "--paths", lists["hot"], "--rate", "300")

        def drive(name, seconds, rate):
            try:
                levels[name] = flash.load(running.url, seconds, f"{place}/{name}", "--workload", "uniform", "--paths",
                                          lists[name], "--rate", str(rate))
            except servers.Unavailable as why:
                levels[name] = {"latency": {"p50_ms": float("nan"), "p99_ms": float("nan")}, "counts": str(why)}

        loads = [threading.Thread(target=drive, args=("cold", arguments.seconds, arguments.cold_rate))]
        time.sleep(1)
        loads.append(threading.Thread(target=drive, args=("hot", arguments.seconds, arguments.hot_rate)))
        for load in loads:
            load.start()
        time.sleep(arguments.seconds / 3)
        if what == "reload":
            for _ in range(2):
                os.kill(running.process.pid, signal.SIGHUP)
                time.sleep(3)
        if what == "neighbour":
            words = [*group.enter(), sys.executable, "-c", NEIGHBOUR, *arguments.neighbour.split(",")]
            neighbour = subprocess.Popen(words, start_new_session=True)
        for load in loads:
            load.join()
        kills = group.kills()
    finally:
        if neighbour is not None:
            neighbour.kill()
            neighbour.wait()
        if running is not None:
            running.stop()
        group.remove()
    with open(f"{place}/server.log", errors="replace") as file:
        deaths = sum(" ended" in line for line in file)
    latency = levels["hot"]["latency"]
    found = {"what": what, "mib": mib, "workers": workers, "kills": kills, "deaths": deaths,
             "hot": latency, "hot_counts": levels["hot"].get("counts"), "cold_counts": levels["cold"].get("counts")}
    result.data["rounds"].append(found)
    result.say(f"{what:9} {mib:4} MiB {workers:3} workers: {kills:3} kills, {deaths:3} processes ended, "
               f"hits p50 {latency['p50_ms']:8.3f} ms, p99 {latency['p99_ms']:8.3f} ms")


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    process.raise_descriptor_limit()
    ports = servers.Ports()
    numbers = lambda text: [int(number) for number in text.split(",")]
    about = ("small-groups", "Small control groups", arguments, servers.flash_binary())
    with results.kept(*about) as (result, folder):
        for what in arguments.what.split(","):
            for mib in numbers(arguments.memory):
                # A neighbour needs a group that holds it and the least of Flash.
                if what == "neighbour" and mib < int(arguments.neighbour.split(",")[0]) * 3 // 2:
                    continue
                for workers in numbers(arguments.workers):
                    run(arguments, result, folder, ports, what, mib, workers)


if __name__ == "__main__":
    main()
