"""`tiermem sim block`: the orders of write-back, with flushes that a trace does not have."""

from __future__ import annotations

import json
import pathlib
import subprocess

import pytest

from store import binary


@pytest.fixture
def trace(tmp_path: pathlib.Path) -> pathlib.Path:
    """4,000 writes of 4 KiB, one each millisecond, again and again to the same 100 places."""
    path = tmp_path / "volume.csv"
    rows = [f"{step * 1_000_000},write,{step % 100 * 4096},4096" for step in range(4000)]
    path.write_text("time_ns,op,key,size\n" + "\n".join(rows) + "\n")
    return path


def sim(trace: pathlib.Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [binary(), "sim", "block", str(trace), "--cache", "16MiB", "--format", "json", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_orders_of_write_back_cost_what_they_promise(trace: pathlib.Path) -> None:
    found = {}
    for order in ["group", "flush", "none"]:
        done = sim(trace, "--cleaning", "background", "--cleaning-age", "200ms", "--flush-every", "10", "--order", order)
        assert done.returncode == 0, done.stderr
        (found[order],) = json.loads(done.stdout)
    # What is younger than 200 ms stays at the end.
    assert found["flush"]["store_flushes"] >= 3800 / 10 and found["flush"]["write_back_groups"] == 0
    assert 0 < found["group"]["write_back_groups"] <= found["group"]["store_flushes"] < 100
    assert found["none"]["write_back_groups"] == found["none"]["copies_out"] == 0
    # In the strict order nothing is spared that is written again.
    assert found["flush"]["core_written_bytes"] == 4000 * 4096 > found["group"]["core_written_bytes"]


def test_flushes_without_cleaning_in_the_background_are_refused(trace: pathlib.Path) -> None:
    done = sim(trace, "--flush-every", "10")
    assert done.returncode == 2 and "--cleaning background" in done.stderr
    assert sim(trace, "--cleaning", "background", "--flush-every", "0").returncode == 2
