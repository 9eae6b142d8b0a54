"""Clients that read slowly, with a small receive buffer."""

import multiprocessing
import selectors
import socket
import time

RECEIVE_BYTES = 16 * 1024
SEGMENT_BYTES = 1448
# In how many turns of a second the readers read.
TURNS = 100


def connect(port, path, addresses, count):
    """Slow readers of a path, from these addresses in turn."""
    connections = []
    for number in range(count):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        # With the loopback's segments of 64 KiB a client announces room only once its buffer is empty.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
        connection.bind((addresses[number % len(addresses)], 0))
        connection.connect(("127.0.0.1", port))
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
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


def read_slowly(port, path, addresses, numbers, channel):
    """A process of its own, so that it does not delay the hot requests: connects, reads until it is asked, then says how many
    connections are open."""
    count, rate = numbers
    connections = connect(port, path, addresses, count)
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
    """The process of the slow readers: `numbers` are how many they are, and the bytes/s of each."""

    def __init__(self, port, path, addresses, numbers):
        self.channel, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=read_slowly, args=(port, path, addresses, numbers, theirs), daemon=True)
        self.process.start()
        self.channel.recv()

    def end(self):
        """Ends them; how many were open."""
        self.channel.send(None)
        found = self.channel.recv()
        self.process.join(20)
        return found
