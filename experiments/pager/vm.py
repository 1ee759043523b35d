#!/usr/bin/env python3
"""A virtual machine in half of the memory that it needs: a guest that sorts 1 GiB, under `tiermem run` and attached to while it runs.

    experiments/pager/vm.py --tiermem target/release/tiermem --out docs/results/pager
    experiments/pager/vm.py --tiermem target/debug/tiermem --quick --out results

The guest is QEMU's, without KVM; its memory is one mapping of the emulator's. First it runs in all DRAM, which tells what it needs. Then each
arm runs at R = 2, in an order that turns by one with each round. Told are the seconds that the sort takes in the guest, medians over the
rounds and all values, and major faults of the emulator, which the guest does not see. It takes root, and no other swap may be on. Writes
vm.json and vm.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from guests import in_guest
from machine import wait_for_no_swap
from paged import REPORTED, Failed

ARMS = {
    "swap": ("run", "--how", "swap"),
    "kernel": ("run", "--how", "kernel"),
    "attached": ("attach",),
}
# Tells its own number, and becomes the emulator; what attaches to it is none of its children.
ATTACH = '({attach} --pid $$ </dev/null >/dev/null 2>&1 &); exec "$@"'
MIB = 1 << 20
# A report is written when the emulator's memory has been given back.
PATIENCE_S = 120


def run(tiermem: Path, arm: str, dram_bytes: int, folder: Path, size_mib: int) -> dict[str, Any]:
    """One run: what the guest says, and what the report says."""
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.json"
        limits = ["--dram", str(dram_bytes), "--flash", f"{folder}={4 * size_mib}MiB", "--report", str(report)]
        if ARMS[arm][0] == "run":
            under = [str(tiermem), *ARMS[arm], *limits, "--"]
        else:
            under = ["sh", "-c", ATTACH.format(attach=shlex.join([str(tiermem), "pager", "attach", *limits])), "sh"]
        wait_for_no_swap()
        files = {"/bin/sort-numbers": tiermem.parent / "sort"}
        try:
            out = in_guest(f"sort-numbers --size {size_mib}MiB\n", files, (size_mib * 5 // 4 + 256, 16), under=under)
        except Failed as failure:
            sys.exit(f"{arm}: {failure}")
        deadline = time.monotonic() + PATIENCE_S
        while not report.exists() or not report.read_text():
            if time.monotonic() > deadline:
                sys.exit(f"{arm}: there is no report")
            time.sleep(0.1)
        told = json.loads(report.read_text())
    found = re.search(r"fill ([\d.]+) s, sort ([\d.]+) s.* checksum (\w+) ok", out)
    if not found:
        sys.exit(f"{arm}: the guest said something else: {out}")
    seconds = {"fill_s": float(found[1]), "sort_s": float(found[2]), "checksum": found[3]}
    command = shlex.join([*under, "qemu-system-x86_64"]).replace(str(report), "report.json").replace(f"{Path.cwd()}/", "")
    return {"arm": arm, **seconds, "command": command, "report": {name: told[name] for name in REPORTED}}


def table(rows: list[dict[str, Any]], full: dict[str, Any]) -> str:
    """A line for each arm."""
    lines = ["| arm | sort, s | all values | of all DRAM | of swap | major faults |", "| --- | --- | --- | --- | --- | --- |"]
    lines.append(f"| all DRAM | **{full['sort_s']:.1f}** | {full['sort_s']:.1f} | 1.00 x | | {full['report']['major_faults']} |")
    by_arm = {arm: [row for row in rows if row["arm"] == arm] for arm in ARMS}
    medians = {arm: statistics.median(row["sort_s"] for row in of) for arm, of in by_arm.items() if of}
    for arm, median in medians.items():
        values = ", ".join(f"{row['sort_s']:.1f}" for row in by_arm[arm])
        faults = statistics.median(row["report"]["major_faults"] for row in by_arm[arm])
        ratios = f"{median / full['sort_s']:.2f} x | " + (f"{median / medians['swap']:.2f} x" if "swap" in medians else "")
        lines.append(f"| {arm} | **{median:.1f}** | {values} | {ratios} | {faults:.0f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measures, and writes both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", type=Path, default=Path("target/release/tiermem"), help="its workloads lie beside it")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where swap files lie: ext4 or xfs")
    parser.add_argument("--rounds", type=int, help="3, or 1 with --quick")
    parser.add_argument("--size-mib", type=int, help="of what is sorted: 1024, or 64 with --quick")
    parser.add_argument("--quick", action="store_true", help="little memory, one round: to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("docs/results/pager"))
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("run it as root: it turns swap on")
    rounds, size_mib = args.rounds or (1 if args.quick else 3), args.size_mib or (64 if args.quick else 1024)
    tiermem, folder = args.tiermem.resolve(), args.folder.resolve()
    full = run(tiermem, "swap", 8 * size_mib * MIB + (2 << 30), folder, size_mib)
    required_bytes = full["report"]["required_bytes"]
    rows = []
    args.out.mkdir(parents=True, exist_ok=True)
    for turn in range(rounds):
        arms = list(ARMS)
        for arm in arms[turn % len(arms) :] + arms[: turn % len(arms)]:
            rows.append({"round": turn + 1} | run(tiermem, arm, required_bytes // 2, folder, size_mib))
            if rows[-1]["checksum"] != full["checksum"]:
                sys.exit(f"{arm}: the result differs")
            print(f"{arm}, round {turn + 1}: sort {rows[-1]['sort_s']:.1f} s", flush=True)
            (args.out / "vm.json").write_text(json.dumps([full, *rows], indent=1) + "\n")
            commands = "\n".join(dict.fromkeys(row["command"] for row in rows if row["round"] == 1))
            about = f"A guest that sorts {size_mib} MiB; the emulator needs {required_bytes // MIB} MiB and has half of that. It is started as\n"
            about += "`tests/e2e/guest/machine.py` does it."
            (args.out / "vm.md").write_text(f"{about}\n\n{table(rows, full)}\n```\n{commands}\n```\n")
    print(table(rows, full))


if __name__ == "__main__":
    main()
