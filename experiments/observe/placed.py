#!/usr/bin/env python3
"""What a plan does for programs where there are two nodes of memory: an emulated guest, so that it runs on any machine.

    experiments/observe/placed.py --tiermem target/release/tiermem --out docs/results/observe
    experiments/observe/placed.py --programs hotspot --rounds 5
    experiments/observe/placed.py --tiermem target/debug/tiermem --short --out results

A program is recorded in a guest; plans are made of the recording, with a half and with a quarter of what was touched fast; then it
runs again in another guest, with pages that stay where the kernel puts them when they are first touched, on a node that has room for
so much and no more (`--follow first-touch`), with the plan, and with the plan and what is seen (`--follow live`), which take turns.
Told are the shares of accesses that went to slow memory, as `tiermem run` estimates them from accessed bits. The programs `quarter`,
`late`, `moving`, `phases` and `mistaken` (programs/heat.c) tell it themselves, and that is what counts for them: their own counts of
accesses, divided as `move_pages` says where each page lies, four times a second. An emulated machine's times say nothing. Writes
placed.json and placed.md, which run.py takes into its page.

Programs: quarter and late (the second or the last quarter of memory, which is touched first to last, has nine of ten accesses), moving
and phases (the hot part moves, or changes every two seconds), mistaken (quarter, under the plan of late: a plan that is wrong), decode (llama.cpp decodes with a small model, whose weights are read into memory of its own: all files of a guest lie on its
first node before it starts, so that nothing of them is touched first) and hotspot (examples/workloads). decode needs a C compiler, and
llama-cpp-python built without AVX-512, as requirements.txt has it, which the emulator does not know.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import placements
from recordings import HERE, Tools

GUEST = HERE.parents[1] / "tests/e2e/guest/machine.py"
# Node 0 holds the system and all files.
MEMORY_MIB = "1024,512"
FOLLOWED = {"first-touch": "where first touched", "plan": "the plan", "live": "the plan, and what is seen"}
FAST_SHARES = "0.5,0.25"
HOTSPOT = "hotspot --footprint 50331648 --hot 4194304 --background 5 --per-second 200000 --pass-ms 8000"
# The kernel divides pages of 2 MiB when it moves a part of one, which a small model would be full of.
SMALL_PAGES = "echo never >/sys/kernel/mm/transparent_hugepage/enabled\n"
# When accessed bits are cleared, processors that run the program wait for each other. Emulated ones on a busy machine do little else.
ON_ONE = "taskset 1"
# A processor's list of free pages can hold as much as a plan has for a small program: here they are short.
SHORT_LISTS = "echo 100000 >/proc/sys/vm/percpu_pagelist_high_fraction\n"


@dataclass(frozen=True)
class Program:
    """What is recorded and placed: its files in the guest, and its command."""

    about: str
    files: dict[str, Path]
    command: str
    # What is recorded, if that is another program.
    recorded: str | None = None
    # Whether it takes another word, a file in which it says where its accesses went.
    tells_places: bool = False
    granule: str = "512KiB"


def decode(tools: Tools) -> Program:
    """programs/decode.c, compiled against what llama-cpp-python has brought along, and a model of 20 MiB."""
    spec = importlib.util.find_spec("llama_cpp")
    if not spec or not spec.origin:
        sys.exit("llama-cpp-python is not installed; --programs hotspot goes without it")
    libraries = Path(spec.origin).parent / "lib"
    headers = libraries.parents[1] / "include"
    built = tools.folder / "decode"
    command = ["cc", "-O2", str(HERE / "programs/decode.c"), "-o", str(built), f"-I{headers}", f"-L{libraries}", "-lllama"]
    subprocess.run([*command, f"-Wl,-rpath,{libraries}", f"-Wl,-rpath-link,{libraries}"], check=True)
    model = tools.model("small", "--size", "20MiB")
    tokens = 20 if tools.short else 40
    files = {"/model.gguf": model, "/bin/decode": built}
    return Program(f"{tokens} tokens decoded", files, f"decode /model.gguf {tokens} 1", tells_places=True)


def hotspot(tools: Tools) -> Program:
    """4 MiB of 48 are hot at a time, and pass through once in 8 s."""
    passes = 1 if tools.short else 3
    return Program("4 MiB of 48 MiB hot at a time", {"/bin/hotspot": Path(tools.workload("hotspot"))}, f"{HOTSPOT} --passes {passes}")


def heat(shape: str, recorded: str | None = None) -> Callable[[Tools], Program]:
    """programs/heat.c with such a shape, and what is recorded if that is another one."""

    def program(tools: Tools) -> Program:
        built = tools.folder / "heat"
        subprocess.run(["cc", "-O2", str(HERE / "programs/heat.c"), "-o", str(built)], check=True)
        mib, seconds = (64, 6) if tools.short else (256, 16)

        def command(shape: str) -> str:
            return f"heat {mib} {seconds} small {shape} /dev/null"

        about = f"{shape}, {mib} MiB for {seconds} s" + (f", under the plan of {recorded}" if recorded else "")
        return Program(about, {"/bin/heat": built}, command(shape), command(recorded or shape), True, "1MiB")

    return program


PROGRAMS = {
    "quarter": heat("quarter"),
    "late": heat("late"),
    "moving": heat("moving"),
    "phases": heat("phases"),
    "mistaken": heat("quarter", "late"),
    "decode": decode,
    "hotspot": hotspot,
}


def in_guest(script: str, files: dict[str, Path], out: Path) -> None:
    """Runs a script in a guest, with these files, and fetches what it leaves."""
    puts = [word for path, source in files.items() for word in ("--put", f"{source}={path}")]
    # Of the guests' own: the interpreter may be that of an environment which lacks nothing that they need.
    command = [sys.executable, str(GUEST), "--memory-mib", MEMORY_MIB, *puts, "--script", "-", "--out", str(out)]
    done = subprocess.run([*command, "--timeout-s", "3600"], input=script, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"the guest's script failed:\n{done.stdout}{done.stderr}")


def measured(tools: Tools, name: str, rounds: int, fast_shares: list[float]) -> dict[str, Any]:
    """All of a program."""
    program = PROGRAMS[name](tools)
    files = program.files | {"/bin/tiermem": tools.tiermem}
    command = program.recorded or program.command
    record = f"{ON_ONE} tiermem record --slice 100ms --granule {program.granule} -o /out/{name}.rec -- {command} >/dev/null\n"
    in_guest(SMALL_PAGES + SHORT_LISTS + record, files, tools.folder)
    replayed = [planned(tools, name, share) for share in fast_shares]

    run = f"{ON_ONE} tiermem run --slice 100ms --format json"
    turns = [(turn, at, follow) for turn in range(rounds) for at in range(len(replayed)) for follow in FOLLOWED]

    def script(turn: int, at: int, follow: str) -> str:
        out = f"/out/{turn}.{at}.{follow}"
        places = f"{out}.places" if program.tells_places else ""
        return f"{run} --plan /{at}.json --follow {follow} --report {out} -- {program.command} {places} >/dev/null || exit 1\n"

    each = (script(*turn) for turn in turns)
    files |= {f"/{at}.json": tools.folder / f"{name}.{row['fast_bytes']}.plan.json" for at, row in enumerate(replayed)}
    runs: list[dict[str, list[dict[str, Any]]]] = [{follow: [] for follow in FOLLOWED} for _ in replayed]
    with tempfile.TemporaryDirectory() as folder:
        in_guest(SMALL_PAGES + SHORT_LISTS + "".join(each), files, Path(folder))
        for turn, at, follow in turns:
            report = Path(folder) / f"{turn}.{at}.{follow}"
            row = json.loads(report.read_text())[0]
            if program.tells_places:
                row["true_slow_share"] = true_slow_share(report.with_name(f"{report.name}.places"))
            runs[at][follow].append(row)
    plans = [{"replayed": row, "runs": of} for row, of in zip(replayed, runs, strict=True)]
    return {"program": name, "about": program.about, "plans": plans}


def true_slow_share(places: Path) -> float:
    """As a program tells it of itself."""
    with places.open() as lines:
        rows = list(csv.DictReader(lines))
    return sum(float(row["slow"]) for row in rows) / sum(float(row["accesses"]) for row in rows)


def planned(tools: Tools, name: str, share: float) -> dict[str, Any]:
    """A plan for such a share of what was touched, and what it does when it is replayed."""
    row = placements(tools, name, share)
    (tools.folder / f"{name}.plan.json").rename(tools.folder / f"{name}.{row['fast_bytes']}.plan.json")
    return row


def ranged(shares: list[float]) -> str:
    """The median and the range."""
    return f"**{statistics.median(shares):.1%}** ({shares[0]:.1%} to {shares[-1]:.1%})" if shares else "not measured"


def table(found: list[dict[str, Any]]) -> str:
    """The page."""
    lines = [
        "| program | fast memory | pages follow | accesses to slow memory | told by the program itself | by first touch | replayed | "
        "moved | slices rested | runs |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for program in found:
        for plan in program["plans"]:
            replayed = plan["replayed"]
            for follow, runs in plan["runs"].items():
                shares = sorted(run["slow_share"] for run in runs if run["slow_share"] is not None)
                true = sorted(run["true_slow_share"] for run in runs if "true_slow_share" in run)
                still = sorted(run["first_touch_slow_share"] for run in runs if run["first_touch_slow_share"] is not None)
                rested = statistics.median(run["resting_slices"] / run["slices"] for run in runs)
                moved = statistics.median(run["moved_bytes"] for run in runs)
                # Of a live program the plan is followed too, where it is right.
                alone = replayed["plan+live" if follow == "live" else follow]
                fast = f"{replayed['fast_bytes'] / 2**20:.0f} of {replayed['touched_bytes'] / 2**20:.0f} MiB"
                cells = [program["program"], fast, FOLLOWED[follow], *map(ranged, (shares, true, still)), f"{alone:.1%}"]
                lines.append(f"| {' | '.join([*cells, f'{moved / 2**20:.0f} MiB', f'{rested:.0%}', str(len(runs))])} |")
    about = "; ".join(f"{program['program']}: {program['about']}" for program in found)
    return "\n".join(["Touched and fast, by program; " + about + ".", "", *lines]) + "\n"


def main() -> None:
    """Measures, and writes both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", type=Path, default=Path("target/release/tiermem"))
    parser.add_argument("--recordings", type=Path, default=Path("target/observe"))
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="which, by name")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fast-shares", default=FAST_SHARES, help="shares of what is touched that are fast")
    parser.add_argument("--out", type=Path, default=Path("docs/results/observe"))
    parser.add_argument("--short", action="store_true", help="one round of few tokens: to see that it runs")
    args = parser.parse_args()
    for folder in (args.recordings, args.out):
        folder.mkdir(parents=True, exist_ok=True)
    tools = Tools(args.tiermem.resolve(), args.recordings.resolve(), args.short)
    fast_shares = [float(share) for share in args.fast_shares.split(",")]
    found = [measured(tools, name, 1 if args.short else args.rounds, fast_shares) for name in args.programs.split(",")]
    (args.out / "placed.json").write_text(json.dumps(found, indent=1) + "\n")
    (args.out / "placed.md").write_text(table(found))
    print(table(found), end="")


if __name__ == "__main__":
    main()
