#!/usr/bin/env python3
"""The store by itself: its memory with one worker and with four, a million small files, the first minute after a restart
with a saved list and without, the list itself, requests after the kernel has forgotten all names, on a slow disk, the CPU
time of requests for many names and for few, and memory for a million files beside other servers.

See bench/README.md.
"""

import argparse
import os
import shutil
import threading
import time

from common import process, results, servers
from common.flash import (SERVER_CORE, ask_once, fill_store, jobs_started, list_paths, load, memory_bytes, read_files, start, stats,
                          store_of, write_files)

FILES = os.path.join(servers.REPOSITORY, "bench", ".cache", "specweb99")
READS_PER_S = 150
WHAT = ["workers", "million", "restart", "saved", "names", "hot", "peers"]
# The rate of the pass that fills the store with a million small files.
PASS_PER_S = 4000
PEERS = ["flash", "nginx", "caddy", "varnish"]
# Readers in their group bring the files into the page cache first: nginx reads one file after another, which takes an hour.
READ_FIRST = ["nginx", "caddy"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--what", default=",".join(WHAT), help="which, by commas" + default)
    parser.add_argument("--files", default=os.environ.get("FLASH_BENCH_FILES", FILES), help="a set of `flash fileset`")
    parser.add_argument("--small-files", type=int, default=1_000_000, help="how many" + default)
    parser.add_argument("--listed-files", type=int, default=720_000, help="how many files for the list" + default)
    parser.add_argument("--named-files", type=int, default=1_000_000, help="how many files for names" + default)
    parser.add_argument("--directories", type=int, default=1000, help="of the files for names" + default)
    parser.add_argument("--names-by", default="watched,checked", help="how changes of names are noticed, by commas" + default)
    parser.add_argument("--idle-seconds", type=int, default=0, help="for which nobody asks between filling the store and the "
                        "load for names" + default)
    parser.add_argument("--fill-seconds", type=int, default=240, help="after which no pass begins that fills the store with "
                        "small files" + default)
    parser.add_argument("--seconds", type=int, default=30, help="of each load of small files" + default)
    parser.add_argument("--rate", type=int, default=2000, help="requests/s of the restart" + default)
    parser.add_argument("--start-seconds", type=int, default=240, help="of the load after a start with a saved list" + default)
    parser.add_argument("--rounds", type=int, default=5, help="of workers, restart and names" + default)
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


def workers(arguments, folder, ports, result):
    """Memory of one worker and of four, for the same contents, in rounds."""
    result.data["workers"] = []
    for number in range(arguments.rounds):
        found = {count: memory_of_workers(count, arguments, folder, ports) for count in (1, 4)}
        one, four = (found[count]["pss_bytes"] / found[count]["held_bytes"] for count in (1, 4))
        result.data["workers"].append(found)
        for count, of_count in found.items():
            result.say(f"round {number + 1}, {count} worker(s): {of_count['pss_bytes'] / 2**20:.0f} MiB in all processes, "
                       f"{of_count['held_bytes'] / 2**20:.0f} MiB in the store, {of_count['blocks']} blocks, {of_count['loads']} loads")
        result.say(f"  memory for each byte in the store, four workers to one: {four / one:.3f}")


def memory_of_workers(count, arguments, folder, ports):
    """Memory of some workers whose store has all files."""
    place = servers.new_place(folder)
    running = start(arguments.files, place, ports, "--workers", str(count), "--cache-memory", "4GiB")
    try:
        # Each file twice over, by connections that all workers have.
        load(running.url, 40, f"{place}/load", "--workload", "uniform", "--files", arguments.files, "--clients", "64")
        load(running.url, 20, f"{place}/more", "--workload", "specweb99", "--files", arguments.files, "--clients", "64")
        time.sleep(2)
        store = stats(place)["store"]
        return {"pss_bytes": memory_bytes(running), **{part: store[part] for part in ("held_bytes", "blocks", "loads")}}
    finally:
        running.stop()


def names(arguments, folder, ports, result):
    """Random requests for files in the store after the kernel has forgotten all names, on a disk with 150 reads/s: with the
    files watched, and with checks."""
    root = os.path.join(folder, "named")
    count, size_bytes = arguments.named_files, 2048
    each = max(1, count // arguments.directories)
    paths = [f"/{number // each:06}/{number % each:06}" for number in range(count)]
    listed, few = os.path.join(folder, "paths"), os.path.join(folder, "few")
    list_paths(listed, paths, [size_bytes] * count)
    list_paths(few, paths[:1000], [size_bytes] * min(count, 1000))
    write_files(root, paths, [size_bytes] * count)
    result.say(f"{count} files of {size_bytes} B in {-(-count // each)} directories")
    result.data["names"] = {how: names_by(how, (root, paths, listed, few), arguments, folder, ports, result)
                            for how in arguments.names_by.split(",")}


def names_by(how, files, arguments, folder, ports, result):
    """One of the two: the store filled from the page cache, the kernel's caches dropped, and the load; then the same load on the
    first 1,000 files and an unthrottled disk, which shows what the machine and the generator add; in rounds."""
    root, paths, listed, few = files
    place = servers.new_place(folder)
    began = time.monotonic()
    # The store is filled from the page cache, before the disk is slow.
    read_files([root + path for path in paths])
    read_s = time.monotonic() - began
    watch = "--watch" if how == "watched" else "--no-watch"
    running = start(root, place, ports, "--workers", "1", watch, core=SERVER_CORE)
    try:
        # A name that is found before its directory is watched needs one more look-up of a helper later.
        directories = len({os.path.dirname(path) for path in paths})
        store_of(place, lambda store: how == "checked" or store["directories_watched"] > directories)
        began = time.monotonic()
        passes = fill_store(running, place, paths, arguments.fill_seconds)
        fill_s = time.monotonic() - began
        memory = memory_bytes(running)
        blocks = stats(place)["store"]["blocks"]
        if blocks < 0.999 * len(paths):
            raise servers.Unavailable(f"only {blocks} of {len(paths)} files are in the store: use more --fill-seconds")
        time.sleep(arguments.idle_seconds)
        rounds = [names_round(running, (root, place, listed, few), arguments, number) for number in range(arguments.rounds)]
        store = store_of(place)
    finally:
        running.stop()
    result.say(f"{how}: {store['names']} names and {store['blocks']} blocks of {len(paths)} files after {passes} pass(es); "
               f"{memory / 2**20:.0f} MiB in all processes; {store['directories_watched']} directories watched")
    if arguments.idle_seconds:
        result.say(f"  before the first round {arguments.idle_seconds} s without a request")
    for number, found in enumerate(rounds):
        latency, quick, late_ms = found["latency"], found["control"]["latency"], found["generator"]["late_p99_ms"]
        result.say(f"  round {number + 1}: at 1,000 requests/s {found['answered_per_s']:.0f} answered/s, p50 {latency['p50_ms']:.3f} ms, "
                   f"p99 {latency['p99_ms']:.2f} ms; {found['jobs']} jobs of helpers for {found['requests']} requests "
                   f"({100 * found['jobs'] / max(1, found['requests']):.2f} %)")
        result.say(f"    then 1,000 of them from a quick disk: p50 {quick['p50_ms']:.3f} ms, p99 {quick['p99_ms']:.2f} ms; the generator "
                   f"was {late_ms:.2f} ms late at p99" + (": too noisy for a figure" if late_ms > 1 else ""))
    result.say(f"  read into the page cache in {read_s:.0f} s, filled in {fill_s:.0f} s")
    return {"passes": passes, "names": store["names"], "blocks": store["blocks"], "pss_bytes": memory, "rounds": rounds,
            "directories_watched": store["directories_watched"], "read_s": read_s, "fill_s": fill_s}


def names_round(running, places, arguments, number):
    """The kernel's caches dropped, the load on a slow disk, and that on the first files and a quick one."""
    root, place, listed, few = places
    at_1000 = lambda name, listed: load(running.url, arguments.seconds, f"{place}/{name}-{number}", "--workload", "uniform",
                                        "--paths", listed, "--rate", "1000", "--seed", str(5 + number))
    with process.SlowDisk(root, READS_PER_S) as disk:
        disk.join(running.process.pid)
        process.drop_page_cache()
        before = stats(place)
        level = at_1000("load", listed)
        after = stats(place)
    control = at_1000("quick", few)
    parts = ("latency", "generator", "counts", "answered_per_s")
    return {**{part: level[part] for part in parts}, "requests": after["sum"]["requests"] - before["sum"]["requests"],
            "jobs": jobs_started(after) - jobs_started(before), "control": {part: control[part] for part in parts[:2]}}


def million(arguments, folder, ports, result):
    """Many small files, in few directories and in many, beside a thousand: hits after the store is filled, latency, and memory
    beyond their contents."""
    many = arguments.small_files
    for name, count, each in (("1,000 files", 1000, 1000), ("few directories", many, 1000), ("many directories", many, 10)):
        root = os.path.join(folder, name.replace(" ", "-"))
        sizes_bytes = [200 + number * 7919 % 3801 for number in range(count)]
        paths = [f"/{number // each:06}/{number % each:04}" for number in range(count)]
        write_files(root, paths, sizes_bytes)
        figures = small_files(root, (paths, sizes_bytes), arguments, folder, ports)
        result.data.setdefault("million", {})[name] = {"files": count, "directories": -(-count // each), **figures}
        result.say(f"{count} files in {-(-count // each)} directories: {figures['blocks']} in the store after one "
                   f"pass, {figures['beyond_bytes']:.0f} B of memory a file beyond its content")
        few = result.data["million"]["1,000 files"]["loads"]
        for workload, found in figures["loads"].items():
            ratios = [found["latency"][part] / few[workload]["latency"][part] for part in ("p50_ms", "p99_ms")]
            result.say(f"  {workload}: {100 * found['helped_share']:.3f} % of requests needed a helper; p50 "
                       f"{found['latency']['p50_ms']:.3f} ms, p99 {found['latency']['p99_ms']:.3f} ms at 4,000/s, "
                       f"{ratios[0]:.2f} and {ratios[1]:.2f} times those of 1,000 files")


def small_files(root, files, arguments, folder, ports):
    """The figures of one set of small files."""
    paths, sizes_bytes = files
    place = servers.new_place(folder)
    listed = os.path.join(place, "paths")
    list_paths(listed, paths, sizes_bytes)
    running = start(root, place, ports, "--workers", "1", core=SERVER_CORE)
    try:
        # Names that are found earlier are checked once more.
        directories = len({path.rsplit("/", 1)[0] for path in paths})
        store_of(place, lambda store: store["directories_watched"] >= directories)
        idle_bytes = memory_bytes(running)
        ask_once(running.port, paths, per_s=PASS_PER_S)
        # The keeper takes the last contents, and the watcher confirms the last names.
        time.sleep(5)
        blocks, loads = stats(place)["store"]["blocks"], {}
        beyond_bytes = (memory_bytes(running) - idle_bytes - sum(sizes_bytes)) / len(paths)
        for workload in ("uniform", "zipf:1"):
            before = stats(place)
            level = load(running.url, arguments.seconds, f"{place}/{workload}", "--workload", workload, "--paths", listed,
                         "--rate", "4000", "--seed", "7")
            after = stats(place)
            requests = after["sum"]["requests"] - before["sum"]["requests"]
            loads[workload] = {"helped_share": (jobs_started(after) - jobs_started(before)) / max(1, requests),
                               "latency": level["latency"], "counts": level["counts"]}
    finally:
        running.stop()
    return {"blocks": blocks, "beyond_bytes": beyond_bytes, "loads": loads}


class Hits:
    """Watches, while it is entered, how many of a server's answers came from memory."""

    # How long a share of hits is counted over, and how often the server is asked.
    WINDOW_S, EACH_S = 1, 0.25

    def __init__(self, place, began):
        self.place, self.began, self.samples, self.ended = place, began, [], threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self):
        while not self.ended.wait(self.EACH_S):
            counts = {how: found["count"] for how, found in stats(self.place)["sum"]["latencies"].items()}
            self.samples.append((time.monotonic() - self.began, counts.get("hit", 0), counts.get("miss", 0)))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def first_s(self, share_min):
        """When the share of hits in a window first was this, in seconds; None if never."""
        for first, last in zip(self.samples, self.samples[round(self.WINDOW_S / self.EACH_S):]):
            hits, misses = last[1] - first[1], last[2] - first[2]
            if hits and hits >= share_min * (hits + misses):
                return last[0]
        return None


def restart(arguments, folder, ports, result):
    """The first minute after a restart on a slow disk, with a saved list and without; in rounds."""
    found = {"without": [], "with": []}
    saved, own = os.path.join(folder, "hot"), os.path.join(folder, "own-hot")
    for what in ["to save it", *(["without", "with", "with", "without"] * arguments.rounds)[:2 * arguments.rounds]]:
        place = servers.new_place(folder)
        process.drop_page_cache()
        more = {"to save it": ["--cache-list", saved], "without": [], "with": ["--cache-list", own]}[what]
        if what == "with":
            # The server replaces it at its end.
            shutil.copy(saved, own)
        # The list is saved on a fast disk, and read with all else on a slow one.
        reads = [] if what == "to save it" else ["--reads", "1000"]
        testbed = [servers.flash_binary(), "testbed", "restart", "--memory", "512MiB", *reads, "--files",
                   arguments.files, "--core", str(SERVER_CORE), "--"]
        began = time.monotonic()
        running = start(arguments.files, place, ports, "--workers", "1", *more, testbed=testbed)
        try:
            if what == "to save it":
                load(running.url, 60, f"{place}/load", "--workload", "specweb99", "--files", arguments.files,
                     "--rate", "3000", "--seed", "3")
                continue
            with Hits(place, began) as hits:
                levels = [load(running.url, 15, f"{place}/{number}", "--workload", "specweb99", "--files",
                               arguments.files, "--rate", str(arguments.rate), "--seed", str(10 + number))
                          for number in range(4)]
        finally:
            running.stop()
        quarters = [{part: level[part] for part in ("latency", "counts", "answered_per_s")} for level in levels]
        hits_s = hits.first_s(0.9)
        found[what].append({"quarters": quarters, "hits_s": hits_s})
        shown = ", ".join(f"{q['answered_per_s']:.0f}/s p50 {q['latency']['p50_ms']:.2f} p90 {q['latency']['p90_ms']:.1f} ms"
                          for q in quarters)
        result.say(f"restart {what} a list, quarters of a minute at {arguments.rate}/s: {shown}")
        seen = f"{hits_s:.1f} s after the start" if hits_s else "not within the minute"
        result.say(f"  nine of ten answers of a second came from memory {seen}")
    result.data["restart"] = found


def saved(arguments, folder, ports, result):
    """How many of the files in the store are in the list that is saved at the end; and how long after the next start, with an empty page
    cache, nine of ten answers for random files come from memory."""
    count = arguments.listed_files
    root, place = os.path.join(folder, "listed"), servers.new_place(folder)
    paths = [f"/{number // 1000:06}/{number % 1000:04}" for number in range(count)]
    sizes_bytes = [200 + number * 7919 % 3801 for number in range(count)]
    write_files(root, paths, sizes_bytes)
    saved_list = os.path.join(place, "hot")
    running = start(root, place, ports, "--workers", "1", "--cache-list", saved_list, core=SERVER_CORE)
    try:
        fill_store(running, place, paths, arguments.fill_seconds)
        blocks = stats(place)["store"]["blocks"]
        began = time.monotonic()
    finally:
        running.stop()
    stop_s = time.monotonic() - began
    with open(saved_list, encoding="utf-8") as file:
        lines = sum(1 for line in file if line.count("\t") == 2)
    size_bytes = os.path.getsize(saved_list)
    result.data["saved"] = {"files": count, "blocks": blocks, "lines": lines, "stop_s": stop_s, "size_bytes": size_bytes}
    result.say(f"list at the end: {lines} lines ({size_bytes / 2**20:.1f} MiB) for {blocks} blocks of {count} files; the server "
               f"ended after {stop_s:.1f} s")
    listed = os.path.join(place, "paths")
    list_paths(listed, paths, sizes_bytes)
    result.data["saved"]["started"] = []
    for number in range(arguments.rounds):
        again, own = servers.new_place(folder), os.path.join(place, f"hot-{number}")
        # The server replaces it at its end.
        shutil.copy(saved_list, own)
        process.drop_page_cache()
        began = time.monotonic()
        running = start(root, again, ports, "--workers", "1", "--cache-list", own, core=SERVER_CORE)
        try:
            with Hits(again, began) as hits:
                level = load(running.url, arguments.start_seconds, f"{again}/load", "--workload", "uniform", "--paths", listed,
                             "--rate", "1000", "--seed", str(number))
        finally:
            running.stop()
        hits_s = hits.first_s(0.9)
        result.data["saved"]["started"].append({"hits_s": hits_s, "latency": level["latency"], "counts": level["counts"]})
        seen = f"{hits_s:.1f} s after the start" if hits_s else f"not within {arguments.start_seconds} s"
        result.say(f"start {number + 1} with the list, 1,000 requests/s for random ones of the files: nine of ten answers of a second came "
                   f"from memory {seen}")


def hot(arguments, folder, ports, result):
    """CPU time of a worker for each request, for files with many names and with few: their ratio in each of many rounds."""
    root, place, counts = os.path.join(folder, "hot"), servers.new_place(folder), (100, 100_000)
    paths = [f"/{number // 1000:06}/{number % 1000:06}" for number in range(max(counts))]
    write_files(root, paths, [200] * len(paths))
    for count in counts:
        list_paths(f"{place}/{count}", paths[:count], [200] * count)
    running = start(root, place, ports, "--workers", "1", core=SERVER_CORE)
    try:
        store_of(place, lambda store: store["subtrees_watched"] > 0)
        fill_store(running, place, paths, arguments.fill_seconds)
        spent_us = {count: {"user": [], "all": []} for count in counts}
        for round_number in range(13):
            for count in counts if round_number % 2 else reversed(counts):
                before = process.user_and_system_s(running.process.pid)
                level = load(running.url, 6, f"{place}/{count}-{round_number}", "--workload", "uniform", "--paths", f"{place}/{count}",
                             "--clients", "32", "--seed", str(round_number))
                after = process.user_and_system_s(running.process.pid)
                # Idle helpers end meanwhile.
                user_s, system_s = (sum(after[pid][kind] - before[pid][kind] for pid in after if pid in before) for kind in (0, 1))
                answered = level["counts"]["answered"]
                spent_us[count]["user"].append(1e6 * user_s / answered)
                spent_us[count]["all"].append(1e6 * (user_s + system_s) / answered)
    finally:
        running.stop()
    for kind in ("user", "all"):
        few, many = (spent_us[count][kind] for count in counts)
        ratios = sorted(b / a for a, b in zip(few, many))
        result.say(f"CPU time a request, {'in the process itself' if kind == 'user' else 'with the kernel'}: {results.median(few):.2f} us for "
                   f"{counts[0]} names, {results.median(many):.2f} us for {counts[1]}; ratio of a round {results.median(ratios):.3f} "
                   f"(median of {len(ratios)}; {ratios[0]:.3f} to {ratios[-1]:.3f})")
    result.data["hot"] = spent_us


def varnish_before(origin):
    """Varnish with memory for all, and a server behind it."""
    def command(_root, port, folder):
        return [servers.find("varnishd"), "-F", "-a", f"127.0.0.1:{port}", "-b", f"127.0.0.1:{origin.port}", "-n", f"{folder}/varnish",
                "-s", "malloc,8G", "-t", "36000"]
    return servers.Server("varnish", command, lambda: [servers.find("varnishd"), "-V"])


def peers(arguments, folder, ports, result):
    """Memory that the control group of a server uses after each of a million small files was requested twice: its processes, page cache,
    and the kernel's names and inodes."""
    root, count = os.path.join(folder, "named"), arguments.named_files
    each = max(1, count // arguments.directories)
    paths = [f"/{number // each:06}/{number % each:06}" for number in range(count)]
    sizes_bytes = [2048] * count
    if not os.path.exists(root):
        write_files(root, paths, sizes_bytes)
    result.say(f"{count} files of 2048 B in {-(-count // each)} directories, each requested twice")
    place = servers.new_place(folder)
    # Behind Varnish.
    origin = start(root, place, ports, "--workers", "1") if servers.find("varnishd") else None
    result.data["peers"] = {}
    try:
        for name in PEERS:
            server = varnish_before(origin) if name == "varnish" else servers.SERVERS[name]
            found = memory_of(server, root, paths, folder, ports)
            result.data["peers"][name] = found
            parts = ", ".join(f"{part} {found[part] / 2**20:.0f}" for part in ("processes", "store", "page cache", "kernel"))
            result.say(f"{name}: {found['all'] / 2**20:.0f} MiB ({parts}), {(found['all'] - sum(sizes_bytes)) / count:.0f} B a file "
                       f"beyond its content")
    finally:
        if origin:
            origin.stop()


def memory_of(server, root, paths, folder, ports):
    """The memory of one server in a control group of its own, in bytes, by kind."""
    place = servers.new_place(folder)
    process.drop_page_cache()
    testbed = [servers.flash_binary(), "testbed", "peers", "--memory", "12GiB", "--files", root, "--core", str(SERVER_CORE), "--"]
    inside = servers.Server(server.name, lambda *about: [*testbed, *server.command(*about)], server.version_command)
    running = inside.start(root, ports.take(), place)
    try:
        pid = max(process.tree(running.process.pid))
        if server.name in READ_FIRST:
            process.in_group_of(pid, lambda: read_files([root + path for path in paths]))
        for _ in range(2):
            if ask_once(running.port, paths) < len(paths):
                raise servers.Unavailable(f"{server.name}: a file was not answered")
            time.sleep(5)
        return process.group_memory_bytes(pid)
    finally:
        running.stop()


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    process.raise_descriptor_limit()
    ports = servers.Ports()
    with results.kept("store", "The store", arguments, servers.flash_binary()) as (result, folder):
        for name in arguments.what.split(","):
            try:
                what = {"workers": workers, "million": million, "restart": restart, "saved": saved, "names": names,
                        "hot": hot, "peers": peers}[name]
                what(arguments, folder, ports, result)
            except servers.Unavailable as why:
                result.data["skipped"][name] = str(why)
                result.say(f"{name}: skipped: {why}")


if __name__ == "__main__":
    main()
