"""The servers that are compared, each started as its users would for speed.

Every one serves a folder on 127.0.0.1, without access log, with long keep-alive, on one core.
Flash is started here, the others as the lab starts them. Configurations are written into a folder that the caller made and removes.
"""

import http.client
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import tomllib

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
PEERS = os.path.join(REPOSITORY, "crates", "lab", "peers")


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


def new_place(folder):
    """A new folder in this one for the files of a server, which it can read as another user."""
    place = tempfile.mkdtemp(dir=folder)
    os.chmod(place, 0o755)
    return place


def write(folder, name, text):
    """Writes a configuration file; gives its path."""
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(text)
    return path


def _flash(root, port, folder):
    extra = os.environ.get("FLASH_BENCH_ARGS", "").split()
    return [flash_binary(), "serve", root, "--listen", f"127.0.0.1:{port}", "--workers", "1", *extra]


class Floor(Server):
    """The responder that only receives and sends one ready buffer; root is the length of its body."""

    one_size = True

    def __init__(self):
        super().__init__("floor", self._command, lambda: [flash_binary(), "--version"], "recv and send, no server")

    @staticmethod
    def _command(body_bytes, port, _folder):
        return [flash_binary(), "floor", "--listen", f"127.0.0.1:{port}", "--bytes", str(body_bytes)]


def ready_made(name, more=None):
    """A server that the lab can start, by its file in crates/lab/peers or in bench. `more` are further values of its file: with a
    `certificate` and a `certificate_key` it speaks TLS, with `http2` HTTP/2."""
    parts = {part for part, key in (("tls", "certificate"), ("http2", "http2")) if more and key in more}
    path = os.path.join(PEERS, f"{name}.toml")
    with open(path if os.path.exists(path) else os.path.join(REPOSITORY, "bench", f"{name}.toml"), "rb") as file:
        form = tomllib.load(file)["server"][0]
    if "like" in form:
        with open(os.path.join(PEERS, f"{form['like']}.toml"), "rb") as file:
            like = tomllib.load(file)["server"][0]
        form = {**like, **form, "set": {**like["set"], **form.get("set", {})}}

    def command(root, port, folder):
        values = {"address": "127.0.0.1", **form.get("set", {}), **(more or {}), "root": root, "port": str(port), "folder": folder,
                  "log": os.path.join(folder, "server.log")}

        def is_meant(line):
            conditions = re.findall(r"\{(with|without) ([a-z0-9]+)\}", line)
            return all((part in parts) == (kind == "with") for kind, part in conditions)

        def filled(text):
            lines = [re.sub(r"\{with(out)? [a-z0-9]+\}", "", line).replace("{as root}", "" if os.geteuid() == 0 else "#")
                     for line in text.splitlines() if is_meant(line)]
            return re.sub(r"\{([a-z_]+)\}", lambda found: values.get(found[1], found[0]), "\n".join(lines) + "\n")

        for file in form.get("file", []):
            write(folder, file["name"], filled(file["text"]))
        program, *arguments = [filled(word).strip() for word in form["command"] if is_meant(word)]
        return [find(program), *arguments]

    program, *arguments = form["version"]
    return Server(name, command, lambda: [find(program), *arguments], form.get("note", ""))


def nginx_with(http, events=""):
    """nginx with one worker, no access log and these further lines in `http`, in which `{port}` and `{root}` are filled in."""
    def command(root, port, folder):
        config = write(folder, "nginx.conf", f"""daemon off; worker_processes 1; pid {folder}/nginx.pid;
            {'user root;' if os.geteuid() == 0 else ''}
            events {{ {events} }}
            http {{ access_log off; {http.format(port=port, root=root)} }}""")
        return [find("nginx"), "-p", folder, "-e", os.path.join(folder, "error.log"), "-c", config]
    return Server("nginx", command, lambda: [find("nginx"), "-v"])


def caddy_with(lines):
    """Caddy on one core, with these lines for its only site."""
    def command(root, port, folder):
        config = write(folder, "Caddyfile", f"{{\nadmin off\nauto_https off\n}}\n"
                                            f"http://:{port} {{\nbind 127.0.0.1\nroot * {root}\n{lines}\n}}\n")
        return ["env", "GOMAXPROCS=1", find("caddy"), "run", "--config", config, "--adapter", "caddyfile"]
    return Server("caddy", command, lambda: [find("caddy"), "version"])


SERVERS = {
    server.name: server
    for server in [
        Floor(),
        Server("flash", _flash, lambda: [flash_binary(), "--version"], "by its defaults, started by whoever runs this"),
        *map(ready_made, ("nginx", "nginx-aio", "h2o", "lighttpd", "apache-event", "caddy")),
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
