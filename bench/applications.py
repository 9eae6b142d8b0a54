#!/usr/bin/env python3
"""CPU time per request that an application answers, and memory with many of them in flight.

Each server passes /proxy/ to the same HTTP server (nginx with files) and .php to the same PHP-FPM, which have
core 1 with wrk; the server has core 0. The servers that can keep FastCGI connections pass .phk to another PHP-FPM and
keep them; then wrk has as many connections as there are processes. CPU time is that of the server's process tree, divided by the requests
that wrk counted, as in cpu.py. For the memory an upstream holds 5,000 requests without an answer.
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import cpu
import memory
from common import machine, process, results, servers

CASES = {"proxy/1k": 1_024, "proxy/100k": 102_400, "hello.php": 6, "hello.phk": 6}
DEFAULT_SERVERS = "flash,nginx,h2o,lighttpd,apache,caddy"
# FastCGI over connections that are kept.
KEPT_CASE = "hello.phk"
# Idle connections to the upstream that nginx keeps: it wants a number. Flash has its default.
KEPT = 128
# Processes of each pool of PHP-FPM: one serves one connection, kept or not.
PHP_PROCESSES = 8
SLEEPER = """
import asyncio, sys

async def hold(reader, writer):
    await reader.read(65536)
    await asyncio.sleep(600)

async def main():
    server = await asyncio.start_server(hold, "127.0.0.1", int(sys.argv[1]), backlog=4096)
    await server.serve_forever()

asyncio.run(main())
"""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default=DEFAULT_SERVERS, help="which, by commas (default: %(default)s)")
    parser.add_argument("--connections", type=int, default=32, help="of wrk (default: %(default)s)")
    parser.add_argument("--in-flight", type=int, default=5_000, help="requests for the memory (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=4, help="of each run of wrk (default: %(default)s)")
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


class Behind:
    """What stands behind the servers: their files, the upstreams' ports, the socket of PHP-FPM."""

    def __init__(self, folder, ports):
        self.root, self.ports, self.folder, self.started = os.path.join(folder, "www"), ports, folder, []
        os.makedirs(os.path.join(self.root, "proxy"))
        for name in ("1k", "100k"):
            with open(os.path.join(self.root, "proxy", name), "wb") as file:
                file.write(b"x" * CASES[f"proxy/{name}"])
        for name in ("hello.php", "hello.phk"):
            servers.write(self.root, name, '<?php echo "hello\\n";')
        self.port, self.sleeper_port = ports.take(), ports.take()
        self.php, self.php_kept = (os.path.join(folder, name) for name in ("php.sock", "php-kept.sock"))

    def start(self):
        """Starts all of them on the core of the load."""
        place = os.path.join(self.folder, "upstream")
        os.mkdir(place)
        upstream = servers.SERVERS["nginx"].start(self.root, self.port, place, core=cpu.LOAD_CORE)
        self.started.append(upstream.process)
        self._run([sys.executable, "-c", SLEEPER, str(self.sleeper_port)])
        pools = "".join(f"""
[{name}]
user = root
group = root
listen = {path}
listen.mode = 0666
listen.backlog = 4096
pm = static
pm.max_children = {PHP_PROCESSES}
security.limit_extensions = .php .phk
""" for name, path in (("www", self.php), ("kept", self.php_kept)))
        conf = servers.write(
            self.folder, "php.conf", f"[global]\ndaemonize = no\nerror_log = {self.folder}/php.log\n{pools}")
        self._run([php_fpm(), "-n", "-F", "-R", "-y", conf])
        deadline = time.monotonic() + 20
        while not (os.path.exists(self.php) and os.path.exists(self.php_kept)) and time.monotonic() < deadline:
            time.sleep(0.05)

    def _run(self, argv):
        log = open(os.path.join(self.folder, "behind.log"), "ab")
        self.started.append(process.start(argv, core=cpu.LOAD_CORE, log=log))
        log.close()

    def stop(self):
        for started in self.started:
            process.stop(started)


def php_fpm():
    """PHP-FPM, which has its version in its name."""
    found = sorted(name for name in os.listdir("/usr/sbin") if name.startswith("php-fpm"))
    return os.path.join("/usr/sbin", found[-1]) if found else servers.find("php-fpm")


def flash(behind, port, folder, binary=None):
    conf = servers.write(folder, "flash.toml", f"""
root = "{behind.root}"
listen = ["127.0.0.1:{port}"]
workers = 1

[[route]]
prefix = "/proxy/"
proxy = "127.0.0.1:{behind.port}"

[[route]]
prefix = "/slow/"
proxy = "127.0.0.1:{behind.sleeper_port}"
connections_max = 16384
queue_max = 16384

[[route]]
extension = "php"
fastcgi = "unix:{behind.php}"

[[route]]
extension = "phk"
fastcgi = "unix:{behind.php_kept}"
connections_max = {PHP_PROCESSES}
idle_max = {PHP_PROCESSES}
""")
    return [binary or servers.flash_binary(), "serve", "--config", conf]


def flash_before(behind, port, folder):
    return flash(behind, port, folder, servers.flash_before())


def nginx(behind, port, folder):
    conf = servers.write(folder, "nginx.conf", f"""
user root;
worker_processes 1;
worker_rlimit_nofile 131072;
pid {folder}/nginx.pid;
daemon off;
events {{ worker_connections 65536; multi_accept on; }}
http {{
    access_log off;
    tcp_nopush on;
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
    uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
    upstream files {{ server 127.0.0.1:{behind.port}; keepalive {KEPT}; keepalive_requests 1000000000; }}
    upstream php {{ server unix:{behind.php}; }}
    upstream kept {{ server unix:{behind.php_kept}; keepalive {PHP_PROCESSES}; keepalive_requests 1000000000; }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        root {behind.root};
        location /proxy/ {{ proxy_pass http://files; proxy_http_version 1.1; proxy_set_header Connection ""; }}
        location /slow/ {{ proxy_pass http://127.0.0.1:{behind.sleeper_port}; proxy_read_timeout 600s; }}
        location ~ \\.phk$ {{
            fastcgi_pass kept;
            fastcgi_keep_conn on;
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
        }}
        location ~ \\.php$ {{
            fastcgi_pass php;
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
        }}
    }}
}}
""")
    return [servers.find("nginx"), "-e", f"{folder}/nginx-error.log", "-c", conf]


def h2o(behind, port, folder):
    conf = servers.write(folder, "h2o.conf", f"""
user: root
num-threads: 1
max-connections: 65536
pid-file: {folder}/h2o.pid
error-log: {folder}/h2o-error.log
http1-request-timeout: 600
proxy.timeout.io: 600000
listen:
  host: 127.0.0.1
  port: {port}
hosts:
  default:
    paths:
      "/proxy/":
        proxy.reverse.url: "http://127.0.0.1:{behind.port}/proxy/"
      "/slow/":
        proxy.reverse.url: "http://127.0.0.1:{behind.sleeper_port}/slow/"
      "/":
        file.dir: {behind.root}
        file.custom-handler:
          extension: .php
          fastcgi.connect:
            port: {behind.php}
            type: unix
        file.custom-handler:
          extension: .phk
          fastcgi.connect:
            port: {behind.php_kept}
            type: unix
          fastcgi.timeout.keepalive: 600000
""")
    return [servers.find("h2o"), "-c", conf]


def lighttpd(behind, port, folder):
    conf = servers.write(folder, "lighttpd.conf", f"""
server.document-root = "{behind.root}"
server.port = {port}
server.bind = "127.0.0.1"
server.errorlog = "{folder}/lighttpd-error.log"
server.modules = ( "mod_proxy", "mod_fastcgi" )
server.max-fds = 65535
server.max-connections = 32000
server.listen-backlog = 4096
server.max-keep-alive-requests = 65535
server.max-keep-alive-idle = 600
$HTTP["url"] =~ "^/proxy/" {{ proxy.server = ( "" => (( "host" => "127.0.0.1", "port" => {behind.port} )) ) }}
$HTTP["url"] =~ "^/slow/" {{ proxy.server = ( "" => (( "host" => "127.0.0.1", "port" => {behind.sleeper_port} )) ) }}
fastcgi.server = ( ".php" => (( "socket" => "{behind.php}" )) )
""")
    return [servers.find("lighttpd"), "-D", "-f", conf]


def apache(behind, port, folder):
    modules = "/usr/lib/apache2/modules"
    names = ("mpm_event", "authz_core", "mime", "proxy", "proxy_http", "proxy_fcgi")
    loads = "\n".join(f"LoadModule {name}_module {modules}/mod_{name}.so" for name in names)
    conf = servers.write(folder, "apache.conf", f"""
{loads}
ServerName localhost
ServerRoot {folder}
Listen 127.0.0.1:{port}
ListenBacklog 4096
PidFile {folder}/apache.pid
DefaultRuntimeDir {folder}
ErrorLog {folder}/apache-error.log
User www-data
Group www-data
DocumentRoot {behind.root}
TypesConfig /dev/null
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 600
ThreadsPerChild 25
ServerLimit 6
StartServers 6
MinSpareThreads 150
MaxSpareThreads 150
MaxRequestWorkers 150
ProxyPass /proxy/ http://127.0.0.1:{behind.port}/proxy/
<FilesMatch "\\.php$">
    SetHandler "proxy:unix:{behind.php}|fcgi://localhost"
</FilesMatch>
<Proxy "fcgi://kept/" enablereuse=on max={PHP_PROCESSES}>
</Proxy>
<FilesMatch "\\.phk$">
    SetHandler "proxy:unix:{behind.php_kept}|fcgi://kept/"
</FilesMatch>
<Directory {behind.root}>
    AllowOverride None
    Require all granted
</Directory>
""")
    return [servers.find("apache2"), "-D", "FOREGROUND", "-f", conf]


def caddy(behind, port, folder):
    conf = servers.write(folder, "Caddyfile", f"""{{
    admin off
    auto_https off
    log {{
        level ERROR
    }}
}}
http://127.0.0.1:{port} {{
    root * {behind.root}
    reverse_proxy /proxy/* 127.0.0.1:{behind.port}
    reverse_proxy /slow/* 127.0.0.1:{behind.sleeper_port}
    php_fastcgi unix/{behind.php}
}}
""")
    return [servers.find("caddy"), "run", "--config", conf, "--adapter", "caddyfile"]


COMMANDS = {"flash": flash, "flash-before": flash_before, "nginx": nginx, "h2o": h2o, "lighttpd": lighttpd, "apache": apache, "caddy": caddy}
# Apache has a thread for each request in flight, so it cannot have thousands.
NOT_IN_FLIGHT = {"apache"}
# They make a FastCGI connection for each request.
KEEP_NONE = {"lighttpd", "caddy"}


def cases_of(server):
    """What is asked of a server."""
    return [case for case in CASES if case != KEPT_CASE or server.name not in KEEP_NONE]


def connections_of(case, arguments):
    """The connections of wrk."""
    return PHP_PROCESSES if case == KEPT_CASE else arguments.connections


def choose(names):
    """The servers that can be started here, and the reasons why others can't."""
    known, skipped = servers.choose(names)
    return [servers.Server(it.name, COMMANDS[it.name], it.version_command) for it in known], skipped


def start(server, behind, result):
    """Starts a server in a folder of its own, and checks what it answers."""
    folder = tempfile.mkdtemp(dir=behind.folder)
    os.chmod(folder, 0o755)
    result.hide(folder, "$CONF")
    running = server.start(behind, behind.ports.take(), folder, core=cpu.SERVER_CORE)
    try:
        for case in cases_of(server):
            status, _, body = running.get(f"/{case}")
            if status != 200 or len(body) != CASES[case]:
                raise servers.Unavailable(f"{server.name} answers /{case} with {status}, {len(body)} bytes")
    except BaseException:
        running.stop()
        raise
    result.data["servers"].setdefault(
        server.name, {"version": server.version(), "note": "", "command": result.clean(" ".join(running.argv))})
    return running


def run_rounds(chosen, arguments, behind, result):
    """CPU time: the servers in turn, each round beginning with another one."""
    for number in range(arguments.rounds):
        turn = number % len(chosen)
        for server in chosen[turn:] + chosen[:turn]:
            if server.name in result.data["skipped"]:
                continue
            try:
                running = start(server, behind, result)
            except servers.Unavailable as why:
                result.data["skipped"][server.name] = str(why)
                print(f"{server.name}: skipped: {why}", file=sys.stderr)
                continue
            try:
                figures = [cpu.measure(running, server.name, case, connections_of(case, arguments), arguments.seconds)
                           for case in cases_of(server)]
            finally:
                running.stop()
            result.data["rounds"] += [{"round": number + 1, **figure} for figure in figures]
            shown = ", ".join(results.cell(figure["cpu_us_per_request"], ".1f", 0) for figure in figures)
            print(f"round {number + 1}, {server.name}: {shown} us", file=sys.stderr, flush=True)


def in_flight(running, count):
    """Pss of the process tree in KiB: before, and with this many requests that wait for their upstream."""
    total = lambda: sum(found["pss"] for found in memory.snapshot(running.process.pid).values())
    before = total()
    clients = []
    try:
        for _ in range(count):
            client = socket.create_connection(("127.0.0.1", running.port), 20)
            client.sendall(b"GET /slow/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            clients.append(client)
        time.sleep(3)
        answered = 0
        for client in clients:
            client.setblocking(False)
            try:
                answered += len(client.recv(1)) >= 0
            except BlockingIOError:
                pass
        return {"before_kib": before, "in_flight_kib": total(), "answered": answered}
    finally:
        for client in clients:
            client.close()


def measure_memory(chosen, arguments, behind, result):
    """Memory of each server with requests in flight, once."""
    result.data["in_flight"] = {}
    for server in chosen:
        if server.name in NOT_IN_FLIGHT or server.name in result.data["skipped"]:
            continue
        running = start(server, behind, result)
        try:
            result.data["in_flight"][server.name] = in_flight(running, arguments.in_flight)
        finally:
            running.stop()


def say_all(result, arguments, names):
    """The whole text of the result."""
    table = cpu.medians(result)
    result.heading("CPU time per request that an application answers")
    result.say(f"{arguments.connections} connections, {PHP_PROCESSES} for {KEPT_CASE}: CPU us per request (ratio to flash), requests/s")
    result.say(f"{'':<12}" + "".join(f"{case:>26}" for case in CASES))
    for name in names:
        line = f"{name:<12}"
        for case in CASES:
            connections = connections_of(case, arguments)
            found, ours = (table.get((server, case, connections)) for server in (name, "flash"))
            if not found or found["cpu_us_per_request"] is None:
                line += f"{'-':>26}"
                continue
            ratio = f"({found['cpu_us_per_request'] / ours['cpu_us_per_request']:.2f})" if ours else ""
            line += f"{found['cpu_us_per_request']:>9.1f} {ratio:>7}{found['requests_per_s']:>9.0f}"
        result.say(line)
    result.say()
    result.say(f"medians of {arguments.rounds} rounds of {arguments.seconds} s; server on core {cpu.SERVER_CORE}; "
               f"wrk -t1, the upstream and PHP-FPM on core {cpu.LOAD_CORE}, which is the limit of requests/s")
    result.say(f"the FastCGI connections of {KEPT_CASE} are kept; {', '.join(sorted(KEEP_NONE))}: cannot keep them")
    if arguments.in_flight:
        result.say()
        result.say(f"memory with {arguments.in_flight} requests in flight that their upstream does not answer, Pss of the process tree")
    for name, found in result.data.get("in_flight", {}).items():
        grown = found["in_flight_kib"] - found["before_kib"]
        result.say(f"{name:<12}{grown / 1024:>8.1f} MiB more, {grown / arguments.in_flight:>6.1f} KiB per request"
                   + (f"; {found['answered']} were answered or closed" if found["answered"] else ""))
    others = [figure["others_used"] + figure["stolen"] for figure in result.data["rounds"]
              if figure["others_used"] is not None]
    result.say_servers()
    for figure in result.data["rounds"]:
        if figure["errors"]:
            result.say(f"round {figure['round']}, {figure['server']}, {figure['size']}: {figure['errors']}")
    result.data["medians"] = [{"server": name, "case": case, **found} for (name, case, _), found in table.items()]


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    if not shutil.which("wrk"):
        raise SystemExit("error: wrk is not installed; on Debian: apt-get install wrk")
    servers.prepare(arguments)
    process.raise_descriptor_limit()
    names = arguments.servers.split(",")
    chosen, skipped = choose(names)
    result = results.Result("applications", {
        "rounds": arguments.rounds, "seconds": arguments.seconds, "connections": arguments.connections,
        "in_flight": arguments.in_flight})
    result.data["skipped"].update(skipped)
    if machine.load_average() > 0.5:
        print(f"warning: load average {machine.load_average():.2f}: others disturb the figures", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="flash-bench-") as folder:
        os.chmod(folder, 0o755)
        behind = Behind(folder, servers.Ports())
        result.hide(folder, "$FOLDER")
        result.hide(servers.flash_binary(), "flash")
        if "flash-before" in names:
            result.hide(servers.flash_before(), "flash")
        try:
            behind.start()
            run_rounds(chosen, arguments, behind, result)
            if arguments.in_flight:
                measure_memory(chosen, arguments, behind, result)
        finally:
            behind.stop()
        say_all(result, arguments, names)
    if not arguments.no_keep:
        result.keep()


if __name__ == "__main__":
    main()
