#!/usr/bin/env python3
"""What recording costs a program: the same work alone and while it is recorded, in pairs that take turns at who goes first.

    experiments/observe/cost.py --tiermem target/release/tiermem --out docs/results/observe
    experiments/observe/cost.py --tiermem target/debug/tiermem --short --out results

Each program does a fixed amount of work over its memory. Told are the medians of the pairs' ratios, of real time and of the
program's processor time (user and system, of it alone), and what the recorder itself took of one processor. Rounds in which the
machine was busy with something else tell nothing: run it on a quiet one. Writes cost.json and cost.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Case:
    """One setting of the recorder on one program, and what it may cost; 0 if nobody says."""

    name: str
    wanted_percent: int
    program: list[str]
    record: list[str]


def cases(bin_dir: Path, short: bool) -> list[Case]:
    """Random words are the worst for the processor's translations, which clearing bits throws away; a product reads on and on."""
    gib, part = ("64MiB", "16MiB") if short else ("1GiB", "256MiB")
    accesses, repeat, rows = (20_000_000, 200, 1500) if short else (150_000_000, 60, 11500)
    words = [str(bin_dir / "random"), "--footprint", str(size(gib)), "--accesses", str(accesses)]
    fewer = [str(bin_dir / "random"), "--footprint", str(size(part)), "--accesses", str(accesses)]
    product = [sys.executable, str(HERE / "programs/matvec.py"), "--size", str(rows), "--repeat", str(repeat)]
    beside = [str(bin_dir / "random"), "--footprint", str(size(part)), "--accesses", str(accesses // 4)]
    many, waits = (10, 0.5) if short else (250, 12)
    four = f"for each in 1 2 3 4; do {shlex.join(beside)} & done; wait"
    waiting = f"for each in $(seq {many}); do sleep {waits} & done; {shlex.join(words)}; wait"
    brief = f"for each in $(seq {many * 8}); do /bin/true; done"
    slices = ["--slice", "50ms" if short else "1s", "--granule"]
    return [
        Case(f"random words of {gib}, granules of 4 MiB", 3, words, [*slices, "4MiB"]),
        Case(f"matrix by vector, {gib}, granules of 4 MiB", 3, product, [*slices, "4MiB"]),
        Case(f"random words of {part}, granules of 64 KiB", 10, fewer, [*slices, "64KiB"]),
        Case(f"four processes, random words of {part} each, granules of 4 MiB", 3, ["sh", "-c", four], [*slices, "4MiB"]),
        Case(f"random words of {gib} beside {many} processes that wait, 4 MiB", 3, ["sh", "-c", waiting], [*slices, "4MiB"]),
        Case(f"{many * 8} processes one after the other, each of a millisecond", 0, ["sh", "-c", brief], [*slices, "4MiB"]),
        Case(f"random words of {gib}, 64 KiB in slices of 100 ms", 0, words, ["--slice", "100ms", "--granule", "64KiB"]),
    ]


def size(text: str) -> int:
    """Of a size such as 64MiB."""
    return int(text[:-3]) << {"KiB": 10, "MiB": 20, "GiB": 30}[text[-3:]]


def alone(program: list[str]) -> dict[str, float]:
    """A run by itself."""
    begun = time.perf_counter()
    child = subprocess.Popen(program, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = status
    if status:
        raise SystemExit(f"{program[0]} failed")
    return {"real_s": time.perf_counter() - begun, "processor_s": used.ru_utime + used.ru_stime}


def recorded(tiermem: Path, case: Case) -> dict[str, float]:
    """The same under the recorder: real time is all that its user waits for, so what writes the recording is in it."""
    with tempfile.TemporaryDirectory() as folder:
        out, report = f"{folder}/cost.rec", Path(folder) / "report"
        command = [str(tiermem), "record", *case.record, "--format", "json", "--report", str(report), "-o", out, "--", *case.program]
        begun = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        real_s = time.perf_counter() - begun
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}: {done.stderr}")
        summary = json.loads(report.read_text())[0]
    recorder_s = summary["recorder_cpu_s"]
    return {"real_s": real_s, "processor_s": summary["program_cpu_s"], "recorder_s": recorder_s, "slices": summary["slices"]}


def pairs(tiermem: Path, case: Case, rounds: int) -> dict[str, Any]:
    """So many pairs, each the other way round than the one before."""
    both: dict[str, list[dict[str, float]]] = {"alone": [], "recorded": []}
    runs = [("alone", lambda: alone(case.program)), ("recorded", lambda: recorded(tiermem, case))]
    for turn in range(rounds):
        for name, run in runs if turn % 2 == 0 else reversed(runs):
            both[name].append(run())
    row: dict[str, Any] = {"case": case.name, "wanted_percent": case.wanted_percent, "rounds": rounds}
    for key in ("real_s", "processor_s"):
        ratios = sorted(100 * (b[key] / a[key] - 1) for a, b in zip(both["alone"], both["recorded"], strict=True))
        row[key.replace("_s", "_percent")] = {"median": statistics.median(ratios), "least": ratios[0], "most": ratios[-1]}
    row["alone_s"] = statistics.median(run["real_s"] for run in both["alone"])
    row["recorder_percent"] = statistics.median(100 * run["recorder_s"] / run["real_s"] for run in both["recorded"])
    row["slices"] = statistics.median(run["slices"] for run in both["recorded"])
    return row


def spread(of: dict[str, float]) -> str:
    """A median, and from where to where."""
    return f"**{of['median']:+.1f}%** ({of['least']:+.1f} to {of['most']:+.1f})"


def table(rows: list[dict[str, Any]]) -> str:
    """The page."""
    lines = [
        "| case | wanted | real time | processor time | recorder, of one processor | alone | pairs |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        wanted = f"at most {row['wanted_percent']}%" if row["wanted_percent"] else ""
        cells = [row["case"], wanted, spread(row["real_percent"]), spread(row["processor_percent"])]
        cells += [f"{row['recorder_percent']:.1f}%", f"{row['alone_s']:.1f} s", str(row["rounds"])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measures, and writes both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", type=Path, default=Path("target/release/tiermem"), help="its workloads lie beside it")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("docs/results/observe"))
    parser.add_argument("--short", action="store_true", help="little work: to see that it runs")
    args = parser.parse_args()
    tiermem = args.tiermem.resolve()
    rows = []
    for case in cases(tiermem.parent, args.short):
        rows.append(pairs(tiermem, case, 1 if args.short else args.rounds))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "cost.json").write_text(json.dumps(rows, indent=1) + "\n")
    (args.out / "cost.md").write_text(table(rows))


if __name__ == "__main__":
    main()
