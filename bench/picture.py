#!/usr/bin/env python3
"""Draws the README's picture, docs/promise.svg, from results of `flash interfere`.

    bench/picture.py DIR...

Each DIR was written by `flash interfere --out DIR` and has run.json or run.json.gz; one may hold several servers. The picture has
the latency of hot requests alone and beside cold ones, for each server: medians of the rounds. Nothing is drawn if the load generator was
too late for a percentile.
"""

import argparse
import gzip
import json
import math
import os
import statistics
import sys
from xml.sax.saxutils import escape

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NAMES = {
    "flash": "Flash", "nginx": "nginx", "nginx-aio": "nginx, aio threads", "h2o": "h2o", "lighttpd": "lighttpd", "caddy": "Caddy",
    "apache": "Apache", "apache-event": "Apache", "apache-prefork": "Apache, prefork",
}
ALONE, WITH_COLD, COLD = "hot alone", "hot with cold", "cold"
# The width is near that of a phone, so that the type stays legible there; wide screens get it larger.
WIDTH, LEFT, RIGHT, TOP, ROW = 480, 124, 64, 84, 34
# Widths of the label of a point and of one of the axis.
LABEL, TICK = 62, 46
STYLE = (
    ".t{fill:#1b1f24}.m{fill:#57606a}.g{stroke:#d8dee4}.b{stroke:#0a5ea8;fill:#0a5ea8}.o{stroke:#b93a00;fill:#b93a00}"
    ".h{fill:#fff;stroke:#57606a}.l{stroke:#8c959f}"
    "@media(prefers-color-scheme:dark){.t{fill:#e6edf3}.m{fill:#9198a1}.g{stroke:#30363d}.b{stroke:#58a6ff;fill:#58a6ff}"
    ".o{stroke:#ff8c42;fill:#ff8c42}.h{fill:#0d1117;stroke:#9198a1}.l{stroke:#6e7681}}"
)


def read(folder):
    """The run of a folder, or an end with a message."""
    for name, opener in (("run.json", open), ("run.json.gz", gzip.open)):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            with opener(path, "rt") as file:
                return json.load(file)
    sys.exit(f"{folder} has no run.json: give folders that `flash interfere --out DIR` wrote")


def ratio_of(run, server, measure):
    """The ratio of a percentile with cold requests to that alone, with its interval; None if too few rounds were good for it."""
    ratios = (ratio for ratio in run["ratios"] if ratio["measure"] == measure and ratio["subject"] == f"{server}, {WITH_COLD}")
    return next(ratios, None)


def rounds_of(subject):
    """How many rounds of a server were measured, with those that replace others."""
    return len({level["round"] for level in subject["rounds"] if level["name"] == ALONE})


def typical_ms(subject, phase, measure):
    """The median over the rounds of a percentile in a phase."""
    return statistics.median(level["latency"][measure + "_ms"] for level in subject["rounds"] if level["name"] == phase)


def rows_of(runs, measure):
    """One row for each server, the least latency beside cold requests first; ends with the reasons if one cannot be shown."""
    rows, reasons = [], []
    for run in runs:
        for subject in run["subjects"]:
            name = subject["name"]
            levels = {level["name"]: level for level in subject["levels"]}
            if not {ALONE, WITH_COLD, COLD} <= set(levels):
                reasons.append(f"{name}: a phase is missing")
                continue
            if ratio_of(run, name, measure) is None:
                verdict = run["settings"].get(f"verdict on {name}", "no verdict")
                reasons.append(f"{name}: {verdict}")
                continue
            rows.append({
                "name": NAMES.get(name, name), "rounds": rounds_of(subject), "hot_per_s": levels[ALONE]["asked_per_s"],
                "cold_per_s": levels[COLD]["asked_per_s"],
                "alone_ms": typical_ms(subject, ALONE, measure), "cold_ms": typical_ms(subject, WITH_COLD, measure),
            })
    for rate in ("hot_per_s", "cold_per_s"):
        if len({round(row[rate] or 0) for row in rows}) > 1:
            reasons.append(f"the servers were not asked at one rate: {rate}")
    if reasons:
        sys.exit("not drawn:\n" + "\n".join(reasons))
    return sorted(rows, key=lambda row: row["cold_ms"])


def time(value_ms):
    """A time with three digits, in its usual unit."""
    value, unit = (value_ms * 1000, "µs") if value_ms < 0.0995 else (value_ms, "ms") if value_ms < 999.5 else (value_ms / 1000, "s")
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:,.{digits}f} {unit}"


def picture(rows, measure, about):
    """The picture as SVG."""
    values = [row[key] for row in rows for key in ("alone_ms", "cold_ms")]
    high = 10.0 ** math.ceil(math.log10(max(values)))
    span = WIDTH - LEFT - RIGHT
    # Room for the label at the left of the first point.
    low = min(values) / (high / min(values)) ** (LABEL / (span - LABEL))

    def x(value):
        return LEFT + span * math.log(value / low) / math.log(high / low)

    foot = TOP + ROW * len(rows)
    height = foot + 40
    hot, cold = (f"{rows[0][key]:,.0f}" for key in ("hot_per_s", "cold_per_s"))
    said = "; ".join(f"{row['name']} {time(row['alone_ms'])} alone, {time(row['cold_ms'])} beside cold requests" for row in rows)
    title = f"{measure} latency of {hot} requests/s for files in memory"
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH * 3 // 2}" height="{height * 3 // 2}" '
        f'role="img" font-family="system-ui,sans-serif" font-size="13.5"><title>{escape(title)}: {escape(said)}</title>',
        f"<style>{STYLE}</style>",
        f'<text class="t" x="0" y="16" font-size="15" font-weight="600">{title}</text>',
        '<circle class="h" cx="6" cy="34" r="4.5" stroke-width="2"/><text class="m" x="17" y="38.5">alone</text>',
        f'<circle class="m" cx="75" cy="34" r="5.5"/><text class="m" x="86" y="38.5">beside {cold} requests/s for files on a slow disk</text>',
    ]
    step = span * math.log(10) / math.log(high / low)
    power = math.ceil(math.log10(low))
    while 10.0 ** power <= high * 1.001:
        place = x(10.0 ** power)
        value = 10.0 ** power
        label = f"{value / 1000:g} s" if value >= 1000 else f"{value:g} ms" if value >= 0.1 else f"{value * 1000:g} µs"
        out.append(f'<line class="g" x1="{place:.1f}" x2="{place:.1f}" y1="{TOP - 16}" y2="{foot}"/>')
        if step >= TICK or power % 2 == 0:
            out.append(f'<text class="m" x="{place:.1f}" y="{TOP - 21}" text-anchor="middle" font-size="12">{label}</text>')
        power += 1
    for number, row in enumerate(rows):
        y = TOP + ROW * number + ROW // 2
        first, last = x(row["alone_ms"]), x(row["cold_ms"])
        left, right = (first, last) if first <= last else (last, first)
        colour = "b" if row["cold_ms"] < 2 * row["alone_ms"] else "o"
        labels = [(row["alone_ms"], "m", ""), (row["cold_ms"], "t", ' font-weight="600"')]
        labels.sort(key=lambda label: label[0])
        out += [
            f'<text class="t" x="0" y="{y + 4.5}">{escape(row["name"])}</text>',
            f'<line class="l" x1="{left:.1f}" x2="{right:.1f}" y1="{y}" y2="{y}" stroke-width="2"/>',
            f'<circle class="h" cx="{first:.1f}" cy="{y}" r="4.5" stroke-width="2"/>',
            f'<circle class="{colour}" cx="{last:.1f}" cy="{y}" r="5.5"/>',
            f'<text class="{labels[0][1]}"{labels[0][2]} x="{left - 9:.1f}" y="{y + 4}" text-anchor="end" font-size="13">{time(labels[0][0])}</text>',
            f'<text class="{labels[1][1]}"{labels[1][2]} x="{right + 10:.1f}" y="{y + 4}" font-size="13">{time(labels[1][0])}</text>',
        ]
    out.append(f'<text class="m" x="0" y="{height - 20}" font-size="11.5">{escape(about)}</text>')
    out.append(f'<text class="m" x="0" y="{height - 5}" font-size="11.5">Logarithmic axis: each line is ten times the one before.</text></svg>')
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="DIR")
    parser.add_argument("--measure", default="p99", choices=["p50", "p99"], help="default: %(default)s")
    parser.add_argument("--out", default=os.path.join(ROOT, "docs", "promise.svg"), metavar="FILE")
    arguments = parser.parse_args()
    runs = [read(folder) for folder in arguments.folders]
    rows = rows_of(runs, arguments.measure)
    machine, rounds = runs[0]["machine"], sorted({row["rounds"] for row in rows})
    counts = f"{rounds[0]} rounds" if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]} rounds"
    about = f"{machine['cpu']}, {machine['cores']} cores; flash interfere, {counts}, {runs[0]['started'][:10]}"
    with open(arguments.out, "w") as file:
        file.write(picture(rows, arguments.measure, about))
    print(f"wrote {os.path.relpath(arguments.out)}")


if __name__ == "__main__":
    main()
