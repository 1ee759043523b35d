"""Checks of what Yang 2023 finds with synthetic programs: sections 3 and 4."""

from __future__ import annotations

import itertools
import statistics
from typing import Any

from comparison import (
    FAR_ABOVE,
    GIB,
    MATTERS_POINTS,
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
)


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
    """By deciles of the distance from one access to the next, in pages: of virtual addresses, and of each recording's frames."""
    found = []
    for name, of in grouped(rows, claim).items():
        virtual, recordings = of[0]["virtual_distances"], of[0]["physical_distances"]
        middle = len(virtual) // 2
        before, after = virtual[middle], [deciles[middle] for deciles in recordings]
        ours = f"{before:,} virtual, {', '.join(f'{value:,}' for value in after)} physical"
        larger = min(after) >= FAR_ABOVE * max(before, 1)
        found.append(Line(f"{name}: median distance, pages", f"much larger ({FAR_ABOVE:g} x or more)", ours, larger))
        # The same page is the same frame in every recording.
        pairs = [
            (here, there)
            for a, b in itertools.combinations(recordings, 2)
            for here, there in zip(a, b, strict=True)
            if here or there
        ]
        if pairs:
            equal = sum(abs(here - there) < NEGLIGIBLE * max(here, there) for here, there in pairs) / len(pairs)
            says = f"rarely (less than half, within {NEGLIGIBLE:.0%})"
            of_what = f"{name}: deciles at which two of {len(recordings)} recordings overlap"
            found.append(Line(of_what, says, f"{equal:.0%} of {len(pairs)}", equal < 0.5))
    return found


def virtual_and_physical(of: list[Row]) -> tuple[float, dict[int, float]]:
    """The share by virtual address, and by the frames of each recording."""
    physical = sorted(select(of, addresses="physical"), key=lambda row: row["recording"])
    return share(select(of, addresses="virtual")[0]), {row["recording"]: share(row) for row in physical}


def errors(of: list[Row]) -> dict[int, float]:
    """By how many points virtual addresses promise more, of each recording."""
    virtual, physical = virtual_and_physical(of)
    return {recording: virtual - value for recording, value in physical.items()}


@check
def virtual_is_optimistic(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Table 3. Where the paper finds small errors (0.2 points for stride), these need only be above zero, and below the others'."""
    found = []
    paper = claim["paper"]
    others = {name: statistics.fmean(errors(select(rows, workload=name)).values()) for name in paper.get("less_than", [])
              if select(rows, workload=name)}  # fmt: skip
    for name, of in grouped(rows, claim).items():
        virtual, physical = virtual_and_physical(of)
        error = errors(of)
        which = f"recording{'s' if len(error) > 1 else ''} {' '.join(map(str, error))}"
        published = f"{paper['virtual']}% / {percents(paper['physical'])}"
        found.append(Line(f"{name}: virtual / physical", published, f"{virtual:.1f}% / {percents(list(physical.values()))}"))
        found.append(Line(f"{name}: error, {which}", percents(paper["error"]), percents(list(error.values()))))
        least = min(error.values())
        if "less_than" not in paper:
            says = f"at least {NO_DIFFERENCE_POINTS:g} point"
            found.append(Line(f"{name}: least error", says, f"{least:.1f} points", least >= NO_DIFFERENCE_POINTS))
            continue
        found.append(Line(f"{name}: least error", "above 0 points (sign alone)", f"{least:.1f} points", least > 0))
        if others:
            mean = statistics.fmean(error.values())
            ours = f"{mean:.1f} points against {', '.join(f'{value:.1f} ({other})' for other, value in others.items())}"
            found.append(Line(f"{name}: mean error", "less than the others'", ours, rises(mean, min(others.values()))))
    return found


@check
def virtual_error(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """How far virtual addresses are off."""
    found = []
    points = claim["paper"]["points"]
    for name, of in grouped(rows, claim).items():
        error = errors(of)
        least = min(error.values())
        found.append(Line(f"{name}: least error of {len(error)}", f"over {points} points", f"{least:.1f} points", least > points))
    return found


@check
def no_cache_queues(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Against the longer of what SLC takes to read and to program."""
    longest = claim["paper"]["program_us"]
    says = f"far above {claim['paper']['read_us']} and {longest} us ({FAR_ABOVE:g} x or more)"
    return [
        Line(f"{name}: mean without a cache", says, f"{latency:,.0f} us", latency >= FAR_ABOVE * longest)
        for name, of in grouped(rows, claim).items()
        for latency in [row["mean_latency_ns"] / 1000 for row in select(of, cache_bytes=0)]
    ]


@check
def largest_cache_above_dram(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """With the largest cache."""
    dram = claim["paper"]["dram_ns"]
    found = []
    for name, of in grouped(rows, claim).items():
        mean = max(of, key=lambda row: row["cache_bytes"])["mean_latency_ns"]
        says = f"far above {dram} ns ({FAR_ABOVE:g} x or more)"
        found.append(Line(f"{name}: mean, largest cache", says, f"{mean:,.0f} ns", mean >= FAR_ABOVE * dram))
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
    """The 99.9th percentile: half or less is significantly shorter; less, but more than half, is a small improvement."""
    found = []
    for name, of in grouped(rows, claim).items():
        without, given = (select(of, mshr=state)[0]["p999_ns"] for state in ("off", "on"))
        little = name in claim["paper"]["little"]
        holds = without / FAR_ABOVE < given < without if little else given <= without / FAR_ABOVE
        says = "shorter (sign alone), by less than half" if little else "significantly shorter (half or less)"
        found.append(Line(f"{name}: p99.9 without and with", says, f"{without / 1000:.1f} us, {given / 1000:.1f} us", holds))
    return found


def next_n(rows: list[Row], degree: int, offset: int) -> Row | None:
    """The row of next-N with these parameters."""
    return next(iter(select(rows, prefetch="next-n", degree=degree, offset=offset)), None)


@check
def degree_one(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Against no prefetching."""
    found = []
    paper = claim["paper"]
    for name, of in grouped(rows, claim).items():
        before, after = (share(select(of, **wanted)[0]) for wanted in ({"prefetch": "none"}, {"prefetch": "next-n", "degree": 1}))
        says = f"{paper['before']}% to {paper['after']}%"
        found.append(Line(f"{name}: none, degree 1", says, f"{before:.1f}% to {after:.1f}%", rises(before, after)))
    return found


@check
def offset_up_then_down(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Offsets 4, 16, 64, all of the same degree."""
    found = []
    for name, of in grouped(rows, claim).items():
        shares = [share(row) for offset in (4, 16, 64) if (row := next_n(of, 4, offset))]
        if len(shares) == 3:
            ours = percents(shares)
            found.append(Line(f"{name}: improves from offset 4 to 16", "yes", ours, rises(shares[0], shares[1])))
            found.append(Line(f"{name}: deteriorates from 16 to 64", "yes", ours, rises(shares[2], shares[1])))
    return found


@check
def offset_random_stride(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Offsets 4, 16, 64, which the paper has, and larger ones if there are some."""
    found = []
    for name, of in grouped(rows, claim).items():
        offsets = sorted(row["offset"] for row in select(of, prefetch="next-n", degree=4))
        shares = {offset: share(row) for offset in offsets if (row := next_n(of, 4, offset))}
        if not {4, 16, 64} <= set(shares):
            continue
        four, sixteen, sixty_four = (shares[offset] for offset in (4, 16, 64))
        larger = [value for offset, value in shares.items() if offset >= 64]
        if name == "random":
            same = abs(four - sixteen) < NO_DIFFERENCE_POINTS
            found.append(Line("random: the same at offsets 4 and 16", "yes", percents([four, sixteen]), same))
            changed = any(abs(value - four) >= NO_DIFFERENCE_POINTS for value in larger)
            of_what = f"random: another share at {', '.join(f'{offset:g}' for offset in shares if offset >= 64)}"
            found.append(Line(of_what, "yes, if that is large enough", percents([four, *larger]), changed))
        else:
            steps = (sixteen - four, sixty_four - sixteen)
            gradual = rises(four, sixty_four) and min(steps) > -NO_DIFFERENCE_POINTS
            ours = percents([four, sixteen, sixty_four])
            found.append(Line(f"{name}: improves from offset 4 over 16 to 64", "gradually", ours, gradual))
    return found


@check
def ull_against_slc(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """A cache makes the difference negligible; without one ULL takes less than half."""
    found = []
    for size in sorted({row["cache_bytes"] for row in rows}):
        ull, slc = (select(rows, technology=name, cache_bytes=size)[0]["mean_latency_ns"] for name in ("ull", "slc"))
        ours = f"{ull:.0f} ns, {slc:.0f} ns"
        if size:
            says = f"no difference (within {NEGLIGIBLE:.0%})"
            found.append(Line(f"ULL, SLC with {size >> 20} MiB", says, ours, abs(slc - ull) < NEGLIGIBLE * slc))
        else:
            says = f"ULL by far faster ({FAR_ABOVE:g} x or more)"
            found.append(Line("ULL, SLC without a cache", says, ours, slc >= FAR_ABOVE * ull))
    return found


@check
def lifetime_of_technologies(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """With any cache, or with one of a size; not judged where nothing is written."""
    paper = claim["paper"]
    found = []
    for technology in paper["technologies"]:
        of = [row for row in select(rows, technology=technology) if row["cache_bytes"] > 0]
        if "cache_gib" in paper:
            of = [row for row in of if row["cache_bytes"] * row["cache_scale"] == paper["cache_gib"] * GIB]
            says, name = f"at most {paper['at_most_years']} year", f"{technology.upper()} with {paper['cache_gib']} GiB"
        else:
            says, name = f"more than {paper['more_than_years']} years", f"{technology.upper()}, least with a cache"
        least = shortest(of)
        if least is None:
            found.append(Line(name, says, "nothing written" if of else "not simulated"))
            continue
        holds = least[1] <= paper["at_most_years"] if "cache_gib" in paper else least[1] > paper["more_than_years"]
        found.append(Line(name, says, told(least[1]), holds))
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
            loses = many - few >= MATTERS_POINTS
            says = f"8x4 loses {'at least' if matters else 'less than'} {MATTERS_POINTS:g} points"
            found.append(Line(f"{name}, {size >> 20} MiB: 8x4, 32x32", says, percents([few, many]), loses == matters))
    return found
