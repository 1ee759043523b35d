#!/usr/bin/env python3
"""What each mechanism of the store's ladder is worth: each switched off in turn, on several traces.

The study that Wang 2024 (section 6.2) names as future work, the curve of promotions against the share of fast-tier hits
(5.2.4.3), and the size of the fast tier (5.2.5). Everything is simulated: no bytes move, so the figures do not depend on
the machine. Writes data (JSON) and plots (SVG) next to each other:

    experiments/tiered_ablation.py --tiermem target/release/tiermem --trace-dir traces --out docs/results

`cost` is a model: what the a1000-cxl curve charges beyond local DRAM for hits, writes and moves, plus the processor's own
time for moves, 600 ns each and 0.1 ns a byte, and 200 ns for an eviction, in nanoseconds a request.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from drawing import svg

BASE = {"--order": "lru", "--promotion": "reuse-twice", "--admission": "proven", "--bump": "at-tail"}
# What is switched off, and how. An empty value stands for a flag without one.
ABLATION = {
    "default": {},
    "insertion point": {"--insertion-point": "1"},
    "watermarks": {"--no-watermarks": ""},
    "promotion": {"--promotion": "none"},
    "two reuse times": {"--promotion": "reuse-time"},
    "reuse time (naive)": {"--promotion": "naive"},
    "reactive demotion": {"--reactive": "drop"},
    "lazy bump": {"--bump": "always"},
    "admission": {"--admission": "fast"},
    "weighing moves": {"--always-move": ""},
    "lists (klru:5)": {"--order": "klru:5"},
    "moving pages": {"--no-rebalance": ""},
}
CURVES = {
    "reuse-twice": [{"--promotion": "reuse-twice", "--promote-below": str(f)} for f in (1, 2, 4, 6, 8, 12, 16)],
    "reuse-time": [{"--promotion": "reuse-time", "--promote-below": str(f)} for f in (0.1, 0.25, 0.5, 1, 1.5, 2, 3)],
    "tail-age": [{"--promotion": "tail-age", "--promote-below": str(f)} for f in (0.05, 0.1, 0.25, 0.5, 1)],
    "naive": [{"--promotion": "naive"}],
    "none": [{"--promotion": "none"}],
}
PHASE = ["phase:alpha=0.9,objects=50k,requests=1M,size=300"]
ZIPF = ["zipf:objects=50k,requests=1M,alpha=0.99,size=300"]


def traces(folder: Path) -> dict[str, list[str]]:
    twitter = str(folder / "twitter_cluster52.csv.zst")
    return {
        "Zipf 0.99": [*ZIPF, "--tier", "20%", "--tier", "140%"],
        "phase change": [*PHASE, "--tier", "50%", "--tier", "140%"],
        "Zipf 0.8, 14 kB": [
            "zipf:objects=20k,requests=400k,alpha=0.8,size=14000", "--tier", "20%", "--tier", "140%",
        ],
        "Twitter 52": [twitter, "--tier", "20%", "--tier", "140%"],
        "Twitter 52 x 70": [twitter, "--value-scale", "70", "--tier", "20%", "--tier", "140%"],
        "OLTP, half fits": [str(folder / "arc_OLTP.lis.zst"), "--tier", "10%", "--tier", "50%"],
        "CloudPhysics": [str(folder / "cloudPhysicsIO.vscsi"), "--tier", "20%", "--tier", "140%"],
    }


def cost(run: dict) -> float:
    moves = run["promotions"] + run["demotions"] + run["relocations"]
    own = moves * 600 + run["moved_bytes"] * 0.1 + run["evictions"] * 200
    return run["charged_ns_per_request"] + own / run["requests"]


def simulate(tiermem: str, trace: list[str], changes: dict[str, str]) -> dict:
    flags = [word for flag, value in (BASE | changes).items() for word in (flag, value) if word]
    done = subprocess.run(
        [tiermem, "sim", "cache", *trace, *flags, "--format", "json"], capture_output=True, text=True, check=True
    )
    run = json.loads(done.stdout)
    return {"flags": " ".join(flags), "cost_ns_per_request": round(cost(run), 2), **run}


def draw_ablation(data: dict[str, dict[str, dict]]) -> str:
    """One column of bars for each trace: cost with a mechanism off, as a multiple of the default's."""
    left, column, row, top = 140, 150, 24, 70
    parts = ['<text class="t" x="10" y="22">Cost of a request with one mechanism off, default = 1</text>']
    parts.append('<text class="s" x="10" y="40">right of the line: the mechanism pays; bars end at 3</text>')
    scale = (column - 50) / 3
    for at, (trace, runs) in enumerate(data.items()):
        x = left + at * column
        default = runs["default"]["cost_ns_per_request"]
        parts.append(f'<text x="{x}" y="{top - 8}">{trace}</text>')
        for line, (name, run) in enumerate(runs.items()):
            y = top + line * row
            times = run["cost_ns_per_request"] / default
            color = "#888" if name == "default" else "#c0392b" if times > 1.01 else "#2471a3" if times < 0.99 else "#999"
            parts.append(f'<rect x="{x}" y="{y}" width="{min(times, 3) * scale:.1f}" height="{row - 8}" fill="{color}"/>')
            parts.append(f'<text x="{x + min(times, 3) * scale + 4:.1f}" y="{y + 13}">{times:.2f}</text>')
            if at == 0:
                parts.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{name}</text>')
        end = top + len(runs) * row
        parts.append(f'<line x1="{x + scale:.1f}" x2="{x + scale:.1f}" y1="{top - 4}" y2="{end}" stroke="#222"/>')
    return svg(left + len(data) * column, top + len(ABLATION) * row + 12, parts)


def draw_curve(data: dict[str, list[dict]]) -> str:
    """Promotions as a share of naive's, on a logarithmic axis, against the share of fast-tier hits."""
    width, height, left, top, right, bottom = 640, 420, 60, 50, 110, 50
    naive = data["naive"][0]
    best = naive["clairvoyant_fast_share"]
    low = min(run["fast_hit_share"] for runs in data.values() for run in runs if run["promotions"]) - 0.01
    high = max(best, max(run["fast_hit_share"] for runs in data.values() for run in runs)) + 0.005

    def x(share: float) -> float:
        from math import log10

        return left + (width - left - right) * (log10(max(share, 0.01)) + 2) / 2

    def y(hits: float) -> float:
        return top + (height - top - bottom) * (high - hits) / (high - low)

    parts = ['<text class="t" x="10" y="22">Phase change: promotions against hits in the fast tier</text>']
    for tick in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1):
        parts.append(f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{top}" y2="{height - bottom}" stroke="#eee"/>')
        parts.append(f'<text x="{x(tick):.1f}" y="{height - bottom + 16}" text-anchor="middle">{tick:.0%}</text>')
    for tick in range(int(low * 100) + 1, int(high * 100) + 1):
        parts.append(f'<line x1="{left}" x2="{width - right}" y1="{y(tick / 100):.1f}" y2="{y(tick / 100):.1f}" stroke="#eee"/>')
        parts.append(f'<text x="{left - 6}" y="{y(tick / 100) + 4:.1f}" text-anchor="end">{tick}%</text>')
    parts.append(f'<text x="{left}" y="{height - 12}">promotions, of naive\'s; hits in the fast tier, of requests</text>')
    for hits, name in ((best, "best placement"), (naive["fast_hit_share"] - 0.015, "naive less 1.5 points")):
        parts.append(f'<line x1="{left}" x2="{width - right}" y1="{y(hits):.1f}" y2="{y(hits):.1f}" stroke="#222" stroke-dasharray="4 3"/>')
        parts.append(f'<text class="s" x="{left + 6}" y="{y(hits) - 4:.1f}">{name}</text>')
    colors = {"reuse-twice": "#c0392b", "reuse-time": "#2471a3", "tail-age": "#7d6608", "naive": "#222"}
    for name, color in colors.items():
        points = sorted((run["promotions"] / naive["promotions"], run["fast_hit_share"]) for run in data[name])
        points = [(x(share), y(hits)) for share, hits in points]
        line = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.5" fill="{color}"/>' for px, py in points]
        label = top + 20 + 18 * list(colors).index(name)
        parts.append(f'<text x="{width - right + 14}" y="{label}" style="fill:{color}">{name}</text>')
    return svg(width, height, parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", default="target/release/tiermem")
    parser.add_argument("--trace-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    known = traces(args.trace_dir)
    with ThreadPoolExecutor(args.jobs) as pool:

        def start(trace: list[str], changes: dict[str, str]):
            return pool.submit(simulate, args.tiermem, trace, changes)

        ablation = {
            trace: {name: start(words, changes) for name, changes in ABLATION.items()} for trace, words in known.items()
        }
        curve = {name: [start(known["phase change"], changes) for changes in all] for name, all in CURVES.items()}
        sizes = {
            trace: {
                size: {
                    name: start([known[trace][0], "--tier", size, "--tier", "140%"], changes)
                    for name, changes in (("default", {}), ("demotion only", {"--promotion": "none"}))
                }
                for size in ("5%", "10%", "20%", "30%", "50%")
            }
            for trace in ("Twitter 52", "phase change")
        }

        def gather(tree):
            if isinstance(tree, dict):
                return {name: gather(branch) for name, branch in tree.items()}
            return [gather(branch) for branch in tree] if isinstance(tree, list) else tree.result()

        data = {"ablation": gather(ablation), "curve": gather(curve), "sizes": gather(sizes)}
    (args.out / "tiered.json").write_text(json.dumps(data, indent=1) + "\n")
    (args.out / "tiered-ablation.svg").write_text(draw_ablation(data["ablation"]))
    (args.out / "tiered-promotions.svg").write_text(draw_curve(data["curve"]))
    for trace, runs in data["ablation"].items():
        print(f"{trace} (best placement {runs['default']['clairvoyant_fast_share']:.3f})")
        for name, run in runs.items():
            print(
                f"  {name:20} hits {1 - run['miss_ratio']:.4f}  fast {run['fast_hit_share']:.4f}"
                f"  moves {run['promotions']:8} up {run['demotions']:8} down  charged {run['charged_ns_per_request']:8.1f}"
                f"  cost {run['cost_ns_per_request']:8.1f}  {run['metadata_bytes_per_item']:.1f} B"
            )
    for trace, by_size in data["sizes"].items():
        for size, runs in by_size.items():
            shares = ", ".join(f"{name} {run['fast_hit_share']:.4f} / {run['cost_ns_per_request']:.1f}" for name, run in runs.items())
            print(f"{trace}, fast tier {size}: {shares}")


if __name__ == "__main__":
    main()
