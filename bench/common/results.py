"""Keeping results: one dated file of text for people and one of JSON for programs, and medians.

Nothing in them was typed by hand, and nothing names the machine or its folders.
"""

import contextlib
import datetime
import json
import os
import statistics
import tempfile

from . import machine

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "results")


class Result:
    """A run that is being kept: its lines are printed and collected, its data written at the end."""

    def __init__(self, kind, settings):
        self.kind, self.lines, self.places = kind, [], []
        self.data = {
            "kind": kind,
            "date": datetime.date.today().isoformat(),
            "machine": machine.describe(),
            "settings": settings,
            "load_average_before": machine.load_average(),
            "servers": {},
            "skipped": {},
            "rounds": [],
        }

    def hide(self, path, name):
        """Writes NAME instead of a path of this machine from now on."""
        self.places.append((path, name))
        self.places.sort(key=lambda place: -len(place[0]))

    def clean(self, value):
        """The value without the paths of this machine."""
        if isinstance(value, str):
            for path, name in self.places:
                value = value.replace(path, name)
            return value
        if isinstance(value, (list, tuple)):
            return [self.clean(part) for part in value]
        if isinstance(value, dict):
            return {self.clean(key): self.clean(part) for key, part in value.items()}
        return value

    def say(self, line=""):
        """Prints a line and keeps it."""
        line = self.clean(line)
        print(line, flush=True)
        self.lines.append(line)

    def heading(self, title):
        """The lines that begin the text."""
        about = self.data["machine"]
        self.say(f"{title}, {self.data['date']}")
        self.say(f"{about['cpu']}, {about['cores']} cores{' (virtual)' if about['virtual'] else ''}, "
                 f"{about['memory_mib']} MiB, {about['kernel']}, TCP by {about['tcp_congestion_control']}; "
                 f"load before: {self.data['load_average_before']:.2f}")
        self.say()

    def note_server(self, server, running):
        """Keeps the version and the command line of a server that was started."""
        self.data["servers"][server.name] = {
            "version": server.version(), "note": server.note, "command": self.clean(" ".join(running.argv))}

    def say_servers(self):
        """Says which servers were measured, and which were not, with the reason."""
        for name, about in self.data["servers"].items():
            note = f" ({about['note']})" if about["note"] else ""
            self.say(f"{name}{note}: {about['version']}: {about['command']}")
        for name, why in self.data["skipped"].items():
            self.say(f"{name}: skipped: {why}")

    def keep(self):
        """Writes both files under bench/results; gives the path of the text."""
        os.makedirs(FOLDER, exist_ok=True)
        stem, number = f"{self.data['date']}-{machine.label()}-{self.kind}", 1
        name = stem
        while os.path.exists(os.path.join(FOLDER, name + ".json")):
            number += 1
            name = f"{stem}-{number}"
        path = os.path.join(FOLDER, name)
        with open(path + ".json", "w") as file:
            json.dump(self.clean(self.data), file, indent=1)
            file.write("\n")
        with open(path + ".txt", "w") as file:
            file.write("\n".join(self.lines) + "\n")
        print(f"\nkept in {os.path.relpath(path)}.txt and .json")
        return path + ".txt"


@contextlib.contextmanager
def kept(kind, title, arguments, binary):
    """A run of `flash` on the files of the arguments: gives its result and a folder, and keeps it, unless they say otherwise."""
    result = Result(kind, {key: value for key, value in vars(arguments).items() if key != "files"})
    if "files" in arguments:
        result.hide(arguments.files, "$ROOT")
    result.hide(binary, "flash")
    result.heading(title)
    with tempfile.TemporaryDirectory(prefix="flash-bench-") as folder:
        os.chmod(folder, 0o755)
        yield result, folder
    result.say()
    if not arguments.no_keep:
        result.keep()


def median(values):
    """The median, or None of nothing."""
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def cell(value, form, width=9):
    """A value in its column, a dash where there is none."""
    return f"{'-' if value is None else format(value, form):>{width}}"
