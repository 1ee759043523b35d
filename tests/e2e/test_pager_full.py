"""`tiermem run --dram` where DRAM and flash are full: the program waits for room, and nothing but somebody who watches makes it wait."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess

import pytest

from store import PATIENCE_S, binary, eventually, tiermem
from test_pager import MIB, assert_nothing_is_left, children, eater, groups, machine, run, status  # noqa: F401  (a fixture)

KILLED = "the kernel killed it for want of memory: it had 32MiB of DRAM and 32MiB of flash"


@pytest.fixture(autouse=True)
def first_version(machine: None) -> None:  # noqa: F811
    """Version 2 of control groups has no such wait."""
    if not pathlib.Path("/sys/fs/cgroup/memory").is_dir():
        pytest.skip("no control groups of version 1")


def started(*arguments: str, mib: int = 120) -> subprocess.Popen:
    command = [binary(), "run", "--dram", "32MiB", "--flash", "32MiB", *arguments, "--", *eater(mib)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until_it_waits() -> dict:
    eventually(lambda: len(status()) == 1 and status()[0]["waits_s"] is not None, "the program waits")
    return status()[0]


def does_the_killer_rest() -> bool:
    """Whether the kernel makes the program wait."""
    (group,) = groups()
    return "oom_kill_disable 1" in pathlib.Path(group, "memory.oom_control").read_text()


def waiter(pager: subprocess.Popen) -> int | None:
    """The process that looks after the wait, if it lives."""
    commands = {pid: pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children(pager.pid)}
    return next((pid for pid, command in commands.items() if b"wait-for-room" in command), None)


@pytest.mark.parametrize("change", ["dram=256MiB", "dram=256MiB evict=clock"])
def test_who_waits_goes_on_when_there_is_room(change: str) -> None:
    pager = started("--wait-when-full", "1000s")
    try:
        waits = until_it_waits()
        assert waits["charged_bytes"] + waits["swapped_bytes"] > 60 * MIB
        (group,) = groups()
        assert "under_oom 1" in pathlib.Path(group, "memory.oom_control").read_text()
        done = tiermem("pager", "set", *change.split())
        assert done.returncode == 0, done.stderr
        out, error = pager.communicate(timeout=PATIENCE_S)
    finally:
        pager.kill()
    assert (pager.returncode, out) == (0, "right\n"), error
    said = "the program waits: its 32MiB of DRAM and 32MiB of flash are full; make room within 1000s: `tiermem pager set dram=SIZE`"
    # It is said at once, and once.
    assert error.startswith(f"tiermem: {said}") and error.count("the program waits") == 1, error
    assert_nothing_is_left()


def test_after_the_time_it_ends_with_the_reason_and_nobody_else_does() -> None:
    bystander = subprocess.Popen(eater(30, "sys.stdin.read()"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    done = run("--dram", "32MiB", "--flash", "32MiB", "--wait-when-full", "1s", "--", *eater(120))
    assert done.returncode == 128 + signal.SIGKILL
    assert re.search(rf"{KILLED}, and waited [\d.]+m?s for room; give it more of one", done.stderr), done.stderr
    assert bystander.communicate("", timeout=PATIENCE_S)[0] == "right\n" and bystander.returncode == 0
    assert_nothing_is_left()


def test_who_is_not_to_wait_does_not() -> None:
    done = run("--dram", "32MiB", "--flash", "32MiB", "--wait-when-full", "0s", "--", *eater(120))
    assert done.returncode == 128 + signal.SIGKILL
    assert f"{KILLED}; give it more of one" in done.stderr and "waits" not in done.stderr
    assert_nothing_is_left()


def test_a_program_that_is_far_from_full_is_left_as_the_kernel_has_it() -> None:
    command = [binary(), "run", "--dram", "600MiB", "--flash", "64MiB", "--", *eater(30, "sys.stdin.read()")]
    pager = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert pager.stdout is not None and pager.stdout.readline() == "right\n"
    assert not does_the_killer_rest()
    pager.communicate("", timeout=PATIENCE_S)
    assert pager.returncode == 0


def test_a_wait_ends_with_tiermem() -> None:
    for killed in range(5):
        pager = started("--wait-when-full", "1000s")
        until_it_waits()
        assert does_the_killer_rest()
        pager.kill()
        # Nobody can make room any more: the kernel ends the program, as it would have without the wait.
        out, _ = pager.communicate(timeout=PATIENCE_S)
        assert out == "", killed
        eventually(lambda: status() == [], "all is over")
        assert_nothing_is_left()


def test_a_wait_goes_on_where_only_its_watcher_was_killed() -> None:
    pager = started("--wait-when-full", "1000s")
    try:
        until_it_waits()
        old = waiter(pager)
        assert old is not None
        os.kill(old, signal.SIGKILL)
        eventually(lambda: waiter(pager) not in (None, old), "another watches")
        assert pager.poll() is None and until_it_waits()
        assert tiermem("pager", "set", "dram=256MiB").returncode == 0
        assert pager.communicate(timeout=PATIENCE_S)[0] == "right\n"
    finally:
        pager.kill()
    assert_nothing_is_left()


def test_where_both_are_killed_at_once_the_next_command_ends_the_wait() -> None:
    pager = started("--wait-when-full", "1000s")
    until_it_waits()
    watcher = waiter(pager)
    assert watcher is not None
    # Neither can do anything any more when the other has gone.
    for signalled in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (watcher, pager.pid):
            os.kill(pid, signalled)
    pager.wait()
    (group,) = groups()
    if does_the_killer_rest():
        assert pathlib.Path(group, "cgroup.procs").read_text() != ""
    eventually(lambda: status() == [], "the next command has ended the wait, and the kernel the program")
    assert_nothing_is_left()


def test_a_stopped_pager_prolongs_no_wait() -> None:
    pager = started("--wait-when-full", "5s")
    until_it_waits()
    pager.send_signal(signal.SIGSTOP)
    (program,) = [pid for pid in children(pager.pid) if pid != waiter(pager)]
    eventually(lambda: "zombie" in pathlib.Path(f"/proc/{program}/status").read_text(), "the kernel has ended the program")
    pager.send_signal(signal.SIGCONT)
    assert KILLED in pager.communicate(timeout=PATIENCE_S)[1]
    assert_nothing_is_left()


def test_a_group_that_is_attached_to_waits_and_is_given_back_as_it_was(tmp_path: pathlib.Path) -> None:
    own = pathlib.Path("/proc/self/cgroup").read_text()
    name = next(line.split(":")[2] for line in own.splitlines() if line.split(":")[1] == "memory")
    group = pathlib.Path(f"/sys/fs/cgroup/memory/{name}/tiermem-test-{os.getpid()}")
    group.mkdir()
    program = subprocess.Popen(eater(20, "memory += bytearray(b'x') * (100 << 20)"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, preexec_fn=lambda: (group / "cgroup.procs").write_text("0"))  # fmt: skip
    try:
        assert program.stdout is not None
        arguments = ["--cgroup", str(group), "--dram", "32MiB", "--flash", f"{tmp_path}=32MiB", "--wait-when-full", "1000s"]
        pager = subprocess.Popen([binary(), "pager", "attach", *arguments], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        until_it_waits()
        pager.send_signal(signal.SIGINT)
        assert "the program waits" in pager.communicate(timeout=PATIENCE_S)[1]
        # Without the limit it goes on.
        assert program.wait(timeout=PATIENCE_S) == 0
        assert "oom_kill_disable 0" in (group / "memory.oom_control").read_text()
    finally:
        program.kill()
        program.wait()
        eventually(lambda: (group / "cgroup.procs").read_text() == "", "the group is empty")
        group.rmdir()
    assert_nothing_is_left()
