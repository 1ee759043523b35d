#!/usr/bin/env python3
"""Block sizes by observation beside every fixed size, in time and in bytes: `tiermem sim block` with the server's cleaning.

    experiments/block/sizing.py --traces DIR
    experiments/block/sizing.py --short
    experiments/block/sizing.py --traces DIR --core-latency 10ms --core-bandwidth 100MB

Runs the traces that workloads.toml names and some bursts, and prints a table. --traces is the folder of the traces; those that
are missing are named and left out. --short takes the slices that are kept for tests, and short bursts. The first 2,000 requests
are not counted. Fixed sizes are 32, 64, 128 and 256 KiB, each with sub-block bits and with whole fills. --out keeps the table
as well.

The table: *best* is the fixed size with the least mean time of all requests; the ratios *reads*, *writes* and *bytes* are to that.
*each* is the ratio to the fixed size that reads fastest, and to the one that writes fastest.
"""

from __future__ import annotations

import argparse
import csv
import random
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import traces
from setting import HERE, Workload

SIZES = ["32KiB", "64KiB", "128KiB", "256KiB"]
WARM_UP = 2000
GIB = 1 << 30
# Where a trace's times tell nothing: between two requests.
EVERY_NS = 1_000_000
BURST_CACHE = 64 << 20
Row = dict[str, Any]
Request = tuple[float, str, int, int]
# Prices of a MiB at which bytes are dear.
PRICES = ["10ms", "40ms"]


def random_writes(rounds: int) -> Iterator[Request]:
    """4,000 small writes anywhere in 0.4 s, then sequential reads for 8 s."""
    rng, now = random.Random(6), 0.0
    for at in range(rounds):
        for _ in range(4000):
            now += 0.0001
            yield now, "write", rng.randrange(262144) * 4096, 4096
        for step in range(400):
            now += 0.02
            yield now, "read", (at * 400 + step) * 65536 % GIB, 65536


def log_and_hot(rounds: int) -> Iterator[Request]:
    """A log and small writes to what is hot in 0.15 s, then small reads of what is hot for 6 s."""
    rng, now, logged = random.Random(7), 0.0, 0
    for _ in range(rounds):
        for step in range(3000):
            now += 0.00005
            if step % 3:
                yield now, "write", logged * 16384 % GIB, 16384
                logged += 1
            else:
                yield now, "write", GIB + int(rng.paretovariate(1.1)) % 32768 * 4096, 4096
        for _ in range(600):
            now += 0.01
            yield now, "read", GIB + int(10 * rng.paretovariate(0.7)) % 65536 * 4096, 4096


def reads_in_between(rounds: int) -> Iterator[Request]:
    """3,000 small writes anywhere and 1,000 sequential reads in 0.8 s, then nothing for 10 s."""
    rng, now, reached = random.Random(8), 0.0, 0
    for _ in range(rounds):
        for step in range(4000):
            now += 0.0002
            if step % 4:
                yield now, "write", rng.randrange(262144) * 4096, 4096
            else:
                yield now, "read", 2 * GIB + reached * 16384 % (2 * GIB), 16384
                reached += 1
        now += 10


BURSTS = {"random writes": random_writes, "log and hot": log_and_hot, "reads in between": reads_in_between}


def burst(name: str, rounds: int, out: Path) -> Path:
    """A file of a burst."""
    path = out / f"burst-{name.replace(' ', '-')}.csv"
    with path.open("w") as file:
        file.write("time,op,key,size\n")
        file.writelines(f"{now:.5f},{op},{key},{size}\n" for now, op, key, size in BURSTS[name](rounds))
    return path


def spaced(run: traces.Tiermem, workload: Workload, folder: Path) -> tuple[Path, bool]:
    """The trace with its own times, or with times at even distances where they are those of a recorder; whether it is so."""
    plain, path = folder / f"{workload.name}.csv", folder / f"{workload.name}-spaced.csv"
    run("trace", "convert", workload.path, "--output", plain)
    with plain.open(newline="") as source, path.open("w", newline="") as target:
        rows = list(csv.DictReader(source))
        lasts_ns = int(rows[-1]["time_ns"]) - int(rows[0]["time_ns"])
        # A million requests a second and more are no clients'.
        is_timed = lasts_ns > len(rows) * 1000
        if not is_timed:
            writer = csv.DictWriter(target, rows[0].keys())
            writer.writeheader()
            writer.writerows({**row, "time_ns": at * EVERY_NS} for at, row in enumerate(rows))
    return (plain if is_timed else path), not is_timed


def mean(row: Row) -> float:
    """The mean time of all requests."""
    requests = max(row["reads"] + row["writes"], 1)
    return (row["reads"] * row["read_latency_us"] + row["writes"] * row["write_latency_us"]) / requests


def moved(row: Row) -> int:
    """Bytes from and to the store."""
    return row["core_read_bytes"] + row["core_written_bytes"]


def simulate(run: traces.Tiermem, trace: Path, capacity: int, store: list[str], words: list[str]) -> list[Row]:
    """A row for each cache."""
    common = ["--cache", f"{capacity}B", "--cleaning", "background", "--warm-up", WARM_UP, "--format", "csv"]
    rows = traces.rows_of(run("sim", "block", trace, *common, *store, *words))
    # Where none was counted it took no time.
    return [{**row, **{key: row[key] or 0.0 for key in ("read_latency_us", "write_latency_us")}} for row in rows]


def beside(ours: Row, best: Row, fixed: list[Row]) -> list[str]:
    """Ratios to the best fixed sizes."""

    def ratio(one: float, other: float) -> str:
        return f"{one / other:.3f}" if other else ""

    best_of = {key: min(row[key] for row in fixed) for key in ("read_latency_us", "write_latency_us")}
    return [
        ratio(ours["read_latency_us"], best["read_latency_us"]),
        ratio(ours["write_latency_us"], best["write_latency_us"]),
        ratio(moved(ours), moved(best)),
        ratio(ours["read_latency_us"], best_of["read_latency_us"]),
        ratio(ours["write_latency_us"], best_of["write_latency_us"]),
    ]


def compare(run: traces.Tiermem, name: str, trace: Path, capacity: int, store: list[str]) -> Iterator[list[str]]:
    """Lines of the table for a workload: what is fixed and best, ours, and ours where bytes are dear."""
    blocks = [word for size in SIZES for word in ("--blocks", size)]
    fixed = simulate(run, trace, capacity, store, [*blocks, "--fill", "units", "--fill", "whole"])
    best = min(fixed, key=mean)
    if not best["reads"] + best["writes"]:
        # It has fewer requests than are left out.
        return

    def line(what: str, row: Row, ratios: list[str]) -> list[str]:
        times = [f"{value:,.1f}" for value in (row["read_latency_us"], row["write_latency_us"], mean(row))]
        return [name, what, *times, f"{moved(row) / (1 << 20):,.0f}", *ratios]

    yield line(f"best: {best['blocks']} {best['fill']}", best, [""] * 5)
    for price in ["1ms", *PRICES]:
        ours = simulate(run, trace, capacity, store, ["--sizing", "observed", "--store-price", price])[0]
        yield line("ours" if price == "1ms" else f"ours, {price} a MiB", ours, beside(ours, best, fixed))


ABOUT = """# Block sizes by observation beside fixed sizes

Written by `experiments/block/sizing.py`: `tiermem sim block --cleaning background`, without the first 2,000 requests.
A cache has a tenth of what a trace touches (at least 2 MiB), or 64 MiB for the bursts. *best* is the fixed size, of
32 to 256 KiB with sub-block bits (units) or whole fills, with the least mean time of all requests; *ours* is `sizing
= "observed"` as it is by default, and where bytes are dear (`store_price`). *reads*, *writes* and *bytes* are ratios
to *best*. *each* is the ratio to whichever fixed size reads fastest, and to whichever writes fastest, which may be
two.

"""
HEADER = ["workload", "cache", "reads us", "writes us", "all us", "MiB", "reads", "writes", "bytes", "each: reads", "each: writes"]


def main() -> None:
    """Runs all there is, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", type=Path, default=HERE.parents[1] / "target" / "release" / "tiermem")
    parser.add_argument("--traces", type=Path, help="the folder of the traces that workloads.toml names")
    parser.add_argument("--short", action="store_true", help="slices of the traces, and short bursts")
    parser.add_argument("--core-latency", help="of the store [default: 1ms]")
    parser.add_argument("--core-bandwidth", help="of the store [default: 1.25GB]")
    parser.add_argument("--out", type=Path, help="a file for the table")
    args = parser.parse_args()
    if not (args.short or args.traces):
        parser.error("where are the traces? Give --traces DIR or --short")
    speeds = {"--core-latency": args.core_latency, "--core-bandwidth": args.core_bandwidth}
    store = [word for pair in speeds.items() if pair[1] for word in pair]
    run = traces.runner(args.tiermem.resolve())
    found, missing = traces.named(args.traces or Path(), args.short)
    # All of a slice, as the first requests are not counted.
    found = [replace(it, requests=None) for it in found]
    lines = [HEADER, ["---"] * len(HEADER)]
    printed = [*missing]
    print("\n".join(printed), end="\n" if printed else "", flush=True)

    def tell(rows: list[list[str]]) -> None:
        for cells in rows:
            line = "| " + " | ".join(cells) + " |"
            print(line, flush=True)
            printed.append(line)

    tell(lines)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name in BURSTS:
            trace = burst(name, 5 if args.short else 40, folder)
            tell(list(compare(run, f"burst: {name}", trace, BURST_CACHE, store)))
        for workload in found:
            trace, is_spaced = spaced(run, workload, folder)
            name = workload.name + (", 1 ms apart" if is_spaced else "")
            capacity = traces.capacity(run, workload, None)
            tell(list(compare(run, name, trace, capacity, store)))
    if args.out:
        args.out.write_text(ABOUT + "\n".join(printed) + "\n")


if __name__ == "__main__":
    main()
