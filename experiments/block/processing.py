"""What the cache spends on a request before devices are asked: look-up, choice of sizes, allocation, eviction; in instructions.

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

# Requests are counted between a shorter run and a longer one, so that beginning and end fall out.
SHORTER, LONGER = 5000, 20000
# Everything that is called from here: plan, counting, finish.
INSIDE = "*Simulation*Cache*run*"
ABOUT = (
    "**Processing** is counted: instructions for each request inside the simulator, which runs the plans of the live engine "
    f"without devices, between request {SHORTER:,} and {LONGER:,} of a trace, or the last three quarters of a shorter one "
    f"(callgrind, `--toggle-collect='{INSIDE}'`)."
)


def instructions(tiermem: Path, contender: Contender, trace: Path, capacity_bytes: int, requests: int) -> int:
    """Instructions inside the simulation of so many requests."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["valgrind", "--tool=callgrind", f"--toggle-collect={INSIDE}", f"--callgrind-out-file={folder}/out"]
        words += [str(tiermem), "sim", "block", str(trace), "--cache", f"{capacity_bytes}B", "--blocks", ",".join(contender.blocks)]
        words += ["--fill", contender.fill, "--sizing", contender.sizing, "--requests", str(requests), "--threads", "1"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or not found:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.strip()}")
    return int(found[1])


def measure(tiermem: Path, compared: list[Contender], workloads: list[tuple[Workload, int]]) -> dict[str, Any]:
    """A row for each contender and workload, and how they were got."""
    if not shutil.which("valgrind"):
        print("Figure 2.9 is left out: there is no valgrind here", flush=True)
        return {"about": [], "rows": []}
    rows = []
    for workload, capacity_bytes in workloads:
        for contender in compared:
            longer = min(LONGER, workload.requests or LONGER)
            shorter = min(SHORTER, longer // 4)
            counts = [instructions(tiermem, contender, workload.path, capacity_bytes, requests) for requests in (shorter, longer)]
            row = {"workload": workload.name, "family": workload.family, "contender": contender.name}
            rows.append({**row, "processing": (counts[1] - counts[0]) / (longer - shorter), "processing_in": "instructions"})
        print(f"processing {workload.name}", flush=True)
    return {"about": [ABOUT], "rows": rows}
