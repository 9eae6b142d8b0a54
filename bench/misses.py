#!/usr/bin/env python3
"""How often a server reads from the disk: reads for each 1,000 answers, in a bounded memory.

The SPECweb99 set of 3 GB in 512 MiB, page cache included; requests at a rate that every server can do, on a disk that
is not slowed down. So the figure depends on what is kept in memory, hardly on how fast or busy the machine is. See
bench/README.md.
"""

import argparse
import json
import os
import subprocess
import tempfile

from common import cgroups, process, results, servers

MEMORY_BYTES = 512 << 20
SERVER_CORE, LOAD_CORE = 0, 1
FILES = os.path.join(servers.REPOSITORY, "bench", ".cache", "specweb99")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default="flash,nginx,apache", help="which, by commas (default: %(default)s)")
    parser.add_argument("--rate", type=int, default=3000, help="requests a second (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=30, help="of a window (default: %(default)s)")
    parser.add_argument("--windows", type=int, default=5, help="the first fill the memory (default: %(default)s)")
    parser.add_argument("--files", default=os.environ.get("FLASH_BENCH_FILES", FILES), help="a set of `flash fileset`")
    parser.add_argument("--note", default="", help="what is special about it, such as the build in FLASH")
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


def load(url, arguments, seed, out):
    """Makes the requests of a window; gives how many were answered."""
    command = ["taskset", "-c", str(LOAD_CORE), servers.flash_binary(), "load", url, "--workload", "specweb99",
               "--files", arguments.files, "--rate", str(arguments.rate), "--duration", f"{arguments.seconds}s",
               "--warm-up", "0s", "--seed", str(seed), "--out", out]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise servers.Unavailable(f"the load generator failed: {done.stderr.strip()[-300:]}")
    with open(os.path.join(out, "run.json")) as file:
        level = json.load(file)["subjects"][0]["levels"][0]
    return round(level["answered_per_s"] * arguments.seconds)


def measure(server, arguments, folder, port, result):
    """The windows of one server, from an empty page cache on."""
    place = tempfile.mkdtemp(dir=folder)
    os.chmod(place, 0o755)
    result.hide(place, "$CONF")
    cgroups.drop_page_cache()
    with cgroups.make(f"flash-bench-{os.getpid()}", arguments.files, MEMORY_BYTES) as testbed:
        running = server.start(arguments.files, port, place, core=SERVER_CORE, cgroups=testbed.groups)
        try:
            result.data["servers"][server.name] = {
                "version": server.version(), "note": server.note, "command": result.clean(" ".join(running.argv))}
            for number in range(1, arguments.windows + 1):
                reads, read_bytes = testbed.reads()
                answers = load(running.url, arguments, number, os.path.join(place, str(number)))
                reads, read_bytes = testbed.reads()[0] - reads, testbed.reads()[1] - read_bytes
                yield {"server": server.name, "window": number, "answers": answers, "reads": reads,
                       "read_bytes": read_bytes, "held_bytes": testbed.anonymous()}
        finally:
            running.stop()


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    process.raise_descriptor_limit()
    chosen, skipped = servers.choose(arguments.servers.split(","))
    settings = {"rate_per_s": arguments.rate, "window_s": arguments.seconds, "memory_bytes": MEMORY_BYTES,
                "note": arguments.note}
    result = results.Result("misses", settings)
    result.data["skipped"].update(skipped)
    result.hide(arguments.files, "$ROOT")
    if "flash" not in skipped and "flash" in arguments.servers:
        result.hide(servers.flash_binary(), "flash")
    result.heading(f"Reads of the disk for each 1,000 answers, {arguments.rate} requests/s, "
                   f"windows of {arguments.seconds} s")
    if arguments.note:
        result.say(arguments.note)
    result.say(f"{'server':<18}{'window':>7}{'answers':>9}{'reads':>8}{'per 1,000':>11}{'KiB each':>10}"
               f"{'held MiB':>10}")
    ports = servers.Ports()
    with tempfile.TemporaryDirectory(prefix="flash-bench-") as folder:
        os.chmod(folder, 0o755)
        for server in chosen:
            try:
                for found in measure(server, arguments, folder, ports.take(), result):
                    result.data["rounds"].append(found)
                    result.say(f"{found['server']:<18}{found['window']:>7}{found['answers']:>9}{found['reads']:>8}"
                               f"{1000 * found['reads'] / max(1, found['answers']):>11.1f}"
                               f"{found['read_bytes'] / 1024 / max(1, found['reads']):>10.0f}"
                               f"{found['held_bytes'] / 2**20:>10.1f}")
            except (servers.Unavailable, cgroups.Impossible, OSError) as why:
                result.data["skipped"][server.name] = str(why)
    result.say()
    result.say_servers()
    if not arguments.no_keep:
        result.keep()


if __name__ == "__main__":
    main()
