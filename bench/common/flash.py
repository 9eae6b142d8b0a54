"""Flash as the subject of a script: its start, its figures, its loads, and a store full of small files."""

import json
import os
import re
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from common import process, servers

SERVER_CORE, LOAD_CORE = 0, 1
# Starts a generator of few requests with priority over all other programs on its core, which would make it late. Needs root.
FIRST = ["chrt", "--fifo", "1"]


def load(url, seconds, out, *more, first=()):
    """One run of the generator; its level. `first` is a command that starts it, such as `FIRST`."""
    argv = [*first, "taskset", "-c", str(LOAD_CORE), servers.flash_binary(), "load", url, "--duration", f"{seconds}s",
            "--warm-up", "0s", "--out", out, *more]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if not os.path.exists(os.path.join(out, "run.json")):
        raise servers.Unavailable(f"the load generator failed: {done.stdout.strip()[-300:]}")
    return level_of(out)


def level_of(out):
    """The level of a run of the generator that has ended."""
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


def watched_by(running):
    """The call that reports changes of names; None if they are checked."""
    with open(os.path.join(running.folder, "server.log"), errors="replace") as file:
        found = re.search(r"names: watched by (\w+)", file.read())
    return found and found[1]


def memory_bytes(running):
    """The memory of all processes of a server and of their memory files: a store has pages that no process has mapped yet."""
    total, files = 0, {}
    for pid in process.tree(running.process.pid):
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                own = [line.split() for line in file if line.startswith(("Pss_Anon:", "Pss_File:"))]
            total += sum(int(kibibytes) for _, kibibytes, _ in own) * 1024
            for number in os.listdir(f"/proc/{pid}/fd"):
                place = f"/proc/{pid}/fd/{number}"
                if os.readlink(place).startswith("/memfd:"):
                    found = os.stat(place)
                    files[found.st_ino] = found.st_blocks * 512
        except OSError:
            pass
    return total + sum(files.values())


def ask_once(port, paths, connections=8, pipelined=64, per_s=None):
    """Requests each path once, at most so many in a second, and counts the answers with status 200."""
    found, began = 0, time.monotonic()
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
        if per_s:
            time.sleep(max(0, began + (first + len(part)) / per_s - time.monotonic()))
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


def write_files(root, paths, sizes_bytes):
    """Writes files whose contents differ, and waits until they are old enough to be stored."""
    made = set()
    for number, (path, size_bytes) in enumerate(zip(paths, sizes_bytes)):
        if (folder := os.path.dirname(root + path)) not in made:
            os.makedirs(folder, exist_ok=True)
            made.add(folder)
        with open(root + path, "wb") as file:
            file.write((b"%09d" % number).ljust(size_bytes, b"x"))
    os.sync()
    time.sleep(3)


def list_paths(file, paths, sizes_bytes):
    """Writes a list for `flash load --paths`."""
    with open(file, "w") as out:
        out.writelines(f"{path} {size_bytes}\n" for path, size_bytes in zip(paths, sizes_bytes))
