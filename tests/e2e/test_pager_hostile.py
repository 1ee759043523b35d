"""experiments/pager/hostile.py: every byte is right whoever leaves, and a byte that is wrong is told."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from programs import tool
from store import PATIENCE_S, ROOT, binary
from test_pager import areas, machine  # noqa: F401  (a fixture)

SCRIPT = ROOT / "experiments" / "pager" / "hostile.py"


def measured(tiermem: str, out: pathlib.Path, *words: str) -> subprocess.CompletedProcess[str]:
    tool("cc")
    command = [sys.executable, str(SCRIPT), "--tiermem", tiermem, "--quick", "--out", str(out), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False)


def test_every_byte_is_right_and_every_act_is_the_same(tmp_path: pathlib.Path) -> None:
    done = measured(binary(), tmp_path, "--evict", "kernel", "sieve")
    if "steering takes" in done.stdout:
        pytest.skip("programs cannot be steered here")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "hostile.json").read_text())
    assert [row["evict"] for row in rows] == ["swap alone", "kernel", "sieve"] and all(row["is_right"] for row in rows)
    assert rows[1]["is_replayed"] and rows[2]["is_replayed"] and rows[2]["acts"] > 1000
    assert "| sieve | right |" in (tmp_path / "hostile.md").read_text() and areas() == []


def test_a_wrong_byte_is_told(tmp_path: pathlib.Path) -> None:
    """The program is one that finds a wrong byte; whether it does is not for tiermem to say."""
    fake = tmp_path / "tiermem"
    fake.write_text(f"#!/bin/sh\n[ $2 = replay ] && exec {binary()} \"$@\"\necho 'hostile: seed 1: a byte is wrong' >&2; exit 1\n")
    os.chmod(fake, 0o755)
    done = measured(str(fake), tmp_path, "--evict", "kernel")
    assert done.returncode == 1 and "a byte was wrong" in done.stderr, done.stderr
    rows = json.loads((tmp_path / "hostile.json").read_text())
    assert not any(row["is_right"] for row in rows) and "a byte is wrong" in rows[0]["said"]
