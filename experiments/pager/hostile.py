#!/usr/bin/env python3
"""Whether every byte of a program is right, whoever leaves DRAM: `examples/workloads/hostile.c` in a quarter of the memory that it needs, once
under every policy that tiermem has, and the kernel's own reclaim.

    experiments/pager/hostile.py --tiermem target/release/tiermem --out docs/results/pager
    experiments/pager/hostile.py --tiermem target/debug/tiermem --quick --out results

The program works at random over memory that it knows byte by byte, with threads, children, `mremap`, memory that it gives up, huge pages and reads
by O_DIRECT into its memory; it fails at the first byte that is wrong. Each run has readahead, drops behind sweeps and writes a log, which is
replayed: the same events must bring the same acts. Without tiermem's steering it runs once, too. Page faults are told, and are no rating: all
pages are used alike.

It takes root, and cc. No other swap may be on. Writes hostile.json and hostile.md; exits with 1 if a byte was wrong, or an act another.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from machine import wait_for_no_swap

SOURCE = Path(__file__).parents[2] / "examples" / "workloads" / "hostile.c"
THREADS = 4
# Beside the memory that the program works on there are its versions, and pages of its children.
FLASH_TIMES = 3


def policies(tiermem: Path) -> list[str]:
    """All that `--evict` takes, as the message for another word has them."""
    done = subprocess.run([tiermem, "run", "--dram", "64MiB", "--evict", "?", "--", "true"], capture_output=True, text=True, check=False)
    found = re.search(r"the policies are ([\w, -]+)", done.stderr)
    if not found:
        sys.exit(f"{tiermem} does not tell its policies: {done.stderr}")
    return [name.strip() for name in found[1].split(",")]


def run(args: argparse.Namespace, program: Path, scratch: Path, evict: str | None) -> dict[str, Any]:
    """One run, and the replay of its log; `None`: the kernel's swap alone."""
    log, report = scratch / "log", scratch / "report.json"
    how = ["--how", "swap"] if evict is None else ["--how", "kernel", "--evict", evict, "--log", str(log)]
    limits = ["--dram", f"{args.size_mib // 4}MiB", "--flash", f"{args.folder}={FLASH_TIMES * args.size_mib}MiB", "--report", str(report)]
    work = ["--size", f"{args.size_mib}MiB", "--seconds", str(args.seconds), "--threads", str(THREADS), "--folder", str(scratch)]
    for file in (log, report):
        file.unlink(missing_ok=True)
    wait_for_no_swap()
    done = subprocess.run([args.tiermem, "run", *how, *limits, "--", program, *work], capture_output=True, text=True, check=False)
    told = json.loads(report.read_text()) if report.exists() else {}
    row = {"evict": evict or "swap alone", "seconds": args.seconds, "size_mib": args.size_mib, "is_right": done.returncode == 0}
    if evict is not None:
        # It may have gone on without steering, or be said why there is no log.
        row["is_right"] = row["is_right"] and not done.stderr.strip()
    row |= {"major_faults": told.get("major_faults"), "said": (done.stdout + done.stderr).strip()}
    if evict is not None:
        same = subprocess.run([args.tiermem, "pager", "replay", log], capture_output=True, text=True, check=False)
        counted = re.fullmatch(r"(\d+) events, (\d+) acts, all the same\n", same.stdout)
        row |= {"is_replayed": bool(counted), "events": int(counted[1]) if counted else None, "acts": int(counted[2]) if counted else None}
    return row


def page(rows: list[dict[str, Any]], args: argparse.Namespace) -> str:
    """The table."""
    lines = [
        f"`hostile`, {args.size_mib} MiB in a quarter of that, {THREADS} threads, {args.seconds} s under each policy.",
        "",
        "| who leaves | every byte, steered to the end | major faults | events | acts, replayed alike |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        right = "right" if row["is_right"] else "**wrong**"
        replayed = {True: f"{row.get('acts')}", False: "**others**", None: ""}[row.get("is_replayed")]
        lines.append(f"| {row['evict']} | {right} | {row['major_faults']} | {row.get('events') or ''} | {replayed} |")
    return "\n".join(lines) + "\n"


def options() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", type=Path, default=Path("target/release/tiermem"))
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where swap files lie: ext4 or xfs")
    parser.add_argument("--evict", nargs="+", metavar="NAME", help="[default: all of them]")
    parser.add_argument("--seconds", type=int, help="of each run: 120, or 2 with --quick")
    parser.add_argument("--size-mib", type=int, help="256, or 64 with --quick")
    parser.add_argument("--quick", action="store_true", help="little memory for a short time: to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("docs/results/pager"))
    args = parser.parse_args()
    for name, full, quick in (("seconds", 120, 2), ("size_mib", 256, 64)):
        if getattr(args, name) is None:
            setattr(args, name, quick if args.quick else full)
    return args


def main() -> None:
    """Runs, and writes the files."""
    args = options()
    if os.geteuid() != 0:
        sys.exit("run it as root: it turns swap on")
    if not shutil.which("cc"):
        sys.exit("there is no C compiler: install cc")
    args.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        scratch = Path(folder)
        program = scratch / "hostile"
        subprocess.run(["cc", "-O2", "-pthread", "-o", program, SOURCE], check=True)
        for evict in (None, *(args.evict or policies(args.tiermem))):
            rows.append(run(args, program, scratch, evict))
            print(f"{rows[-1]['evict']}: {rows[-1]['said']}", flush=True)
            (args.out / "hostile.json").write_text(json.dumps(rows, indent=1) + "\n")
            (args.out / "hostile.md").write_text(page(rows, args))
    if not all(row["is_right"] and row.get("is_replayed", True) for row in rows):
        sys.exit("a byte was wrong, or an act was another; hostile.json has what was said")


if __name__ == "__main__":
    main()
