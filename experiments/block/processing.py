"""What the cache spends on a request beside the devices' work: look-up, choice of sizes, allocation, eviction; in instructions.

The simulator runs the same plans as the live engine, and callgrind counts what happens inside it. Reading the trace is outside.
Counts come again to the instruction, whatever else the machine does.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from setting import Contender, Workload
from traces import rows_of

# Requests are counted between a shorter run and a longer one, so that beginning and end fall out.
SHORTER, LONGER = 5000, 20000
# Caches of which the observer sees ever smaller samples.
CAPACITIES_MIB = [64, 256, 1024, 4096]
# Everything that is called from here: plan, counting, finish.
INSIDE = "*Simulation*Cache*run*"
ABOUT = (
    "**Instructions** are counted for each request inside the simulator, which runs the plans of the live engine "
    f"without devices, between request {SHORTER:,} and {LONGER:,} of a trace, or the last three quarters of a shorter one "
    f"(callgrind, `--toggle-collect='{INSIDE}'`)."
)


def instructions(tiermem: Path, contender: Contender, trace: Path, capacity_bytes: int, requests: int) -> tuple[int, int]:
    """Instructions inside the simulation of so many requests, if the trace has them, and how many it had."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["valgrind", "--tool=callgrind", f"--toggle-collect={INSIDE}", f"--callgrind-out-file={folder}/out"]
        words += [str(tiermem), "sim", "block", str(trace), "--cache", f"{capacity_bytes}B", "--blocks", ",".join(contender.blocks)]
        words += [
            "--fill",
            contender.fill,
            "--sizing",
            contender.sizing,
            "--requests",
            str(requests),
            "--threads",
            "1",
            "--format",
            "csv",
        ]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or not found:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.strip()}")
    (row,) = rows_of(done.stdout)
    return int(found[1]), row["reads"] + row["writes"]


def measure(tiermem: Path, compared: list[Contender], workloads: list[tuple[Workload, int]], short: bool) -> dict[str, Any]:
    """A row for each contender and workload, and how they were got; when it is short, of the first workload of each family."""
    if not shutil.which("valgrind"):
        print("Instructions are left out: there is no valgrind here", flush=True)
        return {"about": [], "rows": [], "by_capacity": []}
    if short:
        workloads = list({it.family: (it, capacity) for it, capacity in reversed(workloads)}.values())
    rows = []
    for workload, capacity_bytes in workloads:
        for contender in compared:
            most = workload.requests or LONGER
            count, longer = instructions(tiermem, contender, workload.path, capacity_bytes, most)
            before, shorter = instructions(tiermem, contender, workload.path, capacity_bytes, min(SHORTER, longer // 4))
            row = {"workload": workload.name, "family": workload.family, "contender": contender.name}
            rows.append({**row, "processing": (count - before) / (longer - shorter)})
        print(f"processing {workload.name}", flush=True)
    return {"about": [ABOUT], "rows": rows, "by_capacity": [] if short else by_capacity(tiermem, compared, workloads[0][0])}


def by_capacity(tiermem: Path, compared: list[Contender], workload: Workload) -> list[dict[str, Any]]:
    """Instructions for each request of one workload with caches of several sizes, by the seed's rule and by ours."""
    rows = []
    for capacity in CAPACITIES_MIB:
        for contender in compared:
            if contender.name in ("seed units", "ours"):
                count, requests = instructions(tiermem, contender, workload.path, capacity << 20, LONGER)
                named = {"workload": workload.name, "contender": contender.name, "capacity_mib": capacity}
                rows.append({**named, "processing": count / requests})
    return rows
