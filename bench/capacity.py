#!/usr/bin/env python3
"""The highest rate at which requests in memory stay fast while the disk is slow: requests for a set of files larger than the memory
come at rising rates, beside few requests for the most popular files. Their p99 and the median of all must stay below a bound.

The memory is filled before the disk is slowed down. See bench/README.md.
"""

import argparse
import os
import subprocess
import time

from common import flash, process, results, servers

FILES = os.path.join(servers.REPOSITORY, "bench", ".cache", "specweb99")
# The share of the requests that must be answered, in time and without an error.
ANSWERED_MIN = 0.95
STEP = 2**0.5
# Rates are tried down to this.
LOWEST_PER_S = 60


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--servers", default="flash,nginx,nginx-aio,apache-event,apache-2048,h2o,lighttpd,caddy",
                        help="by commas" + default)
    parser.add_argument("--memory-mib", type=int, default=512, help="of the server, with its page cache" + default)
    parser.add_argument("--reads", type=int, default=150, help="of the disk in a second" + default)
    parser.add_argument("--hot-rate", type=int, default=200, help="requests/s for popular files" + default)
    parser.add_argument("--p99-ms", type=float, default=10, help="their highest p99, and the highest median of all" + default)
    parser.add_argument("--first", type=int, default=500, help="rate that is tried first" + default)
    parser.add_argument("--seconds", type=int, default=8, help="of each rate" + default)
    parser.add_argument("--warm-seconds", type=int, default=25, help="at 3,000/s, before the disk is slow" + default)
    parser.add_argument("--rounds", type=int, default=3, help="of each server, in turn" + default)
    parser.add_argument("--files", default=os.environ.get("FLASH_BENCH_FILES", FILES), help="a set of `flash fileset`")
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


class Loads:
    """The two loads of one server."""

    def __init__(self, url, arguments, hot_list, folder):
        self.url, self.arguments, self.hot_list, self.folder, self.count = url, arguments, hot_list, folder, 0

    def _out(self):
        self.count += 1
        return os.path.join(self.folder, f"load-{self.count}")

    def _whole(self, rate):
        """The options of the load of the whole set."""
        return ["--workload", "specweb99", "--files", self.arguments.files, "--rate", str(rate), "--seed", str(self.count)]

    def warm_up(self):
        flash.load(self.url, self.arguments.warm_seconds, self._out(), *self._whole(3000))

    def at(self, rate):
        """The whole set at this rate, with the popular files beside it, and whether the rate counts."""
        out = self._out()
        argv = [servers.flash_binary(), "load", self.url, *self._whole(rate), "--duration", f"{self.arguments.seconds + 1}s",
                "--warm-up", "0s", "--drain", "10s", "--out", out]
        whole = process.start(argv, core=flash.LOAD_CORE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        hot = flash.load(self.url, self.arguments.seconds, self._out(), "--workload", "uniform", "--paths", self.hot_list, "--rate",
                         str(self.arguments.hot_rate), first=flash.FIRST)
        whole.wait(300)
        level = flash.level_of(out)
        asked, failed = level["counts"]["asked"], sum(level["counts"]["failed"].values())
        share = 1 - failed / max(1, asked)
        # A server that has no time left may still answer few connections at once: so half of all requests must be fast as well.
        counts = share >= ANSWERED_MIN and not sum(hot["counts"]["failed"].values()) \
            and max(hot["latency"]["p99_ms"], level["latency"]["p50_ms"]) < self.arguments.p99_ms
        return {"rate_per_s": rate, "answered_share": share, "latency": level["latency"], "hot": hot["latency"],
                "hot_counts": hot["counts"], "late_ms": level["generator"]["late_p99_ms"], "counts": counts}


def search(loads, first):
    """All rates that were tried, and the highest that counts: upward from the first, or downward if that is too high."""
    tried = [loads.at(first)]
    rises = tried[0]["counts"]
    while tried[-1]["counts"] == rises and tried[-1]["rate_per_s"] > LOWEST_PER_S:
        tried.append(loads.at(round(tried[-1]["rate_per_s"] * (STEP if rises else 1 / STEP))))
    return tried, max((found["rate_per_s"] for found in tried if found["counts"]), default=0)


def measure(server, arguments, folder, port, hot_list, result):
    """One round of one server."""
    place = servers.new_place(folder)
    result.hide(place, "$CONF")
    process.drop_page_cache()
    testbed = [servers.flash_binary(), "testbed", "capacity", "--memory", f"{arguments.memory_mib}MiB", "--files", arguments.files,
               "--core", str(flash.SERVER_CORE), "--"]
    inside = servers.Server(server.name, lambda *about: [*testbed, *server.command(*about)], server.version_command, server.note)
    running = inside.start(arguments.files, port, place)
    try:
        result.note_server(server, running)
        loads = Loads(running.url, arguments, hot_list, place)
        loads.warm_up()
        with process.SlowDisk(arguments.files, arguments.reads) as disk:
            disk.join(running.process.pid)
            return search(loads, arguments.first)
    finally:
        running.stop()


def choose(names):
    """The servers that can be started here, Apache with 2,048 threads among them."""
    apache = servers.ready_made("apache-event", {"workers": "2048", "processes": "32", "threads": "64"})
    servers.SERVERS["apache-2048"] = servers.Server("apache-2048", apache.command, apache.version_command, "event, 2048 threads")
    return servers.choose(names)


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    process.raise_descriptor_limit()
    chosen, skipped = choose(arguments.servers.split(","))
    title = f"The highest rate at which requests in memory stay fast, {arguments.memory_mib} MiB, a disk of {arguments.reads} reads/s"
    with results.kept("capacity", title, arguments, servers.flash_binary()) as (result, folder):
        result.data["skipped"].update(skipped)
        hot_list, ports = os.path.join(folder, "hot"), servers.Ports()
        with open(hot_list, "w") as file:
            file.writelines(f"/dir{directory:05}/class{size}_{number}\n"
                            for directory in range(3) for size in range(3) for number in range(1, 10))
        rounds = {server.name: [] for server in chosen}
        for number in range(arguments.rounds):
            for server in chosen:
                tried, best = measure(server, arguments, folder, ports.take(), hot_list, result)
                rounds[server.name].append({"tried": tried, "best_per_s": best})
                for found in tried:
                    result.say(f"round {number + 1}: {server.name:<12} {found['rate_per_s']:>6}/s: {100 * found['answered_share']:.1f} % answered, "
                               f"hot p50 {found['hot']['p50_ms']:.3f} ms, p99 {found['hot']['p99_ms']:.2f} ms"
                               f"{', counts' if found['counts'] else ''}")
        result.data["rounds"] = rounds
        result.data["capacity_per_s"] = {name: results.median([found["best_per_s"] for found in of_server])
                                         for name, of_server in rounds.items()}
        result.say()
        for name, best in result.data["capacity_per_s"].items():
            result.say(f"{name}: {best:.0f}/s (rounds: {', '.join(str(found['best_per_s']) for found in rounds[name])})")
        result.say()
        result.say_servers()


if __name__ == "__main__":
    main()
