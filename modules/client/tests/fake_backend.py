#!/usr/bin/env python3
"""A backend that does no work, for tests of the modules: it answers by the rules given on its command line.

    fake_backend.py SOCKET [--delay-ms N] [--answer ready|busy|errno=N|silent|deaf|garbage|close] [--hello ok|2|user|room|silent]
                    [--log FILE]

After its HELLO a deaf backend reads nothing. It prints "ready" when it listens, and one line for each message to FILE (standard output without): the message and its fields.
"""

import argparse
import os
import selectors
import socket
import struct
import sys
import time


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("socket")
    parser.add_argument("--delay-ms", type=int, default=0)
    parser.add_argument("--answer", default="ready")
    parser.add_argument("--hello", default="ok")
    parser.add_argument("--log")
    return parser.parse_args()


def header(kind, number):
    return struct.pack("<BxxxI", kind, number)


class Fake:
    def __init__(self, args):
        self.args = args
        self.log = open(args.log, "a", buffering=1) if args.log else sys.stdout
        self.due = []
        self.unread = []
        self.selector = selectors.DefaultSelector()
        if os.path.exists(args.socket):
            os.unlink(args.socket)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(args.socket)
        os.chmod(args.socket, 0o666)
        self.listener.listen(512)
        self.selector.register(self.listener, selectors.EVENT_READ)

    def note(self, *words):
        print(*words, file=self.log, flush=True)

    def welcome(self, client, body):
        version, waiters_max, group = struct.unpack_from("<IIQ", body)
        self.note("HELLO", version, waiters_max, group, body[16:].decode())
        status = {"ok": 0, "2": 1, "user": 2, "room": 3}.get(self.args.hello)
        if status is not None:
            client.send(header(129, 0) + struct.pack("<II", 2 if status == 1 else 1, status))
        if status:
            self.drop(client)
        elif self.args.answer == "deaf":
            self.selector.unregister(client)
            self.unread.append(client)

    def answer(self, client, number):
        how = self.args.answer
        if how == "silent":
            return
        if how == "close":
            return self.drop(client)
        if how == "garbage":
            message = os.urandom(13)
        elif how == "busy":
            message = header(132, number) + struct.pack("<I", 1500)
        elif how.startswith("errno="):
            message = header(131, number) + struct.pack("<I", int(how[6:]))
        else:
            message = header(130, number)
        self.due.append((time.monotonic() + self.args.delay_ms / 1000, client, message))

    def drop(self, client):
        self.selector.unregister(client)
        client.close()

    def hear(self, client):
        try:
            data, ancillary, _, _ = client.recvmsg(8192, 256)
        except OSError:
            data, ancillary = b"", []
        for _, _, rights in ancillary:
            for (fd,) in struct.iter_unpack("i", rights):
                os.close(fd)
        if not data:
            return self.drop(client)
        kind, number = struct.unpack_from("<BxxxI", data)
        body = data[8:]
        if kind == 1:
            return self.welcome(client, body)
        if kind == 2:
            self.note("WARM_NAME", number, *struct.unpack_from("<I", body), body[8:].decode(errors="replace"))
        elif kind == 3:
            deadline_ms, _, offset, length, remaining = struct.unpack("<IIQQQ", body)
            self.note("WARM_RANGE", number, deadline_ms, offset, length, remaining)
        else:
            return self.note("CLOSE" if kind == 4 else "CANCEL" if kind == 5 else f"TYPE{kind}", number)
        self.answer(client, number)

    def run(self):
        print("ready", flush=True)
        while True:
            now = time.monotonic()
            for entry in [entry for entry in self.due if entry[0] <= now]:
                self.due.remove(entry)
                try:
                    entry[1].send(entry[2])
                except OSError:
                    pass
            wait = max(0, min(entry[0] for entry in self.due) - time.monotonic()) if self.due else None
            for key, _ in self.selector.select(wait):
                if key.fileobj is self.listener:
                    client, _ = self.listener.accept()
                    self.selector.register(client, selectors.EVENT_READ)
                else:
                    self.hear(key.fileobj)


if __name__ == "__main__":
    Fake(arguments()).run()
