#!/usr/bin/env python3
"""The walk-through of docs/flashpache.md, made for real: Debian's nginx and Apache, without the module and with it.

    modules/package all
    sudo bench/walkthrough.py --packages target/packages
    bench/walkthrough.py --document          # writes the newest kept outputs into docs/flashpache.md

It installs the packages on this machine and removes them at the end. The servers run with Debian's own configuration and one
site more, in a mount and a network namespace of their own, so that /etc, /run and /var/log of the machine stay as they are. Each server and
the backend have 512 MB of memory, a disk of 150 reads/s and core 0; the load has core 1. The backend starts as
flash-backend.socket and flash-backend.service start it: by its socket, with their user and capabilities. Needs root and cgroups.
"""

import argparse
import glob
import http.client
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time

from common import process, results, servers

PORT = 8080
URL = f"http://127.0.0.1:{PORT}"
SITE = "/srv/mirror"
SOCKET = "/run/flash/backend.sock"
DOCUMENT = os.path.join(servers.REPOSITORY, "docs", "flashpache.md")
BLOCK = re.compile(r"(<!-- output: (\S+) -->\n```\n).*?(```\n<!-- end of output -->)", re.DOTALL)
# How long a server or the backend may take to start.
PATIENCE_S = 60
# Debian's nginx has 768 connections in a worker, and hot and cold requests have this many each.
CONNECTIONS = 300

NGINX_SITE = """server {
    listen 127.0.0.1:8080;
    root /srv/mirror;
%s}
"""
APACHE_SITE = """Listen 127.0.0.1:8080
<VirtualHost 127.0.0.1:8080>
    DocumentRoot /srv/mirror
%s    <Directory /srv/mirror>
        Require all granted
    </Directory>
</VirtualHost>
"""


class Nginx:
    """Debian's nginx with the site, by the commands that its unit has."""

    name, module = "nginx", "libnginx-mod-http-flash-gate"
    site, text, test = "/etc/nginx/sites-enabled/mirror", NGINX_SITE, "nginx -t"
    unused = "/etc/nginx/sites-enabled/default"
    start, pid = "nginx -g 'daemon off;'", "/run/nginx.pid"
    folders = ["/etc/nginx", "/var/log/nginx", "/var/lib/nginx"]


class Apache:
    """Debian's Apache with the site, by the commands that its unit has."""

    name, module = "apache", "libapache2-mod-flashpache"
    site, text, test = "/etc/apache2/sites-enabled/mirror.conf", APACHE_SITE, "apachectl configtest"
    unused = "/etc/apache2/ports.conf"
    start, pid = "apachectl -D FOREGROUND", "/run/apache2/apache2.pid"
    folders = ["/etc/apache2", "/var/log/apache2"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--document", action="store_true", help="write the kept outputs into docs/flashpache.md, and end")
    parser.add_argument("--packages", default="target/packages", help="folder of the packages" + default)
    parser.add_argument("--files", default="bench/.cache/specweb99", help="file set on a real disk" + default)
    parser.add_argument("--servers", default="nginx,apache", help="by commas" + default)
    parser.add_argument("--rounds", type=int, default=5, help="of flash interfere" + default)
    parser.add_argument("--seconds", type=int, default=10, help="of each phase of flash interfere" + default)
    parser.add_argument("--memory", default="512MB", help="of a server and the backend together" + default)
    parser.add_argument("--reads", type=int, default=150, help="of the disk in a second" + default)
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


class Walk:
    """The steps so far: each a command as an operator types it, with its output."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.result = results.Result("walkthrough", vars(arguments))
        self.result.data["steps"] = {}
        self.result.heading("Walk-through of docs/flashpache.md")

    def step(self, name, command, ends=(0,)):
        """Runs a command in a folder that goes with the namespace, and keeps its output without progress. It must end with one
        of `ends`."""
        errors = None if command.startswith("flash ") else subprocess.STDOUT
        done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=errors, text=True, check=False, cwd="/srv")
        self.say(name, command, done.stdout, done.returncode)
        if done.returncode not in ends:
            raise SystemExit(f"error: `{command}` ended with {done.returncode}: its output is above")

    def say(self, name, shown, output, code):
        """Keeps a step."""
        self.result.data["steps"][name] = {"command": shown, "output": output, "code": code}
        self.result.say(f"[{name}]\n# {shown}\n{output.rstrip()}\n" + (f"(exit code {code})\n" if code else ""))


def run(*words):
    """Runs a command that must not fail."""
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def prepare(arguments, kinds):
    """Gives this namespace its own places and a network of its own."""
    run("ip", "link", "set", "lo", "up")
    for place in ["/srv", "/run"]:
        run("mount", "-t", "tmpfs", "tmpfs", place)
    os.makedirs(SITE)
    run("mount", "--bind", os.path.abspath(arguments.files), SITE)
    for kind in kinds:
        for place in kind.folders:
            copy = tempfile.mkdtemp(prefix="flash-walk-", dir="/srv")
            run("cp", "-aT", place, copy)
            run("mount", "--bind", copy, place)
    for place in ["/run/lock/apache2", "/run/apache2"]:
        os.makedirs(place)


def install(arguments, packages):
    """Installs the packages from the folder of modules/package."""
    found = []
    for package in packages:
        if subprocess.run(["dpkg", "-s", package], capture_output=True, check=False).returncode == 0:
            raise SystemExit(f"error: {package} is installed, and would be removed at the end: remove it first")
        paths = glob.glob(os.path.join(arguments.packages, f"{package}_*.deb"))
        if not paths:
            raise SystemExit(f"error: no package {package} in {arguments.packages}: run `modules/package all`")
        found.append(os.path.abspath(max(paths, key=os.path.getmtime)))
    done = subprocess.run(["apt-get", "install", "-y", "-qq", *found], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    if done.returncode:
        raise SystemExit(f"{done.stdout}error: apt-get could not install {', '.join(packages)}: its output is above")


def lines(kind):
    """The lines that the document adds to the site of a server, from the document."""
    with open(DOCUMENT) as file:
        found = re.search(rf"<!-- lines: {kind.name} -->\n```\w*\n(.*?)```", file.read(), re.DOTALL)
    if not found:
        raise SystemExit(f"error: docs/flashpache.md has no lines for {kind.name}")
    return found[1]


class Running:
    """A server in the testbed, with the backend if it is gated, until the end of the block."""

    def __init__(self, walk, kind, is_gated):
        self.walk, self.kind, self.is_gated = walk, kind, is_gated

    def __enter__(self):
        arguments = self.walk.arguments
        process.drop_page_cache()
        # As the two units do it, and not as a child of the server.
        backend = (f"mkdir -p /run/flash; rm -f {SOCKET}; (systemd-socket-activate --seqpacket -l {SOCKET} setpriv --no-new-privs --inh-caps=-all"
                   " --bounding-set=-all,+setuid,+setgid,+setpcap,+kill,+sys_resource,+chown flash backend"
                   f" --names {SITE} &);"
                   f" while [ ! -S {SOCKET} ]; do sleep 0.1; done; chown www-data:www-data {SOCKET}; chmod 660 {SOCKET};")
        script = (backend if self.is_gated else "") + f" exec {self.kind.start}"
        argv = ["flash", "testbed", self.kind.name, "--memory", arguments.memory, "--reads", str(arguments.reads), "--core", "0",
                "--files", SITE, "--", "bash", "-c", script]
        self.log = tempfile.NamedTemporaryFile("w+", prefix="flash-walk-", suffix=".log", dir="/srv")
        self.process = process.start(argv, log=self.log)
        deadline = time.monotonic() + PATIENCE_S
        while not answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                process.stop(self.process)
                raise SystemExit(f"error: {self.kind.name} does not answer at {URL}:\n{self.output()}")
            time.sleep(0.1)
        try:
            if self.is_gated:
                wait_for_names()
        except BaseException:
            process.stop(self.process, patience_s=15)
            raise
        return self

    def output(self):
        """All that the server and the backend have printed."""
        with open(self.log.name) as file:
            return file.read()

    def __exit__(self, *_):
        process.stop(self.process, patience_s=15)


def wait_for_names():
    """Waits until the backend has looked up the names of the site."""
    before, deadline = -1, time.monotonic() + PATIENCE_S
    # Apache connects at its first question only.
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as first:
        first.connect(SOCKET)
    while time.monotonic() < deadline:
        stats = subprocess.run(["flash", "stats", "--json"], capture_output=True, text=True, check=False)
        counts = re.findall(r'"looked_up":\s*(\d+)', stats.stdout)
        found = int(counts[0]) if counts else -1
        if found == before and found > 0:
            return
        before = found
        time.sleep(2)
    raise SystemExit(f"error: the backend has not looked up the names beneath {SITE} within {PATIENCE_S} s")


def answers():
    """Whether a server answers."""
    try:
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=2)
        connection.request("GET", "/")
        connection.getresponse().read()
        return True
    except OSError:
        return False


def configure(kind, added):
    """Writes the site with these lines."""
    with open(kind.site, "w") as file:
        file.write(kind.text % added)
    if kind.name == "nginx" and os.path.lexists(kind.unused):
        os.remove(kind.unused)
    if kind.name == "apache":
        with open(kind.unused, "w") as file:
            file.write("# The site has its own Listen.\n")


def measure(walk, kind, when):
    """`flash interfere` and `flash doctor` on the running server."""
    arguments = walk.arguments
    # More cold requests than the disk can serve: it is overloaded in every round.
    command = f"flash interfere {URL} --files {SITE} --cold-rate 200 --cores 1 --connections {CONNECTIONS}"
    load = f"{command} --rounds 1 --hot-rate 300 --seconds 15 --out load-{kind.name}-{when}"
    command += f" --out {kind.name}-{when}"
    if (arguments.rounds, arguments.seconds) != (5, 10):
        command += f" --rounds {arguments.rounds} --seconds {arguments.seconds}"
    walk.step(f"{kind.name}-interfere-{when}", command, ends=(0, 3, 4))
    load = process.start(shlex.split(load), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/srv")
    # In its second phase, which has the cold requests.
    time.sleep(18)
    walk.step(f"{kind.name}-doctor-{when}", f"flash doctor $(cat {kind.pid})", ends=(0, 1, 2))
    load.wait()


def walk_through(walk, kind):
    """One server: as it is, then with the lines of the document."""
    configure(kind, "")
    subprocess.run(["bash", "-c", kind.test], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with Running(walk, kind, is_gated=False):
        measure(walk, kind, "before")
    configure(kind, lines(kind))
    walk.step(f"{kind.name}-test", kind.test)
    with Running(walk, kind, is_gated=True) as running:
        measure(walk, kind, "after")
        walk.step(f"{kind.name}-status", f"curl -s {URL}/flashpache-status")
        walk.step(f"{kind.name}-stats", "flash stats")
        walk.say(f"{kind.name}-messages", "standard error of the server and the backend", running.output(), 0)


def document():
    """Writes the newest kept output of each step into docs/flashpache.md."""
    paths = glob.glob(os.path.join(results.FOLDER, "*-walkthrough*.json"))
    if not paths:
        raise SystemExit("error: no result of bench/walkthrough.py is kept")
    steps = {}
    for path in sorted(paths, key=lambda path: (os.path.basename(path)[:10], len(path), path)):
        with open(path) as file:
            steps.update(json.load(file)["steps"])

    def block(found):
        step = steps.get(found[2])
        if step is None:
            print(f"{found[2]}: in no kept result; left as it is")
            return found[0]
        return f"{found[1]}# {step['command']}\n{step['output'].strip(chr(10))}\n{found[3]}"

    with open(DOCUMENT) as file:
        text = file.read()
    with open(DOCUMENT, "w") as file:
        file.write(BLOCK.sub(block, text))


def main():
    arguments = parse_arguments()
    if arguments.document:
        return document()
    if os.geteuid() != 0:
        raise SystemExit("error: installing packages, memory limits and a slow disk need root")
    kinds = [kind for kind in (Nginx, Apache) if kind.name in arguments.servers.split(",")]
    if not os.path.isdir(arguments.files):
        raise SystemExit(f"error: no files at {arguments.files}: run `flash fileset specweb99 {shlex.quote(arguments.files)} --size 3GB`")
    process.clean_up_when_ended()
    if os.environ.get("FLASH_WALK_NAMESPACE"):
        return walk(arguments, kinds)
    packages = ["flash", *[kind.module for kind in kinds]]
    install(arguments, packages)
    try:
        argv = ["unshare", "--mount", "--net", "--propagation", "private", sys.executable, *sys.argv]
        sys.exit(subprocess.run(argv, env={**os.environ, "FLASH_WALK_NAMESPACE": "1"}, check=False).returncode)
    finally:
        run("dpkg", "--purge", *packages)


def walk(arguments, kinds):
    """The walk-through, in its namespaces."""
    process.raise_descriptor_limit()
    steps = Walk(arguments)
    steps.result.hide(os.path.abspath(arguments.files), SITE)
    steps.result.hide(servers.REPOSITORY + "/", "")
    prepare(arguments, kinds)
    for kind in kinds:
        walk_through(steps, kind)
    if not arguments.no_keep:
        steps.result.keep()


main()
