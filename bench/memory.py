#!/usr/bin/env python3
"""Memory of a server, idle and with many idle keep-alive connections.

Each connection makes one request and then stays open. Memory is that of the processes (Rss, Pss and
private, from smaps_rollup); what the kernel keeps for the sockets is apart. See bench/README.md.
"""

import argparse
import os
import socket
import tempfile
import time

from common import process, results, servers

BODY_BYTES = 1024
SERVER_CORE, LOAD_CORE = 0, 1
# What issue 2 asks of Flash's worker, with 10,000 connections.
IDLE_MAX_KIB, GROWTH_MAX_KIB, TARGET_CONNECTIONS = 8 * 1024, 40 * 1024, 10_000


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default="flash", help="which, by commas (default: %(default)s)")
    parser.add_argument("--connections", type=int, default=TARGET_CONNECTIONS, help="(default: %(default)s)")
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


def role(pid):
    """What a process of the tree is: `worker` for Flash's, else the program's name."""
    words = process.command_line(pid)
    if "role" in words[:-1]:
        return words[words.index("role") + 1]
    return os.path.basename(words[0].split()[0].rstrip(":")) if words and words[0].split() else "?"


def snapshot(root):
    """Memory of each process of a tree, by id."""
    found = {}
    for pid in process.tree(root):
        try:
            found[pid] = {"role": role(pid), **process.memory_kib(pid)}
        except (OSError, KeyError):
            continue  # It has just ended.
    return found


def answer(connection):
    """Makes one request on a connection and reads the whole answer."""
    connection.sendall(b"GET /1k HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    received = b""
    while b"\r\n\r\n" not in received or len(received.partition(b"\r\n\r\n")[2]) < BODY_BYTES:
        part = connection.recv(65536)
        if not part:
            raise servers.Unavailable("the server closed a connection before it answered")
        received += part
    if not received.startswith(b"HTTP/1.1 200"):
        raise servers.Unavailable(f"the server answered {received[:40]!r}")


def open_connections(port, count):
    """Opens connections, each of which makes a request and stays."""
    connections = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port), 20)
        answer(connection)
        connections.append(connection)
    return connections


def measure(server, arguments, folder, ports, result):
    """Idle, with connections, and with them gone."""
    root = os.path.join(folder, "files")
    os.makedirs(root, exist_ok=True)
    with open(os.path.join(root, "1k"), "wb") as file:
        file.write(b"x" * BODY_BYTES)
    place = tempfile.mkdtemp(dir=folder)
    os.chmod(place, 0o755)
    result.hide(place, "$CONF")
    result.hide(root, "$ROOT")
    running = server.start(root, ports.take(), place, core=SERVER_CORE)
    connections = []
    try:
        result.data["servers"][server.name] = {
            "version": server.version(), "note": server.note, "command": result.clean(" ".join(running.argv))}
        time.sleep(1)
        found = {"server": server.name, "connections": arguments.connections, "idle": snapshot(running.process.pid)}
        connections = open_connections(running.port, arguments.connections)
        time.sleep(1)
        found["connected"] = snapshot(running.process.pid)
        # All are still served: the first, the last, and some between.
        for connection in [*connections[:: max(1, len(connections) // 50)], connections[-1]]:
            answer(connection)
        for connection in connections:
            connection.close()
        time.sleep(1)
        found["closed"] = snapshot(running.process.pid)
        return found
    finally:
        for connection in connections:
            connection.close()
        running.stop()


def say(result, found):
    """A table of the processes of one server."""
    result.say(f"{found['server']}: MiB of each process: "
               f"idle, with {found['connections']} idle connections, after them")
    result.say(f"{'':<22}" + "".join(f"{name:>9}" for name in ("Rss", "Pss", "private") * 3))
    for pid in sorted(set().union(*(found[when] for when in ("idle", "connected", "closed")))):
        name = next(found[when][pid]["role"] for when in ("connected", "idle", "closed") if pid in found[when])
        line = f"{name:<22}"
        for when in ("idle", "connected", "closed"):
            memory = found[when].get(pid)
            line += "".join(results.cell(memory and memory[name] / 1024, ".2f") for name in ("rss", "pss", "private"))
        result.say(line)
    growth = sum(m["pss"] for m in found["connected"].values()) - sum(m["pss"] for m in found["idle"].values())
    result.say(f"growth of the whole tree: {growth / 1024:.2f} MiB Pss, "
               f"{growth * 1024 / found['connections']:.0f} bytes a connection")
    workers = [pid for pid, memory in found["connected"].items() if memory["role"] == "worker" and pid in found["idle"]]
    if found["server"] == "flash" and workers and found["connections"] == TARGET_CONNECTIONS:
        idle = found["idle"][workers[0]]["rss"]
        growth = found["connected"][workers[0]]["rss"] - idle
        result.say(f"worker: idle {idle / 1024:.2f} MiB Rss of at most {IDLE_MAX_KIB / 1024:.0f}: "
                   f"{'met' if idle < IDLE_MAX_KIB else 'MISSED'}; growth {growth / 1024:.2f} MiB Rss of at most "
                   f"{GROWTH_MAX_KIB / 1024:.0f}: {'met' if growth < GROWTH_MAX_KIB else 'MISSED'}")
    result.say()


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    process.raise_descriptor_limit()
    os.sched_setaffinity(0, {LOAD_CORE} & os.sched_getaffinity(0) or os.sched_getaffinity(0))
    chosen, skipped = servers.choose(arguments.servers.split(","))
    result = results.Result("memory", {"connections": arguments.connections})
    result.data["skipped"].update(skipped)
    if "flash" not in skipped and "flash" in arguments.servers:
        result.hide(servers.flash_binary(), "flash")
    result.heading("Memory of a server")
    with tempfile.TemporaryDirectory(prefix="flash-bench-") as folder:
        os.chmod(folder, 0o755)
        for server in chosen:
            try:
                found = measure(server, arguments, folder, servers.Ports(), result)
            except (servers.Unavailable, OSError) as why:
                result.data["skipped"][server.name] = str(why)
                continue
            result.data["rounds"].append(found)
            say(result, found)
    result.say_servers()
    if not arguments.no_keep:
        result.keep()


if __name__ == "__main__":
    main()
