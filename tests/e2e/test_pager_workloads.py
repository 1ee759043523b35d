"""experiments/pager/workloads.py and overhead.py: programs that need no download in every arm, and the arithmetic of the tables. No time is
asserted."""

from __future__ import annotations

import csv
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from programs import tool
from store import PATIENCE_S, ROOT, binary, eventually

pytest.importorskip("tomllib", reason="the experiments need Python 3.11")

FOLDER = ROOT / "experiments" / "pager"
PAGE_CLUSTER = pathlib.Path("/proc/sys/vm/page-cluster")
SWAPS = pathlib.Path("/proc/swaps")
ABOUT = {
    "rate": {"title": "A rate", "unit": "1/s", "better": "more", "seed_form": "drop", "seed": {"1.5": 0.1, "4": 0.5}},
    "time": {"title": "A time", "unit": "s", "better": "less", "seed_form": "added", "seed": {"4": 5.32}},
}


@pytest.fixture(scope="module")
def experiments() -> Any:
    """The experiment's modules, in a Python path of their own: tests have a `programs` too."""
    code = "import json, sys; sys.path.insert(0, sys.argv[1]); import tables, overhead, kinds.build; print(eval(sys.argv[2]))"

    def evaluated(expression: str) -> str:
        done = subprocess.run([sys.executable, "-c", code, str(FOLDER), expression], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return evaluated


@pytest.fixture
def machine() -> Iterator[None]:
    """Where swap may be turned on; the settings as they were found."""
    if os.geteuid() != 0:
        pytest.skip("only root may turn swap on")
    # Other tests' swap goes when they end.
    deadline = time.monotonic() + PATIENCE_S
    while len(SWAPS.read_text().splitlines()) > 1:
        if time.monotonic() > deadline:
            pytest.skip("swap is on: its pages would be others'")
        time.sleep(0.1)
    found = PAGE_CLUSTER.read_text()
    yield
    PAGE_CLUSTER.write_text(found)


def script(name: str, place: pathlib.Path, *words: str, tiermem: str | None = None) -> list[str]:
    where = ["--programs", str(place / "programs"), "--out", str(place / "out"), "--tiermem", tiermem or binary()]
    return [sys.executable, str(FOLDER / name), "--quick", *where, *words]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False)


def row(workload: str, overcommit: float, arm: str, turn: int, performance: float, faults: int) -> dict[str, Any]:
    told = {"workload": workload, "phase": "measured", "round": turn, "overcommit": overcommit, "arm": arm, "performance": performance}
    return told | {"major_faults": faults, "required_bytes": 1 << 30, "unit": ""}


# ---- arithmetic


def test_a_loss_is_told_in_the_seeds_form(experiments: Any) -> None:
    # A rate that falls from 100 to 80: it takes 1.25 times as long, which is a drop of a fifth, or a quarter of the time added.
    assert float(experiments("tables.slowdown(80, 100, 'more')")) == pytest.approx(1.25)
    assert float(experiments("tables.slowdown(125, 100, 'less')")) == pytest.approx(1.25)
    assert float(experiments("tables.lost(1.25, 'drop')")) == pytest.approx(0.2)
    assert float(experiments("tables.lost(1.25, 'added')")) == pytest.approx(0.25)


def test_the_table_has_means_and_ratios(experiments: Any) -> None:
    rows = [
        # The run that finds what is needed, and those that choose, are in no mean.
        row("rate", 1, "swap as it comes", 0, 1, 9) | {"phase": "required"},
        row("rate", 2, "swap, page-cluster 0, not rotating", 0, 1, 9) | {"phase": "choice"},
        *(row("rate", 1, "swap as it comes", turn, value, 0) for turn, value in ((1, 90.0), (2, 110.0), (3, 100.0))),
        *(row("rate", 2, "swap as it comes", turn, value, 30) for turn, value in ((1, 40.0), (2, 60.0), (3, 50.0))),
        *(row("rate", 2, "swap at its best", turn, 80.0, 20) for turn in (1, 2, 3)),
        *(row("rate", 2, "kernel", turn, 64.0, faults) for turn, faults in ((1, 9), (2, 12), (3, 15))),
        *(row("rate", 4, "swap as it comes", turn, 80.0, 40) for turn in (1, 2, 3)),
        *(row("rate", 4, "kernel", turn, 72.0, 40) for turn in (1, 2, 3)),
    ]
    lines = experiments(f"tables.table({rows!r}, {ABOUT!r})").splitlines()[2:]
    assert lines == [
        "| rate | 1 | all | swap as it comes | **100** 1/s | 90, 110, 100 | 1.000 | 0.0% |  | 1.000 x |  | 0 |",
        "| rate | 2 | 512 | swap as it comes | **50** 1/s | 40, 60, 50 | 2.000 | 50.0% |  | 1.000 x | 1.600 x | 30 |",
        "| rate | 2 | 512 | swap at its best | **80** 1/s | 80, 80, 80 | 1.250 | 20.0% |  | 0.625 x | 1.000 x | 20 |",
        "| rate | 2 | 512 | kernel | **64** 1/s | 64, 64, 64 | 1.562 | 36.0% |  | 0.781 x | 1.250 x | 12 |",
        "| rate | 4 | 256 | swap as it comes | **80** 1/s | 80, 80, 80 | 1.250 | 20.0% | 50.0% | 1.000 x |  | 40 |",
        "| rate | 4 | 256 | kernel | **72** 1/s | 72, 72, 72 | 1.389 | 28.0% | 50.0% | 1.111 x |  | 40 |",
    ]
    verdicts = experiments(f"json.dumps(tables.verdicts({rows!r}, {ABOUT!r}))")
    assert json.loads(verdicts) == [
        "rate: at R = 4 swap loses 20.0%, **less than half** of the seed's 50.0%.",
        "rate: at R = 2 `kernel` takes 0.781 x swap's time (wanted: at most 0.8 x; reached).",
        "rate: at worst, at R = 4, `kernel` takes 1.111 x (wanted: at most 1.05 x; **missed**).",
    ]


def test_what_could_not_be_run_is_told(experiments: Any) -> None:
    rows = [row("rate", 1, "swap as it comes", turn, 100.0, 0) | {"command": "tiermem run"} for turn in (0, 1)]
    about = {name: it | {"quick": {"size": 1}, "full": {"size": 2}, "figure": "Figure 4.2"} for name, it in ABOUT.items()}
    notes = "tables.Notes({'time': 'there is no clock here'}, {('rate', 4.0): 'it cannot work within 35MiB'}, {'page-cluster': '3'})"
    page = experiments(f"tables.page({rows!r}, {about!r}, overhead.argparse.Namespace(quick=False), {notes})")
    assert "**time** was skipped: there is no clock here" in page
    assert "**rate**, R = 4, engine's own limit: it cannot work within 35MiB." in page
    assert '{"page-cluster": "3"}' in page and "needs 1024 MiB" in page and "these are no figures" not in page


@pytest.mark.parametrize(
    ("count", "low", "high", "confidence"),
    # Of 15 values the 4th and the 12th, as tables of the sign test have them; of 5 all, which is not enough for 95%.
    [(15, 4, 12, 0.9648), (6, 1, 6, 0.9688), (5, 1, 5, 0.9375), (1, 1, 1, 0.0), (20, 6, 15, 0.9586)],
)
def test_the_interval_of_a_median(experiments: Any, count: int, low: int, high: int, confidence: float) -> None:
    found = json.loads(experiments(f"json.dumps(overhead.interval(list(range({count}, 0, -1))))"))
    assert found == pytest.approx([low, high, confidence], abs=1e-4)


def test_sizes_are_written_down_for_every_workload(experiments: Any) -> None:
    told = json.loads(
        experiments(
            "json.dumps([sorted(kinds.ALL), {name: [sorted(it['full']), sorted(it['quick'])] for name, it in "
            "overhead.tomllib.loads((overhead.HERE / 'workloads.toml').read_text()).items()}])"
        )
    )
    assert told[0] == sorted(told[1])
    assert all(full == quick for full, quick in told[1].values())


# ---- runs


@pytest.mark.usefixtures("machine")
def test_a_build_runs_in_every_arm(tmp_path: pathlib.Path) -> None:
    tool("gcc"), tool("make")
    before = PAGE_CLUSTER.read_text()
    done = run(script("workloads.py", tmp_path, "--workloads", "build", "--overcommit", "1.5", "--swap-patience-s", str(PATIENCE_S)))
    assert done.returncode == 0, done.stderr
    assert PAGE_CLUSTER.read_text() == before and not list((tmp_path / "programs").glob("scratch-*"))
    rows = json.loads((tmp_path / "out" / "workloads.json").read_text())
    assert [(it["phase"], it["overcommit"], it["arm"]) for it in rows] == [
        ("required", 1, "swap as it comes"),
        *(("choice", 2, f"swap, page-cluster {cluster}, not rotating") for cluster in (0, 3, 5, 6)),
        ("measured", 1, "swap as it comes"),
        ("measured", 1, "kernel"),
        ("measured", 1.5, "swap as it comes"),
        ("measured", 1.5, "kernel"),
        ("measured", 1.5, "swap at its best"),
    ]
    required = rows[0]["required_bytes"]
    assert len({it["result"] for it in rows}) == 1 and {it["required_bytes"] for it in rows} == {required}
    for it in rows:
        assert it["how"] == ("kernel" if it["arm"] == "kernel" else "swap") and it["performance"] > 0
        if it["overcommit"] == 1:
            assert it["flash_peak_bytes"] == 0
        else:
            # Equation 4.1, to the page.
            assert 0 <= required / it["overcommit"] - it["dram_bytes"] < 4096 and it["major_faults"] > 0
    with (tmp_path / "out" / "workloads.csv").open(newline="") as file:
        assert [it["arm"] for it in csv.DictReader(file)] == [it["arm"] for it in rows]
    page = (tmp_path / "out" / "workloads.md").read_text()
    assert page.count("| build | 1.5 |") == 3 and "these are no figures" in page
    assert (tmp_path / "out" / "workloads.svg").read_text().startswith("<svg")
    # Ended before its last run, it goes on there.
    (tmp_path / "out" / "workloads.json").write_text(json.dumps(rows[:-1]))
    words = ["--workloads", "build", "--overcommit", "1.5", "--swap-patience-s", str(PATIENCE_S), "--resume"]
    done = run(script("workloads.py", tmp_path, *words))
    assert done.returncode == 0 and done.stdout.count(", round ") == 1, done.stdout + done.stderr
    again = json.loads((tmp_path / "out" / "workloads.json").read_text())
    assert again[:-1] == rows[:-1] and again[-1]["arm"] == rows[-1]["arm"] and again[-1]["result"] == rows[-1]["result"]


@pytest.mark.usefixtures("machine")
def test_a_sort_that_is_killed_leaves_nothing(tmp_path: pathlib.Path) -> None:
    tool("sort")
    before = PAGE_CLUSTER.read_text()
    words = ["--workloads", "sort", "--overcommit", "2", "--rounds", "100", "--swap-patience-s", str(PATIENCE_S)]
    command = script("workloads.py", tmp_path, *words)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as measuring:
        eventually(lambda: PAGE_CLUSTER.read_text() == "0\n" or measuring.poll() is not None, "a setting was changed")
        assert measuring.poll() is None
        measuring.send_signal(signal.SIGKILL)
    eventually(lambda: PAGE_CLUSTER.read_text() == before, "the setting is put back")
    eventually(lambda: not list((tmp_path / "programs").glob("scratch-*")), "nothing is left of the run")
    eventually(lambda: str(pathlib.Path("/var/tmp")) not in SWAPS.read_text(), "its swap was off")


@pytest.mark.usefixtures("machine")
def test_what_paging_costs_where_all_fits(tmp_path: pathlib.Path) -> None:
    tool("gcc"), tool("make")
    done = run(script("overhead.py", tmp_path, "--workloads", "build", "--swap-patience-s", str(PATIENCE_S)))
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "out" / "overhead.json").read_text())
    assert [it["pair"] for it in rows] == [1, 2]
    for it in rows:
        assert it["ratio"] == pytest.approx(it["tiermem_cpu_s"] / it["bare_cpu_s"]) and it["bare_cpu_s"] > 0
        assert it["bare_command"].startswith("make ") and it["tiermem_command"].endswith(it["bare_command"])
        assert " run --dram " in it["tiermem_command"] and "--how" not in it["tiermem_command"]
    assert re.search(r"\| A build: make, gcc \| 2 \|", (tmp_path / "out" / "overhead.md").read_text())


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("change", "says"),
    [("{}; exit 7", "exited with 7"), ("{}; rm -f objects/part000.o", "3 objects of 4 files")],
)
def test_a_program_that_fails_ends_the_measurement(tmp_path: pathlib.Path, change: str, says: str) -> None:
    tool("gcc"), tool("make")
    pretended = tmp_path / "tiermem"
    pretended.write_text(f"#!/bin/sh\n{change.format(binary() + ' ' + chr(34) + '$@' + chr(34))}\n")
    pretended.chmod(0o755)
    words = ["--workloads", "build", "--only-as-it-comes", "--swap-patience-s", str(PATIENCE_S)]
    done = run(script("workloads.py", tmp_path, *words, tiermem=str(pretended)))
    assert done.returncode == 1 and says in done.stderr, done.stderr
    assert not list((tmp_path / "programs").glob("scratch-*"))


@pytest.mark.usefixtures("machine")
def test_a_program_that_cannot_be_had_is_skipped_and_said(tmp_path: pathlib.Path) -> None:
    # Without Go's compiler, and with only what Python needs.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sort").symlink_to(shutil.which("sort") or "/usr/bin/sort")
    command = script("workloads.py", tmp_path, "--workloads", "build", "video", "--swap-patience-s", str(PATIENCE_S))
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=os.environ | {"PATH": str(tmp_path / "bin")}
    )
    assert done.returncode == 0, done.stderr
    assert "build is skipped: there is no gcc here: install gcc and make" in done.stderr
    assert "video is skipped: there is no apt-get here" in done.stderr
    assert "**build** was skipped" in (tmp_path / "out" / "workloads.md").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--workloads", "chess"], "invalid choice: 'chess'"),
        (["--overcommit", "0.5"], "--overcommit takes ratios of at least 1"),
        (["--rounds", "0"], "--rounds takes at least 1"),
        (["--tiermem", "nowhere/tiermem"], "nowhere/tiermem is not there"),
    ],
)
def test_wrong_use_is_refused(tmp_path: pathlib.Path, words: list[str], says: str) -> None:
    done = run(script("workloads.py", tmp_path, *words))
    assert done.returncode == 2 and says in done.stderr, done.stderr
