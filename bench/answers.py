#!/usr/bin/env python3
"""CPU time per request of Flash by the form of the answer, relative to a plain hit of 1 KB.

One Flash without and one with an access log, and the floor, run on one core. One form at a time is asked for, for a
short while, in turn, many times over: whatever else the machine does hits all alike. The figure is the median of the
ratios within each round, with the middle half of them. See bench/README.md.

    bench/answers.py
    bench/answers.py --before /path/to/an/older/flash
"""

import argparse
import os
import re
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

from common import process, results, servers, wrk
from common.flash import LOAD_CORE, SERVER_CORE

BODY_BYTES = 1024
# `ann:secret`
PASSWORD = "YW5uOnNlY3JldA=="
# Fields for all answers, and redirects of other paths.
FIELD_RULES = """
[[rule]]
path = "*"
set = { X-Frame-Options = "DENY", Referrer-Policy = "no-referrer" }

[[rule]]
path = "/old/*"
redirect = "/new/$1"
"""
# Networks, a rate that is never reached, users, and a server that decides about other paths.
ENTRY_RULES = """
[[rule]]
path = "/private/*"
auth = "/ask/auth"

[[rule]]
path = "*"
allow = ["127.0.0.0/8"]
rate = "1000000/s"
burst = 1000000
users = "users"

[[route]]
prefix = "/ask/"
proxy = "127.0.0.1:9"
"""
# Bounds that are never reached. A request counts for them, so it is not answered by its bytes alone.
BOUND_RULES = """
[[rule]]
path = "*"
concurrency = 1000
total_concurrency = 100000
bandwidth = "10Gbit"
"""
BROWSER = ("User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 "
           "Safari/537.36\\r\\nAccept: */*\\r\\nAccept-Language: en-GB,en;q=0.9\\r\\n"
           "Accept-Encoding: gzip, deflate, br, zstd\\r\\nReferer: https://www.example.org/%d\\r\\n"
           "Sec-Fetch-Dest: script\\r\\nSec-Fetch-Mode: no-cors\\r\\nSec-Fetch-Site: same-origin\\r\\n"
           "Cookie: session=%d\\r\\n")


def request(line, fields=""):
    """A wrk script that sends this request again and again."""
    return f'request = function() return "{line}\\r\\nHost: localhost\\r\\n{fields}\\r\\n" end'


def varied():
    """A wrk script whose requests all differ, as those of many browsers do."""
    return ('local n = 0\nrequest = function()\n  n = n + 1\n'
            f'  return string.format("GET /1k HTTP/1.1\\r\\nHost: localhost\\r\\n{BROWSER}\\r\\n", n, n * 7919)\nend')


def forms(etag):
    """Name, the server that answers, the script, the form it is compared to, and the most that was asked for."""
    hit = request("GET /1k HTTP/1.1")
    return [
        ("hit", "flash", hit, None, None),
        ("304", "flash", request("GET /1k HTTP/1.1", f'If-None-Match: {etag}\\r\\n'), "hit", 1.15),
        # wrk takes every answer's Content-Length for that of a body, so this file is empty.
        ("HEAD", "flash", request("HEAD /empty HTTP/1.1"), "hit", 1.15),
        ("HTTP/1.0", "flash", request("GET /1k HTTP/1.0", "Connection: keep-alive\\r\\n"), "hit", 1.15),
        ("close", "flash", request("GET /1k HTTP/1.1", "Connection: close\\r\\n"), "hit", None),
        ("range", "flash", request("GET /1k HTTP/1.1", "Range: bytes=0-99\\r\\n"), "hit", None),
        ("logged hit", "logged", hit, "hit", 1.10),
        ("hit under field rules", "fields", hit, "hit", 1.05),
        ("observed hit", "observed", hit, "hit", 1.05),
        ("hit under all rules", "ruled", request("GET /1k HTTP/1.1", f"Authorization: Basic {PASSWORD}\\r\\n"), "hit", 1.05),
        ("hit under bounds", "bounded", hit, "hit", None),
        ("floor", "floor", hit, None, None),
        ("varied heads", "flash", varied(), "floor, varied", 1.12),
        ("floor, varied", "floor", varied(), None, None),
    ]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--forms", help="only these and those they are compared to, by commas; default: all")
    parser.add_argument("--before", help="an older flash, measured beside in each form")
    parser.add_argument("--connections", type=int, default=64, help=default)
    parser.add_argument("--rounds", type=int, default=30, help=default)
    parser.add_argument("--seconds", type=int, default=1, help="of each run" + default)
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


def load(running, script, arguments, folder):
    """CPU microseconds per request of one short run."""
    path = os.path.join(folder, "form.lua")
    with open(path, "w", encoding="utf-8") as file:
        file.write(script)
    text, spent_ns = wrk.run(running, path, arguments, "/1k")
    found = re.search(r"(\d+) requests in", text)
    if not found or not int(found[1]):
        raise servers.Unavailable(f"nothing was answered: {' '.join(text.split())}")
    return spent_ns / 1000 / int(found[1])


def flash(name, binary, log):
    """A server from a flash binary, with an access log or without."""
    def command(root, port, folder):
        more = ["--log-file", os.path.join(folder, "access.log")] if log else ["--log-format", "off"]
        return [os.path.abspath(binary), "serve", root, "--listen", f"127.0.0.1:{port}", "--workers", "1", *more]
    return servers.Server(name, command, lambda: [binary, "--version"])


# Fields for all answers, a log with all fields, and metrics, which are read every second.
OBSERVED = 'log_format = "json"\nlog_file = "access.log"\nadmin = ["127.0.0.1:%d"]\n' + FIELD_RULES


def scrape(port):
    """Reads the metrics of a server every second, until it ends."""
    while True:
        time.sleep(1)
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read()
        except OSError:
            return


def flash_with_rules(name, binary, rules):
    """A server from a flash binary, with rules."""
    def command(root, port, folder):
        made = subprocess.run(["openssl", "passwd", "-6", "secret"], stdout=subprocess.PIPE, text=True, check=True).stdout
        os.chmod(servers.write(folder, "users", f"ann:{made}"), 0o600)
        config = servers.write(folder, "flash.toml", f'root = "{root}"\nworkers = 1\n'
                                                     f'listen = ["127.0.0.1:{port}"]\n{rules}')
        return [os.path.abspath(binary), "serve", "--config", config]
    return servers.Server(name, command, lambda: [binary, "--version"])


# Makes each server from a program, the port of its metrics and the end of its name.
SERVERS = {
    "flash": lambda binary, _port, end="": flash("flash" + end, binary, False),
    "logged": lambda binary, _port, end="": flash("logged" + end, binary, True),
    "fields": lambda binary, _port, end="": flash_with_rules("fields" + end, binary, FIELD_RULES),
    "ruled": lambda binary, _port, end="": flash_with_rules("ruled" + end, binary, FIELD_RULES + ENTRY_RULES),
    "bounded": lambda binary, _port, end="": flash_with_rules("bounded" + end, binary, BOUND_RULES),
    "observed": lambda binary, port, end="": flash_with_rules("observed" + end, binary, OBSERVED % port),
}


def cases_of(arguments, etags):
    """The forms that are asked for and those they are compared to, for each build with its ETag."""
    cases = []
    for build in ["", " before"] if arguments.before else [""]:
        all_forms = forms(etags[build])
        named = {name for name, *_ in all_forms} if not arguments.forms else set(arguments.forms.split(","))
        named |= {base for name, _, _, base, _ in all_forms if name in named and base}
        for name, server, script, base, most in all_forms:
            if name in named and (server not in ("floor", "observed") or not build):
                floor_base = base and base.startswith("floor")
                cases.append((name + build, server + (build if server != "floor" else ""), script,
                              base and base + ("" if floor_base else build), most))
    return cases


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    process.clean_up_when_ended()
    servers.prepare(arguments)
    os.sched_setaffinity(0, {LOAD_CORE} & os.sched_getaffinity(0) or os.sched_getaffinity(0))
    result = results.Result("answers", {name: value for name, value in vars(arguments).items() if name != "before"})
    result.heading(f"CPU time per request by form of the answer, 1 KB, {arguments.connections} connections, "
                   f"{arguments.rounds} rounds of {arguments.seconds} s")
    binary, ports, started = servers.flash_binary(), servers.Ports(), {}
    metrics_port, wanted = ports.take(), {case[1] for case in cases_of(arguments, {"": "", " before": ""})} - {"floor"}
    chosen = [builder(binary, metrics_port) for name, builder in SERVERS.items() if name in wanted]
    if arguments.before:
        chosen += [builder(arguments.before, metrics_port, " before") for name, builder in SERVERS.items() if name + " before" in wanted]
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        root = os.path.join(folder, "files")
        os.mkdir(root)
        servers.write(root, "1k", "x" * BODY_BYTES)
        servers.write(root, "empty", "")
        result.hide(root, "$ROOT")
        result.hide(os.path.dirname(os.path.abspath(binary)), "$PROGRAMS")
        try:
            for server in chosen + [servers.Floor()]:
                place = servers.new_place(folder)
                result.hide(place, "$CONF")
                files = BODY_BYTES if server.one_size else root
                running = server.start(files, ports.take(), place, core=SERVER_CORE)
                started[server.name] = running
                result.note_server(server, running)
            if "observed" in started:
                threading.Thread(target=scrape, args=[metrics_port], daemon=True).start()
            measure(started, arguments, result, folder)
        finally:
            for running in started.values():
                running.stop()
    if not arguments.no_keep:
        result.keep()


def measure(started, arguments, result, folder):
    """The rounds, and a line for each form."""
    etags = {}
    for build in ["", " before"] if arguments.before else [""]:
        _, fields, _ = started["flash" + build].get("/1k")
        etags[build] = {name.lower(): value for name, value in fields}["etag"].replace('"', '\\"')
    cases = cases_of(arguments, etags)
    for number in range(arguments.rounds):
        turn = number % len(cases)
        figures = {}
        for name, server, script, _, _ in cases[turn:] + cases[:turn]:
            figures[name] = load(started[server], script, arguments, folder)
        result.data["rounds"].append({"round": number + 1, "cpu_us_per_request": figures})
    result.say(f"{'form':<24}{'median':>11}{'to':>18}{'ratio':>9}   (middle half)   asked for at most")
    for name, _, _, base, most in cases:
        median = statistics.median(round_["cpu_us_per_request"][name] for round_ in result.data["rounds"])
        line = f"{name:<24}{median:>8.2f} us"
        if base:
            ratios = [r["cpu_us_per_request"][name] / r["cpu_us_per_request"][base] for r in result.data["rounds"]]
            low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
            line += f"{base:>18}{middle:>9.3f}   ({low:.3f} to {high:.3f})"
            if most and " before" not in name:
                line += f"   {most:.2f}: {'met' if middle <= most else 'MISSED'}"
        result.say(line)
    for name, _, _, _, _ in cases:
        if name + " before" in result.data["rounds"][0]["cpu_us_per_request"]:
            say_change(name, result)


def say_change(name, result):
    """The line of a form beside the same form of the older build."""
    rounds = [round_["cpu_us_per_request"] for round_ in result.data["rounds"]]
    ratios = [figures[name] / figures[name + " before"] for figures in rounds]
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    result.say(f"{name:<24}{'':>11}{'before':>18}{middle:>9.3f}   ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
