#!/usr/bin/env python3
"""What slow readers of a large file cost others: memory of the kernel for TCP, and the latency of hits.

Clients with a small receive buffer each ask for a large file and read a little of it now and then. Requests for
a small file come at a fixed rate meanwhile. Then one client reads the large file as fast as it can: the bound on
unsent bytes must not slow it down. See bench/README.md.
"""

import argparse
import os
import socket
import tempfile
import time

from common import hot, process, results, servers, slow

SERVER_CORE, LOAD_CORE = 0, 1
# So that none has too many connections.
ADDRESSES = [f"127.0.0.{2 + number}" for number in range(200)]
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--servers", default="flash", help="which, by commas" + default)
    parser.add_argument("--readers", type=int, default=6000, help="slow readers" + default)
    parser.add_argument("--reader-rate", type=int, default=2048, help="bytes/s of each" + default)
    parser.add_argument("--mib", type=int, default=64, help="size of their file" + default)
    parser.add_argument("--rate", type=int, default=1000, help="hot requests/s" + default)
    parser.add_argument("--seconds", type=int, default=20, help="of each phase" + default)
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


def tcp_kib():
    """Memory that the kernel holds for TCP, and the value from which it is short of it (tcp(7), tcp_mem)."""
    with open("/proc/net/sockstat") as file:
        words = next(line for line in file if line.startswith("TCP:")).split()
    with open("/proc/sys/net/ipv4/tcp_mem") as file:
        pressure = int(file.read().split()[1])
    return int(words[words.index("mem") + 1]) * PAGE_KIB, pressure * PAGE_KIB


def mib_per_s(port):
    """How fast one client reads the large file."""
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        started = time.perf_counter()
        hot.ask(connection, "/large")
        return os.stat(LARGE).st_size / (1 << 20) / (time.perf_counter() - started)


def measure(server, arguments, folder, ports, result):
    """One server: hits alone, beside the readers, and a fast reader without them."""
    root, place = os.path.dirname(LARGE), servers.new_place(folder)
    result.hide(place, "$CONF")
    result.hide(root, "$ROOT")
    result.hide(servers.flash_binary(), "flash")
    running = server.start(root, ports.take(), place, core=SERVER_CORE)
    try:
        result.note_server(server, running)
        mib_per_s(running.port)
        fast = max(mib_per_s(running.port) for _ in range(5))
        hits = hot.Hot(running.port, "/hot", arguments.rate)
        hits.start()
        time.sleep(arguments.seconds)
        alone, before_kib = hot.summary(hits.take()), tcp_kib()[0]
        readers = slow.Readers(running.port, "/large", ADDRESSES, (arguments.readers, arguments.reader_rate))
        time.sleep(arguments.seconds)
        hits.take()
        time.sleep(arguments.seconds)
        beside, (after_kib, pressure_kib) = hot.summary(hits.take()), tcp_kib()
        found = {"server": server.name, "fast_mib_per_s": fast, "alone": alone, "beside": beside,
                 "tcp_kib": after_kib - before_kib, "tcp_pressure_kib": pressure_kib}
        hits.over = True
        hits.join(20)
        return {**found, "readers_open": readers.end()}
    finally:
        running.stop()


def main():
    """Measures, prints, keeps."""
    global LARGE
    arguments = parse_arguments()
    servers.prepare(arguments)
    process.raise_descriptor_limit()
    os.sched_setaffinity(0, {LOAD_CORE} & os.sched_getaffinity(0) or os.sched_getaffinity(0))
    chosen, skipped = servers.choose(arguments.servers.split(","))
    result = results.Result("slow-readers", vars(arguments))
    result.data["skipped"].update(skipped)
    result.heading(f"Hits beside {arguments.readers} slow readers of a file of {arguments.mib} MiB")
    ports = servers.Ports()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        LARGE = os.path.join(folder, "files", "large")
        os.mkdir(os.path.dirname(LARGE))
        with open(LARGE, "wb") as file:
            for _ in range(arguments.mib):
                file.write(os.urandom(1 << 20))
        with open(os.path.join(folder, "files", "hot"), "wb") as file:
            file.write(b"x" * 1024)
        for server in chosen:
            found = measure(server, arguments, folder, ports, result)
            result.data["rounds"].append(found)
            each_kib = found["tcp_kib"] / max(1, found["readers_open"])
            result.say(f"{found['server']}: {found['readers_open']} readers hold {each_kib:.0f} KiB each for TCP, both ends "
                       f"together ({found['tcp_kib'] / 1024:.0f} MiB; the kernel is short from "
                       f"{found['tcp_pressure_kib'] / 1024:.0f}); one fast reader gets {found['fast_mib_per_s']:.0f} MiB/s")
            for when in ("alone", "beside"):
                latency = found[when]
                result.say(f"  hits {when}: p50 {latency['p50_ms']:.2f} ms, p99.9 {latency['p999_ms']:.2f}, "
                           f"longest {latency['max_ms']:.2f}, {latency['over_10_ms']} over 10 ms")
    if not arguments.no_keep:
        result.keep()


main()
