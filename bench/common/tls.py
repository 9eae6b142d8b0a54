"""Servers with a certificate that is made for the run."""

import os
import subprocess

from . import servers


def certificate(folder, key):
    """The files of a certificate whose key is of this kind."""
    names = {name: os.path.join(folder, f"{key}-{name}.pem") for name in ("certificate", "certificate_key")}
    kind = ["rsa:2048"] if key == "rsa" else ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    subprocess.run(["openssl", "req", "-x509", "-newkey", *kind, "-nodes", "-days", "30", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", names["certificate_key"],
                    "-out", names["certificate"]], check=True, stderr=subprocess.DEVNULL)
    return names


def server(name, files, address="127.0.0.1", more=None):
    """A server with this certificate, at this address. `more` are further values of its file."""
    if name != "flash":
        return servers.ready_made(name, {**files, "address": address, **(more or {})})

    def command(root, port, _folder):
        return [servers.flash_binary(), "serve", root, "--workers", "1", "--listen", "127.0.0.1:0", "--listen-tls",
                f"{address}:{port}", "--certificate", files["certificate"], "--certificate-key", files["certificate_key"]]
    return servers.Server("flash", command, lambda: [servers.flash_binary(), "--version"])
