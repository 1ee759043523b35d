#!/usr/bin/env python3
"""What `tiermem run --dram` costs where all fits: processor time of a program under it, beside that of the bare program.

    experiments/pager/overhead.py --tiermem target/release/tiermem --out docs/results/pager
    experiments/pager/overhead.py --tiermem target/debug/tiermem --quick --workloads build --out results

A pair is the bare program, without a limit, and the same under `tiermem run --dram` with more DRAM than it needs and steering on, as it is by
default; who is first changes with each pair. User and system time are those of the process that is started and of all that it has waited for,
so tiermem's own is counted in. Told are the median of the pairs' ratios, and an interval for it from the order of the ratios alone (the sign
test's), which covers it with at least 95% from 6 pairs on.

Writes overhead.json and overhead.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomllib

import kinds
from kinds.contract import Place, Workload
from machine import Settings, wait_for_no_swap
from paged import Failed, Paging
from programs import Programs, Unavailable
from workloads import FULL_SHARE, HERE, LEAST_FLASH_MIB, MIB, ROOT, free_bytes

WORKLOADS = ("pagerank", "build", "pgbench")
CONFIDENCE = 0.95
# At most 1% more.
WANTED = 1.01


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The narrowest pair of ordered values, symmetric, between which the median lies with at least CONFIDENCE; and with how much it does.

    Of few values it is the lowest and the highest, with less confidence.
    """
    ordered, count = sorted(values), len(values)
    left_out = 0
    # The median lies outside the values that stay when at most `left_out` of all lie on one side of it.
    while left_out + 1 <= (count - 1) // 2 and 1 - 2 * _at_most(left_out + 1, count) >= CONFIDENCE:
        left_out += 1
    return ordered[left_out], ordered[count - 1 - left_out], 1 - 2 * _at_most(left_out, count)


def _at_most(heads: int, count: int) -> float:
    """The chance of at most so many heads of so many coins."""
    return sum(math.comb(count, it) for it in range(heads + 1)) / 2**count


def pair(workload: Workload, place: Place, words: list[str], turn: int) -> dict[str, Any]:
    """Processor time of both, and their ratio."""
    row: dict[str, Any] = {"pair": turn + 1}
    results = []
    order = ["bare", "tiermem"]
    for name in order if turn % 2 == 0 else reversed(order):
        shutil.rmtree(place.scratch, ignore_errors=True)
        place.scratch.mkdir(parents=True)
        paging = Paging(words if name == "tiermem" else [], place.scratch)
        wait_for_no_swap()
        workload.forget()
        results.append(workload.run(paging).result)
        row[f"{name}_cpu_s"], row[f"{name}_real_s"] = paging.report["cpu_s"], paging.report["real_s"]
        row[f"{name}_command"] = paging.command
        if name == "tiermem" and paging.report["flash_peak_bytes"]:
            raise Failed(f"{paging.report['flash_peak_bytes']} bytes were in swap: this is not a run in all DRAM")
    if results[0] != results[1]:
        raise Failed(f"results differ: {results[0]} and {results[1]}")
    return row | {"ratio": row["tiermem_cpu_s"] / row["bare_cpu_s"]}


def table(rows: list[dict[str, Any]], data: dict[str, Any]) -> str:
    """A line for each workload."""
    lines = [
        "| workload | pairs | user and system time, of the bare program's | interval | confidence | wanted | bare, s | tiermem, s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in dict.fromkeys(row["workload"] for row in rows):
        own = [row for row in rows if row["workload"] == name]
        ratios = [row["ratio"] for row in own]
        low, high, confidence = interval(ratios)
        median = statistics.median(ratios)
        word = "reached" if high <= WANTED else "**missed**" if low > WANTED else "cannot be told"
        word = word if confidence >= CONFIDENCE else "too few pairs"
        seconds = [statistics.median(row[f"{it}_cpu_s"] for row in own) for it in ("bare", "tiermem")]
        line = [data[name]["title"], str(len(own)), f"**{median:.4f}**", f"{low:.4f} to {high:.4f}", f"{100 * confidence:.1f}%"]
        lines.append(f"| {' | '.join([*line, f'at most {WANTED} ({word})', *(f'{it:.2f}' for it in seconds)])} |")
    return "\n".join(lines) + "\n"


def write(rows: list[dict[str, Any]], data: dict[str, Any], out: Path) -> None:
    """Both files."""
    (out / "overhead.json").write_text(json.dumps(rows, indent=1) + "\n")
    first = [it for it in rows if it["pair"] == 1]
    commands = "\n".join(f"# {it['workload']}\n{it['bare_command']}\n{it['tiermem_command']}" for it in first)
    (out / "overhead.md").write_text(f"{table(rows, data)}\n```\n{commands}\n```\n")


def options() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", type=Path, default=Path("target/release/tiermem"), help="its workloads lie beside it")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where swap files lie: ext4 or xfs")
    parser.add_argument("--programs", type=Path, default=ROOT / "target" / "pager-programs", help="where programs and data are kept")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--pairs", type=int, help="15, or 2 with --quick")
    parser.add_argument("--swap-patience-s", type=float, default=0, help="how long to wait until no swap is on, before it is refused")
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("docs/results/pager"))
    args = parser.parse_args()
    args.pairs = args.pairs if args.pairs is not None else 2 if args.quick else 15
    if args.pairs < 1:
        parser.error("--pairs takes at least 1")
    if not args.tiermem.is_file():
        parser.error(f"{args.tiermem} is not there: build it (cargo build --release -p tiermem-cli), or name another with --tiermem")
    return args


def main() -> None:
    """Measures, and writes the files."""
    args = options()
    if os.geteuid() != 0:
        sys.exit("run it as root: it turns swap on")
    data = tomllib.loads((HERE / "workloads.toml").read_text())
    wait_for_no_swap(args.swap_patience_s)
    scratch = args.programs.absolute() / f"scratch-{os.getpid()}"
    place = Place(Programs(args.programs), args.programs.absolute() / "data", scratch, args.tiermem.resolve())
    dram = f"{int(free_bytes() * FULL_SHARE) // MIB}MiB"
    words = [str(place.tiermem), "run", "--dram", dram, "--flash", f"{args.folder.resolve()}={LEAST_FLASH_MIB}MiB", "--format", "json"]
    args.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    # Nothing is set; its guard removes what a run that was killed leaves.
    with Settings(args.folder.resolve(), scratch):
        for name in args.workloads:
            workload = kinds.ALL[name](place, data[name]["quick" if args.quick else "full"])
            scratch.mkdir(parents=True, exist_ok=True)
            try:
                workload.prepare()
                for turn in range(args.pairs):
                    rows.append({"workload": name} | pair(workload, place, words, turn))
                    print(f"{name}, pair {turn + 1}: {rows[-1]['ratio']:.4f}", flush=True)
                    write(rows, data, args.out)
            except Unavailable as missing:
                print(f"{name} is skipped: {missing}", file=sys.stderr, flush=True)
            except Failed as failure:
                sys.exit(f"{name}: {failure}")
    print(table(rows, data))


if __name__ == "__main__":
    main()
