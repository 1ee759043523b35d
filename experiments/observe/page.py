"""The page that holds what the work says against what is found here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomllib
from figures import PICTURES
from measure import Row, placements
from recordings import HERE, MAKERS, Tools
from verdicts import CHECKS, recorded, true_heat

PLANNED = ("decode", "prompt", "matvec", "pagerank", "redis")
FAST_SHARE = 0.5
HEAD = """\
# Programs observed, beside Fisher 2025

Written by `experiments/observe/run.py`. Two processors of a virtual machine, one node of memory, no counters: what needs
others is named below. Models have random weights, whose layout is that of llama.cpp's converter; the work's model has 100 GiB
and ours {size}. *Shape holds* is computed. `layers` and `vector` are every load under Valgrind, the others page references of
programs at their own speed. Two nodes are an emulated guest's.

## Claims
"""


def page(tools: Tools, out: Path, costs: dict[str, Any]) -> str:
    """All of it."""
    head = HEAD.format(size="64 MiB" if tools.short else "1 GiB")
    # Claims are judged by plans too, so these are made first.
    planned = plans(tools)
    parts = [head, claims(tools), heat(tools), planned, placed(out), cost(out, costs), pictures(out)]
    return "\n".join(part for part in parts if part).rstrip() + "\n"


def claims(tools: Tools) -> str:
    """What the work says, and what is found."""
    lines = ["| claim | where | it says | here | shape holds |", "| --- | --- | --- | --- | --- |"]
    below = []
    for claim in tomllib.loads((HERE / "published.toml").read_text())["claim"]:
        if "check" not in claim:
            found, holds = f"not measured: needs {claim['needs']}; instead {claim['instead']}", ""
        elif not recorded(tools, claim["of"]):
            found, holds = f"`{claim['of']}` was not recorded", ""
        else:
            found, does = CHECKS[claim["check"]](tools)
            holds = {None: "", True: "yes", False: "**no**"}[does]
            if does is False and not tools.short:
                below.append(f"- {claim['id']}: {claim.get('differs', 'no reason is known.').strip()}")
        lines.append(f"| {claim['id']} | {claim['where']} | {claim['says']} | {found} | {holds} |")
    return "\n".join([*lines, *(["", "Where it does not hold:", "", *below] if below else []), ""])


def heat(tools: Tools) -> str:
    """What is seen against what is counted."""
    if not recorded(tools, "skewed"):
        return ""
    return (
        "## Heat\n\n256 granules, the n-th hottest read 1/n as often as the hottest, two million reads a second: the rank "
        f"correlation of what `refs` saw with what the program counted is **{true_heat(tools):.4f}**.\n"
    )


def plans(tools: Tools) -> str:
    """A plan for each program, replayed over its recording."""
    rows = [placements(tools, name, FAST_SHARE) for name in PLANNED if recorded(tools, name)]
    if not rows:
        return ""
    kinds = ["first-touch", "static", "live", "plan", "clairvoyant"]
    lines = [
        "## Plans",
        "",
        "Half of what each program touched is fast. Shares of accesses to slow memory, replayed by `tiermem sim place`; *of "
        "clairvoyant* is what the plan saves of first-touch's, as a part of what one saves who knows all that comes and moves no "
        "faster.",
        "",
        f"| program | touched | {' | '.join(kinds)} | of clairvoyant | the plan |",
        f"| --- |{' --- |' * (len(kinds) + 3)}",
    ]
    for row in rows:
        shares = " | ".join(f"**{row[kind]:.1%}**" if kind == "plan" else f"{row[kind]:.1%}" for kind in kinds)
        touched = f"{row['touched_bytes'] / 2**20:.0f} MiB"
        cells = [row["recording"], touched, shares, f"{row['of_clairvoyant']:.2f}", described(row)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def described(row: Row) -> str:
    """What a plan does."""
    parts = [f"{row['always_bytes'] >> 20} MiB always"]
    parts += [f"a sweep every {it['period_ns'] / 1e9:.2f} s" for it in row["sweeps"]]
    parts += [f"{row['phases']} phases"] if row["phases"] else []
    return ", ".join(parts)


def placed(out: Path) -> str:
    """What a plan did where there are two nodes."""
    path = out / "placed.md"
    if not path.exists():
        return ""
    about = "An emulated guest of two nodes, by `experiments/observe/placed.py`. *Replayed* is of the recording."
    return f"## A plan carried out\n\n{about}\n\n{path.read_text()}"


def cost(out: Path, costs: dict[str, Any]) -> str:
    """What recording took."""
    lines = ["## What recording costs", ""]
    if (out / "cost.md").exists():
        lines += ["Pairs of runs, by `experiments/observe/cost.py`:", "", (out / "cost.md").read_text()]
    lines += ["| recording | slices | recorder, of one processor | within the program |", "| --- | --- | --- | --- |"]
    for name in MAKERS:
        if of := costs.get(name):
            spent = f"{of['recorder_cpu_s'] / of['seconds']:.1%} | {of['agent_cpu_s'] * 1000:.0f} ms"
            cells = spent if of["recorder_cpu_s"] else "Valgrind: a hundred times the program's time |"
            lines.append(f"| {name} | {of['slices']} of {of['seconds'] / max(of['slices'], 1):.3f} s | {cells} |")
    return "\n".join([*lines, ""])


def pictures(out: Path) -> str:
    """Those that are there."""
    lines = ["## Pictures", ""]
    for name, of in PICTURES.items():
        lines += [f"{about} (`{name}`):\n\n![{about}]({stem}.png)\n" for stem, about, _ in of if (out / f"{stem}.png").exists()]
    return "\n".join(lines)
