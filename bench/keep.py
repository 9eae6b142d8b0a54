#!/usr/bin/env python3
"""Copies the small results of a run of the lab into the repository.

    bench/keep.py FROM TO

FROM was written by `flash compare`, `interfere`, `load` or `experiment` with `--out FROM`. TO receives `run.json.gz` without its
curves (`CURVES`), and the other results of at most 200 kB. All other figures of every round stay, with seven digits, so `flash report`,
`flash experiment judge`, `bench/figures.py` and `bench/picture.py` can read TO. `records/` and `latency.hlog` are not copied.
"""

import argparse
import gzip
import json
import os
import sys

import picture

# The most bytes of a file below bench/results; tests/tidy/results.rs has the same bound.
BYTES_MAX = 200_000
COPIED = ("printed.txt", "report.json", "report.html", "inside.json", "inside.json.gz")
# The curves of a round or level, which only charts show. Each becomes empty.
CURVES = (("cdf",), ("histogram",), ("timeline", "points"), ("overload", "by_size"), ("overload", "over_time"), ("overload", "open"))
DIGITS = 7
NOTE = f"Kept without its curves (bench/keep.py), and with {DIGITS} digits: the charts of distributions and of the course of a round are empty."


def drop_curves(measures):
    """Empties the curves of a round or level."""
    for *parents, name in CURVES:
        place = measures
        for parent in parents:
            place = place.get(parent) or {}
        if name in place:
            place[name] = []


def rounded(value):
    """A value of JSON whose fractions have `DIGITS` digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def small(run):
    """The run without its curves and with fewer digits, with a note that says so."""
    for subject in run["subjects"]:
        for measures in subject["levels"]:
            drop_curves(measures)
            measures["deciles"] = []
        for measures in subject.get("rounds", []):
            drop_curves(measures)
            # Findings ask for the slowest tenth.
            measures["deciles"] = measures.get("deciles", [])[-1:]
    if NOTE not in run["notes"]:
        run["notes"].append(NOTE)
    return rounded(run)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="FROM")
    parser.add_argument("target", metavar="TO")
    arguments = parser.parse_args()
    run = small(picture.read(arguments.source))
    # Without a time, so that the same run gives the same bytes.
    files = {"run.json.gz": gzip.compress(json.dumps(run, ensure_ascii=False, separators=(",", ":")).encode(), 9, mtime=0)}
    for name in COPIED:
        path = os.path.join(arguments.source, name)
        if os.path.exists(path):
            with open(path, "rb") as file:
                files[name] = file.read()
    os.makedirs(arguments.target, exist_ok=True)
    for name, content in files.items():
        if len(content) > BYTES_MAX:
            print(f"{name}: left out: {len(content):,} bytes are more than {BYTES_MAX:,}")
            continue
        with open(os.path.join(arguments.target, name), "wb") as file:
            file.write(content)
    if len(files["run.json.gz"]) > BYTES_MAX:
        sys.exit("error: run.json.gz is too large even without its curves: it was not kept")


if __name__ == "__main__":
    main()
