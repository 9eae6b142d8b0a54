#!/usr/bin/env python3
"""What the load generator itself can do, against the floor: one thread of it on a core, `flash floor` on another.

Requests a second on kept connections, in a closed and an open loop; connections at once; connections made and closed;
and how precise slow readers are. wrk does the first for comparison. See bench/README.md.
"""

import argparse
import os
import subprocess
import tempfile

from common import process, results, servers

SERVER_CORE, LOAD_CORE = 0, 1
BODY_BYTES = {"small": 100, "slow": 10_240}
# Name, file, and what the example `load_speed` is told: mode and amount.
RUNS = [
    ("closed loop, 64 clients", "small", "closed", 64),
    ("closed loop, 1,000 clients", "small", "closed", 1000),
    ("closed loop, connections up to the limit", "small", "closed", 19_900),
    ("open loop, 60,000 requests/s", "small", "open", 60_000),
    ("5 requests a connection, 20,000 requests/s", "small", "churn", 20_000),
    ("300 slow readers", "slow", "slow", 300),
    ("1,000 slow readers", "slow", "slow", 1000),
]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=5, help="of each run (default: %(default)s)")
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


def example():
    """The program that drives the generator."""
    return os.path.join(servers.REPOSITORY, "target", "release", "examples", "load_speed")


def build():
    """Builds it."""
    command = ["cargo", "build", "--release", "-p", "flash-load", "--example", "load_speed"]
    if subprocess.run(command, cwd=servers.REPOSITORY, check=False).returncode != 0:
        raise SystemExit(f"error: `{' '.join(command)}` failed")


def run(command):
    """What a load generator on its core says."""
    pinned = ["taskset", "-c", str(LOAD_CORE), *command]
    done = subprocess.run(pinned, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout.strip().splitlines() + ([] if done.returncode == 0 else [f"failed: exit {done.returncode}"])


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    if not arguments.no_build:
        build()
    process.raise_descriptor_limit()
    result = results.Result("generator", {"seconds": arguments.seconds})
    result.hide(servers.flash_binary(), "flash")
    result.hide(example(), "load_speed")
    result.heading("The load generator against the floor")
    floor, ports = servers.SERVERS["floor"], servers.Ports()
    with tempfile.TemporaryDirectory(prefix="flash-bench-") as folder:
        for kind, body_bytes in BODY_BYTES.items():
            running = floor.start(body_bytes, ports.take(), folder, core=SERVER_CORE)
            try:
                url = f"http://127.0.0.1:{running.port}/file"
                runs = [(name, [example(), url, str(body_bytes), mode, str(amount), str(arguments.seconds)])
                        for name, of, mode, amount in RUNS if of == kind]
                if kind == "small":
                    wrk = ["wrk", "-t1", "-c64", f"-d{arguments.seconds}s", "--latency", url]
                    runs.append(("wrk, 64 connections", wrk))
                for name, command in runs:
                    said = run(command)
                    command_line = result.clean(" ".join(command))
                    result.data["rounds"].append({"run": name, "command": command_line, "said": said})
                    result.say(f"{name}, files of {body_bytes} bytes")
                    for line in said:
                        result.say(f"  {line.strip()}")
            finally:
                running.stop()
    if not arguments.no_keep:
        result.keep()


if __name__ == "__main__":
    main()
