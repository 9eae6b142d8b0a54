#!/usr/bin/env python3
"""TLS beside other servers: full and resumed handshakes and their CPU time, the memory of idle connections, and what a flood of
handshakes does to established connections.

See bench/README.md.
"""

import argparse
import os
import socket
import ssl
import subprocess
import time

from common import process, results, servers
from common.flash import FIRST, LOAD_CORE, SERVER_CORE, load, memory_bytes
from common.tls import certificate, server

WHAT = ["handshakes", "idle", "flood"]
KEYS = ["ecdsa", "rsa"]
# Of each load in a flood: requests that wait for the generator's own handshakes are then less than 1 %.
FLOOD_SECONDS = 10


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--what", default=",".join(WHAT), help="which, by commas" + default)
    parser.add_argument("--servers", default="flash,nginx,h2o,caddy", help="by commas" + default)
    parser.add_argument("--connections", type=int, default=10_000, help="idle ones" + default)
    parser.add_argument("--rounds", type=int, default=5, help="of handshakes and floods" + default)
    parser.add_argument("--seconds", type=int, default=5, help="of each load of handshakes" + default)
    parser.add_argument("--rate", type=int, default=1000, help="requests/s of established clients in a flood" + default)
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


def start(name, files, root, ports, folder):
    """A running server, on the server's core."""
    place = servers.new_place(folder)
    running = server(name, files).start(root, ports.take(), place, core=SERVER_CORE)
    running.url = f"https://127.0.0.1:{running.port}"
    return running, place


def handshakes(arguments, folder, root, ports, result):
    """A connection for each request: CPU time, by the kind of the key, in full and resumed."""
    found = result.data["handshakes"] = {}
    for key in KEYS:
        files = certificate(folder, key)
        for name in arguments.servers.split(","):
            running, place = start(name, files, root, ports, folder)
            try:
                for how, more in (("full", ["--no-resumption"]), ("resumed", [])):
                    rounds = []
                    for number in range(arguments.rounds):
                        before = process.CpuTime(running.process.pid)
                        level = load(running.url + "/1k", arguments.seconds, f"{place}/{how}-{number}", "--clients", "16",
                                     "--requests-per-connection", "1", *more)
                        spent_ns, _ = process.cpu_between(before, process.CpuTime(running.process.pid))
                        rounds.append({"cpu_us": spent_ns / 1000 / max(1, level["counts"]["answered"]),
                                       "per_s": level["answered_per_s"], "failed": level["counts"]["failed"],
                                       "handshakes": level["handshakes"]})
                    found.setdefault(f"{key}, {how}", {})[name] = rounds
                    cpu_us, per_s = (results.median([figures[part] for figures in rounds]) for part in ("cpu_us", "per_s"))
                    result.say(f"{key}, {how}: {name}: {cpu_us:.0f} us of CPU time a connection, {per_s:.0f} connections/s with the "
                               f"client as the other end, {sum(sum(figures['failed'].values()) for figures in rounds)} failed")
            finally:
                running.stop()


def connect(port, context):
    """An established connection that has had one answer."""
    connection = context.wrap_socket(socket.create_connection(("127.0.0.1", port), 30), server_hostname="localhost")
    connection.sendall(b"GET /1k HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = b""
    while b"\r\n\r\n" not in answer or len(answer.partition(b"\r\n\r\n")[2]) < 1024:
        received = connection.recv(1 << 16)
        if not received:
            raise servers.Unavailable("the server closed a connection")
        answer += received
    return connection


def kernel_tcp_bytes():
    """The memory of all TCP sockets of this machine."""
    with open("/proc/net/sockstat") as file:
        line = next(line for line in file if line.startswith("TCP:")).split()
    return int(line[line.index("mem") + 1]) * os.sysconf("SC_PAGE_SIZE")


def idle(arguments, folder, root, ports, result):
    """Connections that have had one answer: memory of the server's processes for each."""
    files, found = certificate(folder, "ecdsa"), {}
    context = ssl.create_default_context(cafile=files["certificate"])
    for name in arguments.servers.split(","):
        running, _ = start(name, files, root, ports, folder)
        open_ones = []
        try:
            open_ones.append(connect(running.port, context))
            before = memory_bytes(running)
            open_ones += [connect(running.port, context) for _ in range(arguments.connections)]
            time.sleep(2)
            found[name] = (memory_bytes(running) - before) / arguments.connections
        finally:
            for connection in open_ones:
                connection.close()
            running.stop()
        result.say(f"{name}: {found[name] / 1024:.1f} KiB of the processes' memory for each of {arguments.connections} idle connections")
    result.data["idle_bytes"] = found


def flood(arguments, folder, root, ports, result):
    """Latency of established clients, alone and beside clients that only make full handshakes, with an RSA key."""
    files, found = certificate(folder, "rsa"), {}
    for name in arguments.servers.split(","):
        running, place = start(name, files, root, ports, folder)
        try:
            rounds = []
            for number in range(arguments.rounds):
                figures = {}
                for when in ("alone", "flood"):
                    flooding = None
                    if when == "flood":
                        # It shares the generator's core, and comes after it.
                        argv = ["nice", "-n", "19", servers.flash_binary(), "load", running.url + "/1k", "--clients", "64",
                                "--requests-per-connection", "1", "--no-resumption", "--warm-up", "0s", "--duration",
                                f"{FLOOD_SECONDS + 1}s", "--out", f"{place}/flood-{number}"]
                        flooding = process.start(argv, core=LOAD_CORE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                        time.sleep(0.5)
                    level = load(running.url + "/1k", FLOOD_SECONDS, f"{place}/{when}-{number}", "--rate", str(arguments.rate),
                                 "--connections", "32", first=FIRST)
                    if flooding:
                        flooding.wait(120)
                    figures[when] = {"latency": level["latency"], "counts": level["counts"], "generator": level["generator"]}
                rounds.append(figures)
            found[name] = rounds
            parts = {(when, part): results.median([figures[when]["latency"][part] for figures in rounds])
                     for when in ("alone", "flood") for part in ("p50_ms", "p99_ms")}
            result.say(f"{name}: p50 {parts['alone', 'p50_ms']:.3f} ms alone, {parts['flood', 'p50_ms']:.3f} in the flood; p99 "
                       f"{parts['alone', 'p99_ms']:.3f} and {parts['flood', 'p99_ms']:.3f} ms")
        finally:
            running.stop()
    result.data["flood"] = found


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    process.raise_descriptor_limit()
    ports = servers.Ports()
    with results.kept("tls", "TLS", arguments, servers.flash_binary()) as (result, folder):
        root = os.path.join(folder, "root")
        os.mkdir(root)
        servers.write(root, "1k", "x" * 1024)
        for name in arguments.what.split(","):
            try:
                {"handshakes": handshakes, "idle": idle, "flood": flood}[name](arguments, folder, root, ports, result)
            except servers.Unavailable as why:
                result.data["skipped"][name] = str(why)
                result.say(f"{name}: skipped: {why}")


if __name__ == "__main__":
    main()
