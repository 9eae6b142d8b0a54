#!/usr/bin/env python3
"""What slow readers of a large file cost others: memory of the kernel for TCP, and the latency of hits.

Clients with a small receive buffer each ask for a large file and read a little of it now and then. Requests for
a small file come at a fixed rate meanwhile. Then one client reads the large file as fast as it can: the bound on
unsent bytes must not slow it down. See bench/README.md.
"""

import argparse
import multiprocessing
import os
import selectors
import socket
import tempfile
import time

from common import hot, process, results, servers

SERVER_CORE, LOAD_CORE = 0, 1
RECEIVE_BYTES = 16 * 1024
SEGMENT_BYTES = 1448
# In how many turns of a second the readers read.
TURNS = 100
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


def connect(port, count):
    """Slow readers, from several addresses so that none has too many connections."""
    connections = []
    for number in range(count):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        # With the loopback's segments of 64 KiB a client announces room only once its buffer is empty.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
        connection.bind((f"127.0.0.{2 + number % 200}", 0))
        connection.connect(("127.0.0.1", port))
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        connection.setblocking(False)
        connections.append(connection)
    return connections


def count_open(connections):
    """How many the server has not closed."""
    ended = 0
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        for key, _ in selector.select(0):
            try:
                ended += not key.fileobj.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                pass
            except OSError:
                ended += 1
    return len(connections) - ended


def read_slowly(port, count, rate, channel):
    """A process of its own, so that it does not delay the hot requests: connects, reads until it is asked, then says how many
    connections are open."""
    connections = connect(port, count)
    channel.send(len(connections))
    # Not all at once: each has a turn of its own within every second.
    turn, next_s = 0, time.monotonic()
    while not channel.poll():
        for connection in connections[turn::TURNS]:
            try:
                connection.recv(rate)
            except OSError:
                pass
        turn, next_s = (turn + 1) % TURNS, next_s + 1 / TURNS
        time.sleep(max(0.0, next_s - time.monotonic()))
    channel.send(count_open(connections))


class Readers:
    """The process of the slow readers."""

    def __init__(self, port, count, rate):
        self.channel, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=read_slowly, args=(port, count, rate, theirs), daemon=True)
        self.process.start()
        self.channel.recv()

    def end(self):
        """Ends them; how many were open."""
        self.channel.send(None)
        found = self.channel.recv()
        self.process.join(20)
        return found


def mib_per_s(port):
    """How fast one client reads the large file."""
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        started = time.perf_counter()
        hot.ask(connection, "/large")
        return os.stat(LARGE).st_size / (1 << 20) / (time.perf_counter() - started)


def measure(server, arguments, folder, ports, result):
    """One server: hits alone, beside the readers, and a fast reader without them."""
    root, place = os.path.dirname(LARGE), tempfile.mkdtemp(dir=folder)
    os.chmod(place, 0o755)
    result.hide(place, "$CONF")
    result.hide(root, "$ROOT")
    result.hide(servers.flash_binary(), "flash")
    running = server.start(root, ports.take(), place, core=SERVER_CORE)
    try:
        result.data["servers"][server.name] = {
            "version": server.version(), "note": server.note, "command": result.clean(" ".join(running.argv))}
        mib_per_s(running.port)
        fast = max(mib_per_s(running.port) for _ in range(5))
        hits = hot.Hot(running.port, "/hot", arguments.rate)
        hits.start()
        time.sleep(arguments.seconds)
        alone, before_kib = hot.summary(hits.take()), tcp_kib()[0]
        readers = Readers(running.port, arguments.readers, arguments.reader_rate)
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
