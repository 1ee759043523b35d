"""Checks of what Yang 2023 finds with applications: section 5."""

from __future__ import annotations

import itertools
import statistics
from typing import Any

from comparison import (
    FAR_ABOVE,
    NEGLIGIBLE,
    NO_DIFFERENCE_POINTS,
    Line,
    Row,
    check,
    grouped,
    percents,
    rises,
    select,
    share,
    shortest,
    told,
    years,
)


@check
def best_share_range(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """The best prefetcher of each application. More than the paper's highest contradicts nothing, so the least is judged."""
    best = {name: max(map(share, of)) for name, of in grouped(rows, claim).items()}
    low, high = min(best.values()), max(best.values())
    paper = claim["paper"]
    says, ours = f"{paper['low']} to {paper['high']}%", f"{low:.1f} to {high:.1f}%"
    of_what = "least and most, each with its best prefetcher (judged: the least)"
    return [Line(of_what, says, ours, low >= paper["low"] - NO_DIFFERENCE_POINTS)]


@check
def lifetime_least(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """The shortest of all; not judged where nothing is written."""
    least = shortest(rows)
    says = f"{claim['paper']['years']} years"
    if least is None:
        return [Line("shortest of all", says, "nothing written")]
    row, of = least
    ours = f"{told(of)}, {row['workload']} with {row['prefetch']}"
    return [Line("shortest of all", says, ours, of >= claim["paper"]["years"])]


@check
def policies(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """The most lines in a set against one, and policies at the most."""
    notable = claim["paper"]["notable"]
    found = []
    for name, of in grouped(rows, claim).items():
        ways = sorted({row["cache_ways"] for row in of})
        lru = [share(select(of, policy="lru", cache_ways=number)[0]) for number in (ways[0], ways[-1])]
        says = f"better (by {NO_DIFFERENCE_POINTS:g} point or more)"
        found.append(Line(f"{name}: LRU, {ways[0]} and {ways[-1]} ways", says, percents(lru), rises(*lru)))
        most = {row["policy"]: row for row in select(of, cache_ways=ways[-1])}
        others = [row for policy, row in most.items() if policy != "cflru"]
        shares = ", ".join(f"{policy} {share(row):.1f}%" for policy, row in most.items())
        writes = ", ".join(f"{policy} {row['flash_writes'] / 1e3:.1f} k" for policy, row in most.items())
        ours, best = share(most["cflru"]), max(map(share, others))
        written, least = most["cflru"]["flash_writes"], min(row["flash_writes"] for row in others)
        at = f"{name}: CFLRU at {ways[-1]} ways"
        if name in notable:
            found.append(Line(at, f"best (by {NO_DIFFERENCE_POINTS:g} point or more)", shares, rises(best, ours)))
            says, fewer = f"writes least (by {NEGLIGIBLE:.0%} or more)", written <= (1 - NEGLIGIBLE) * least
        else:
            found.append(Line(at, f"not worse (by {NO_DIFFERENCE_POINTS:g} point)", shares, not rises(ours, best)))
            says, fewer = f"writes no more (by {NEGLIGIBLE:.0%})", written < (1 + NEGLIGIBLE) * least
        found.append(Line(at, says, writes, fewer if least else None))
    return found


@check
def share_bound(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """At least, or at most, in every row of the workload."""
    found = []
    for name, of in grouped(rows, claim).items():
        shares = [share(row) for row in of]
        for bound, value in claim["paper"].items():
            least = bound == "at_least"
            ours, holds = (min(shares), min(shares) >= value) if least else (max(shares), max(shares) <= value)
            label = f"{name}: {'lowest' if least else 'highest'} of {len(shares)}"
            found.append(Line(label, f"{'at least' if least else 'at most'} {value}%", f"{ours:.1f}%", holds))
    return found


@check
def least_writes(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Traces differ in length, so the rate is given as well."""
    found = []
    for name, of in grouped(rows, claim).items():
        if name in claim["paper"]:
            row = min(of, key=lambda row: row["flash_writes"])
            ours = f"{row['flash_writes'] / 1e6:.3f} M, {100 * row['flash_writes'] / row['requests']:.2f} for 100 requests"
            found.append(Line(f"{name}: fewest flash writes", f"{claim['paper'][name]} M", ours))
    return found


@check
def best_share(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Numbers beside each other."""
    return [
        Line(f"{name}: highest", f"{claim['paper'][name]}%", f"{max(map(share, of)):.1f}%")
        for name, of in grouped(rows, claim).items()
        if name in claim["paper"]
    ]


@check
def prefetchers_help(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """The median of the prefetchers against none."""
    found = []
    for name, of in grouped(rows, claim).items():
        none = share(select(of, prefetch="none")[0])
        others = {row["prefetch"]: share(row) - none for row in of if row["prefetch"] != "none"}
        median = statistics.median(others.values())
        help_ = name in claim["paper"]["helped"]
        says = f"{'help' if help_ else 'degrade'} (median, by {NO_DIFFERENCE_POINTS:g} point or more)"
        ours = ", ".join(f"{prefetcher} {points:+.1f}" for prefetcher, points in others.items())
        holds = median >= NO_DIFFERENCE_POINTS if help_ else median <= -NO_DIFFERENCE_POINTS
        found.append(Line(f"{name}: points against none", says, ours, holds))
    return found


@check
def best_offset_gain(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """As a ratio; judged in points."""
    found = []
    for name, of in grouped(rows, claim).items():
        none, best = (share(select(of, prefetch=prefetcher)[0]) for prefetcher in ("none", "best-offset"))
        ours = f"{100 * (best / none - 1):+.1f}% ({none:.1f}% to {best:.1f}%)" if none else f"{none:.1f}% to {best:.1f}%"
        says = f"+{claim['paper']['percent']}% (judged: {NO_DIFFERENCE_POINTS:g} point or more)"
        found.append(Line(f"{name}: best-offset against none", says, ours, rises(none, best)))
    return found


@check
def hits_under_miss_turned(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Of the hits under miss without a prefetcher. Counted are only the totals: those that are fewer, and whether hits are more."""
    found = []
    for name, of in grouped(rows, claim).items():
        none, best = (select(of, prefetch=prefetcher)[0] for prefetcher in ("none", "best-offset"))
        before, after = ([100 * row[field] / row["requests"] for field in ("hits_under_miss", "hits")] for row in (none, best))
        of_what, says = (
            f"{name}: hits under miss that are fewer with best-offset",
            f"{claim['paper']['percent']}%, turned into hits",
        )
        if not none["hits_under_miss"]:
            found.append(Line(of_what, says, "no hits under miss without a prefetcher"))
            continue
        ours = (
            f"{100 * (1 - after[0] / before[0]):.1f}% ({before[0]:.1f}% to {after[0]:.1f}% of requests); "
            f"hits {before[1]:.1f}% to {after[1]:.1f}%"
        )
        found.append(Line(of_what, says, ours, rises(after[0], before[0]) and rises(before[1], after[1])))
    return found


@check
def lifetimes(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Page rank's shortest with any prefetcher, the least of all; Radiosity's longest, the most of all."""
    lives = [(of, row["workload"]) for row in rows if (of := years(row)) is not None]
    found = []
    for name, extreme, label in (("pagerank", min, "shortest"), ("radiosity", max, "longest")):
        own = [of for of, workload in lives if workload == name]
        if name in grouped(rows, claim):
            says = f"{claim['paper'][name]} years, the {label} of all"
            ours = told(extreme(own)) if own else "nothing written"
            # With one application alone there is nothing to be the least of.
            alone = len({workload for _, workload in lives}) < 2
            holds = None if alone or not own else extreme(lives)[1] == name
            found.append(Line(f"{name}: {label}", says, ours, holds))
    return found


@check
def price_range(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Best-offset, flash at 0.30 and 0.05 dollars, DRAM at 5. The most depends on the price alone, so the least is judged."""
    shares = [share(row) / 100 for row in select(rows, prefetch="best-offset")]
    low, high = min(shares) * 5 / 0.30, max(shares) * 5 / 0.05
    paper = claim["paper"]
    of_what, says = "least and most (judged: the least)", f"{paper['low']} to {paper['high']} x"
    return [Line(of_what, says, f"{low:.1f} to {high:.1f} x", low >= paper["low"])]


def measured(row: Row, metric: str) -> float | None:
    """In percent; a prefetcher that fetched nothing has no accuracy."""
    return None if metric == "accuracy" and not row["prefetches"] else 100 * row[f"prefetch_{metric}"]


def of_metric(row: Row, metric: str) -> str:
    """In words."""
    value = measured(row, metric)
    return "nothing prefetched" if value is None else f"{value:.1f}%"


@check
def metric(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Of one prefetcher under several workloads."""
    paper = claim["paper"]
    return [
        Line(f"{name}: {paper['prefetch']}, {paper['metric']}", f"{paper[name]}%", of_metric(row, paper["metric"]))
        for name, of in grouped(rows, claim).items()
        for row in select(of, prefetch=paper["prefetch"])
        if name in paper
    ]


@check
def metrics_of_xz(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Two of one."""
    row = next(iter(select(rows, workload="xz", prefetch="best-offset")), None)
    return [Line(f"xz: best-offset, {name}", f"{value}%", of_metric(row, name)) for name, value in claim["paper"].items() if row]


def by_phase(rows: list[Row]) -> dict[str, list[Row]]:
    """Windows that lie in one phase as a whole. A phase that the trace does not get to has none."""
    windows = sorted((row for row in rows if row["window"] != "all"), key=lambda row: int(row["window"]))
    found: dict[str, list[Row]] = {"loading": [], "building": [], "computing": []}
    end = 0
    for row in windows:
        begin, end = end, end + row["requests"]
        loaded, built = (float("inf") if row[name] is None else row[name] for name in ("loading_ends", "building_ends"))
        if end <= loaded:
            found["loading"].append(row)
        elif loaded <= begin and end <= built:
            found["building"].append(row)
        elif built <= begin:
            found["computing"].append(row)
    return found


def mean_percent(rows: list[Row], field: str, weight: str) -> float | None:
    """Of windows of different weight; none if all have none."""
    whole = sum(row[weight] for row in rows)
    return 100 * sum((row[field] or 0) * row[weight] for row in rows) / whole if whole else None


@check
def phases(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """By the phases' ends, which phases.py finds in the trace."""
    parts = by_phase(rows)
    coverage = [mean_percent(part, "prefetch_coverage", "requests") for part in parts.values()]
    accuracy = [mean_percent(part, "prefetch_accuracy", "prefetches") for part in parts.values()]
    hits = [
        100 * sum(row["hits"] for row in part) / sum(row["requests"] for row in part) if part else None for part in parts.values()
    ]
    more = f"less while building (by {NO_DIFFERENCE_POINTS:g} point or more)"
    found = [
        Line(f"{label} while {', '.join(parts)}", more, and_nothing(values), and_falls(values[0], values[1]))
        for label, values in (("coverage", coverage), ("accuracy", accuracy))
    ]
    mostly = None if hits[2] is None else hits[2] > 50
    return [*found, Line(f"hits while {', '.join(parts)}", "most while computing (over 50%)", and_nothing(hits), mostly)]


def and_nothing(values: list[float | None]) -> str:
    """Percents, and a dash where there is nothing to measure."""
    return ", ".join("–" if value is None else f"{value:.1f}%" for value in values)


def and_falls(before: float | None, after: float | None) -> bool | None:
    """None where there is nothing to measure."""
    return None if before is None or after is None else rises(after, before)


@check
def virtual_metric(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """By both addresses; not judged where nothing was prefetched by one of them."""
    found = []
    paper = claim["paper"]
    for name, of in grouped(rows, claim).items():
        virtual, physical = (select(of, addresses=kind)[0] for kind in ("virtual", "physical"))
        ours = f"{of_metric(virtual, paper['metric'])}, {of_metric(physical, paper['metric'])}"
        of_what = f"{name}: {paper['metric']}, virtual and physical"
        falls = and_falls(measured(virtual, paper["metric"]), measured(physical, paper["metric"]))
        says = f"{paper['virtual']}%, {paper['physical']}% (judged: falls by {NO_DIFFERENCE_POINTS:g} point or more)"
        found.append(Line(of_what, says, ours, falls if virtual["prefetches"] and physical["prefetches"] else None))
    return found


def hinted(rows: list[Row], vary: str, fixed: str, value: float) -> dict[float, float]:
    """Shares by what varies, from no hints on. The sweeps share a point, which is there once."""
    of = [row for row in rows if row["hint_percent"] and row[fixed] == value]
    without = share(next(row for row in rows if not row["hint_percent"]))
    return {0.0: without, **{row[vary]: share(row) for row in sorted(of, key=lambda row: row[vary])}}


@check
def hints_for_more(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """More frames, the same chance."""
    shares = list(hinted(rows, "hint_percent", "hint_probability", 0.1).values())
    falls = any(rises(after, before) for before, after in itertools.pairwise(shares))
    grows = rises(shares[0], shares[-1]) and not falls
    paper = claim["paper"]
    says = f"{paper['before']}% to {paper['after']}%, growing (by {NO_DIFFERENCE_POINTS:g} point or more, no step falling by that)"
    return [Line("none, then for more and more frames", says, percents(shares), grows)]


@check
def hints_level_off(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Gains for a percent more of chance: those of the last step against those of the first."""
    shares = hinted(rows, "hint_probability", "hint_percent", 10)
    chances, values = list(shares), list(shares.values())
    steps = [(values[at + 1] - values[at]) / (chances[at + 1] - chances[at]) for at in range(len(values) - 1)]
    holds = len(steps) > 1 and rises(values[0], values[-1]) and abs(steps[-1]) <= abs(steps[0]) / FAR_ABOVE
    says = f"at {claim['paper']['plateau']}% (last step at most half as steep as the first)"
    return [Line("improves, then levels off", says, percents(values), holds)]
