"""Recordings of programs that start others: each process has memory of its own, and all are in the recording."""

from __future__ import annotations

import json
import os
import pathlib
import re
import resource
import subprocess
import sys

from programs import workload
from store import PATIENCE_S, binary, eventually


def record(folder: pathlib.Path, script: str, *arguments: str, code: int = 0) -> str:
    """Records a shell's script; what was said about it."""
    command = [binary(), "record", "--slice", "200ms", "--granule", "1MiB", *arguments, "-o", "app.rec", "--", "sh", "-c", script]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == code, done.stderr
    return done.stderr


def accesses(folder: pathlib.Path) -> dict[str, float]:
    """Accesses of each region, by name."""
    command = [binary(), "heatmap", "app.rec", "--format", "json"]
    told = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return {row["name"]: row["accesses"] for row in json.loads(told.stdout)}


def processes(folder: pathlib.Path) -> list[dict[str, object]]:
    command = [binary(), "heatmap", "app.rec", "--processes", "--format", "json"]
    told = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return json.loads(told.stdout)


def child_processes(pid: int) -> list[str]:
    threads = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return [child for thread in threads for child in (thread / "children").read_text().split()]


def skewed(mib: int, seconds: float, per_second: int = 200_000) -> str:
    words = f"--footprint {mib << 20} --granule 1048576 --seconds {seconds} --per-second {per_second}"
    return f"{' '.join(workload('skewed', words))} >/dev/null"


def test_two_programs_in_the_background_are_two_processes(tmp_path: pathlib.Path) -> None:
    record(tmp_path, f"{skewed(16, 2)} & {skewed(48, 2, 400_000)} & wait")
    told = processes(tmp_path)
    assert [(it["name"], it["parent"]) for it in told] == [("sh", ""), ("skewed", "sh"), ("skewed #2", "sh")], told
    heat = accesses(tmp_path)
    of = [sum(heat for name, heat in heat.items() if name.startswith(f"{process}: anon")) for process in ("skewed", "skewed #2")]
    # One accesses its memory twice as often as the other.
    assert 1.4 < of[1] / of[0] < 2.8, heat
    assert "heap" in heat and "skewed: heap" in heat


def test_a_child_that_outlives_its_parent_is_recorded_to_its_end(tmp_path: pathlib.Path) -> None:
    record(tmp_path, f"(setsid sh -c 'exec {skewed(16, 1)}' &); exit 7", code=7)
    told = processes(tmp_path)
    assert [it["name"] for it in told if it["observed"] == "yes"] == ["sh", "skewed"], told
    [first, *_] = told
    [skewed_one] = [it for it in told if it["name"] == "skewed"]
    assert first["lived_s"] < 1 <= skewed_one["lived_s"] and sum(accesses(tmp_path).values()) > 10_000


def test_processes_that_end_at_once_are_listed(tmp_path: pathlib.Path) -> None:
    said = record(tmp_path, "true | cat; ls >/dev/null; sh -c 'date >/dev/null; true'; true")
    names = sorted(re.sub(r" #\d+$", "", str(it["name"])) for it in processes(tmp_path)[1:])
    assert names in (["cat", "date", "ls", "sh", "sh"], ["cat", "date", "ls", "sh", "true"]), names
    assert "5 processes ended within 100 ms; their memory was not looked at" in said


def test_the_first_process_alone(tmp_path: pathlib.Path) -> None:
    record(tmp_path, f"{skewed(16, 0.5)}; true", "--no-children")
    assert processes(tmp_path) == []
    assert not any("skewed" in name for name in accesses(tmp_path))


def test_a_tree_that_runs_already(tmp_path: pathlib.Path) -> None:
    script = f"{skewed(16, 60)} & echo $!; wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        child = int(shell.stdout.readline())
        try:
            eventually(lambda: pathlib.Path(f"/proc/{child}/comm").read_text() == "skewed\n", "the child has begun")
            command = [binary(), "record", "--pid", str(shell.pid), "--inject", "--slice", "200ms", "--duration", "1s", "-o", "app.rec"]
            subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=PATIENCE_S, check=True)
        finally:
            os.kill(child, 15)
    assert [it["name"] for it in processes(tmp_path)] == ["sh", "skewed"]
    assert accesses(tmp_path)["skewed: anon 1"] > 10_000


def test_generations_of_processes(tmp_path: pathlib.Path) -> None:
    record(tmp_path, f"sh -c 'sh -c \"{skewed(16, 1)}; true\"; true'; true")
    told = [(it["name"], it["parent"]) for it in processes(tmp_path) if it["observed"] == "yes"]
    assert told == [("sh", ""), ("sh #2", "sh"), ("sh #3", "sh #2"), ("skewed", "sh #3")], told


def test_what_a_process_that_mostly_waits_accesses_is_seen(tmp_path: pathlib.Path) -> None:
    """It is not looked at while it does not run; the moment in which it does must not be missed."""
    program = f"""
import time
memory = bytearray({16 << 20})
for _ in range(8):
    time.sleep(0.5)
    memory[::4096] = bytes(len(memory) // 4096)
"""
    (tmp_path / "app.py").write_text(program)
    record(tmp_path, f"{sys.executable} app.py; true")
    heat = accesses(tmp_path)
    assert max(heat.values()) > 4 * 4096, heat


def test_a_recorder_that_runs_out_of_open_files_harms_nobody(tmp_path: pathlib.Path) -> None:
    """Processes that it was about to give an agent go on as if nothing had been."""
    script = "for i in $(seq 300); do sleep 3 & all=\"$all $!\"; done; for it in $all; do wait $it || echo crashed; done"
    command = [binary(), "record", "-o", "app.rec", "--", "sh", "-c", script]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as recorder:
        eventually(lambda: len(child_processes(recorder.pid)) > 0, "the program has begun")
        _, most = resource.prlimit(recorder.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(recorder.pid, resource.RLIMIT_NOFILE, (400, most))
        out, said = recorder.communicate(timeout=PATIENCE_S)
    assert (recorder.returncode, out) == (0, "") and "Too many open files" in said, said
