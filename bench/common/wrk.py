"""One run of wrk against a running server, and the CPU time that the server spent on it."""

import subprocess

from common import process, servers
from common.flash import LOAD_CORE


def run(running, script, arguments, path=""):
    """The text that wrk printed, and the CPU time of the server in nanoseconds. `arguments` has the connections and the seconds.
    `script` is a file in Lua, or None."""
    before = process.CpuTime(running.process.pid)
    argv = ["wrk", "-t1", f"-c{arguments.connections}", f"-d{arguments.seconds}s", *(["-s", script] if script else []), running.url + path]
    wrk = process.start(argv, core=LOAD_CORE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        text, _ = wrk.communicate(timeout=arguments.seconds + 30)
    finally:
        process.stop(wrk)
    spent_ns, source = process.cpu_between(before, process.CpuTime(running.process.pid))
    if wrk.returncode != 0 or not spent_ns:
        raise servers.Unavailable(f"wrk failed or nothing was counted: {' '.join(text.split())} {source}")
    return text, spent_ns
