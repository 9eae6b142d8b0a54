#!/usr/bin/env python3
"""Slow readers of cold files, together larger than the memory: every byte is right and every reader gets on.

    thrash.py --url http://127.0.0.1:8082 --root DIR [--total-mb 2048] [--file-mb 8] [--readers 64] [--cgroup NAME|PATH] [--seed N]

It starts no server. It writes its files to DIR/thrash (a part that is there from an earlier run is used again) and reads all of
them once over HTTP: --readers connections at a time, each pausing after each 64 KB, so that pages leave memory between the test of
the module and the send. The pressure comes from the control group that the server runs in: put the server into a group with a
memory limit far below --total-mb before this program starts, and name the group with --cgroup, so that a run without a limit is
refused instead of passing. Without --cgroup the program drops the files' contents itself, again and again, which needs no root.

A reader must get some bytes within --patience-s, whatever the others do. Like a browser, it asks again after a 503 that has
Retry-After. Prints one line with the counts; ends with 0 if all bytes
were right, 1 if one was wrong, missing or late, 2 if it could not run.
"""

import argparse
import http.client
import os
import random
import socket
import sys
import threading
import time
import urllib.parse

PIECE = 65536
# A server may ask for more patience than a test has.
RETRY_MAX_S = 5


def block(number, at):
    """The PIECE bytes of file `number` at offset `at`: no two pieces of the set are alike."""
    return random.Random(number << 40 | at).randbytes(PIECE)


class Files:
    def __init__(self, options):
        self.folder = os.path.join(options.root, "thrash")
        self.bytes = options.file_mb << 20
        self.count = max(1, options.total_mb // options.file_mb)

    def path(self, number):
        return os.path.join(self.folder, f"{number}-{self.bytes}.bin")

    def create(self):
        os.makedirs(self.folder, exist_ok=True)
        os.chmod(self.folder, 0o755)
        for number in range(self.count):
            path = self.path(number)
            if not os.path.exists(path):
                with open(path + ".part", "wb") as file:
                    for at in range(0, self.bytes, PIECE):
                        file.write(block(number, at))
                    file.flush()
                    os.fsync(file.fileno())
                os.chmod(path + ".part", 0o644)
                os.rename(path + ".part", path)
            self.evict(number)

    def evict(self, number):
        fd = os.open(self.path(number), os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def memory_limit(name):
    """The limit of a control group in bytes: version 2 or 1, by path or by name. None if it has none."""
    for folder in (name, os.path.join("/sys/fs/cgroup", name), os.path.join("/sys/fs/cgroup/memory", name)):
        for file in ("memory.max", "memory.limit_in_bytes"):
            try:
                with open(os.path.join(folder, file), encoding="ascii") as found:
                    text = found.read().strip()
            except OSError:
                continue
            return None if text == "max" or int(text) >= 1 << 60 else int(text)
    raise OSError(f"no control group {name} with the memory controller")


class Thrash:
    def __init__(self, options):
        self.options = options
        self.files = Files(options)
        self.server = urllib.parse.urlsplit(options.url)
        self.lock = threading.Lock()
        self.order = list(range(self.files.count))
        random.Random(options.seed).shuffle(self.order)
        self.bytes = 0
        self.complete = 0
        self.refused = 0
        self.longest_s = 0.0
        self.faults = []
        self.reading = set()

    def next(self):
        with self.lock:
            number = self.order.pop() if self.order else None
            if number is not None:
                self.reading.add(number)
            return number

    def fault(self, number, what):
        with self.lock:
            self.faults.append(f"file {number}: {what}")

    def connect(self):
        connection = http.client.HTTPConnection(self.server.hostname, self.server.port or 80, timeout=self.options.patience_s)
        connection.connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2 * PIECE)  # so the server waits for this reader
        return connection

    def read(self, number):
        """Reads a file, and asks again while the server refuses."""
        began = time.monotonic()
        while (retry_s := self.read_once(number)) is not None:
            with self.lock:
                self.refused += 1
            if time.monotonic() - began > self.options.patience_s:
                return self.fault(number, f"refused for {self.options.patience_s} s")
            time.sleep(retry_s)

    def read_once(self, number):
        """None, or after how many seconds to ask again."""
        connection = None
        try:
            connection = self.connect()
            connection.request("GET", f"/thrash/{os.path.basename(self.files.path(number))}")
            answer = connection.getresponse()
            if answer.status == 503 and answer.getheader("Retry-After"):
                return min(int(answer.getheader("Retry-After")), RETRY_MAX_S)
            if answer.status != 200:
                return self.fault(number, f"status {answer.status}")
            self.read_body(number, answer)
        except (OSError, http.client.HTTPException) as error:
            self.fault(number, f"{type(error).__name__}: {error}")
        finally:
            if connection:
                connection.close()
        return None

    def read_body(self, number, answer):
        for at in range(0, self.files.bytes, PIECE):
            began = time.monotonic()
            piece = answer.read(PIECE)
            waited_s = time.monotonic() - began
            if piece != block(number, at):
                return self.fault(number, f"{len(piece)} bytes, not the right {PIECE}, at offset {at}")
            with self.lock:
                self.bytes += len(piece)
                self.longest_s = max(self.longest_s, waited_s)
            time.sleep(self.options.pause_ms / 1000)
        if answer.read(1):
            return self.fault(number, "more bytes than the file has")
        with self.lock:
            self.complete += 1

    def reader(self):
        while (number := self.next()) is not None:
            self.read(number)
            with self.lock:
                self.reading.discard(number)

    def press(self, done):
        """Without a control group: drops what is being read."""
        while not done.wait(0.05):
            with self.lock:
                numbers = list(self.reading)
            for number in numbers:
                self.files.evict(number)

    def run(self):
        if self.options.cgroup:
            limit = memory_limit(self.options.cgroup)
            if limit is None or limit > self.files.count * self.files.bytes // 2:
                raise OSError(f"the group {self.options.cgroup} has a limit of {limit} bytes: no pressure by {self.options.total_mb} MB")
        self.files.create()
        done = threading.Event()
        if not self.options.cgroup:
            threading.Thread(target=self.press, args=(done,), daemon=True).start()
        readers = [threading.Thread(target=self.reader) for _ in range(self.options.readers)]
        for thread in readers:
            thread.start()
        for thread in readers:
            thread.join()
        done.set()
        for fault in self.faults[:20]:
            print(fault)
        print(f"thrash: seed {self.options.seed}: {self.complete} of {self.files.count} files, {self.bytes} bytes right, "
              f"{len(self.faults)} faults, longest wait of a reader {self.longest_s:.1f} s, {self.refused} times 503")
        return 1 if self.faults or self.complete != self.files.count else 0


def main():
    parser = argparse.ArgumentParser(description="Slow readers of cold files under memory pressure.")
    parser.add_argument("--url", required=True, help="base URL of the server")
    parser.add_argument("--root", required=True, help="its document root; a folder `thrash` is written there")
    parser.add_argument("--total-mb", type=int, default=2048)
    parser.add_argument("--file-mb", type=int, default=8)
    parser.add_argument("--readers", type=int, default=64)
    parser.add_argument("--pause-ms", type=int, default=20, help="pause of a reader after each 64 KB")
    parser.add_argument("--patience-s", type=int, default=120, help="a reader without any byte for this time is a fault")
    parser.add_argument("--cgroup", help="the server's control group, whose memory limit is checked")
    parser.add_argument("--seed", type=int, default=17)
    options = parser.parse_args()
    try:
        return Thrash(options).run()
    except OSError as error:
        print(f"thrash: cannot run: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
