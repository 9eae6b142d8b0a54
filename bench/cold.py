#!/usr/bin/env python3
"""Requests for files that no memory has, on a disk without a limit: how many are answered in a second, and what they do to
requests for files in memory, beside other servers.

See bench/README.md.
"""

import argparse
import os
import subprocess

from common import process, results, servers
from common.flash import FIRST, LOAD_CORE, SERVER_CORE, ask_once, level_of, list_paths, load, write_files

HOT = 100
# Flash's ways to do cold work, by the options that choose them.
WAYS = {"flash-4-helpers": ["--helpers-max", "4"], "flash-without-store": ["--cache-memory", "0"],
        "flash-sped": ["--architecture", "sped"]}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--servers", default="flash,nginx,nginx-aio,h2o,caddy", help=f"by commas; also {', '.join(WAYS)}" + default)
    parser.add_argument("--cold-files", type=int, default=150_000, help="how many" + default)
    parser.add_argument("--size-bytes", type=int, default=16_384, help="of each file" + default)
    parser.add_argument("--clients", type=int, default=256, help="that each wait for a cold file" + default)
    parser.add_argument("--rate", type=int, default=1000, help="requests/s for files in memory" + default)
    parser.add_argument("--rounds", type=int, default=3, help="of each server, in turn" + default)
    parser.add_argument("--seconds", type=int, default=8, help="of each load" + default)
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


def register_ways():
    """Makes Flash's ways servers that can be asked for."""
    flash = servers.SERVERS["flash"]
    for name, options in WAYS.items():
        command = lambda *place, options=options: [*flash.command(*place), *options]
        servers.SERVERS[name] = servers.Server(name, command, flash.version_command)


def cold_load(url, listed, arguments, out):
    """Clients that ask for one random cold file after another, on the generator's core and after the hot ones."""
    argv = ["nice", "-n", "5", servers.flash_binary(), "load", url, "--workload", "uniform", "--paths", listed, "--clients",
            str(arguments.clients), "--warm-up", "0s", "--duration", f"{arguments.seconds + 2}s", "--out", out]
    return process.start(argv, core=LOAD_CORE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def measure(server, arguments, files, folder, ports):
    """One round of a server: hot requests alone, then beside cold ones."""
    root, hot, listed = files
    place = servers.new_place(folder)
    running = server.start(root, ports.take(), place, core=SERVER_CORE)
    try:
        process.drop_page_cache()
        ask_once(running.port, hot)
        ask = ["--workload", "uniform", "--paths", listed["hot"], "--rate", str(arguments.rate)]
        alone = load(running.url, arguments.seconds, f"{place}/alone", *ask, first=FIRST)
        before = process.CpuTime(running.process.pid)
        cold = cold_load(running.url, listed["cold"], arguments, f"{place}/cold")
        beside = load(running.url, arguments.seconds, f"{place}/beside", *ask, first=FIRST)
        cold.wait(120)
        spent_ns, _ = process.cpu_between(before, process.CpuTime(running.process.pid))
        level = level_of(f"{place}/cold")
    finally:
        running.stop()
    return {"alone": alone["latency"], "beside": beside["latency"], "counts": beside["counts"], "cold": level["latency"],
            "cold_counts": level["counts"], "cold_per_s": level["answered_per_s"],
            "cpu_us": spent_ns / 1000 / max(1, level["counts"]["answered"])}


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    register_ways()
    ports = servers.Ports()
    kind = "cold-ways" if any(name in WAYS for name in arguments.servers.split(",")) else "cold"
    with results.kept(kind, "Cold requests on a disk without a limit", arguments, servers.flash_binary()) as (result, folder):
        available, skipped = servers.choose(arguments.servers.split(","))
        result.data["skipped"].update(skipped)
        root = os.path.join(folder, "root")
        hot = [f"/hot/{number:04}" for number in range(HOT)]
        cold = [f"/{number // 100:06}/{number % 100:04}" for number in range(arguments.cold_files)]
        write_files(root, hot + cold, [arguments.size_bytes] * (len(hot) + len(cold)))
        listed = {name: os.path.join(folder, name) for name in ("hot", "cold")}
        for name, paths in (("hot", hot), ("cold", cold)):
            list_paths(listed[name], paths, [arguments.size_bytes] * len(paths))
        rounds = {server.name: [] for server in available}
        for _ in range(arguments.rounds):
            for server in available:
                rounds[server.name].append(measure(server, arguments, (root, hot, listed), folder, ports))
        result.data["rounds"] = rounds
        for name, found in rounds.items():
            median = lambda part: results.median([part(figures) for figures in found])
            result.say(f"{name}: {median(lambda f: f['cold_per_s']):.0f} cold files/s, p50 {median(lambda f: f['cold']['p50_ms']):.1f} ms, "
                       f"{median(lambda f: f['cpu_us']):.0f} us of CPU time each with the hot ones; hot p50 "
                       f"{median(lambda f: f['alone']['p50_ms']):.3f} ms alone, {median(lambda f: f['beside']['p50_ms']):.3f} beside; p99 "
                       f"{median(lambda f: f['alone']['p99_ms']):.3f} and {median(lambda f: f['beside']['p99_ms']):.3f} ms")


if __name__ == "__main__":
    main()
