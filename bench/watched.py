#!/usr/bin/env python3
"""What it costs a server to be watched: by `flash trace`, `perf trace -s` and `strace -c`, and by nobody.

The server runs alone on core 0, wrk and who watches on core 1. For one file in memory: CPU time of the server's process
tree per answer, answers per second, and how many events `flash trace` lost. Rounds in turn; medians. Full load is the
worst case: a server that waits makes fewer calls. See bench/README.md; needs root and wrk, and perf and strace for theirs.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time

import cpu
from common import process, results, servers

WATCHERS = ["nobody", "flash trace", "perf trace", "strace"]
# Who watches needs so long to begin.
BEGIN_S = 1


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=3, help="of each run of wrk (default: %(default)s)")
    parser.add_argument("--connections", type=int, default=64, help="of wrk (default: %(default)s)")
    parser.add_argument("--size", default="1k", choices=cpu.SIZES, help="of the file (default: %(default)s)")
    parser.add_argument("--servers", default="nginx,flash", help="by commas (default: %(default)s)")
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


def watch(watcher, pid, trace):
    """Starts who watches a process and its children; None for nobody."""
    pids = process.tree(pid)
    argv = {
        "nobody": None,
        "flash trace": [servers.flash_binary(), "trace", str(pid), "--json", trace],
        "perf trace": ["perf", "trace", "-s", "-o", "/dev/null", "-p", ",".join(map(str, pids))],
        "strace": ["strace", "-f", "-c", "-o", "/dev/null", *[word for each in pids for word in ("-p", str(each))]],
    }[watcher]
    if argv is None:
        return None
    argv[0] = servers.find(argv[0])
    watching = process.start(argv, core=cpu.LOAD_CORE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(BEGIN_S)
    if watching.poll() is not None:
        raise servers.Unavailable(f"{watcher} ended with {watching.returncode}")
    return watching


def run_one(running, watcher, arguments, folder):
    """One run of wrk while somebody watches."""
    trace = os.path.join(folder, "trace.json")
    watching = watch(watcher, running.process.pid, trace)
    try:
        before = process.CpuTime(running.process.pid)
        url = f"{running.url}/{arguments.size}"
        answers, per_s, errors = cpu.run_wrk(url, arguments.connections, arguments.seconds)
        spent_ns, source = process.cpu_between(before, process.CpuTime(running.process.pid))
        if watching:
            watching.send_signal(signal.SIGINT)
            watching.wait(60)
    finally:
        if watching:
            process.stop(watching)
    if errors or not spent_ns:
        raise servers.Unavailable(errors or source)
    found = {"cpu_us": spent_ns / 1000 / answers, "answers_per_s": per_s}
    if watcher == "flash trace":
        with open(trace) as file:
            read = json.load(file)
        found["lost_share"] = read["missing"]["events_lost"] / max(1, 2 * sum(call["count"] for call in read["calls"]))
    return found


def say(result, names):
    """The table: medians over the rounds, and ratios to nobody's."""
    result.say(f"{'':<12}{'watched by':<14}{'CPU us':>9}{'ratio':>8}{'answers/s':>12}{'ratio':>8}{'lost':>8}")
    for name in names:
        for watcher in WATCHERS:
            rows = [row for row in result.data["rounds"] if (row["server"], row["watcher"]) == (name, watcher)]
            nobody = {row["round"]: row for row in result.data["rounds"]
                      if (row["server"], row["watcher"]) == (name, "nobody")}
            if not rows:
                continue

            def median(field, rows=rows):
                return statistics.median(row[field] for row in rows)

            def ratio(field, rows=rows, nobody=nobody):
                return statistics.median(row[field] / nobody[row["round"]][field] for row in rows)

            lost = results.median([row.get("lost_share") for row in rows])
            result.say(f"{name:<12}{watcher:<14}{median('cpu_us'):>9.2f}{ratio('cpu_us'):>8.2f}"
                       f"{median('answers_per_s'):>12.0f}{ratio('answers_per_s'):>8.2f}{results.cell(lost, '.1%', 8)}")
    result.say()


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    chosen, skipped = servers.choose(arguments.servers.split(","))
    result = results.Result("watched", dict(vars(arguments)))
    result.data["skipped"].update(skipped)
    result.heading(f"A file of {arguments.size} in memory, {arguments.connections} connections, while the server is watched; "
                   f"medians of {arguments.rounds} rounds of {arguments.seconds} s")
    if "flash" not in skipped:
        result.hide(servers.flash_binary(), "flash")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        root, ports = cpu.make_files(folder), servers.Ports()
        result.hide(root, "$ROOT")
        for number in range(arguments.rounds):
            for server in chosen:
                own = tempfile.mkdtemp(dir=folder)
                result.hide(own, "$CONF")
                running = server.start(root, ports.take(), own, core=cpu.SERVER_CORE)
                try:
                    result.data["servers"][server.name] = {"version": server.version(), "note": server.note,
                                                           "command": " ".join(running.argv)}
                    cpu.run_wrk(f"{running.url}/{arguments.size}", arguments.connections, 1)
                    turn = number % len(WATCHERS)
                    for watcher in WATCHERS[turn:] + WATCHERS[:turn]:
                        found = run_one(running, watcher, arguments, folder)
                        result.data["rounds"].append(
                            {"round": number + 1, "server": server.name, "watcher": watcher, **found})
                finally:
                    running.stop()
    say(result, [server.name for server in chosen])
    result.say_servers()
    if not arguments.no_keep:
        result.keep()


if __name__ == "__main__":
    main()
