"""What the rows say of each claim of published.toml: the paper's figure, ours, and whether the claim holds here."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
GIB = 1 << 30
# A difference of fewer points than this is none: "does not care", "level off".
NO_DIFFERENCE_POINTS = 1.0


@dataclass(frozen=True)
class Line:
    """One comparison: of what, the paper, what is found here, and whether the claim holds (None: numbers beside each other)."""

    of: str
    paper: str
    ours: str
    holds: bool | None = None


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


def next_n(rows: list[Row], degree: int, offset: int) -> Row | None:
    """The row of next-N with these parameters."""
    return next(iter(select(rows, prefetch="next-n", degree=degree, offset=offset)), None)


@check
def best_share_range(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """The best prefetcher of each application."""
    best = {name: max(share(row) for row in of) for name, of in grouped(rows, claim).items()}
    low, high = min(best.values()), max(best.values())
    paper = claim["paper"]
    holds = low >= paper["low"] - NO_DIFFERENCE_POINTS
    return [
        Line(
            "least and most, each with its best prefetcher",
            f"{paper['low']} to {paper['high']}%",
            f"{low:.1f} to {high:.1f}%",
            holds,
        )
    ]


def years(row: Row) -> float:
    """As the paper reckons, without what cleaning moves; endless where nothing is written."""
    value = row["lifetime_years_unamplified"]
    return float("inf") if value is None else float(value)


@check
def lifetime_least(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """The shortest of all."""
    least = min(rows, key=years)
    of = f"shortest: {least['workload']}, {least['prefetch']}"
    return [Line(of, f"{claim['paper']['years']} years", f"{years(least):.2f} years", years(least) >= claim["paper"]["years"])]


@check
def trace_statistics(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Numbers beside each other; traces are of other programs on other machines."""
    found = []
    for name, of in grouped(rows, claim).items():
        row = of[0]
        for field, label, form in (
            ("interarrival_ns", "between accesses", "{:.0f} ns"),
            ("reads_percent", "reads", "{:.0f}%"),
            ("footprint_gib", "footprint", "{:.3g} GiB"),
            ("accesses_millions", "accesses", "{:.3g} M"),
            ("spatial", "spatial locality", "{:.2f}"),
            ("temporal", "temporal locality", "{:.2f}"),
        ):
            paper = row[f"paper_{field}"]
            if row[field] is not None and paper is not None:
                found.append(Line(f"{name}: {label}", form.format(paper), form.format(row[field])))
    return found


@check
def distances_grow(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Means of the distance between consecutive accesses, in pages."""
    return [
        Line(
            f"{name}: mean distance, pages", "", f"{of[0]['virtual_pages']:.0f} virtual, {of[0]['physical_pages']:.0f} physical",
            of[0]["physical_pages"] > of[0]["virtual_pages"],
        )
        for name, of in grouped(rows, claim).items()
        if of[0]["physical_pages"] is not None
    ]  # fmt: skip


def virtual_and_physical(of: list[Row]) -> tuple[float, list[float]]:
    """The share by virtual address, and by the frames of each recording."""
    physical = sorted(select(of, addresses="physical"), key=lambda row: row["recording"])
    return share(select(of, addresses="virtual")[0]), [share(row) for row in physical]


@check
def virtual_is_optimistic(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Table 3."""
    found = []
    for name, of in grouped(rows, claim).items():
        virtual, physical = virtual_and_physical(of)
        paper = claim["paper"]
        published = f"{paper['virtual']}% / {percents(paper['physical'])}"
        found.append(
            Line(f"{name}: virtual / physical", published, f"{virtual:.1f}% / {percents(physical)}", virtual >= max(physical))
        )
    return found


@check
def virtual_error(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """How far virtual addresses are off."""
    found = []
    for name, of in grouped(rows, claim).items():
        virtual, physical = virtual_and_physical(of)
        least = min(virtual - value for value in physical)
        points = claim["paper"]["points"]
        found.append(
            Line(f"{name}: least error of {len(physical)}", f"over {points} points", f"{least:.1f} points", least > points)
        )
    return found


@check
def no_cache_queues(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Against the 200 us that SLC takes to program."""
    return [
        Line(
            f"{name}: mean without a cache",
            "far above 25 and 200 us",
            f"{row['mean_latency_ns'] / 1000:,.0f} us",
            row["mean_latency_ns"] > 2e5,
        )
        for name, of in grouped(rows, claim).items()
        for row in select(of, cache_bytes=0)
    ]


@check
def largest_cache_above_dram(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Twice DRAM counts as far above."""
    dram = claim["paper"]["dram_ns"]
    found = []
    for name, of in grouped(rows, claim).items():
        row = max(of, key=lambda row: row["cache_bytes"])
        mean = row["mean_latency_ns"]
        found.append(Line(f"{name}: mean, largest cache", f"far above {dram} ns", f"{mean:,.0f} ns", mean > 2 * dram))
    return found


@check
def repeated_share(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Of the reads without registers of misses."""
    least = claim["paper"]["percent"]
    found = []
    for name, of in grouped(rows, claim).items():
        row = select(of, mshr="off")[0]
        percent = 100 * row["repeated_reads"] / max(row["flash_reads"], 1)
        found.append(Line(f"{name}: repeated reads", f"over {least}%", f"{percent:.1f}%", percent > least))
    return found


@check
def tails(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """The 99.9th percentile: half or less is much; more than half is a little."""
    found = []
    for name, of in grouped(rows, claim).items():
        without, given = (select(of, mshr=state)[0]["p999_ns"] for state in ("off", "on"))
        little = name in ("random", "stride")
        holds = without / 2 < given <= without * 1.01 if little else given <= without / 2
        says = "small improvement" if little else "significantly shorter"
        found.append(Line(f"{name}: p99.9 without and with", says, f"{without / 1000:.0f} us, {given / 1000:.0f} us", holds))
    return found


@check
def degree_one(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Against no prefetching."""
    found = []
    for name, of in grouped(rows, claim).items():
        before, after = select(of, prefetch="none"), select(of, prefetch="next-n", degree=1)
        paper = claim["paper"]
        ours = f"{share(before[0]):.1f}% to {share(after[0]):.1f}%"
        found.append(
            Line(f"{name}: none, degree 1", f"{paper['before']}% to {paper['after']}%", ours, share(after[0]) > share(before[0]))
        )
    return found


@check
def offset_up_then_down(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Offsets 4, 16, 64, all of the same degree."""
    found = []
    for name, of in grouped(rows, claim).items():
        shares = [share(row) for offset in (4, 16, 64) if (row := next_n(of, 4, offset))]
        if len(shares) == 3:
            ours = percents(shares)
            found.append(Line(f"{name}: improves from offset 4 to 16", "yes", ours, shares[1] > shares[0]))
            found.append(Line(f"{name}: deteriorates from 16 to 64", "yes", ours, shares[2] < shares[1]))
    return found


@check
def offset_random_stride(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Offsets 4, 16, 64, 256."""
    found = []
    for name, of in grouped(rows, claim).items():
        shares = [share(row) for offset in (4, 16, 64, 256) if (row := next_n(of, 4, offset))]
        if len(shares) < 4:
            continue
        if name == "random":
            same = max(shares[:2]) - min(shares[:2]) < NO_DIFFERENCE_POINTS
            found.append(Line("random: the same at offsets 4 and 16", "yes", percents(shares[:2]), same))
        else:
            found.append(
                Line("stride: improves with each offset to 64", "yes", percents(shares[:3]), shares[:3] == sorted(shares[:3]))
            )
    return found


@check
def ull_against_slc(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Less than a tenth is negligible, less than half by far."""
    found = []
    for size in sorted({row["cache_bytes"] for row in rows}):
        ull, slc = (select(rows, technology=name, cache_bytes=size)[0]["mean_latency_ns"] for name in ("ull", "slc"))
        ours = f"{ull:.0f} ns, {slc:.0f} ns"
        if size:
            found.append(Line(f"ULL, SLC with {size >> 20} MiB: no difference", "yes", ours, abs(slc - ull) <= 0.1 * slc))
        else:
            found.append(Line("ULL, SLC without a cache: ULL by far faster", "yes", ours, ull < slc / 2))
    return found


@check
def lifetime_of_technologies(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """With any cache, or with one of a size."""
    paper = claim["paper"]
    found = []
    for technology in paper["technologies"]:
        of = [row for row in select(rows, technology=technology) if row["cache_bytes"] > 0]
        if "cache_gib" in paper:
            least = years(next(row for row in of if row["cache_bytes"] * row["cache_scale"] == paper["cache_gib"] * GIB))
            says, holds = f"at most {paper['at_most_years']} year", least <= paper["at_most_years"]
            name = f"{technology.upper()} with {paper['cache_gib']} GiB"
        else:
            least = min(map(years, of))
            says, holds = f"more than {paper['more_than_years']} years", least > paper["more_than_years"]
            name = f"{technology.upper()}, least with a cache"
        found.append(Line(name, says, f"{least:.3g} years", holds))
    return found


@check
def parallelism(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """The least parallel device against the most, with the largest and the smallest cache."""
    found = []
    for name, of in grouped(rows, claim).items():
        sizes = sorted({row["cache_bytes"] for row in of})
        for size, matters in ((sizes[-1], False), (sizes[0], True)):
            of_size = select(of, cache_bytes=size)
            few, many = (share(select(of_size, channels=a, flash_ways=b)[0]) for a, b in ((8, 4), (32, 32)))
            differs = many - few >= 5 * NO_DIFFERENCE_POINTS
            says = "8x4 is worse" if matters else "8x4 is not worse"
            found.append(Line(f"{name}, {size >> 20} MiB: 8x4, 32x32", says, percents([few, many]), differs == matters))
    return found


@check
def policies(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """The most lines in a set against one, and policies at the most."""
    found = []
    for name, of in grouped(rows, claim).items():
        ways = sorted({row["cache_ways"] for row in of})
        lru = [share(select(of, policy="lru", cache_ways=number)[0]) for number in (ways[0], ways[-1])]
        found.append(Line(f"{name}: LRU, {ways[0]} and {ways[-1]} ways", "better", percents(lru), lru[1] > lru[0]))
        most = {row["policy"]: row for row in select(of, cache_ways=ways[-1])}
        ours = ", ".join(f"{policy} {share(row):.1f}%" for policy, row in most.items())
        best = share(most["cflru"]) >= max(map(share, most.values()))
        found.append(Line(f"{name}: CFLRU is best at {ways[-1]} ways", "yes", ours, best))
        writes = ", ".join(f"{policy} {row['flash_writes'] / 1e3:.1f} k" for policy, row in most.items())
        least = most["cflru"]["flash_writes"] <= min(row["flash_writes"] for row in most.values())
        found.append(Line(f"{name}: CFLRU writes least at {ways[-1]} ways", "yes", writes, least))
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
        helped = statistics.median(others.values()) > 0
        expected = name in claim["paper"]["helped"]
        ours = ", ".join(f"{prefetcher} {points:+.1f}" for prefetcher, points in others.items())
        found.append(Line(f"{name}: points against none", "help" if expected else "degrade", ours, helped == expected))
    return found


@check
def best_offset_gain(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """As a ratio."""
    found = []
    for name, of in grouped(rows, claim).items():
        none, best = (share(select(of, prefetch=prefetcher)[0]) for prefetcher in ("none", "best-offset"))
        ours = f"{100 * (best / none - 1):+.1f}% ({none:.1f}% to {best:.1f}%)" if none else f"{none:.1f}% to {best:.1f}%"
        found.append(Line(f"{name}: best-offset against none", f"+{claim['paper']['percent']}%", ours, best > none))
    return found


@check
def hits_under_miss_turned(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """In points of all requests."""
    found = []
    for name, of in grouped(rows, claim).items():
        none, best = (select(of, prefetch=prefetcher)[0] for prefetcher in ("none", "best-offset"))
        points = 100 * (none["hits_under_miss"] - best["hits_under_miss"]) / none["requests"]
        found.append(
            Line(f"{name}: fewer hits under miss", f"{claim['paper']['percent']}% of requests", f"{points:.1f}%", points > 0)
        )
    return found


@check
def lifetimes(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Without prefetching, and who is worst and best."""
    least = {name: min(map(years, of)) for name, of in grouped(rows, claim).items()}
    order = sorted(least, key=lambda name: least[name])
    ours = ", ".join(f"{name} {least[name]:.3g}" for name in order)
    says = ", ".join(f"{name} {value}" for name, value in claim["paper"].items())
    return [Line("shortest years of each, in order", says, ours, order[0] == "pagerank" and order[-1] == "radiosity")]


@check
def price_range(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Best-offset, flash at 0.30 and 0.05 dollars, DRAM at 5."""
    shares = [share(row) / 100 for row in select(rows, prefetch="best-offset")]
    low, high = min(shares) * 5 / 0.30, max(shares) * 5 / 0.05
    paper = claim["paper"]
    return [Line("least and most", f"{paper['low']} to {paper['high']} x", f"{low:.1f} to {high:.1f} x", low > 1)]


def of_metric(row: Row, metric: str) -> str:
    """In percent; a prefetcher that fetched nothing has no accuracy."""
    return "nothing prefetched" if metric == "accuracy" and not row["prefetches"] else f"{100 * row[f'prefetch_{metric}']:.1f}%"


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


@check
def phases(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """By thirds of the windows, the phases' ends not being in the trace."""
    windows = sorted((row for row in rows if row["window"] != "all"), key=lambda row: int(row["window"]))
    third = max(len(windows) // 3, 1)
    parts = [windows[:third], windows[third : 2 * third], windows[2 * third :]]
    coverage = [100 * statistics.fmean(row["prefetch_coverage"] for row in part) for part in parts if part]
    hits = [100 * statistics.fmean(row["hits"] / row["requests"] for row in part) for part in parts if part]
    return [
        Line("coverage in the first, second, last third", "high, then low", percents(coverage), coverage[0] > coverage[1]),
        Line("hits in the first, second, last third", "most in the last", percents(hits), hits[-1] > 50),
    ]


@check
def virtual_metric(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """By both addresses."""
    found = []
    paper = claim["paper"]
    for name, of in grouped(rows, claim).items():
        virtual, physical = (select(of, addresses=kind)[0] for kind in ("virtual", "physical"))
        field = f"prefetch_{paper['metric']}"
        ours = f"{of_metric(virtual, paper['metric'])}, {of_metric(physical, paper['metric'])}"
        of_what = f"{name}: {paper['metric']}, virtual and physical"
        found.append(Line(of_what, f"{paper['virtual']}%, {paper['physical']}%", ours, virtual[field] > physical[field]))
    return found


def without_hints(rows: list[Row]) -> float:
    """To compare with."""
    return share(next(row for row in rows if not row["hint_percent"]))


@check
def hints_for_more(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """More frames, the same chance."""
    of = sorted(
        (row for row in rows if row["hint_percent"] and row["hint_probability"] == 0.1), key=lambda row: row["hint_percent"]
    )
    before, most = without_hints(rows), max(map(share, of))
    paper = claim["paper"]
    return [Line("none, best", f"{paper['before']}%, {paper['after']}%", f"{before:.1f}%, {most:.1f}%", most > before)]


@check
def hints_level_off(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """The last step gains less than the first."""
    of = sorted((row for row in rows if row["hint_percent"] == 10), key=lambda row: row["hint_probability"])
    shares = [without_hints(rows), *map(share, of)]
    holds = shares[-1] > shares[0] and abs(shares[-1] - shares[-2]) < NO_DIFFERENCE_POINTS
    return [Line("improves, then levels off", f"at {claim['paper']['plateau']}%", percents(shares), holds)]
