#!/usr/bin/env python3
"""The listing of a large folder beside other servers: when its first and its last byte come, and how late it makes other requests.

Before each request an entry is added to the folder, so that no server can repeat an old listing. Meanwhile a second client asks for
a small file in memory, every 2 ms: its longest wait is what the listing costs everybody else. Each server has one core, and
the servers take turns. See bench/README.md.
"""

import argparse
import http.client
import os
import tempfile
import threading
import time

from common import process, results, servers
from common.flash import LOAD_CORE, SERVER_CORE

FOLDER = "/large/"
HIT = "/small"
HIT_EVERY_S = 0.002
# The highest that Flash takes.
LISTING_ENTRIES_MAX = 1_000_000


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--before", help="an older flash, measured beside")
    parser.add_argument("--entries", type=int, default=100_000, help=default)
    parser.add_argument("--rounds", type=int, default=9, help=default)
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


def flash(name, binary, entries):
    """A flash binary, which shows this many entries and more, and makes each listing anew."""
    command = lambda root, port, _: [binary, "serve", root, "--listen", f"127.0.0.1:{port}", "--workers", "1", "--browse",
                                     "--listing-entries", str(min(2 * entries, LISTING_ENTRIES_MAX)), "--freshness", "0s", "--control", "none"]
    return servers.Server(name, command, lambda: [binary, "--version"])


def lighttpd():
    """lighttpd with `mod_dirlisting`."""
    def command(root, port, folder):
        config = servers.write(folder, "lighttpd.conf", f"""server.document-root = "{root}"
            server.port = {port}
            server.bind = "127.0.0.1"
            server.modules = ( "mod_dirlisting" )
            dir-listing.activate = "enable"
            """)
        return [servers.find("lighttpd"), "-D", "-f", config]
    return servers.Server("lighttpd", command, lambda: [servers.find("lighttpd"), "-v"])


class Hits(threading.Thread):
    """A client that asks for a small file until it is told to stop, and its longest wait."""

    def __init__(self, port):
        super().__init__()
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.done, self.longest_s, self.count = threading.Event(), 0.0, 0
        self.ask()
        self.longest_s = 0.0

    def ask(self):
        """One request."""
        begun = time.monotonic()
        self.connection.request("GET", HIT)
        self.connection.getresponse().read()
        self.longest_s = max(self.longest_s, time.monotonic() - begun)
        self.count += 1

    def run(self):
        while not self.done.wait(HIT_EVERY_S):
            self.ask()


def listing(running):
    """The times of one listing and the longest wait of a hit meanwhile, in milliseconds, and the bytes of the listing."""
    hits = Hits(running.port)
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
    connection.connect()
    hits.start()
    time.sleep(0.1)
    begun = time.monotonic()
    connection.request("GET", FOLDER, headers={"Accept": "text/html"})
    answer = connection.getresponse()
    first_s = time.monotonic() - begun
    body = answer.read()
    last_s = time.monotonic() - begun
    time.sleep(0.05)
    hits.done.set()
    hits.join()
    connection.close()
    if answer.status != 200:
        raise servers.Unavailable(f"status {answer.status}")
    return {"first_ms": first_s * 1e3, "last_ms": last_s * 1e3, "bytes": len(body), "hit_ms": hits.longest_s * 1e3,
            "entries": body.count(b"href=")}


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    os.sched_setaffinity(0, {LOAD_CORE})
    result = results.Result("listing", {name: value for name, value in vars(arguments).items() if name != "before"})
    result.heading(f"A listing of {arguments.entries} entries, {arguments.rounds} rounds")
    ports, started = servers.Ports(), {}
    with tempfile.TemporaryDirectory(prefix="flash-bench-") as folder:
        os.chmod(folder, 0o755)
        root = os.path.join(folder, "files")
        os.makedirs(root + FOLDER)
        result.hide(root, "$ROOT")
        result.hide(os.path.dirname(servers.flash_binary()), "$PROGRAMS")
        servers.write(root, HIT.strip("/"), "x" * 1024)
        for number in range(arguments.entries):
            servers.write(root + FOLDER, f"package-{number * 7919 % arguments.entries}.tar.gz", "")
        try:
            chosen = [flash("flash", servers.flash_binary(), arguments.entries),
                      servers.nginx_with("server {{ listen 127.0.0.1:{port}; root {root}; autoindex on; }}"),
                      servers.caddy_with("file_server browse"), lighttpd()]
            if arguments.before:
                chosen.append(flash("flash before", os.path.abspath(arguments.before), arguments.entries))
                result.hide(os.path.dirname(os.path.abspath(arguments.before)), "$BEFORE")
            for server in chosen:
                place = tempfile.mkdtemp(dir=folder)
                result.hide(place, "$CONF")
                try:
                    started[server.name] = server.start(root, ports.take(), place, core=SERVER_CORE)
                    result.note_server(server, started[server.name])
                except servers.Unavailable as why:
                    result.data["skipped"][server.name] = str(why)
            for number in range(arguments.rounds):
                names = list(started)
                round_ = {}
                for name in names[number % len(names):] + names[:number % len(names)]:
                    servers.write(root + FOLDER, f"new-{name}-{number}", "")
                    round_[name] = listing(started[name])
                result.data["rounds"].append({"round": number + 1, "listings": round_})
        finally:
            for running in started.values():
                running.stop()
    report(started, result)
    if not arguments.no_keep:
        result.keep()


def report(names, result):
    """A line for each server."""
    result.say(f"{'server':<14}{'first byte':>14}{'last byte':>14}{'bytes':>14}{'links':>10}{'longest wait of a hit':>24}")
    for name in names:
        median = lambda key: results.median([round_["listings"][name][key] for round_ in result.data["rounds"]])
        result.say(f"{name:<14}{median('first_ms'):>11.0f} ms{median('last_ms'):>11.0f} ms{median('bytes'):>14.0f}"
                   f"{median('entries'):>10.0f}{median('hit_ms'):>21.1f} ms")
    result.say()
    result.say_servers()


if __name__ == "__main__":
    process.clean_up_when_ended()
    main()
