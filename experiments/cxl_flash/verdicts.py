"""What the rows say of each claim of published.toml: the paper's figure, ours, and whether the claim holds here."""

from __future__ import annotations

from typing import Any

# Their checks enter themselves.
import verdicts_applications  # noqa: F401
import verdicts_synthetic  # noqa: F401
from comparison import CHECKS, Line, Row

__all__ = ["CHECKS", "Line", "Row", "compared", "differs", "without_sentence"]

# Characters that are read at a glance; what is longer has a line for each recording.
LONG = 100
Compared = list[tuple[dict[str, Any], list[Line]]]


def compared(claims: list[dict[str, Any]], name: str, rows: list[Row], each_recording: bool = False) -> Compared:
    """Each claim of a table of rows with its comparisons. One whose workloads were not recorded has none."""
    found = []
    for claim in claims:
        if claim["of"] == name:
            there = {row["workload"] for row in rows}
            wanted = set(claim.get("workloads", there))
            of = one_by_one if each_recording else CHECKS[claim["check"]]
            found.append((claim, of(rows, claim) if wanted & there else []))
    return found


def one_by_one(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """What is found in each recording, a line for all of them. Virtual addresses are the same in all."""
    recordings = sorted({row["recording"] for row in rows})
    everybody = {row["workload"] for row in rows if row["recording"] == recordings[0]}
    # A label can have several lines, of which the paper says different things.
    by_label: dict[tuple[str, str], dict[int, Line]] = {}
    for recording in recordings:
        own = [row for row in rows if row["recording"] == recording and row["addresses"] == "physical"]
        there = {row["workload"] for row in own} & set(claim.get("workloads", [row["workload"] for row in own]))
        # A claim of all programs together cannot be judged by some of them.
        if "workloads" not in claim and there != everybody:
            continue
        virtual = [row for row in rows if row["addresses"] == "virtual" and row["workload"] in there]
        for line in CHECKS[claim["check"]](virtual + own, claim) if there else []:
            if by_label.setdefault((line.of, line.paper), {}).setdefault(recording, line) is not line:
                raise ValueError(f"{claim['id']} says two things of {line.of!r}")
    return [together(lines) if len(recordings) > 1 else next(iter(lines.values())) for lines in by_label.values()]


def together(lines: dict[int, Line]) -> Line:
    """One line of several recordings' ones. It holds if it does in each of which something can be said."""
    judged = tuple(line.holds for line in lines.values() if line.holds is not None)
    each = [f"{recording}: {line.ours}" for recording, line in lines.items()]
    ours = ("; " if sum(map(len, each)) <= LONG else "<br>").join(each)
    one = next(iter(lines.values()))
    return Line(one.of, one.paper, ours, all(judged) if judged else None, judged)


def differs(lines: list[Line]) -> bool:
    """Some line does not hold."""
    return any(line.holds is False for line in lines)


def without_sentence(found: Compared) -> tuple[list[str], list[str]]:
    """Claims that do not hold and say nothing of it; and those that say something and hold."""
    missing = [claim["id"] for claim, lines in found if differs(lines) and not claim.get("differs")]
    judged = [(claim, lines) for claim, lines in found if any(line.holds is not None for line in lines)]
    stale = [claim["id"] for claim, lines in judged if claim.get("differs") and not differs(lines)]
    return missing, stale
