#!/usr/bin/env python3
"""What it does to other requests that a large file is replaced while the server has it open.

The last close of a deleted file frees its blocks, and whoever closes it waits for that. A mirror that is
updated does this all the time. Requests for a small file in memory come at a fixed rate and are timed from
the moment at which each was meant to start: alone, then while a large file, which was just asked for, is
replaced by rename and asked for again. See bench/README.md.
"""

import argparse
import os
import socket
import tempfile
import time

from common import hot, results, servers

SERVER_CORE, LOAD_CORE = 0, 1
# After this a server has looked at a name again: Flash after 1 s, nginx's open_file_cache after 60 s.
FRESH_S = {"flash": 1.5, "nginx": 62.0, "nginx-aio": 62.0}
FRESH_BY_DEFAULT_S = 2.0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--servers", default="flash,nginx,h2o,lighttpd", help="which, by commas" + default)
    parser.add_argument("--mib", type=int, default=1024, help="size of the file that is replaced" + default)
    parser.add_argument("--replacements", type=int, default=3, help="for each server and round" + default)
    parser.add_argument("--rounds", type=int, default=1, help=default)
    parser.add_argument("--rate", type=int, default=1000, help="hot requests/s" + default)
    parser.add_argument("--files", help="a folder on a real disk to work in (default: bench/.cache)")
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


def write_large(path, mib):
    """A file of so many MiB, on the disk when this returns."""
    block = os.urandom(1 << 20)
    with open(path, "wb") as file:
        for _ in range(mib):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())


def measure(server, arguments, folder, ports, result):
    """One server in one round."""
    root = os.path.join(folder, "files")
    place = servers.new_place(folder)
    result.hide(place, "$CONF")
    result.hide(root, "$ROOT")
    write_large(os.path.join(root, "large"), arguments.mib)
    running = server.start(root, ports.take(), place, core=SERVER_CORE)
    try:
        result.data["servers"].setdefault(server.name, {
            "version": server.version(), "note": server.note, "command": result.clean(" ".join(running.argv))})
        fresh_s = FRESH_S.get(server.name, FRESH_BY_DEFAULT_S)
        asker = socket.create_connection(("127.0.0.1", running.port), 20)
        part = "Range: bytes=0-99\r\n"
        hot.ask(asker, "/hot")
        hot_one = hot.Hot(running.port, "/hot", arguments.rate)
        hot_one.start()
        time.sleep(5)
        alone = hot.summary(hot_one.take())
        during = []
        for _ in range(arguments.replacements):
            hot.ask(asker, "/large", part)
            write_large(os.path.join(root, "next"), arguments.mib)
            hot_one.take()
            os.rename(os.path.join(root, "next"), os.path.join(root, "large"))
            for _ in range(int(fresh_s * 10) + 20):
                time.sleep(0.1)
                hot.ask(asker, "/large", part)
            during += hot_one.take()
        hot_one.over = True
        hot_one.join(20)
        return {"server": server.name, "alone": alone, "replaced": hot.summary(sorted(during))}
    finally:
        running.stop()


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    os.sched_setaffinity(0, {LOAD_CORE} & os.sched_getaffinity(0) or os.sched_getaffinity(0))
    chosen, skipped = servers.choose(arguments.servers.split(","))
    result = results.Result("replaced", {name: value for name, value in vars(arguments).items() if name != "files"})
    result.data["skipped"] = skipped
    result.heading(f"Requests for a file in memory while one of {arguments.mib} MiB is replaced "
                   f"{arguments.replacements} times")
    for name, why in skipped.items():
        result.say(f"{name} was skipped: {why}")
    cache = arguments.files or os.path.join(os.path.dirname(os.path.abspath(__file__)), ".cache")
    os.makedirs(cache, exist_ok=True)
    ports = servers.Ports()
    result.say(f"{'latency in ms':<16}{'alone: p50':>12}{'p99.9':>10}{'max':>10}"
               f"{'replaced: p50':>16}{'p99.9':>10}{'max':>10}{'over 10 ms':>12}")
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        os.chmod(folder, 0o755)
        os.mkdir(os.path.join(folder, "files"))
        with open(os.path.join(folder, "files", "hot"), "wb") as file:
            file.write(b"x" * 1024)
        for _ in range(arguments.rounds):
            for server in chosen:
                try:
                    found = measure(server, arguments, folder, ports, result)
                except servers.Unavailable as why:
                    result.say(f"{server.name} was skipped: {why}")
                    continue
                result.data["rounds"].append(found)
                alone, replaced = found["alone"], found["replaced"]
                result.say(f"{found['server']:<16}{alone['p50_ms']:>12.2f}{alone['p999_ms']:>10.2f}"
                           f"{alone['max_ms']:>10.2f}{replaced['p50_ms']:>16.2f}{replaced['p999_ms']:>10.2f}"
                           f"{replaced['max_ms']:>10.2f}{replaced['over_10_ms']:>12}")
    if not arguments.no_keep:
        result.keep()


main()
