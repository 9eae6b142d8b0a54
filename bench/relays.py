#!/usr/bin/env python3
"""Relays to a server over TLS, beside other proxies: the proxy's CPU time for each request and its latency, on connections that are
kept, and with a new connection for each request, whose session continues an earlier one or begins anew.

See bench/README.md.
"""

import argparse
import os

from common import process, results, servers
from common.flash import LOAD_CORE, SERVER_CORE, load
from common.tls import certificate

# How the server treats connections, in nginx's words.
WAYS = {
    "kept": "keepalive_timeout 60s; keepalive_requests 1000000;",
    "new, resumed": "keepalive_timeout 0;",
    "new, full": "keepalive_timeout 0; ssl_session_tickets off; ssl_session_cache off;",
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--proxies", default="flash,nginx,haproxy,caddy", help="by commas" + default)
    parser.add_argument("--key", choices=["ecdsa", "rsa"], default="ecdsa", help="of the server" + default)
    parser.add_argument("--size-bytes", type=int, default=1024, help="of each answer" + default)
    parser.add_argument("--rate", type=int, default=400, help="requests/s" + default)
    parser.add_argument("--rounds", type=int, default=5, help="of each proxy, in turn" + default)
    parser.add_argument("--seconds", type=int, default=5, help="of each load" + default)
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


def upstream(files, way):
    """The server over TLS."""
    return servers.nginx_with(f"sendfile on; server {{{{ listen 127.0.0.1:{{port}} ssl; root {{root}}; {WAYS[way]} "
                              f"ssl_certificate {files['certificate']}; ssl_certificate_key {files['certificate_key']}; }}}}")


def flash(files, server_port):
    def command(root, port, folder):
        config = servers.write(folder, "flash.toml", f"""root = "{root}"
listen = ["127.0.0.1:{port}"]
workers = 1
[[route]]
prefix = "/"
proxy = ["https://127.0.0.1:{server_port}"]
roots = "{files['certificate']}"
""")
        return [servers.flash_binary(), "serve", "--config", config]
    return servers.Server("flash", command, lambda: [servers.flash_binary(), "--version"])


def nginx(files, server_port):
    return servers.nginx_with(
        f"upstream server {{{{ server 127.0.0.1:{server_port}; keepalive 64; }}}} server {{{{ listen 127.0.0.1:{{port}}; "
        "keepalive_requests 1000000; location / {{ proxy_pass https://server; proxy_http_version 1.1; "
        "proxy_set_header Connection ''; proxy_ssl_verify on; proxy_ssl_name localhost; proxy_ssl_server_name on; "
        f"proxy_ssl_trusted_certificate {files['certificate']}; }}}} }}}}")


def haproxy(files, server_port):
    def command(_root, port, folder):
        config = servers.write(folder, "haproxy.cfg", f"""global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen all
  bind 127.0.0.1:{port}
  server one 127.0.0.1:{server_port} ssl verify required ca-file {files['certificate']} verifyhost localhost sni str(localhost)
""")
        return [servers.find("haproxy"), "-f", config]
    return servers.Server("haproxy", command, lambda: [servers.find("haproxy"), "-v"])


def caddy(files, server_port):
    return servers.caddy_with(f"reverse_proxy https://127.0.0.1:{server_port} {{\ntransport http {{\ntls_server_name localhost\n"
                              f"tls_trusted_ca_certs {files['certificate']}\n}}\n}}")


PROXIES = {proxy.__name__: proxy for proxy in (flash, nginx, haproxy, caddy)}


def measure(running, arguments, out):
    """One load of a proxy."""
    before = process.CpuTime(running.process.pid)
    level = load(running.url + "/file", arguments.seconds, out, "--rate", str(arguments.rate), "--connections", "32")
    spent_ns, _ = process.cpu_between(before, process.CpuTime(running.process.pid))
    return {"cpu_us": spent_ns / 1000 / max(1, level["counts"]["answered"]), "latency": level["latency"], "counts": level["counts"]}


def in_way(way, files, arguments, place, ports):
    """The rounds of all proxies with a server that treats connections in one way."""
    folder, root = place
    server = upstream(files, way).start(root, ports.take(), servers.new_place(folder), core=LOAD_CORE)
    running, rounds = {}, {}
    try:
        for name in arguments.proxies.split(","):
            running[name] = PROXIES[name](files, server.port).start(root, ports.take(), servers.new_place(folder), core=SERVER_CORE)
            rounds[name] = []
        for _ in range(arguments.rounds):
            for name, proxy in running.items():
                rounds[name].append(measure(proxy, arguments, servers.new_place(folder) + "/load"))
    finally:
        for started in [*running.values(), server]:
            started.stop()
    return rounds


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    ports = servers.Ports()
    with results.kept("relays", "Relays to a server over TLS", arguments, servers.flash_binary()) as (result, folder):
        root = os.path.join(folder, "root")
        os.mkdir(root)
        with open(os.path.join(root, "file"), "wb") as file:
            file.write(os.urandom(arguments.size_bytes))
        files = certificate(folder, arguments.key)
        for name in arguments.proxies.split(","):
            result.data["servers"][name] = PROXIES[name](files, 0).version()
        result.data["rounds"] = {}
        for way in WAYS:
            rounds = result.data["rounds"][way] = in_way(way, files, arguments, (folder, root), ports)
            for name, found in rounds.items():
                median = lambda part: results.median([part(figures) for figures in found])
                failed = sum(sum(figures["counts"]["failed"].values()) for figures in found)
                result.say(f"{way}: {name}: {median(lambda f: f['cpu_us']):.0f} us of CPU time a request, p50 "
                           f"{median(lambda f: f['latency']['p50_ms']):.3f} ms, p99 {median(lambda f: f['latency']['p99_ms']):.3f} ms, "
                           f"{failed} failed")


if __name__ == "__main__":
    main()
