"""The page that compares all rows with what Yang 2024 says of them, in Markdown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

# Their checks enter themselves.
import judge_counts  # noqa: F401
import judge_time  # noqa: F401
from figures import COLOURS, STEPS, draw
from judge import CHECKS, LITTLE, LITTLE_RECKONED, Line, Row, differs, summary, units_of, without_sentence
from setting import PUBLISHED, contenders, load

KIB = 1 << 10
MIB = 1 << 20
Tables = dict[str, Any]
Cell = Callable[[Row], str]
HEAD = f"""\
# The block cache, beside Yang 2024 (chapter 2, AdaCache)

Written by `experiments/block/run.py` from the rows beside it.

Three kinds of caches are compared, all by the same engine. *Fixed, whole fills*: blocks of one size, each brought in as a
whole, also before a part of it is written, and written back as a whole; these are the seed's rivals. *Fixed, sub-block*:
blocks of one size with valid and dirty bits for each 4 KiB, as caches that people run have them; the honest rival.
*Adaptive*: `seed` sizes blocks by what the request misses (Algorithms 1 and 2) and fills them as a whole, as the seed
does; `seed units` does so with sub-block bits; `ours` sizes them by what would have cost least lately (`sizing =
observed`), with sub-block bits, and is what `tiermem block serve` does by itself.

*Holds* is computed from the rows: a measured latency that is longer by less than {100 * LITTLE:g}% is not longer, a reckoned one
by less than {100 * LITTLE_RECKONED:g}%, and where the seed gives its best volume's figure, ours is the best of the workloads here.
Where it is empty, numbers stand beside each other.
"""


OBSERVING = """\
What observes runs each request of a sample through a miniature of the cache for each rule. Of caches up to 64 MiB the sample is all
there is; of larger ones it shrinks as they grow."""


def number(value: Any, digits: int = 0, scale: float = 1.0) -> str:
    """A figure that may be missing."""
    return "-" if value is None else f"{value / scale:,.{digits}f}"


def pair(first: str, second: str, digits: int = 0, scale: float = 1.0) -> Cell:
    """A cell with a figure of reads and one of writes."""
    return lambda row: f"{number(row.get(first), digits, scale)} / {number(row.get(second), digits, scale)}"


# What the table of a figure has in its cells, and the words for it.
CELLS: dict[str, tuple[str, Cell]] = {
    "fig2.7": ("mean us, reads / writes", pair("read_mean_us", "write_mean_us")),
    "fig2.8": ("mean us, reads / writes", pair("read_mean_us", "write_mean_us")),
    "fig2.10": (
        "MiB from / to the store; from / to the cache; hits of reads / writes in percent",
        lambda row: "; ".join(
            [
                pair("core_read_bytes", "core_written_bytes", 0, MIB)(row),
                pair("cache_read_bytes", "cache_written_bytes", 0, MIB)(row),
                pair("read_hit_ratio", "write_hit_ratio", 1, 0.01)(row),
            ]
        ),
    ),
    "fig2.11": ("hits in percent, reads / writes", pair("read_hit_ratio", "write_hit_ratio", 1, 0.01)),
    "latencies": (
        "us, reads / writes; MiB from / to the store",
        lambda row: "; ".join(
            [pair("read_latency_us", "write_latency_us")(row), pair("core_read_bytes", "core_written_bytes", 0, MIB)(row)]
        ),
    ),
    "fig2.12": (
        "KiB, mean; blocks at the end",
        lambda row: f"{number(row['metadata_mean_bytes'], 0, KIB)}; {number(row['blocks_end'])}",
    ),
    "fig2.13": ("KiB asked, given", pair("mean_missed_request_bytes", "mean_block_bytes", 1, KIB)),
    "fig2.9": ("us, mean / median", pair("processing_mean_ns", "processing_p50_ns", 1, 1000)),
    "instructions": ("instructions", lambda row: number(row["processing"])),
}


def table(figure: dict[str, Any], rows: list[Row]) -> list[str]:
    """A row for each contender, a column for each workload."""
    if figure["of"] == "sizes":
        lines = [f"| workload | requests | reads | {' | '.join(words for _, words, _ in STEPS[:-1])} |", "| --- " * 7 + "|"]
        for row in rows:
            shares = [f"{100 * row['at_most'][str(limit)]:.0f}%" for limit, _, _ in STEPS[:-1]]
            name, reads = row["workload"], f"{100 * row['reads'] / max(row['requests'], 1):.0f}%"
            lines.append(f"| {name} | {row['requests']:,} | {reads} | {' | '.join(shares)} |")
        return [*lines, "", "Shares are of requests of at most so many bytes."]
    words, cell = CELLS[figure["name"]]
    units = units_of(rows, figure, figure["name"] == "fig2.12")
    lines = [f"| {words} | {' | '.join(units)} |", "| --- " * (1 + len(units)) + "|"]
    for name in COLOURS:
        cells = [cell(of[name]) if name in of else "" for of in units.values()]
        if any(cells):
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def by_capacity(rows: list[Row]) -> list[str]:
    """What observing costs in caches of several sizes."""
    if not rows:
        return []
    sizes = sorted({row["capacity_mib"] for row in rows})
    head = f"| instructions, {rows[0]['workload']}, from an empty cache | {' | '.join(f'{size} MiB' for size in sizes)} |"
    lines = [OBSERVING, "", head, "| --- " * (1 + len(sizes)) + "|"]
    for name in dict.fromkeys(row["contender"] for row in rows):
        own = {row["capacity_mib"]: number(row["processing"]) for row in rows if row["contender"] == name}
        lines.append(f"| {name} | {' | '.join(own[size] for size in sizes)} |")
    return [*lines, ""]


def row_of(line: Line) -> str:
    """A row of a comparison."""
    holds = {None: "", True: "yes", False: "**no**"}[line.holds]
    return f"| {line.of} | {line.seed or '-'} | {line.ours} | {holds} |"


def comparison(claim: dict[str, Any], found: list[Line]) -> list[str]:
    """A claim as Markdown."""
    lines = [f"**{claim['id']}** {claim['says']}.", ""]
    if not found:
        return [*lines, "Not compared: no workload of its kind was run.", ""]
    lines += ["| | wanted | here | holds |", "| --- | --- | --- | --- |", *map(row_of, found), ""]
    judged = [line.holds for line in found if line.holds is not None]
    if judged:
        lines += [f"Holds in {sum(judged)} of {len(judged)}.", ""]
    if differs(found) and "differs" in claim:
        lines += [claim["differs"].strip(), ""]
    return lines


def brought_together(tables: Tables) -> dict[str, list[Row]]:
    """The rows that figures and claims are of, by the name of their table."""
    together: dict[str, list[Row]] = {name: summary(tables[name]["rows"]) for name in ("live", "simulated") if name in tables}
    if "processing" in tables:
        together["processing"] = [
            {**row, "unit": row["workload"], "volume": "all", "counts": True} for row in tables["processing"]["rows"]
        ]
    return together | ({"sizes": tables["sizes"]["rows"]} if "sizes" in tables else {})


def judged(tables: Tables) -> list[tuple[dict[str, Any], list[Line]]]:
    """Each claim whose rows are there, with its comparisons."""
    described = load(PUBLISHED)
    of = {figure["name"]: figure["of"] for figure in described["figure"]}
    rows = brought_together(tables)
    found = []
    for claim in described["claim"]:
        own = rows.get(of[claim["figure"]])
        if own:
            found.append((claim, CHECKS[claim["check"]](own, claim)))
    return found


def page(tables: Tables, out: Path) -> tuple[str, list[str]]:
    """Draws the figures whose rows are there, and gives the page, and what is to be done about the sentences of published.toml."""
    described = load(PUBLISHED)
    claims = judged(tables)
    rows = brought_together(tables)
    lines = [HEAD, "| contender | what | blocks | fill | sizing |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {it.name} | {it.role} | {' '.join(it.blocks)} | {it.fill} | {it.sizing} |" for it in contenders()]
    for name in ("live", "simulated", "processing", "sizes"):
        lines += ["", *(f"{sentence}" for sentence in tables[name]["about"])] if name in tables else []
    shown = []
    for figure in described["figure"]:
        own = rows.get(figure["of"])
        if not own or not draw(figure, own, out):
            continue
        shown.append(figure["name"])
        lines += [
            "",
            f"## {figure['title']}",
            "",
            f"Yang 2024, {figure['where']}.",
            "",
            f"![{figure['title']}]({figure['name']}.svg)",
            "",
        ]
        lines += [*table(figure, own), ""]
        if figure["name"] == "instructions":
            lines += by_capacity(tables["processing"]["by_capacity"])
        for claim, found in claims:
            if claim["figure"] == figure["name"]:
                lines += comparison(claim, found)
    lines += ["", "## Not compared", "", "| claim | why |", "| --- | --- |"]
    lines += [f"| {it['id']} | {it['why']} |" for it in described["not_covered"]]
    missing, stale = without_sentence([(claim, found) for claim, found in claims if claim["figure"] in shown])
    said = [f"published.toml: {', '.join(missing)} do not hold everywhere and do not say why (differs = ...)"] if missing else []
    said += [f"published.toml: {', '.join(stale)} hold everywhere and say why they do not"] if stale else []
    return "\n".join(lines) + "\n", said
