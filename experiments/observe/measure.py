"""Numbers out of recordings and plans, through the program's own commands."""

from __future__ import annotations

import csv
import json
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recordings import Tools

Row = dict[str, Any]


def regions(tools: Tools, recording: str, *words: str) -> list[Row]:
    """The table of regions, the most accessed first."""
    found: list[Row] = json.loads(tools.call("heatmap", str(tools.folder / f"{recording}.rec"), "--format", "json", *words))
    return found


def main_region(tools: Tools, recording: str) -> Row:
    """The region that was accessed most."""
    return regions(tools, recording)[0]


def region_named(tools: Tools, recording: str, name: str, *words: str) -> Row:
    """One region."""
    return regions(tools, recording, "--region", name, *words)[0]


def counts(tools: Tools, recording: str, region: str, *words: str) -> list[Row]:
    """Granules by slice, with numbers as numbers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counts.csv"
        tools.call("heatmap", str(tools.folder / f"{recording}.rec"), "--region", region, "-o", str(path), *words)
        with path.open(newline="") as file:
            rows: list[Row] = list(csv.DictReader(file))
    for row in rows:
        row |= {key: int(row[key]) for key in ("granule", "slice")} | {"accesses": float(row["accesses"])}
    return rows


def totals(rows: Sequence[Row]) -> dict[int, float]:
    """Accesses of each granule over all slices."""
    by_granule: dict[int, float] = defaultdict(float)
    for row in rows:
        by_granule[row["granule"]] += row["accesses"]
    return dict(by_granule)


def touched_by_slice(rows: Sequence[Row], granules: int) -> list[float]:
    """The share of granules that were accessed in each slice in which some were."""
    by_slice: dict[int, int] = defaultdict(int)
    for row in rows:
        by_slice[row["slice"]] += row["accesses"] > 0
    return [count / granules for _, count in sorted(by_slice.items()) if count]


def autocorrelation(values: Sequence[float], lag: int) -> float:
    """As the work has it: around the mean, by the variance of all."""
    mean = statistics.fmean(values)
    all_of = sum((value - mean) ** 2 for value in values)
    return sum((a - mean) * (b - mean) for a, b in zip(values, values[lag:], strict=False)) / all_of if all_of else 0.0


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Spearman's, equal values sharing the middle of their ranks."""
    ranked = [ranks([pair[side] for pair in pairs]) for side in (0, 1)]
    return statistics.correlation(*ranked)


def ranks(values: Sequence[float]) -> list[float]:
    """Of each value."""
    order = sorted(range(len(values)), key=lambda at: values[at])
    found = [0.0] * len(values)
    at = 0
    while at < len(order):
        last = at
        while last + 1 < len(order) and values[order[last + 1]] == values[order[at]]:
            last += 1
        for equal in order[at : last + 1]:
            found[equal] = (at + last) / 2
        at = last + 1
    return found


def placements(tools: Tools, recording: str, share: float) -> Row:
    """A plan for a share of what was touched in fast memory, replayed over the recording, beside other placements."""
    touched = sum(row["touched_bytes"] for row in regions(tools, recording))
    fast = max(int(touched * share) >> 12, 1) << 12
    path = tools.folder / f"{recording}.rec"
    plan = tools.folder / f"{recording}.plan.json"
    tools.call("plan", str(path), "--fast", f"{fast}B", "-o", str(plan))
    rows = json.loads(tools.call("sim", "place", str(path), "--plan", str(plan), "--format", "json"))
    made = json.loads(plan.read_text())
    return {
        "recording": recording, "fast_bytes": fast, "touched_bytes": touched,
        **{row["placement"]: row["slow_share"] for row in rows},
        "of_clairvoyant": next(row["of_clairvoyant"] for row in rows if row["placement"] == "plan"),
        "sweeps": made["sweeps"], "phases": len(made["phases"]), "always_bytes": sum(it["bytes"] for it in made["always"]),
    }  # fmt: skip


def sweep(tools: Tools, recording: str) -> Row | None:
    """The hotspot that a plan has found to move, if there is one."""
    made = json.loads((tools.folder / f"{recording}.plan.json").read_text())
    sweeps: list[Row] = made["sweeps"]
    return max(sweeps, key=lambda it: it["span"]["bytes"]) if sweeps else None
