"""`tiermem run` on one memory node: what it reports of a program, comparisons, and what it says of what this machine lacks."""

from __future__ import annotations

import csv
import io
import json
import os
import pathlib
import signal
import subprocess

import pytest

from store import PATIENCE_S, binary, eventually, tiermem

NODES = pathlib.Path("/sys/devices/system/node/has_memory")
COUNT = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"


def report(*arguments: str) -> dict:
    result = tiermem("run", "--format", "json", "--report", "/dev/stdout", *arguments)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def one_node() -> None:
    if not NODES.exists() or NODES.read_text().strip() != "0":
        pytest.skip("this machine has several memory nodes, or tells of none")


def test_a_program_runs_as_the_kernel_places_it() -> None:
    result = tiermem("run", "--format", "json", "--", "sh", "-c", "echo hello; sleep 0.2")
    assert result.returncode == 0, result.stderr
    # Standard output is the program's alone.
    assert result.stdout == "hello\n"
    told = json.loads(result.stderr)
    assert (told["start"], told["trials"], told["ended"]) == ("warm", 1, "exit status: 0")
    (row,) = told["strategies"]
    assert row["strategy"] == "default" and row["real_s"] >= 0.2 and row["minor_faults"] > 0
    assert row["real_sd_s"] is None and row["copy_mb_per_s"] is None and "comparisons" not in told
    if NODES.exists():
        assert sum(row["share"] for row in told["nodes"]) == pytest.approx(1, abs=1e-3)
        assert sum(row["bytes"] for row in told["nodes"]) > 100_000


def test_placements_are_compared_with_times_tests_and_bandwidth() -> None:
    if not NODES.exists():
        pytest.skip("the kernel knows no memory nodes")
    told = report("--compare", "default,local", "--trials", "4", "--bandwidth", "4MiB", "--", "sh", "-c", COUNT)
    assert told["trials"] == 4 and told["array_bytes"] == 4 << 20
    assert [row["strategy"] for row in told["strategies"]] == ["default", "local"]
    for row in told["strategies"]:
        assert row["trials"] == 4 and row["real_s"] > 0 and row["real_sd_s"] >= 0 and row["user_s"] > 0
        assert all(row[f"{loop}_mb_per_s"] > 0 for loop in ("copy", "scale", "add", "triad"))
    comparisons = told["comparisons"]
    assert [(row["figure"], row["strategy"], row["against"]) for row in comparisons] == [
        (figure, "local", "default") for figure in ("real", "user", "system")
    ]
    assert 0 <= comparisons[0]["p"] <= 1 and comparisons[0]["freedom"] > 0


def test_csv_has_the_same_fields() -> None:
    arguments = ["run", "--report", "/dev/stdout", "--trials", "2", "--format"]
    tables = tiermem(*arguments, "csv", "--", "true").stdout.split("\n\n")
    told = json.loads(tiermem(*arguments, "json", "--", "true").stdout)
    rows = [list(csv.DictReader(io.StringIO(table))) for table in tables]
    assert list(rows[0][0]) == [name for name in told if not isinstance(told[name], list)]
    assert list(rows[1][0]) == list(told["strategies"][0])


def test_a_cold_start_reads_the_programs_files_anew(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(pathlib.Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    os.sync()
    told = report("--cold=files", "--trials", "2", "--", str(program), "0.05")
    assert told["start"] == "cold" and told["strategies"][0]["trials"] == 2


@pytest.mark.parametrize("placement", ["remote", "interleave", "weighted=3:1"])
def test_what_one_node_cannot_do_is_said(placement: str) -> None:
    one_node()
    for arguments in (["--place", placement], ["--compare", f"local,{placement}"]):
        result = tiermem("run", *arguments, "--", "true")
        assert result.returncode == 125 and result.stdout == ""
        assert f"the placement {placement} needs a second node with memory; this machine has memory on node 0 only" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--place", "far"], "there is no strategy"),
        (["--place", "weighted=0:1"], "are not weights"),
        (["--place", "plan"], "--plan PLAN"),
        (["--compare", "local,local"], "names a placement twice"),
        (["--compare", "local,plan"], "there is no strategy"),
        (["--place", "local", "--compare", "default"], "cannot be used with"),
        (["--cpus", "a-b"], "is not a list of processors"),
        (["--cpus", "100000"], "100000"),
        (["--trials", "0"], "1..=100000"),
        (["--bandwidth", "much"], "much"),
    ],
)
def test_wrong_use_is_told(arguments: list[str], says: str) -> None:
    result = tiermem("run", *arguments, "--", "true")
    assert result.returncode == 125 and says in result.stderr, result.stderr


def test_a_program_that_is_none_or_fails_is_told() -> None:
    result = tiermem("run", "--", "no-such-program")
    assert result.returncode == 127 and "not in PATH" in result.stderr
    result = tiermem("run", "--format", "json", "--", "sh", "-c", "exit 3")
    # A single run is reported all the same.
    assert result.returncode == 3 and json.loads(result.stderr)["ended"] == "exit status: 3"
    result = tiermem("run", "--trials", "5", "--format", "json", "--report", "/dev/stdout", "--", "false")
    assert result.returncode == 1 and json.loads(result.stdout)["strategies"][0]["trials"] == 0
    assert "failed under the placement default: exit status: 1" in result.stderr


def test_programs_that_fork_and_exec_are_run() -> None:
    told = report("--", "sh", "-c", "(sleep 0.1; exec true) & (exec sleep 0.2) & wait")
    assert told["strategies"][0]["real_s"] >= 0.2


def test_ctrl_c_ends_the_program_and_keeps_the_trials(tmp_path: pathlib.Path) -> None:
    pid = tmp_path / "pid"
    script = f"if [ -e {pid} ]; then echo $$ >{pid}.second; exec sleep 1000; fi; echo $$ >{pid}"
    command = [binary(), "run", "--cold=files", "--trials", "3", "--format", "json", "--report", "/dev/stdout", "--", "sh", "-c", script]
    # The run that finds the files is the first one, so that the second one is a trial.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    second = pathlib.Path(f"{pid}.second")
    eventually(lambda: second.exists() and second.read_text().strip(), "the trial begins")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGINT and "stopped before the last trial" in err
    told = json.loads(out)
    assert told["ended"] == "stopped" and told["strategies"][0]["trials"] == 0
    eventually(lambda: not pathlib.Path(f"/proc/{second.read_text().strip()}").exists(), "the program has ended")
