#!/usr/bin/env python3
"""Starts nginx or Apache with its module and `flash backend` in a control group with little memory, and runs thrash.py on it.

    starve.py nginx|apache [--flash FILE] [--module FILE] [--limit-mb 128] [--out FILE] [options of thrash.py]

Needs root and control groups, version 1 or 2. The server's files are in a folder of their own, on the disk of the temporary
directory (TMPDIR), which must have room for them. Prints thrash.py's line and the counters of the module and the group; --out
writes them as JSON. Ends as thrash.py does, and with 1 if no request was held.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODULES = HERE.parent
BUILT = {"nginx": MODULES / "nginx/build/ngx_http_flash_gate_module.so", "apache": MODULES / "apache/build/.libs/mod_flashpache.so"}
LIBRARY = "/usr/lib/apache2/modules"
NGINX = """load_module {module};
user www-data; daemon off; worker_processes 1; pid {place}/nginx.pid; error_log {place}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off; sendfile on; flash_gate on; flash_gate_backend unix:{place}/backend.sock;
    server {{ listen 127.0.0.1:{port}; root {place}/www; location = /counters {{ flash_gate_status; }} }}
}}
"""
APACHE = """ServerRoot {place}
ServerName localhost
Listen 127.0.0.1:{port}
LoadModule mpm_event_module {library}/mod_mpm_event.so
LoadModule authz_core_module {library}/mod_authz_core.so
LoadModule flashpache_module {module}
User www-data
Group www-data
DefaultRuntimeDir {place}
PidFile {place}/apache.pid
ErrorLog {place}/error.log
ThreadsPerChild 64
MaxRequestWorkers 128
DocumentRoot {place}/www
EnableMMAP Off
EnableSendfile On
Flashpache On
FlashpacheBackend {place}/backend.sock
FlashpacheWaiters 100
<Location /counters>
SetHandler flashpache-status
Flashpache Off
</Location>
"""


class Group:
    """A control group with a memory limit; a command starts in it."""

    def __init__(self, limit_bytes):
        one = Path("/sys/fs/cgroup/memory")
        parent, self.limit_file = (one, "memory.limit_in_bytes") if one.is_dir() else (Path("/sys/fs/cgroup"), "memory.max")
        self.path = parent / f"flash-starve-{os.getpid()}"
        self.path.mkdir()
        (self.path / self.limit_file).write_text(str(limit_bytes))

    def start(self, command, **more):
        script = f'echo $$ > {self.path}/cgroup.procs && exec "$@"'
        return subprocess.Popen(["sh", "-c", script, "sh", *map(str, command)], stdin=subprocess.DEVNULL, **more)

    def counts(self):
        """How often the limit was reached, or reads of pages that had been evicted."""
        found = {}
        for name in ("memory.failcnt", "memory.max_usage_in_bytes", "memory.peak"):
            if (self.path / name).exists():
                found[name] = int((self.path / name).read_text())
        for line in (self.path / "memory.stat").read_text().splitlines():
            name, value = line.split()
            if name in ("workingset_refault_file", "pgmajfault", "total_pgpgout", "cache", "rss", "file", "anon"):
                found[name] = int(value)
        return found

    def remove(self):
        for _ in range(100):
            try:
                return self.path.rmdir()
            except OSError:
                time.sleep(0.1)


def counters(url):
    with urllib.request.urlopen(url + "/counters", timeout=60) as answer:
        lines = [line.split(" ") for line in answer.read().decode().splitlines()]
    return {name: int(value) for name, value in lines}


def wait_for(what, works):
    for _ in range(300):
        if works():
            return
        time.sleep(0.1)
    raise OSError(f"{what} did not start")


def answers(url):
    try:
        return counters(url) is not None
    except OSError:
        return False


def run(options, more, place, group):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = {"nginx": NGINX, "apache": APACHE}[options.server]
    (place / "www").mkdir()
    (place / "server.conf").write_text(text.format(place=place, port=port, module=options.module, library=LIBRARY))
    command = [options.flash, "backend", "--control", "none", "--user", "www-data", "--socket", place / "backend.sock"]
    server = {"nginx": ["nginx", "-c", place / "server.conf"],
              "apache": ["apache2", "-DFOREGROUND", "-f", place / "server.conf"]}[options.server]
    url, started = f"http://127.0.0.1:{port}", []
    try:
        started.append(group.start(command, stdout=subprocess.DEVNULL))
        wait_for("the backend", (place / "backend.sock").exists)
        started.append(group.start(server, process_group=0))
        wait_for(options.server, lambda: answers(url))
        began = time.monotonic()
        done = subprocess.run([sys.executable, HERE / "thrash.py", "--url", url, "--root", place / "www", "--cgroup", group.path, *more],
                              stdout=subprocess.PIPE, text=True)
        found = {"seconds": round(time.monotonic() - began, 1), "said": done.stdout.splitlines(), "counters": counters(url), "group": group.counts()}
        return done.returncode, found
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", choices=["nginx", "apache"])
    parser.add_argument("--flash", default=shutil.which("flash") or "target/release/flash")
    parser.add_argument("--module", type=Path)
    parser.add_argument("--limit-mb", type=int, default=128)
    parser.add_argument("--out")
    options, more = parser.parse_known_args()
    options.flash = os.path.abspath(options.flash)
    options.module = (options.module or BUILT[options.server]).absolute()
    place = Path(tempfile.mkdtemp(prefix="flash-starve-"))
    place.chmod(0o777)
    try:
        group = Group(options.limit_mb << 20)
        try:
            code, found = run(options, more, place, group)
        finally:
            group.remove()
    except OSError as error:
        print(f"starve: cannot run: {error}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(place, ignore_errors=True)
    held = found["counters"].get("held", 0) + found["counters"].get("requests_held", 0)
    found = {"server": options.server, "limit_mb": options.limit_mb, "thrash_options": more, "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
             "kernel": platform.release(), "exit": code, "held": held, **found}
    print(json.dumps(found, indent=1))
    if options.out:
        Path(options.out).write_text(json.dumps(found, indent=1) + "\n")
    return code or (0 if held else 1)


if __name__ == "__main__":
    sys.exit(main())
