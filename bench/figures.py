#!/usr/bin/env python3
"""Draws the README's picture and writes its figures, from the newest results that are kept.

    bench/figures.py

docs/promise.svg and the part of README.md between the two marks are written anew; nothing else is.
"""

import glob
import json
import math
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
BEGIN, END = "<!-- figures: written by bench/figures.py -->", "<!-- end of figures -->"
NAMES = {
    "flash": "Flash", "nginx": "nginx", "nginx-aio": "nginx, aio threads", "h2o": "h2o", "lighttpd": "lighttpd",
    "apache": "Apache, 150 threads", "apache-2048": "Apache, 2,048 threads", "caddy": "Caddy", "floor": "the floor",
}
LEFT, WIDTH, ROW, TOP, BAR = 190, 860, 44, 74, 13


def newest(kind):
    """The newest kept result of a kind and its file's name, or a message that there is none."""
    def order(path):
        name = os.path.basename(path)
        number = re.search(rf"-{kind}(?:-(\d+))?\.json$", name)
        return name[:10], int(number.group(1) or 1)

    paths = [path for path in glob.glob(os.path.join(HERE, "results", "*.json"))
             if re.search(rf"-{kind}(-\d+)?\.json$", path)]
    if not paths:
        sys.exit(f"no result of bench/{kind}.py is kept: run it first")
    path = max(paths, key=order)
    with open(path) as file:
        return json.load(file), os.path.relpath(path, ROOT)[:-len(".json")] + ".txt"


def ms(value):
    """A latency for people."""
    return f"{value:,.2f} ms" if value < 100 else f"{value:,.0f} ms"


def picture(rows, cold_rate, about):
    """Bars of hot p50 and p99, alone and with cold requests, on a logarithmic axis."""
    low, high = 0.01, 100_000
    def x(value):
        return LEFT + (WIDTH - LEFT - 90) * math.log(max(value, low) / low) / math.log(high / low)

    height = TOP + ROW * len(rows) + 58
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="system-ui,sans-serif" font-size="13">',
        "<style>.t{fill:#1b1f24}.m{fill:#57606a}.g{stroke:#d0d7de}.a{fill:#8c959f}.c{fill:#cf222e}.f{fill:#1a7f37}"
        "@media(prefers-color-scheme:dark){.t{fill:#e6edf3}.m{fill:#9198a1}.g{stroke:#3d444d}.a{fill:#656c76}"
        ".c{fill:#f85149}.f{fill:#3fb950}}</style>",
        f'<text class="t" x="0" y="18" font-size="16" font-weight="600">Requests for files in memory, beside '
        f'{cold_rate} requests/s for files on a slow disk</text>',
        f'<text class="m" x="0" y="38">median latency; grey: without the cold requests, colour: with them. '
        'Logarithmic: a grid line is ten times the one before.</text>',
    ]
    for power in range(-2, 6):
        place = x(10.0 ** power)
        out.append(f'<line class="g" x1="{place:.1f}" x2="{place:.1f}" y1="{TOP - 18}" y2="{height - 44}"/>')
        label = f"{10 ** power:,} ms" if 0 <= power < 3 else f"{10 ** (power - 3)} s" if power > 2 else f"{10.0 ** power:g} ms"
        out.append(f'<text class="m" x="{place:.1f}" y="{TOP - 22}" text-anchor="middle" font-size="11">{label}</text>')
    for number, row in enumerate(rows):
        y = TOP + ROW * number
        out.append(f'<text class="t" x="{LEFT - 12}" y="{y + 18}" text-anchor="end">{NAMES.get(row["server"], row["server"])}</text>')
        colour = "f" if row["with_cold_p50_ms"] < 2 * row["alone_p50_ms"] else "c"
        for place, key, kind in ((0, "alone_p50_ms", "a"), (BAR + 1, "with_cold_p50_ms", colour)):
            end = x(row[key])
            out.append(f'<rect class="{kind}" x="{LEFT}" y="{y + place}" width="{end - LEFT:.1f}" height="{BAR}" rx="2"/>')
            out.append(f'<text class="m" x="{end + 6:.1f}" y="{y + place + BAR - 2}" font-size="11">{ms(row[key])}</text>')
    out.append(f'<text class="m" x="0" y="{height - 16}" font-size="11">{about}</text></svg>')
    return "\n".join(out) + "\n"


def interference_table(data, cold_rate):
    """A table of every server at one cold rate, the least disturbed first."""
    rows = sorted((row for row in data["medians"] if row["cold_rate_per_s"] == cold_rate),
                  key=lambda row: row["with_cold_p50_ms"])
    lines = ["| server | p50 alone | p50 with cold | p99 alone | p99 with cold | cold answered/s | disk reads/s |",
             "|---|---|---|---|---|---|---|"]
    for row in rows:
        cells = [NAMES.get(row["server"], row["server"])]
        cells += [ms(row[key]) for key in ("alone_p50_ms", "with_cold_p50_ms", "alone_p99_ms", "with_cold_p99_ms")]
        cells += [f"{row['cold_answered_per_s']:.0f}", f"{row['disk_reads_per_s'] or 0:.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return rows, lines


def cpu_table(data, connections):
    """A table of CPU time per request, in multiples of the floor as well."""
    rows = {}
    for figure in data["medians"]:
        if figure["connections"] == connections:
            rows.setdefault(figure["server"], {})[figure["size"]] = figure["cpu_us_per_request"]
    sizes = [size for size in data["settings"]["sizes"] if any(size in row for row in rows.values())]
    lines = ["| server | " + " | ".join(sizes) + " |", "|---" * (len(sizes) + 1) + "|"]
    for name, row in rows.items():
        cells = [NAMES.get(name, name)]
        for size in sizes:
            value, floor = row.get(size), rows.get("floor", {}).get(size)
            cells.append("-" if value is None else f"{value:.1f} µs" + (f" ({value / floor:.2f})" if floor else ""))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main():
    interference, interference_file = newest("interfere")
    cpu, cpu_file = newest("cpu")
    rates = sorted({row["cold_rate_per_s"] for row in interference["medians"]})
    about = interference["machine"]
    machine = f"{about['cpu']}, {about['kernel']}"
    settings = interference["settings"]
    text = []
    for rate in rates:
        rows, table = interference_table(interference, rate)
        if rate == rates[0]:
            with open(os.path.join(ROOT, "docs", "promise.svg"), "w") as file:
                file.write(picture(rows, rate, f"{machine}, {interference['date']}. Medians of {settings['rounds']} rounds."))
        text += [f"**{settings['hot_rate']:,} hot and {rate} cold requests/s** (`bench/interfere.py`, medians of "
                 f"{settings['rounds']} rounds, raw: [{os.path.basename(interference_file)}]({interference_file})):", "",
                 *table, ""]
    for connections in cpu["settings"]["connections"]:
        text += [f"**CPU time per request, {connections} connections**, in brackets as a multiple of the floor, a responder "
                 f"that only receives and sends a ready buffer (`bench/cpu.py`, medians of {cpu['settings']['rounds']} rounds, "
                 f"raw: [{os.path.basename(cpu_file)}]({cpu_file})):", "", *cpu_table(cpu, connections), ""]
    text += [f"Machine: {machine}, {about['cores']} cores, server and load on one each; {interference['date']}."]
    path = os.path.join(ROOT, "README.md")
    with open(path) as file:
        readme = file.read()
    before, rest = readme.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    with open(path, "w") as file:
        file.write(before + BEGIN + "\n" + "\n".join(text) + "\n" + END + after)
    print(f"wrote docs/promise.svg and the figures of README.md from {interference_file} and {cpu_file}")


if __name__ == "__main__":
    main()
