#!/usr/bin/env python3
"""What a cached answer costs in each of Flash's four architectures, and where.

Each runs alone on core 0, wrk on core 1, for one file in memory: CPU time per answer of its process tree,
context switches and system calls per answer (perf stat), and the kernel's functions by what they do (perf
record on the server's core). Rounds in turn; medians. See bench/README.md; needs root, perf and wrk.
"""

import argparse
import os
import re
import statistics
import subprocess
import tempfile

import cpu
from common import process, results, servers

ARCHITECTURES = {"amped": [], "sped": [], "mp": ["--processes", "64"], "mt": ["--threads", "64"]}
CALLS = ["epoll_wait", "epoll_pwait", "epoll_ctl", "accept4", "recvfrom", "sendto", "sendmsg", "shutdown", "close",
         "futex", "sched_yield"]
EVENTS = ["context-switches"] + [f"syscalls:sys_enter_{call}" for call in CALLS]
# Calls that are rarer than this for each answer, in all of them, have no line.
SHOWN_MIN = 0.005
# What a function of the kernel is there for, by its name; the first that fits.
GROUPS = [
    ("scheduling", r"sched|switch|enqueue|dequeue|wake_up|ttwu|pick_|update_(curr|load|min)|place_entity|cpuacct|rq_|"
                   r"load_avg|set_next|put_prev|vruntime|yield|idle|resched|reweight|clock_task|psi_"),
    ("futex", r"futex|plist|hb_"),
    ("waiting for events", r"epoll|^ep_|poll_|eventpoll"),
    ("address spaces", r"switch_mm|tlb|load_new_mm|cr3|leave_mm"),
    ("network", r"tcp|ip_|inet|sock|skb|net_|dev_|loopback|nf_|__copy|copy_|csum|napi|bbr|dst_|sk_|release_sock|fib_|"
                r"route"),
]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=3, help="of each run of wrk (default: %(default)s)")
    parser.add_argument("--connections", type=int, default=64, help="of wrk (default: %(default)s)")
    parser.add_argument("--size", default="10k", choices=cpu.SIZES, help="of the file (default: %(default)s)")
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


def architecture(name):
    """Flash in one of its architectures."""
    extra = ["--architecture", name, *ARCHITECTURES[name]]
    if os.geteuid() == 0:
        extra += ["--user", "root"]  # The files are root's.
    workers = [] if name == "mp" else ["--workers", "1"]

    def command(root, port, _folder):
        listen = ["--listen", f"127.0.0.1:{port}", "--control", "none"]
        return [servers.flash_binary(), "serve", root, *listen, *workers, *extra]

    return servers.Server(name, command, lambda: [servers.flash_binary(), "--version"])


def under_load(argv, url, arguments, persistent):
    """Runs a command of perf while wrk asks for the file; gives what perf said, wrk's answers per second,
    and the server's CPU in between."""
    wrk = ["wrk", "-t1", f"-c{arguments.connections}", f"-d{arguments.seconds + 2}s", url]
    if not persistent:
        wrk += ["-H", "Connection: close"]
    load = process.start(wrk, core=cpu.LOAD_CORE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=arguments.seconds + 30)
        text, _ = load.communicate(timeout=arguments.seconds + 30)
    finally:
        process.stop(load)
    if said.returncode != 0:
        raise servers.Unavailable(f"perf failed: {' '.join(said.stderr.split())}")
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    if not rate or "Socket errors" in text or "Non-2xx" in text:
        raise servers.Unavailable(f"wrk: {' '.join(text.split())}")
    return said, float(rate[1])


def count(running, url, arguments, persistent):
    """Context switches, calls and CPU microseconds per answer."""
    perf = ["perf", "stat", "-x", ";", "-C", str(cpu.SERVER_CORE), "-e", ",".join(EVENTS), "--",
            "sleep", str(arguments.seconds)]
    before = process.CpuTime(running.process.pid)
    said, rate = under_load(perf, url, arguments, persistent)
    spent_ns, source = process.cpu_between(before, process.CpuTime(running.process.pid))
    if not spent_ns:
        raise servers.Unavailable(source)
    answers = rate * arguments.seconds
    found = {"answers_per_s": rate, "cpu_us": spent_ns / 1000 / (rate * (arguments.seconds + 2))}
    for line in said.stderr.splitlines():
        fields = line.split(";")
        if len(fields) > 2 and fields[0].replace(".", "").isdigit():
            found[fields[2].removeprefix("syscalls:sys_enter_")] = float(fields[0]) / answers
    return found


def profile(url, arguments, persistent, folder):
    """Share of the server's busy core by group of functions, and the ten largest functions."""
    data = os.path.join(folder, "perf.data")
    perf = ["perf", "record", "-q", "-C", str(cpu.SERVER_CORE), "-F", "1999", "-o", data, "--",
            "sleep", str(arguments.seconds)]
    under_load(perf, url, arguments, persistent)
    report = ["perf", "report", "-i", data, "--stdio", "--sort", "sym", "-F", "sample,sym", "-t", ";"]
    text = subprocess.run(report, capture_output=True, text=True, check=True).stdout
    functions = {}
    for line in text.splitlines():
        samples, _, symbol = line.partition(";")
        if samples.strip().isdigit() and not re.search(r"pv_native_safe_halt|default_idle|mwait", symbol):
            functions[symbol.strip()] = functions.get(symbol.strip(), 0) + int(samples)
    total = sum(functions.values()) or 1
    groups = dict.fromkeys([name for name, _ in GROUPS] + ["other kernel", "user code"], 0.0)
    for symbol, samples in functions.items():
        place = "user code"
        if symbol.startswith("[k]"):
            place = next((name for name, names in GROUPS if re.search(names, symbol)), "other kernel")
        groups[place] += samples / total
    largest = sorted(functions.items(), key=lambda item: -item[1])[:10]
    return groups, [(symbol, samples / total) for symbol, samples in largest]


def say(result, arguments):
    """The tables: medians over the rounds."""
    for persistent in (True, False):
        rows = [row for row in result.data["rounds"] if row["persistent"] == persistent]
        result.say(f"{'persistent connections' if persistent else 'a connection for each request'}, "
                   f"{arguments.connections} at once; for each answer")

        def line(title, value, form="{:>12.2f}"):
            cells = []
            for name in ARCHITECTURES:
                values = [value(row) for row in rows if row["server"] == name]
                cells.append(form.format(statistics.median(values)) if values else f"{'-':>12}")
            result.say(f"{title:<24}" + "".join(cells))

        result.say(f"{'':<24}" + "".join(f"{name:>12}" for name in ARCHITECTURES))
        line("answers/s", lambda row: row["counts"]["answers_per_s"], "{:>12.0f}")
        line("CPU, us", lambda row: row["counts"]["cpu_us"])
        for name in [name for name, _ in GROUPS] + ["other kernel", "user code"]:
            line(f"  {name}, us", lambda row, name=name: row["groups"][name] * row["counts"]["cpu_us"])
        for event in ["context-switches"] + CALLS:
            if any(row["counts"].get(event, 0.0) >= SHOWN_MIN for row in rows):
                line(event, lambda row, event=event: row["counts"].get(event, 0.0))
        result.say()


def run_one(name, arguments, place, result):
    """The figures of one architecture in one round, on both kinds of connections."""
    server = architecture(name)
    folder = tempfile.mkdtemp(dir=place["folder"])
    running = server.start(place["root"], place["ports"].take(), folder, core=cpu.SERVER_CORE)
    try:
        result.data["servers"].setdefault(name, {
            "version": server.version(), "note": "", "command": result.clean(" ".join(running.argv))})
        url = f"{running.url}/{arguments.size}"
        cpu.run_wrk(url, arguments.connections, 1)
        for persistent in (True, False):
            counts = count(running, url, arguments, persistent)
            groups, largest = profile(url, arguments, persistent, folder)
            yield {"server": name, "persistent": persistent, "counts": counts, "groups": groups, "largest": largest}
    finally:
        running.stop()


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    result = results.Result("architectures", dict(vars(arguments)))
    result.heading(f"A file of {arguments.size} in memory, by the four architectures; medians of {arguments.rounds} "
                   f"rounds of {arguments.seconds} s")
    result.hide(servers.flash_binary(), "flash")
    names = list(ARCHITECTURES)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        place = {"folder": folder, "root": cpu.make_files(folder), "ports": servers.Ports()}
        result.hide(place["root"], "$ROOT")
        for number in range(arguments.rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                for figure in run_one(name, arguments, place, result):
                    result.data["rounds"].append({"round": number + 1, **figure})
    say(result, arguments)
    result.say_servers()
    if not arguments.no_keep:
        result.keep()


main()
