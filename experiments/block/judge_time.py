"""Checks of what requests wait for."""

from __future__ import annotations

from typing import Any

from judge import (
    LITTLE_POINTS,
    OURS,
    ROLES,
    SEED,
    WORDS,
    Line,
    Row,
    best,
    check,
    fixed,
    in_words,
    known,
    little,
    lower,
    told,
    units_of,
)


def largest(units: dict[str, dict[str, Row]], contender: str, rival: str, metric: str) -> tuple[float, str] | None:
    """By how many percent a contender is below a rival where that is most, and where."""
    gains = [
        (lower(ours, theirs), unit)
        for unit, rows in units.items()
        if (ours := known(rows, contender, metric)) and (theirs := known(rows, rival, metric))
    ]
    return max(gains, default=None)


@check
def gains(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """How much less of `metric` there is than with a fixed size, where it is most: the seed's "up to".

    The claim has `against`, sizes, and `paper`, percents. `volumes`, on which the seed found it, are judged by themselves where
    they are there.
    """
    units = units_of(rows, claim, claim.get("shared", False))
    lines = []
    for at, (size, percent) in enumerate(zip(claim["against"], claim["paper"], strict=True)):
        own = claim.get("volumes", [])[at : at + 1]
        where = [({name: units[name] for name in own if name in units}, percent)] if any(name in units for name in own) else []
        for meant, of_seed in [*where, (units, percent)]:
            for contender, fill in ((SEED, "whole"), (OURS, "whole"), (OURS, "units")):
                found = largest(meant, contender, f"{size} {fill}", claim["metric"])
                if found is None:
                    continue
                words = f"{ROLES[contender]}, against {size} {fill}"
                here = f"{in_words(found[0])} ({found[1]})"
                # Sub-block validity is a rival that the seed does not have.
                holds = found[0] >= of_seed - LITTLE_POINTS if fill == "whole" else None
                lines.append(Line(words, f"{of_seed:g}% less" if fill == "whole" else "", here, holds))
    return lines


@check
def best_sizes(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Which fixed size, with whole fills, is best for what."""
    lines, names = [], set()
    for unit, of in units_of(rows, claim).items():
        said = []
        for metric in claim["metrics"]:
            if found := best(of, fixed("whole"), metric):
                names.add(found[0])
                said.append(f"{WORDS[metric]} {found[0].split()[0]}")
        lines.append(Line(unit, "", ", ".join(said)))
    if lines:
        lines.append(Line("one size is best for all", "no", "no" if len(names) > 1 else "yes", len(names) > 1))
    return lines


@check
def against_best(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """A contender beside the best of the fixed sizes, each time with the best for just that."""
    lines = []
    for unit, of in units_of(rows, claim).items():
        for metric in claim["metrics"]:
            ours, theirs = known(of, claim["contender"], metric), best(of, fixed(claim["fill"]), metric)
            if ours is None or theirs is None:
                continue
            ratio = ours / theirs[1]
            low, high = (of[claim["contender"]].get(f"{metric}_{end}", ours) for end in ("low", "high"))
            spread = f" ({low:.0f} to {high:.0f})" if high > low else ""
            here = f"{ours:.0f} us{spread}, {ratio:.3f} of {theirs[0]}'s {theirs[1]:.0f}"
            holds = ratio < 1 if claim.get("better") else ratio <= 1 + little(metric)
            lines.append(Line(f"{unit}, {WORDS[metric]}", claim["paper"], here, holds))
    return lines


@check
def against_one(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """A contender beside another one."""
    lines = []
    for unit, of in units_of(rows, claim).items():
        for metric in claim["metrics"]:
            ours, theirs = known(of, claim["contender"], metric), known(of, claim["rival"], metric)
            if ours and theirs:
                ratio = ours / theirs
                here = f"{ours:.0f} us, {ratio:.3f} of {theirs:.0f}"
                lines.append(Line(f"{unit}, {WORDS[metric]}", claim["paper"], here, ratio <= 1 + little(metric)))
    return lines


@check
def better_than_most(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """A contender beside each fixed size by itself: on how many of the workloads it is better."""
    lines = []
    for fill in ("whole", "units"):
        for rival in fixed(fill):
            won = of_all = 0
            said = []
            for metric in claim["metrics"]:
                pairs = [
                    (ours, theirs)
                    for of in units_of(rows, claim).values()
                    if (ours := known(of, claim["contender"], metric)) and (theirs := known(of, rival, metric))
                ]
                better = sum(ours < theirs for ours, theirs in pairs)
                said.append(f"{WORDS[metric]} {better} of {len(pairs)}")
                won, of_all = won + better, of_all + len(pairs)
            if of_all:
                lines.append(Line(f"against {rival}", "most", ", ".join(said), won > of_all / 2))
    return lines


@check
def processing(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """From receipt to dispatch, beside blocks of 32 KiB: the extreme of the workloads."""
    units = units_of(rows, claim)
    lines = []
    for contender, rival in ((SEED, "32K whole"), (OURS, "32K whole"), (OURS, "32K units")):
        found = []
        for unit, of in units.items():
            ours, theirs = known(of, contender, claim["metric"]), known(of, rival, claim["metric"])
            if ours and theirs:
                found.append((100 * (ours / theirs - 1), unit, ours - theirs))
        if found:
            percent, unit, more = min(found) if claim["paper"] < 0 else max(found)
            words = f"{ROLES[contender]}, against {rival}"
            here = f"{percent:+.0f}% ({unit}, {told(more, claim['metric'], '+')})"
            # More than the seed's extra is too much; less than its saving is too little. Either way below is better.
            lines.append(Line(words, f"{claim['paper']:+g}%", here, percent <= claim["paper"] + LITTLE_POINTS))
    return lines


@check
def at_most(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """A figure of a contender below a limit, on each workload."""
    lines = []
    for unit, of in units_of(rows, claim, claim.get("shared", False)).items():
        for contender in claim["contenders"]:
            if (value := known(of, contender, claim["metric"])) is not None:
                limit, here = (told(figure, claim["metric"]) for figure in (claim["paper"], value))
                lines.append(Line(f"{unit}, {contender}", f"at most {limit}", here, value <= claim["paper"]))
    return lines
