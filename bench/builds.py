#!/usr/bin/env python3
"""CPU time per request of several builds or settings of Flash, to a percent or so.

All run at once on one core, of which one at a time is loaded for a short while, in turn, many times over:
what else the machine does hits all alike. The figure is the median of the ratios to the first one within
each round, with the middle half of them. See bench/README.md.

    bench/builds.py 'before=/path/to/flash' 'now=target/release/flash' 'off=target/release/flash --sandbox off'
"""

import argparse
import os
import shlex
import statistics
import tempfile
import time

import cpu
from common import process, results, servers


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("builds", nargs="+", metavar="NAME=PROGRAM [OPTIONS]", help="what is compared to the first")
    parser.add_argument("--sizes", default="1k,10k", help="of the file, by commas" + default)
    parser.add_argument("--connections", type=int, default=64, help=default)
    parser.add_argument("--rounds", type=int, default=40, help=default)
    parser.add_argument("--seconds", type=int, default=1, help="of each run" + default)
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


def build(text):
    """A server from `NAME=PROGRAM [OPTIONS]`."""
    name, _, rest = text.partition("=")
    words = shlex.split(rest)
    if not words or not os.access(words[0], os.X_OK):
        raise SystemExit(f"error: {text!r} names no program: write NAME=PROGRAM [OPTIONS]")
    command = lambda root, port, folder: [
        os.path.abspath(words[0]), "serve", root, "--listen", f"127.0.0.1:{port}", "--workers", "1", *words[1:]]
    return servers.Server(name, command, lambda: [words[0], "--version"])


def load(running, size, arguments):
    """CPU microseconds per request of one short run."""
    before = process.CpuTime(running.process.pid)
    requests, _, errors = cpu.run_wrk(f"{running.url}/{size}", arguments.connections, arguments.seconds)
    spent_ns, source = process.cpu_between(before, process.CpuTime(running.process.pid))
    if errors or not spent_ns or not requests:
        raise servers.Unavailable(errors or source)
    return spent_ns / 1000 / requests


def measure(started, size, arguments, result):
    """The rounds of one size, and a line for each build."""
    for running in started:
        cpu.check_answer(running, size)
    rounds = []
    for number in range(arguments.rounds):
        # Whoever comes first differs from round to round.
        order = started[number % len(started):] + started[:number % len(started)]
        rounds.append({running.server.name: load(running, size, arguments) for running in order})
        result.data["rounds"].append({"size": size, "cpu_us_per_request": rounds[-1]})
    first = started[0].server.name
    for running in started:
        name = running.server.name
        ratios = [figures[name] / figures[first] for figures in rounds]
        low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        us = statistics.median(figures[name] for figures in rounds)
        result.say(f"{size:<6}{name:<12}{us:>8.2f} us{middle:>10.3f}   ({low:.3f} to {high:.3f})")


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    process.clean_up_when_ended()
    os.sched_setaffinity(0, {cpu.LOAD_CORE} & os.sched_getaffinity(0) or os.sched_getaffinity(0))
    builds = [build(text) for text in arguments.builds]
    settings = {name: value for name, value in vars(arguments).items() if name != "builds"}
    result = results.Result("builds", settings)
    result.heading(f"CPU time per request, {arguments.connections} connections, {arguments.rounds} rounds "
                   f"of {arguments.seconds} s")
    ports, started = servers.Ports(), []
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        root = cpu.make_files(folder)
        result.hide(root, "$ROOT")
        try:
            for server in builds:
                place = tempfile.mkdtemp(dir=folder)
                result.hide(os.path.dirname(server.command("", 0, "")[0]), "$PROGRAMS")
                started.append(server.start(root, ports.take(), place, core=cpu.SERVER_CORE))
                result.data["servers"][server.name] = {
                    "version": server.version(), "note": "", "command": result.clean(" ".join(started[-1].argv))}
            time.sleep(1)
            result.say(f"{'file':<6}{'build':<12}{'median':>11}{'ratio':>10}   (middle half of the ratios)")
            for size in arguments.sizes.split(","):
                measure(started, size, arguments, result)
            for running in started:
                result.say(result.clean(f"{running.server.name}: {' '.join(running.argv)}"))
        finally:
            for running in started:
                running.stop()
    if not arguments.no_keep:
        result.keep()


main()
