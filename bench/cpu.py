#!/usr/bin/env python3
"""CPU time per request of Flash, of other servers, and of the floor.

Each server runs alone on core 0, wrk on core 1. CPU time is that of the server's whole process tree
over the run of wrk, divided by the requests that wrk counted. Servers take turns in rounds, so that
a noisy machine hurts all alike; the table has medians. See bench/README.md.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

from common import machine, process, results, servers

SIZES = {"100": 100, "1k": 1024, "10k": 10 * 1024, "100k": 100 * 1024}
DEFAULT_SERVERS = "floor,flash,nginx,h2o,lighttpd,apache,caddy"
SERVER_CORE, LOAD_CORE = 0, 1
# What issue 2 asks of Flash: (size, name of the other server, most it may cost of the other's CPU).
TARGETS = [("1k", "floor", 1.10), ("10k", "floor", 1.10), ("100k", "floor", 1.10), ("1k", "h2o", 1.00),
           ("10k", "h2o", 1.00), ("1k", "nginx", 0.75), ("10k", "nginx", 0.75)]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default=DEFAULT_SERVERS, help="which, by commas (default: %(default)s)")
    parser.add_argument("--sizes", default=",".join(SIZES), help="of files, by commas (default: %(default)s)")
    parser.add_argument("--connections", default="64,512", help="of wrk, by commas (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=4, help="of each run of wrk (default: %(default)s)")
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    arguments = parser.parse_args()
    arguments.sizes = arguments.sizes.split(",")
    arguments.connections = [int(count) for count in arguments.connections.split(",")]
    if unknown := [size for size in arguments.sizes if size not in SIZES]:
        parser.error(f"no size '{unknown[0]}'; there are: {', '.join(SIZES)}")
    if arguments.rounds < 1 or arguments.seconds < 1:
        parser.error("at least one round of one second is needed")
    return arguments


def make_files(folder):
    """The files that are asked for, named by their size."""
    root = os.path.join(folder, "files")
    os.mkdir(root)
    for name, length in SIZES.items():
        with open(os.path.join(root, name), "wb") as file:
            file.write(b"x" * length)
    return root


def run_wrk(url, connections, seconds):
    """Runs wrk; gives requests, requests per second, and what it says of errors."""
    argv = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", url]
    wrk = process.start(argv, core=LOAD_CORE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        text, _ = wrk.communicate(timeout=seconds + 30)
    finally:
        process.stop(wrk)
    requests = re.search(r"(\d+) requests in", text)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    if wrk.returncode != 0 or not requests or not rate:
        raise servers.Unavailable(f"wrk failed: {' '.join(text.split())}")
    errors = re.findall(r"(Socket errors:.*|Non-2xx.*)", text)
    return int(requests[1]), float(rate[1]), "; ".join(" ".join(error.split()) for error in errors)


def measure(running, name, size, connections, seconds):
    """One figure: a short run for warmth, then the run that counts."""
    url = f"{running.url}/{size}"
    run_wrk(url, connections, 1)
    cores_before, own_before = machine.CoreTime((SERVER_CORE, LOAD_CORE)), own_cpu_s()
    before = process.CpuTime(running.process.pid)
    requests, rate, errors = run_wrk(url, connections, seconds)
    after = process.CpuTime(running.process.pid)
    cores_after, own_after = machine.CoreTime((SERVER_CORE, LOAD_CORE)), own_cpu_s()
    spent_ns, source = process.cpu_between(before, after)
    figure = {
        "server": name, "size": size, "connections": connections, "requests": requests, "requests_per_s": rate,
        "cpu_us_per_request": None, "core_used": None, "others_used": None,
        "stolen": (cores_after.steal_s - cores_before.steal_s) / seconds,
        "cpu_source": source, "processes": len(after.ns), "errors": errors,
    }
    if spent_ns is None or requests == 0:
        figure["errors"] = "; ".join(filter(None, [errors, source, f"its log ends: {running.last_words()}"]))
        figure["cpu_source"] = None
        return figure
    foreign_s = cores_after.busy_s - cores_before.busy_s - spent_ns / 1e9 - (own_after - own_before)
    figure["cpu_us_per_request"] = spent_ns / 1000 / requests
    figure["core_used"] = spent_ns / 1e9 / (requests / rate)
    figure["others_used"] = max(foreign_s, 0.0) / seconds
    return figure


def own_cpu_s():
    """CPU seconds of this script and of the children that have ended: wrk, in a measured stretch."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def check_answer(running, size):
    """Refuses a server whose answer is not the file; gives the length of its head."""
    status, fields, body = running.get(f"/{size}")
    if status != 200 or len(body) != SIZES[size]:
        raise servers.Unavailable(f"{running.server.name} answers /{size} with {status}, {len(body)} bytes")
    return sum(len(name) + len(value) + 4 for name, value in fields)


def run_server(server, arguments, place, result):
    """All figures of one server in one round."""
    figures = []
    groups = [[size] for size in arguments.sizes] if server.one_size else [arguments.sizes]
    for sizes in groups:
        folder = tempfile.mkdtemp(dir=place["folder"])
        os.chmod(folder, 0o755)
        root = SIZES[sizes[0]] if server.one_size else place["root"]
        running = server.start(root, place["ports"].take(), folder, core=SERVER_CORE)
        result.hide(folder, "$CONF")
        try:
            about = result.data["servers"].setdefault(server.name, {"version": server.version(), "note": server.note})
            about.setdefault("command", result.clean(" ".join(running.argv)))
            for size in sizes:
                about.setdefault("head_bytes", {})[size] = check_answer(running, size)
                for connections in arguments.connections:
                    figures.append(measure(running, server.name, size, connections, arguments.seconds))
        finally:
            running.stop()
    return figures


def run_rounds(chosen, arguments, place, result):
    """All rounds, the servers in turn, each round beginning with another one."""
    for number in range(arguments.rounds):
        turn = number % len(chosen) if chosen else 0
        for server in chosen[turn:] + chosen[:turn]:
            if server.name in result.data["skipped"]:
                continue
            try:
                figures = run_server(server, arguments, place, result)
            except servers.Unavailable as why:
                result.data["skipped"][server.name] = str(why)
                print(f"{server.name}: skipped: {why}", file=sys.stderr)
                continue
            for figure in figures:
                result.data["rounds"].append({"round": number + 1, **figure})
            shown = ", ".join(f"{f['size']}/{f['connections']} {results.cell(f['cpu_us_per_request'], '.2f', 0)}"
                              for f in figures)
            print(f"round {number + 1}, {server.name}: {shown} us", file=sys.stderr, flush=True)


def medians(result):
    """(server, size, connections) to medians of CPU and rate, and how many rounds there are."""
    grouped = {}
    for figure in result.data["rounds"]:
        grouped.setdefault((figure["server"], figure["size"], figure["connections"]), []).append(figure)
    return {
        key: {name: results.median([figure[name] for figure in figures])
              for name in ("cpu_us_per_request", "requests_per_s", "core_used")}
        for key, figures in grouped.items()
    }


def say_table(result, arguments, table, names):
    """CPU per request with its ratio to the floor, and requests per second, by connections."""
    for connections in arguments.connections:
        result.say(f"{connections} connections: CPU us per request (ratio to the floor), requests/s")
        result.say(f"{'':<18}" + "".join(f"{size:>28}" for size in arguments.sizes))
        for name in names:
            line = f"{name:<18}"
            for size in arguments.sizes:
                found, floor = table.get((name, size, connections)), table.get(("floor", size, connections))
                if not found or found["cpu_us_per_request"] is None:
                    line += f"{'-':>28}"
                    continue
                cost = found["cpu_us_per_request"]
                base = floor and floor["cpu_us_per_request"]
                ratio = f"({cost / base:.2f})" if base else ""
                line += f"{cost:>10.2f} {ratio:>7}{found['requests_per_s']:>10.0f}"
            result.say(line)
        result.say()


def say_targets(result, arguments, table):
    """What issue 2 asks of Flash, where the figures for it are there."""
    lines = []
    for connections in arguments.connections:
        for size, other, most in TARGETS:
            ours, theirs = table.get(("flash", size, connections)), table.get((other, size, connections))
            costs = [found and found["cpu_us_per_request"] for found in (ours, theirs)]
            if all(costs):
                ratio = costs[0] / costs[1]
                verdict = "met" if ratio <= most else "MISSED"
                lines.append(f"flash / {other} at {size}, {connections} connections: "
                             f"{ratio:.2f}, asked for at most {most:.2f}: {verdict}")
    for line in lines:
        result.say(line)
    if lines:
        result.say()


def say_all(result, arguments, names):
    """The whole text of the result."""
    table = medians(result)
    result.heading("CPU time per request")
    say_table(result, arguments, table, names)
    say_targets(result, arguments, table)
    sources = sorted({figure["cpu_source"] for figure in result.data["rounds"]} - {None})
    result.say(f"medians of {arguments.rounds} rounds of {arguments.seconds} s; CPU time from "
               f"{' and '.join(sources) or 'nowhere'} over the process tree; server on core {SERVER_CORE}, "
               f"wrk -t1 on core {LOAD_CORE}")
    spans = [figure["core_used"] for figure in result.data["rounds"] if figure["core_used"]]
    if spans and min(spans) < 0.9:
        result.say(f"the servers' core was used to {min(spans) * 100:.0f} % at the least: there wrk was the limit of "
                   "requests/s, and a server that waits more often costs more a request")
    others = [figure["others_used"] + figure["stolen"] for figure in result.data["rounds"]
              if figure["others_used"] is not None]
    if others:
        disturbed = sum(share > 0.05 for share in others)
        result.say(f"other work on the two cores, as a share of one: median {results.median(others) * 100:.1f} %, "
                   f"most {max(others) * 100:.0f} %; {disturbed} of {len(others)} runs had more than 5 %"
                   + (": measure again on a quiet machine" if disturbed > len(others) / 10 else ""))
    result.say_servers()
    for figure in result.data["rounds"]:
        if figure["errors"]:
            result.say(f"round {figure['round']}, {figure['server']}, {figure['size']}, "
                       f"{figure['connections']} connections: {figure['errors']}")
    result.data["medians"] = [
        {"server": name, "size": size, "connections": connections, **found}
        for (name, size, connections), found in table.items()
    ]


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    if not shutil.which("wrk"):
        raise SystemExit("error: wrk is not installed; on Debian: apt-get install wrk")
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("error: a server and its load need two cores, and this machine gives one")
    servers.prepare(arguments)
    process.raise_descriptor_limit()
    names = arguments.servers.split(",")
    chosen, skipped = servers.choose(names)
    result = results.Result("cpu", {"rounds": arguments.rounds, "seconds": arguments.seconds, "sizes": arguments.sizes,
                                    "connections": arguments.connections, "flash_arguments":
                                    os.environ.get("FLASH_BENCH_ARGS", "")})
    result.data["skipped"].update(skipped)
    if machine.load_average() > 0.5:
        print(f"warning: load average {machine.load_average():.2f}: others disturb the figures", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="flash-bench-") as folder:
        os.chmod(folder, 0o755)
        root = make_files(folder)
        result.hide(root, "$ROOT")
        if "flash" not in skipped:
            try:
                result.hide(servers.flash_binary(), "flash")
            except servers.Unavailable:
                pass
        run_rounds(chosen, arguments, {"folder": folder, "root": root, "ports": servers.Ports()}, result)
        say_all(result, arguments, names)
    if not arguments.no_keep:
        result.keep()


if __name__ == "__main__":
    main()
