#!/usr/bin/env python3
"""What requests that hang do to hot ones: two sites of one Flash, one of which is on a disk that hangs.

The disk is the FUSE file system of the tests (examples/hanging_fs.rs), which holds its
answers back when it is told to. `flash load` loads the healthy site at one rate: alone, then while
requests for the other site hang. Needs root and /dev/fuse; where there are none it says so and measures
nothing. See bench/README.md.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

from common import machine, process, results, servers

SERVER_CORE, LOAD_CORE = 0, 1
HOST = "disk.test"
OPS = ["lookup", "getattr", "open", "read", "flush", "statfs"]
# How long requests may take to get as far as the disk, and back when it goes on.
PATIENCE_S = 30


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    what = f"what hangs, by commas, of {','.join(OPS)}"
    parser.add_argument("--ops", default="lookup,open,read", help=what + default)
    parser.add_argument("--hung", type=int, default=8, help="requests that hang at once" + default)
    parser.add_argument("--helpers", type=int, default=16, help="of the worker" + default)
    parser.add_argument("--hot-rate", type=int, default=4000, help="requests/s" + default)
    parser.add_argument("--hot-dirs", type=int, default=4, help="directories" + default)
    parser.add_argument("--rounds", type=int, default=3, help=default)
    parser.add_argument("--seconds", type=int, default=20, help="of each phase" + default)
    parser.add_argument("--drain-seconds", type=int, default=10, help="to wait for the last answers" + default)
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    arguments = parser.parse_args()
    arguments.ops = arguments.ops.split(",")
    if not set(arguments.ops) <= set(OPS):
        parser.error(f"--ops are of {','.join(OPS)}")
    if arguments.rounds < 1 or arguments.seconds < 1 or arguments.hung < 1:
        parser.error("at least one round of a second with one request that hangs is needed")
    return arguments


class Disk:
    """The file system that hangs, mounted on `place` while this stands."""

    def __init__(self, content, place):
        program = os.path.join(os.path.dirname(servers.flash_binary()), "examples", "hanging_fs")
        if not os.access(program, os.X_OK):
            raise servers.Unavailable(f"no program at {program}: cargo build --release -p flash --example hanging_fs")
        self.process = subprocess.Popen([program, place, content], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, start_new_session=True)
        if self.process.stdout.readline() != "mounted\n":
            raise servers.Unavailable(self.process.communicate()[1].strip())

    def tell(self, command):
        """Gives it a command and takes the answer."""
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


class Hung:
    """Requests for files of the disk, each on a connection of its own."""

    def __init__(self, port, count, number):
        self.sockets = []
        for place in range(count):
            request = f"GET /{number}-{place} HTTP/1.1\r\nHost: {HOST}\r\n\r\n"
            connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
            connection.sendall(request.encode())
            self.sockets.append(connection)

    def answered(self):
        """How many have an answer of 200, waiting for it."""
        return sum(connection.recv(64).startswith(b"HTTP/1.1 200 ") for connection in self.sockets)

    def heard(self):
        """How many have heard anything yet."""
        count = 0
        for connection in self.sockets:
            connection.setblocking(False)
            try:
                connection.recv(1, socket.MSG_PEEK)
                count += 1
            except BlockingIOError:
                pass
            connection.settimeout(PATIENCE_S)
        return count


def flash(disk_place, helpers):
    """Flash with two sites: the folder it is started for, and the disk."""
    def command(root, port, folder):
        config = os.path.join(folder, "flash.toml")
        with open(config, "w") as file:
            file.write(f'user = "root"\nroot = "{root}"\nlisten = ["127.0.0.1:{port}"]\nworkers = 1\nhelpers_max = {helpers}\n'
                       f'job_deadline = "1h"\n[[site]]\nhosts = ["{HOST}"]\nroot = "{disk_place}"\n')
        return [servers.flash_binary(), "serve", "--config", config]

    return servers.Server("flash", command, lambda: [servers.flash_binary(), "--version"])


def load(arguments, running, seconds, seed):
    """Hot requests for so many seconds; gives what `flash load` measured, and how it was run."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        argv = [servers.flash_binary(), "load", running.url, "--workload", "specweb99",
                "--directories", str(arguments.hot_dirs), "--requests-per-connection", "unlimited",
                "--rate", str(arguments.hot_rate), "--duration", f"{seconds}s", "--warm-up", "0s",
                "--drain", f"{arguments.drain_seconds}s", "--seed", str(seed), "--out", out]
        started = process.start(argv, core=LOAD_CORE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            text, _ = started.communicate(timeout=seconds + 3 * arguments.drain_seconds + 60)
        finally:
            process.stop(started)
        if started.returncode != 0:
            raise servers.Unavailable(text.strip())
        with open(os.path.join(out, "run.json")) as file:
            level = json.load(file)["subjects"][0]["levels"][0]
    argv[argv.index(out)] = "DIR"
    hot = {"latency": level["latency"], "failed": sum(level["counts"]["failed"].values())}
    return {"hot": hot, "generator": {"was_the_limit": level["generator"]["limit"] is not None}}, argv


def measure(arguments, op, number, place, result):
    """One kind of hanging in one round: hot requests alone, then beside those that hang."""
    with tempfile.TemporaryDirectory(dir=place["folder"]) as folder:
        result.hide(folder, "$CONF")
        server, port = flash(place["mount"], arguments.helpers), place["ports"].take()
        running = server.start(place["files"], port, folder, core=SERVER_CORE)
        disk = place["disk"]
        try:
            result.data["servers"].setdefault("flash", {"version": server.version(), "note": ""})
            load(arguments, running, 1, number)
            alone, argv = load(arguments, running, arguments.seconds, number)
            disk.tell(f"{op} hang")
            hung = Hung(port, arguments.hung, f"{op}-{number}")
            wait_until_held(disk, min(arguments.hung, arguments.helpers) // 2)
            beside, _ = load(arguments, running, arguments.seconds, number)
            held, heard = int(disk.tell("held")), hung.heard()
            disk.tell("all ok")
            answered = hung.answered()
        finally:
            # A helper in a call that hangs is beyond any signal.
            disk.tell("all ok")
            running.stop()
    result.data["load_command"] = result.clean(" ".join(argv)).replace(running.url, "http://127.0.0.1:PORT")
    return {"round": number, "op": op, "alone": alone, "with_hung": beside, "held": held, "heard_meanwhile": heard,
            "answered_afterwards": answered}


def wait_until_held(disk, count):
    """Waits until the disk holds so many requests back. A server may bound how many it lets hang."""
    deadline = time.monotonic() + PATIENCE_S
    while int(disk.tell("held")) < max(count, 1):
        if time.monotonic() > deadline:
            raise servers.Unavailable(f"only {disk.tell('held')} requests got as far as the disk")
        time.sleep(0.05)
    time.sleep(0.5)


def run_rounds(arguments, place, result):
    """All rounds of all kinds of hanging."""
    for number in range(1, arguments.rounds + 1):
        for op in arguments.ops:
            found = measure(arguments, op, number, place, result)
            result.data["rounds"].append(found)
            alone, beside = found["alone"]["hot"]["latency"], found["with_hung"]["hot"]["latency"]
            print(f"round {number}, {op}: hot p50 {alone['p50_ms']:.3f} -> {beside['p50_ms']:.3f} ms, "
                  f"p99 {alone['p99_ms']:.3f} -> {beside['p99_ms']:.3f} ms, {found['held']} held",
                  file=sys.stderr, flush=True)


COLUMNS = [
    ("p50 alone", "alone_p50_ms", ".3f"), ("with hung", "with_hung_p50_ms", ".3f"), ("ratio", "p50_ratio", ".2f"),
    ("p99 alone", "alone_p99_ms", ".3f"), ("with hung", "with_hung_p99_ms", ".3f"), ("ratio", "p99_ratio", ".2f"),
    ("failed", "hot_failed", ".0f"), ("| held", "held", ".0f"), ("heard", "heard_meanwhile", ".0f"),
    ("answered", "answered_afterwards", ".0f"),
]


def medians(rounds):
    """The medians of the rounds of one kind of hanging."""
    table = {f"{phase}_{point}": results.median([found[phase]["hot"]["latency"][point] for found in rounds])
             for phase in ("alone", "with_hung") for point in ("p50_ms", "p99_ms", "p999_ms", "max_ms")}
    table["p50_ratio"] = table["with_hung_p50_ms"] / table["alone_p50_ms"]
    table["p99_ratio"] = table["with_hung_p99_ms"] / table["alone_p99_ms"]
    table["hot_failed"] = results.median([found["with_hung"]["hot"]["failed"] for found in rounds])
    for key in ("held", "heard_meanwhile", "answered_afterwards"):
        table[key] = results.median([found[key] for found in rounds])
    return table


def say_all(result, arguments):
    """The whole text of the result."""
    result.heading("Hot requests beside ones that hang")
    result.say(f"{arguments.hot_rate} hot requests/s for one site, {arguments.hung} requests for another that hang; "
               "ms of the hot ones")
    result.say(f"{'':<10}" + "".join(f"{title:>11}" for title, _, _ in COLUMNS))
    result.data["medians"] = []
    for op in arguments.ops:
        table = medians([found for found in result.data["rounds"] if found["op"] == op])
        result.data["medians"].append({"op": op, **table})
        result.say(f"{op:<10}" + "".join(results.cell(table[key], form, 11) for _, key, form in COLUMNS))
    result.say()
    result.say(f"medians of {arguments.rounds} rounds, {arguments.seconds} s a phase; latency from the intended start")
    result.say(f"held: by the disk at the end of the phase; heard: of the {arguments.hung} requests until then; "
               "answered: 200 when the disk went on")
    late = sum(found[phase]["generator"]["was_the_limit"]
               for found in result.data["rounds"] for phase in ("alone", "with_hung"))
    if late:
        result.say(f"the generator was late in {late} of {2 * len(result.data['rounds'])} phases")
    result.say(f"server on core {SERVER_CORE}, load on core {LOAD_CORE}; file set: {arguments.hot_dirs} directories, "
               f"{arguments.helpers} helpers")
    result.say(f"load: {result.data['load_command']}")
    for name, about in result.data["servers"].items():
        result.say(f"{name}: {about['version']}")


def main():
    """Checks, measures, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    if not arguments.no_build:
        argv = ["cargo", "build", "--release", "-p", "flash", "--example", "hanging_fs"]
        subprocess.run(argv, cwd=servers.REPOSITORY, check=True)
    result = results.Result("hung", vars(arguments))
    result.hide(servers.flash_binary(), "flash")
    if machine.load_average() > 0.5:
        print(f"warning: load average {machine.load_average():.2f}: others disturb the figures", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="flash-bench-") as folder:
        place = {"folder": folder, "ports": servers.Ports(), "files": os.path.join(folder, "files"),
                 "mount": os.path.join(folder, "mount")}
        content = os.path.join(folder, "disk")
        os.mkdir(place["mount"])
        os.mkdir(content)
        for op in arguments.ops:
            for number in range(1, arguments.rounds + 1):
                for name in range(arguments.hung):
                    with open(os.path.join(content, f"{op}-{number}-{name}"), "w") as file:
                        file.write("x" * 1000)
        argv = [servers.flash_binary(), "fileset", "specweb99", place["files"], "--directories",
                str(arguments.hot_dirs)]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        result.hide(place["files"], "$FILES")
        try:
            with Disk(content, place["mount"]) as place["disk"]:
                run_rounds(arguments, place, result)
        except servers.Unavailable as why:
            print(f"skipped: {why}")
            return
        say_all(result, arguments)
    if not arguments.no_keep:
        result.keep()


if __name__ == "__main__":
    main()
