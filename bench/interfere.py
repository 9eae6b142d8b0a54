#!/usr/bin/env python3
"""What cold requests do to hot ones, for Flash and other servers: the test at the head of DESIGN.md.

One core, bounded memory, a disk held to so many reads a second. Hot requests are for files that
another process has locked in memory, cold ones for files that nobody has read. `flash interfere`
loads the server from another core. Servers take turns in rounds; the table has medians. Needs root
and cgroups; where there are none it says so and measures nothing. See bench/README.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from common import cgroups, machine, process, results, servers

HERE = os.path.dirname(os.path.abspath(__file__))
DEFAULT_SERVERS = "flash,nginx,nginx-aio,h2o,lighttpd,apache,apache-2048,caddy"
SERVER_CORE, LOAD_CORE = 0, 1
# What issue 2 asks of Flash: hot latency with the cold load, as a multiple of that without it.
P50_RATIO_MAX, P99_RATIO_MAX = 1.1, 1.5
# From this share of its limit on, the disk counts as busy at its limit.
BUSY_SHARE = 0.9


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--servers", default=DEFAULT_SERVERS, help="which, by commas" + default)
    files = os.environ.get("FLASH_BENCH_FILES", os.path.join(HERE, ".cache/specweb99"))
    parser.add_argument("--files", default=files, help="of the file set; on a real disk" + default)
    parser.add_argument("--size", default="3GB", help="of the file set" + default)
    parser.add_argument("--memory-mib", type=int, default=512, help="of a server with its page cache" + default)
    parser.add_argument("--reads-per-s", type=int, default=150, help="that the disk is held to" + default)
    parser.add_argument("--hot-rate", type=int, default=4000, help="requests/s" + default)
    parser.add_argument("--hot-dirs", type=int, default=20, help="directories" + default)
    parser.add_argument("--hot-mix", default="specweb99", choices=["specweb99", "small"], help=default)
    parser.add_argument("--cold-rates", default="60,200", help="requests/s, by commas" + default)
    parser.add_argument("--rounds", type=int, default=3, help=default)
    parser.add_argument("--seconds", type=int, default=20, help="of each phase" + default)
    parser.add_argument("--drain-seconds", type=int, default=30, help="to wait for the last answers" + default)
    parser.add_argument("--verify", action="store_true", help="check every byte")
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    arguments = parser.parse_args()
    arguments.cold_rates = [int(rate) for rate in arguments.cold_rates.split(",")]
    arguments.files = os.path.abspath(arguments.files)
    if arguments.rounds < 1 or arguments.seconds < 4:
        parser.error("at least one round of four seconds is needed")
    return arguments


def make_files(arguments):
    """Makes the file set, or sees that it is whole; gives how many directories it has."""
    argv = [servers.flash_binary(), "fileset", "specweb99", arguments.files, "--size", arguments.size]
    if subprocess.run(argv, check=False).returncode != 0:
        raise SystemExit(f"error: there is no file set in {arguments.files}; see --files")
    return sum(name.startswith("dir") for name in os.listdir(arguments.files))


class HotLock:
    """The process that keeps the hot files in memory while this stands."""

    def __init__(self, folder, directories):
        argv = [sys.executable, os.path.join(HERE, "lock_hot.py"), folder, str(directories)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        start_new_session=True)
        said = self.process.stdout.readline()
        if not said.startswith("locked"):
            raise SystemExit("error: the hot files can't be locked in memory; without that the test means nothing")
        self.locked_bytes = int(said.split()[1])
        self.check()

    def check(self):
        """Refuses to go on when the kernel does not hold the pages."""
        with open(f"/proc/{self.process.pid}/status") as file:
            held = next(int(line.split()[1]) for line in file if line.startswith("VmLck:")) * 1024
        if held < self.locked_bytes:
            raise SystemExit(f"error: of {self.locked_bytes} hot bytes only {held} are locked in memory")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def interfere(arguments, running, phase, seconds, seed, disk_name, cold=None):
    """Runs one phase of `flash interfere`; gives its JSON, the disk's reads/s meanwhile, and how it was run."""
    with tempfile.NamedTemporaryFile(suffix=".json") as kept:
        argv = [servers.flash_binary(), "interfere", running.url, "--phase", phase, "--seconds", str(seconds),
                "--hot-dirs", str(arguments.hot_dirs), "--hot-rate", str(arguments.hot_rate),
                "--hot-mix", arguments.hot_mix, "--drain-seconds", str(arguments.drain_seconds),
                "--seed", str(seed), "--json", kept.name]
        if cold:
            argv += ["--cold-rate", str(cold["rate"]), "--cold-dirs", f"{arguments.hot_dirs}..{cold['directories']}"]
        if arguments.verify:
            argv.append("--verify")
        load = process.start(argv, core=LOAD_CORE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            reads_per_s = sample_reads(disk_name, load, seconds)
            text, _ = load.communicate(timeout=seconds + 3 * arguments.drain_seconds + 60)
        finally:
            process.stop(load)
        if load.returncode != 0:
            raise servers.Unavailable(text.strip())
        answer = json.load(kept)["phases"][0]
    argv[argv.index(kept.name)] = "FILE"
    return answer, reads_per_s, argv


def sample_reads(disk_name, load, seconds):
    """Reads/s of the disk in the middle of a phase: from 20 % to 90 % of it."""
    time.sleep(seconds * 0.2)
    start, before = time.monotonic(), cgroups.disk_reads(disk_name)
    time.sleep(seconds * 0.7)
    reads, passed_s = cgroups.disk_reads(disk_name) - before, time.monotonic() - start
    return reads / passed_s if load.poll() is None else None


def measure(server, arguments, cold_rate, number, place, result):
    """One server at one cold rate in one round."""
    folder = tempfile.mkdtemp(dir=place["folder"])
    os.chmod(folder, 0o755)
    result.hide(folder, "$CONF")
    cgroups.drop_page_cache()
    place["lock"].check()
    place["count"] += 1
    name = f"flash-bench-{os.getpid()}-{place['count']}"
    with cgroups.make(name, arguments.files, arguments.memory_mib << 20) as testbed:
        running = server.start(arguments.files, place["ports"].take(), folder, core=SERVER_CORE, cgroups=testbed.groups)
        try:
            about = result.data["servers"].setdefault(server.name, {"version": server.version(), "note": server.note})
            about.setdefault("command", result.clean(" ".join(running.argv)))
            disk = testbed.disk_name
            interfere(arguments, running, "alone", 2, number, disk)
            testbed.throttle(arguments.reads_per_s)
            alone, reads_alone_per_s, _ = interfere(arguments, running, "alone", arguments.seconds, number, disk)
            cold = {"rate": cold_rate, "directories": place["directories"]}
            with_cold, reads_per_s, argv = interfere(arguments, running, "cold", arguments.seconds, number, disk, cold)
            used_bytes = testbed.memory_used()
        finally:
            # The bound first: a server in the middle of its reads would end slowly.
            testbed.throttle(0)
            running.stop()
    result.data["load_command"] = result.clean(" ".join(argv)).replace(running.url, "http://127.0.0.1:PORT")
    return {"round": number, "server": server.name, "cold_rate_per_s": cold_rate, "alone": alone,
            "with_cold": with_cold, "disk_reads_per_s": reads_per_s,
            "disk_reads_alone_per_s": reads_alone_per_s, "memory_used_bytes": used_bytes}


def run_rounds(chosen, arguments, place, result):
    """All rounds, the servers in turn, each round beginning with another one."""
    for number in range(1, arguments.rounds + 1):
        turn = (number - 1) % len(chosen)
        for cold_rate in arguments.cold_rates:
            for server in chosen[turn:] + chosen[:turn]:
                if server.name in result.data["skipped"]:
                    continue
                try:
                    found = measure(server, arguments, cold_rate, number, place, result)
                except servers.Unavailable as why:
                    result.data["skipped"][server.name] = str(why)
                    print(f"{server.name}: skipped: {why}", file=sys.stderr)
                    continue
                result.data["rounds"].append(found)
                alone, with_cold = found["alone"]["hot"]["latency"], found["with_cold"]["hot"]["latency"]
                print(f"round {number}, {cold_rate} cold/s, {server.name}: hot p50 {alone['p50_ms']:.3f} -> "
                      f"{with_cold['p50_ms']:.3f} ms, p99 {alone['p99_ms']:.3f} -> {with_cold['p99_ms']:.3f} ms, "
                      f"{found['disk_reads_per_s'] or 0:.0f} reads/s", file=sys.stderr, flush=True)


def medians(rounds):
    """The medians of the figures of one server at one cold rate."""
    def of(get):
        return results.median([get(found) for found in rounds])

    table = {f"{phase}_{point}": of(lambda f, a=phase, b=point: f[a]["hot"]["latency"][b])
             for phase in ("alone", "with_cold") for point in ("p50_ms", "p99_ms", "p999_ms", "max_ms")}
    table["p50_ratio"] = table["with_cold_p50_ms"] / table["alone_p50_ms"]
    table["p99_ratio"] = table["with_cold_p99_ms"] / table["alone_p99_ms"]
    table["cold_p50_ms"] = of(lambda f: f["with_cold"]["cold"]["latency"]["p50_ms"])
    table["cold_p99_ms"] = of(lambda f: f["with_cold"]["cold"]["latency"]["p99_ms"])
    table["cold_answered_per_s"] = of(lambda f: f["with_cold"]["cold"]["answered_per_s"])
    table["cold_failed"] = of(lambda f: f["with_cold"]["cold"]["failed"])
    table["hot_failed"] = of(lambda f: f["with_cold"]["hot"]["failed"])
    table["disk_reads_per_s"] = of(lambda f: f["disk_reads_per_s"])
    return table


COLUMNS = [
    ("p50 alone", "alone_p50_ms", ".3f"), ("with cold", "with_cold_p50_ms", ".3f"), ("ratio", "p50_ratio", ".2f"),
    ("p99 alone", "alone_p99_ms", ".3f"), ("with cold", "with_cold_p99_ms", ".3f"), ("ratio", "p99_ratio", ".2f"),
    ("p99.9 c.", "with_cold_p999_ms", ".3f"), ("failed", "hot_failed", ".0f"), ("| cold p50", "cold_p50_ms", ".1f"),
    ("cold p99", "cold_p99_ms", ".1f"), ("cold/s", "cold_answered_per_s", ".1f"), ("failed", "cold_failed", ".0f"),
    ("| reads/s", "disk_reads_per_s", ".0f"),
]


def say_rate(result, arguments, cold_rate, names):
    """The table of one cold rate, and what issue 2 asks of Flash there."""
    result.say(f"{arguments.hot_rate} hot and {cold_rate} cold requests/s; "
               "ms of hot requests, of cold ones; reads of the disk")
    result.say(f"{'':<14}" + "".join(f"{title:>11}" for title, _, _ in COLUMNS))
    for name in names:
        rounds = [found for found in result.data["rounds"]
                  if found["server"] == name and found["cold_rate_per_s"] == cold_rate]
        if not rounds:
            result.say(f"{name:<14}" + "".join(f"{'-':>11}" for _ in COLUMNS))
            continue
        table = medians(rounds)
        result.data["medians"].append({"server": name, "cold_rate_per_s": cold_rate, **table})
        result.say(f"{name:<14}" + "".join(results.cell(table[key], form, 11) for _, key, form in COLUMNS))
        if name == "flash":
            verdicts = [
                f"p50 {table['p50_ratio']:.2f} of at most {P50_RATIO_MAX}",
                f"p99 {table['p99_ratio']:.2f} of at most {P99_RATIO_MAX}",
                f"disk at {(table['disk_reads_per_s'] or 0) / arguments.reads_per_s:.0%} of its limit",
                f"{table['cold_answered_per_s'] / cold_rate:.0%} of the cold requests answered as they came",
            ]
            # The disk is at its limit, or the cold requests do not need all of it.
            used = ((table["disk_reads_per_s"] or 0) >= BUSY_SHARE * arguments.reads_per_s
                    or table["cold_answered_per_s"] >= BUSY_SHARE * cold_rate)
            met = (table["p50_ratio"] <= P50_RATIO_MAX and table["p99_ratio"] <= P99_RATIO_MAX
                   and used)
            result.data.setdefault("targets", []).append({"cold_rate_per_s": cold_rate, "met": met})
            late = sum(found[phase]["generator"]["was_the_limit"]
                       for found in rounds for phase in ("alone", "with_cold"))
            doubt = f", but the generator was late in {late} of {2 * len(rounds)} phases" if late else ""
            target = f"flash at {cold_rate} cold/s: {', '.join(verdicts)}: {'met' if met else 'MISSED'}{doubt}"
            result.data.setdefault("target_lines", []).append(target)
    result.say()


def say_all(result, arguments, names, locked_bytes, testbed_version):
    """The whole text of the result."""
    result.heading("Hot requests beside cold ones")
    result.data["medians"] = []
    for cold_rate in arguments.cold_rates:
        say_rate(result, arguments, cold_rate, names)
    for line in result.data.pop("target_lines", []):
        result.say(line)
    result.say(f"medians of {arguments.rounds} rounds, {arguments.seconds} s a phase; latency from the intended start; "
               "failed: no proper answer, in a round")
    result.say(f"cgroup v{testbed_version}: {arguments.memory_mib} MiB with page cache, "
               f"{arguments.reads_per_s} reads/s; "
               f"server on core {SERVER_CORE}, load on core {LOAD_CORE}")
    result.say(f"file set: {arguments.size}, hot: {arguments.hot_dirs} directories, {locked_bytes} bytes locked in "
               f"memory, mix {arguments.hot_mix}")
    foreign = results.median([found["disk_reads_alone_per_s"] for found in result.data["rounds"]]) or 0
    result.say("reads/s are of the whole disk, the reads of others included; "
               f"without cold requests there were {foreign:.0f}/s")
    limits = [f"round {found['round']}, {found['server']}, {found['cold_rate_per_s']} cold/s, {phase}"
              for found in result.data["rounds"] for phase in ("alone", "with_cold")
              if found[phase]["generator"]["was_the_limit"]]
    if limits:
        phases = 2 * len(result.data["rounds"])
        result.say(f"the generator was late in {len(limits)} of {phases} phases: {'; '.join(limits)}")
    result.say(f"load: {result.data.get('load_command', 'none')}")
    result.say_servers()


def main():
    """Checks, measures, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    process.raise_descriptor_limit()
    names = arguments.servers.split(",")
    chosen, skipped = servers.choose(names)
    if not chosen:
        raise SystemExit(f"error: none of these servers is here: {skipped}")
    try:
        directories = make_files(arguments)
        with cgroups.make(f"flash-bench-{os.getpid()}-try", arguments.files, arguments.memory_mib << 20) as testbed:
            version = testbed.version
    except (cgroups.Impossible, servers.Unavailable) as why:
        print(f"skipped: {why}")
        return
    result = results.Result("interfere", {key: value for key, value in vars(arguments).items() if key != "files"})
    result.data["skipped"].update(skipped)
    result.hide(arguments.files, "$FILES")
    result.hide(servers.flash_binary(), "flash")
    if machine.load_average() > 0.5:
        print(f"warning: load average {machine.load_average():.2f}: others disturb the figures", file=sys.stderr)
    with (tempfile.TemporaryDirectory(prefix="flash-bench-") as folder,
          HotLock(arguments.files, arguments.hot_dirs) as lock):
        os.chmod(folder, 0o755)
        place = {"folder": folder, "ports": servers.Ports(), "lock": lock, "count": 0, "directories": directories}
        run_rounds(chosen, arguments, place, result)
        say_all(result, arguments, names, lock.locked_bytes, version)
    if not arguments.no_keep:
        result.keep()


if __name__ == "__main__":
    main()
