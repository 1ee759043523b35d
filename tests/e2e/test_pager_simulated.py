"""experiments/pager/simulated.py: `tiermem sim frames` foretells the faults of live programs, roughly in so little memory."""

from __future__ import annotations

import csv
import json
import pathlib
import subprocess
import sys

import pytest

from store import PATIENCE_S, ROOT, binary
from test_pager import areas, machine  # noqa: F401  (a fixture)

SCRIPT = ROOT / "experiments" / "pager" / "simulated.py"
PAGE_CLUSTER = pathlib.Path("/proc/sys/vm/page-cluster")
# Of 32 MiB the kernel's batches, and what a process has besides its pages, are a larger part than of real programs.
BOUND = 0.3


def test_faults_of_live_programs_are_foretold(tmp_path: pathlib.Path) -> None:
    before = PAGE_CLUSTER.read_text()
    arguments = ["--quick", "--pages", "16384", "--evict", "kernel", "lru", "--programs", "sweep", "touches, scattered", "touches, all alike"]
    command = [sys.executable, str(SCRIPT), "--tiermem", binary(), *arguments, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False)
    if "steering takes" in done.stderr:
        pytest.skip("programs cannot be steered here")
    assert done.returncode == 0, done.stderr
    assert PAGE_CLUSTER.read_text() == before and areas() == []
    rows = json.loads((tmp_path / "simulated.json").read_text())
    assert [(row["program"], row["evict"]) for row in rows] == [
        (program, evict) for program in ("sweep", "touches, scattered", "touches, all alike") for evict in ("kernel", "lru")
    ]
    for row in rows:
        assert row["ratio"] == pytest.approx(row["faults"] / row["simulated"]) == pytest.approx(1, abs=BOUND), row
        assert row["simulated_low"] == row["simulated"] == row["simulated_high"]
        assert row["dram_bytes"] - row["besides_bytes"] == 8192 * 4096
    by_name = {(row["program"], row["evict"]): row for row in rows}
    # LRU misses each page of a sweep that does not fit; of pages that are all alike half are there.
    assert by_name["sweep", "lru"]["simulated"] == 4 * 16_384
    assert by_name["touches, all alike", "kernel"]["simulated"] == pytest.approx(32_768, rel=0.03)
    # Who hears of faults alone lets hot pages go as soon as others.
    hot = [by_name["touches, scattered", evict] for evict in ("kernel", "lru")]
    assert hot[0]["simulated"] < 0.85 * hot[1]["simulated"] and hot[0]["faults"] < hot[1]["faults"]
    page = (tmp_path / "simulated.md").read_text()
    assert page.count("| sweep | ") == 2 and "tiermem sim frames" in page.replace(binary(), "tiermem")
    with (tmp_path / "simulated.csv").open(newline="") as file:
        assert [int(row["faults"]) for row in csv.DictReader(file)] == [row["faults"] for row in rows]
