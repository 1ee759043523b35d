"""What is left of a recording whose recorder is killed or whose disk is full, and what a run that fails leaves alone."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import resource
import signal
import subprocess
import time

import pytest

from programs import workload
from store import PATIENCE_S, binary, eventually, tiermem


def rows(recording: pathlib.Path) -> tuple[list[dict], str]:
    """The table of regions and what was said beside it."""
    done = tiermem("heatmap", str(recording), "--format", "json")
    assert done.returncode == 0, done
    return json.loads(done.stdout), done.stderr


def test_a_killed_recorder_leaves_what_it_has_written(tmp_path: pathlib.Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    random.seed(seed)
    found = 0
    for attempt in range(6):
        out = tmp_path / f"{attempt}.rec"
        arguments = ["record", "-o", str(out), "--slice", "20ms", "--", *workload("skewed", "--footprint 16MiB --seconds 600")]
        with subprocess.Popen([binary(), *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as recorder:
            children = pathlib.Path(f"/proc/{recorder.pid}/task/{recorder.pid}/children")
            eventually(lambda: children.read_text() or recorder.poll() is not None, "it has started the program")
            program = [int(pid) for pid in children.read_text().split()]
            if attempt % 2 == 0:
                eventually(out.exists, "a slice is written")
            time.sleep(random.random() / 2)
            recorder.kill()
        for pid in program:
            # Whether a program outlives its recorder is not asked here.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if out.exists():
            found += 1
            table, said = rows(out)
            assert table and said.startswith("tiermem: the recorder ended before the recording was complete"), said
            plan = tiermem("plan", str(out), "--fast", "8MiB")
            assert plan.returncode == 0 or "no such accesses" in plan.stderr or "empty" in plan.stderr, plan
            assert tiermem("trace", "stat", str(out)).returncode == 0
    assert found >= 3


@pytest.mark.parametrize("limit", [4 << 10, 20 << 10])
def test_a_full_disk_ends_the_recording_and_not_the_program(tmp_path: pathlib.Path, limit: int) -> None:
    out, written = tmp_path / "a.rec", tmp_path / "written"
    # What the program writes is not the recorder's: its own limit is another one.
    shell = f"i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; echo $i > {written}; exit 0"
    done = subprocess.run(
        [binary(), "record", "-o", str(out), "--slice", "20ms", "--", "sh", "-c", shell],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    assert written.read_text() == "400000\n", done
    assert done.returncode != 0 and "File too large" in done.stderr and "panicked" not in done.stderr, done
    if out.exists():
        _, said = rows(out)
        assert "slices until then" in done.stderr and out.stat().st_size <= limit, (done, said)


def test_an_output_that_cannot_be_written_is_told_before_the_program_starts(tmp_path: pathlib.Path) -> None:
    started = tmp_path / "started"
    for out in [tmp_path, tmp_path / "none" / "a.rec", pathlib.Path("/proc/a.rec")]:
        for source in ["refs", "lackey"]:
            done = tiermem("record", "-o", str(out), "--source", source, "--", "touch", str(started))
            assert done.returncode != 0 and "cannot write" in done.stderr, done
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_fails_leaves_an_older_recording(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "a.rec"
    out.write_text("older")
    for command in [["no-such-program"], [str(out)]]:
        assert tiermem("record", "-o", str(out), "--", *command).returncode != 0
    assert [path.read_text() for path in tmp_path.iterdir()] == ["older"]


def test_a_program_that_ends_at_once_leaves_an_empty_recording(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "a.rec"
    report = tmp_path / "report"
    done = tiermem("record", "-o", str(out), "--slice", "60s", "--format", "json", "--report", str(report), "--", "true")
    assert done.returncode == 0 and "before anything was seen" in done.stderr, done
    assert json.loads(report.read_text())[0]["samples"] == 0
    # Nothing was in the way but that it has ended.
    assert "agent" not in done.stderr and "No such process" not in done.stderr, done
    _, said = rows(out)
    assert said.startswith("tiermem: the recording is empty: the program ended after") and said.count("\n") == 1, said
    for arguments in [
        ["heatmap", str(out), "-o", str(tmp_path / "a.html")],
        ["plan", str(out), "--fast", "1MiB"],
        ["sim", "place", str(out), "--fast", "1MiB"],
    ]:
        done = tiermem(*arguments)
        assert done.returncode == 1 and "the recording is empty: the program ended" in done.stderr, done
        assert done.stderr.count("\n") == 1, done
