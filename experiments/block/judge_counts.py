"""Checks of hits, volumes, memory and sizes."""

from __future__ import annotations

from typing import Any

from judge import OURS, ROLES, SEED, SIMILAR, Line, Row, check, known, lower, units_of

KIB = 1 << 10


@check
def hit_ratios(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """Hit ratios of reads and writes beside the published ones."""
    lines = []
    for unit, of in units_of(rows, claim).items():
        for contender in (SEED, OURS):
            if row := of.get(contender):
                read, write = row.get("read_hit_ratio"), row.get("write_hit_ratio")
                said = " ".join(f"{100 * ratio:.0f}%" if ratio is not None else "-" for ratio in (read, write))
                lines.append(Line(f"{unit}, {ROLES[contender]}: reads, writes", claim["paper"], said))
    return lines


@check
def drop_in_hits(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """How many of the hits of 256 KiB with whole fills a contender lacks, reads and writes, in percent of them."""
    lines = []
    for unit, of in units_of(rows, claim).items():
        for op, limit in zip(("read", "write"), claim["paper"], strict=True):
            theirs = known(of, "256K whole", f"{op}_hit_ratio")
            ours = of.get(claim["contender"], {}).get(f"{op}_hit_ratio")
            if theirs and ours is not None:
                drop = lower(ours, theirs)
                here = f"{100 * ours:.1f}% against {100 * theirs:.1f}%: " + (
                    f"{drop:.0f}% fewer" if drop >= 0.5 else f"{abs(drop):.0f}% more"
                )
                lines.append(Line(f"{unit}, {op}s", f"at most {limit:g}% fewer", here, drop <= limit))
    return lines


@check
def similar_volume(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """All that is moved, beside blocks of 32 KiB that are filled in the same way."""
    lines = []
    for unit, of in units_of(rows, claim).items():
        for contender, rival in ((SEED, "32K whole"), (OURS, "32K units")):
            ours, theirs = of.get(contender), of.get(rival)
            if ours and theirs and theirs["core_bytes"] and theirs["cache_bytes"]:
                core, cache = ours["core_bytes"] / theirs["core_bytes"], ours["cache_bytes"] / theirs["cache_bytes"]
                here = f"store {core:.2f} x, cache {cache:.2f} x"
                # Less is no worse than similar.
                holds = max(core, cache) <= 1 + SIMILAR
                lines.append(Line(f"{unit}, {ROLES[contender]}, against {rival}", "similar", here, holds))
    return lines


@check
def follows_requests(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """The mean size of blocks beside that of the requests that they were allocated for."""
    lines, least = [], None
    for unit, of in units_of(rows, claim).items():
        for contender in (SEED, OURS):
            asked, given = known(of, contender, "mean_missed_request_bytes"), known(of, contender, "mean_block_bytes")
            if asked and given:
                apart = 100 * abs(given / asked - 1)
                here = f"{asked / KIB:.1f} KiB asked, {given / KIB:.1f} KiB given: {apart:.0f}% apart"
                lines.append(Line(f"{unit}, {ROLES[contender]}", "", here))
                if contender == SEED and (least is None or apart < least[0]):
                    least = (apart, unit)
    if least:
        limit = claim["paper"]
        lines.append(
            Line("the seed's rule at best", f"{limit:g}% apart", f"{least[0]:.0f}% apart ({least[1]})", least[0] <= limit + 1)
        )
    return lines


@check
def per_block(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """What a block more takes, by caches of the smallest and of the largest blocks, and what a contender takes when it is empty.

    Tables grow by doubling, and so a few blocks say nothing of one.
    """
    lines = []
    for unit, of in units_of(rows, claim, shared=True).items():
        few, many, own = of.get("256K whole"), of.get("32K whole"), of.get(claim["contender"])
        if few and many and own and many["blocks_end"] - few["blocks_end"] >= claim["blocks"]:
            more = many["blocks_end"] - few["blocks_end"]
            each = (many["metadata_end_bytes"] - few["metadata_end_bytes"]) / more
            lines.append(
                Line(
                    f"{unit}, each of {more:,.0f} blocks more",
                    f"at most {claim['paper']:g} B",
                    f"{each:.1f} B",
                    each <= claim["paper"],
                )
            )
        if own:
            empty, end = (own[f"metadata_{when}_bytes"] / KIB for when in ("empty", "end"))
            cache = f"{own['capacity_bytes'] / KIB**2:.1f} MiB with {own['blocks_end']:,.0f} blocks"
            lines.append(
                Line(
                    f"{unit}, {ROLES[claim['contender']]}: flat",
                    "stated",
                    f"{empty:,.0f} KiB empty, {end:,.0f} KiB at the end, {cache}",
                )
            )
    return lines


@check
def sizes_of_requests(rows: list[Row], claim: dict[str, Any]) -> list[Line]:
    """The share of small requests, or of large ones, of each workload."""
    lines = []
    for row in rows:
        if row["family"] in claim["families"]:
            share = row["at_most"][str(claim["bytes"])]
            share, words = (1 - share, "above") if claim.get("above") else (share, "at most")
            name = f"{row['workload']}: {words} {claim['bytes'] // KIB} KiB"
            lines.append(Line(name, "more than half", f"{100 * share:.0f}%", share > 0.5))
    return lines
