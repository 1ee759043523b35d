"""What the rows say of each claim of published.toml: the paper's figure, ours, and whether the claim holds here."""

from __future__ import annotations

from typing import Any

# Their checks enter themselves.
import verdicts_applications  # noqa: F401
import verdicts_synthetic  # noqa: F401
from comparison import CHECKS, Line, Row

__all__ = ["CHECKS", "Line", "Row", "compared", "differs", "without_sentence"]

Compared = list[tuple[dict[str, Any], list[Line]]]


def compared(claims: list[dict[str, Any]], name: str, rows: list[Row]) -> Compared:
    """Each claim of a table of rows with its comparisons. One whose workloads were not recorded has none."""
    found = []
    for claim in claims:
        if claim["of"] == name:
            there = {row["workload"] for row in rows}
            wanted = set(claim.get("workloads", there))
            found.append((claim, CHECKS[claim["check"]](rows, claim) if wanted & there else []))
    return found


def differs(lines: list[Line]) -> bool:
    """Some line does not hold."""
    return any(line.holds is False for line in lines)


def without_sentence(found: Compared) -> tuple[list[str], list[str]]:
    """Claims that do not hold and say nothing of it; and those that say something and hold."""
    missing = [claim["id"] for claim, lines in found if differs(lines) and not claim.get("differs")]
    judged = [(claim, lines) for claim, lines in found if any(line.holds is not None for line in lines)]
    stale = [claim["id"] for claim, lines in judged if claim.get("differs") and not differs(lines)]
    return missing, stale
