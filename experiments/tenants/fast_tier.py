#!/usr/bin/env python3
"""What dividing the fast tier among tenants gains: the store's engine in process, over an emulated slow tier.

Wang 2024, sections 5.2.4.2 and 5.2.4.4: two tenants with Zipf 0.8 and 1.2 and half of the data in the fast tier; a scanner and
three tenants with Zipf 0.5, 0.99 and 1.2 and a tenth; two tenants that change their skew with each other at half of the requests
and a quarter. All-DRAM, free competition (tiermem as it is without tenants), equal parts, and parts by what each tenant gains
answer the same slices in turn; speed is against all-DRAM in the same slice. Keys and requests are a tenth of the originals', and
less with --quick. Memory: about 6 GB; time: about five minutes.

    experiments/tenants/fast_tier.py --tiermem target/release/tiermem --out docs/results

Writes data (JSON), a table (Markdown) and a plot (SVG) next to each other.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from drawing import keep, svg

NAMES = {"tiermem": "free", "equal-tenants": "equal", "divided-tenants": "divided"}


@dataclass(frozen=True)
class Case:
    """Tenants, the fast tier's share of their data, and how much slower than all-DRAM Wang's system is: divided, free, equal."""

    tenants: list[str]
    fast: float
    published_percent: tuple[float, float, float]

    def spec(self, requests: int) -> str:
        """What `tiermem store bench` runs: each tenant with as many requests as the others."""
        return f"mix:{'+'.join(self.tenants)},requests={requests}"


def cases(keys: int) -> dict[str, Case]:
    """The three of Wang 2024."""
    sized = f"objects={keys},size=300"
    return {
        "two tenants": Case([f"zipf(alpha={alpha},{sized})" for alpha in (0.8, 1.2)], 0.5, (4.2, 5.5, 8.0)),
        "four tenants, one scans": Case(
            [f"scan({sized})", *(f"zipf(alpha={alpha},{sized})" for alpha in (0.5, 0.99, 1.2))], 0.1, (2.3, 5.0, 3.6)
        ),
        "two tenants, skew changes sides": Case(
            [f"phase(alpha={first},alpha-then={then},{sized})" for first, then in ((0.8, 1.2), (1.2, 0.8))], 0.25, (4.3, 7.5, 9.8)
        ),
    }


def measure(args: argparse.Namespace, case: Case) -> dict[str, Any]:
    """A run of all systems."""
    words = [args.tiermem, "store", "bench", case.spec(args.requests), "--preload", "--warmup", "0.1", "--rounds", str(args.rounds)]
    words += ["--systems", ",".join(["all-dram", *NAMES]), "--fast-fraction", str(case.fast), "--curve", args.curve]
    words += ["--tenant-window", str(args.requests // 40), "--tenant-sample", str(args.sample), "--format", "json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return {"command": " ".join(["tiermem", *words[1:]]), **json.loads(done.stdout)}


def table(data: dict[str, Any]) -> str:
    """All cases as Markdown."""
    head = [
        "case",
        "fast tier's curve",
        "division",
        "slower than all-DRAM",
        "Wang 2024",
        "hits in the fast tier",
        "best that never moves",
    ]
    lines = [f"| {' | '.join([*head, 'promotions'])} |", "| --- " * (len(head) + 1) + "|"]
    for name, found in data.items():
        published = dict(zip(("divided", "free", "equal"), found["published_percent"], strict=True))
        for row in found["systems"]:
            if row["system"] in NAMES:
                division = NAMES[row["system"]]
                slower = f"{100 * (1 - row['relative_speed']):.1f}%"
                own = [slower, f"{published[division]}%", f"{row['fast_hit_share']:.4f}", f"{found['clairvoyant_fast_share']:.4f}"]
                lines.append(f"| {' | '.join([name, found['curve'], division, *own, str(row['promotions'])])} |")
    return "\n".join(lines) + "\n"


def draw(data: dict[str, Any]) -> str:
    """For each case and division a bar: how much slower than all-DRAM, with Wang's figure as a line."""
    left, row, width = 90, 22, 760
    bars = [(name, found, row) for name, found in data.items() for row in found["systems"] if row["system"] in NAMES]
    longest = max(1 - row["relative_low"] for _, _, row in bars)
    scale = (width - left - 230) / max(longest, 0.12)
    parts = ['<text class="t" x="10" y="22">Slower than all-DRAM (line: as published)</text>']
    y, last = 46, ""
    for name, found, run in bars:
        if name != last:
            y += 14
            parts.append(f'<text class="t" x="10" y="{y}">{name}, {found["curve"]}</text>')
            y, last = y + 8, name
        division = NAMES[run["system"]]
        published = dict(zip(("divided", "free", "equal"), found["published_percent"], strict=True))[division] / 100
        slower = max(0.0, 1 - run["relative_speed"])
        color = "#c0392b" if division == "divided" else "#999"
        parts.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{division}</text>')
        parts.append(f'<rect x="{left}" y="{y}" width="{slower * scale:.1f}" height="{row - 6}" fill="{color}"/>')
        at = left + published * scale
        parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y - 1}" y2="{y + row - 5}" stroke="#222"/>')
        label = f"{100 * slower:.1f}%, {run['fast_hit_share']:.3f} of look-ups hit the fast tier"
        parts.append(f'<text x="{left + max(slower, published) * scale + 8:.1f}" y="{y + 12}">{label}</text>')
        y += row
    return svg(width, y + 10, parts)


def main() -> None:
    """Runs the cases, keeping what was measured after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", default="target/release/tiermem")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--curve", default="a1000-cxl")
    parser.add_argument("--only", help="cases whose name contains this")
    parser.add_argument("--quick", action="store_true", help="20,000 keys a tenant, five slices: to see that it runs")
    args = parser.parse_args()
    keys = 20_000 if args.quick else 1_000_000
    args.requests = 20 * keys
    args.rounds = 5 if args.quick else 41
    args.sample = 0.1 if args.quick else 0.002
    stem = args.out / ("fast-tier-quick" if args.quick else "fast-tier")
    data: dict[str, Any] = {}
    if stem.with_suffix(".json").exists() and not args.quick:
        data = json.loads(stem.with_suffix(".json").read_text())
    for name, case in cases(keys).items():
        if args.only and args.only not in name:
            continue
        data[name] = {"published_percent": case.published_percent, **measure(args, case)}
        keep(stem, data, table(data), draw(data))
    print(table(data))


if __name__ == "__main__":
    main()
