#!/usr/bin/env python3
"""A memory expander of flash: what Yang 2023 (USENIX ATC) finds of it, simulated and drawn, with the paper's numbers beside ours.

Simulated: no bytes move, so that figures do not depend on the machine. What is simulated stands in sweeps.toml, the traces in
workloads.toml (record.py makes them), and what the paper says in published.toml.

    experiments/cxl_flash/record.py --tiermem target/release/tiermem --out traces --full --recordings 5
    experiments/cxl_flash/run.py all --tiermem target/release/tiermem --traces traces
    experiments/cxl_flash/run.py all --redraw
    experiments/cxl_flash/run.py fig8 fig13 --short --requests 100000 --traces short --out results

Names: traces (statistics and Figure 3), table3, fig5, fig7 (and 6), fig8, fig9, fig10, fig11 (and 12), fig13 (and 14, 15), fig16,
fig17, fig18, all. Writes for each a table of rows (Parquet) and its figures (SVG, PNG), and for all tables that are there one page
of comparisons (results.md), then names the claims that do not hold and have no sentence on it. It needs the Python package tiermem,
pyarrow and matplotlib (`make python` makes such an environment in target/python). Traces that are missing are named and left out.
--redraw simulates nothing. --requests cuts traces short, to see that all runs; figures mean little then. --short is for short
recordings, whose programs would fit into the caches of the paper. The page says what was simulated with --compat or --set. These,
--requests and --short need --out: its default is for the full results.
"""

from __future__ import annotations

import argparse
import json
import mmap
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import figures
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from comparison import Row
from data import SWEEPS, WORKLOADS, load
from page import page
from phases import phase_ends
from tiermem.plots.cxl_flash_traces import pages

RESULTS = Path("docs/results/cxl-flash")


def recordings(args: argparse.Namespace, workload: str, most: int = 5) -> list[tuple[int, Path]]:
    """The traces of a workload that are there, with their numbers."""
    names = [(number, args.traces / f"{workload}{f'-{number}' if number > 1 else ''}.parquet") for number in range(1, most + 1)]
    return [(number, path) for number, path in names if path.exists()]


def scale(args: argparse.Namespace) -> int:
    """By what caches are divided."""
    return int(load(SWEEPS)["short"]) if args.short else 1


def divided(setting: str, by: int) -> str:
    """A setting, or a sweep, with its sizes of caches divided."""
    key, _, values = setting.partition("=")
    if key != "cache":
        return setting
    units = {"KiB": 1, "MiB": 1 << 10, "GiB": 1 << 20}
    sizes = ["0" if size == "0" else f"{int(size[:-3]) * units[size[-3:]] // by}KiB" for size in values.split(",")]
    return f"cache={','.join(sizes)}"


def call(args: argparse.Namespace, trace: Path, words: list[str]) -> str:
    """Runs tiermem beside a trace, so that rows have the trace's name and not where this machine keeps it."""
    done = subprocess.run([args.tiermem, *words], cwd=trace.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"tiermem {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def flags(args: argparse.Namespace) -> str:
    """What makes the device another one than is described."""
    words = [f"--compat {args.compat}"] if args.compat else []
    return " ".join([*words, *(f"--set {text}" for text in args.set)])


def simulate(args: argparse.Namespace, figure: dict[str, Any], run: dict[str, Any], path: Path, addresses: str) -> pa.Table:
    """The rows of one trace."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.parquet"
        words = ["sim", "cxl-flash", path.name, "--addresses", addresses, "--preset", figure["preset"], "--format", "csv"]
        divisor = scale(args)
        setting = [divided(text, divisor) for text in [f"cache={figure['cache']}", *run.get("set", [])]]
        words += [word for text in [*setting, *args.set] for word in ("--set", text)]
        words += [word for text in run.get("sweep", []) for word in ("--sweep", divided(text, divisor))]
        if args.requests:
            words += ["--requests", str(args.requests)]
        if "windows" in figure:
            words += ["--window", str(max(requests_of(path, args.requests) // figure["windows"], 1))]
        words += ["--compat", args.compat] if args.compat else []
        if args.threads:
            words += ["--threads", str(args.threads)]
        call(args, path, [*words, "-o", str(out)])
        return pq.read_table(out)


def requests_of(path: Path, most: int | None) -> int:
    """How many requests of a trace are simulated."""
    rows: int = pq.ParquetFile(path).metadata.num_rows
    return min(rows, most or rows)


def workloads_of(figure: dict[str, Any]) -> list[str]:
    """Those that a figure names, or all of a kind."""
    return figure.get("workloads") or [it["name"] for it in load(WORKLOADS)["workload"] if it["kind"] == figure["kind"]]


def rows_of(args: argparse.Namespace, figure: dict[str, Any]) -> pa.Table | None:
    """All rows of a figure; what is simulated is told by columns of our own."""
    found = []
    for workload in workloads_of(figure):
        files = recordings(args, workload, figure.get("recordings", 1))
        if not files:
            print(f"{figure['name']}: {workload} is left out, as {args.traces.name}/{workload}.parquet is not there", flush=True)
        for number, path in files:
            ends: dict[str, int | None] = {}
            if figure.get("phases"):
                ends = dict(zip(("loading_ends", "building_ends"), phase_ends(path, args.requests), strict=True))
            for addresses in figure.get("addresses", ["physical"]):
                # Virtual addresses are the same in every recording, but for the timing.
                if addresses == "virtual" and number > 1:
                    continue
                for run in figure["run"]:
                    table = simulate(args, figure, run, path, addresses)
                    columns = {"workload": workload, "recording": number, "addresses": addresses, "cache_scale": scale(args)}
                    columns |= {"flags": flags(args)} | ends
                    for name, value in columns.items():
                        kind = pa.string() if isinstance(value, str) else pa.int64()
                        table = table.append_column(name, pa.array([value] * len(table), kind))
                    found.append(table)
                print(f"{figure['name']}: {path.stem}, {addresses}: done", flush=True)
    return pa.concat_tables(found, promote_options="permissive") if found else None


def distances(args: argparse.Namespace, path: Path, addresses: str) -> list[int]:
    """The deciles of how far apart consecutive accesses are, in pages."""
    accessed = pages(path, addresses)[: args.requests]
    apart = np.abs(np.diff(accessed)) if len(accessed) > 1 else np.zeros(1, np.int64)
    return [int(value) for value in np.percentile(apart, range(10, 100, 10), method="lower")]


def statistics_of(args: argparse.Namespace) -> pa.Table | None:
    """What the traces are like, with what the paper prints of its own."""
    rows = []
    for workload in load(WORKLOADS)["workload"]:
        for number, path in recordings(args, workload["name"], 1):
            words = ["trace", "stat", path.name, "--addresses", "physical", "--format", "json"]
            words += ["--requests", str(args.requests)] if args.requests else []
            stat = json.loads(call(args, path, words))
            addresses = stat["addresses"]
            # The kernel may have moved pages meanwhile, so that they have had several frames.
            touched = len(np.unique(pages(path, "virtual")[: args.requests]))
            row: Row = {
                "workload": workload["name"], "trace": path.name, "recording": number, "requests": stat["requests"],
                "interarrival_ns": stat["duration_ns"] / max(stat["requests"] - 1, 1),
                "reads_percent": 100 * stat["reads"] / stat["requests"],
                "footprint_gib": touched * mmap.PAGESIZE / (1 << 30), "accesses_millions": stat["requests"] / 1e6,
                "spatial": addresses["spatial_locality"], "temporal": addresses["temporal_locality"],
                "virtual_distances": distances(args, path, "virtual"),
                "physical_distances": [distances(args, again, "physical") for _, again in recordings(args, workload["name"])],
            }  # fmt: skip
            for name in ("interarrival_ns", "reads_percent", "footprint_gib", "accesses_millions", "spatial", "temporal"):
                row[f"paper_{name}"] = workload["paper"].get(name)
            rows.append(row)
    return pa.Table.from_pylist(rows) if rows else None


def make(args: argparse.Namespace, name: str) -> None:
    """Simulates what a figure needs, unless it is there and to be redrawn, and draws it."""
    path = args.out / f"{name}.parquet"
    figure = next((it for it in load(SWEEPS)["figure"] if it["name"] == name), None)
    if args.compat and not (figure or {}).get("compat", True):
        print(f"{name}: passed over, as {args.compat} has no {'windows' if 'windows' in figure else 'hints'}", flush=True)
        return
    if not args.redraw:
        table = rows_of(args, figure) if figure else statistics_of(args)
        if table is None:
            return
        pq.write_table(table, path, compression="zstd")
    elif not path.exists():
        print(f"{name}: {path.name} is not there to be drawn", flush=True)
        return
    rows = pq.read_table(path).to_pylist()
    for drawing in figure["draws"] if figure else []:
        figures.save(figures.FIGURES[drawing](rows), args.out / drawing)
    # These are of the traces themselves.
    if name == "traces":
        synthetic = workloads_of({"kind": "synthetic"})
        files = {it: [path for _, path in found] for it in synthetic if (found := recordings(args, it))}
        if files:
            figures.save(figures.of_traces(files), args.out / "fig3")
    simulated = {row["recording"] for row in rows} if name == "fig16" else set()
    if found := [it for it in recordings(args, "pagerank") if it[0] in simulated]:
        figures.save(figures.over_time(found, rows), args.out / "fig16a")


def main() -> None:
    """Makes what is wanted, keeping each as it is done."""
    names = ["traces", *(figure["name"] for figure in load(SWEEPS)["figure"])]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=[*names, "all"], metavar="NAME", help=", ".join([*names, "all"]))
    parser.add_argument("--tiermem", type=Path, default=Path("target/release/tiermem"))
    parser.add_argument("--traces", type=Path, default=Path("traces"), help="where record.py has put them")
    parser.add_argument("--out", type=Path, help=f"{RESULTS} unless the results are of another kind")
    parser.add_argument("--requests", type=int, help="of each trace at most")
    parser.add_argument("--short", action="store_true", help="caches a 64th as large, for record.py's short recordings")
    parser.add_argument("--threads", type=int, help="of the simulator")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="set a key of every device, such as capacity=64GiB"
    )
    parser.add_argument("--compat", choices=["atc23"], help="by the arithmetic of the simulator published with the paper")
    parser.add_argument("--redraw", action="store_true", help="draw and compare the tables that are there")
    args = parser.parse_args()
    if args.out is None:
        other = [flag for flag in ("compat", "set", "requests", "short") if getattr(args, flag)]
        if other:
            parser.error(f"--{other[0]} needs --out: {RESULTS} is for the full results")
        args.out = RESULTS
    # It is run from the folder of the traces.
    args.tiermem, args.out = args.tiermem.resolve(), args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in names if "all" in args.names else args.names:
        make(args, name)
        text, said = page(args.out)
        (args.out / "results.md").write_text(text)
    print("\n".join([*said, f"{args.out.name}/results.md"]), flush=True)


if __name__ == "__main__":
    main()
