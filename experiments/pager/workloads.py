#!/usr/bin/env python3
"""What real programs lose in less DRAM than they need (Yang 2024, chapter 4): by the kernel's swap as it comes, by its swap at its best,
steered by tiermem, and by the engine's own limit.

    experiments/pager/workloads.py --tiermem target/release/tiermem --out docs/results/pager
    experiments/pager/workloads.py --tiermem target/debug/tiermem --quick --workloads build --out results

For each workload of workloads.toml:

1. It runs once in all DRAM. `required_bytes` of the report is req_m of the seed's equation 4.1: the DRAM at R is req_m / R.
2. At R = 2 it runs once under each setting of swap (vm.page-cluster 0, 3, 5, 6, the device told as not rotating); the best one is *swap at
   its best* from then on.
3. In each of three rounds every arm runs at every R, in an order that turns by one with each round. R = 1 is all DRAM, as the seed has it.
   Told are means over the rounds, and all values.

An arm is `tiermem run --how swap|kernel`; `engine` is a database whose own limit is set to the DRAM, under the same limit. The file cache is
charged to the limit; files that a run reads are dropped from the cache before it. Every run's result is compared with the first's; a program
that fails, or another result, ends the measurement.

It takes root, changes vm.page-cluster and the device's `rotational` and puts both back, also when it is killed. No other swap may be on.
Programs are fetched into --programs and found there from then on; a workload whose program cannot be had is skipped, with the reason.
Writes workloads.csv, workloads.json, workloads.md and workloads.svg, after each run. With --resume it goes on where it was ended.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib

import kinds
import tables
from arms import AS_IT_COMES, AT_ITS_BEST, ENGINE, STEERED, TUNED, Arm
from kinds.contract import Outcome, Place, TooSmall, Workload
from machine import Settings, wait_for_no_swap
from paged import Failed, Paging
from programs import Programs, Unavailable

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OVERCOMMIT = (1.0, 1.5, 2.0, 3.0, 4.0)
# At which the best setting of swap is chosen.
CHOICE_AT = 2.0
LIMITED = Arm(ENGINE, "swap")
# Of the memory that is free: what a run in all DRAM may take.
FULL_SHARE = 0.8
LEAST_FLASH_MIB = 16
MIB = 1 << 20


@dataclass(frozen=True)
class Bench:
    """Where and with what all runs are made."""

    place: Place
    settings: Settings
    folder: Path
    full_bytes: int

    def run(self, workload: Workload, arm: Arm, overcommit: float, required_bytes: int | None) -> tuple[Outcome, Paging]:
        """One run. Flash for all of it twice, so that none runs out."""
        scratch = self.place.scratch
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        if overcommit == 1:
            # Little flash, as some machines page out by themselves what idles.
            flash_mib = LEAST_FLASH_MIB
            words = ["--dram", f"{self.full_bytes // MIB}MiB"]
        else:
            flash_mib = LEAST_FLASH_MIB + 2 * (required_bytes or 0) // MIB
            words = ["--overcommit", f"{overcommit:g}", "--required", f"{required_bytes}B"]
        start = [str(self.place.tiermem), "run", "--how", arm.how, *words, "--flash", f"{self.folder}={flash_mib}MiB"]
        paging = Paging([*start, "--format", "json"], scratch)
        engine_bytes = round(required_bytes / overcommit) if arm == LIMITED and required_bytes else None
        wait_for_no_swap()
        workload.forget()
        self.settings.use(arm)
        try:
            return workload.run(paging, engine_bytes), paging
        finally:
            self.settings.put_back()
            shutil.rmtree(scratch, ignore_errors=True)


# What makes a run of a workload one of its own: phase, round, R and arm.
RUN = ("workload", "phase", "round", "overcommit", "arm")


def measured(
    bench: Bench,
    name: str,
    about: dict[str, Any],
    workload: Workload,
    args: argparse.Namespace,
    refused: dict[tuple[str, float], str],
    done: dict[tuple[Any, ...], dict[str, Any]],
) -> Iterator[dict[str, Any]]:
    """A row for each run of a workload, those that were `done` before among them. An engine that cannot work in so little is told in
    `refused`.
    """
    expected: list[str] = []

    def row(phase: str, turn: int, arm: Arm, overcommit: float, required_bytes: int | None) -> dict[str, Any]:
        if before := done.get((name, phase, turn, overcommit, arm.name)):
            expected.append(before["result"])
            return before
        outcome, paging = bench.run(workload, arm, overcommit, required_bytes)
        expected.append(outcome.result)
        if outcome.result != expected[0]:
            raise Failed(f"{name}, {arm.name}, R = {overcommit:g}: the result is {outcome.result}, and was {expected[0]} in all DRAM")
        # As it is typed in the repository's folder.
        command = paging.command.replace(f"{ROOT}/", "").replace(sys.executable, "python3").replace(bench.place.scratch.name, "scratch")
        told = {"workload": name, "phase": phase, "round": turn, "overcommit": overcommit, "arm": arm.name}
        told |= {"performance": outcome.performance, "unit": about["unit"], "result": outcome.result}
        return told | paging.report | {"required_bytes": required_bytes or paging.report["required_bytes"], "command": command}

    first = row("required", 0, AS_IT_COMES, 1, None)
    yield first
    required_bytes = first["required_bytes"]
    best = TUNED[0]
    if not args.only_as_it_comes:
        choice = []
        for arm in TUNED:
            choice.append(row("choice", 0, arm, CHOICE_AT, required_bytes))
            yield choice[-1]
        key = max if about["better"] == "more" else min
        found = key(choice, key=lambda it: it["performance"])
        best = next(arm for arm in TUNED if arm.name == found["arm"])
    tuned = Arm(AT_ITS_BEST, best.how, best.page_cluster, best.rotational)
    for turn in range(args.rounds):
        for overcommit in args.overcommit:
            # At R = 1 nothing is in swap, so its settings are of no consequence, nor has the engine less than it needs.
            arms = [AS_IT_COMES, STEERED]
            if overcommit > 1:
                arms += [] if args.only_as_it_comes else [tuned]
                arms += [LIMITED] if workload.has_engine else []
            at = turn % len(arms)
            for arm in arms[at:] + arms[:at]:
                try:
                    yield row("measured", turn + 1, arm, overcommit, required_bytes)
                except TooSmall as refusal:
                    # Also a result, and the same in each round.
                    refused[name, overcommit] = str(refusal)


def size(text: str) -> tuple[str, int]:
    """Of the command line: one size of a workload."""
    name, equals, number = text.partition("=")
    if not (name and equals and number.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as seconds=20")
    return name, int(number)


def options(data: dict[str, Any]) -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", type=Path, default=Path("target/release/tiermem"))
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where swap files lie: ext4 or xfs")
    parser.add_argument("--programs", type=Path, default=ROOT / "target" / "pager-programs", help="where programs and data are kept")
    parser.add_argument("--workloads", nargs="+", choices=list(data), default=list(data))
    parser.add_argument(
        "--size", nargs="+", type=size, default=[], metavar="NAME=NUMBER", help="other sizes than those of workloads.toml: seconds=20"
    )
    parser.add_argument("--overcommit", type=float, nargs="+", default=list(OVERCOMMIT), metavar="R")
    parser.add_argument("--rounds", type=int, help="3, or 1 with --quick")
    parser.add_argument("--full-dram-mib", type=int, help="DRAM at R = 1 [default: 80%% of what is free]")
    parser.add_argument("--only-as-it-comes", action="store_true", help="without the settings of swap at its best")
    parser.add_argument("--swap-patience-s", type=float, default=0, help="how long to wait until no swap is on, before it is refused")
    parser.add_argument("--resume", action="store_true", help="go on where OUT/workloads.json ends; it is for the same sizes on one machine")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("docs/results/pager"))
    args = parser.parse_args()
    args.rounds = args.rounds if args.rounds is not None else 1 if args.quick else 3
    if args.rounds < 1:
        parser.error("--rounds takes at least 1")
    if any(it < 1 for it in args.overcommit):
        parser.error("--overcommit takes ratios of at least 1: the memory that is needed over the DRAM that is given")
    # All is told in relation to all DRAM.
    args.overcommit = sorted({1.0, *args.overcommit})
    if not args.tiermem.is_file():
        parser.error(f"{args.tiermem} is not there: build it (cargo build --release -p tiermem-cli), or name another with --tiermem")
    return args


def free_bytes() -> int:
    """Memory that programs can have without swap."""
    line = next(it for it in Path("/proc/meminfo").read_text().splitlines() if it.startswith("MemAvailable:"))
    return int(line.split()[1]) << 10


def main() -> None:
    """Measures, and writes the files."""
    data = tomllib.loads((HERE / "workloads.toml").read_text())
    args = options(data)
    if os.geteuid() != 0:
        sys.exit("run it as root: it turns swap on and changes settings of the machine")
    wait_for_no_swap(args.swap_patience_s)
    scratch = args.programs.absolute() / f"scratch-{os.getpid()}"
    place = Place(Programs(args.programs), args.programs.absolute() / "data", scratch, args.tiermem.resolve())
    full_bytes = args.full_dram_mib * MIB if args.full_dram_mib else int(free_bytes() * FULL_SHARE)
    args.out.mkdir(parents=True, exist_ok=True)
    before = args.out / "workloads.json"
    done = {tuple(row[it] for it in RUN): row for row in (json.loads(before.read_text()) if args.resume and before.exists() else ())}
    rows: list[dict[str, Any]] = []
    skipped: dict[str, str] = {}
    refused: dict[tuple[str, float], str] = {}
    with Settings(args.folder.resolve(), scratch) as settings:
        bench = Bench(place, settings, args.folder.resolve(), full_bytes)
        for name in args.workloads:
            sizes = data[name]["quick" if args.quick else "full"]
            if unknown := [key for key, _ in args.size if key not in sizes]:
                sys.exit(f"{name} has no size {unknown[0]}; it has {', '.join(sizes)}")
            sizes.update(args.size)
            workload = kinds.ALL[name](place, sizes)
            scratch.mkdir(parents=True, exist_ok=True)
            try:
                workload.prepare()
                for row in measured(bench, name, data[name], workload, args, refused, done):
                    rows.append(row)
                    if tuple(row[it] for it in RUN) in done:
                        continue
                    told = f"{name}, {row['phase']}, R = {row['overcommit']:g}, {row['arm']}, round {row['round']}"
                    print(f"{told}: {row['performance']:.3f} {row['unit']}, {row['major_faults']} major faults", flush=True)
                    tables.write(rows, data, args, tables.Notes(skipped, refused, settings.found))
            except Unavailable as missing:
                skipped[name] = str(missing)
                print(f"{name} is skipped: {missing}", file=sys.stderr, flush=True)
            except Failed as failure:
                sys.exit(f"{name}: {failure}")
    tables.write(rows, data, args, tables.Notes(skipped, refused, settings.found))
    print(tables.table(rows, data))


if __name__ == "__main__":
    main()
