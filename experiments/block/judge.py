"""What all comparisons with Yang 2024 share: rows brought together, the margins by which is judged, a line of a table."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
# A measured figure that differs by less than this part does not differ; nor does one that is reckoned by less than that.
LITTLE = 0.03
LITTLE_RECKONED = 0.01
# A gain that falls short of the published one by less than this, in points, reaches it.
LITTLE_POINTS = 1.0
# "Similar", "within a tenth".
SIMILAR = 0.1
SEED, SEED_UNITS, OURS = "seed", "seed units", "ours"
ROLES = {SEED: "the seed's rule, whole fills", SEED_UNITS: "the seed's rule, sub-block", OURS: "ours"}
SIZES = ["32K", "64K", "128K", "256K"]
WORDS = {
    **{"read_mean_us": "reads", "write_mean_us": "writes", "all_mean_us": "all requests"},
    **{"read_latency_us": "reads", "write_latency_us": "writes", "all_latency_us": "all requests"},
}


@dataclass(frozen=True)
class Line:
    """One comparison: of what, the seed, what is found here, and whether it holds (None: numbers beside each other)."""

    of: str
    seed: str
    ours: str
    holds: bool | None = None


Check = Callable[[list[Row], dict[str, Any]], list[Line]]
CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    """Enters it under its name."""
    CHECKS[function.__name__] = function
    return function


def together(row: Row) -> Row:
    """A row and, beside its reads' and its writes' latency, that of all its requests."""
    name = "mean_us" if "read_mean_us" in row else "latency_us"
    requests = row.get("reads", 0) + row.get("writes", 0)
    if requests == 0 or f"read_{name}" not in row:
        return row
    waited = sum((row[f"{op}_{name}"] or 0) * row[f"{op}s"] for op in ("read", "write"))
    return {**row, f"all_{name}": waited / requests}


def summary(rows: list[Row]) -> list[Row]:
    """One row of several rounds: medians, and beside each latency its lowest and highest round.

    Volumes that have rows of their own stand for their workload.
    """
    apart = {row["workload"] for row in rows if row["volume"] != "all"}
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in map(together, rows):
        groups.setdefault((row["workload"], row["volume"], row["contender"]), []).append(row)
    found = []
    for (workload, volume, contender), group in groups.items():
        one = {"workload": workload, "family": group[0]["family"], "contender": contender, "volume": volume, "rounds": len(group)}
        one["unit"] = workload if volume == "all" else volume
        # What is told of the cache alone is the same in all rows of a round.
        one["counts"] = volume != "all" or workload not in apart
        for name in group[0]:
            values = [row[name] for row in group]
            if name != "round" and all(isinstance(value, int | float) for value in values):
                one[name] = statistics.median(values)
                if name.endswith(("_us", "_ns")):
                    one |= {f"{name}_low": min(values), f"{name}_high": max(values)}
        one["core_bytes"] = one["core_read_bytes"] + one["core_written_bytes"]
        one["cache_bytes"] = one["cache_read_bytes"] + one["cache_written_bytes"]
        found.append(one)
    return found


def units_of(rows: list[Row], claim: dict[str, Any], shared: bool = False) -> dict[str, dict[str, Row]]:
    """The rows by what they are of, workload or volume, and by contender: of the families that the claim names.

    Args:
        rows: From `summary`.
        claim: With `families` where not all are meant.
        shared: Whether it is of the whole cache, so that volumes that share it are not told apart.
    """
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        meant = row["volume"] == "all" if shared else row["counts"]
        if meant and row["family"] in claim.get("families", [row["family"]]):
            found.setdefault(row["workload"] if shared else row["unit"], {})[row["contender"]] = row
    return found


def fixed(fill: str) -> list[str]:
    """The contenders of one size."""
    return [f"{size} {fill}" for size in SIZES]


def known(rows: dict[str, Row], contender: str, metric: str) -> float | None:
    """A figure, unless the contender was not measured or had nothing to measure."""
    value = rows.get(contender, {}).get(metric)
    return None if value is None or value == 0 else float(value)


def best(rows: dict[str, Row], contenders: list[str], metric: str) -> tuple[str, float] | None:
    """Who has the least of something, and how much."""
    values = [(value, name) for name in contenders if (value := known(rows, name, metric)) is not None]
    return (lambda it: (it[1], it[0]))(min(values)) if values else None


def lower(ours: float, theirs: float) -> float:
    """By how many percent less."""
    return 100 * (1 - ours / theirs)


def little(metric: str) -> float:
    """By which part this figure may differ and be the same."""
    return LITTLE_RECKONED if metric.endswith("_latency_us") else LITTLE


def in_words(percent: float, digits: int = 1) -> str:
    """So many percent less, or more."""
    return f"{abs(percent):.{digits}f}% {'less' if percent >= 0 else 'more'}"


def told(value: float, metric: str, sign: str = "") -> str:
    """A time in microseconds, or a number of instructions."""
    return f"{value / 1000:{sign}.1f} us" if metric.endswith("_ns") else f"{value:{sign},.0f} instructions"


def differs(lines: list[Line]) -> bool:
    """Some line does not hold."""
    return any(line.holds is False for line in lines)


def without_sentence(found: list[tuple[dict[str, Any], list[Line]]]) -> tuple[list[str], list[str]]:
    """Claims that do not hold and say nothing of it; and those that say something and hold."""
    missing = [claim["id"] for claim, lines in found if differs(lines) and not claim.get("differs")]
    judged = [(claim, lines) for claim, lines in found if any(line.holds is not None for line in lines)]
    stale = [claim["id"] for claim, lines in judged if claim.get("differs") and not differs(lines)]
    return missing, stale
