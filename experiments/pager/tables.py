"""From rows to tables: means over the rounds, what each R costs in the seed's own terms, and how the arms stand to each other."""

from __future__ import annotations

import argparse
import csv
import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pictures
from arms import AS_IT_COMES, AT_ITS_BEST, ENGINE, ROWS, STEERED

Rows = list[dict[str, Any]]
# Issue's goals: `kernel` takes at most this part of swap's time at R = 2, and never more than this at any R.
WANTED_AT_2 = 0.8
WANTED_ALWAYS = 1.05


@dataclass(frozen=True)
class Cell:
    """All rounds of an arm at one R."""

    performance: float
    values: tuple[float, ...]
    # New time over time in all DRAM; of a rate: rate in all DRAM over new rate.
    slowdown: float
    major_faults: float


@dataclass(frozen=True)
class Notes:
    """What stands beside the rows: workloads without a program, engines that cannot work in so little, the machine's settings."""

    skipped: dict[str, str]
    refused: dict[tuple[str, float], str]
    settings: dict[Path, str]


def slowdown(performance: float, base: float, better: str) -> float:
    """How many times as long it takes as in all DRAM."""
    return base / performance if better == "more" else performance / base


def lost(slowed: float, form: str) -> float:
    """What a slowdown is in the seed's form: a drop of the performance, or time that is added."""
    return 1 - 1 / slowed if form == "drop" else slowed - 1


def cells(rows: Rows, about: dict[str, Any]) -> dict[tuple[float, str], Cell]:
    """Of one workload. What an R costs is told against swap in all DRAM: the program as anybody runs it."""
    found: dict[tuple[float, str], Rows] = {}
    for row in rows:
        if row["phase"] == "measured":
            found.setdefault((row["overcommit"], row["arm"]), []).append(row)
    first = found.get((1.0, AS_IT_COMES.name))
    if not first:
        return {}
    base = statistics.mean(row["performance"] for row in first)
    made = {}
    for key, runs in found.items():
        values = tuple(row["performance"] for row in sorted(runs, key=lambda row: row["round"]))
        mean = statistics.mean(values)
        faults = statistics.mean(row["major_faults"] for row in runs)
        made[key] = Cell(mean, values, slowdown(mean, base, about["better"]), faults)
    return made


def table(rows: Rows, data: dict[str, Any]) -> str:
    """A line for each workload, R and arm."""
    lines = [
        "| workload | R | DRAM, MiB | arm | performance | all values | slowdown | lost | the seed lost | of swap as it comes "
        "| of swap at its best | major faults |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in dict.fromkeys(row["workload"] for row in rows):
        about, own = data[name], [row for row in rows if row["workload"] == name]
        of = cells(own, about)
        for overcommit in sorted({key[0] for key in of}):
            for arm in (it for it in ROWS if (overcommit, it) in of):
                cell = of[overcommit, arm]
                dram_mib = own[0]["required_bytes"] / overcommit / (1 << 20)
                seed = about.get("seed", {}).get(f"{overcommit:g}")
                line = [
                    name, f"{overcommit:g}", f"{dram_mib:.0f}" if overcommit > 1 else "all", arm,
                    f"**{cell.performance:.4g}** {about['unit']}", ", ".join(f"{it:.4g}" for it in cell.values),
                    f"{cell.slowdown:.3f}", _percent(lost(cell.slowdown, about.get("seed_form", "added"))),
                    _percent(seed) if seed is not None else "",
                    *(_ratio(of, overcommit, arm, rival) for rival in (AS_IT_COMES.name, AT_ITS_BEST)), f"{cell.major_faults:.0f}",
                ]  # fmt: skip
                lines.append(f"| {' | '.join(line)} |")
    return "\n".join(lines) + "\n"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _ratio(of: dict[tuple[float, str], Cell], overcommit: float, arm: str, rival: str) -> str:
    """Time over the rival's."""
    other = of.get((overcommit, rival))
    return f"{of[overcommit, arm].slowdown / other.slowdown:.3f} x" if other else ""


def verdicts(rows: Rows, data: dict[str, Any]) -> list[str]:
    """What was wanted, and whether it is so."""
    told = []
    for name in dict.fromkeys(row["workload"] for row in rows):
        about = data[name]
        of = cells([row for row in rows if row["workload"] == name], about)
        swap = {key[0]: cell.slowdown for key, cell in of.items() if key[1] == AS_IT_COMES.name}
        steered = {key[0]: cell.slowdown for key, cell in of.items() if key[1] == STEERED.name}
        seed = about.get("seed", {}).get("4")
        if seed is not None and 4 in swap:
            ours = lost(swap[4], about["seed_form"])
            word = "at least half" if ours >= seed / 2 else "**less than half**"
            told.append(f"{name}: at R = 4 swap loses {_percent(ours)}, {word} of the seed's {_percent(seed)}.")
        if 2 in swap and 2 in steered:
            ratio = steered[2] / swap[2]
            word = "reached" if ratio <= WANTED_AT_2 else "**missed**"
            told.append(f"{name}: at R = 2 `kernel` takes {ratio:.3f} x swap's time (wanted: at most {WANTED_AT_2} x; {word}).")
        shared = [(steered[it] / swap[it], it) for it in steered if it in swap]
        if shared:
            worst, at = max(shared)
            word = "reached" if worst <= WANTED_ALWAYS else "**missed**"
            told.append(f"{name}: at worst, at R = {at:g}, `kernel` takes {worst:.3f} x (wanted: at most {WANTED_ALWAYS} x; {word}).")
    return told


def page(rows: Rows, data: dict[str, Any], args: argparse.Namespace, notes: Notes) -> str:
    """The table, what it says of the goals, how it was measured, and the commands."""
    parts = [
        "Means over the rounds. *slowdown*: time over the time in all DRAM, for rates the other way round. *lost*: the same in the seed's "
        "form, a drop of the performance or time that is added. *of swap*: time over swap's at the same R. R = 1 is all DRAM.",
        "Sizes are the quick ones: these are no figures." if args.quick else "",
        f"Settings as found: {json.dumps({str(path): value for path, value in notes.settings.items()})}.",
        table(rows, data),
        "\n".join(f"- {it}" for it in verdicts(rows, data)),
    ]
    for name in dict.fromkeys(row["workload"] for row in rows):
        own = [row for row in rows if row["workload"] == name]
        about, sizes = data[name], data[name]["quick" if args.quick else "full"]
        chosen = _chosen(own, about)
        text = f"**{name}**: {about['title']}; sizes {json.dumps(sizes)}; needs {own[0]['required_bytes'] / (1 << 20):.0f} MiB."
        if "seed_size" in about:
            text += f" The seed's {about['figure']}: {about['seed_size']}."
        if "seed_other" in about:
            others = ", ".join(f"{_percent(it)} at R = {at}" for at, it in about["seed_other"].items())
            text += f" The seed's words can also be read as {others}."
        parts.append(text + (f" Swap at its best: {chosen}." if chosen else ""))
    parts += [f"**{name}** was skipped: {why}" for name, why in notes.skipped.items()]
    parts += [f"**{name}**, R = {at:g}, {ENGINE}: {why}." for (name, at), why in notes.refused.items()]
    first = [it for it in rows if it["round"] < 2 and it["overcommit"] in (1, 2)]
    commands = dict.fromkeys(f"# {it['workload']}, {it['arm']}\n{it['command']}" for it in first)
    return "\n\n".join(it for it in parts if it) + "\n\n```\n" + "\n".join(commands) + "\n```\n"


def _chosen(own: Rows, about: dict[str, Any]) -> str | None:
    """The setting that was best, with the performance of each."""
    tried = {row["arm"]: row["performance"] for row in own if row["phase"] == "choice"}
    if not tried:
        return None
    best = (max if about["better"] == "more" else min)(tried, key=lambda arm: tried[arm])
    return f"{best} (one run of each at R = 2: {', '.join(f'{it:.4g}' for it in tried.values())} {about['unit']})"


def write(rows: Rows, data: dict[str, Any], args: argparse.Namespace, notes: Notes) -> None:
    """All four files."""
    stem = args.out / "workloads"
    fields = list(dict.fromkeys(field for row in rows for field in row))
    with stem.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fields)
        writer.writeheader()
        writer.writerows(rows)
    stem.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
    stem.with_suffix(".md").write_text(page(rows, data, args, notes))
    panels = []
    for name in dict.fromkeys(row["workload"] for row in rows):
        of = cells([row for row in rows if row["workload"] == name], data[name])
        seed = {float(at): _as_slowdown(it, data[name]["seed_form"]) for at, it in data[name].get("seed", {}).items()}
        lines = {arm: sorted((at, cell) for (at, its), cell in of.items() if its == arm) for arm in ROWS}
        panels.append(pictures.Panel(data[name]["title"], {arm: its for arm, its in lines.items() if its}, seed))
    stem.with_suffix(".svg").write_text(pictures.drawn(panels))


def _as_slowdown(share: float, form: str) -> float:
    return 1 / (1 - share) if form == "drop" else 1 + share
