#!/usr/bin/env python3
"""What tiers cost against DRAM alone: the store's engine in process, on two slow tiers, beside its rivals.

Wang 2024, sections 5.2.2 to 5.2.6 (throughput, the phase change, the size of the fast tier, tail latency) and Tang 2024,
table 4.1 (static interleaving). The slow tier is emulated. All systems of a group run in turn, slice by slice, and every
figure is against all-DRAM in the same slice. Memory: about 13 GB; time: about an hour, or a few minutes with --quick.
Writes data (JSON) and a plot (SVG) next to each other:

    experiments/tiers_in_process.py --tiermem target/release/tiermem --trace-dir traces --out docs/results
"""

from __future__ import annotations

import argparse
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from drawing import svg

RIVALS = ["naive", "tiermem", "demotion-only", "all-cxl"]
# Wang's rule as written, with its way to find candidates, and alone; and ours whether moves pay or not.
RULES = ["tiermem", "always-moves", "wang-2024", "tiermem-scan", "reuse-time"]
STATIC = ["admit-fast", "interleaved-3-1", "interleaved-1-1", "interleaved-1-3"]
CURVES = ["a1000-cxl", "numa-2018"]


@dataclass(frozen=True)
class Setting:
    """A trace, the fast tier's share of it, and who runs it, each group in a run of its own."""

    trace: str
    fast: float
    groups: tuple[tuple[str, ...], ...]
    flags: tuple[str, ...] = ("--preload",)
    rounds: int = 101


def settings(folder: Path) -> dict[str, Setting]:
    twitter = str(folder / "twitter_cluster52.csv.zst")
    scaled = ("--value-scale", "70")
    changing = ("--preload", "--warmup", "0.1")
    all_groups = (tuple(RIVALS), tuple(STATIC), tuple(RULES))
    pair = (("naive", "tiermem", "all-cxl"),)
    # Wang 2024, 5.2.4.4: each tenant's skew changes at half of the requests, and its hot keys with it.
    tenants = "mix:0.5*phase(alpha=0.8,objects=2M,size=300)+0.5*phase(alpha=1.2,objects=2M,size=300),requests=20M"
    return {
        "Zipf 0.99, 1000 B": Setting("zipf:alpha=0.99,objects=3M,requests=16M,size=1000", 0.2, all_groups),
        "Zipf 0.99, 64 to 1024 B": Setting("zipf:alpha=0.99,objects=5M,requests=16M,size=64-1024", 0.2, all_groups),
        "Twitter 52, values x 70": Setting(twitter, 0.2, all_groups, scaled, rounds=25),
        "Twitter 52, fast tier 50%": Setting(twitter, 0.5, (("tiermem", "demotion-only"),), scaled, rounds=25),
        "Twitter 52, its own sizes": Setting(twitter, 0.2, (*all_groups,), (), rounds=25),
        "phase change, 300 B": Setting("phase:alpha=0.9,objects=5M,requests=40M,size=300", 0.5, pair, changing),
        "phase change, 4 KB": Setting("phase:alpha=0.9,objects=500k,requests=4M,size=4000", 0.5, pair, changing),
        "two tenants, phase change": Setting(tenants, 0.25, (("tiermem", "all-cxl"),), changing),
    }


def measure(tiermem: str, setting: Setting, curve: str, quick: bool) -> dict[str, dict]:
    runs = {}
    for group in setting.groups:
        words = [tiermem, "store", "bench", setting.trace, "--systems", ",".join(["all-dram", *group])]
        words += ["--curve", curve, "--fast-fraction", str(setting.fast), *setting.flags]
        words += ["--rounds", str(5 if quick else setting.rounds), "--format", "json"]
        if quick:
            words += ["--requests", "300000"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        about = {name: value for name, value in found.items() if not isinstance(value, (dict, list))}
        for row in found["systems"]:
            # Of several groups the first one's all-DRAM is shown; each figure is against its own.
            told = " ".join(["tiermem", *words[1:]]).replace(setting.trace, Path(setting.trace).name)
            runs.setdefault(row["system"], {**about, **row, "command": told})
    return runs


def draw(data: dict[str, dict[str, dict[str, dict]]]) -> str:
    """For each setting, curve and system a bar: speed against all-DRAM, with the lowest and highest slice."""
    left, row, width, scale = 150, 20, 920, 480
    parts = ['<text class="t" x="10" y="22">Requests per second of processor time, all-DRAM = 1</text>']
    y = 50
    for setting, curves in data.items():
        for curve, runs in curves.items():
            parts.append(f'<text class="t" x="10" y="{y}">{setting}, {curve}</text>')
            y += 8
            for name, run in runs.items():
                if name == "all-dram":
                    continue
                speed = run["relative_speed"]
                color = "#c0392b" if name == "tiermem" else "#999"
                parts.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{name}</text>')
                parts.append(f'<rect x="{left}" y="{y}" width="{speed * scale:.1f}" height="{row - 6}" fill="{color}"/>')
                label = f"{speed:.3f}, {run['fast_hit_share']:.3f} of look-ups hit the fast tier"
                parts.append(f'<text x="{left + max(speed, 1) * scale + 10:.1f}" y="{y + 12}">{label}</text>')
                y += row
            y += 24
    for at in (0.87, 0.95, 1):
        parts.append(f'<line x1="{left + at * scale}" x2="{left + at * scale}" y1="36" y2="{y}" stroke="#222" stroke-dasharray="2 3"/>')
        parts.append(f'<text class="s" x="{left + at * scale}" y="{34}" text-anchor="middle">{at}</text>')
    return svg(width, y, parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", default="target/release/tiermem")
    parser.add_argument("--trace-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--only", help="settings whose name contains this")
    parser.add_argument("--curve", choices=CURVES, action="append", help="default: both")
    parser.add_argument("--quick", action="store_true", help="the first 300,000 requests of each trace, five slices: to see that it runs")
    args = parser.parse_args()
    path = args.out / "tiers.json"
    data = json.loads(path.read_text()) if path.exists() and not args.quick else {}
    for name, setting in settings(args.trace_dir).items():
        if args.only and args.only not in name:
            continue
        for curve in args.curve or CURVES:
            runs = measure(args.tiermem, setting, curve, args.quick)
            data.setdefault(name, {})[curve] = runs
            print(f"{name}, {curve}")
            for system, run in runs.items():
                print(
                    f"  {system:16} {run['relative_speed']:.3f} ({run['relative_low']:.3f} to {run['relative_high']:.3f})"
                    f"  fast {run['fast_hit_share']:.4f}  hits {run['hit_ratio']:.4f}  promotions {run['promotions']:9}"
                    f"  p99 {run['p99_ns']:6} p99.9 {run['p999_ns']:6} ns",
                    flush=True,
                )
            # What was measured is kept, whatever happens to the rest.
            path.write_text(json.dumps(data, indent=1) + "\n")
            path.with_suffix(".svg").write_text(draw(data))


if __name__ == "__main__":
    main()
