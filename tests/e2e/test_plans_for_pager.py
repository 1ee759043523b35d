"""`tiermem plan --for pager`, and `tiermem sim frames --plan`: what they say of a plan before a program runs under it."""

from __future__ import annotations

import json
import pathlib

from store import tiermem
from sweep_plans import SWEEP_MIB, plan, recording  # noqa: F401  (fixtures)


def test_the_planner_takes_what_waits_least_for_flash(recording: pathlib.Path, tmp_path: pathlib.Path) -> None:  # noqa: F811
    def planned(*arguments: str) -> dict:
        told = tiermem("plan", str(recording), "--for", "pager", "--format", "json", *arguments)
        assert told.returncode == 0, told.stderr
        return json.loads(told.stdout)

    half = planned("--fast", f"{SWEEP_MIB // 2}MiB")
    paged = half["predicted"]["paged"]
    assert paged["waiting_s_after"] <= paged["waiting_s_before"]
    # By faults at 77 us and bytes at 1 GiB/s.
    by_hand = paged["faults_after"] * 77e-6 + paged["read_bytes_after"] / (1 << 30)
    assert abs(paged["waiting_s_after"] - by_hand) < 1e-9
    # Where all fits, nothing is better than anything else, so that nothing is done.
    roomy = planned("--fast", "1GiB")
    assert roomy["always"] == [] and roomy["sweeps"] == [] and roomy["predicted"]["paged"]["faults_before"] == 0
    slow = planned("--fast", f"{SWEEP_MIB // 2}MiB", "--fault-latency", "1ms", "--move-bandwidth", "100GiB")["predicted"]["paged"]
    assert abs(slow["waiting_s_after"] - slow["faults_after"] * 1e-3) < 0.01
    measured = tiermem("plan", str(recording), "--for", "pager", "--fast", "48MiB", "--move-bandwidth", "measured", "--flash", str(tmp_path))
    if measured.returncode == 0:
        assert "are read from" in measured.stderr and "waiting for flash" in measured.stdout
    else:
        assert "page cache" in measured.stderr, measured.stderr
    assert list(tmp_path.iterdir()) == []
    wrong = tiermem("plan", str(recording), "--fast", "48MiB", "--fault-latency", "1ms")
    assert wrong.returncode == 2 and "--for pager" in wrong.stderr


def test_the_simulator_follows_the_plan_over_its_recording(recording: pathlib.Path, plan: pathlib.Path, tmp_path: pathlib.Path) -> None:  # noqa: F811
    def rows(*arguments: str) -> list[dict]:
        told = tiermem("sim", "frames", str(recording), "--dram", f"{SWEEP_MIB // 2}MiB", "--evict", "kernel", "--format", "json", *arguments)
        assert told.returncode == 0, told.stderr
        return json.loads(told.stdout)

    (without,), (planned,) = rows("--prefetch", "none"), rows("--prefetch", "plan", "--plan", str(plan))
    assert planned["faults"] * 20 < without["faults"]
    # The kernel takes some of what the plan holds, of which it does not know.
    assert planned["read_bytes"] < without["read_bytes"] * 9 / 10
    # What knows the trace follows no plan.
    belady = rows("--evict", "belady", "--prefetch", "none", "--plan", str(plan))[1]
    assert belady == rows("--evict", "belady", "--prefetch", "none")[1]
    trace = tmp_path / "trace.csv"
    trace.write_text("0\n4096\n")
    wrong = tiermem("sim", "frames", str(trace), "--trace-format", "csv", "--columns", "key=1", "--dram", "4KiB", "--plan", str(plan))
    assert wrong.returncode == 2 and "no recording" in wrong.stderr, wrong.stderr
