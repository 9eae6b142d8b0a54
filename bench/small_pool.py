#!/usr/bin/env python3
"""What slow readers of an application's answers cost its other clients.

The application answers three requests at a time, as a PHP-FPM of three children does. Slow readers of one address each ask it for
an answer of 1 MB and read a little of it now and then. Another client sends requests on new connections meanwhile.
See bench/README.md.
"""

import argparse
import http.server
import multiprocessing
import os
import socketserver
import tempfile
import threading
import time

from common import results, servers, slow

SERVER_CORE, LOAD_CORE = 0, 1
PATH = "/app/"
SLOW_ADDRESSES = ["127.0.1.1"]

FLASH = """root = {root!r}
listen = ["127.0.0.1:{port}"]
workers = 1
[[route]]
prefix = "/app/"
proxy = "unix:{application}"
connections_max = {pool}
"""
NGINX = """worker_processes 1;
daemon off;
pid "{folder}/nginx.pid";
error_log "{folder}/server.log" crit;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path "{folder}/t1";
    proxy_temp_path "{folder}/t2";
    fastcgi_temp_path "{folder}/t3";
    uwsgi_temp_path "{folder}/t4";
    scgi_temp_path "{folder}/t5";
    server {{
        listen 127.0.0.1:{port};
        location /app/ {{ proxy_pass http://unix:{application}; proxy_http_version 1.1; proxy_buffering {buffering}; }}
    }}
}}
"""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--readers", type=int, default=150, help="slow readers" + default)
    parser.add_argument("--reader-rate", type=int, default=2048, help="bytes/s of each" + default)
    parser.add_argument("--pool", type=int, default=3, help="requests that the application answers at a time" + default)
    parser.add_argument("--answer-bytes", type=int, default=1_000_000, help="of an answer" + default)
    parser.add_argument("--rate", type=int, default=10, help="other requests/s" + default)
    parser.add_argument("--seconds", type=int, default=20, help="of each phase" + default)
    parser.add_argument("--rounds", type=int, default=3, help="with each server" + default)
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


def answer(path, pool, answer_bytes):
    """The application, in a process of its own, on a Unix socket: over TCP the kernel's buffers would take the answers."""
    permits, body = threading.Semaphore(pool), b"x" * answer_bytes

    class Handler(http.server.BaseHTTPRequestHandler):
        """Holds a permit until the whole answer is sent."""

        protocol_version = "HTTP/1.1"

        def do_GET(self):
            with permits:
                self.send_response(200)
                self.send_header("Content-Length", str(answer_bytes))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_):
            pass

    class Application(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        """A thread for each connection."""

        daemon_threads, request_queue_size = True, 512

        def handle_error(self, *_):
            pass  # A server has given a request up.

    server = Application(path, Handler)
    os.chmod(path, 0o666)
    server.serve_forever()


def kinds(application, pool):
    """The servers before the application: nginx without buffers shows what the readers do to it."""
    def flash(root, port, folder):
        text = FLASH.format(root=root, port=port, application=application, pool=pool)
        return [servers.flash_binary(), "serve", "--config", servers.write(folder, "flash.toml", text)]

    def nginx(buffering):
        def command(_root, port, folder):
            text = NGINX.format(port=port, application=application, folder=folder, buffering=buffering)
            return [servers.find("nginx"), "-e", os.path.join(folder, "server.log"), "-c", servers.write(folder, "nginx.conf", text)]

        return command

    def version():
        return [servers.find("nginx"), "-v"]

    return [servers.Server("flash", flash, lambda: [servers.flash_binary(), "--version"], f"connections_max = {pool}"),
            servers.Server("nginx", nginx("on"), version, "proxy_buffering on, as by default"),
            servers.Server("nginx-unbuffered", nginx("off"), version, "proxy_buffering off")]


def ask(running, seconds, rate, answer_bytes):
    """Requests at a fixed rate, one at a time, each timed from the moment at which it was meant to start: latencies and outcomes."""
    latencies_ms, statuses, intended = [], {}, time.perf_counter()
    end = intended + seconds
    while intended < end and time.perf_counter() < end:
        intended += 1 / rate
        time.sleep(max(0.0, intended - time.perf_counter()))
        try:
            status, _, body = running.get(PATH)
            outcome = str(status) if status != 200 or len(body) == answer_bytes else "cut"
        except OSError as error:
            outcome = type(error).__name__
        latencies_ms.append((time.perf_counter() - intended) * 1000)
        statuses[outcome] = statuses.get(outcome, 0) + 1
    latencies_ms.sort()
    return {"statuses": statuses, "p50_ms": latencies_ms[len(latencies_ms) // 2], "max_ms": latencies_ms[-1]}


def measure(server, arguments, folder, ports, result):
    """One server: the requests alone, then beside the readers."""
    place = servers.new_place(folder)
    result.hide(place, "$CONF")
    running = server.start(folder, ports.take(), place, core=SERVER_CORE)
    try:
        result.note_server(server, running)
        phase = arguments.seconds, arguments.rate, arguments.answer_bytes
        alone = ask(running, *phase)
        readers = slow.Readers(running.port, PATH, SLOW_ADDRESSES, (arguments.readers, arguments.reader_rate))
        time.sleep(5)
        beside = ask(running, *phase)
        return {"server": server.name, "alone": alone, "beside": beside, "readers_open": readers.end()}
    finally:
        running.stop()


def main():
    """Measures in turns, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    os.sched_setaffinity(0, {LOAD_CORE} & os.sched_getaffinity(0) or os.sched_getaffinity(0))
    ports = servers.Ports()
    result = results.Result("small-pool", vars(arguments))
    result.hide(servers.flash_binary(), "flash")
    result.heading(f"An application of {arguments.pool} processes, {arguments.readers} readers of {arguments.reader_rate} bytes/s")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        result.hide(folder, "$FOLDER")
        path = os.path.join(folder, "application.sock")
        application = multiprocessing.Process(target=answer, args=(path, arguments.pool, arguments.answer_bytes), daemon=True)
        application.start()
        while not os.path.exists(path):
            time.sleep(0.05)
        for _ in range(arguments.rounds):
            for server in kinds(path, arguments.pool):
                found = measure(server, arguments, folder, ports, result)
                result.data["rounds"].append(found)
                result.say(f"{found['server']}, {found['readers_open']} readers open at the end")
                for when in ("alone", "beside"):
                    phase = found[when]
                    counts = ", ".join(f"{count} {status}" for status, count in sorted(phase["statuses"].items()))
                    result.say(f"  {when}: {counts}; p50 {phase['p50_ms']:.1f} ms, longest {phase['max_ms']:.1f}")
    result.say()
    result.say_servers()
    if not arguments.no_keep:
        result.keep()


main()
