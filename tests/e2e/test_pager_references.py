"""`tiermem run --dram --references granule`: a policy hears which granules a program uses, and the program notices nothing."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from programs import workload
from store import PATIENCE_S, binary, eventually, retried, tiermem
from test_pager import EATER, MIB, areas, assert_nothing_is_left, groups, machine, run, skip_where_nothing_is_steered  # noqa: F401

PAGES = 32_768
BY_GRANULE = ["--how", "kernel", "--evict", "lru", "--references", "granule"]
# A program whose system calls are filtered, though every one is allowed: no agent makes calls in it.
FILTERED = """
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
program = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0x7fff0000))
filters = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 1, ctypes.addressof(program)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, filters, 0, 0) == 0
"""


def touched(*arguments: str, touches: int = 4 * PAGES) -> dict:
    """A program that touches 128 MiB in half of that, most of the time the same 30% of it, and checks every byte."""
    program = workload("touches", f"--pages {PAGES} --touches {touches} --small-pages")
    done = run("--dram", f"{PAGES // 2 * 4096}", "--flash", "384MiB", "--prefetch", "none", *arguments, "--", *program)
    skip_where_nothing_is_steered(done)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return json.loads(done.stderr)


def test_a_policy_that_hears_of_uses_keeps_what_is_used(tmp_path: pathlib.Path) -> None:
    faults = touched("--how", "kernel", "--evict", "lru", touches=8 * PAGES)

    def attempt() -> dict:
        told = touched(*BY_GRANULE, "--log", str(tmp_path / "log"), touches=8 * PAGES)
        # Simulated, LRU has 0.75 times the page faults; on a busy machine looks come seldom.
        assert told["major_faults"] < 0.96 * faults["major_faults"], (told["major_faults"], faults["major_faults"])
        return told

    told = retried(attempt)
    # At the limit the kernel would choose, to which all pages look unused.
    assert told["kernel_evicted_pages"] < 0.5 * told["major_faults"]
    # What other policies would have made of the uses that were seen; without references none are.
    policies = {row["evict"]: row for row in told["policies"]}
    assert faults["policies"] == [] and len(policies) == 8 and policies["lru"]["granule_bytes"] == 64 << 10
    assert all(0 < policies["belady"]["faults"] <= row["faults"] <= row["touches"] for row in policies.values()), policies
    assert " referenced " in (tmp_path / "log").read_text()
    same = tiermem("pager", "replay", str(tmp_path / "log"))
    assert same.stdout.endswith(" acts, all the same\n"), same.stdout + same.stderr
    assert_nothing_is_left()


def test_granules_are_for_a_policy() -> None:
    for wrong, said in (
        ([], "--references granule is for a policy"),
        (["--evict", "kernel"], "--references granule is for a policy"),
        (["--how", "swap"], "--references is for --how kernel"),
    ):
        done = run("--dram", "64MiB", "--flash", "64MiB", *wrong, "--references", "granule", "--", "true")
        assert done.returncode == 125 and said in done.stderr, done.stderr
    done = run("--dram", "64MiB", "--references", "granule=3KiB", "--evict", "lru", "--", "true")
    assert done.returncode == 125 and "power of two" in done.stderr
    done = tiermem("run", "--references", "granule", "--", "true")
    assert done.returncode == 125 and "--references" in done.stderr


def test_processes_that_come_go_and_begin_other_programs() -> None:
    one = " ".join(workload("touches", f"--pages {PAGES // 4} --touches {2 * PAGES} --small-pages"))
    script = f"for i in 1 2 3; do {one} & done; wait; sh -c 'exec {one}'; exec {one}"
    done = run("--dram", "48MiB", "--flash", "256MiB", *BY_GRANULE, "--", "sh", "-c", script)
    skip_where_nothing_is_steered(done)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" ok\n") == 5
    # No process is left that keeps the memory of one that has gone.
    assert_nothing_is_left()


def test_what_cannot_be_told_is_said() -> None:
    done = run("--dram", "32MiB", "--flash", "128MiB", *BY_GRANULE, "--", sys.executable, "-c", FILTERED + EATER, "60")
    skip_where_nothing_is_steered(done)
    assert done.returncode == 0 and done.stdout == "right\n", done.stderr
    assert "heard of its page faults alone: process" in done.stderr and "filters its system calls" in done.stderr, done.stderr
    assert_nothing_is_left()


def test_the_program_goes_on_when_the_pager_is_killed(tmp_path: pathlib.Path) -> None:
    program = [sys.executable, "-c", EATER.replace("range(2)", "range(12)"), "60"]
    out = (tmp_path / "out").open("w+")
    command = [binary(), "run", "--dram", "32MiB", "--flash", "128MiB", *BY_GRANULE, "--", *program]
    pager = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True)
    eventually(lambda: any(processes(group) for group in groups()), "the program runs")
    (group,) = groups()
    (pid,) = processes(group)
    # Its memory is divided.
    if not eventually_many(pid, pager):
        assert "steering takes" in pager.communicate(timeout=PATIENCE_S)[1]
        pytest.skip("programs cannot be steered here")
    # The agent is not of the program's group.
    assert processes(group) == [pid]
    os.kill(pager.pid, signal.SIGKILL)
    pager.wait()
    eventually(lambda: not pathlib.Path(f"/proc/{pid}").exists(), "the program ends")
    out.seek(0)
    assert out.read() == "right\n"
    tiermem("pager", "status")
    assert_nothing_is_left()


def processes(group: str) -> list[int]:
    """Those of a control group."""
    return [int(it) for it in (pathlib.Path(group) / "cgroup.procs").read_text().split()]


def eventually_many(pid: int, pager: subprocess.Popen) -> bool:
    """Whether a process comes to have very many mappings before the pager ends."""
    maps = pathlib.Path(f"/proc/{pid}/maps")
    while pager.poll() is None:
        try:
            if len(maps.read_text().splitlines()) > 500:
                return True
        except OSError:
            pass
        time.sleep(0.01)
    return False


def test_attached_to_a_process() -> None:
    program = workload("touches", f"--pages {PAGES // 2} --touches {40 * PAGES} --small-pages")
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        command = ["pager", "attach", "--pid", str(process.pid), "--dram", "48MiB", "--flash", "128MiB", "--evict", "clock"]
        done = tiermem(*command, "--references", "granule", "--format", "json")
        out = process.communicate(timeout=PATIENCE_S)[0]
    if done.returncode == 125:
        pytest.skip(f"not here: {done.stderr}")
    assert done.returncode == 0 and out.endswith(" ok\n"), done.stderr
    assert json.loads(done.stdout)["major_faults"] > 100
    assert areas() == []
