#!/usr/bin/env python3
"""What it costs a server to follow fifteen tenants and to decide how its memory is divided: Wang 2024, section 4.2.7.

The same requests go to the store with tenants told apart and nothing divided (`off`), and divided after each window by a sample of a
hundredth of the keys and of a thousandth. All are run in turn, round by round; processor time is the server's own, all threads
counted, over what `off` took in the same round. Misses are charged and not waited for, so that all get the same requests in
the same order. Memory of curves and samples is what the server says, as a part of its memory. Time: about five minutes.

    experiments/tenants/overhead.py --tiermem target/release/tiermem --out docs/results

Writes data (JSON) and a table (Markdown) next to each other.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from servers import Setup, Variant, drive, running

TENANTS = 15
VALUE_BYTES = 200
OFF = '[tenants]\nby = "prefix"\n'
RATES = {"R = 0.01": 0.01, "R = 0.001": 0.001}


def cpu_seconds(port: int) -> float:
    """The processor time that the server has taken so far."""
    told = subprocess.run(["redis-cli", "-p", str(port), "info", "cpu"], capture_output=True, text=True, check=True).stdout
    fields = dict(line.split(":", 1) for line in told.split() if ":" in line)
    return float(fields["used_cpu_user"]) + float(fields["used_cpu_sys"])


def division(port: int) -> dict[str, Any]:
    """What the server says of its division."""
    told = subprocess.run(["redis-cli", "-p", str(port), "tenants", "json"], capture_output=True, text=True, check=True).stdout
    found: dict[str, Any] = json.loads(told)["division"] or {}
    return found


def measure(args: argparse.Namespace, setup: Setup, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """A run for each variant and round."""
    divided = '{off}divide = "latency"\nwindow = {window}\nsample_rate = {rate}\nmiss_cost = "1ms"\n'
    variants = [Variant("off", OFF)]
    variants += [Variant(name, divided.format(off=OFF, window=args.window, rate=rate)) for name, rate in RATES.items()]
    spec = "zipf:alpha={alpha},objects={keys},size={size},requests={requests},seed={seed}"
    fronts = []
    for tenant in range(TENANTS):
        alpha = 0.6 + 0.05 * tenant
        fronts.append(f"t{tenant}={spec.format(alpha=alpha, keys=args.keys, size=VALUE_BYTES, requests=4 * args.keys, seed=tenant)},miss={1 << tenant}us")
    memory = TENANTS * args.keys * (VALUE_BYTES + 90) // 2
    runs: dict[str, list[dict[str, Any]]] = {}
    for turn in range(args.rounds):
        for variant in variants:
            with running(setup, variant, memory, folder) as port:
                drive(setup, port, fronts, ["--charge", "--requests", str(args.requests)])
                before = cpu_seconds(port)
                seen = drive(setup, port, fronts, ["--charge", "--requests", str(args.requests)])
                spent = cpu_seconds(port) - before
                figures = division(port)
            run = {"cpu_us": 1e6 * spent / args.requests, "p999_us": seen["p999_us"], "p99_us": seen["p99_us"], **figures}
            run["memory_percent"] = 100 * figures.get("metadata_bytes", 0) / memory
            runs.setdefault(variant.name, []).append(run)
            print(f"round {turn + 1} {variant.name:10} {run['cpu_us']:.3f} us a look-up, p99.9 {run['p999_us']:.0f} us", flush=True)
    return runs


def table(runs: dict[str, list[dict[str, Any]]]) -> str:
    """Medians over rounds, and those of the ratios within each."""
    of = statistics.median
    lines = ["| sample | processor time a look-up, us | beside off | p99, us | p99.9 beside off | curves and samples, of memory | windows |"]
    lines.append("| --- " * 7 + "|")
    for name, found in runs.items():
        ratio = {key: of(run[key] / base[key] for run, base in zip(found, runs["off"], strict=True)) for key in ("cpu_us", "p999_us")}
        cells = [name, f"{of(run['cpu_us'] for run in found):.3f}", f"{100 * (ratio['cpu_us'] - 1):+.2f}%"]
        cells += [f"{of(run['p99_us'] for run in found):.0f}", f"{ratio['p999_us']:.2f} x"]
        cells += [f"{of(run['memory_percent'] for run in found):.3f}%", str(found[-1].get("windows", 0))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measures and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", default="target/release/tiermem")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=1_500_000, help="look-ups of a run, after as many to warm up")
    parser.add_argument("--keys", type=int, default=100_000, help="of each tenant")
    parser.add_argument("--window", type=int, default=1_000_000)
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    args = parser.parse_args()
    setup = Setup(str(Path(args.tiermem).resolve()), "redis-server", 0, 1, args.nice)
    with tempfile.TemporaryDirectory() as folder:
        runs = measure(args, setup, Path(folder))
    stem = args.out / "tenants-overhead"
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".json").write_text(json.dumps(runs, indent=1) + "\n")
    stem.with_suffix(".md").write_text(table(runs))
    print(table(runs))


if __name__ == "__main__":
    main()
