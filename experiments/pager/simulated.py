#!/usr/bin/env python3
"""Page faults of live programs beside those that `tiermem sim frames` foretells for them.

    experiments/pager/simulated.py --tiermem target/release/tiermem --out docs/results/pager
    experiments/pager/simulated.py --tiermem target/debug/tiermem --quick --out results

Five programs, of which every touch of a page is known beforehand, have half of their memory as DRAM. Each runs under each policy: --evict kernel
leaves the choice to the kernel's reclaim, others decide by what the pager hears. Nothing is fetched ahead, by tiermem or by the kernel
(vm.page-cluster 0). The same touches, and the filling before them, go through `tiermem sim frames` with the same policy. Live faults are the
program's own major faults while it touches; simulated ones are those of the whole trace, of which filling has none.

A live program needs DRAM besides its pages, for page tables and libraries. It is measured with all the DRAM that it can use, and added to
--dram. A ratio is live faults over simulated ones; told is the median over the rounds, with all values.

It takes root, changes vm.page-cluster and puts it back, also when it is killed. No other swap may be on. Writes simulated.csv, simulated.json and
simulated.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shlex
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arms import Arm, call
from machine import Settings, wait_for_no_swap
from passes import TOUCHES_OF_A_PAGE, told_by_program

MIB = 1 << 20
PAGE_BYTES = 4096
PAGES_OF_A_MIB = MIB // PAGE_BYTES
# Nothing is fetched ahead or dropped behind, so that a policy alone decides.
PLAIN = ["--prefetch", "none"]
NOTHING_AHEAD = Arm("nothing is read ahead", "kernel", page_cluster=0)
WANTED = 0.1


@dataclass(frozen=True)
class Program:
    """A program beside the binary, and its flags."""

    name: str
    program: str
    flags: tuple[str, ...]


PROGRAMS = (
    Program("sweep", "sweep", ()),
    Program("touches", "touches", ()),
    Program("touches, scattered", "touches", ("--scattered",)),
    Program("touches, written", "touches", ("--writes", "30")),
    Program("touches, all alike", "touches", ("--hot-pages", "100")),
)


@dataclass(frozen=True)
class Setting:
    """Where, how much, and with what."""

    tiermem: Path
    folder: Path
    pages: int
    passes: int


def command(setting: Setting, program: Program) -> list[str]:
    """The command of a program."""
    path = str(setting.tiermem.parent / program.program)
    if program.program == "sweep":
        return [path, "--size", str(setting.pages * PAGE_BYTES), "--passes", str(setting.passes), "--small-pages", *program.flags]
    touches = ["--pages", str(setting.pages), "--touches", str(setting.pages * TOUCHES_OF_A_PAGE)]
    return [path, *touches, "--small-pages", *program.flags]


def order(setting: Setting, program: Program) -> Iterator[tuple[int, bool]]:
    """Pages that it touches after it has filled them, and whether it writes them."""
    if program.program == "sweep":
        for _ in range(setting.passes):
            yield from ((page, False) for page in range(setting.pages))
        return
    for line in call([*command(setting, program), "--order"]).splitlines():
        page, *written = line.split()
        yield int(page), bool(written)


def write_trace(setting: Setting, program: Program, path: Path) -> None:
    """Filling, then its touches, in the form of MSR Cambridge."""
    with path.open("w") as file:
        filling = ((page, True) for page in range(setting.pages))
        for touches in (filling, order(setting, program)):
            for page, written in touches:
                kind = "Write" if written else "Read"
                file.write(f"128166372003061629,host,0,{kind},{page * PAGE_BYTES},{PAGE_BYTES},100\n")


def paged(setting: Setting, program: Program, dram_bytes: int, evict: str) -> list[str]:
    """The command that runs it in so much DRAM. Flash for all of it three times: swap that is half full gives up copies of pages."""
    flash_mib = 3 * setting.pages // PAGES_OF_A_MIB
    limits = ["--dram", str(dram_bytes), "--flash", f"{setting.folder}={flash_mib}MiB"]
    steering = ["--how", "kernel", "--evict", evict, *PLAIN, "--drop-behind", "off"]
    return [str(setting.tiermem), "run", *limits, *steering, "--", *command(setting, program)]


def run_live(paged_command: list[str]) -> tuple[int, dict[str, Any]]:
    """The program's own major faults, and what the report says."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        at = paged_command.index("--")
        out = call([*paged_command[:at], "--format", "json", "--report", report.name, *paged_command[at:]])
        return told_by_program(out)[1], json.loads(Path(report.name).read_text())


def besides_bytes(setting: Setting, program: Program) -> int:
    """What it is charged besides its pages."""
    _, told = run_live(paged(setting, program, 4 * setting.pages * PAGE_BYTES, "kernel"))
    return max(told["charged_peak_bytes"] - setting.pages * PAGE_BYTES, 0)


def simulated_command(setting: Setting, trace: Path, evicts: list[str]) -> list[str]:
    """The command that simulates all policies; what a policy of tiermem hears is what the live pager does."""
    policies = [word for evict in evicts for word in ("--evict", evict)]
    dram = ["--dram", str(setting.pages // 2 * PAGE_BYTES), "--references", "faults"]
    return [str(setting.tiermem), "sim", "frames", str(trace), *dram, *policies, *PLAIN, "--format", "json"]


def rows(setting: Setting, settings: Settings, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each run, with what was simulated."""
    for program in (it for it in PROGRAMS if it.name in args.programs):
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / f"{program.name.replace(', ', '-').replace(' ', '-')}.csv"
            write_trace(setting, program, trace)
            simulation = simulated_command(setting, trace, args.evict)
            simulated = {row["evict"]: row for row in json.loads(call(simulation))}
        wait_for_no_swap()
        besides = besides_bytes(setting, program)
        dram_bytes = setting.pages // 2 * PAGE_BYTES + besides
        for turn in range(args.rounds):
            at = turn % len(args.evict)
            for evict in args.evict[at:] + args.evict[:at]:
                live = paged(setting, program, dram_bytes, evict)
                wait_for_no_swap()
                settings.use(NOTHING_AHEAD)
                faults, told = run_live(live)
                settings.put_back()
                foretold = simulated[evict]
                yield {
                    "program": program.name,
                    "evict": evict,
                    "round": turn + 1,
                    "pages": setting.pages,
                    "dram_bytes": dram_bytes,
                    "besides_bytes": besides,
                    "faults": faults,
                    "simulated": foretold["faults"],
                    "simulated_low": foretold["faults_low"],
                    "simulated_high": foretold["faults_high"],
                    "ratio": faults / foretold["faults"],
                    "kernel_evicted_pages": told["kernel_evicted_pages"],
                    "events_lost": told["events_lost"],
                    "command": shlex.join(live),
                    "simulation": shlex.join(simulation).replace(folder, "."),
                }


def table(found: list[dict[str, Any]]) -> str:
    """Medians of the ratios, with all values."""
    lines = [
        "| program | evict | live faults | all values | simulated | low | high | ratio | within 10% |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in found:
        cells.setdefault((row["program"], row["evict"]), []).append(row)
    for (program, evict), runs in cells.items():
        ratio = statistics.median(run["ratio"] for run in runs)
        values = ", ".join(str(run["faults"]) for run in sorted(runs, key=lambda run: run["round"]))
        foretold = [str(runs[0][field]) for field in ("simulated", "simulated_low", "simulated_high")]
        faults = f"{statistics.median(run['faults'] for run in runs):.0f}"
        holds = "yes" if abs(ratio - 1) <= WANTED else "no"
        lines.append(f"| {' | '.join([program, evict, faults, values, *foretold, f'**{ratio:.2f}**', holds])} |")
    return "\n".join(lines) + "\n"


def page(found: list[dict[str, Any]], setting: Setting) -> str:
    """The table, and the commands."""
    commands = dict.fromkeys(row[field] for row in found if row["round"] == 1 for field in ("simulation", "command"))
    about = (
        f"Programs with {setting.pages} pages ({setting.pages // PAGES_OF_A_MIB} MiB) in half of that; DRAM for what they have besides is "
        "added live. Medians over the rounds, with the values of each; simulated.csv has all."
    )
    return f"{about}\n\n{table(found)}\n```\n" + "\n".join(commands) + "\n```\n"


def write(found: list[dict[str, Any]], out: Path, text: str) -> None:
    """All three files, after each run, so that little is lost."""
    with (out / "simulated.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(found[0]))
        writer.writeheader()
        writer.writerows(found)
    (out / "simulated.json").write_text(json.dumps(found, indent=1) + "\n")
    (out / "simulated.md").write_text(text)


def options() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", type=Path, default=Path("target/release/tiermem"), help="its workloads lie beside it")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where swap files lie: ext4 or xfs")
    names = [it.name for it in PROGRAMS]
    parser.add_argument("--programs", nargs="+", choices=names, default=names)
    parser.add_argument("--evict", nargs="+", default=["kernel", "lru", "clock", "s3-fifo"], metavar="NAME")
    parser.add_argument("--rounds", type=int, help="5, or 1 with --quick")
    parser.add_argument("--pages", type=int, help="65536, or 16384 with --quick; touches are 4 times as many")
    parser.add_argument("--passes", type=int, default=4, help="of sweeps")
    parser.add_argument("--quick", action="store_true", help="little memory, one round: to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("docs/results/pager"))
    args = parser.parse_args()
    for name, full, quick in (("rounds", 5, 1), ("pages", 65_536, 16_384)):
        if getattr(args, name) is None:
            setattr(args, name, quick if args.quick else full)
    return args


def main() -> None:
    """Measures, and writes the files."""
    args = options()
    if os.geteuid() != 0:
        sys.exit("run it as root: it turns swap on and changes settings of the machine")
    setting = Setting(Path(os.path.relpath(args.tiermem)), args.folder.resolve(), args.pages, args.passes)
    args.out.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, Any]] = []
    with Settings(setting.folder) as settings:
        for row in rows(setting, settings, args):
            found.append(row)
            told = f"{row['faults']} live, {row['simulated']} simulated, ratio {row['ratio']:.3f}"
            print(f"{row['program']}, {row['evict']}, round {row['round']}: {told}", flush=True)
            write(found, args.out, page(found, setting))
    print(table(found))


if __name__ == "__main__":
    main()
