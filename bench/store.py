#!/usr/bin/env python3
"""The store by itself: its memory with one worker and with four, a million small files, the first minute after a restart
with a saved list and without, and requests after the kernel has forgotten all names, on a slow disk.

See bench/README.md.
"""

import argparse
import json
import os
import socket
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from common import process, results, servers

SERVER_CORE, LOAD_CORE = 0, 1
FILES = os.path.join(servers.REPOSITORY, "bench", ".cache", "specweb99")
READS_PER_S = 150
WHAT = ["workers", "million", "restart", "names"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--what", default=",".join(WHAT), help="which, by commas" + default)
    parser.add_argument("--files", default=os.environ.get("FLASH_BENCH_FILES", FILES), help="a set of `flash fileset`")
    parser.add_argument("--small-files", type=int, default=1_000_000, help="how many" + default)
    parser.add_argument("--named-files", type=int, default=1_000_000, help="how many files for names" + default)
    parser.add_argument("--directories", type=int, default=1000, help="of the files for names" + default)
    parser.add_argument("--fill-seconds", type=int, default=240, help="after which no pass begins that fills the store with "
                        "the files for names" + default)
    parser.add_argument("--seconds", type=int, default=30, help="of each load for names" + default)
    parser.add_argument("--rate", type=int, default=2000, help="requests/s of the restart" + default)
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


def load(url, seconds, out, *more):
    """One run of the generator; its level."""
    argv = ["taskset", "-c", str(LOAD_CORE), servers.flash_binary(), "load", url, "--duration", f"{seconds}s",
            "--warm-up", "0s", "--out", out, *more]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if not os.path.exists(os.path.join(out, "run.json")):
        raise servers.Unavailable(f"the load generator failed: {done.stdout.strip()[-300:]}")
    with open(os.path.join(out, "run.json")) as file:
        return json.load(file)["subjects"][0]["levels"][0]


def start(root, folder, ports, *more, testbed=(), **place):
    """Flash with these options, in a testbed if one is given."""
    command = lambda root, port, folder: [*testbed, servers.flash_binary(), "serve", root, "--listen", f"127.0.0.1:{port}",
                                          "--control", f"{folder}/control", *more]
    server = servers.Server("flash", command, lambda: [servers.flash_binary(), "--version"])
    return server.start(root, ports.take(), folder, **place)


def stats(folder):
    """What the server tells of itself."""
    argv = [servers.flash_binary(), "stats", "--control", f"{folder}/control", "--json"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout)
    return found.get("stats", found)


def store_of(folder, is_ready=lambda store: True):
    """The figures of the store, once they are there and ready."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        store = stats(folder).get("store")
        if store and is_ready(store):
            return store
        time.sleep(0.2)
    raise servers.Unavailable(f"the store is not ready after 120 s: {store}")


def memory_bytes(running):
    """Pss of all processes of a server, its store included."""
    total = 0
    for pid in process.tree(running.process.pid):
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                total += next(int(line.split()[1]) for line in file if line.startswith("Pss:")) * 1024
        except (OSError, StopIteration):
            pass
    return total


def workers(arguments, folder, ports, result):
    """Memory of one worker and of four, for the same contents."""
    found = {}
    for count in (1, 4):
        place = tempfile.mkdtemp(dir=folder)
        os.chmod(place, 0o755)
        running = start(arguments.files, place, ports, "--workers", str(count), "--cache-memory", "4GiB")
        try:
            # Each file twice over, by connections that all workers have.
            load(running.url, 40, f"{place}/load", "--workload", "uniform", "--files", arguments.files,
                 "--clients", "64")
            load(running.url, 20, f"{place}/more", "--workload", "specweb99", "--files", arguments.files,
                 "--clients", "64")
            time.sleep(2)
            store = stats(place)["store"]
            found[count] = {"pss_bytes": memory_bytes(running), "held_bytes": store["held_bytes"],
                            "blocks": store["blocks"], "loads": store["loads"]}
        finally:
            running.stop()
        result.say(f"{count} worker(s): {found[count]['pss_bytes'] / 2**20:.0f} MiB in all processes, "
                   f"{found[count]['held_bytes'] / 2**20:.0f} MiB in the store, {found[count]['blocks']} blocks, "
                   f"{found[count]['loads']} loads")
    a_block = [found[count]["pss_bytes"] / found[count]["held_bytes"] for count in (1, 4)]
    result.say(f"memory for each byte in the store, four workers to one: {a_block[1] / a_block[0]:.3f}")
    result.data["workers"] = found


def ask_once(port, paths, connections=8, pipelined=64):
    """Requests each path once, and counts the answers with status 200."""
    found = 0
    for first in range(0, len(paths), connections * pipelined):
        part = paths[first:first + connections * pipelined]
        lanes = [part[number::connections] for number in range(connections)]
        sockets = []
        for lane in lanes:
            if lane:
                connection = socket.create_connection(("127.0.0.1", port), 60)
                requests = [f"GET {path} HTTP/1.1\r\nHost: a\r\n" for path in lane]
                connection.sendall(("\r\n".join(requests) + "Connection: close\r\n\r\n").encode())
                sockets.append(connection)
        for connection in sockets:
            answers = bytearray()
            while received := connection.recv(1 << 20):
                answers += received
            connection.close()
            found += answers.count(b"HTTP/1.1 200")
    return found


def read_files(paths):
    """Reads each file, eight at a time, so that the kernel has them all."""
    def read(part):
        for path in part:
            with open(path, "rb") as file:
                file.read()
    with ThreadPoolExecutor(8) as pool:
        # A directory is read by one thread, in the order of its files.
        list(pool.map(read, [paths[first:first + 1000] for first in range(0, len(paths), 1000)]))


def fill_store(running, place, paths, seconds):
    """Requests every file until all are in the store, a pass adds less than one in a hundred, or the time is over. Gives the
    number of passes."""
    passes, had, deadline = 0, None, time.monotonic() + seconds
    while True:
        store = store_of(place)
        known = min(store["names"], store["blocks"])
        adds_nothing = had is not None and known - had < 0.01 * len(paths)
        if known >= 0.9999 * len(paths) or adds_nothing or time.monotonic() > deadline:
            return passes
        passes, had = passes + 1, known
        if ask_once(running.port, paths) < len(paths):
            raise servers.Unavailable("a file was not answered")
        # The keeper takes the last contents, and the watcher confirms the last names.
        time.sleep(2)


def jobs_started(found):
    """The number of jobs that the workers have given to helpers."""
    return sum(kind["started"] for kind in found["sum"]["jobs"].values() if "started" in kind)


def names(arguments, folder, ports, result):
    """Random requests for files in the store after the kernel has forgotten all names, on a disk with 150 reads/s: with the
    files watched, and with checks."""
    root = os.path.join(folder, "named")
    count, size_bytes = arguments.named_files, 2048
    each = max(1, count // arguments.directories)
    paths = [f"/{number // each:06}/{number % each:06}" for number in range(count)]
    listed = os.path.join(folder, "paths")
    with open(listed, "w") as file:
        file.writelines(f"{path} {size_bytes}\n" for path in paths)
    began = time.monotonic()
    for number, path in enumerate(paths):
        if number % each == 0:
            os.makedirs(os.path.dirname(root + path))
        with open(root + path, "wb") as file:
            file.write(b"%09d" % number + b"x" * (size_bytes - 9))
    os.sync()
    result.say(f"{count} files of {size_bytes} B in {-(-count // each)} directories, written in {time.monotonic() - began:.0f} s")
    # A file that has just changed is not stored.
    time.sleep(3)
    result.data["names"] = {how: names_by(how, (root, paths, listed), arguments, folder, ports, result)
                            for how in ("watched", "checked")}


def names_by(how, files, arguments, folder, ports, result):
    """One of the two: the store filled from the page cache, the kernel's caches dropped, and the load."""
    root, paths, listed = files
    place = tempfile.mkdtemp(dir=folder)
    os.chmod(place, 0o755)
    began = time.monotonic()
    # The store is filled from the page cache, before the disk is slow.
    read_files([root + path for path in paths])
    read_s = time.monotonic() - began
    watch = "--watch" if how == "watched" else "--no-watch"
    running = start(root, place, ports, "--workers", "1", watch, core=SERVER_CORE)
    try:
        store_of(place, lambda store: how == "checked" or store["subtrees_watched"] > 0)
        began = time.monotonic()
        passes = fill_store(running, place, paths, arguments.fill_seconds)
        fill_s = time.monotonic() - began
        memory = memory_bytes(running)
        with process.SlowDisk(root, READS_PER_S) as disk:
            disk.join(running.process.pid)
            process.drop_page_cache()
            before = stats(place)
            level = load(running.url, arguments.seconds, f"{place}/load", "--workload", "uniform", "--paths", listed,
                         "--rate", "1000", "--seed", "5")
            after, store = stats(place), store_of(place)
    finally:
        running.stop()
    latency = level["latency"]
    requests = after["sum"]["requests"] - before["sum"]["requests"]
    helped = jobs_started(after) - jobs_started(before)
    result.say(f"{how}: {store['names']} names and {store['blocks']} blocks of {len(paths)} files after {passes} pass(es); "
               f"{memory / 2**20:.0f} MiB in all processes; {store['directories_watched']} directories watched")
    result.say(f"  at 1,000 requests/s {level['answered_per_s']:.0f} answered/s, p50 {latency['p50_ms']:.3f} ms, "
               f"p99 {latency['p99_ms']:.2f} ms; {helped} jobs of helpers for {requests} requests "
               f"({100 * helped / max(1, requests):.2f} %)")
    result.say(f"  read into the page cache in {read_s:.0f} s, filled in {fill_s:.0f} s")
    return {"passes": passes, "names": store["names"], "blocks": store["blocks"], "requests": requests, "jobs": helped,
            "pss_bytes": memory, "directories_watched": store["directories_watched"], "latency": latency,
            "counts": level["counts"], "answered_per_s": level["answered_per_s"], "read_s": read_s, "fill_s": fill_s}


def million(arguments, folder, ports, result):
    """Many small files: hits once they are loaded, memory beyond their contents, latency."""
    root = os.path.join(folder, "small")
    size_bytes = 1000
    for directory in range(arguments.small_files // 1000):
        at = os.path.join(root, f"{directory:04}")
        os.makedirs(at)
        for number in range(1000):
            with open(f"{at}/{number:03}", "wb") as file:
                file.write(b"%09d" % (directory * 1000 + number) + b"x" * (size_bytes - 9))
    found = {}
    for count in (1000, arguments.small_files):
        place = tempfile.mkdtemp(dir=folder)
        os.chmod(place, 0o755)
        listed = os.path.join(place, "paths")
        with open(listed, "w") as file:
            file.writelines(f"/{n // 1000:04}/{n % 1000:03} {size_bytes}\n" for n in range(count))
        running = start(root, place, ports, "--workers", "1", core=SERVER_CORE)
        try:
            idle_bytes = memory_bytes(running)
            deadline = time.monotonic() + 420
            while time.monotonic() < deadline:
                load(running.url, 15, f"{place}/fill", "--workload", "uniform", "--paths", listed, "--clients", "64",
                     "--seed", str(int(time.monotonic())))
                if stats(place)["store"]["blocks"] >= 0.99 * count:
                    break
            before = stats(place)
            level = load(running.url, 15, f"{place}/rate", "--workload", "uniform", "--paths", listed,
                         "--rate", "4000", "--seed", "7")
            after = stats(place)
            requests = after["sum"]["requests"] - before["sum"]["requests"]
            hits = after["sum"]["caches"]["contents"]["hits"] - before["sum"]["caches"]["contents"]["hits"]
            blocks = after["store"]["blocks"]
            beyond = (memory_bytes(running) - idle_bytes) / max(1, blocks) - size_bytes
            found[count] = {"blocks": blocks, "hit_share": hits / max(1, requests), "beyond_bytes": beyond,
                            "latency": level["latency"]}
        finally:
            running.stop()
        result.say(f"{count} files of {size_bytes} B: {blocks} in the store, {100 * hits / max(1, requests):.2f} % hits, "
                   f"{beyond:.0f} B of memory a file beyond its content, "
                   f"p50 {level['latency']['p50_ms']:.3f} ms, p99 {level['latency']['p99_ms']:.3f} ms at 4,000/s")
    many, few = found[arguments.small_files]["latency"], found[1000]["latency"]
    result.say(f"p99, {arguments.small_files} files to 1,000: {many['p99_ms'] / few['p99_ms']:.2f}")
    result.data["million"] = found


def restart(arguments, folder, ports, result):
    """The first minute after a restart on a slow disk, with a saved list and without."""
    found = {}
    saved = os.path.join(folder, "hot")
    for what in ("to save it", "without", "with"):
        place = tempfile.mkdtemp(dir=folder)
        os.chmod(place, 0o755)
        process.drop_page_cache()
        more = [] if what == "without" else ["--cache-list", saved]
        # The list is saved on a fast disk, and read with all else on a slow one.
        reads = [] if what == "to save it" else ["--reads", "1000"]
        testbed = [servers.flash_binary(), "testbed", "restart", "--memory", "512MiB", *reads, "--files",
                   arguments.files, "--core", str(SERVER_CORE), "--"]
        running = start(arguments.files, place, ports, "--workers", "1", *more, testbed=testbed)
        try:
            if what == "to save it":
                load(running.url, 60, f"{place}/load", "--workload", "specweb99", "--files", arguments.files,
                     "--rate", "3000", "--seed", "3")
                continue
            levels = [load(running.url, 15, f"{place}/{number}", "--workload", "specweb99", "--files",
                           arguments.files, "--rate", str(arguments.rate), "--seed", str(10 + number))
                      for number in range(4)]
            found[what] = [{"latency": level["latency"], "counts": level["counts"],
                            "answered_per_s": level["answered_per_s"]} for level in levels]
        finally:
            running.stop()
        quarters = ", ".join(f"{q['answered_per_s']:.0f}/s p50 {q['latency']['p50_ms']:.2f} p90 "
                             f"{q['latency']['p90_ms']:.1f} ms" for q in found[what])
        result.say(f"restart {what} a list, quarters of a minute at {arguments.rate}/s: {quarters}")
    result.data["restart"] = found


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    process.raise_descriptor_limit()
    ports = servers.Ports()
    with results.kept("store", "The store", arguments, servers.flash_binary()) as (result, folder):
        for name in arguments.what.split(","):
            try:
                what = {"workers": workers, "million": million, "restart": restart, "names": names}[name]
                what(arguments, folder, ports, result)
            except servers.Unavailable as why:
                result.data["skipped"][name] = str(why)
                result.say(f"{name}: skipped: {why}")


if __name__ == "__main__":
    main()
