"""Experiments of the pager that need a guest machine, in their short form: they run, and what they write can be read. No time is asserted."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from machine import Machine
from programs import workload
from store import PATIENCE_S, ROOT, binary

FOLDER = ROOT / "experiments" / "pager"


def quick(name: str, out: pathlib.Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / name), "--tiermem", binary(), "--quick", "--out", str(out), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=20 * PATIENCE_S, check=False)


def test_both_kinds_of_lists_are_counted(guest: type[Machine], tmp_path: pathlib.Path) -> None:
    done = quick("mglru.py", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "mglru.json").read_text())
    assert len(rows) == 12 and all(row["major_faults"] > 0 for row in rows)
    assert {row["lists"] for row in rows} == {"older lists", "MGLRU"}
    assert (tmp_path / "mglru.md").read_text().count("| MGLRU |") == 6


def test_a_virtual_machine_is_run_and_attached_to(guest: type[Machine], tmp_path: pathlib.Path) -> None:
    workload("sort")
    if os.geteuid() != 0 or len(pathlib.Path("/proc/swaps").read_text().splitlines()) > 1:
        pytest.skip("only root may turn swap on, and none may be on")
    done = quick("vm.py", tmp_path, "--size-mib", "32")
    if "steering takes" in done.stderr:
        pytest.skip("programs cannot be steered here")
    assert done.returncode == 0, done.stderr
    full, *rows = json.loads((tmp_path / "vm.json").read_text())
    assert [row["arm"] for row in rows] == ["swap", "kernel", "attached"]
    # The guest has sorted the same, and the emulator was paged.
    assert {row["checksum"] for row in rows} == {full["checksum"]}
    assert all(row["report"]["major_faults"] > 0 for row in rows) and full["report"]["flash_peak_bytes"] == 0
    assert (tmp_path / "vm.md").read_text().count("\n| ") >= 4
