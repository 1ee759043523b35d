"""What all comparisons with Yang 2023 share: a line of a table, the margins by which shapes are judged, and how rows are chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
GIB = 1 << 30
# A share that differs by fewer points than this does not differ: "does not care", "level off".
NO_DIFFERENCE_POINTS = 1.0
# One that loses so many points has lost by what was changed: "matters".
MATTERS_POINTS = 5.0
# Of latencies, writes and distances: by less than this part the one is the other ("negligible").
NEGLIGIBLE = 0.1
# "Far above", "much larger": so many times as much.
FAR_ABOVE = 2.0
# The paper's year, by the README of its simulator (spypaul/MQSim_CXL at commit 357ed7b). Radiosity's numbers agree: 61 M requests,
# one in 1863 ns, and 1.0 M lines written to a TiB that bears 100,000 erases are 407 such years, of which the paper has 403. Our
# simulator's years have 365 days.
PAPER_YEAR_HOURS = 2080
YEAR_HOURS = 365 * 24


@dataclass(frozen=True)
class Line:
    """One comparison: of what, the paper, what is found here, and whether the claim holds (None: numbers beside each other).

    Where recordings are compared one by one, `holds` is of all of them, and `judged` has what is said of each.
    """

    of: str
    paper: str
    ours: str
    holds: bool | None = None
    judged: tuple[bool, ...] = ()

    def judgements(self) -> tuple[bool, ...]:
        """As many as there are to be counted."""
        return self.judged or (() if self.holds is None else (self.holds,))


Check = Callable[[list[Row], dict[str, Any]], list[Line]]
CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    """Enters it under its name."""
    CHECKS[function.__name__] = function
    return function


def select(rows: list[Row], **wanted: Any) -> list[Row]:
    """Rows whose fields are so."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def grouped(rows: list[Row], claim: dict[str, Any]) -> dict[str, list[Row]]:
    """Rows by workload: those that the claim names, or all."""
    names = [name for name in dict.fromkeys(row["workload"] for row in rows) if name in claim.get("workloads", [name])]
    return {name: select(rows, workload=name) for name in names}


def share(row: Row) -> float:
    """Below a microsecond, in percent."""
    return float(row["sub_us_percent"])


def percents(values: list[float]) -> str:
    """All of them."""
    return " ".join(f"{value:.1f}" for value in values) + "%"


def rises(before: float, after: float) -> bool:
    """By a difference that is one, in points."""
    return after - before >= NO_DIFFERENCE_POINTS


def years(row: Row) -> float | None:
    """The lifetime in the paper's years, reckoned as it does: without what cleaning moves. None where nothing is written."""
    value = row["lifetime_years_unamplified"]
    return None if value is None or value == float("inf") else float(value) * YEAR_HOURS / PAPER_YEAR_HOURS


def told(of: float) -> str:
    """A lifetime in both years."""
    return f"{of:.3g} years of {PAPER_YEAR_HOURS} hours ({of * PAPER_YEAR_HOURS / YEAR_HOURS:.3g} of 365 days)"


def shortest(rows: list[Row]) -> tuple[Row, float] | None:
    """The row that wears out first, and its years; none if none writes."""
    lives = [(row, of) for row in rows if (of := years(row)) is not None]
    return min(lives, key=lambda life: life[1], default=None)
