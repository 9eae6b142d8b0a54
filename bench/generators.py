#!/usr/bin/env python3
"""`flash load` beside other load generators in an open loop: the same rate at the same server. Do their percentiles agree, and how much CPU
time does each take for a request? The time from request to answer on the wire, by tcpdump, shows the part that a generator adds.

wrk2 is found as `wrk2`, or where $WRK2 says; oha and vegeta likewise. See bench/README.md.
"""

import argparse
import itertools
import json
import math
import os
import re
import resource
import shutil
import statistics
import struct
import subprocess
import tempfile

from common import results, servers
from common.flash import LOAD_CORE, SERVER_CORE, level_of

POINTS = ("p50", "p90", "p99")
SHOWN = (*POINTS, *(f"wire_{point}" for point in POINTS))
# Of Student's t for an interval of 95 %, by the number of rounds.
T_95 = {5: 2.776, 7: 2.447, 9: 2.306, 11: 2.228, 15: 2.145}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--generators", default="flash,flash_sleeping,wrk2,oha,vegeta", help="by commas" + default)
    parser.add_argument("--rate", type=int, default=2000, help="requests/s" + default)
    parser.add_argument("--connections", type=int, default=32, help=default)
    parser.add_argument("--size-bytes", type=int, default=1024, help="of the answer" + default)
    parser.add_argument("--rounds", type=int, default=9, choices=sorted(T_95), help="of each generator, in turn" + default)
    # wrk2 calibrates for 10 s before it counts.
    parser.add_argument("--seconds", type=int, default=14, help="of each load" + default)
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


def flash(url, arguments, folder, *more):
    """The command of `flash load`, and a reader of its percentiles in milliseconds."""
    out = tempfile.mkdtemp(dir=folder)
    command = [servers.flash_binary(), "load", url, "--workload", "single:/file", "--rate", str(arguments.rate), "--connections",
               str(arguments.connections), "--warm-up", "0s", "--duration", f"{arguments.seconds}s", "--cores", str(LOAD_CORE), "--out",
               out, *more]

    def read(_):
        level = level_of(out)
        # Polling is in its CPU time, and not in this.
        busy_us = 1e6 * level["generator"]["busy_share"] / arguments.rate
        return {"busy_us": busy_us, **{point: level["latency"][f"{point}_ms"] for point in POINTS}}
    return command, read


def flash_sleeping(url, arguments, folder):
    return flash(url, arguments, folder, "--no-poll")


def wrk2(url, arguments, _folder):
    command = [find("wrk2"), "-t1", f"-c{arguments.connections}", f"-d{arguments.seconds}s", f"-R{arguments.rate}", "--latency",
               url + "/file"]
    units = {"us": 1e-3, "ms": 1, "s": 1e3}

    def read(text):
        found = {share: float(value) * units[unit] for share, value, unit in re.findall(r"^ *(\d+)\.000% +([\d.]+)(us|ms|s)$", text, re.M)}
        return {point: found[point[1:]] for point in POINTS}
    return command, read


def oha(url, arguments, _folder):
    command = [find("oha"), "--no-tui", "--output-format", "json", "--latency-correction", "-q", str(arguments.rate), "-c",
               str(arguments.connections), "-z", f"{arguments.seconds}s", url + "/file"]

    def read(text):
        found = json.loads(text)["latencyPercentiles"]
        return {point: 1000 * found[point] for point in POINTS}
    return command, read


def vegeta(url, arguments, folder):
    targets, out = servers.write(folder, "targets", f"GET {url}/file\n"), os.path.join(folder, "vegeta.bin")
    command = [find("vegeta"), "attack", f"-targets={targets}", f"-rate={arguments.rate}", f"-duration={arguments.seconds}s",
               f"-connections={arguments.connections}", f"-output={out}"]

    def read(_):
        text = subprocess.run([find("vegeta"), "report", "-type=json", out], check=True, stdout=subprocess.PIPE, text=True).stdout
        found = json.loads(text)["latencies"]
        return {point: found[point[1:] + "th"] / 1e6 for point in POINTS}
    return command, read


GENERATORS = {generator.__name__: generator for generator in (flash, flash_sleeping, wrk2, oha, vegeta)}
# Those that others are compared with.
OURS = ("flash", "flash_sleeping")


def find(name):
    """A generator's program."""
    path = os.environ.get(name.upper()) or shutil.which(name)
    if not path:
        raise servers.Unavailable(f"no program {name}; set {name.upper()}")
    return path


class Wire:
    """Captures, while it is entered, the packets from and to a port. Afterwards `delays_ms` has the time from each request to the first
    byte of its answer, in order of size."""

    def __init__(self, port, folder):
        self.port, self.file, self.delays_ms = port, os.path.join(folder, "wire.pcap"), []

    def __enter__(self):
        argv = [find("tcpdump"), "-i", "lo", "-w", self.file, "--time-stamp-precision=nano", "-s", "80", "-B", "65536", "-U", "-Z", "root",
                f"tcp port {self.port}"]
        self.process = subprocess.Popen(["taskset", "-c", str(SERVER_CORE), *argv], stderr=subprocess.PIPE, text=True)
        # It says that it listens.
        self.process.stderr.readline()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        said = self.process.communicate()[1]
        if not re.search(r"^0 packets dropped by kernel", said, re.M):
            raise servers.Unavailable(f"tcpdump: {said.strip()}")
        with open(self.file, "rb") as file:
            self.delays_ms = sorted(self._delays(file.read()))
        os.unlink(self.file)

    def _delays(self, data):
        """pcap-savefile(5): a head of 24 bytes, and one of 16 before each packet."""
        at, asked = 24, {}
        while at + 16 <= len(data):
            seconds, nanoseconds, captured, _ = struct.unpack_from("<IIII", data, at)
            at, packet = at + 16 + captured, at + 16
            ip = packet + 14
            tcp = ip + 4 * (data[ip] & 15)
            payload = struct.unpack_from(">H", data, ip + 2)[0] - (tcp - ip) - 4 * (data[tcp + 12] >> 4)
            if payload <= 0:
                continue
            source, destination = struct.unpack_from(">HH", data, tcp)
            now_ns = 10**9 * seconds + nanoseconds
            if destination == self.port:
                asked[source] = now_ns
            elif destination in asked:
                yield (now_ns - asked.pop(destination)) / 1e6


def measure(name, running, arguments, folder):
    """One load: percentiles in milliseconds, as the generator has them and on the wire, and for each request the generator's CPU
    microseconds and how often it went to sleep."""
    command, read = GENERATORS[name](running.url, arguments, folder)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Go's and tokio's pools are made for the cores they see: one.
    with Wire(running.port, folder) as wire:
        command = ["taskset", "-c", str(LOAD_CORE), *command]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise servers.Unavailable(f"{name}: {done.stdout.strip()[-300:]}")
    spent_s = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    on_wire = {f"wire_{point}": wire.delays_ms[int(len(wire.delays_ms) * int(point[1:]) / 100)] for point in POINTS}
    requests = arguments.rate * arguments.seconds
    return {"cpu_us": 1e6 * spent_s / requests, "sleeps": (after.ru_nvcsw - before.ru_nvcsw) / requests, **on_wire, **read(done.stdout)}


def ratio(ours, theirs):
    """The mean ratio of the rounds, with an interval of 95 % for the geometric mean by Student's t."""
    logarithms = [math.log(one / other) for one, other in zip(ours, theirs)]
    middle, half = statistics.mean(logarithms), T_95[len(ours)] * statistics.stdev(logarithms) / len(ours) ** 0.5
    return [math.exp(value) for value in (middle, middle - half, middle + half)]


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    # Not after all the rounds.
    find("tcpdump")
    with results.kept("generators", "Load generators beside each other", arguments, servers.flash_binary()) as (result, folder):
        root = os.path.join(folder, "root")
        os.mkdir(root)
        servers.write(root, "file", "x" * arguments.size_bytes)
        names, rounds = [], {}
        for name in arguments.generators.split(","):
            try:
                if name not in OURS:
                    find(name)
                names.append(name)
            except servers.Unavailable as why:
                result.data["skipped"][name] = str(why)
        place = servers.new_place(folder)
        running = servers.SERVERS["nginx"].start(root, servers.Ports().take(), place, core=SERVER_CORE)
        try:
            for number in range(arguments.rounds):
                turn = number % len(names)
                for name in names[turn:] + names[:turn]:
                    rounds.setdefault(name, []).append(measure(name, running, arguments, tempfile.mkdtemp(dir=folder)))
        finally:
            running.stop()
        result.data["rounds"] = rounds
        for name, found in rounds.items():
            cells = [f"{part} {results.median([figures[part] for figures in found]):.3f} ms" for part in POINTS]
            result.say(f"{name}: {', '.join(cells)}; {results.median([figures['cpu_us'] for figures in found]):.1f} us of CPU time and "
                       f"{results.median([figures['sleeps'] for figures in found]):.2f} sleeps a request")
            cells = [f"{part} {results.median([figures[f'wire_{part}'] for figures in found]):.3f} ms" for part in POINTS]
            result.say(f"  on the wire: {', '.join(cells)}")
            if "busy_us" in found[0]:
                result.say(f"  of which it is busy for {results.median([figures['busy_us'] for figures in found]):.1f} us, and polls or wakes for the rest")
        others = [name for name in names if name not in OURS]
        for ours, name in itertools.product([name for name in names if name in OURS], others):
            for part in ("cpu_us", *SHOWN):
                middle, low, high = ratio([f[part] for f in rounds[ours]], [f[part] for f in rounds[name]])
                result.say(f"{ours} over {name}, {part}: {middle:.3f} (95 % interval {low:.3f} to {high:.3f})")
        for name, why in result.data["skipped"].items():
            result.say(f"{name}: skipped: {why}")


if __name__ == "__main__":
    main()
