#!/usr/bin/env python3
"""Page faults with the kernel's multi-generational LRU (MGLRU), beside those with its older lists, and steered by tiermem over both.

    experiments/pager/mglru.py --tiermem target/release/tiermem --out docs/results/pager
    experiments/pager/mglru.py --tiermem target/debug/tiermem --quick --out results

Programs of 96 MiB have half of that, in a guest machine whose kernel has both (Debian's 6.12): a sweep, and touches at random of which 80% go
to 30% of the pages, side by side or scattered. The guest is emulated, so page faults are told and no times; swap is a disk in memory. Told are
medians over the rounds, and all values. Writes mglru.json and mglru.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from guests import in_guest
from paged import Failed

LISTS = {"older lists": 0, "MGLRU": 7}
HOWS = {"swap": "--how swap", "kernel": "--how kernel"}
MEMORY_MIB = (1024, 64)
SETTINGS = Path("/sys/kernel/mm/lru_gen/enabled")


def programs(pages: int, passes: int) -> dict[str, str]:
    """Commands in the guest."""
    touches = f"touches --pages {pages} --touches {passes * pages}"
    return {
        "sweep": f"sweep --size {pages * 4096} --passes {passes}",
        "touches": touches,
        "touches, scattered": f"{touches} --scattered",
    }


def script(commands: dict[str, str], pages: int, rounds: int) -> str:
    """What the guest does; each run leaves a report."""
    lines = ["echo never >/sys/kernel/mm/transparent_hugepage/enabled", "mkswap /dev/ram0 >/dev/null || exit 1"]
    dram = pages * 4096 // 2
    for turn in range(rounds):
        for at, command in enumerate(commands.values()):
            for lists in LISTS.values():
                lines.append(f"echo {lists} >{SETTINGS} || exit 1")
                lines += [
                    f"tiermem run {flags} --dram {dram} --flash /dev/ram0=150MiB --report /out/{turn}-{at}-{lists}-{how}.json -- {command} || exit 1"
                    for how, flags in HOWS.items()
                ]
    return "\n".join(lines) + "\n"


def rows(reports: Path, commands: dict[str, str], rounds: int) -> list[dict[str, Any]]:
    """One for each program, lists and way."""
    found = []
    for at, program in enumerate(commands):
        for name, lists in LISTS.items():
            for how in HOWS:
                told = [json.loads((reports / f"{turn}-{at}-{lists}-{how}.json").read_text()) for turn in range(rounds)]
                values = [it["major_faults"] for it in told]
                row = {"program": program, "lists": name, "how": how, "major_faults": statistics.median(values), "values": values}
                found.append(row)
    return found


def table(found: list[dict[str, Any]]) -> str:
    """A line for each; against swap by the older lists."""
    lines = ["| program | lists | how | major faults | all values | of swap's by the older lists |", "| --- | --- | --- | --- | --- | --- |"]
    for row in found:
        first = next(it for it in found if it["program"] == row["program"])
        values = ", ".join(map(str, row["values"]))
        ratio = f"{row['major_faults'] / first['major_faults']:.2f} x"
        lines.append(f"| {row['program']} | {row['lists']} | {row['how']} | **{row['major_faults']:.0f}** | {values} | {ratio} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measures, and writes both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", type=Path, default=Path("target/release/tiermem"), help="its workloads lie beside it")
    parser.add_argument("--rounds", type=int, help="3, or 1 with --quick")
    parser.add_argument("--quick", action="store_true", help="a third of the memory, one round: to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("docs/results/pager"))
    args = parser.parse_args()
    rounds = args.rounds or (1 if args.quick else 3)
    pages = 8192 if args.quick else 24_576
    commands = programs(pages, 4)
    files = {f"/bin/{name}": args.tiermem.resolve().parent / name for name in ("tiermem", "sweep", "touches")}
    with tempfile.TemporaryDirectory() as folder:
        try:
            in_guest(script(commands, pages, rounds), files, MEMORY_MIB, "ram-disks", Path(folder))
        except Failed as failure:
            sys.exit(str(failure))
        found = rows(Path(folder), commands, rounds)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "mglru.json").write_text(json.dumps(found, indent=1) + "\n")
    about = f"Programs with {pages} pages in half of that, in an emulated guest with Linux 6.12; medians of {rounds} rounds."
    (args.out / "mglru.md").write_text(f"{about}\n\n{table(found)}\n```\n" + "\n".join(commands.values()) + "\n```\n")
    print(table(found))


if __name__ == "__main__":
    main()
