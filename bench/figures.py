#!/usr/bin/env python3
"""Writes the figures of README.md, docs/measured.md and docs/overload.md from the newest kept results. bench/picture.py draws the
README's picture.

    bench/figures.py

Only the parts between the two marks are rewritten. The README shows one table, of the newest kept `flash interfere`: only
percentiles that it could tell. docs/overload.md has the newest kept `flash compare` of `*-goodput`, docs/measured.md the other results.
"""

import glob
import json
import os
import re
import statistics
import sys

import bars
import picture

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
BEGIN, END = "<!-- figures: written by bench/figures.py -->", "<!-- end of figures -->"
NAMES = {
    "flash": "Flash", "nginx": "nginx", "nginx-aio": "nginx, aio threads", "h2o": "h2o", "lighttpd": "lighttpd",
    "apache": "Apache, 150 threads", "apache-event": "Apache, 150 threads", "apache-2048": "Apache, 2,048 threads", "caddy": "Caddy", "haproxy": "HAProxy", "floor": "the floor",
}

# Verdicts of `flash interfere`, and their words for a table.
WAITED = {"hot requests did not wait": "no", "hot requests waited": "yes", "cannot be told": "cannot be told"}
GATED = {"nginx-gate": "nginx with the gate", "apache-flashpache": "Apache, 150 threads, with mod_flashpache"}


def newest(kind, counts=lambda data: True):
    """The newest kept result of a kind that counts, and its file's name, or a message that there is none."""
    def order(path):
        name = os.path.basename(path)
        number = re.search(rf"-{kind}(?:-(\d+))?\.json$", name)
        return name[:10], int(number.group(1) or 1)

    paths = [path for path in glob.glob(os.path.join(HERE, "results", "*.json"))
             if re.search(rf"-{kind}(-\d+)?\.json$", path)]
    if not paths:
        sys.exit(f"no result of the kind {kind} is kept")
    for path in sorted(paths, key=order, reverse=True):
        with open(path) as file:
            data = json.load(file)
        if counts(data):
            return data, os.path.relpath(path, ROOT)[:-len(".json")] + ".txt"
    sys.exit(f"no kept result of the kind {kind} counts")


def interference(has_gates):
    """The newest kept run of `flash interfere` with servers with and without the modules of modules/, or all without, and its file."""
    runs = []
    for path in glob.glob(os.path.join(HERE, "results", "*", "run.json*")):
        run = picture.read(os.path.dirname(path))
        levels = [level["name"] for level in run["subjects"][0]["rounds"]] if run["command"] == "interfere" else []
        kinds = {subject["name"] in GATED for subject in run["subjects"]}
        if picture.COLD in levels and kinds == ({True, False} if has_gates else {False}):
            runs.append((run["started"], run, os.path.relpath(path, ROOT)))
    if not runs:
        sys.exit("no result of flash interfere is kept")
    return max(runs, key=lambda found: found[0])[1:]


def interference_text():
    """The README's table: each server of the newest kept `flash interfere`, with its CPU time for a small answer."""
    run, file = interference(has_gates=False)
    cpu, cpu_file = newest("cpu")
    settings = run["settings"]
    small = {row["server"]: row["cpu_us_per_request"] for row in cpu["medians"]
             if row["connections"] == cpu["settings"]["connections"][0] and row["size"] == "1k"}
    hot, cold = (next(level["asked_per_s"] for level in run["subjects"][0]["rounds"] if level["name"] == name)
                 for name in (picture.ALONE, picture.COLD))
    yield (f"Latency of {hot:,.0f} requests/s for files in memory, alone and beside {cold:,.0f} cold requests/s, for files on a disk of 150 "
           f"reads/s. `flash interfere`, Poisson arrivals, medians of {picture.rounds_of(run['subjects'][0])} rounds; server on one core "
           f"with 512 MB of memory, load on the other ([raw]({file}), {run['machine']['cpu']}, {run['started'][:10]}). {names_text(settings)} CPU time is for a 1 KB "
           f"answer in memory ([raw]({cpu_file}), {cpu['machine']['cpu']}, {cpu['date']}).")
    yield from ["", "| server | p50, alone and with cold | p99, alone and with cold | p99, times that alone (95 % interval) | hot requests waited "
                f"for the disk | cold requests answered within {drain_s(run):.0f} s | CPU |", "|---|---|---|---|---|---|---|"]
    rows = []
    for subject in run["subjects"]:
        name = subject["name"]
        cells = [alone_and_with_cold(run, subject, point) for point in ("p50", "p99")]
        ratio = picture.ratio_of(run, name, "p99")
        cells.append("-" if ratio is None else f"{number(ratio['ratio'])} ({' to '.join(map(number, ratio['interval']))})")
        cells.append(waited(settings, name))
        answered = statistics.median(answered_share(level) for level in subject["rounds"] if level["name"] == picture.COLD)
        cells.append(f"{100 * answered:.0f} %")
        used = small.get(name)
        rows.append((picture.typical_ms(subject, picture.WITH_COLD, "p50"), [NAMES.get(name, name), *cells, f"{used:.1f} µs" if used else "-"]))
    yield from ("| " + " | ".join(cells) + " |" for _, cells in sorted(rows))
    if any("-" in cells for _, cells in rows):
        yield from ["", "No figure (-): the load generator was late, or the CPU time was not measured."]
    yield from ["", " ".join([flash_p50(run), lower_bounds(run)])]


def alone_and_with_cold(run, subject, point):
    """A percentile in both phases, as "0.03 → 0.04 ms", or "-" for one that the generator blurred."""
    phases = [picture.typical_ms(subject, phase, point) for phase in (picture.ALONE, picture.WITH_COLD)
              if picture.ratio_of(run, subject["name"], point) and not is_blurred(subject, phase, point)]
    return f"{ms(phases[0]).removesuffix(' ms')} → {ms(phases[1])}" if len(phases) == 2 else "-"


def waited(settings, name):
    """The verdict on a server in a word or two."""
    verdict = settings[f"verdict on {name}"]
    return next((word for words, word in WAITED.items() if verdict.startswith(words)), verdict)


def flash_p50(run):
    """A sentence on the median of Flash."""
    ratio = picture.ratio_of(run, "flash", "p50")
    if ratio is None:
        return "Too few rounds count for Flash's p50."
    low, high = ratio["interval"]
    rose = "did not rise" if low <= 1 <= high else "rose" if low > 1 else "fell"
    return f"Flash's p50 {rose} ({number(ratio['ratio'])} times, 95 % interval {number(low)} to {number(high)})."


def names_text(settings):
    """What the servers knew of the names of the cold files."""
    if settings.get("names of the cold files") == "in memory":
        return "The names of the cold files were in memory."
    return ("Flash and the backends had looked up the names of files before the disk was slow; for other servers the first request in a "
            "directory reads the names, too.")


def is_blurred(subject, phase, point):
    """Whether the generator was too late in a phase for this percentile, in the median of the rounds."""
    levels = [level for level in subject["rounds"] if level["name"] == phase]
    late_ms = statistics.median(level["generator"][f"late_{point}_ms"] for level in levels)
    return late_ms > max(1, 0.1 * picture.typical_ms(subject, phase, point))


def drain_s(run):
    """How long answers were waited for after the last arrival."""
    return max(level["drain_s"] for subject in run["subjects"] for level in subject["rounds"])


def lower_bounds(run):
    """A note on latencies that are lower bounds, because the measurement ended before all requests were answered."""
    shares = {}
    for subject in run["subjects"]:
        levels = [level for level in subject["rounds"] if level["name"] == picture.WITH_COLD]
        shares[GATED.get(subject["name"]) or NAMES.get(subject["name"], subject["name"])] = \
            100 * (1 - statistics.median(answered_share(level) for level in levels))
    named = [f"{share:.0f} % at {name}" for name, share in shares.items() if share >= 1]
    if not named:
        return f"All hot requests were answered within {drain_s(run):.0f} s after the last arrival."
    return (f"Hot requests beside cold ones without an answer {drain_s(run):.0f} s after the last arrival: {'; '.join(named)}. They count with "
            "the time that they had waited, so these latencies are lower bounds.")


def gates_text():
    """The README's second table: servers without and with a module, in the newest kept `flash interfere` of both."""
    run, file = interference(has_gates=True)
    hot, cold = (next(level["asked_per_s"] for level in run["subjects"][0]["rounds"] if level["name"] == name)
                 for name in (picture.ALONE, picture.COLD))
    yield (f"Median latency of {hot:,.0f} requests/s for files in memory, alone and with {cold:,.0f} cold requests/s, and the share of cold "
           f"requests that were answered within {drain_s(run):.0f} s after the last arrival. As above, "
           f"{picture.rounds_of(run['subjects'][0])} rounds ([raw]({file}), {run['machine']['cpu']}, {run['started'][:10]}). {names_text(run['settings'])}")
    yield from ["", "| server | alone | with cold | with cold to alone (95 % interval) | hot requests waited for the disk | cold requests answered |",
                    "|---|---|---|---|---|---|"]
    for subject in run["subjects"]:
        name = subject["name"]
        cells = [ms(picture.typical_ms(subject, phase, "p50")) for phase in (picture.ALONE, picture.WITH_COLD)]
        ratio = picture.ratio_of(run, name, "p50")
        cells.append("-" if ratio is None else f"{number(ratio['ratio'])} ({' to '.join(map(number, ratio['interval']))})")
        cells.append(waited(run["settings"], name))
        answered = statistics.median(answered_share(level) for level in subject["rounds"] if level["name"] == picture.COLD)
        yield f"| {GATED.get(name) or NAMES.get(name, name)} | {' | '.join(cells)} | {100 * answered:.0f} % |"
    yield from ["", lower_bounds(run)]


def goodput_text():
    """Answers beyond the capacity: for each server its highest rate of proper answers, and that at each load."""
    path = max(glob.glob(os.path.join(HERE, "results", "*-goodput", "run.json*")))
    run, file = picture.read(os.path.dirname(path)), os.path.relpath(path, ROOT)
    levels = [(level["name"], level["asked_per_s"]) for level in run["subjects"][0]["levels"]]
    cpu = run["settings"]["server's CPU"]
    yield (f"Proper answers per second, by the requests per second that arrive. `flash compare`, a new connection for each request,"
           f" {cpu}, medians of {run['settings']['rounds']} rounds ([raw](../{file}), "
           f"{run['machine']['cpu']}, {run['started'][:10]}).")
    yield from ["", f"| server | {' | '.join(f'{asked:,.0f}' for _, asked in levels)} | the last, of the highest |",
                    "|---" * (len(levels) + 2) + "|"]
    for subject in run["subjects"]:
        rates = [statistics.median(level["answered_per_s"] for level in subject["rounds"] if level["name"] == name)
                 for name, _ in levels]
        name = NAMES.get(subject["name"], subject["name"])
        yield f"| {name} | {' | '.join(f'{rate:,.0f}' for rate in rates)} | {100 * rates[-1] / max(rates):.0f} % |"


def newest_report(experiment):
    """The report of the newest kept run of an experiment, and the file with all measurements."""
    folder = max(glob.glob(os.path.join(HERE, "results", f"*-{experiment}")))
    with open(os.path.join(folder, "report.json")) as file:
        return json.load(file), os.path.relpath(os.path.join(folder, "run.json.gz"), ROOT)


def knobs_text():
    """What the settings do to a full uplink: tables of the newest kept `flash experiment overload`."""
    report, raw = newest_report("overload")
    means, largest, setups = report["tables"]
    yield (f"Mean response time, and that of the largest 1 % of the requests, when the uplink gets more than it can carry for a part of "
           f"the time (workload W1 of the paper; `flash experiment overload`, medians of at least {report['settings']['rounds']} rounds, [raw](../{raw}), "
           f"{report['machine']['cpu']}, {report['started'][:10]}):")
    yield from ["", "| server | mean | largest 1 % |", "|---|---|---|"]
    names = {"Flash FAIR": "Flash, default", "Flash SRPT": "Flash, `srpt` and `flash qdisc`", "Flash --egress": "Flash, `egress`"}
    first = [dict(zip(table["columns"], table["rows"][0])) for table in (means, largest)]
    for name in means["columns"][1:]:
        yield f"| {names.get(name) or NAMES.get(name, name)} | {' | '.join(ms(row[name]['median']) for row in first)} |"
    yield from ["", "The gain of `srpt` in other surroundings:", "", "| setup | mean, default | mean, `srpt` | times |", "|---|---|---|---|"]
    for name, *cells in setups["rows"]:
        fair, srpt, times = (cell["median"] for cell in cells[:3])
        yield f"| {name} | {ms(fair)} | {ms(srpt)} | {number(times)} |"


def cap_text():
    """Mean response times by the cap on a connection, in the newest kept `flash experiment cwnd`."""
    report, raw = newest_report("cwnd")
    yield (f"Mean response time on a link that is 90 % full, with a round trip of 0.5 ms (`flash experiment cwnd`, medians of 5 rounds, "
           f"[raw](../{raw}), {report['machine']['cpu']}, {report['started'][:10]}):")
    yield from ["", "| `cwnd_cap` | a router is the bottleneck, one request per connection | the same, persistent connections | "
                "the server's own device is, one request | the same, persistent |", "|---|---|---|---|---|"]
    for name, *cells in report["tables"][0]["rows"]:
        yield f"| {name} | {' | '.join(ms(cell['median']) for cell in cells)} |"


def answered_share(level):
    """The share of a phase's requests that were answered with success in time."""
    return 1 - sum(level["counts"]["failed"].values()) / level["counts"]["asked"]


def shown(name, title, values, text, data, is_logarithmic=False):
    """A picture of one value for each server, in the order of the table, with a blank line after it."""
    rows = [(NAMES.get(server, server), value, text(value)) for server, value in values.items()]
    about = f"{data['machine']['cpu']}, {data['machine']['cores']} cores, {data['date']}"
    return [bars.written(name, title, rows, about, is_logarithmic), ""]


def capacity_text():
    """How much each server takes while its disk is slow."""
    data, file = newest("capacity")
    settings = data["settings"]
    # The first kept run judged by the popular files alone.
    counted = {name: [[found for found in of_round["tried"] if found["counts"] and found["latency"]["p50_ms"] < settings["p99_ms"]]
                      for of_round in of_server] for name, of_server in data["rounds"].items()}
    rates = {name: sorted(max(found["rate_per_s"] for found in of_round) for of_round in rounds) for name, rounds in counted.items()}
    best = {name: statistics.median(of_rounds) for name, of_rounds in rates.items()}
    yield (f"**Highest rate at which requests in memory stay fast**: requests for the 3 GB set at rising rates, beside {settings['hot_rate']} "
           f"requests/s for popular files, as long as the p99 of these and the median of all are below {settings['p99_ms']:.0f} ms and fewer than 5 % "
           f"fail; {settings['memory_mib']} MiB, a disk of {settings['reads']} reads/s (`bench/capacity.py`, medians of {settings['rounds']} "
           f"rounds, {data['machine']['cpu']}, {data['date']}, raw: [{os.path.basename(file)}](../{file})):")
    yield from ["", "| server | requests/s | of its rounds |", "|---|---|---|"]
    for name, of_rounds in rates.items():
        yield f"| {NAMES.get(name, name)} | {best[name]:,.0f} | {of_rounds[0]:,} to {of_rounds[-1]:,} |"
    late_ms = {name: max(found["late_ms"] for of_round in rounds for found in of_round) for name, rounds in counted.items()}
    latest = max(late_ms, key=late_ms.get)
    others_ms = max(late for name, late in late_ms.items() if name != latest)
    yield ""
    yield (f"The generator sent one request in 100 late by up to {others_ms:.0f} ms, at {NAMES.get(latest, latest)}'s rates by up to "
           f"{late_ms[latest]:.0f} ms: they came in bursts.")
    yield ""
    yield from shown("capacity", "Requests/s while requests in memory stay fast", best, lambda value: f"{value:,.0f}", data)


def relays_text():
    """Relays to a server over TLS, beside other proxies."""
    data, file = newest("relays")
    settings = data["settings"]
    yield (f"**Relays to a server over TLS**, {settings['rate']} requests/s for {settings['size_bytes']:,} bytes, the server's key "
           f"{settings['key'].upper()}: CPU time of the proxy for each request, and its p50, on connections that are kept, and with a new one for each "
           f"request, whose session is resumed or not (`bench/relays.py`, medians of {settings['rounds']} rounds, {data['machine']['cpu']}, "
           f"{data['date']}, raw: [{os.path.basename(file)}](../{file})):")
    yield from ["", "| proxy | kept | new, resumed | new, full handshake |", "|---|---|---|---|"]
    for name in next(iter(data["rounds"].values())):
        cells = []
        for rounds in data["rounds"].values():
            cpu_us = statistics.median(found["cpu_us"] for found in rounds[name])
            cells.append(f"{cpu_us:,.0f} µs, {ms(statistics.median(found['latency']['p50_ms'] for found in rounds[name]))}")
        yield f"| {NAMES.get(name, name)} | {' | '.join(cells)} |"
    yield ""
    full = {name: statistics.median(found["cpu_us"] for found in rounds) for name, rounds in data["rounds"]["new, full"].items()}
    yield from shown("relays", "CPU time of a relay with a full TLS handshake", full, lambda value: f"{value:,.0f} µs", data)


def misses_text():
    """How often servers read the disk, by the memory they have."""
    rows, of_machine, rounds = {}, set(), []
    for mib in (512, 954):
        data, file = newest("misses", lambda data, mib=mib: data["settings"]["memory_bytes"] == mib << 20
                            and {"flash", "nginx"} <= {found["server"] for found in data["rounds"]})
        windows, figures = max(found["window"] for found in data["rounds"]), {}
        for found in data["rounds"]:
            if found["window"] == windows:
                figures.setdefault(found["server"], []).append(1000 * found["reads"] / found["answers"])
        rows[mib] = ({name: statistics.median(found) for name, found in figures.items()}, file, data["settings"], windows)
        of_machine.add(f"{data['machine']['cpu']}, {data['date']}")
        rounds.extend(map(len, figures.values()))
    files = ", ".join(f"[{os.path.basename(file)}](../{file})" for _, file, *_ in rows.values())
    yield (f"**Disk reads for each 1,000 answers**, in the last part of a run that begins with an empty memory; some are first "
           f"reads of a file (`bench/misses.py`, medians of at least {min(rounds)} rounds, {'; '.join(sorted(of_machine))}, raw: {files}):")
    spans = {mib: (it["rate_per_s"], it["window_s"], windows) for mib, (_, _, it, windows) in rows.items()}
    heads = [f"{mib} MiB, {rate:,} requests/s, {(windows - 1) * window_s} to {windows * window_s} s"
             for mib, (rate, window_s, windows) in spans.items()]
    yield from ["", "| server | " + " | ".join(heads) + " |", "|---|" + "---|" * len(rows)]
    for name in rows[512][0]:
        yield f"| {NAMES.get(name, name)} | " + " | ".join(f"{rows[mib][0][name]:.1f}" for mib in rows) + " |"
    data, _ = newest("misses", lambda data: data["settings"]["memory_bytes"] == 954 << 20
                     and {"flash", "nginx"} <= {found["server"] for found in data["rounds"]})
    yield ""
    yield from shown("misses", "Disk reads for 1,000 answers, 954 MiB, 8,000 requests/s", rows[954][0], lambda value: f"{value:.1f}", data)
    aims = {512: 6, 954: 4}
    times = {mib: figures["nginx"] / figures["flash"] for mib, (figures, *_) in rows.items()}
    missed = [f"{times[mib]:.1f} times as often at {mib} MiB (aim: {aim})" for mib, aim in aims.items() if times[mib] < aim]
    if missed:
        yield from ["", f"nginx reads {' and '.join(missed)}: less than the aim."]
    yield ""


def cold_text():
    """Cold requests on a disk without a limit, and hits beside them."""
    data, file = newest("cold")
    settings = data["settings"]
    yield (f"**Requests for cold files on a disk without a limit**, {settings['clients']} clients at once for files of "
           f"{settings['size_bytes'] >> 10} KiB, {settings['rate']:,}/s hits beside them, server on one core (`bench/cold.py`, medians of "
           f"{settings['rounds']} rounds, {data['machine']['cpu']}, {data['date']}, raw: [{os.path.basename(file)}](../{file})):")
    yield from ["", "| server | cold files/s | CPU time of each, with the hits | hits' p50, and alone | hits' p99, and alone |",
                "|---|---|---|---|---|"]
    for name, rounds in data["rounds"].items():
        middle = lambda value: statistics.median(value(found) for found in rounds)
        hits = [f"{middle(lambda found: found['beside'][part]):.2f} ms, {middle(lambda found: found['alone'][part]):.2f} ms"
                for part in ("p50_ms", "p99_ms")]
        yield (f"| {NAMES.get(name, name)} | {middle(lambda found: found['cold_per_s']):,.0f} | "
               f"{middle(lambda found: found['cpu_us']):.0f} µs | {' | '.join(hits)} |")
    yield ""
    beside = {name: statistics.median(found["beside"]["p99_ms"] for found in rounds) for name, rounds in data["rounds"].items()}
    yield from shown("cold", "p99 of hits beside 256 clients with cold requests", beside, ms, data, True)
    data, file = newest("cold-ways")
    cpu_us, per_s = ({name: statistics.median(found[part] for found in rounds) for name, rounds in data["rounds"].items()}
                     for part in ("cpu_us", "cold_per_s"))
    store_us, messages_us = cpu_us["flash"] - cpu_us["flash-without-store"], cpu_us["flash-without-store"] - cpu_us["flash-sped"]
    yield (f"Flash's part of it (`bench/cold.py`, medians of {data['settings']['rounds']} rounds): of {cpu_us['flash']:.0f} µs for each cold file the store takes {store_us:.0f} µs (its keeper is "
           f"asked twice, and the bytes are copied once more) and the way to a helper and back {messages_us:.0f} µs. Without the store "
           f"(`cache_memory = 0`) Flash answers {per_s['flash-without-store']:,.0f}/s, without helpers as well (SPED, which waits for the disk) "
           f"{per_s['flash-sped']:,.0f}/s, with both {per_s['flash']:,.0f}/s, and nginx with aio threads {per_s['nginx-aio']:,.0f}/s "
           f"(raw: [{os.path.basename(file)}](../{file})).")
    yield ""


def number(value):
    """A ratio for people."""
    return f"{value:.2f}" if value < 9.995 else f"{value:,.0f}"


def ms(value):
    """A latency for people."""
    return f"{value:,.2f} ms" if value < 100 else f"{value:,.0f} ms"


def storms_text():
    """How late changes are seen while very many files change."""
    yield ("**Changes while 100,000 other files change**, or while `apt-ftparchive` reads as many packages, names watched: how long after a file was replaced a client can still get the old "
           "one, and the latency of hits as a multiple of that without a storm, or of that beside one of the same kind in files that nobody serves "
           "(`bench/storms.py`, the median of the rounds and the range).")
    yield from ["", "| storm | rounds | changes seen | longest | hit p50 | hit p99 | hit p99, to a storm elsewhere | raw |",
                "|---|---|---|---|---|---|---|---|"]
    by_storm = {}
    for name, shown_as, command in (("rename", "renames", "renames"), ("git", "git checkout", "`git checkout`"),
                                    ("rsync", "rsync --delete", "`rsync --delete`"),
                                    ("apt", "apt-ftparchive", "`apt-ftparchive`")):
        data, file = newest("storms", lambda data: data["storms"].get(name, {}).get("rounds") and data["settings"]["watch"] == "on")
        rounds = data["storms"][name]["rounds"]
        changes = sum(figures["storm"]["changes"] for figures in rounds)
        latest_ms = max([0, *(late_ms for figures in rounds for late_ms in figures["storm"]["late_ms"])])

        cells = []
        for part, when in (("p50_ms", "alone"), ("p99_ms", "alone"), ("p99_ms", "elsewhere")):
            times = sorted(figures["storm"]["latency"][part] / figures[when]["latency"][part] for figures in rounds)
            cells.append(f"{statistics.median(times):.2f} ({times[0]:.2f} to {times[-1]:.2f})")
            if when == "elsewhere":
                by_storm[shown_as] = statistics.median(times)
        yield (f"| {command} | {len(rounds)} | {changes:,} | {ms(latest_ms)} | {' | '.join(cells)} | [{data['date']}](../{file}) |")
    yield ""
    yield from shown("storms", "p99 of hits beside a storm, to one elsewhere", by_storm, lambda value: f"{value:.2f} times", data)


def names_figures(found):
    """For people: the p99 and the share that needed a helper's work, medians and ranges of the rounds for forgotten names, and the
    median rate of answers."""
    rounds = found["rounds"]
    p99_ms = sorted(of_round["latency"]["p99_ms"] for of_round in rounds)
    helped = sorted(100 * of_round["jobs"] / of_round["requests"] for of_round in rounds)
    return {"p99": spread(p99_ms, ms), "helped": spread(helped, lambda share: f"{share:.2f} %"), "rounds": len(rounds),
            "answered_per_s": statistics.median(of_round["answered_per_s"] for of_round in rounds)}


def spread(ordered, shown_as):
    """The median and, if there is one to be seen, the range."""
    middle, least, most = map(shown_as, (statistics.median(ordered), ordered[0], ordered[-1]))
    return middle if least == most else f"{middle} ({least} to {most})"


def workers_text():
    """Memory of several workers."""
    data, file = newest("store", lambda data: "workers" in data)
    rounds = data["workers"]
    a_byte = lambda found: found["pss_bytes"] / found["held_bytes"]
    ratios = sorted(a_byte(of_round["4"]) / a_byte(of_round["1"]) for of_round in rounds)
    yield (f"**Memory of four workers** for the same {rounds[0]['1']['held_bytes'] / 2**20:,.0f} MiB of contents, as a multiple of one's: "
           f"{spread(ratios, lambda ratio: f'{ratio:.2f}')} (`bench/store.py --what workers`, medians of {len(rounds)} rounds, "
           f"{data['machine']['cpu']}, {data['date']}, raw: [{os.path.basename(file)}](../{file})).")


def forgotten_text():
    """Requests for files whose names the kernel has forgotten."""
    data, file = newest("store", lambda data: "checked" in data.get("names", {}))
    settings = data["settings"]
    names = {how: names_figures(found) for how, found in data["names"].items()}
    watched, checked = names["watched"], names["checked"]
    yield (f"**{settings['named_files']:,} files whose names the kernel has forgotten**, all in the store, 1,000 requests/s for random ones, a "
           f"disk of 150 reads/s: p99 {watched['p99']} if the names are [watched](memory.md#watched-names), with a helper's work "
           f"for {watched['helped']} of the requests; if they are checked, {checked['answered_per_s']:.0f} are answered in a "
           f"second, p99 {checked['p99']} (`bench/store.py --what names`, medians of {watched['rounds']} rounds, "
           f"{data['machine']['cpu']}, {data['date']}, raw: [{os.path.basename(file)}](../{file})).")
    yield ""
    data, file = newest("store", lambda data: data.get("names", {}).get("watched", {}).get("directories_watched", 0) > 200_000)
    watched = names_figures(data["names"]["watched"])
    yield (f"The same with {data['settings']['named_files']:,} files in {data['names']['watched']['directories_watched']:,} directories, more "
           f"than inotify watches here: p99 {watched['p99']}, a helper's work for {watched['helped']} of the requests "
           f"(medians of {watched['rounds']} rounds, {data['machine']['cpu']}, {data['date']}, raw: [{os.path.basename(file)}](../{file})).")


def restart_text():
    """The first minute after a restart."""
    data, file = newest("store", lambda data: "restart" in data)
    rounds, hits_s = data["restart"], {}
    yield (f"**First minute after a restart**, {data['settings']['rate']:,} requests/s, a disk of 1,000 reads/s: p50 and p90 of each quarter "
           f"(`bench/store.py --what restart`, medians of {len(rounds['with'])} rounds, {data['machine']['cpu']}, {data['date']}, raw: "
           f"[{os.path.basename(file)}](../{file})):")
    yield from ["", "| | 0 to 15 s | 15 to 30 s | 30 to 45 s | 45 to 60 s |", "|---|---|---|---|---|"]
    for what, found in rounds.items():
        quarters = zip(*(of_round["quarters"] for of_round in found))
        cells = [", ".join(ms(statistics.median(quarter["latency"][part] for quarter in of_all)) for part in ("p50_ms", "p90_ms"))
                 for of_all in quarters]
        yield f"| {what} a saved list | " + " | ".join(cells) + " |"
        hits_s[what] = sorted(of_round["hits_s"] for of_round in found)
    yield ""
    many, many_file = newest("store", lambda data: data.get("saved", {}).get("started"))
    many_s = [start["hits_s"] for start in many["saved"]["started"]]
    after = {what: spread(seconds, lambda value: f"{value:.1f} s") for what, seconds in hits_s.items()}
    yield f"Nine of ten answers of a second came from memory {after['with']} after the start with the list, {after['without']} without it."
    yield ""
    middle = {f"{what} a saved list": statistics.median(seconds) for what, seconds in hits_s.items()}
    yield from shown("restart", "From a restart until 9 of 10 answers come from memory", middle, lambda value: f"{value:.0f} s", data)
    yield (f"With {many['saved']['files']:,} files of 200 to 4,000 B, an empty page cache and a disk without a limit, the list brings that share "
           f"{statistics.median(many_s):.0f} s after the start ({min(many_s):.0f} to {max(many_s):.0f} s in {len(many_s)} starts), at 1,000 requests/s "
           f"for random files (`bench/store.py --what saved --listed-files {many['saved']['files']}`, raw: "
           f"[{os.path.basename(many_file)}](../{many_file})).")
    yield ""


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


def generators_text():
    """Load generators beside each other."""
    data, file = newest("generators", lambda data: "wire_p50" in next(iter(data["rounds"].values()))[0])
    settings = data["settings"]
    yield (f"**Load generators beside each other**, {settings['rate']:,} requests/s for {settings['size_bytes']:,} bytes from nginx, "
           f"{settings['connections']} connections: the latency that each reports, and that on the wire, from the packet with the request to the "
           f"first one of the answer. The difference is mostly the generator's own (`bench/generators.py`, medians of {settings['rounds']} rounds, raw: "
           f"[{os.path.basename(file)}](../{file})).")
    yield from ["", "| generator | p50 | p50 on the wire | p99 | p99 on the wire | CPU time of a request |", "|---|---|---|---|---|---|"]
    shown_names = {"flash": "flash load", "flash_sleeping": "flash load --no-poll", "wrk2": "wrk2", "oha": "oha", "vegeta": "vegeta"}
    middle = lambda found, part: statistics.median(figures[part] for figures in found)
    for name, found in data["rounds"].items():
        cells = [f"{middle(found, part):.3f} ms" for part in ("p50", "wire_p50", "p99", "wire_p99")]
        busy = f", {middle(found, 'busy_us'):.0f} of them busy" if "busy_us" in found[0] else ""
        sleeps = f", {middle(found, 'sleeps'):.1f} sleeps" if "sleeps" in found[0] else ""
        yield f"| {shown_names[name]} | {' | '.join(cells)} | {middle(found, 'cpu_us'):.0f} µs{busy}{sleeps} |"
    sleeps = "; with `--no-poll` it goes to sleep and wakes" if "flash_sleeping" in data["rounds"] else ""
    yield from ["", f"The rest of its time `flash load` polls, so that it is late neither with requests nor in seeing answers{sleeps}. wrk2's timer has "
                "a resolution of 1 ms, so it starts several requests at once and wakes less often.", ""]
    medians = {shown_as: middle(data["rounds"][name], "p50") for name, shown_as in shown_names.items() if name in data["rounds"]}
    yield from shown("generators", "p50 that each generator reports of the same server", medians, lambda value: f"{value:.3f} ms", data, True)


def measured_text():
    """The other kept results."""
    cpu, cpu_file = newest("cpu")
    about = cpu["machine"]
    for connections in cpu["settings"]["connections"]:
        yield (f"**CPU time per request, {connections} connections**, in brackets as a multiple of the floor, a responder that only "
               f"receives and sends a ready buffer (asked by wrk, medians of {cpu['settings']['rounds']} rounds, raw: "
               f"[{os.path.basename(cpu_file)}](../{cpu_file})):")
        yield from ["", *cpu_table(cpu, connections), ""]
    small = {figure["server"]: figure["cpu_us_per_request"] for figure in cpu["medians"]
             if figure["connections"] == cpu["settings"]["connections"][0] and figure["size"] == "1k"}
    yield from shown("cpu", "CPU time of an answer of 1 KB from memory", small, lambda value: f"{value:.1f} µs", cpu)
    yield (f"Machine: {about['cpu']}, {about['kernel']}, {about['cores']} cores, server and load on one each; {cpu['date']}.")
    yield from ["", *capacity_text(), *misses_text(), *cold_text(), *workers_text(), "", *forgotten_text(), "", *storms_text(), "",
                *restart_text(), *relays_text(), *generators_text()]
    yield ("Raw files name the machine. On these machines idle page cache is paged out after about a minute; memory that Flash owns is not.")


def rewrite(name, text, part="figures"):
    """Replaces the part of a document between the marks of that name."""
    begin, end = (mark.replace("figures:", f"{part}:").replace("of figures", f"of {part}") for mark in (BEGIN, END))
    path, lines = os.path.join(ROOT, name), list(text)
    with open(path) as file:
        document = file.read()
    before, rest = document.split(begin, 1)
    after = rest.split(end, 1)[1]
    with open(path, "w") as file:
        file.write(before + begin + "\n" + "\n".join(lines) + "\n" + end + after)
    print(f"wrote the figures of {name}")


def main():
    rewrite("README.md", interference_text())
    rewrite("README.md", gates_text(), "figures of the gates")
    rewrite(os.path.join("docs", "measured.md"), measured_text())
    rewrite(os.path.join("docs", "overload.md"), goodput_text())
    rewrite(os.path.join("docs", "overload.md"), knobs_text(), "figures of the settings")
    rewrite(os.path.join("docs", "overload.md"), cap_text(), "figures of the cap")


if __name__ == "__main__":
    main()
