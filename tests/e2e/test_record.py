"""`tiermem record --physical`: the traces of small programs, held against the kernel's own account of their memory."""

from __future__ import annotations

import collections
import contextlib
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator

import pytest

from programs import tool
from store import PATIENCE_S, binary, eventually, tiermem

PAGE = 4096
# Small, so that what a small program writes comes back from memory.
CACHES = ["--l1i", "4KiB,4", "--l1d", "4KiB,4", "--l2", "16KiB,4", "--llc", "64KiB,4"]


@pytest.fixture(scope="module")
def stride() -> str:
    """A program that reads and writes a table; the tests of this file need valgrind and root as well."""
    tool("valgrind")
    if os.geteuid() != 0:
        pytest.skip("only root may see physical addresses")
    path = pathlib.Path(binary()).parent / "stride"
    if not path.exists():
        pytest.skip(f"{path} is not there: build it with `cargo build -p tiermem-workloads`")
    return str(path)


def record(out: pathlib.Path, *arguments: str) -> dict:
    """What the recording says of itself."""
    report = out.with_suffix(".report")
    done = tiermem(
        "record", "--physical", "--format", "json", "--report", str(report), "-o", str(out), *arguments, patience_s=5 * PATIENCE_S
    )
    assert done.returncode == 0, done
    [summary] = json.loads(report.read_text())
    return summary


def records(trace: pathlib.Path, addresses: str) -> list[dict]:
    done = tiermem("trace", "show", str(trace), "--format", "json", "--addresses", addresses)
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def stat(trace: pathlib.Path, addresses: str) -> dict:
    done = tiermem("trace", "stat", str(trace), "--format", "json", "--addresses", addresses)
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def frames_of(trace: pathlib.Path) -> dict[int, list[int]]:
    """The frames that each page was found in, one after the other."""
    frames: dict[int, list[int]] = collections.defaultdict(list)
    for virtual, physical in zip(records(trace, "virtual"), records(trace, "physical"), strict=True):
        seen = frames[virtual["key"] // PAGE]
        if not seen or seen[-1] != physical["key"] // PAGE:
            seen.append(physical["key"] // PAGE)
    return frames


def test_a_record_has_both_addresses(stride: str, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "stride.parquet"
    command = [stride, "--footprint", "2MiB", "--stride", "64", "--accesses", "1M"]
    summary = record(out, *CACHES, "--transactions", "20k", "--", *command)
    assert summary["transactions"] + summary["unresolved"] == 20_000
    assert summary["loads"] + summary["stores"] == summary["transactions"]
    assert summary["pages"] == summary["pages_at_once"] + summary["pages_late"] + summary["pages_unresolved"]
    assert summary["unresolved"] <= 20 and summary["ended"] == "transactions"
    assert summary["accesses"] < summary["instructions"] and summary["faults"] > 0

    virtual, physical = records(out, "virtual"), records(out, "physical")
    assert len(virtual) == len(physical) == summary["transactions"]
    for one, other in zip(virtual, physical, strict=True):
        assert one["key"] % PAGE == other["key"] % PAGE and one["key"] % 64 == 0
        # By virtual addresses each access also has its frame: the physical address's.
        assert one.pop("frame") == other["key"] // PAGE
        assert {**one, "key": 0} == {**other, "key": 0}
        assert one["op"] in ("load", "store") and one["size"] == 64
    times = [row["time_ns"] for row in virtual]
    assert times == sorted(times) and times[-1] > 0
    # Every line of a table that is walked through is filled and, once the caches are full, written back.
    assert summary["stores"] > 0.3 * summary["transactions"]
    # A frame of its own for each page, but for those that were never written, which share the frame of zeros.
    frames = frames_of(out)
    last = collections.Counter(seen[-1] for seen in frames.values())
    assert sum(count for count in last.values() if count == 1) > 0.8 * len(frames)

    by_program, by_device = stat(out, "virtual"), stat(out, "physical")
    assert by_program["addresses"]["footprint_bytes"] == len(frames) * PAGE
    for result in (by_program, by_device):
        assert result["requests"] == summary["transactions"] and result["writes"] == summary["stores"]
        assert 0 <= result["addresses"]["spatial_locality"] <= 1
        assert 0 <= result["addresses"]["temporal_locality"] <= 1
    # Walking through memory is local to the program; what frames it has got, is the kernel's choice.
    assert by_program["addresses"]["spatial_locality"] >= by_device["addresses"]["spatial_locality"] - 0.01


def has_read_all(pid: int) -> bool:
    """Whether a recorder waits, and nothing is in the pipes that it reads."""

    def are_empty() -> bool:
        for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            if str(link.readlink()).startswith("pipe:"):
                pipe = os.open(link, os.O_RDONLY | os.O_NONBLOCK)
                try:
                    unread = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]
                finally:
                    os.close(pipe)
                if unread:
                    return False
        return True

    def waits() -> bool:
        threads = pathlib.Path(f"/proc/{pid}/task").iterdir()
        return all((it / "stat").read_text().rpartition(")")[2].split()[0] == "S" for it in threads)

    try:
        # Emptied, and what was in them is done with as well.
        return are_empty() and waits() and are_empty()
    except FileNotFoundError:
        # It closes files, so it is at work.
        return False


@contextlib.contextmanager
def holding(out: pathlib.Path, *command: str) -> Iterator[tuple[int, int, int]]:
    """Records a program until it holds its table still; yields the program's number and where the table lies."""
    log = out.with_suffix(".log")
    with log.open("wb") as err:
        process = subprocess.Popen(
            [binary(), "record", "--physical", *CACHES, "-o", str(out), "--", *command, "--hold", "1000"],
            stdout=err,
            stderr=err,
        )
        try:
            pattern = r"holding (\d+) bytes at 0x([0-9a-f]+)\n"
            eventually(lambda: re.search(pattern, log.read_text()), "the program holds its table")
            said = re.search(pattern, log.read_text())
            assert said is not None
            eventually(lambda: has_read_all(process.pid), "the recorder has read what the program did")
            [child] = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            yield int(child), int(said[2], 16), int(said[1])
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0, log.read_text()
            assert not pathlib.Path(f"/proc/{child}").exists(), "the program has outlived its recording"
        finally:
            process.kill()
            process.wait()


def pagemap(pid: int, start: int, length: int) -> dict[int, int]:
    """The frames of a range, as the kernel tells them."""
    first, count = start // PAGE, length // PAGE
    with pathlib.Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as file:
        file.seek(first * 8)
        entries = struct.unpack(f"={count}Q", file.read(count * 8))
    return {page: entry & (1 << 55) - 1 for page, entry in enumerate(entries, first) if entry >> 63}


@pytest.mark.parametrize("rounds", [1, 3])
def test_frames_are_those_that_the_kernel_tells(stride: str, tmp_path: pathlib.Path, rounds: int) -> None:
    # Tables of this size are mapped for themselves, and unmapped when they are given back.
    out = tmp_path / "held.parquet"
    size = 36 << 20
    pages = size // PAGE
    arguments = ["--footprint", str(size), "--stride", str(PAGE), "--accesses", str(3 * pages), "--rounds", str(rounds)]
    with holding(out, stride, *arguments) as (child, start, length):
        truth = pagemap(child, start + PAGE, length - PAGE)
        assert len(truth) >= pages - 1
    frames = frames_of(out)
    found = {page: frames[page][-1] for page in truth if page in frames}
    # The last lines may still have been in the pipe.
    assert len(found) > 0.99 * len(truth)
    right = sum(found[page] == truth[page] for page in found)
    assert right > 0.99 * len(found), (right, len(found))
    if rounds > 1:
        # Given back and taken again, most pages lie elsewhere than before, and that was seen.
        assert sum(len(frames[page]) > 1 for page in found) > 0.5 * len(found)


def refused(code: int, *arguments: str, **options: object) -> str:
    """What the command says, in one line, when it fails in this way."""
    done = subprocess.run(
        [binary(), "record", *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False, **options
    )
    assert done.returncode == code, done
    assert done.stdout == "" and "panicked" not in done.stderr
    return done.stderr


def test_what_cannot_be_recorded_is_told_in_a_line(tmp_path: pathlib.Path) -> None:
    out = str(tmp_path / "a.parquet")
    physical = ["--physical", "-o", out]
    for code, arguments, says in [
        (127, [*physical, "--", "no-such-program"], "cannot run no-such-program: it is not in PATH"),
        (126, [*physical, "--", "/etc/passwd"], "not executable"),
        (125, [*physical, "--llc", "512KiB,16", "--", "true"], "LLC of 512KiB cannot hold all of L2"),
        (125, ["--physical", "-o", str(tmp_path / "no" / "a.parquet"), "--", "true"], "cannot write "),
    ]:
        text = refused(code, *arguments)
        assert says in text and text.count("\n") == 1, text
    assert "CMD" in refused(125, *physical)
    assert "32KiB,8" in refused(125, *physical, "--l2", "33KiB", "--", "true")
    empty = {**os.environ, "PATH": str(tmp_path)}
    assert "install it" in refused(125, *physical, "--", shutil.which("true") or "/bin/true", env=empty)
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_valgrind_does_not_know_is_told(tmp_path: pathlib.Path) -> None:
    tool("valgrind")
    compiler = tool("cc")
    if os.geteuid() != 0:
        pytest.skip("only root may see physical addresses")
    source, program = tmp_path / "wide.c", tmp_path / "wide"
    source.write_text("int main(void) { __asm__ volatile(\"vpaddd %zmm0, %zmm0, %zmm0\"); return 0; }\n")
    if subprocess.run([compiler, str(source), "-o", str(program)], capture_output=True, check=False).returncode != 0:
        pytest.skip("this compiler or processor has no AVX-512")
    out = tmp_path / "wide.parquet"
    done = tiermem("record", "--physical", "-o", str(out), "--", str(program))
    assert done.returncode == 125, done
    assert "AVX-512" in done.stderr and "x86-64-v3" in done.stderr
    # What it did until then is there.
    assert len(records(out, "physical")) > 100


def test_a_trace_of_another_kind_has_no_physical_addresses() -> None:
    done = tiermem("trace", "stat", "zipf:requests=10", "--addresses", "physical")
    assert done.returncode == 1 and "no physical addresses" in done.stderr


def test_a_second_signal_ends_a_recording_at_once(tmp_path: pathlib.Path) -> None:
    """Here in the midst of writing what it has recorded, to somebody who never reads it."""
    out = tmp_path / "recording"
    os.mkfifo(out)
    process = subprocess.Popen([binary(), "record", "-o", str(out), "--", "sleep", "600"], stderr=subprocess.DEVNULL)
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        eventually(lambda: children.read_text().split(), "the program runs")
        eventually(lambda: listens(process.pid), "signals are received")
        waited = waits(process.pid)
        eventually(lambda: waits(process.pid) > waited + 20, "it has recorded something")
        process.send_signal(signal.SIGINT)
        eventually(lambda: all(has_ended(child) for child in children.read_text().split()), "the recording has ended")
        assert process.poll() is None, "it writes it"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()


def has_ended(pid: str) -> bool:
    """Whether a child has ended, which may not have been taken in."""
    stat = pathlib.Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def listens(pid: int) -> bool:
    """Whether SIGINT does not end the process."""
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
    return caught is not None and int(caught[1], 16) >> (signal.SIGINT - 1) & 1 == 1


def waits(pid: int) -> int:
    """How often the process has waited, as it does between two looks at the program."""
    return int(re.findall(r"^voluntary_ctxt_switches:\s*(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[0])
