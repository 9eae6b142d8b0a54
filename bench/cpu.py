#!/usr/bin/env python3
"""CPU time of a server for each answer from memory, beside other servers and the floor: all on one core, asked by wrk in turn, as fast as
they answer.

The figure is the median of the rounds; beside it is the median of the ratios to the floor within each round, with the middle half of
them. See bench/README.md.
"""

import argparse
import os
import re
import statistics

from common import process, results, servers, wrk
from common.flash import SERVER_CORE

SIZES = {"100": 100, "1k": 1024, "10k": 10 * 1024, "100k": 100 * 1024}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = " (default: %(default)s)"
    parser.add_argument("--servers", default="floor,flash,nginx,h2o,lighttpd,caddy,apache-event", help="by commas" + default)
    parser.add_argument("--sizes", default=",".join(SIZES), help="of the answer, by commas" + default)
    parser.add_argument("--connections", default="64,512", help="by commas" + default)
    parser.add_argument("--rounds", type=int, default=9, help=default)
    parser.add_argument("--seconds", type=int, default=1, help="of each run" + default)
    parser.add_argument("--no-build", action="store_true", help="do not run cargo build --release first")
    parser.add_argument("--no-keep", action="store_true", help="do not keep the result under bench/results")
    return parser.parse_args()


def start(chosen, sizes, root, folder, result):
    """A running server for each server and size, the same one for all sizes where it can be."""
    running, ports = {}, servers.Ports()
    try:
        for server in chosen:
            for size in sizes:
                place = servers.new_place(folder)
                result.hide(place, "$CONF")
                other = running.get((server.name, sizes[0]))
                running[server.name, size] = other if other and not server.one_size else server.start(
                    SIZES[size] if server.one_size else root, ports.take(), place, core=SERVER_CORE)
            result.note_server(server, running[server.name, sizes[0]])
    except BaseException:
        stop(running)
        raise
    return running


def stop(running):
    """Ends all servers."""
    for started in {id(started): started for started in running.values()}.values():
        started.stop()


def cpu_us(running, size, connections, seconds):
    """CPU microseconds for each answer of one run."""
    text, spent_ns = wrk.run(running, None, argparse.Namespace(connections=connections, seconds=seconds), f"/{size}")
    answered = int(re.search(r"(\d+) requests in", text)[1])
    if "Non-2xx" in text or not answered:
        raise servers.Unavailable(f"{running.server.name}: {' '.join(text.split())}")
    return spent_ns / 1000 / answered


def say(result, names, sizes, connections):
    """The table for one number of connections, and its medians in the data."""
    rounds = [figures for figures in result.data["rounds"] if figures["connections"] == connections]
    result.say(f"{connections} connections: CPU us for each answer, and times the floor (middle half)")
    result.say(f"{'':<14}" + "".join(f"{size:>30}" for size in sizes))
    for name in names:
        line = f"{name:<14}"
        for size in sizes:
            of_size = [figures["cpu_us"] for figures in rounds if figures["size"] == size]
            median = statistics.median(costs[name] for costs in of_size)
            result.data["medians"].append({"server": name, "size": size, "connections": connections, "cpu_us_per_request": median})
            cell = f"{median:.2f}"
            if "floor" in of_size[0]:
                ratios = [costs[name] / costs["floor"] for costs in of_size]
                low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
                cell += f"  {middle:.2f} ({low:.2f} to {high:.2f})"
            line += f"{cell:>30}"
        result.say(line)
    result.say()


def main():
    """Measures, prints, keeps."""
    arguments = parse_arguments()
    servers.prepare(arguments)
    process.raise_descriptor_limit()
    sizes, all_connections = arguments.sizes.split(","), [int(number) for number in arguments.connections.split(",")]
    chosen, skipped = servers.choose(arguments.servers.split(","))
    with results.kept("cpu", "CPU time for each answer from memory", arguments, servers.flash_binary()) as (result, folder):
        result.data["skipped"].update(skipped)
        # As the figures of this kind have had them since the first.
        result.data["settings"].update(sizes=sizes, connections=all_connections)
        root = os.path.join(folder, "root")
        os.mkdir(root)
        result.hide(root, "$ROOT")
        for size in sizes:
            servers.write(root, size, "x" * SIZES[size])
        running, result.data["medians"] = start(chosen, sizes, root, folder, result), []
        try:
            for number in range(arguments.rounds):
                turn = number % len(chosen)
                for connections in all_connections:
                    for size in sizes:
                        result.data["rounds"].append({"round": number + 1, "size": size, "connections": connections, "cpu_us": {
                            server.name: cpu_us(running[server.name, size], size, connections, arguments.seconds)
                            for server in chosen[turn:] + chosen[:turn]}})
        finally:
            stop(running)
        for connections in all_connections:
            say(result, [server.name for server in chosen], sizes, connections)
        result.say_servers()


if __name__ == "__main__":
    main()
