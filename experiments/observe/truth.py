#!/usr/bin/env python3
"""How right a recording is: heat as recorded against counts that the program kept itself.

    experiments/observe/truth.py --tiermem target/release/tiermem --out docs/results/observe
    experiments/observe/truth.py --tiermem target/debug/tiermem --short --out results

For sizes, kinds of pages and workloads (`programs/heat.c`, which is compiled first) it records one run and compares. `rank` is the
rank correlation of granules, of those that the program's counts tell apart: divided by the largest value that ties among its counts
allow. `hot` is the share of accesses in the hottest quarter of granules, as counted and as recorded, in the slices after the
program has touched its memory once. Where heat moves, `hot` is the median over slices of the share of the hottest quarter of
granules in each. Sizes that do not fit the machine are left out. Writes truth.md.
"""

from __future__ import annotations

import argparse
import collections
import csv
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
GRANULE = 4 << 20
MIB = 1 << 20
# In a program that moves its heat, hot are so many of its granules at a time.
PARTS = {"moving": 4, "phases": 4}
SLICE_S = 1.0


def ranks(values: list[float]) -> list[float]:
    """Ranks, of equal values their mean."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found, at = [0.0] * len(values), 0
    while at < len(order):
        end = at
        while end < len(order) and values[order[end]] == values[order[at]]:
            end += 1
        for number in order[at:end]:
            found[number] = (at + end - 1) / 2
        at = end
    return found


def correlation(one: list[float], other: list[float]) -> float:
    """Pearson's; 0 if one of them is constant."""
    if len(set(one)) < 2 or len(set(other)) < 2:
        return 0.0
    return statistics.correlation(one, other)


def rank_correlation(true: list[float], told: list[float]) -> float:
    """Of heats, as a part of what is possible: of granules that are equally hot, no order is right."""
    best = [0.0] * len(true)
    for rank, number in enumerate(sorted(range(len(true)), key=true.__getitem__)):
        best[number] = rank
    return min(correlation(ranks(true), ranks(told)) / correlation(ranks(true), best), 1.0)


def meant(true: list[int], shape: str) -> list[float]:
    """Counts without chance: of granules that are meant to be equally hot, their mean."""
    if shape == "skewed":
        return [float(count) for count in true]
    quarter = len(true) // 4
    means = [statistics.mean(true[at * quarter : (at + 1) * quarter]) for at in range(4)]
    if shape in ("quarter", "write"):
        rest = statistics.mean(means[at] for at in (0, 2, 3))
        means = [rest, means[1], rest, rest]
    if shape == "two":
        means[0] = means[2] = 0.0
    return [means[min(at // quarter, 3)] for at in range(len(true))]


def recorded(tiermem: Path, source: str, words: list[str], folder: Path) -> dict[int, dict[int, float]]:
    """Accesses of each granule of the program's memory in each slice."""
    recording, table = folder / "truth.rec", folder / "truth.csv"
    record = [str(tiermem), "record", "--source", source, "--slice", f"{SLICE_S:g}s", "-o", str(recording), "--", *words]
    subprocess.run(record, check=True, capture_output=True)
    heatmap = [str(tiermem), "heatmap", str(recording), "--granule", "4MiB", "-o", str(table)]
    subprocess.run(heatmap, check=True, capture_output=True)
    slices: dict[int, dict[int, float]] = collections.defaultdict(lambda: collections.defaultdict(float))
    with table.open() as lines:
        for row in csv.DictReader(lines):
            slices[int(row["slice"])][int(row["offset"])] += float(row["accesses"])
    return slices


def aligned(slices: dict[int, dict[int, float]], granules: int, true: list[float]) -> list[list[float]]:
    """The same by the program's granules: its memory begins within a region, where most of the heat is in its place."""
    offsets = sorted({offset for heat in slices.values() for offset in heat})
    starts = range(0, max(offsets, default=0) + 1, GRANULE)

    def of(start: int, heat: dict[int, float]) -> list[float]:
        return [heat.get(start + at * GRANULE, 0.0) for at in range(granules)]

    late = [heat for number, heat in sorted(slices.items()) if number >= 1]
    total: dict[int, float] = collections.defaultdict(float)
    for heat in late:
        for offset, accesses in heat.items():
            total[offset] += accesses
    within = [start for start in starts if start + (granules - 12) * GRANULE <= max(offsets, default=0)][:12]
    best = max(within or [0], key=lambda start: correlation(ranks(true), ranks(of(start, total))))
    return [of(best, heat) for _, heat in sorted(slices.items())]


def cell(tiermem: Path, program: Path, source: str, mib: int, pages: str, shape: str, seconds: int) -> str:
    """One row of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        counts = folder / "counts.csv"
        words = [str(program), str(mib), str(seconds), pages, shape, str(counts)]
        slices = recorded(tiermem, source, words, folder)
        with counts.open() as lines:
            true = [int(row["accesses"]) for row in csv.DictReader(lines)]
    wanted = meant(true, shape)
    heats = aligned(slices, len(true), [float(count) for count in true])
    # Until so many seconds before its end the program fills its memory, which may take longer than all the rest. Of the time after,
    # the first two slices see the end of that; the last one is cut.
    heats = heats[-seconds:][2:-1]
    hottest = sorted(range(len(true)), key=wanted.__getitem__, reverse=True)[: len(true) // 4]
    if shape in PARTS:
        part = len(true) // PARTS[shape]
        shares = [sum(sorted(heat)[-part:]) / max(sum(heat), 1e-9) for heat in heats]
        counted, told, rank = 0.9 + 0.1 / PARTS[shape], statistics.median(shares), ""
    else:
        total = [sum(heat[at] for heat in heats) for at in range(len(true))]
        counted = sum(true[at] for at in hottest) / sum(true)
        told = sum(total[at] for at in hottest) / max(sum(total), 1e-9)
        rank = f"{rank_correlation(wanted, total):.3f}"
    size = f"{mib} MiB" if mib < 1024 else f"{mib // 1024} GiB"
    return f"| {source} | {size} | {pages} | {shape} | {rank} | {counted:.1%} | {told:.1%} | {100 * (told - counted):+.1f} |"


def main() -> None:
    """Records all of them, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", type=Path, default=Path("target/release/tiermem"))
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--mib", type=int, nargs="+", default=[256, 1024, 4096, 16384])
    parser.add_argument("--pages", nargs="+", default=["small", "huge", "mixed"])
    parser.add_argument("--shapes", nargs="+", default=["quarter", "skewed", "two", "moving", "phases", "write"])
    parser.add_argument("--out", type=Path, default=Path("docs/results/observe"))
    parser.add_argument("--short", action="store_true", help="256 MiB and few workloads: to see that it runs")
    args = parser.parse_args()
    if args.short:
        args.mib, args.shapes, args.seconds = [256], ["quarter", "skewed"], 6
    available = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    memory = int(available.split()[1]) << 10
    rows = ["| source | size | pages | workload | rank | hot, counted | told | points |", "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    with tempfile.TemporaryDirectory() as name:
        program = Path(name) / "heat"
        source = HERE / "programs" / "heat.c"
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-o", str(program), str(source)], check=True)
        for mib in args.mib:
            if mib * MIB > memory * 0.9:
                print(f"{mib} MiB do not fit into memory, and are left out", file=sys.stderr)
                continue
            for pages in args.pages:
                for shape in args.shapes:
                    for what in ["refs", "writes"] if shape == "write" else ["refs"]:
                        rows.append(cell(args.tiermem.resolve(), program, what, mib, pages, shape, args.seconds))
                        print(rows[-1], flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "truth.md").write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
