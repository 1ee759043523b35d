"""`tiermem run --dram --plan`: a plan says which pages stay in DRAM, and which pass."""

from __future__ import annotations

import json
import pathlib

from programs import workload
from store import tiermem
from sweep_plans import SWEEP_MIB, plan, recording, sweep  # noqa: F401  (fixtures)
from test_pager import machine, run  # noqa: F401  (a fixture)


def limits(folder: pathlib.Path) -> list[str]:
    return ["--dram", f"{SWEEP_MIB // 2}MiB", "--flash", f"{folder}={4 * SWEEP_MIB}MiB"]


def test_a_planned_sweep_reads_less_and_the_log_gives_the_same_acts(plan: pathlib.Path, tmp_path: pathlib.Path) -> None:  # noqa: F811
    log, report = tmp_path / "log", tmp_path / "report.json"
    ran = run(*limits(tmp_path), "--how", "kernel", "--plan", str(plan), "--log", str(log), "--report", str(report), "--", *sweep(10))
    assert ran.returncode == 0 and ran.stderr == "" and " ok\n" in ran.stdout, ran.stderr
    told = json.loads(report.read_text())
    assert told["prefetch_used_pages"] > 0 and told["dropped_behind_pages"] > 0
    # Ten passes would read a half each time that a half stays; all of it is read without. Reads are those of the whole machine.
    assert told["prefetched_pages"] < 9 * SWEEP_MIB * 256 * 9 / 10
    text = log.read_text()
    assert text.startswith("tiermem-pager-log-4 kernel plan 1 ")
    planned = [line.split() for line in text.splitlines() if " planned " in line]
    assert [line[4] for line in planned] == ["held"] * (SWEEP_MIB // 2) + ["up-0"]
    assert int(planned[-1][3]) - int(planned[-1][2]) >= SWEEP_MIB * 256
    replayed = tiermem("pager", "replay", str(log))
    assert replayed.returncode == 0 and "all the same" in replayed.stdout, replayed.stderr


def test_a_plan_for_another_program_is_refused_or_not_followed(plan: pathlib.Path, tmp_path: pathlib.Path) -> None:  # noqa: F811
    other = run(*limits(tmp_path), "--plan", str(plan), "--", *workload("touches", "--pages 10 --touches 10"))
    assert other.returncode == 125 and "build-id" in other.stderr and "make a plan" in other.stderr, other.stderr
    # The same program with memory of another size: it runs, and is told of.
    larger = run(*limits(tmp_path), "--plan", str(plan), "--", *sweep(2, 2 * SWEEP_MIB))
    assert larger.returncode == 0 and " ok\n" in larger.stdout
    assert "none of its" in larger.stderr and "regions was found" in larger.stderr, larger.stderr


def test_what_cannot_be_with_a_plan_is_said(plan: pathlib.Path, tmp_path: pathlib.Path) -> None:  # noqa: F811
    alone = run(*limits(tmp_path), "--how", "swap", "--plan", str(plan), "--", "true")
    assert alone.returncode == 125 and "--plan is for --how kernel or auto" in alone.stderr
    for option in (["--follow", "plan"], ["--slice", "1s"], ["--move-bandwidth", "1GiB"]):
        wrong = run(*limits(tmp_path), "--plan", str(plan), *option, "--", "true")
        assert wrong.returncode == 125 and option[0] in wrong.stderr, wrong.stderr
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    missing = run(*limits(tmp_path), "--plan", str(broken), "--", "true")
    assert missing.returncode == 125 and "not a plan" in missing.stderr
