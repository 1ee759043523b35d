#!/usr/bin/env python3
"""What passes over memory cost in less DRAM than they need: by the kernel's swap as it comes, by its swap at its best, and steered by
tiermem, beside the time that fio needs for the bytes that cannot stay.

    experiments/pager/passes.py --tiermem target/release/tiermem --out docs/results/pager
    experiments/pager/passes.py --tiermem target/debug/tiermem --quick --out results

A round runs every arm once, and fio, in an order that turns by one with each round. An arm is `tiermem run --how swap|kernel` with the
machine's own settings, or --how swap with vm.page-cluster set and the device told as not rotating: swap then reads ahead by address, not by
place on the disk; or with swap on zram, or behind zswap, whose memory comes on top of the limit. `lru by granule` is a policy of tiermem's that
hears which granules were used. `nothing fetched` is steered without a prefetcher: its page faults take what being watched makes of them.

A sweep is judged by the median of its passes but the first, against what a pass has to move at least: the bytes that have no room, by fio
(256 KiB, depth 4, direct, same file system). With each page written they are written as well, half and half. Touches at random (256 MiB,
262144 touches, 80% of them to 30% of the pages, which are filled first, or last, or lie anywhere) are judged by seconds and major faults. Told are medians over the rounds, and all values.

It takes root, changes vm.page-cluster and the device's `rotational` and puts both back, also when it is killed. No other swap may be on.
Writes passes.csv, passes.json and passes.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shlex
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arms import AS_IT_COMES, BY_GRANULE, COMPRESSED, STEERED, TUNED, WATCHED, Arm, call
from machine import Settings, wait_for_no_swap

TOUCHES_OF_A_PAGE = 4
# In fio's runs there is nothing of the program: they say what the device can do.
FIO = ["fio", "--name=bound", "--bs=256k", "--iodepth=4", "--ioengine=libaio", "--direct=1", "--output-format=json"]


@dataclass(frozen=True)
class Workload:
    """A program beside the binary, with its flags, and how often its bytes go to the device and come from it."""

    name: str
    program: str
    flags: tuple[str, ...]
    fio: str | None


WORKLOADS = (
    Workload("sweep", "sweep", (), "read"),
    Workload("sweep, written", "sweep", ("--write",), "rw"),
    Workload("touches", "touches", (), None),
    Workload("touches, filled last", "touches", ("--hot-from", "70"), None),
    Workload("touches, scattered", "touches", ("--scattered",), None),
)
ARMS = (AS_IT_COMES, *TUNED, STEERED, WATCHED, BY_GRANULE, *COMPRESSED)


@dataclass(frozen=True)
class Setting:
    """Where, how much, and with what."""

    tiermem: Path
    folder: Path
    size_mib: int
    passes: int
    touch_pages: int

    def mib(self, workload: Workload) -> int:
        """What a workload needs."""
        return self.size_mib if workload.program == "sweep" else self.touch_pages // 256


def program(setting: Setting, workload: Workload) -> list[str]:
    """The command of a workload."""
    path = str(setting.tiermem.parent / workload.program)
    if workload.program == "sweep":
        return [path, "--size", f"{setting.size_mib}MiB", "--passes", str(setting.passes), *workload.flags]
    touches = setting.touch_pages * TOUCHES_OF_A_PAGE
    return [path, "--pages", str(setting.touch_pages), "--touches", str(touches), *workload.flags]


def paged(setting: Setting, settings: Settings, workload: Workload, dram_mib: int, arm: Arm) -> list[str]:
    """The command that runs it in less DRAM. Flash for all of it twice, so that none runs out."""
    limits = ["--dram", f"{dram_mib}MiB", "--flash", settings.flash(arm, setting.folder, 2 * setting.mib(workload))]
    return [str(setting.tiermem), "run", "--how", arm.how, *arm.steering, *limits, "--", *program(setting, workload)]


def bound(setting: Setting, workload: Workload, dram_mib: int) -> list[str]:
    """The command of fio that moves what cannot stay."""
    left_mib = setting.size_mib - dram_mib
    total_mib = left_mib * (2 if workload.fio == "rw" else 1)
    file = setting.folder / f"passes-bound-{os.getpid()}"
    return [*FIO, f"--filename={file}", f"--rw={workload.fio}", f"--size={left_mib}m", f"--io_size={total_mib}m"]


def measure_bound(command: list[str]) -> dict[str, Any]:
    """Seconds of fio. The file is written before, which fio does not count."""
    told = json.loads(call(command))["jobs"][0]
    return {"seconds": told["job_runtime"] / 1000, "values": [told["job_runtime"] / 1000]}


def measure_arm(command: list[str], workload: Workload) -> dict[str, Any]:
    """What the program says of itself, and what the report says of it."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        at = command.index("--")
        out = call([*command[:at], "--format", "json", "--report", report.name, *command[at:]])
        told = json.loads(Path(report.name).read_text())
    values, faults = told_by_program(out)
    # The first pass finds what filling has left.
    counted = values[1:] if workload.program == "sweep" and len(values) > 1 else values
    row = {"seconds": statistics.median(counted), "values": values, "major_faults": faults}
    for field in ("fault_p50_us", "fault_p99_us", "read_bytes", "written_bytes", "system_s", "pager_cpu_s", "how"):
        row[field] = told.get(field)
    return row


def told_by_program(out: str) -> tuple[list[float], int]:
    """Seconds, of passes or of all touches, and major faults."""
    found = re.search(r"(?:passes((?: [\d.]+)+) s|pages, ([\d.]+) s), major faults (\d+), checksum \w+ ok$", out.strip())
    if not found:
        sys.exit(f"the program said something else: {out}")
    return [float(it) for it in (found[1] or found[2]).split()], int(found[3])


def rounds(setting: Setting, settings: Settings, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each run."""
    workloads = [it for it in WORKLOADS if it.name in args.workloads]
    for turn in range(args.rounds):
        for workload in workloads:
            for overcommit in args.overcommit:
                size_mib = setting.mib(workload)
                dram_mib = round(size_mib / overcommit)
                # Who comes first changes, and with it who meets the machine as it was at that moment.
                arms: list[Arm | None] = [*args.arms, *([None] if workload.fio else [])]
                at = turn % len(arms)
                for arm in arms[at:] + arms[:at]:
                    row = {"workload": workload.name, "overcommit": overcommit, "dram_mib": dram_mib, "size_mib": size_mib}
                    if arm is None:
                        command = bound(setting, workload, dram_mib)
                        row |= {"arm": "fio", "round": turn + 1, "command": shlex.join(command), **measure_bound(command)}
                        Path(command[len(FIO)].removeprefix("--filename=")).unlink(missing_ok=True)
                    else:
                        wait_for_no_swap()
                        command = paged(setting, settings, workload, dram_mib, arm)
                        settings.use(arm)
                        row |= {"arm": arm.name, "round": turn + 1, "command": shlex.join(command), **measure_arm(command, workload)}
                        settings.put_back()
                    yield row


def table(rows: list[dict[str, Any]]) -> str:
    """Medians, all values, and how each arm stands to fio and to swap as it comes and at its best."""
    lines = [
        "| workload | R | arm | seconds | all values | of fio's | of swap as it comes | of swap at its best | major faults | a fault, p50, us |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    cells: dict[tuple[str, float], dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        cells.setdefault((row["workload"], row["overcommit"]), {}).setdefault(row["arm"], []).append(row)
    for (workload, overcommit), by_arm in cells.items():
        seconds = {arm: statistics.median(run["seconds"] for run in runs) for arm, runs in by_arm.items()}
        on_disk = [it.name for it in ARMS if it.how == "swap" and not it.compressed]
        swaps = [seconds[arm] for arm in seconds if arm in on_disk]
        against = (seconds.get("fio"), seconds.get(ARMS[0].name), min(swaps, default=None))
        for arm in ("fio", *(it.name for it in ARMS)):
            if arm not in by_arm:
                continue
            runs = by_arm[arm]
            faults = [run["major_faults"] for run in runs if run.get("major_faults") is not None]
            values = ", ".join(f"{run['seconds']:.3f}" for run in sorted(runs, key=lambda run: run["round"]))
            ratios = [f"{seconds[arm] / rival:.2f} x" if rival else "" for rival in against]
            counted = f"{statistics.median(faults):.0f}" if faults else ""
            times = [run["fault_p50_us"] for run in runs if run.get("fault_p50_us") is not None]
            time_us = f"{statistics.median(times):.1f}" if times else ""
            line = [workload, f"{overcommit:g}", arm, f"**{seconds[arm]:.3f}**", values, *ratios, counted, time_us]
            lines.append(f"| {' | '.join(line)} |")
    return "\n".join(lines) + "\n"


def page(rows: list[dict[str, Any]], setting: Setting, settings: Settings) -> str:
    """The table, the machine's settings, and the commands."""
    found = {str(path): value for path, value in settings.found.items()}
    commands = dict.fromkeys(f"# {row['arm']}\n{row['command']}" for row in rows if row["round"] == 1)
    about = (
        f"Sweeps of {setting.size_mib} MiB, whose seconds are the median of the passes but the first; touches of "
        f"{setting.touch_pages // 256} MiB, as a whole. Medians over the rounds, with the values of each; passes.csv has all. "
        f"Settings as found: {json.dumps(found)}."
    )
    return f"{about}\n\n{table(rows)}\n```\n" + "\n".join(commands) + "\n```\n"


def write(rows: list[dict[str, Any]], out: Path, text: str) -> None:
    """All three files, after each round, so that little is lost."""
    fields = list(dict.fromkeys(field for row in rows for field in row))
    with (out / "passes.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fields)
        writer.writeheader()
        for row in rows:
            writer.writerow(row | {"values": " ".join(map(str, row["values"]))})
    (out / "passes.json").write_text(json.dumps(rows, indent=1) + "\n")
    (out / "passes.md").write_text(text)


def options() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", type=Path, default=Path("target/release/tiermem"), help="its workloads lie beside it")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where swap files and fio's file lie: ext4 or xfs")
    parser.add_argument("--overcommit", type=float, nargs="+", default=[2, 4], metavar="R")
    parser.add_argument("--workloads", nargs="+", choices=[it.name for it in WORKLOADS], default=[it.name for it in WORKLOADS])
    parser.add_argument("--arms", nargs="+", choices=[it.name for it in ARMS], default=[it.name for it in ARMS])
    parser.add_argument("--rounds", type=int, help="5, or 1 with --quick")
    parser.add_argument("--size-mib", type=int, help="1024, or 96 with --quick")
    parser.add_argument("--passes", type=int, help="5, or 3 with --quick")
    parser.add_argument("--touch-pages", type=int, help="65536, or 16384 with --quick; each is touched 4 times on average")
    parser.add_argument("--quick", action="store_true", help="little memory, one round: to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("docs/results/pager"))
    args = parser.parse_args()
    for name, full, quick in (("rounds", 5, 1), ("size_mib", 1024, 96), ("passes", 5, 3), ("touch_pages", 65_536, 16_384)):
        if getattr(args, name) is None:
            setattr(args, name, quick if args.quick else full)
    args.arms = [it for it in ARMS if it.name in args.arms]
    return args


def main() -> None:
    """Measures, and writes the files."""
    args = options()
    if os.geteuid() != 0:
        sys.exit("run it as root: it turns swap on and changes settings of the machine")
    if not shutil.which("fio"):
        sys.exit("fio is not installed")
    setting = Setting(Path(os.path.relpath(args.tiermem)), args.folder.resolve(), args.size_mib, args.passes, args.touch_pages)
    args.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with Settings(setting.folder, arms=args.arms) as settings:
        for row in rounds(setting, settings, args):
            rows.append(row)
            told = f"{row['workload']}, R = {row['overcommit']:g}, {row['arm']}, round {row['round']}"
            print(f"{told}: {row['seconds']:.3f} s", flush=True)
            write(rows, args.out, page(rows, setting, settings))
    print(table(rows))


if __name__ == "__main__":
    main()
