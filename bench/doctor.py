#!/usr/bin/env python3
"""Diagnoses as in docs/what-blocks.md: `flash doctor` on servers with little memory and a slow disk.

    sudo bench/doctor.py

Each server gets hot requests for files that fit into memory and cold ones for files that were not requested before. The
output of `flash doctor` is kept as bench/results/DATE-MACHINE-doctor-SERVER.txt, word for word, after a paragraph that says how it
was made. Needs root and cgroups. See bench/README.md.
"""

import argparse
import datetime
import os
import subprocess
import tempfile
import time

from common import machine, process, results, servers

SERVER_CORE, LOAD_CORE = 0, 1
FILES = os.path.join(servers.REPOSITORY, "bench", ".cache", "specweb99")
# How long each load runs before `flash doctor` looks: the hot files are in memory then.
WARM_S = 8
NODE = """const http = require('http'), fs = require('fs');
http.createServer((request, response) => fs.readFile(process.argv[2] + decodeURI(request.url), (error, data) => {
  response.statusCode = error ? 404 : 200;
  response.end(data);
})).listen(Number(process.argv[3]), '127.0.0.1');
"""
# What a reader types for the process.
PROCESS = {"nginx": "$(cat /run/nginx.pid)", "nginx-aio": "$(cat /run/nginx.pid)", "flash": "$(pgrep -o flash)", "node": "$(pgrep -o node)"}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--servers", default="nginx-aio,flash,node", help="which, by commas" + default)
    parser.add_argument("--hot-rate", type=int, default=300, help="requests/s" + default)
    parser.add_argument("--cold-rate", type=int, default=200, help="requests/s" + default)
    parser.add_argument("--memory", default="256MiB", help="of the server, with its page cache" + default)
    parser.add_argument("--reads", type=int, default=150, help="of the disk each second" + default)
    parser.add_argument("--files", default=os.environ.get("FLASH_BENCH_FILES", FILES), help="a set of `flash fileset specweb99`")
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    return parser.parse_args()


def server_of(name, folder):
    """The server with this name: one of the lab's, or one of node's own."""
    if name != "node":
        return servers.SERVERS[name]
    script = servers.write(folder, "server.js", NODE)
    return servers.Server(name, lambda root, port, _: [servers.find("node"), script, root, str(port)],
                          lambda: [servers.find("node"), "--version"])


def in_testbed(server, arguments):
    """The same server, with little memory and a slow disk."""
    bounds = [servers.flash_binary(), "testbed", server.name, "--memory", arguments.memory, "--reads", str(arguments.reads),
              "--files", arguments.files, "--core", str(SERVER_CORE), "--"]
    command = lambda root, port, folder: [*bounds, *server.command(root, port, folder)]
    return servers.Server(server.name, command, server.version_command)


def paths(files):
    """Lists of hot files (two directories of small files) and of cold ones (all others), as `flash load --paths` reads them."""
    hot, cold = [], []
    for directory in sorted(os.listdir(files)):
        if not os.path.isdir(os.path.join(files, directory)):
            continue
        for name in sorted(os.listdir(os.path.join(files, directory))):
            size = os.path.getsize(os.path.join(files, directory, name))
            if len(hot) < 60 and size < 100_000:
                hot.append(f"/{directory}/{name} {size}\n")
            else:
                cold.append(f"/{directory}/{name} {size}\n")
    return hot, cold


def diagnose(name, arguments, folder, ports):
    """What `flash doctor` prints of one server."""
    place = servers.new_place(folder)
    server = in_testbed(server_of(name, place), arguments)
    process.drop_page_cache()
    running = server.start(arguments.files, ports.take(), place)
    loads = []
    try:
        for what, listed, rate in zip(("hot", "cold"), paths(arguments.files), (arguments.hot_rate, arguments.cold_rate)):
            with open(f"{place}/{what}", "w", encoding="utf-8") as file:
                file.writelines(listed)
            argv = [servers.flash_binary(), "load", running.url, "--workload", "uniform", "--paths", f"{place}/{what}", "--rate",
                    str(rate), "--duration", f"{WARM_S + 14}s", "--warm-up", "0s", "--out", f"{place}/{what}.out"]
            loads.append(process.start(argv, core=LOAD_CORE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        time.sleep(WARM_S)
        # The testbed's own process is the first of the tree, the server's is the next.
        pid = next(pid for pid in process.tree(running.process.pid) if pid != running.process.pid)
        done = subprocess.run([servers.flash_binary(), "doctor", str(pid)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False, timeout=120)
        for load in loads:
            load.wait(timeout=120)
        return server.version(), done.stdout
    finally:
        for load in loads:
            process.stop(load)
        running.stop()


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    ports, about = servers.Ports(), machine.describe()
    with tempfile.TemporaryDirectory(prefix="flash-bench-") as folder:
        os.chmod(folder, 0o755)
        for name in arguments.servers.split(","):
            try:
                version, text = diagnose(name, arguments, folder, ports)
            except servers.Unavailable as why:
                print(f"{name}: skipped: {why}")
                continue
            day = datetime.date.today().isoformat()
            kept = (f"flash doctor on {version}, {day}, {about['cpu']}, {about['cores']} cores; load before: "
                    f"{machine.load_average():.2f}. Made by bench/doctor.py: {arguments.hot_rate} hot and {arguments.cold_rate} cold\n"
                    f"requests/s, {arguments.memory} of memory, {arguments.reads} reads/s of the disk. Its first line stands for the "
                    f"number of the process.\n\n# flash doctor {PROCESS[name]}\n{text}")
            print(kept)
            path = os.path.join(results.FOLDER, f"{day}-{machine.label()}-doctor-{name}.txt")
            with open(path, "w", encoding="utf-8") as file:
                file.write(kept)


if __name__ == "__main__":
    main()
