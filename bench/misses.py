#!/usr/bin/env python3
"""How often a server reads from the disk: reads for each 1,000 answers, in a bounded memory.

Requests for a set of files that is larger than the memory, page cache included, at a rate that every server can do, on
a disk that is not slowed down. So the figures depend on what is kept in memory, hardly on how fast or busy the machine
is. Windows follow each other: the first ones fill the memory. See bench/README.md.
"""

import argparse
import itertools
import os
import tempfile

from common import flash, process, results, servers

SERVER_CORE = 0
FILES = os.path.join(servers.REPOSITORY, "bench", ".cache", "specweb99")
# A bound that no disk reaches: the control group counts reads only if they are bounded.
READS_PER_S = 1_000_000


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--servers", default="flash,nginx", help="which, by commas" + default)
    parser.add_argument("--memory-mib", type=int, default=512, help="of the server, with its page cache" + default)
    parser.add_argument("--rate", type=int, default=3000, help="requests/s" + default)
    parser.add_argument("--seconds", type=int, default=30, help="of a window" + default)
    parser.add_argument("--windows", type=int, default=10, help="of a round" + default)
    parser.add_argument("--rounds", type=int, default=3, help="of each server, with other requests each" + default)
    parser.add_argument("--files", default=os.environ.get("FLASH_BENCH_FILES", FILES), help="a set of `flash fileset`")
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


def reads_of(pid):
    """How many reads, and of how many bytes, the control group of a process has made: cgroups 2, or 1."""
    with open(f"/proc/{pid}/cgroup") as file:
        groups = {names: path for _, names, path in (line.strip().split(":", 2) for line in file)}
    found = next((path for names, path in groups.items() if "blkio" in names.split(",")), None)
    if found is None:
        with open(f"/sys/fs/cgroup{groups['']}/io.stat") as file:
            fields = [dict(word.split("=") for word in line.split()[1:]) for line in file]
        return sum(int(it["rios"]) for it in fields), sum(int(it["rbytes"]) for it in fields)
    totals = []
    for name in ("io_serviced", "io_service_bytes"):
        with open(f"/sys/fs/cgroup/blkio{found}/blkio.throttle.{name}") as file:
            totals.append(sum(int(line.split()[2]) for line in file if " Read " in line))
    return tuple(totals)


def measure(server, arguments, folder, port, result, of_round):
    """The windows of one server in one round, from an empty page cache on."""
    place = servers.new_place(folder)
    result.hide(place, "$CONF")
    process.drop_page_cache()
    testbed = [servers.flash_binary(), "testbed", "misses", "--memory", f"{arguments.memory_mib}MiB", "--reads",
               str(READS_PER_S), "--files", arguments.files, "--core", str(SERVER_CORE), "--"]
    inside = servers.Server(server.name, lambda *about: [*testbed, *server.command(*about)], server.version_command)
    running = inside.start(arguments.files, port, place)
    try:
        result.note_server(server, running)
        # The server, not one of its children, which may end soon.
        member = process.tree(running.process.pid)[1]
        for number in range(1, arguments.windows + 1):
            reads, read_bytes = reads_of(member)
            seed = str(arguments.windows * (of_round - 1) + number)
            level = flash.load(running.url, arguments.seconds, os.path.join(place, str(number)), "--workload", "specweb99",
                               "--files", arguments.files, "--rate", str(arguments.rate), "--seed", seed)
            answers = round(level["answered_per_s"] * arguments.seconds)
            now_reads, now_bytes = reads_of(member)
            yield {"server": server.name, "round": of_round, "window": number, "answers": answers,
                   "reads": now_reads - reads, "read_bytes": now_bytes - read_bytes}
    finally:
        running.stop()


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    process.raise_descriptor_limit()
    chosen, skipped = servers.choose(arguments.servers.split(","))
    settings = {"rate_per_s": arguments.rate, "window_s": arguments.seconds, "rounds": arguments.rounds,
                "memory_bytes": arguments.memory_mib << 20}
    result = results.Result("misses", settings)
    result.data["skipped"].update(skipped)
    result.hide(arguments.files, "$ROOT")
    result.hide(servers.flash_binary(), "flash")
    result.heading(f"Reads of the disk for each 1,000 answers, {arguments.rate} requests/s, "
                   f"windows of {arguments.seconds} s, {arguments.memory_mib} MiB")
    result.say(f"{'server':<18}{'round':>6}{'window':>7}{'answers':>9}{'reads':>8}{'per 1,000':>11}{'KiB each':>10}")
    ports = servers.Ports()
    with tempfile.TemporaryDirectory(prefix="flash-bench-") as folder:
        os.chmod(folder, 0o755)
        for of_round, server in itertools.product(range(1, arguments.rounds + 1), chosen):
            try:
                for found in measure(server, arguments, folder, ports.take(), result, of_round):
                    result.data["rounds"].append(found)
                    result.say(f"{found['server']:<18}{found['round']:>6}{found['window']:>7}{found['answers']:>9}{found['reads']:>8}"
                               f"{1000 * found['reads'] / max(1, found['answers']):>11.1f}"
                               f"{found['read_bytes'] / 1024 / max(1, found['reads']):>10.0f}")
            except (servers.Unavailable, OSError) as why:
                result.data["skipped"][server.name] = str(why)
    result.say()
    result.say_servers()
    if not arguments.no_keep:
        result.keep()


if __name__ == "__main__":
    main()
