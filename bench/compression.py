#!/usr/bin/env python3
"""A site of texts, plain and compressed on the fly, beside other servers: CPU time and bytes for each answer.

The texts are the sources and documents of this repository, chosen at random. Each server has one core. The codings take turns,
round by round, after each text was asked for in each of them. See bench/README.md.
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import urllib.request

from common import results, servers, wrk
from common.flash import SERVER_CORE

# Clients that accept several codings are left to each server's choice in practice; here each coding is asked for alone.
CODINGS = {"flash": ["gzip", "br", "zstd"], "nginx": ["gzip"], "caddy": ["gzip", "zstd"]}
PLAIN = "plain"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--servers", default=",".join(CODINGS), help="by commas" + default)
    parser.add_argument("--connections", type=int, default=32, help=default)
    parser.add_argument("--rounds", type=int, default=7, help=default)
    parser.add_argument("--seconds", type=int, default=3, help="of each load" + default)
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


def copy_texts(root):
    """Copies the texts of this repository into a folder; gives their paths there."""
    listed = subprocess.run(["git", "ls-files", "*.md", "*.rs"], cwd=servers.REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
    paths = []
    for number, name in enumerate(listed.stdout.split("\n")[:-1]):
        file = os.path.join(servers.REPOSITORY, name)
        if 1024 <= os.path.getsize(file) <= 4 << 20:
            shutil.copyfile(file, os.path.join(root, f"{number}.txt"))
            paths.append(f"/{number}.txt")
    return paths


def flash():
    """Flash, which compresses what is asked for again. Its helpers stay, so that their time is counted."""
    command = lambda root, port, _: [servers.flash_binary(), "serve", root, "--listen", f"127.0.0.1:{port}", "--workers", "1",
                                     "--compress", "--helper-idle", "1h"]
    return servers.Server("flash", command, lambda: [servers.flash_binary(), "--version"])


def nginx():
    """nginx, which compresses each answer anew, by its default level."""
    return servers.nginx_with("sendfile on; keepalive_requests 1000000000; open_file_cache max=10000; types {{ }} default_type text/plain; "
                              "gzip on; gzip_types *; gzip_min_length 1024; server {{ listen 127.0.0.1:{port}; root {root}; }}",
                              "worker_connections 4096;")


def caddy():
    """Caddy, which compresses each answer anew, by its default levels."""
    return servers.caddy_with("encode zstd gzip\nfile_server")


def script(folder, paths, coding):
    """A script of wrk that asks for random texts in a coding."""
    field = "" if coding == PLAIN else f"Accept-Encoding: {coding}\\r\\n"
    listed = ",".join(f'"{path}"' for path in paths)
    return servers.write(folder, f"{coding}.lua", f"""local paths = {{{listed}}}
local requests = {{}}
for number, path in ipairs(paths) do
    requests[number] = "GET " .. path .. " HTTP/1.1\\r\\nHost: localhost\\r\\n{field}\\r\\n"
end
math.randomseed({random.randrange(1 << 30)})
request = function() return requests[math.random(#requests)] end
done = function(summary)
    local errors = summary.errors
    local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
    io.write(string.format("counted %d %d %d\\n", summary.requests, summary.bytes, failed))
end
""")


def load(running, file, arguments):
    """CPU microseconds and bytes for each answer of one run."""
    text, spent_ns = wrk.run(running, file, arguments)
    found = re.search(r"counted (\d+) (\d+) (\d+)", text)
    if not found or int(found[1]) == 0 or int(found[3]):
        raise servers.Unavailable(f"an answer failed: {' '.join(text.split())}")
    if int(found[2]) / int(found[1]) < 1000:
        raise servers.Unavailable(f"the answers are too short for texts: {found[0]}")
    return {"cpu_us": spent_ns / 1000 / int(found[1]), "bytes": int(found[2]) / int(found[1]), "answers": int(found[1])}


def coding_of(running, path, coding):
    """The coding in which a text comes."""
    fields = {} if coding == PLAIN else {"Accept-Encoding": coding}
    with urllib.request.urlopen(urllib.request.Request(running.url + path, headers=fields), timeout=20) as answer:
        answer.read()
        return answer.headers.get("Content-Encoding", PLAIN)


def warm_up(running, paths, coding):
    """Asks for each text until it comes in the coding; gives how many never do."""
    left = paths
    for _ in range(20):
        left = [path for path in left if coding_of(running, path, coding) != coding]
        if not left:
            break
    return len(left)


def measure(arguments, folder, paths, running, result):
    """The rounds of one server."""
    name = running.server.name
    codings = [PLAIN, *CODINGS[name]]
    files = {coding: script(folder, paths, coding) for coding in codings}
    without = {coding: warm_up(running, paths, coding) for coding in codings}
    rounds = []
    for number in range(arguments.rounds):
        turn = number % len(codings)
        rounds.append({coding: load(running, files[coding], arguments) for coding in codings[turn:] + codings[:turn]})
    result.data["rounds"].append({"server": name, "without": without, "rounds": rounds})
    for coding in codings:
        cpu_us, answer_bytes = (results.median([figures[coding][part] for figures in rounds]) for part in ("cpu_us", "bytes"))
        ratio = results.median([figures[coding]["cpu_us"] / figures[PLAIN]["cpu_us"] for figures in rounds])
        result.say(f"{name:6} {coding:6} {cpu_us:9.1f} us of CPU time and {answer_bytes:7.0f} bytes for each answer; "
                   f"{ratio:6.2f} times the CPU time of plain ones; {without[coding]} of {len(paths)} texts never came so")


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    ports = servers.Ports()
    with results.kept("compression", "Texts, plain and compressed on the fly", arguments, servers.flash_binary()) as (result, folder):
        root = os.path.join(folder, "root")
        os.mkdir(root)
        os.chmod(root, 0o755)
        paths = copy_texts(root)
        result.hide(folder, "$FOLDER")
        result.say(f"{len(paths)} texts, chosen at random, {arguments.connections} connections; medians of {arguments.rounds} rounds of "
                   f"{arguments.seconds} s")
        for name in arguments.servers.split(","):
            place = servers.new_place(folder)
            server = {"flash": flash, "nginx": nginx, "caddy": caddy}[name]()
            try:
                running = server.start(root, ports.take(), place, core=SERVER_CORE)
            except servers.Unavailable as why:
                result.data["skipped"][name] = str(why)
                result.say(f"{name}: skipped: {why}")
                continue
            try:
                result.data["servers"][name] = {"version": server.version(), "note": "", "command": result.clean(" ".join(running.argv))}
                measure(arguments, place, paths, running, result)
            finally:
                running.stop()
        result.say_servers()


if __name__ == "__main__":
    main()
