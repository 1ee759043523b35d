"""`tiermem run --dram --plan`: a plan says which pages stay in DRAM, and which pass."""

from __future__ import annotations

import json
import pathlib

import pytest

from programs import workload
from store import tiermem
from test_pager import MIB, machine, run  # noqa: F401  (a fixture)

SWEEP_MIB = 96


def sweep(passes: int, mib: int = SWEEP_MIB) -> list[str]:
    return workload("sweep", f"--size {mib}MiB --passes {passes} --pause-ms 100 --small-pages")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    file = tmp_path_factory.mktemp("recorded") / "sweep.rec"
    recorded = tiermem("record", "--slice", "50ms", "--granule", "1MiB", "-o", str(file), "--", *sweep(6))
    assert recorded.returncode == 0, recorded.stderr
    return file


@pytest.fixture(scope="module")
def plan(recording: pathlib.Path) -> pathlib.Path:
    """Holds every second MiB of the memory that is swept."""
    file = recording.with_name("sweep.plan.json")
    planned = tiermem("plan", str(recording), "--fast", f"{SWEEP_MIB // 2}MiB", "-o", str(file))
    assert planned.returncode == 0, planned.stderr
    told = json.loads(file.read_text())
    number, region = next((at, it) for at, it in enumerate(told["regions"]) if it["bytes"] >= SWEEP_MIB * MIB)
    span = {"region": number, "offset": 0, "bytes": region["bytes"]}
    whole = {"span": span, "period_ns": 0, "bytes_per_s": 1.0, "hot_bytes": 0, "lead_bytes": 0, "window_bytes": 0, "stride_bytes": 0, "every": 1}
    told["always"] = [{"region": number, "offset": at * MIB, "bytes": MIB} for at in range(0, SWEEP_MIB, 2)]
    told["sweeps"] = [whole]
    file.write_text(json.dumps(told))
    return file


def limits(folder: pathlib.Path) -> list[str]:
    return ["--dram", f"{SWEEP_MIB // 2}MiB", "--flash", f"{folder}={4 * SWEEP_MIB}MiB"]


def test_a_planned_sweep_reads_less_and_the_log_gives_the_same_acts(plan: pathlib.Path, tmp_path: pathlib.Path) -> None:
    log, report = tmp_path / "log", tmp_path / "report.json"
    ran = run(*limits(tmp_path), "--how", "kernel", "--plan", str(plan), "--log", str(log), "--report", str(report), "--", *sweep(10))
    assert ran.returncode == 0 and ran.stderr == "" and " ok\n" in ran.stdout, ran.stderr
    told = json.loads(report.read_text())
    assert told["prefetch_used_pages"] > 0 and told["dropped_behind_pages"] > 0
    # Ten passes would read a half each time that a half stays; all of it is read without. Reads are those of the whole machine.
    assert told["prefetched_pages"] < 9 * SWEEP_MIB * 256 * 9 / 10
    text = log.read_text()
    assert text.startswith("tiermem-pager-log-3 kernel plan 1 ")
    planned = [line.split() for line in text.splitlines() if " planned " in line]
    assert [line[4] for line in planned] == ["held"] * (SWEEP_MIB // 2) + ["up-0"]
    assert int(planned[-1][3]) - int(planned[-1][2]) >= SWEEP_MIB * 256
    replayed = tiermem("pager", "replay", str(log))
    assert replayed.returncode == 0 and "all the same" in replayed.stdout, replayed.stderr


def test_a_plan_for_another_program_is_refused_or_not_followed(plan: pathlib.Path, tmp_path: pathlib.Path) -> None:
    other = run(*limits(tmp_path), "--plan", str(plan), "--", *workload("touches", "--pages 10 --touches 10"))
    assert other.returncode == 125 and "build-id" in other.stderr and "make a plan" in other.stderr, other.stderr
    # The same program with memory of another size: it runs, and is told of.
    larger = run(*limits(tmp_path), "--plan", str(plan), "--", *sweep(2, 2 * SWEEP_MIB))
    assert larger.returncode == 0 and " ok\n" in larger.stdout
    assert "none of its" in larger.stderr and "regions was found" in larger.stderr, larger.stderr


def test_the_planner_takes_what_waits_least_for_flash(recording: pathlib.Path, tmp_path: pathlib.Path) -> None:
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


def test_what_cannot_be_with_a_plan_is_said(plan: pathlib.Path, tmp_path: pathlib.Path) -> None:
    alone = run(*limits(tmp_path), "--how", "swap", "--plan", str(plan), "--", "true")
    assert alone.returncode == 125 and "--plan is for --how kernel or auto" in alone.stderr
    for option in (["--follow", "live"], ["--slice", "1s"], ["--move-bandwidth", "1GiB"]):
        wrong = run(*limits(tmp_path), "--plan", str(plan), *option, "--", "true")
        assert wrong.returncode == 125 and option[0] in wrong.stderr, wrong.stderr
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    missing = run(*limits(tmp_path), "--plan", str(broken), "--", "true")
    assert missing.returncode == 125 and "not a plan" in missing.stderr


def test_the_simulator_follows_the_plan_over_its_recording(recording: pathlib.Path, plan: pathlib.Path, tmp_path: pathlib.Path) -> None:
    def rows(*arguments: str) -> list[dict]:
        told = tiermem("sim", "frames", str(recording), "--dram", f"{SWEEP_MIB // 2}MiB", "--evict", "kernel", "--format", "json", *arguments)
        assert told.returncode == 0, told.stderr
        return json.loads(told.stdout)

    (without,), (planned,) = rows("--prefetch", "none"), rows("--prefetch", "plan", "--plan", str(plan))
    assert planned["faults"] * 20 < without["faults"]
    assert planned["read_bytes"] < without["read_bytes"] * 3 / 4
    # What knows the trace follows no plan.
    belady = rows("--evict", "belady", "--prefetch", "none", "--plan", str(plan))[1]
    assert belady == rows("--evict", "belady", "--prefetch", "none")[1]
    trace = tmp_path / "trace.csv"
    trace.write_text("0\n4096\n")
    wrong = tiermem("sim", "frames", str(trace), "--trace-format", "csv", "--columns", "key=1", "--dram", "4KiB", "--plan", str(plan))
    assert wrong.returncode == 2 and "no recording" in wrong.stderr, wrong.stderr
