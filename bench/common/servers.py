"""The servers that are compared, each started as its users would for speed.

Every one serves a folder on 127.0.0.1, without access log, with long keep-alive, on one core.
Configurations are written into a folder that the caller made and removes.
"""

import http.client
import os
import shutil
import socket
import subprocess
import time

from . import process

# Ports are taken from here on, one a start, so that nothing of an earlier server is in the way.
FIRST_PORT = 18_100


class Unavailable(Exception):
    """A server can't be started here; the text says why."""


def find(program):
    """The path of an installed program."""
    path = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if not path:
        raise Unavailable(f"{program} is not installed")
    return path


REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def build_flash():
    """Builds Flash, unless FLASH names a program."""
    if "FLASH" in os.environ:
        return
    command = ["cargo", "build", "--release", "-p", "flash"]
    if subprocess.run(command, cwd=REPOSITORY, check=False).returncode != 0:
        raise SystemExit(f"error: `{' '.join(command)}` failed; set FLASH to use a program that is built already")


def prepare(arguments):
    """Builds Flash, unless --no-build is given, and has the script end what it starts however it ends itself."""
    if not arguments.no_build:
        build_flash()
    process.clean_up_when_ended()


def flash_binary():
    """Flash's own program: $FLASH, or the release build of this repository."""
    path = os.environ.get("FLASH") or os.path.join(REPOSITORY, "target", "release", "flash")
    if not os.access(path, os.X_OK):
        raise Unavailable(f"no program at {path}: run `cargo build --release` or set FLASH")
    return os.path.abspath(path)


class Server:
    """A kind of server: its name, how it is started, and how it tells its version."""

    # Restarted for each size of file, and given it.
    one_size = False

    def __init__(self, name, command, version, note=""):
        self.name, self.command, self.version_command, self.note = name, command, version, note

    def version(self):
        """The first line of what the server says of its version."""
        argv = self.version_command()
        said = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout
        lines = [line for line in said.splitlines() if line.strip()]
        return lines[0].strip() if lines else "unknown"

    def start(self, root, port, folder, **place):
        """Starts it for the files in `root` and waits until it answers."""
        argv = self.command(root, port, folder)
        log = open(os.path.join(folder, "server.log"), "ab")
        env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": folder, "XDG_DATA_HOME": folder,
               "XDG_CONFIG_HOME": folder, "LANG": "C"}
        started = process.start(argv, env=env, log=log, **place)
        log.close()
        running = Running(self, started, port, argv, folder)
        try:
            running.wait_until_it_answers()
        except BaseException:
            running.stop()
            raise
        return running


class Running:
    """A started server."""

    def __init__(self, server, started, port, argv, folder):
        self.server, self.process, self.port, self.argv, self.folder = server, started, port, argv, folder
        self.url = f"http://127.0.0.1:{port}"

    def wait_until_it_answers(self, patience_s=20.0):
        """Waits for the port to take connections."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise Unavailable(f"{self.server.name} ended with code {self.process.returncode}: {self.last_words()}")
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise Unavailable(f"{self.server.name} does not listen after {patience_s:.0f} s: {self.last_words()}")

    def last_words(self):
        """The end of its log."""
        with open(os.path.join(self.folder, "server.log"), errors="replace") as file:
            return " / ".join(file.read().strip().splitlines()[-3:]) or "it said nothing"

    def get(self, path):
        """Status, head fields and body of one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def stop(self):
        """Ends it and all it started."""
        process.stop(self.process)


def write(folder, name, text):
    """Writes a configuration file; gives its path."""
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(text)
    return path


def _flash(root, port, folder):
    extra = os.environ.get("FLASH_BENCH_ARGS", "").split()
    return [flash_binary(), "serve", root, "--listen", f"127.0.0.1:{port}", "--workers", "1", *extra]


def flash_before():
    """An older build to compare with: $FLASH_BEFORE."""
    path = os.environ.get("FLASH_BEFORE")
    if not path:
        raise Unavailable("FLASH_BEFORE does not name a program")
    return os.path.abspath(path)


def _flash_before(root, port, folder):
    return [flash_before(), *_flash(root, port, folder)[1:]]


def _flash_somebody(root, port, folder):
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]
    return [*nobody, *_flash(root, port, folder)]


class Floor(Server):
    """The responder that only receives and sends one ready buffer; root is the length of its body."""

    one_size = True

    def __init__(self):
        super().__init__("floor", self._command, lambda: [flash_binary(), "--version"], "recv and send, no server")

    @staticmethod
    def _command(body_bytes, port, _folder):
        return [flash_binary(), "floor", "--listen", f"127.0.0.1:{port}", "--bytes", str(body_bytes)]


def _nginx(sendfile, aio):
    def command(root, port, folder):
        conf = write(folder, "nginx.conf", f"""
user root;
worker_processes 1;
worker_rlimit_nofile 131072;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log;
daemon off;
events {{ worker_connections 65536; multi_accept on; }}
http {{
    access_log off;
    default_type application/octet-stream;
    sendfile {"on" if sendfile else "off"};
    tcp_nopush on;
    {"aio threads;" if aio else ""}
    open_file_cache max=65536 inactive=600s;
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
    uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
    server {{ listen 127.0.0.1:{port} backlog=4096; root {root}; }}
}}
""")
        return [find("nginx"), "-e", f"{folder}/nginx-error.log", "-c", conf]

    return command


def _h2o(root, port, folder):
    conf = write(folder, "h2o.conf", f"""
user: root
num-threads: 1
max-connections: 65536
pid-file: {folder}/h2o.pid
error-log: {folder}/h2o-error.log
http1-request-timeout: 600
listen:
  host: 127.0.0.1
  port: {port}
hosts:
  default:
    paths:
      "/":
        file.dir: {root}
""")
    return [find("h2o"), "-c", conf]


def _lighttpd(root, port, folder):
    conf = write(folder, "lighttpd.conf", f"""
server.document-root = "{root}"
server.port = {port}
server.bind = "127.0.0.1"
server.errorlog = "{folder}/lighttpd-error.log"
server.modules = ( )
server.max-fds = 65535
server.max-connections = 32000
server.listen-backlog = 4096
server.max-keep-alive-requests = 65535
server.max-keep-alive-idle = 600
mimetype.assign = ( "" => "application/octet-stream" )
""")
    return [find("lighttpd"), "-D", "-f", conf]


def _apache(threads):
    per_process = min(threads, 128 if threads > 400 else 25)

    def command(root, port, folder):
        modules = "/usr/lib/apache2/modules"
        loads = "\n".join(
            f"LoadModule {name}_module {modules}/mod_{name}.so"
            for name in ("mpm_event", "authz_core", "mime")
            if os.path.exists(f"{modules}/mod_{name}.so")
        )
        conf = write(folder, "apache.conf", f"""
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
DocumentRoot {root}
TypesConfig /dev/null
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 600
ThreadLimit {per_process}
ThreadsPerChild {per_process}
ServerLimit {-(-threads // per_process)}
StartServers {-(-threads // per_process)}
MinSpareThreads {threads}
MaxSpareThreads {threads}
MaxRequestWorkers {threads}
AsyncRequestWorkerFactor 512
<Directory {root}>
    AllowOverride None
    Require all granted
</Directory>
""")
        return [find("apache2"), "-D", "FOREGROUND", "-f", conf]

    return command


def _caddy(root, port, folder):
    conf = write(folder, "Caddyfile", f"""{{
    admin off
    auto_https off
    log {{
        level ERROR
    }}
}}
http://127.0.0.1:{port} {{
    root * {root}
    file_server
}}
""")
    return [find("caddy"), "run", "--config", conf, "--adapter", "caddyfile"]


def _says(program, *arguments):
    return lambda: [find(program), *arguments]


SERVERS = {
    server.name: server
    for server in [
        Floor(),
        Server("flash", _flash, lambda: [flash_binary(), "--version"], "by its defaults, started by whoever runs this"),
        Server("flash-before", _flash_before, lambda: [flash_before(), "--version"], "an older build"),
        Server("flash-somebody", _flash_somebody, lambda: [flash_binary(), "--version"], "started by another user than the files' owner"),
        Server("nginx", _nginx(True, False), _says("nginx", "-v"), "sendfile, open_file_cache"),
        Server("nginx-nosendfile", _nginx(False, False), _says("nginx", "-v"), "open_file_cache"),
        Server("nginx-aio", _nginx(True, True), _says("nginx", "-v"), "sendfile, open_file_cache, aio threads"),
        Server("h2o", _h2o, _says("h2o", "--version")),
        Server("lighttpd", _lighttpd, _says("lighttpd", "-v")),
        Server("apache", _apache(150), _says("apache2", "-v"), "event, 150 threads"),
        Server("apache-2048", _apache(2048), _says("apache2", "-v"), "event, 2048 threads"),
        Server("caddy", _caddy, _says("caddy", "version")),
    ]
}


def choose(names):
    """The servers with these names that can be started here, and the reasons why others can't."""
    available, skipped = [], {}
    for name in names:
        if name not in SERVERS:
            raise SystemExit(f"error: no server '{name}'; there are: {', '.join(SERVERS)}")
        try:
            SERVERS[name].version_command()
            available.append(SERVERS[name])
        except Unavailable as why:
            skipped[name] = str(why)
    return available, skipped


class Ports:
    """Free ports of the loopback, none twice."""

    def __init__(self):
        self.next = FIRST_PORT

    def take(self):
        """A port that nobody listens on."""
        while True:
            self.next += 1
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", self.next))
                    return self.next
                except OSError:
                    continue
