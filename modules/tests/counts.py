#!/usr/bin/env python3
"""Counts the results of the public suites, from the files that modules/nginx/suite and modules/apache/suite write with --out.

    counts.py FOLDER [--document FILE]

A suite can be run in parts (ways, MPMs, files): each result is the newest one of its file and way, and is compared with the stock
result of the same run, or else with the newest. Prints the table as Markdown, the differences that remain, and the thrash results
of starve.py. With --document it replaces the part of FILE between its marks. Ends with 1 if a difference is not a known one.
"""

import argparse
import json
import re
import sys
from pathlib import Path

BEGIN = "<!-- counts of the suites: written by modules/tests/counts.py -->\n"
END = "<!-- end of counts -->"


def load(folder):
    runs = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))]
    return sorted(runs, key=lambda run: run["date"])


class Way:
    def __init__(self, server, way):
        self.server, self.way = server, way
        self.files = self.tests = self.failed = self.known = 0
        self.different = []

    def row(self):
        same = "" if self.way.endswith("stock") else f"{self.files - len(self.different):,} of {self.files:,}"
        return f"| {self.server} | {self.way} | {self.files:,} | {self.tests:,} | {self.failed:,} | {same} | {self.known or ''} |"


def nginx_ways(runs):
    runs = [run for run in runs if run.get("suite") == "nginx-tests"]
    files = {}
    for run in runs:
        files.update(run["files"])
    ways = []
    for name in ["stock", "on", "forced", "delayed"] if runs else []:
        way = Way(runs[-1]["server"].replace("nginx version: nginx/", "nginx "), {"on": "with the module"}.get(name, name))
        for file, row in files.items():
            if "left_out" in row or name not in row:
                continue
            result = row[name]
            way.files += 1
            way.tests += result["tests"]
            way.failed += result.get("not ok", 0)
            way.known += len(result.get("known", ()))
            way.different += [f"{file}: {text}" for text in result.get("differences", ())]
        ways.append(way)
    return ways, {file: row["left_out"] for file, row in files.items() if "left_out" in row}


def apache_ways(runs):
    runs = [run for run in runs if run.get("suite") == "httpd-tests"]
    newest, left_out = {}, {}
    for run in runs:
        for file, row in run["files"].items():
            for column, outcome in row.items():
                if outcome is not None:
                    newest[column, file] = (outcome, row.get(column.split()[0] + " stock"))
    ways = {}
    for (column, file), (outcome, stock) in sorted(newest.items()):
        mpm, name = column.split()
        stock = stock or newest.get((mpm + " stock", file), (None,))[0]
        if outcome[0].startswith("skipped") and stock == outcome:
            left_out[file] = outcome[0]
            continue
        way = ways.setdefault(column, Way(runs[-1]["server"].split(" (")[0].replace("/", " "),
                                          f"{mpm}, " + {"module": "with the module"}.get(name, name)))
        way.files += 1
        way.tests += outcome[2]
        way.failed += len(outcome[1])
        if name != "stock" and outcome != stock:
            way.different.append(f"{file}: {stock} without the module, {outcome} with it")
    order = ["stock", "module", "forced", "delayed"]
    return [ways[column] for column in sorted(ways, key=lambda column: (column.split()[0], order.index(column.split()[1])))], left_out


def text(folder, runs):
    nginx, nginx_out = nginx_ways(runs)
    apache, apache_out = apache_ways(runs)
    lines = ["| server | way | test files | tests | of these failed | files as stock | known differences |", "|---|---|---|---|---|---|---|"]
    lines += [way.row() for way in nginx + apache]
    lines += ["", f"Not compared, as the tests skip themselves or use `aio` or `directio`: {len(nginx_out)} files of nginx's, "
              f"{len(apache_out)} of Apache's. Apart from the known differences, the tests that fail "
              "also fail without the module. Results that were removed, and why: `notes.txt` beside the raw results."]
    most = max((way.files for way in apache), default=0)
    if any(way.files < most for way in apache):
        lines.append(f"A row of Apache with fewer than {most} files is of a run that was stopped early.")
    for run in runs:
        if "thrash_options" in run:
            lines.append(f"\n{run['server']}, {run['limit_mb']} MB for the server and the backend, 64 slow readers of 2 GB: {run['said'][-1]}.")
    days = sorted({run["date"][:10] for run in runs})
    lines.append(f"\nLinux {runs[-1]['kernel']}, {' and '.join(days)} ([raw](../{folder})).")
    wrong = [f"{way.server}, {way.way}: {found}" for way in nginx + apache for found in way.different]
    return "\n".join(lines) + "\n", wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--document", type=Path)
    options = parser.parse_args()
    runs = load(options.folder)
    if not runs:
        sys.exit(f"counts: no results in {options.folder}")
    found, wrong = text(options.folder.rstrip("/"), runs)
    print(found + "\n".join(wrong))
    if options.document:
        old = options.document.read_text()
        if not re.search(re.escape(BEGIN) + ".*?" + re.escape(END), old, re.S):
            sys.exit(f"counts: no marks in {options.document}")
        new = re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: BEGIN + found + END, old, flags=re.S)
        options.document.write_text(new)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
