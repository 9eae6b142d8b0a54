#!/usr/bin/env python3
"""Compares a gated server with a stock one over the same root, byte by byte.

    identity.py --stock http://127.0.0.1:8081 --gated http://127.0.0.1:8082 --root DIR [--seed N] [--ranges 200] [--slow-ms 5]
                [--large-bytes 5000000]

It starts no server. It writes its files to DIR/identity (the root of both servers), sends each request to both over a connection
of its own, and compares the bytes of the answers: status line, fields, body, and how the connection ended. Fields whose values
differ between two servers by nature are left out (see VARYING), and the server's own port is unified; both ports must have the same number of digits.

For each difference it prints the request and both answers, then the number of requests and of differences. It ends with 0 if
there is none, 1 if there are some, 2 if a server cannot be asked. Both servers must be configured alike.
"""

import argparse
import email.utils
import gzip
import os
import random
import re
import shutil
import socket
import ssl
import struct
import sys
import time
import urllib.parse

# Values that differ between two servers with the same answer.
VARYING = {b"date", b"server", b"x-request-id"}
SIZES = [0, 1, 100, 1023, 4095, 4096, 4097, 65536, 100_000, 524_287, 524_288, 524_289, 1_048_576, 1_048_577]
TIMEOUT_S = 60


class Server:
    """One of the two servers."""

    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        self.tls = None
        if parts.scheme == "https":
            # The servers' certificates are not what is compared.
            self.tls = ssl._create_unverified_context()
        self.host, self.port = parts.hostname, parts.port or (443 if self.tls else 80)

    def connect(self, receive_bytes=None):
        connection = socket.socket()
        connection.settimeout(TIMEOUT_S)
        if receive_bytes:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.connect((self.host, self.port))
        return self.tls.wrap_socket(connection) if self.tls else connection

    def exchange(self, sent, slow_ms=None, during=None):
        """Sends bytes and receives until the server closes; `during` runs after the first received bytes."""
        with self.connect(8192 if slow_ms is not None else None) as connection:
            connection.sendall(sent)
            received = []
            while True:
                try:
                    part = connection.recv(65536 if slow_ms is None else 32768)
                except ConnectionResetError:
                    return b"".join(received) + b"[connection reset]"
                if not part:
                    return b"".join(received)
                received.append(part)
                if during:
                    during()
                    during = None
                if slow_ms:
                    time.sleep(slow_ms / 1000)

    def abort(self, sent, bytes_read):
        """Sends bytes, reads some of the answer, and resets the connection."""
        with self.connect(8192) as connection:
            connection.sendall(sent)
            left = bytes_read
            while left > 0 and (part := connection.recv(left)):
                left -= len(part)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def unified(self, answer):
        """The answer without varying fields, and with the multipart boundaries and the server's port replaced."""
        # In redirects and in the error pages of Apache.
        answer = answer.replace(b":%d" % self.port, b":PORT").replace(b"Port %d" % self.port, b"Port PORT")
        for boundary in set(re.findall(rb"multipart/byteranges; boundary=([0-9A-Za-z]+)", answer)):
            answer = answer.replace(boundary, b"BOUNDARY")
        lines = []
        head = True
        # A pipelined answer has several heads; a line of a body is only left out if it looks like a varying field.
        for line in answer.split(b"\n"):
            name = line.split(b":", 1)[0].lower()
            if not (head and b":" in line and name in VARYING):
                lines.append(line)
            if line in (b"\r", b""):
                head = False
            if line.startswith(b"HTTP/1.") or b"HTTP/1.1 " in line:
                head = True
        return b"\n".join(lines)


def pattern(number, length):
    """Bytes of a file: each position differs from its neighbours and from other files'."""
    return random.Random(number).randbytes(length)


class Files:
    """The served files, and the requests for them."""

    def __init__(self, root, large_bytes):
        self.folder = os.path.join(root, "identity")
        self.sizes = [*SIZES, large_bytes]
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        os.chmod(self.folder, 0o755)

    def write(self, name, content, modified_s=1_600_000_000):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(path, 0o644)
        os.utime(path, (modified_s, modified_s))
        return path

    def create(self):
        for number, size in enumerate(self.sizes):
            self.write(f"{size}.bin", pattern(number, size))
        text = b"".join(b"line %d of a page that compresses well\n" % line for line in range(20_000))
        self.write("page.html", text)
        self.write("both.txt", text)
        self.write("both.txt.gz", gzip.compress(text, mtime=0))
        self.write("a b.html", b"a space\n")
        self.write("per%cent.txt", b"a percent sign\n")
        self.write("ü.txt", b"umlaut\n")
        self.write("with-index/index.html", b"<p>the index\n")
        self.write("with-index/deeper/x.txt", b"x\n")
        self.write("without-index/x.txt", b"x\n")
        self.write(".hidden", b"hidden\n")
        self.write("private.txt", b"private\n")
        os.chmod(os.path.join(self.folder, "private.txt"), 0)
        for name, target in [("link.bin", "100000.bin"), ("link-folder", "with-index"), ("dangling", "nowhere"), ("loop", "loop"),
                             ("link-up", "../identity/1.bin")]:
            os.symlink(target, os.path.join(self.folder, name))

    def evict(self):
        """Drops the files' contents from memory, so that the gated server has something to wait for."""
        for folder, _, names in os.walk(self.folder):
            for name in names:
                try:
                    fd = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NONBLOCK)
                except OSError:
                    continue
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(fd)


def request(path, *fields, method="GET", version="1.1", close=True):
    lines = [f"{method} /identity/{path} HTTP/{version}"]
    if version == "1.1":
        lines.append("Host: localhost")
    if close and version == "1.1":
        lines.append("Connection: close")
    return ("\r\n".join([*lines, *fields]) + "\r\n\r\n").encode()


def plain_requests(sizes):
    for size in sizes:
        yield request(f"{size}.bin")
        yield request(f"{size}.bin", method="HEAD")
        yield request(f"{size}.bin", version="1.0")
    for path in ["", "nothing", "nothing/", "nothing/below", "1.bin/below", "1.bin/", "with-index", "with-index/", "with-index/deeper",
                 "with-index/deeper/", "without-index", "without-index/", "a%20b.html", "a b.html", "per%25cent.txt", "per%cent.txt",
                 "%C3%BC.txt", "ü.txt", "%31%30%30.bin", ".hidden", "private.txt", "link.bin", "link-folder/", "link-folder", "dangling",
                 "loop", "link-up", "with-index/../1.bin", "..%2f1.bin", "../../etc/passwd", "1.bin?a=b", "1.bin%00", "x" * 300,
                 "%zz", "both.txt.gz", "100.bin#x", "./1.bin", "//1.bin"]:
        yield request(path)
        yield request(path, method="HEAD")
    for path in ["page.html", "both.txt", "0.bin"]:
        yield request(path, "Accept-Encoding: gzip")
        yield request(path, "Accept-Encoding: gzip", "Range: bytes=0-99")
        yield request(path, "Accept-Encoding: gzip", method="HEAD")
        yield request(path, "Accept-Encoding: identity")
    for method in ["POST", "PUT", "DELETE", "OPTIONS"]:
        yield request("1.bin", "Content-Length: 0", method=method)


def range_requests(seed, count, large_bytes):
    for size in [0, 1, 4096, 100_000, 1_048_577]:
        for given in ["0-0", "0-", f"{size - 1}-" if size else "0-", "-1", "-0", f"-{size + 10}", f"{size}-", f"{size + 5}-{size + 9}",
                      "5-3", "a-b", "0-0,-1", "0-9,20-29,4000-", "0-99,50-149", "0-0,1-1,2-2,3-3", f"{size}-,{size + 1}-", "0-18446744073709551616",
                      " 0-1", "0-1, 3-4"]:
            yield request(f"{size}.bin", f"Range: bytes={given}")
        yield request(f"{size}.bin", "Range: bytes=0-9", method="HEAD")
        yield request(f"{size}.bin", "Range: lines=0-9")
    old, at, new = (email.utils.formatdate(when, usegmt=True) for when in (1_500_000_000, 1_600_000_000, 1_700_000_000))
    for when in [old, at, new, "yesterday"]:
        for name in ["If-Range", "If-Modified-Since", "If-Unmodified-Since"]:
            yield request("100000.bin", f"{name}: {when}")
            yield request("100000.bin", f"{name}: {when}", "Range: bytes=100-199")
    for tag in ['"nothing"', "*", 'W/"nothing"']:
        for name in ["If-Range", "If-None-Match", "If-Match"]:
            yield request("100000.bin", f"{name}: {tag}", "Range: bytes=100-199")
    chosen = random.Random(seed)
    for _ in range(count):
        size = chosen.choice([4097, 100_000, 524_289, 1_048_577, large_bytes])
        parts = []
        for _ in range(chosen.choice([1, 1, 1, 2, 3])):
            first = chosen.randrange(size)
            last = min(first + chosen.choice([0, 1, 100, 5000, 70_000, 600_000, size]), size + 100)
            parts.append(chosen.choice([f"{first}-{last}", f"{first}-", f"-{size - first}", f"{first}-{last}"]))
        yield request(f"{size}.bin", "Range: bytes=" + ",".join(parts))


def pipelined_requests(large_bytes):
    names = ["1.bin", "nothing", "65536.bin", "524289.bin", "0.bin", "with-index/", "4096.bin"]
    for kind in (["GET"] * 7, ["HEAD"] * 7, ["GET", "HEAD"] * 4):
        first = b"".join(request(name, method=method, close=False) for name, method in zip(names, kind))
        yield first + request("100.bin")
    yield request("100.bin", close=False) * 20 + request(f"{large_bytes}.bin")
    yield request("1048577.bin", "Range: bytes=1000-900000", close=False) * 3 + request("100.bin")
    yield request("100.bin", "Connection: keep-alive", version="1.0", close=False) + request("4096.bin", version="1.0")


class Comparison:
    def __init__(self, options):
        self.options = options
        self.servers = [Server(options.stock), Server(options.gated)]
        self.files = Files(options.root, options.large_bytes)
        self.requests = 0
        self.differences = 0

    def answers(self, what, sent, one, other):
        """Counts a request, and prints it if the answers differ."""
        self.requests += 1
        if one == other:
            return
        self.differences += 1
        at = next((at for at, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
        print(f"different: {what}: {sent[:300]!r}")
        for server, answer in zip(("stock", "gated"), (one, other)):
            head = answer.split(b"\r\n\r\n", 1)[0][:800]
            print(f"  {server}: {len(answer)} bytes, from byte {at}: {answer[at:at + 60]!r}\n    {head!r}")

    def same(self, what, sent, slow_ms=None):
        answers = [server.unified(server.exchange(sent, slow_ms)) for server in self.servers]
        self.answers(what, sent, *answers)
        return answers[0]

    def etags(self):
        """Conditional requests with the entity tag that the server itself gave."""
        first = self.same("entity tag", request("100000.bin"))
        found = re.search(rb"(?i)\netag: *([^\r]+)", first)
        if not found:
            return
        tag = found.group(1).decode()
        for name in ["If-Range", "If-None-Match", "If-Match"]:
            self.same("entity tag", request("100000.bin", f"{name}: {tag}", "Range: bytes=100-70000"))
            self.same("entity tag", request("100000.bin", f"{name}: {tag}", method="HEAD"))

    def deleted(self):
        """A file that is deleted, and one that is replaced, while a slow reader has part of it."""
        for what in ("deleted while served", "replaced while served"):
            answers = []
            for server in self.servers:
                content = pattern(99, self.options.large_bytes)
                path = self.files.write("going.bin", content)
                aside = self.files.write("aside.bin", pattern(98, self.options.large_bytes))

                def during(path=path, aside=aside, what=what):
                    os.unlink(path) if what.startswith("deleted") else os.replace(aside, path)

                answer = server.unified(server.exchange(request("going.bin"), self.options.slow_ms, during))
                # The servers were given files of their own, whose tags may contain the inode or the time of a change.
                answers.append(re.sub(rb"(?i)\netag:[^\n]*", b"", answer))
                if not answer.endswith(content):
                    self.answers(what, b"the first file's content is expected", answer, content)
            self.answers(what, request("going.bin"), *answers)

    def aborts(self):
        """Clients that leave in mid body; the next request finds the server as it was."""
        chosen = random.Random(self.options.seed)
        for _ in range(40):
            self.files.evict()
            size = chosen.choice([524_289, 1_048_577, self.options.large_bytes])
            for server in self.servers:
                server.abort(request(f"{size}.bin", close=False), chosen.choice([0, 1, 1000, 300_000]))
        self.same("after aborts", request("1048577.bin"))

    def run(self):
        self.files.create()
        groups = [("plain", list(plain_requests(self.files.sizes))), ("range", list(range_requests(self.options.seed, self.options.ranges, self.options.large_bytes))),
                  ("pipelined", list(pipelined_requests(self.options.large_bytes)))]
        for what, requests in groups:
            self.files.evict()
            for number, sent in enumerate(requests):
                # Cold on both sides now and then: the gated server is asked second.
                if number % 20 == 0:
                    self.files.evict()
                one = self.servers[0].unified(self.servers[0].exchange(sent))
                if number % 3 == 0:
                    self.files.evict()
                other = self.servers[1].unified(self.servers[1].exchange(sent))
                self.answers(what, sent, one, other)
        self.etags()
        for size in (100_000, 1_048_577, self.options.large_bytes):
            self.files.evict()
            self.same("slow reader", request(f"{size}.bin"), self.options.slow_ms)
        self.deleted()
        self.aborts()
        print(f"identity: seed {self.options.seed}: {self.requests} requests, {self.differences} differences")
        return 1 if self.differences else 0


def main():
    parser = argparse.ArgumentParser(description="Compares a gated server with a stock one over the same root.")
    parser.add_argument("--stock", required=True, help="base URL of the server without the module")
    parser.add_argument("--gated", required=True, help="base URL of the server with the module")
    parser.add_argument("--root", required=True, help="the document root of both; a folder `identity` is written there")
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--ranges", type=int, default=200, help="number of random ranges")
    parser.add_argument("--large-bytes", type=int, default=5_000_000, help="size of the largest file, more than 1048577")
    parser.add_argument("--slow-ms", type=int, default=5, help="pause of a slow reader after each read")
    options = parser.parse_args()
    try:
        return Comparison(options).run()
    except OSError as error:
        print(f"identity: {options.stock} or {options.gated} cannot be asked, or {options.root} not written: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
