#!/usr/bin/env python3
"""What `flash doctor` says of servers that wait for the disk, and whether its counts are right.

The testbed of `interfere.py`: one core, bounded memory, a disk held to so many reads a second, hot requests beside cold
ones. Each server is watched by `flash doctor` and, in the same seconds, by `perf trace -s`; in a second run by `strace
-f -c -w`, which slows it down. The load begins when all watch and ends before they do, so all see the same calls. Needs
root and cgroups. See bench/README.md.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

from common import cgroups, process, results, servers
from interfere import HotLock

HERE = os.path.dirname(os.path.abspath(__file__))
DEFAULT_SERVERS = "flash,nginx,nginx-aio,h2o,apache"
SERVER_CORE, LOAD_CORE = 0, 1
# What watches needs so long to begin, and is given so long after the load.
BEGIN_S, END_S = 2, 1
# How long the load waits for its last answers, and watching may last at most.
DRAIN_S, WATCH_MAX_S = 15, 120
# Calls that are made now and then without any load (timers): the watchers do not begin at the same instant.
EDGE_CALLS = 4
# Of a kind of which there are fewer, those at the edges would be a share by themselves.
KIND_CALLS_MIN = 100


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--servers", default=DEFAULT_SERVERS, help="which, by commas" + default)
    files = os.environ.get("FLASH_BENCH_FILES", os.path.join(HERE, ".cache/specweb99"))
    parser.add_argument("--files", default=files, help="of the file set; on a real disk" + default)
    parser.add_argument("--memory-mib", type=int, default=512, help="of a server with its page cache" + default)
    parser.add_argument("--reads-per-s", type=int, default=150, help="that the disk is held to" + default)
    parser.add_argument("--hot-rate", type=int, default=500, help="requests/s" + default)
    parser.add_argument("--hot-dirs", type=int, default=20, help="directories" + default)
    parser.add_argument("--cold-rate", type=int, default=20, help="requests/s" + default)
    parser.add_argument("--seconds", type=int, default=10, help="of load" + default)
    parser.add_argument("--watchers", default="perf,strace", help="to compare with, by commas" + default)
    parser.add_argument("--pages", metavar="DIR", help="keep the HTML pages and whole traces there")
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    arguments = parser.parse_args()
    arguments.files = os.path.abspath(arguments.files)
    return arguments


def load(arguments, running, phase, seconds, seed, directories):
    """Runs one phase of `flash interfere` from the other core; gives its JSON."""
    with tempfile.NamedTemporaryFile(suffix=".json") as kept:
        argv = [servers.flash_binary(), "interfere", running.url, "--phase", phase, "--seconds", str(seconds),
                "--hot-dirs", str(arguments.hot_dirs), "--hot-rate", str(arguments.hot_rate),
                "--drain-seconds", str(DRAIN_S), "--seed", str(seed), "--json", kept.name]
        if phase == "cold":
            argv += ["--cold-rate", str(arguments.cold_rate), "--cold-dirs", f"{arguments.hot_dirs}..{directories}"]
        made = process.start(argv, core=LOAD_CORE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            text, _ = made.communicate(timeout=seconds + 60)
        finally:
            process.stop(made)
        if made.returncode != 0:
            raise servers.Unavailable(text.strip())
        return json.load(kept)["phases"][0]


class Doctor:
    """`flash doctor` at work."""

    def __init__(self, pid, folder):
        self.trace, self.page = (os.path.join(folder, name) for name in ("trace.json", "page.html"))
        argv = [servers.flash_binary(), "doctor", str(pid), "--duration", f"{WATCH_MAX_S}s", "--trace", self.trace,
                "--html", self.page]
        self.process = process.start(argv, core=LOAD_CORE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self):
        """Ends it as Ctrl-C does; its words and its exit code."""
        self.process.send_signal(signal.SIGINT)
        words, said = self.process.communicate(timeout=60)
        if not words:
            raise servers.Unavailable(f"flash doctor ended with {self.process.returncode}: {said.strip()}")
        return words, self.process.returncode

    def diagnosis(self):
        """What it found, as data; its lists of the longest are in its words."""
        argv = [servers.flash_binary(), "doctor", self.trace, "--json"]
        found = json.loads(subprocess.run(argv, stdout=subprocess.PIPE, check=False).stdout)
        for part in (*found["loops"], found["others"]):
            for name in ("targets", "longest", "payers", "paid"):
                part.pop(name, None)
        return found

    def counts(self, pids):
        """Calls of these processes, or of all, by name: how many, and milliseconds in them."""
        with open(self.trace) as file:
            trace = json.load(file)
        counts = {}
        for total in trace["calls"]:
            # With a blank: what blocked outside of system calls.
            if " " in total["call"] or pids is not None and total["pid"] not in pids:
                continue
            entry = counts.setdefault(total["call"], [0, 0.0])
            entry[0] += total["count"]
            entry[1] += total["duration_ns"] / 1e6
        return counts, trace


class PerfTrace:
    """`perf trace -s` of the same processes."""

    name = "perf trace -s"
    # It does not follow what the server starts later.
    follows = False

    def __init__(self, pids, folder):
        self.out = os.path.join(folder, "perf.txt")
        argv = [servers.find("perf"), "trace", "-s", "-o", self.out, "-p", ",".join(map(str, pids))]
        self.process = process.start(argv, core=LOAD_CORE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def counts(self):
        """Ends it; calls by name: how many, and milliseconds in them."""
        interrupt(self.process)
        counts = {}
        line = re.compile(r"^\s+(\w+)\s+(\d+)\s+(\d+)\s+([\d.]+)\s+[\d.]+\s+[\d.]+\s+[\d.]+")
        with open(self.out) as file:
            for found in filter(None, map(line.match, file)):
                entry = counts.setdefault(found.group(1), [0, 0.0])
                entry[0] += int(found.group(2))
                entry[1] += float(found.group(4))
        return counts


class Strace:
    """`strace -f -c -w` of the same processes."""

    name = "strace -f -c -w"
    follows = True

    def __init__(self, pids, folder):
        self.out = os.path.join(folder, "strace.txt")
        argv = [servers.find("strace"), "-f", "-c", "-w", "-o", self.out]
        for pid in pids:
            argv += ["-p", str(pid)]
        self.process = process.start(argv, core=LOAD_CORE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def counts(self):
        """Ends it; calls by name: how many, and milliseconds in them."""
        interrupt(self.process)
        counts = {}
        with open(self.out) as file:
            for line in file:
                words = line.split()
                if len(words) >= 5 and re.match(r"^[\d.]+$", words[0]) and words[-1] != "total":
                    counts[words[-1]] = [int(words[3]), float(words[1]) * 1000]
        return counts


WATCHERS = {"perf": PerfTrace, "strace": Strace}


def interrupt(started):
    """Ends a watcher as Ctrl-C would, so that it tells what it saw."""
    started.send_signal(signal.SIGINT)
    try:
        started.wait(20)
    except subprocess.TimeoutExpired:
        process.stop(started)


def agreement(ours, theirs):
    """Rows of call, our count, theirs, our milliseconds, theirs; the calls that took most time first."""
    nothing = [0, 0.0]
    names = sorted(set(ours) | set(theirs), key=lambda name: -max(ours.get(name, nothing)[1], theirs.get(name, nothing)[1]))
    return [{"call": name, "doctor": ours.get(name, nothing)[0], "other": theirs.get(name, nothing)[0],
             "doctor_ms": ours.get(name, nothing)[1], "other_ms": theirs.get(name, nothing)[1]} for name in names]


def differences(rows):
    """How far the counts are apart: of all calls together, and the most of any kind, as shares. What few calls at the
    edges make up is left out, and calls that the other one does not know: its names may be older than the kernel."""
    both = [row for row in rows if max(row["doctor"], row["other"]) > EDGE_CALLS and row["other"] > 0]
    apart = [abs(row["doctor"] - row["other"]) for row in both]
    whole = sum(row["other"] for row in both)
    return {"all_share": sum(apart) / whole if whole else None,
            "most_share": max((gap / row["other"] for gap, row in zip(apart, both) if row["other"] >= KIND_CALLS_MIN),
                              default=None),
            "other_calls": whole,
            "other_does_not_know": [row["call"] for row in rows if row["doctor"] > EDGE_CALLS and row["other"] == 0]}


def watch(server, arguments, watcher, folder, place):
    """One server, loaded while `flash doctor` and one more watch it."""
    cgroups.drop_page_cache()
    port, watching, doctor = place["ports"].take(), None, None
    with cgroups.make(f"flash-bench-{os.getpid()}-{port}", arguments.files, arguments.memory_mib << 20) as testbed:
        running = server.start(arguments.files, port, folder, core=SERVER_CORE, cgroups=testbed.groups)
        try:
            load(arguments, running, "alone", 2, 1, place["directories"])
            testbed.throttle(arguments.reads_per_s)
            pids = process.tree(running.process.pid)
            watching = WATCHERS[watcher](pids, folder)
            doctor = Doctor(running.process.pid, folder)
            time.sleep(BEGIN_S)
            asked = load(arguments, running, "cold", arguments.seconds, 7, place["directories"])
            time.sleep(END_S)
            words, code = doctor.finish()
            theirs = watching.counts()
        finally:
            # The bound first: a server in the middle of its reads would end slowly.
            testbed.throttle(0)
            for left in filter(None, (watching, doctor)):
                process.stop(left.process)
            running.stop()
    ours, trace = doctor.counts(None if watching.follows else pids)
    rows = agreement(ours, theirs)
    if arguments.pages:
        for name in ("trace.json", "page.html"):
            shutil.copy(os.path.join(folder, name), os.path.join(arguments.pages, f"{server.name}-{watcher}-{name}"))
    return {"server": server.name, "watcher": WATCHERS[watcher].name, "words": words, "exit_code": code,
            "hot": asked["hot"], "agreement": rows, "differences": differences(rows), "missing": trace["missing"],
            "diagnosis": doctor.diagnosis(), "command": running.argv}


def hide(result, path, name):
    """Hides a path also where it is a link, and where `flash doctor` shows no more than its end."""
    for whole in sorted({path, os.path.realpath(path)}):
        result.hide(whole, name)
        folders = whole.split(os.sep)
        for first in range(1, len(folders)):
            result.hide("…/" + "/".join(folders[first:]), name)


def tell(found, result):
    """Prints what one run showed."""
    apart = found["differences"]
    result.say(f"== {found['server']}, beside {found['watcher']}: exit code {found['exit_code']}; hot requests: p50 "
               f"{found['hot']['latency']['p50_ms']:.2f} ms, p99 {found['hot']['latency']['p99_ms']:.2f} ms")
    result.say()
    for line in found["words"].splitlines():
        result.say("  " + line)
    result.say()
    result.say(f"  {'call':<18}{'doctor':>9}{'other':>9}{'doctor ms':>12}{'other ms':>12}")
    for row in found["agreement"]:
        if max(row["doctor"], row["other"]) > EDGE_CALLS:
            result.say(f"  {row['call']:<18}{row['doctor']:>9}{row['other']:>9}"
                       f"{row['doctor_ms']:>12.1f}{row['other_ms']:>12.1f}")
    result.say(f"  counts differ by {results.cell(apart['all_share'], '.2%', 0)} of {apart['other_calls']} calls, "
               f"{results.cell(apart['most_share'], '.2%', 0)} at most of a kind with {KIND_CALLS_MIN} or more")
    if apart["other_does_not_know"]:
        result.say(f"  not known to {found['watcher']}: {', '.join(apart['other_does_not_know'])}")
    result.say()


def run(server, arguments, watcher, place, result):
    """One server beside one watcher; what cannot be is skipped, with its reason."""
    with tempfile.TemporaryDirectory(prefix="flash-bench-") as folder:
        os.chmod(folder, 0o755)
        hide(result, folder, "$CONF")
        try:
            found = watch(server, arguments, watcher, folder, place)
        except (servers.Unavailable, cgroups.Impossible, OSError, subprocess.TimeoutExpired) as why:
            result.data["skipped"][f"{server.name}, {watcher}"] = str(why)
            return
        result.data["servers"][server.name] = {"version": server.version(), "note": server.note,
                                               "command": result.clean(" ".join(found.pop("command")))}
        result.data["rounds"].append(found)
        tell(found, result)


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    process.raise_descriptor_limit()
    chosen, skipped = servers.choose(arguments.servers.split(","))
    names = ("memory_mib", "reads_per_s", "hot_rate", "cold_rate", "seconds")
    result = results.Result("doctor", {name: getattr(arguments, name) for name in names})
    result.data["skipped"].update(skipped)
    hide(result, arguments.files, "$ROOT")
    if "flash" not in skipped:
        hide(result, servers.flash_binary(), "flash")
    directories = sum(name.startswith("dir") for name in os.listdir(arguments.files))
    place = {"ports": servers.Ports(), "directories": directories}
    result.heading(f"flash doctor beside others, {arguments.hot_rate} hot and {arguments.cold_rate} cold requests/s for "
                   f"{arguments.seconds} s, {arguments.memory_mib} MiB, a disk of {arguments.reads_per_s} reads/s")
    # Hot must mean in memory: another process holds these files there.
    with HotLock(arguments.files, arguments.hot_dirs):
        for watcher in arguments.watchers.split(","):
            for server in chosen:
                run(server, arguments, watcher, place, result)
    result.say_servers()
    if not arguments.no_keep:
        result.keep()


if __name__ == "__main__":
    main()
