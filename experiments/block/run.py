#!/usr/bin/env python3
"""The block cache beside what Yang 2024 finds of AdaCache: its Figures 2.3 and 2.7 to 2.13, with all three contenders.

Traces are replayed to live servers (Figures 2.7 to 2.10, 2.12, 2.13), simulated as a whole (2.11), and the instructions of their
requests are counted. What is run is in workloads.toml, what the seed says in published.toml.

    experiments/block/run.py --traces DIR
    experiments/block/run.py --short --out results
    experiments/block/run.py --trace-dir ORIGINALS --out results
    experiments/block/run.py --redraw

--traces is the folder that has the files named in workloads.toml; those that are missing are named and left out. --trace-dir is
one that has the seed's own volumes as they are published (Alibaba, MSR Cambridge, Systor '17), somewhere in it; they are run
instead: the first 10 million requests of each, all volumes of a kind at once, three rounds. That takes days, and as much disk as
they write; --requests takes fewer. --short runs slices that are kept for tests, once, in a minute or two: it shows that all runs,
and its figures mean little. --only measures what some figures need; the page has whatever rows are there.

Writes rows (JSON), figures (SVG) and a page of comparisons (results.md), and names the claims that do not hold and have no sentence
on it. It needs Python 3.11, tiermem, taskset for the cores, valgrind for instructions.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import about
import processing
import replayed
import simulated
import traces
from page import page
from servers import Machine
from setting import HERE, PUBLISHED, Workload, contenders, live, load

Table = Iterator[dict[str, Any]]
RESULTS = HERE.parents[1] / "docs" / "results" / "block"


def arguments() -> argparse.Namespace:
    """The command line, checked."""
    names = {figure["name"]: figure["of"] for figure in load(PUBLISHED)["figure"]}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", type=Path, default=HERE.parents[1] / "target" / "release" / "tiermem")
    parser.add_argument("--traces", type=Path, help="the folder of the traces that workloads.toml names")
    parser.add_argument("--trace-dir", type=Path, help="a folder with the seed's own volumes, which are run instead")
    parser.add_argument("--requests", type=int, help="of each original volume [default: 10 million]")
    parser.add_argument("--only", default=",".join(names), help=f"some figures: {', '.join(names)}")
    parser.add_argument("--rounds", type=int, help="of the live replay [default: 3]")
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--client-core", type=int, default=1)
    parser.add_argument("--nice", type=int, default=0, help="of servers and clients; below 0 where others use the machine as well")
    parser.add_argument(
        "--scratch", type=Path, help="where images and caches lie while it runs [default: the system's place for such]"
    )
    parser.add_argument("--short", action="store_true", help="slices of the traces, one round")
    parser.add_argument("--redraw", action="store_true", help="draw and compare the rows that are there")
    parser.add_argument("--out", type=Path, help=f"[default: {RESULTS.relative_to(HERE.parents[1])}]")
    args = parser.parse_args()
    args.only = args.only.split(",")
    if unknown := set(args.only) - set(names):
        parser.error(f"--only {', '.join(sorted(unknown))}: there are {', '.join(names)}")
    args.tables = [
        table for table in ("sizes", "simulated", "processing", "live") if any(names[name] == table for name in args.only)
    ]
    if not (args.short or args.traces or args.trace_dir or args.redraw):
        parser.error("where are the traces? Give --traces DIR, --trace-dir DIR or --short")
    if args.out is None:
        if args.short or args.trace_dir:
            parser.error(
                f"give --out: {RESULTS.relative_to(HERE.parents[1])} is for the full results of the traces of workloads.toml"
            )
        args.out = RESULTS
    args.tiermem = args.tiermem.resolve()
    if not args.redraw and not args.tiermem.exists():
        parser.error(f"there is no {args.tiermem.name} where --tiermem says; build it (make build)")
    return args


def workloads_of(args: argparse.Namespace, run: traces.Tiermem, folder: Path) -> list[Workload]:
    """What is run. Says what is missing."""
    found, missing = (
        traces.originals(run, args.trace_dir, args.requests, folder)
        if args.trace_dir
        else traces.named(args.traces or Path(), args.short)
    )
    print("\n".join(missing), end="\n" if missing else "", flush=True)
    if not found:
        raise SystemExit("no trace is there")
    return found


def file_system(folder: Path) -> str:
    """Which kind a folder is on."""
    done = subprocess.run(["stat", "--file-system", "--format=%T", str(folder)], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "a file system of unknown kind"


def measure(args: argparse.Namespace, name: str, run: traces.Tiermem, workloads: list[Workload], folder: Path) -> Table:
    """The rows of a table, and how they were got; what is replayed again and again is given after each round."""
    compared = contenders()
    if name == "sizes":
        yield {"about": [], "rows": [simulated.sizes(run, it, folder) for it in workloads]}
    elif name == "simulated":
        rows = []
        for it in workloads:
            rows += simulated.simulate(run, compared, it, traces.capacity(run, it, it.requests))
            print(f"simulated {it.name}", flush=True)
        yield {"about": about.simulated(args.short), "rows": rows}
    elif name == "processing":
        sized = [(it, traces.capacity(run, it, it.requests)) for it in workloads]
        yield processing.measure(args.tiermem, compared, sized, args.short)
    else:
        yield from replay(args, run, workloads, folder)


def replay(args: argparse.Namespace, run: traces.Tiermem, workloads: list[Workload], folder: Path) -> Table:
    """The rows of the live replay so far, after each round."""
    setting = live()
    setting = replace(setting, rounds=args.rounds or (1 if args.short else setting.rounds))
    ready = [traces.packed(run, it, it.window, folder) if it.window else it for it in workloads]
    capacities = [traces.capacity(run, it, it.replay) for it in ready]
    machine = Machine(args.tiermem, args.server_core, args.client_core, args.nice)

    def tell(line: str) -> None:
        print(line, flush=True)

    rounds = replayed.measure(machine, setting, contenders(), list(zip(ready, capacities, strict=True)), folder, tell)
    for done, rows in enumerate(rounds, 1):
        yield {"about": about.live(replace(setting, rounds=done), file_system(folder), ready, capacities), "rows": rows}


def keep(path: Path, found: dict[str, Any]) -> None:
    """A table as JSON, a line for each row."""
    rows = ",\n".join(json.dumps(row) for row in found["rows"])
    others = "".join(f'"{name}": {json.dumps(value)},\n' for name, value in found.items() if name != "rows")
    path.write_text(f'{{{others}"rows": [\n{rows}\n]}}\n')


def main() -> None:
    """Measures what the figures that are wanted need, keeps it, and writes the page."""
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    if not args.redraw:
        run = traces.runner(args.tiermem)
        with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
            folder = Path(scratch)
            workloads = workloads_of(args, run, folder)
            for name in args.tables:
                for found in measure(args, name, run, workloads, folder):
                    keep(args.out / f"{name}.json", found)
    files = {name: args.out / f"{name}.json" for name in ("sizes", "simulated", "processing", "live")}
    tables = {name: json.loads(path.read_text()) for name, path in files.items() if path.exists()}
    text, said = page(tables, args.out)
    (args.out / "results.md").write_text(text)
    print("\n".join([*said, f"{args.out.name}/results.md"]), flush=True)


if __name__ == "__main__":
    main()
