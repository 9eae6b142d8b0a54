#!/usr/bin/env python3
"""The time to load a page with 100 resources over HTTP/2 and TLS, by `flash link` at 10 Mbit/s and a round trip of 50 ms, beside
other servers. The client is nghttp, which asks for all resources of the page at once. Needs root.

See bench/README.md.
"""

import argparse
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import time

from common import results, servers
from common.tls import certificate, server

ADDRESS, PORT = "198.18.0.1", 8443
RESOURCES = 100
# 8 MiB for a stream and 16 for the connection, about as browsers have; the smallest allowed would be what limits.
WINDOWS = ["-w", "23", "-W", "24"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--servers", default="flash,nginx,h2o,caddy", help="by commas" + default)
    parser.add_argument("--rounds", type=int, default=5, help="in which each server is started once" + default)
    parser.add_argument("--loads", type=int, default=6, help="of the page in a round" + default)
    parser.add_argument("--rate", default="10mbit", help="of the link" + default)
    parser.add_argument("--delay", default="25ms", help="of the link, in each direction" + default)
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    parser.add_argument("--client", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def write_page(root):
    """A page of 10 style sheets, 10 scripts and 80 images, of 0.5 to 40 KB; gives the bytes of all. Few sizes compress alike, so none does."""
    chance, parts, total = random.Random(1), [], 0
    for number in range(RESOURCES):
        kind, form = [("css", '<link rel="stylesheet" href="/{}">'), ("js", '<script src="/{}"></script>')][number % 2] \
            if number < 20 else ("png", '<img src="/{}">')
        name, length = f"{number}.{kind}", int(500 * 80 ** chance.random())
        with open(os.path.join(root, name), "wb") as file:
            file.write(chance.randbytes(length))
        parts.append(form.format(name))
        total += length
    page = "<!doctype html><html><head>" + "".join(parts[:20]) + "</head><body>" + "".join(parts[20:]) + "</body></html>\n"
    with open(os.path.join(root, "index.html"), "w") as file:
        file.write(page)
    return total + len(page)


def load_page(loads):
    """Loads the page on a new connection each time. Prints the seconds that it took, without the first load."""
    took_s = []
    for _ in range(loads + 1):
        began = time.monotonic()
        done = subprocess.run(["nghttp", "-nas", *WINDOWS, f"https://{ADDRESS}:{PORT}/"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        took_s.append(time.monotonic() - began)
        answers = sum(" 200 " in line for line in done.stdout.splitlines())
        if answers != RESOURCES + 1:
            raise SystemExit(f"error: {answers} of {RESOURCES + 1} answers had the status 200")
    print(json.dumps(took_s[1:]))


def measure(name, files, arguments, folder, root):
    """The seconds of some loads from a server that is started for them."""
    place = servers.new_place(folder)
    command = shlex.join(map(str, server(name, files, ADDRESS, {"http2": "on"}).command(root, PORT, place)))
    link = [servers.flash_binary(), "link", "--rate", arguments.rate, "--delay", arguments.delay, "--server", command, "--",
            sys.executable, os.path.abspath(__file__), "--client", str(arguments.loads)]
    done = subprocess.run(link, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise servers.Unavailable(f"{name}: {done.stderr[-600:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    arguments = parse_arguments()
    if arguments.client:
        return load_page(arguments.client)
    servers.prepare(arguments)
    with results.kept("page", "A page over HTTP/2", arguments, servers.flash_binary()) as (result, folder):
        root = os.path.join(folder, "www")
        os.mkdir(root)
        total = write_page(root)
        files = certificate(folder, "ecdsa")
        result.say(f"{RESOURCES + 1} resources, {total} bytes, {arguments.rate}, {arguments.delay} in each direction, "
                   f"{arguments.rounds} rounds of {arguments.loads} loads, each on a new connection")
        took_s = {name: [] for name in arguments.servers.split(",")}
        for _ in range(arguments.rounds):
            for name in took_s:
                took_s[name].append(measure(name, files, arguments, folder, root))
        for name, rounds in took_s.items():
            every = sorted(second for of_round in rounds for second in of_round)
            result.say(f"{name}: mean {statistics.mean(every):.3f} s, 95 % within {every[int(0.95 * (len(every) - 1))]:.3f} s")
        result.data["took_s"] = took_s


if __name__ == "__main__":
    main()
