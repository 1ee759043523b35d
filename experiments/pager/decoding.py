#!/usr/bin/env python3
"""A language model decodes in half of the memory that it needs: llama.cpp without mmap, by swap, steered by tiermem, and with a plan.

    experiments/pager/decoding.py --tiermem target/release/tiermem --out docs/results/pager
    experiments/pager/decoding.py --tiermem target/debug/tiermem --quick --out results

The model has random weights (observe/make_gguf.py); each token passes over all of them. First it runs in all DRAM, which tells what it needs;
then it is recorded, and `tiermem plan --for pager` makes a plan for the DRAM at R. A round runs every arm once, and fio for the bytes of a
token that cannot stay, in an order that turns by one with each round. Told are seconds a token, the median of a run's tokens but the first two;
medians over the rounds, and all values. Every run must decode the same last token.

It takes root, changes vm.page-cluster and the device's `rotational` and puts both back. No other swap may be on. llama-cpp-python is built from
PyPI's source package, in about six minutes on two cores. Writes decoding.json and decoding.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from arms import AS_IT_COMES, STEERED, TUNED, Arm, call
from machine import Settings, wait_for_no_swap
from paged import Failed, Paging
from passes import FIO, measure_bound
from programs import Programs, Unavailable
from workloads import FULL_SHARE, LEAST_FLASH_MIB, MIB, ROOT, free_bytes

PLANNED = Arm("kernel, with a plan", "kernel")
ARMS = (AS_IT_COMES, *TUNED, STEERED, PLANNED)
OBSERVE = ROOT / "experiments" / "observe"
# The weights of a granule are read within this.
SLICE = "20ms"
# The first tokens find what loading has left.
LEFT_OUT = 2


class Decoding:
    """The model, and how it is run."""

    def __init__(self, args: argparse.Namespace, settings: Settings, scratch: Path) -> None:
        self.args, self.settings, self.scratch = args, settings, scratch
        programs = Programs(args.programs)
        self.environment = programs.pip("llama-cpp", "llama-cpp-python==0.3.36", "numpy>=1.26")
        self.model = programs.folder / "data" / f"model-{args.size_mib}.gguf"
        if not self.model.exists():
            self.model.parent.mkdir(parents=True, exist_ok=True)
            making = self.model.with_suffix(".making")
            command = [sys.executable, str(OBSERVE / "make_gguf.py"), str(making), "--size", f"{args.size_mib}MiB", "--types", "q8_0"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | self.environment)
            making.rename(self.model)

    def command(self, tokens: int) -> list[str]:
        """Reads the model into memory, and decodes."""
        words = ["--no-mmap", "--threads", "2", "--decode", str(tokens)]
        return [sys.executable, str(OBSERVE / "programs" / "decode.py"), str(self.model), *words]

    def run(self, arm: Arm, words: list[str]) -> dict[str, Any]:
        """One run under tiermem."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        start = [str(self.args.tiermem), "run", "--how", arm.how, *words, "--format", "json"]
        paging = Paging(start, self.scratch)
        wait_for_no_swap()
        self.settings.use(arm)
        try:
            told = json.loads(paging.run(self.command(self.args.tokens), self.environment))
        finally:
            self.settings.put_back()
        seconds = told["token_s"][LEFT_OUT:]
        command = paging.command.replace(f"{ROOT}/", "").replace(sys.executable, "python3").replace(self.scratch.name, "scratch")
        row = {"arm": arm.name, "seconds": statistics.median(seconds), "token_s": told["token_s"], "last_token": told["last_token"]}
        return row | {"command": command} | paging.report

    def plan(self, dram_bytes: int) -> Path:
        """A plan for so much DRAM, by a recording in all DRAM."""
        recording, plan = self.scratch.with_suffix(".rec"), self.scratch.with_suffix(".plan.json")
        record = [str(self.args.tiermem), "record", "--slice", SLICE, "-o", str(recording), "--", *self.command(self.args.tokens)]
        done = subprocess.run(record, env=os.environ | self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"{record} exited with {done.returncode}: {done.stderr}")
        call([str(self.args.tiermem), "plan", str(recording), "--fast", str(dram_bytes), "--for", "pager", "-o", str(plan)])
        return plan


def measured(decoding: Decoding, args: argparse.Namespace, out: Path) -> None:
    """All runs; the files are written after each."""
    full = decoding.run(AS_IT_COMES, ["--dram", f"{int(free_bytes() * FULL_SHARE) // MIB}MiB", "--flash", f"{args.folder}={LEAST_FLASH_MIB}MiB"])
    required_bytes = full["required_bytes"]
    dram_bytes = int(required_bytes / args.overcommit)
    limits = ["--overcommit", f"{args.overcommit:g}", "--required", f"{required_bytes}B"]
    limits += ["--flash", f"{args.folder}={2 * required_bytes // MIB}MiB"]
    plan = decoding.plan(dram_bytes) if PLANNED in args.arms else None
    left_mib = (required_bytes - dram_bytes) // MIB
    file = args.folder / f"decoding-bound-{os.getpid()}"
    fio = [*FIO, f"--filename={file}", "--rw=read", f"--size={left_mib}m", f"--io_size={left_mib}m"]
    rows: list[dict[str, Any]] = []
    for turn in range(args.rounds):
        arms: list[Arm | None] = [*args.arms, None]
        at = turn % len(arms)
        for arm in arms[at:] + arms[:at]:
            if arm is None:
                row = {"arm": "fio", "command": " ".join(fio), **measure_bound(fio)}
                file.unlink(missing_ok=True)
            else:
                row = decoding.run(arm, [*limits, *(["--plan", str(plan)] if arm == PLANNED else [])])
                if row["last_token"] != full["last_token"]:
                    raise Failed(f"{arm.name}: the last token is {row['last_token']}, and was {full['last_token']} in all DRAM")
            rows.append({"round": turn + 1} | row)
            print(f"{row['arm']}, round {turn + 1}: {row['seconds']:.3f} s a token", flush=True)
            (out / "decoding.json").write_text(json.dumps([full, *rows], indent=1) + "\n")
            (out / "decoding.md").write_text(page(rows, full, args))
    print(table(rows, full))


def table(rows: list[dict[str, Any]], full: dict[str, Any]) -> str:
    """Medians, and how each arm stands to fio and to swap."""
    lines = ["| arm | seconds a token | all values | of fio's | of swap as it comes | major faults |", "| --- | --- | --- | --- | --- | --- |"]
    medians = {arm: statistics.median(row["seconds"] for row in rows if row["arm"] == arm) for arm in dict.fromkeys(row["arm"] for row in rows)}
    lines.append(f"| all DRAM | **{full['seconds']:.3f}** | {full['seconds']:.3f} | | | {full['major_faults']} |")
    for arm in (name for name in ("fio", *(it.name for it in ARMS)) if name in medians):
        own = [row for row in rows if row["arm"] == arm]
        ratios = [f"{medians[arm] / medians[rival]:.2f} x" if rival in medians else "" for rival in ("fio", AS_IT_COMES.name)]
        faults = f"{statistics.median(row['major_faults'] for row in own):.0f}" if arm != "fio" else ""
        values = ", ".join(f"{row['seconds']:.3f}" for row in own)
        lines.append(f"| {arm} | **{medians[arm]:.3f}** | {values} | {ratios[0]} | {ratios[1]} | {faults} |")
    return "\n".join(lines) + "\n"


def page(rows: list[dict[str, Any]], full: dict[str, Any], args: argparse.Namespace) -> str:
    """The table and the commands."""
    commands = dict.fromkeys(f"# {row['arm']}\n{row['command']}" for row in rows if row["round"] == 1)
    needs = f"A model of {args.size_mib} MiB, {args.tokens} tokens; it needs {full['required_bytes'] // MIB} MiB, R = {args.overcommit:g}."
    return f"{needs} Seconds a token, medians.\n\n{table(rows, full)}\n```\n" + "\n".join(commands) + "\n```\n"


def main() -> None:
    """Measures, and writes both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", type=Path, default=Path("target/release/tiermem"))
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where swap files and fio's file lie: ext4 or xfs")
    parser.add_argument("--programs", type=Path, default=ROOT / "target" / "pager-programs", help="where programs and data are kept")
    parser.add_argument("--arms", nargs="+", choices=[it.name for it in ARMS], default=[it.name for it in ARMS])
    parser.add_argument("--overcommit", type=float, default=2, metavar="R")
    parser.add_argument("--rounds", type=int, help="5, or 1 with --quick")
    parser.add_argument("--size-mib", type=int, help="of the model: 1024, or 64 with --quick")
    parser.add_argument("--tokens", type=int, default=12)
    parser.add_argument("--quick", action="store_true", help="little memory, one round: to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("docs/results/pager"))
    args = parser.parse_args()
    args.rounds = args.rounds or (1 if args.quick else 5)
    args.size_mib = args.size_mib or (64 if args.quick else 1024)
    args.tiermem, args.folder = args.tiermem.resolve(), args.folder.resolve()
    args.arms = [it for it in ARMS if it.name in args.arms]
    if os.geteuid() != 0:
        sys.exit("run it as root: it turns swap on and changes settings of the machine")
    wait_for_no_swap()
    scratch = args.programs.absolute() / f"scratch-{os.getpid()}"
    args.out.mkdir(parents=True, exist_ok=True)
    with Settings(args.folder, scratch, args.arms) as settings:
        try:
            measured(Decoding(args, settings, scratch), args, args.out)
        except Unavailable as missing:
            sys.exit(f"llama.cpp is not to be had here: {missing}")
        except Failed as failure:
            sys.exit(str(failure))
        finally:
            for suffix in (".rec", ".plan.json"):
                scratch.with_suffix(suffix).unlink(missing_ok=True)
            shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
