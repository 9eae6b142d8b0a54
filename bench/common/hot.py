"""Requests for a file in memory at a fixed rate, timed from the moment at which each was meant to start."""

import socket
import threading
import time

from common import servers

STALL_MS = 10.0


def ask(connection, path, field=""):
    """One request on a connection; reads the whole answer, which must be a success."""
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{field}\r\n".encode())
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536) or b"closed\r\n\r\n"
    head, _, body = received.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 20"):
        raise servers.Unavailable(f"the server answered {head[:40]!r}")
    fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:])
    missing = int(fields[b"content-length"]) - len(body)
    while missing > 0:
        missing -= len(connection.recv(65536))


class Hot(threading.Thread):
    """Requests for one small file at a fixed rate, until it is told to stop."""

    def __init__(self, port, path, rate):
        super().__init__(daemon=True)
        self.connection = socket.create_connection(("127.0.0.1", port), 20)
        self.path, self.interval_s, self.over, self.latencies_ms = path, 1 / rate, False, []

    def run(self):
        intended = time.perf_counter()
        while not self.over:
            intended += self.interval_s
            time.sleep(max(0.0, intended - time.perf_counter()))
            ask(self.connection, self.path)
            self.latencies_ms.append((time.perf_counter() - intended) * 1000)

    def take(self):
        """The latencies since the last time, sorted."""
        taken, self.latencies_ms = self.latencies_ms, []
        return sorted(taken)


def summary(latencies_ms):
    """Median, 99.9th percentile, the longest, and how many were over STALL_MS."""
    at = lambda share: latencies_ms[min(len(latencies_ms) - 1, int(len(latencies_ms) * share))]
    return {"requests": len(latencies_ms), "p50_ms": at(0.5), "p999_ms": at(0.999), "max_ms": latencies_ms[-1],
            "over_10_ms": sum(latency > STALL_MS for latency in latencies_ms)}
