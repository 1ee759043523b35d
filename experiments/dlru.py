#!/usr/bin/env python3
"""Choosing K while a cache runs, beside every fixed K: Wang 2024, chapter 3 (DLRU), and section 4.2.8.1 (by KRR's curves).

Simulated: no bytes move, so that figures do not depend on the machine. Caches have 25, 50 and 75% of the working set, in objects
(the size of all items is the same, figures 3.6 and 3.7) and in bytes (their own sizes, figure 3.8). `web-like` and others are
stand-ins (tenants/workloads.py); real traces are taken from --trace-dir where they are there. The window and the sample are
smaller than DLRU's (5 million look-ups, a key in 200), as the traces are: a 25th of the trace, and a key in ten, or all of those of
the smallest traces.

    experiments/dlru.py --tiermem target/release/tiermem --trace-dir traces --out docs/results

Writes data (JSON) and a table (Markdown). `gain` is how many accesses more are answered in a time than with K = 5, if a hit takes
30 us and a miss 230 us: the measure of section 3.2.3, with a database near by.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "tenants"))
from workloads import BLOCKS

KS = [1, 2, 5, 10, 16]
SHARES = [25, 50, 75]
HIT_US, MISS_US = 30.0, 230.0
REAL = [
    "lirs_2_pools.trace.gz", "lirs_multi1.trace.gz", "lirs_multi2.trace.gz", "lirs_multi3.trace.gz", "arc_OLTP.lis.zst",
    "arc_P3.lis.zst", "cloudphysics_w106.trace.xz", "twitter_cluster52.csv.zst",
]  # fmt: skip


def two_phases(path: Path, keys: int, requests: int) -> None:
    """One phase in which what is oldest comes back first, one of skewed keys, and both again (section 3.2.3.3)."""
    rng = random.Random(1)
    with path.open("w") as out:
        for phase in range(4):
            for at in range(requests // 4):
                key = at % keys if phase % 2 == 0 else keys + int(rng.random() ** 4 * keys)
                out.write(f"{key}\n")


def simulate(tiermem: str, trace: str, requests: int, in_bytes: bool) -> list[dict[str, Any]]:
    """A row for each size and policy."""
    command = [tiermem, "sim", "cache", trace, "--format", "json", "--policy", "klru", "--policy", "dlru", "--policy", "dlru-krr"]
    command += [word for k in KS for word in ("--k", str(k))]
    command += [word for share in SHARES for word in ("--size", f"{share}%")]
    # The traces of loops have so few keys that a sample of them would be too small for any choice.
    sample = "1" if "lirs" in trace else "0.1"
    command += ["--k-window", str(max(1000, requests // 25)), "--k-sample", sample, "--threads", "1"]
    done = subprocess.run(command + ["--bytes"] * in_bytes, check=True, capture_output=True, text=True)
    rows: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return rows or json.loads(done.stdout)


def length(tiermem: str, trace: str) -> int:
    """Requests of a trace."""
    done = subprocess.run(
        [tiermem, "sim", "cache", trace, "--size", "1", "--format", "json"], check=True, capture_output=True, text=True
    )
    text = done.stdout.strip()
    row = json.loads(text if text.startswith("[") else text.splitlines()[0])
    return int((row[0] if isinstance(row, list) else row)["requests"])


def gain(miss_ratio: float, beside: float) -> float:
    """How much more is answered in a time."""
    return (HIT_US + beside * (MISS_US - HIT_US)) / (HIT_US + miss_ratio * (MISS_US - HIT_US)) - 1


def compare(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each size the best fixed K, and what chooses beside it."""
    found = []
    for at, size in enumerate(sorted({row["size"] for row in rows})):
        mine = [row for row in rows if row["size"] == size]
        fixed = {row["k"]: row["miss_ratio"] for row in mine if row["policy"] == "klru"}
        chosen = {row["policy"]: row["miss_ratio"] for row in mine if row["policy"] != "klru"}
        best = min(fixed, key=lambda k: fixed[k])
        found.append({
            "share": SHARES[min(at, len(SHARES) - 1)], "best_k": best, "best": fixed[best], "five": fixed[5], **chosen,
            "worse": {name: gain(fixed[best], ratio) for name, ratio in chosen.items()},
            "gain": {name: gain(ratio, fixed[5]) for name, ratio in chosen.items()},
        })  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", default="target/release/tiermem")
    parser.add_argument("--trace-dir", type=Path, help="real traces, those that are there of " + ", ".join(REAL))
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--keys", type=int, default=100_000, help="of each stand-in [default: 100000]")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        phases = Path(folder) / "phases.trace"
        two_phases(phases, args.keys // 4, 20 * args.keys)
        traces = {f"{name}-like": block.spec(args.keys, 1) for name, block in BLOCKS.items()}
        traces["two phases"] = str(phases)
        if args.trace_dir:
            traces |= {name.split(".")[0]: str(args.trace_dir / name) for name in REAL if (args.trace_dir / name).exists()}

        def study(item: tuple[str, str]) -> list[dict[str, Any]]:
            name, trace = item
            requests = length(args.tiermem, trace)
            # Traces of block numbers have one size.
            units = (False, True) if "like" in name or "twitter" in name else (False,)
            tables = [(unit, compare(simulate(args.tiermem, trace, requests, unit))) for unit in units]
            return [{"trace": name, "bytes": unit, **row} for unit, table in tables for row in table]

        with ThreadPoolExecutor(2) as pool:
            rows = [row for table in pool.map(study, traces.items()) for row in table]
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "dlru.json").write_text(json.dumps(rows, indent=1) + "\n")
    lines = [
        "| trace | sizes | memory | best K | its miss ratio | K = 5 | miniature | KRR | worse than best K | gain over K = 5 |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        worse = " / ".join(f"{100 * row['worse'][name]:.1f}" for name in ("dlru", "dlru-krr"))
        gained = " / ".join(f"{100 * row['gain'][name]:+.1f}" for name in ("dlru", "dlru-krr"))
        ratios = [row[name] for name in ("best", "five", "dlru", "dlru-krr")]
        cells = [row["trace"], "own" if row["bytes"] else "one", f"{row['share']}%", str(row["best_k"])]
        cells += [f"{ratio:.4f}" for ratio in ratios]
        lines.append("| " + " | ".join([*cells, f"{worse} %", f"{gained} %"]) + " |")
    (args.out / "dlru.md").write_text("\n".join(["# Choosing K while a cache runs", "", *lines]) + "\n")
    for name in ("dlru", "dlru-krr"):
        worst = max(rows, key=lambda row: row["worse"][name])
        best = max(rows, key=lambda row: row["gain"][name])
        print(
            f"{name}: at worst {100 * worst['worse'][name]:.2f}% slower than the best fixed K ({worst['trace']}, {worst['share']}%),"
            f" at best {100 * best['gain'][name]:.1f}% faster than K = 5 ({best['trace']}, {best['share']}%)"
        )


if __name__ == "__main__":
    main()
