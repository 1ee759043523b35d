"""The page that compares all tables of rows with what Yang 2023 says of them, in Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from comparison import PAPER_YEAR_HOURS, Line, Row
from data import PUBLISHED, SWEEPS, load
from verdicts import Compared, compared, differs, without_sentence

HEAD = """\
# A memory expander of flash, beside Yang 2023

Written by `experiments/cxl_flash/run.py`, from the tables of rows beside it. Simulated, by recordings of our own
programs: the applications stand in for the paper's (`experiments/cxl_flash/workloads.toml`), so that shapes can be
compared and numbers only roughly. *Shape holds* is computed from the rows; where it is empty, numbers stand beside
each other.

Up to five recordings of a program have the same accesses and the frames of different runs; much depends on which frames
a program happens to get. 4 and 5 were made in memory of which half was in use, every other page of it, so that hardly any
frames follow each other. By virtual address they are all the same, and simulated once. Where each recording is judged for itself,
*1:* stands before what is found in the first, and **2 of 5** says that the shape holds in two of the five of which something can
be said; a dash is where there is nothing to measure, as nothing was prefetched. The sentence below a table counts all judgements.

The device has what the paper's lacks. The host keeps the trace's distances between requests, but waits while 256 are
unanswered; so the mean latency of a device that falls behind is bounded by its queue, 256 times what it takes for a
request, and not by the length of the trace. Lines that are written to flash gather in a log of 1 MiB until they fill a
flash page of 16 KiB. DRAM has a bandwidth, which filling and emptying lines take from requests. A channel is busy for
as long as the bytes of a transfer take. Blocks are cleaned and their wear is levelled. `docs/cxl-flash.md` describes
all of it.
"""
LIFETIMES = (
    "Lifetimes are reckoned over the time from the first request to the last answer, and without what cleaning moves. The paper's "
    f"years have {PAPER_YEAR_HOURS} hours, by the README of its simulator, and are what is judged here; figures have years of 365."
)
EACH_RECORDING = "Each recording is judged for itself"
TRACES: dict[str, Any] = {
    "name": "traces", "title": "The traces", "where": "Tables 2 and 5, Figure 3", "draws": ["fig3"],
    "about": "Distances are of the first recording by virtual address, and of each recording by physical address",
}  # fmt: skip


def sections() -> list[dict[str, Any]]:
    """What the page is made of, in order."""
    return [TRACES, *load(SWEEPS)["figure"]]


def rows_of(out: Path, name: str) -> list[Row]:
    """A table of rows; none if it is not there."""
    path = out / f"{name}.parquet"
    return pq.read_table(path).to_pylist() if path.exists() else []


def cell(line: Line) -> str:
    """A row of a table."""
    holds = {None: "", True: "yes", False: "**no**"}[line.holds]
    if len(line.judged) > 1 and len(set(line.judged)) > 1:
        holds = f"**{sum(line.judged)} of {len(line.judged)}**"
    return f"| {line.of} | {line.paper or '-'} | {line.ours} | {holds} |"


def comparison(claim: dict[str, Any], found: list[Line]) -> list[str]:
    """A claim as Markdown."""
    lines = [f"**{claim['id']}** {claim['says']} ({claim['where']}).", ""]
    if not found:
        return [*lines, f"Not compared: no recording of {', '.join(claim.get('workloads', ['what it is about']))}.", ""]
    lines += ["| | Yang 2023 | here | shape holds |", "| --- | --- | --- | --- |", *map(cell, found), ""]
    judged = [holds for line in found for holds in line.judgements()]
    if judged:
        lines += [f"The shape holds in {sum(judged)} of {len(judged)}.", ""]
    if differs(found) and "differs" in claim:
        lines += [claim["differs"], ""]
    return lines


def section(out: Path, figure: dict[str, Any], rows: list[Row], found: Compared) -> list[str]:
    """A table of rows as Markdown."""
    requests = sorted({row["requests"] for row in rows if row.get("window", "all") == "all"})
    count = f"{requests[0]:,}" if requests[0] == requests[-1] else f"{requests[0]:,} to {requests[-1]:,}"
    divisor = max(row.get("cache_scale", 1) for row in rows)
    head = [f"Yang 2023, {figure['where']}", f"{count} requests of each trace"]
    head[-1] += f", caches divided by {divisor} as the programs are" if divisor > 1 else ""
    head += [f"The device: {load(SWEEPS)['presets'][figure['preset']]}"] if "preset" in figure else []
    head += [figure["about"]] if "about" in figure else []
    head += [f"Chosen here: {figure['chosen']}"] if "chosen" in figure else []
    head += [EACH_RECORDING] if figure.get("each_recording") and len({row["recording"] for row in rows}) > 1 else []
    lines = [f"## {figure['title']}", "", " ".join(f"{sentence}." for sentence in head), ""]
    lines += [LIFETIMES, ""] if figure.get("lifetimes") else []
    for drawing in [*figure["draws"], *(["fig16a"] if figure["name"] == "fig16" else [])]:
        if (out / f"{drawing}.svg").exists():
            lines += [f"![Figure {drawing.removeprefix('fig')}]({drawing}.svg)", ""]
            lines += [f"{figure['notes'][drawing]}.", ""] if drawing in figure.get("notes", {}) else []
    for claim, compared_lines in found:
        lines += comparison(claim, compared_lines)
    return lines


def marks(tables: dict[str, list[Row]]) -> list[str]:
    """Which tables are of another device than the paper's."""
    by_flags: dict[str, list[str]] = {}
    for name, rows in tables.items():
        for flags in sorted({row.get("flags") or "" for row in rows} - {""}):
            by_flags.setdefault(flags, []).append(name)
    return [f"**Not the device described here: {', '.join(names)} with `{flags}`.**\n" for flags, names in by_flags.items()]


def page(out: Path) -> tuple[str, list[str]]:
    """All that is there, compared; and what is to be done about the sentences of published.toml."""
    tables = {figure["name"]: rows for figure in sections() if (rows := rows_of(out, figure["name"]))}
    lines = [HEAD, *marks(tables)]
    missing, stale = [], []
    for figure in sections():
        if rows := tables.get(figure["name"]):
            found = compared(load(PUBLISHED)["claim"], figure["name"], rows, figure.get("each_recording", False))
            lines += section(out, figure, rows, found)
            without, no_longer = without_sentence(found)
            missing, stale = sorted(missing + without), sorted(stale + no_longer)
    lines += ["## Not compared", "", "| claim | why |", "| --- | --- |"]
    lines += [f"| {it['id']} | {it['why']} |" for it in load(PUBLISHED)["not_covered"]]
    said = [f"published.toml: {', '.join(missing)} do not hold everywhere and do not say why (differs = ...)"] if missing else []
    said += [f"published.toml: {', '.join(stale)} hold everywhere and say why they do not"] if stale else []
    return "\n".join(lines) + "\n", said
