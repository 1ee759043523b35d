"""`tiermem pager attach`, `set` and `status --watch`: programs that run are given less DRAM, and everything is put back afterwards."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from programs import tool
from store import PATIENCE_S, ROOT, binary, eventually, tiermem
from test_pager import MIB, areas, assert_nothing_is_left, machine, status  # noqa: F401  (machine is a fixture)

MEMORY = pathlib.Path("/sys/fs/cgroup/memory")
UNLIMITED = (1 << 63) - 4096
REGISTER = pathlib.Path("/run/tiermem/pager")
# Fills memory and says so; then goes over it, checking each page, until its input ends.
READER = """
import os, select, sys
pages = int(sys.argv[1]) * 256
memory = bytearray(pages * 4096)
for page in range(pages):
    memory[page * 4096:page * 4096 + 4] = page.to_bytes(4, "little")
print("ready", flush=True)
while True:
    for page in range(pages):
        assert memory[page * 4096:page * 4096 + 4] == page.to_bytes(4, "little"), page
    if select.select([sys.stdin], [], [], 0)[0]:
        break
print("right", flush=True)
"""


# Fills memory and leaves it alone.
IDLER = READER.replace("while True:", "while False:").replace('print("right"', 'assert sys.stdin.readline()\nprint("right"')


class Reader:
    """A program that has so many MiB, in a group or not."""

    def __init__(self, mib: int, group: pathlib.Path | None = None, script: str = READER) -> None:
        command = [sys.executable, "-c", script, str(mib)]
        if group:
            command = ["sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec "$@"', str(group), *command]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        assert self.process.stdout is not None and self.process.stdout.readline() == "ready\n"
        self.pid = self.process.pid

    def end(self) -> None:
        """Every byte was right until now."""
        out, _ = self.process.communicate("end\n", timeout=PATIENCE_S)
        assert (self.process.returncode, out) == (0, "right\n")

    def bytes_in_memory(self) -> int:
        return kib(self.pid, "VmRSS:") * 1024


def kib(pid: int, name: str) -> int:
    """A field of a process's status."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


@contextlib.contextmanager
def reader(mib: int, group: pathlib.Path | None = None, script: str = READER) -> Iterator[Reader]:
    it = Reader(mib, group, script)
    try:
        yield it
    finally:
        it.process.kill()
        it.process.communicate()


@contextlib.contextmanager
def attached(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """An attachment whose limit holds."""
    command = [binary(), "pager", "attach", *arguments]
    it = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert it.stderr is not None
        said = it.stderr.readline()
        if "steering takes" in said:
            pytest.skip("programs cannot be steered here")
        assert "attached as" in said, said + it.stderr.read()
        yield it
    finally:
        it.kill()
        it.communicate()


def detach(it: subprocess.Popen[str], by: int = signal.SIGINT) -> dict:
    it.send_signal(by)
    out, error = it.communicate(timeout=PATIENCE_S)
    assert it.returncode == 0, error
    return json.loads(out)


@pytest.fixture
def group() -> Iterator[pathlib.Path]:
    """A group of version 1; version 2 is tested in a guest."""
    if not (MEMORY / "memory.limit_in_bytes").exists():
        pytest.skip("the machine's control groups are not of version 1")
    path = MEMORY / f"attach-test-{os.getpid()}"
    path.mkdir()
    yield path
    eventually(lambda: not (path / "cgroup.procs").read_text(), "the group is empty")
    path.rmdir()


def limits(group: pathlib.Path) -> tuple[int, int, str]:
    numbers = [int((group / f"memory.{name}limit_in_bytes").read_text()) for name in ("", "memsw.")]
    return numbers[0], numbers[1], (group / "memory.oom_control").read_text().splitlines()[0]


BEFORE = (UNLIMITED, UNLIMITED, "oom_kill_disable 0")
JSON = ["--format", "json"]


def test_a_group_is_limited_while_it_is_attached_to(group: pathlib.Path) -> None:
    with reader(120, group) as program:
        with attached("--cgroup", str(group), "--dram", "64MiB", "--flash", "160MiB", *JSON) as it:
            assert limits(group) == (64 * MIB, 224 * MIB, "oom_kill_disable 0")
            (row,) = status()
            assert (row["to"], row["pid"], row["processes"], row["command"]) == ("cgroup", it.pid, 1, str(group))
            assert row["dram_bytes"] == 64 * MIB and row["swapped_bytes"] > 40 * MIB and row["evict"] == "kernel"
            told = detach(it)
        assert limits(group) == BEFORE
        assert_nothing_is_left()
        assert list(REGISTER.glob("*.sock")) == []
        program.end()
    assert told["ended"] == "detached" and told["user_s"] is None and told["foreign_bytes"] is not None
    assert told["dram_bytes"] == 64 * MIB and 40 * MIB < told["flash_peak_bytes"] <= 160 * MIB
    assert 120 * MIB <= told["required_bytes"] <= 150 * MIB
    # What left for the limit was written while it was attached to.
    assert told["written_bytes"] > 40 * MIB and sum(it["major_faults"] for it in told["slices"]) == told["major_faults"]


def test_limits_that_were_there_come_back_and_a_group_is_named_as_proc_names_it(group: pathlib.Path) -> None:
    (group / "memory.limit_in_bytes").write_text(str(200 * MIB))
    (group / "memory.memsw.limit_in_bytes").write_text(str(300 * MIB))
    with reader(60, group) as program:
        with attached("--cgroup", f"/{group.name}", "--dram", "40MiB", "--flash", "96MiB", *JSON) as it:
            assert limits(group)[:2] == (40 * MIB, 136 * MIB)
            detach(it, signal.SIGTERM)
        assert limits(group)[:2] == (200 * MIB, 300 * MIB)
        program.end()


def test_swap_stays_on_where_turning_it_off_would_kill(group: pathlib.Path) -> None:
    (group / "memory.limit_in_bytes").write_text(str(160 * MIB))
    (group / "memory.memsw.limit_in_bytes").write_text(str(400 * MIB))
    with reader(60, group, IDLER) as first:
        with attached("--cgroup", str(group), "--dram", "64MiB", "--flash", "320MiB", *JSON) as it:
            # By now it needs more than its old limit of memory.
            with reader(160, group, IDLER) as second:
                it.send_signal(signal.SIGTERM)
                _, error = it.communicate(timeout=PATIENCE_S)
                assert it.returncode == 0 and "stays on" in error and "tries again" in error, error
                assert limits(group) == (160 * MIB, 400 * MIB, "oom_kill_disable 0") and len(areas()) == 1
                # What somebody sets then stays.
                (group / "memory.memsw.limit_in_bytes").write_text(str(420 * MIB))
                assert status() == [] and limits(group)[1] == 420 * MIB and len(areas()) == 1
                second.end()
            first.end()
    assert status() == []
    assert_nothing_is_left()


def test_the_end_of_the_last_process_is_the_attachments(group: pathlib.Path) -> None:
    with reader(40, group) as program, attached("--cgroup", str(group), "--dram", "32MiB", "--flash", "64MiB", *JSON) as it:
        program.end()
        out, error = it.communicate(timeout=PATIENCE_S)
        assert it.returncode == 0 and json.loads(out)["ended"] == "its last process has ended", error
    assert limits(group) == BEFORE
    assert_nothing_is_left()


def test_no_process_is_killed_by_attaching(group: pathlib.Path) -> None:
    with reader(100, group) as program:
        for flags, said in [
            (["--flash", "20MiB"], "there is room for 20MiB on flash; give it more of one"),
            (["--flash", "8MiB"], "would have to leave DRAM"),
            ([], "no swap is on"),
        ]:
            done = tiermem("pager", "attach", "--cgroup", str(group), "--dram", "32MiB", *flags)
            assert done.returncode == 1 and said in done.stderr, done.stderr
            assert limits(group) == BEFORE
            assert_nothing_is_left()
        program.end()


def test_locked_memory_stays(group: pathlib.Path) -> None:
    locks = "import ctypes; assert ctypes.CDLL(None).mlockall(3) == 0\n" + READER
    program = Reader(60, group, script=locks)
    try:
        done = tiermem("pager", "attach", "--cgroup", str(group), "--dram", "32MiB", "--flash", "128MiB")
        assert done.returncode == 1 and "are locked and cannot leave DRAM" in done.stderr, done.stderr
        assert limits(group) == BEFORE
        program.end()
    finally:
        program.process.kill()
        program.process.communicate()
    assert_nothing_is_left()


def test_killed_at_any_moment_the_next_command_puts_the_limits_back(group: pathlib.Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    command = [binary(), "pager", "attach", "--cgroup", str(group), "--dram", "64MiB", "--flash", "160MiB"]
    with reader(120, group) as program:
        for _ in range(10):
            it = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(rng.random() * 0.8)
            it.kill()
            it.wait()
            assert status() == []
            assert limits(group) == BEFORE
        program.end()
    assert_nothing_is_left()


def test_limits_change_while_a_program_runs(group: pathlib.Path) -> None:
    with reader(100, group) as program:
        with attached("--cgroup", str(group), "--dram", "64MiB", "--flash", "160MiB", *JSON) as it:
            for size in (48, 96, 40):
                done = tiermem("pager", "set", f"dram={size}MiB", *JSON)
                assert done.returncode == 0, done.stderr
                (row,) = json.loads(done.stdout)
                assert row["dram_bytes"] == size * MIB
                assert limits(group)[:2] == (size * MIB, (size + 160) * MIB)
            # What cannot be changes nothing.
            done = tiermem("pager", "set", "dram=16KiB")
            assert done.returncode == 1 and "it is from 16MiB" in done.stderr
            assert limits(group)[:2] == (40 * MIB, 200 * MIB)
            told = detach(it)
        program.end()
    assert told["dram_bytes"] == 40 * MIB and limits(group) == BEFORE


def test_a_process_stays_at_its_size_wherever_it_is(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "log"
    with reader(150) as program:
        before = program.bytes_in_memory()
        with attached("--pid", str(program.pid), "--dram", "80MiB", "--flash", "256MiB", "--log", str(log), *JSON) as it:
            # Above it for a moment: what has come since the last step.
            eventually(lambda: program.bytes_in_memory() < 110 * MIB, "most of it is at its size")
            assert kib(program.pid, "VmSwap:") * 1024 > before - 120 * MIB
            (row,) = status()
            assert (row["to"], row["processes"], row["evict"], row["dram_bytes"]) == ("pid", None, "clock", 80 * MIB)
            done = tiermem("pager", "set", row["id"], "evict=lru", "prefetch=none", "dram=120MiB", *JSON)
            assert done.returncode == 0, done.stderr
            (changed,) = json.loads(done.stdout)
            assert (changed["evict"], changed["prefetch"], changed["dram_bytes"]) == ("lru", "none", 120 * MIB)
            refused = tiermem("pager", "set", "evict=kernel")
            assert refused.returncode == 1 and "--cgroup PATH" in refused.stderr
            eventually(lambda: program.bytes_in_memory() > 90 * MIB, "it may have more")
            told = detach(it)
        assert kib(program.pid, "VmSwap:") == 0
        program.end()
    assert_nothing_is_left()
    assert told["ended"] == "detached" and told["how"] == "kernel" and told["foreign_bytes"] is None
    assert told["major_faults"] > 0 and told["written_bytes"] > 40 * MIB and told["dram_bytes"] == 120 * MIB
    # Another core has begun in the middle, and the same events still give the same acts.
    same = tiermem("pager", "replay", str(log))
    assert same.returncode == 0 and "all the same" in same.stdout, same.stderr
    assert [line.split()[1:3] for line in log.read_text().splitlines() if line.startswith("core ")] == [["lru", "none"]]


def test_children_belong_to_a_process() -> None:
    child = f"import os, sys\nif os.fork() == 0:\n    exec({READER!r})\n    sys.exit()\nos.wait()\n"
    program = Reader(60, script=child)
    try:
        children = pathlib.Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
        with attached("--pid", str(program.pid), "--dram", "40MiB", "--flash", "128MiB", *JSON) as it:
            eventually(lambda: kib(int(children[0]), "VmSwap:") > 10 << 10, "the child's memory leaves")
            of_child = tiermem("pager", "attach", "--pid", children[0], "--dram", "64MiB", "--flash", "64MiB")
            assert of_child.returncode == 1 and "already" in of_child.stderr, of_child.stderr
            program.end()
            out, _ = it.communicate(timeout=PATIENCE_S)
            assert json.loads(out)["ended"] == "its last process has ended"
    finally:
        program.process.kill()
        program.process.communicate()
    assert_nothing_is_left()


def test_what_cannot_be_attached_to_is_refused_with_what_helps() -> None:
    kernel_thread = next(
        pid for pid in os.listdir("/proc") if pid.isdigit() and "VmRSS" not in pathlib.Path(f"/proc/{pid}/status").read_text()
    )
    own = pathlib.Path("/proc/self/cgroup").read_text().splitlines()
    own_group = next(line.split(":")[2] for line in own if "memory" in line.split(":")[1] or line.startswith("0::"))
    for what, code, said in [
        (["--pid", "1"], 1, "tiermem"),
        (["--pid", kernel_thread], 1, "thread of the kernel"),
        (["--pid", str(os.getpid())], 1, "has started it"),
        (["--pid", "4194303"], 1, "there is no process"),
        (["--pid", "0"], 1, "there is no process"),
        (["--pid", "1", "--cgroup", "/x"], 2, "cannot be used with"),
        ([], 2, "--cgroup"),
        (["--cgroup", "/"], 1, "group at the top"),
        (["--cgroup", "/sys/fs/cgroup/../../../etc"], 1, "cannot open the control group"),
        (["--cgroup", "no-such-group"], 1, "cannot open the control group"),
        (["--cgroup", own_group], 1, "tiermem itself runs" if own_group != "/" else "group at the top"),
        (["--pid", kernel_thread, "--evict", "kernel"], 2, "--cgroup PATH"),
    ]:
        done = tiermem("pager", "attach", *what, "--dram", "64MiB", "--flash", "64MiB")
        assert done.returncode == code and said in done.stderr, (what, done.stderr)
        assert_nothing_is_left()
    small = tiermem("pager", "attach", "--pid", "1", "--dram", "1MiB")
    assert small.returncode == 1 and "it is from 16MiB" in small.stderr


def test_a_process_that_ends_at_once_leaves_nothing() -> None:
    for pause in (0, 0.01, 0.05, 0.1, 0.2):
        program = subprocess.Popen(["sleep", str(pause)])
        done = tiermem("pager", "attach", "--pid", str(program.pid), "--dram", "32MiB", "--flash", "16MiB", *JSON)
        # It came too late, or saw the end.
        if done.returncode == 0:
            assert json.loads(done.stdout)["ended"] == "its last process has ended"
        else:
            assert done.returncode == 1 and done.stderr.startswith("tiermem: "), done.stderr
        program.wait()
        assert_nothing_is_left()


def test_others_without_rights_are_told_what_it_takes() -> None:
    with reader(20) as program:
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", binary(), "pager", "attach"]
        done = subprocess.run(
            [*command, "--pid", str(program.pid), "--dram", "32MiB", "--flash", "16MiB"],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False, env={"PATH": os.environ["PATH"]},
        )  # fmt: skip
        assert done.returncode == 1 and "root" in done.stderr, done.stderr
        program.end()


def test_two_attachments_at_once_and_each_is_named(group: pathlib.Path) -> None:
    with reader(60, group) as one, reader(60) as other:
        with attached("--cgroup", str(group), "--dram", "48MiB", "--flash", "128MiB", *JSON) as first:
            again = tiermem("pager", "attach", "--cgroup", str(group), "--dram", "48MiB", "--flash", "64MiB")
            assert again.returncode == 1 and "is paged by" in again.stderr
            inside = tiermem("pager", "attach", "--pid", str(one.pid), "--dram", "48MiB", "--flash", "64MiB")
            assert inside.returncode == 1 and "is paged by" in inside.stderr
            with attached("--pid", str(other.pid), "--dram", "48MiB", "--flash", "64MiB", *JSON) as second:
                assert sorted(row["to"] for row in status()) == ["cgroup", "pid"]
                which = tiermem("pager", "set", "dram=64MiB")
                assert which.returncode == 2 and "which one? name it:" in which.stderr
                detach(first)
                assert limits(group) == BEFORE
                assert [row["to"] for row in status()] == ["pid"]
                detach(second)
        one.end()
        other.end()
    assert_nothing_is_left()


def test_a_run_is_set_and_watched_while_it_goes_on() -> None:
    command = [binary(), "run", "--dram", "64MiB", "--flash", "256MiB", *JSON, "--", sys.executable, "-c", READER, "120"]
    pipe = subprocess.PIPE
    pager = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    watch = subprocess.Popen([binary(), "pager", "status", "--watch", "200ms", "--format", "csv"], stdout=pipe, text=True)
    try:
        assert pager.stdout is not None and pager.stdout.readline() == "ready\n"
        done = tiermem("pager", "set", "dram=100MiB", *JSON)
        assert done.returncode == 0 and json.loads(done.stdout)[0]["dram_bytes"] == 100 * MIB, done.stderr
        done = tiermem("pager", "set", "flash=200MiB", "drop-behind=off", *JSON)
        assert done.returncode == 0 and json.loads(done.stdout)[0]["flash_bytes"] == 200 * MIB, done.stderr
        for size, said in (("512MiB", "all swap that is on"), ("1MiB", "which lie there now")):
            refused = tiermem("pager", "set", f"flash={size}")
            assert refused.returncode == 1 and said in refused.stderr
        done = tiermem("pager", "set", "evict=clock", "dram=48MiB", *JSON)
        assert done.returncode == 0, done.stderr
        (row,) = status()
        assert (row["to"], row["dram_bytes"], row["evict"]) == ("program", 48 * MIB, "clock")
        # A rate, from the second look on.
        assert watch.stdout is not None
        names = watch.stdout.readline().strip().split(",")
        rows = (dict(zip(names, next(csv.reader([line])), strict=True)) for line in watch.stdout if "program" in line)
        rate = next(row["major_faults_per_s"] for row in rows if row["major_faults_per_s"])
        assert int(rate) >= 0
        out, error = pager.communicate("end\n", timeout=PATIENCE_S)
        assert out == "right\n" and pager.returncode == 0, error
        assert json.loads(error.splitlines()[-1])["dram_bytes"] == 48 * MIB
    finally:
        for one in (pager, watch):
            one.kill()
            one.communicate()
    nobody = tiermem("pager", "set", "dram=64MiB")
    assert nobody.returncode == 1 and "no program is paged" in nobody.stderr
    wrong = tiermem("pager", "set", "dram=lots")
    assert wrong.returncode == 2 and "dram:" in wrong.stderr
    assert_nothing_is_left()


@pytest.mark.parametrize("to", ["pid", "cgroup"])
def test_every_byte_is_right_while_limits_and_policies_change(to: str, group: pathlib.Path, tmp_path: pathlib.Path) -> None:
    program, log = tmp_path / "hostile", tmp_path / "log"
    source = ROOT / "examples" / "workloads" / "hostile.c"
    subprocess.run([tool("cc"), "-O2", "-pthread", "-o", str(program), str(source)], check=True, timeout=PATIENCE_S)
    command = [str(program), "--seconds", "8", "--size", str(64 * MIB), "--threads", "3", "--folder", str(tmp_path)]
    hostile = subprocess.Popen(["sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec "$@"', str(group), *command], stdout=subprocess.PIPE)
    eventually(lambda: pathlib.Path(f"/proc/{hostile.pid}/comm").read_text() == "hostile\n", "it runs")
    what = str(hostile.pid) if to == "pid" else str(group)
    try:
        with attached(f"--{to}", what, "--dram", "48MiB", "--flash", "320MiB", "--evict", "lru", "--log", str(log), *JSON) as it:
            changes = ("dram=40MiB", "evict=clock", "prefetch=none", "dram=64MiB", "evict=random", "prefetch=next-n", "evict=s3-fifo")
            for change in changes:
                done = tiermem("pager", "set", change)
                assert done.returncode == 0 or hostile.poll() is not None, done.stderr
            out, error = it.communicate(timeout=PATIENCE_S)
            assert it.returncode == 0 and json.loads(out)["ended"] == "its last process has ended", error
        assert hostile.wait(timeout=PATIENCE_S) == 0
    finally:
        hostile.kill()
        hostile.communicate()
    same = tiermem("pager", "replay", str(log))
    assert same.returncode == 0 and "all the same" in same.stdout, same.stderr
    assert sum(line.startswith("core ") for line in log.read_text().splitlines()) >= 2
    assert_nothing_is_left()


def test_clients_that_stall_or_flood_delay_nobody(group: pathlib.Path) -> None:
    with reader(40, group) as program:
        with attached("--cgroup", str(group), "--dram", "48MiB", "--flash", "64MiB", *JSON) as it:
            (path,) = REGISTER.glob("*.sock")
            assert path.stat().st_mode & 0o777 == 0o600
            clients = []
            for _ in range(8):
                client = socket.socket(socket.AF_UNIX)
                client.connect(str(path))
                clients.append(client)
            clients[0].sendall(b"s")
            clients[1].settimeout(PATIENCE_S)
            with contextlib.suppress(OSError):
                clients[1].sendall(b"x" * MIB)
            clients[2].sendall(b"\xff\0\n")
            clients[3].close()
            (row,) = status()
            assert row["major_faults"] is not None
            assert b'"error"' in clients[2].recv(4096)
            for client in clients:
                client.close()
            # Killed, its owner leaves a socket on which nobody answers.
            it.kill()
            it.wait()
            assert status() == [] and not path.exists()
        program.end()
    assert areas() == []
