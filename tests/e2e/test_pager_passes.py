"""experiments/pager/passes.py: it measures every arm, and puts the machine's settings back, also when it is killed. No time is asserted."""

from __future__ import annotations

import csv
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from programs import tool
from store import PATIENCE_S, ROOT, binary, eventually

SCRIPT = ROOT / "experiments" / "pager" / "passes.py"
PAGE_CLUSTER = pathlib.Path("/proc/sys/vm/page-cluster")
SETTING = "swap, page-cluster 0, not rotating"


@pytest.fixture(autouse=True)
def _changes_the_machine() -> Iterator[None]:
    tool("fio")
    if os.geteuid() != 0:
        pytest.skip("only root may turn swap on")
    if len(pathlib.Path("/proc/swaps").read_text().splitlines()) > 1:
        pytest.skip("swap is on: its pages would be others'")
    found = PAGE_CLUSTER.read_text()
    yield
    PAGE_CLUSTER.write_text(found)


def command(out: pathlib.Path, folder: str, *words: str) -> list[str]:
    little = ["--quick", "--size-mib", "48", "--touch-pages", "12288", "--overcommit", "2", "--out", str(out), "--folder", folder]
    return [sys.executable, str(SCRIPT), "--tiermem", binary(), *little, *words]


def rotational(folder: str) -> pathlib.Path:
    """Of the device, as the kernel has it; a partition has none of its own."""
    number = os.stat(folder).st_dev
    device = pathlib.Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    return next(it for it in (device / "queue/rotational", device.parent / "queue/rotational") if it.exists())


@pytest.fixture
def folder() -> str:
    """On a file system that holds swap, which that of temporary files may not be."""
    return "/var/tmp"


def test_every_arm_is_measured_in_turn(tmp_path: pathlib.Path, folder: str) -> None:
    before = [PAGE_CLUSTER.read_text(), rotational(folder).read_text()]
    words = ["--rounds", "2", "--workloads", "sweep, written", "touches", "--arms", "swap as it comes", SETTING, "kernel"]
    done = subprocess.run(command(tmp_path, folder, *words), capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert [PAGE_CLUSTER.read_text(), rotational(folder).read_text()] == before
    rows = json.loads((tmp_path / "passes.json").read_text())
    arms = ["swap as it comes", SETTING, "kernel"]
    # The order turns with each round.
    assert [row["arm"] for row in rows] == [
        *arms, "fio", *arms, *arms[1:], "fio", arms[0], *arms[1:], arms[0],
    ]  # fmt: skip
    for row in rows:
        assert row["seconds"] > 0 and (row["dram_mib"], row["size_mib"]) == (24, 48)
        if row["arm"] != "fio":
            assert row["major_faults"] > 0 and f"--dram 24MiB --flash {folder}=96MiB" in row["command"]
            assert row["how"] == ("kernel" if row["arm"] == "kernel" else "swap")
    with (tmp_path / "passes.csv").open(newline="") as file:
        assert [row["arm"] for row in csv.DictReader(file)] == [row["arm"] for row in rows]
    page = (tmp_path / "passes.md").read_text()
    assert page.count("| sweep, written | 2 |") == 4 and page.count("| touches | 2 |") == 3
    assert "--rw=rw" in page and not list(pathlib.Path(folder).glob("passes-bound-*"))


COMPRESSED = {"swap, zram": "/dev/zram", "swap, zswap": "/var/tmp"}
ZSWAP = pathlib.Path("/sys/module/zswap/parameters/enabled")


@pytest.mark.parametrize("arm", COMPRESSED)
def test_compressed_swap_is_made_and_taken_away(tmp_path: pathlib.Path, folder: str, arm: str) -> None:
    if not (ZSWAP.exists() and pathlib.Path("/sys/class/zram-control").is_dir()):
        pytest.skip("the kernel has no zswap or no zram")
    before = ZSWAP.read_text(), sorted(pathlib.Path("/dev").glob("zram*"))
    words = ["--workloads", "touches", "--arms", arm, "kernel, lru by granule"]
    done = subprocess.run(command(tmp_path, folder, *words), capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    by_granule, compressed = json.loads((tmp_path / "passes.json").read_text())
    assert f"--flash {COMPRESSED[arm]}" in compressed["command"] and compressed["major_faults"] > 0
    assert "--evict lru --references granule" in by_granule["command"] and by_granule["how"] == "kernel"
    assert (ZSWAP.read_text(), sorted(pathlib.Path("/dev").glob("zram*"))) == before


def test_settings_are_put_back_when_it_is_killed(tmp_path: pathlib.Path, folder: str) -> None:
    before = [PAGE_CLUSTER.read_text(), rotational(folder).read_text()]
    words = ["--rounds", "100", "--workloads", "sweep", "--arms", SETTING]
    with subprocess.Popen(command(tmp_path, folder, *words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as measuring:
        eventually(lambda: PAGE_CLUSTER.read_text() == "0\n" or measuring.poll() is not None, "a setting was changed")
        assert measuring.poll() is None
        measuring.send_signal(signal.SIGKILL)
    eventually(lambda: [PAGE_CLUSTER.read_text(), rotational(folder).read_text()] == before, "all is put back")
    # The program that was running ends by itself, and its swap with it.
    eventually(lambda: len(pathlib.Path("/proc/swaps").read_text().splitlines()) == 1, "swap was off")
