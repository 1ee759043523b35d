"""`tiermem record`, `tiermem plan` and `tiermem sim place` with programs whose accesses are known. Nothing here is about time:
what depends on how often a busy machine lets the recorder look is tried again, up to three times."""

from __future__ import annotations

import collections
import contextlib
import csv
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from programs import workload
from store import MIB, PATIENCE_S, binary, eventually, retried, tiermem

# Where the kernel counts DAMON's monitors, if it has DAMON.
KDAMONDS = pathlib.Path("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds")
NODES = pathlib.Path("/sys/devices/system/node/has_memory")


def record(out: pathlib.Path, *arguments: str, code: int = 0) -> tuple[dict, str]:
    """The summary of a recording and what was said beside it, the program's output included."""
    report = out.with_suffix(".report")
    done = tiermem(
        "record", "-o", str(out), "--format", "json", "--report", str(report), *arguments, patience_s=2 * PATIENCE_S
    )
    assert done.returncode == code and "panicked" not in done.stderr, done
    [summary] = json.loads(report.read_text())
    return summary, done.stdout + done.stderr


def failed(code: int, *arguments: str) -> str:
    """What the command says when it fails in this way."""
    done = tiermem(*arguments)
    assert done.returncode == code, done
    assert done.stdout == "" and "panicked" not in done.stderr, done
    return done.stderr


def table(recording: pathlib.Path, granule: int, *selection: str) -> list[dict[str, float]]:
    """Accesses to the region with most of them, of those that are selected, by slice and granule."""
    out = recording.with_suffix(".csv")
    done = tiermem("heatmap", str(recording), "--granule", str(granule), *selection, "-o", str(out))
    assert done.returncode == 0, done
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    heat: collections.Counter[str] = collections.Counter()
    for row in rows:
        heat[row["region"]] += float(row["accesses"])
    assert heat, "nothing was accessed"
    [(hottest, _)] = heat.most_common(1)
    fields = ("slice", "granule", "accesses", "loads", "stores")
    return [{name: float(row[name]) for name in fields} for row in rows if row["region"] == hottest]


def regions(recording: pathlib.Path) -> list[dict]:
    done = tiermem("heatmap", str(recording), "--format", "json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def ranks(values: list[float]) -> list[float]:
    """The place of each in order, the mean of their places for those that are equal."""
    places = collections.defaultdict(list)
    for place, value in enumerate(sorted(values)):
        places[value].append(place)
    return [sum(places[value]) / len(places[value]) for value in values]


def rank_correlation(xs: list[float], ys: list[float]) -> float:
    assert len(xs) == len(ys) > 2, (xs, ys)
    xs, ys = ranks(xs), ranks(ys)
    middle = (len(xs) - 1) / 2
    xs, ys = [x - middle for x in xs], [y - middle for y in ys]
    squares = sum(x * x for x in xs) * sum(y * y for y in ys)
    return sum(x * y for x, y in zip(xs, ys, strict=True)) / max(squares, 1) ** 0.5


def agreement(recording: pathlib.Path, granule: int, said: str, granules: int) -> float:
    """How alike the order of granules is by the reads that the program has counted and by the heat that was seen."""
    reads = dict(line.split(",") for line in said.splitlines() if line.replace(",", "").isdigit())
    assert len(reads) == granules, said
    heat: collections.Counter[int] = collections.Counter()
    # Not the program's code, which is used more often than any of its data.
    for row in table(recording, granule, "--region", "largest"):
        heat[int(row["granule"])] += row["accesses"]
    return rank_correlation([float(reads[str(it)]) for it in range(granules)], [heat[it] for it in range(granules)])


@pytest.fixture(scope="module")
def passes(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A recording of a hotspot that moves through a table four times."""
    out = tmp_path_factory.mktemp("passes") / "passes.rec"
    command = workload("hotspot", "--footprint 256MiB --hot 16MiB --pass-ms 2000 --passes 4")

    def attempt() -> None:
        record(out, "--slice", "200ms", "--", *command)
        done = tiermem("plan", str(out), "--fast", "128MiB", "--format", "json")
        assert done.returncode == 0 and len(json.loads(done.stdout)["sweeps"]) == 1, done

    retried(attempt)
    return out


@pytest.fixture(scope="module")
def plan(passes: pathlib.Path) -> pathlib.Path:
    """A plan for it, with fast memory for half of the table."""
    out = passes.with_suffix(".plan")
    done = tiermem("plan", str(passes), "--fast", "128MiB", "-o", str(out))
    assert done.returncode == 0, done
    return out


def test_heat_goes_by_how_often_memory_is_read(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "skewed.rec"
    command = workload("skewed", "--footprint 256MiB --granule 4MiB --seconds 5 --per-second 2000000")

    def attempt() -> None:
        summary, said = record(out, "--", *command)
        assert summary["slices"] > 0 and summary["ended"] == "exit status: 0"
        assert agreement(out, 4 * MIB, said, 64) >= 0.95

    retried(attempt)


def test_heat_of_a_large_table_is_told_though_its_hot_pages_are_all_touched_within_a_window(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "large.rec"
    # As fast as it can: a walk over all pages takes longer than the hottest ones stay untouched.
    command = workload("skewed", "--footprint 512MiB --granule 4MiB --seconds 6 --per-second 1000000000")

    def attempt() -> None:
        _, said = record(out, "--small-pages", "--", *command)
        assert agreement(out, 4 * MIB, said, 128) >= 0.9

    retried(attempt)


def huge_bytes(pid: int) -> int:
    """What of a process lies in huge pages."""
    lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("AnonHugePages"))


def test_huge_pages_are_told_by_their_accesses_and_stay_huge(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "[never]" in pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text():
        pytest.skip("the machine has no huge pages")
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
    out = tmp_path / "huge.rec"
    command = workload("skewed", "--footprint 256MiB --granule 4MiB --seconds 8 --per-second 1000000000")

    def attempt() -> None:
        recorder = subprocess.Popen(
            [str(binary()), "record", "-o", str(out), "--", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        huge = 0
        while recorder.poll() is None:
            time.sleep(0.05)
            for children in pathlib.Path(f"/proc/{recorder.pid}/task").glob("*/children"):
                try:
                    # The last that there were before the program's end.
                    huge = max((huge_bytes(int(child)) for child in children.read_text().split()), default=0) or huge
                except OSError:
                    continue
        said, _ = recorder.communicate()
        assert recorder.returncode == 0, said
        if huge == 0:
            pytest.skip("the program got no huge pages")
        # At most a few are mapped page by page at the moment.
        assert huge >= 200 * MIB, huge
        # As many accesses as the program has counted, about, and not as many as it has huge pages.
        reads = sum(int(line.split(",")[1]) for line in said.splitlines() if line.replace(",", "").isdigit())
        told = sum(row["accesses"] for row in table(out, 4 * MIB))
        assert reads / 4 < told < reads * 4, (reads, told)

    retried(attempt)


def test_a_hotspot_is_seen_moving(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "hotspot.rec"
    command = workload("hotspot", "--footprint 256MiB --hot 16MiB --pass-ms 4000 --passes 1")

    def attempt() -> None:
        record(out, "--slice", "200ms", "--", *command)
        slices: dict[float, dict[float, float]] = collections.defaultdict(dict)
        for row in table(out, 4 * MIB):
            slices[row["slice"]][row["granule"]] = row["accesses"]
        # The table is filled first, from low to high addresses; that is over once most of it is touched in one slice.
        filled = min((number for number, heat in slices.items() if len(heat) > 48), default=0)
        at = {}
        for number, heat in sorted(slices.items()):
            hot = [granule for granule, accesses in heat.items() if accesses > max(heat.values()) / 2]
            if number > filled:
                at[number] = sum(hot) / len(hot)
        assert len(at) >= 5, at
        found = rank_correlation(list(at), list(at.values()))
        assert found > 0.9, (found, at)

    retried(attempt)


def test_writes_are_told_from_reads(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "writes.rec"
    command = workload("random", "--footprint 64MiB --accesses 20000000")

    def attempt() -> None:
        done = tiermem("record", "-o", str(out), "--source", "writes", "--slice", "100ms", "--duration", "4s", "--", *command)
        if done.returncode == 1 and "cannot look at" in done.stderr:
            pytest.skip(done.stderr.strip())
        assert done.returncode == 0, done
        rows = table(out, 4 * MIB)
        assert sum(row["loads"] for row in rows) == 0
        assert len({row["granule"] for row in rows if row["stores"] > 0}) > 12, rows

    retried(attempt)


def test_memory_that_is_given_back_is_not_written(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "given.rec"
    # The first half is written; the second one is given back, and read.
    code = """if 1:
        import mmap, time
        half = 32 << 20
        memory = mmap.mmap(-1, 2 * half, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for at in range(0, 2 * half, 4096):
            memory[at] = 1
        end = time.monotonic() + 4
        while time.monotonic() < end:
            memory.madvise(mmap.MADV_DONTNEED, half, half)
            for at in range(0, half, 4096):
                memory[at] = memory[half + at] + 1
    """

    def attempt() -> None:
        done = tiermem("record", "-o", str(out), "--source", "writes", "--slice", "200ms", "--", "python3", "-c", code)
        if done.returncode == 125 and "cannot look at" in done.stderr:
            pytest.skip(done.stderr.strip())
        assert done.returncode == 0, done
        rows = [row for row in table(out, 4 * MIB) if row["slice"] >= 5 and row["stores"] > 0]
        # The kernel may have joined it with what lies beside it.
        assert 6 <= len({row["granule"] for row in rows}) <= 11, rows

    retried(attempt)


def test_touched_bytes_are_those_in_memory(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "sparse.rec"
    # A page in each granule of 4 MiB, written again and again.
    code = """if 1:
        import mmap, time
        memory = mmap.mmap(-1, 512 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            for at in range(0, 512 << 20, 4 << 20):
                memory[at] = 1
    """

    def attempt() -> None:
        summary, _ = record(out, "--slice", "200ms", "--", "python3", "-c", code)
        [largest] = sorted(regions(out), key=lambda row: row["bytes"])[-1:]
        # What the kernel has joined it with is small.
        assert largest["touched_granules"] >= 100 and 100 * 4096 <= largest["touched_bytes"] <= 8 * MIB, largest
        assert summary["touched_bytes"] < 64 * MIB, summary

    retried(attempt)


# Fills 64 MiB, and writes the last 8 of them from then on.
BEGINS = """if 1:
    import mmap, time
    memory = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # Whoever looks has looked by then.
    time.sleep(0.4)
    for at in range(0, 64 << 20, 4096):
        memory[at] = 1
    end = time.monotonic() + 3
    while time.monotonic() < end:
        for at in range(56 << 20, 64 << 20, 4096):
            memory[at] = 1
"""


def test_how_a_program_begins_is_told_and_can_be_left_out(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "begins.rec"

    def attempt() -> None:
        summary, _ = record(out, "--slice", "200ms", "--granule", "1MiB", "--", sys.executable, "-c", BEGINS)
        begins = summary["initialisation_slices"]
        assert 0 < begins < summary["slices"] / 2, summary
        page = tmp_path / "begins.html"
        assert tiermem("heatmap", str(out), "-o", str(page)).returncode == 0
        assert "for the first time in slice" in page.read_text()
        made = tiermem("plan", str(out), "--fast", "12MiB", "--format", "json")
        assert made.returncode == 0 and f"give --slices {begins}.." in made.stderr, made
        # Two more, in which it may still have been filling its memory.
        later = tiermem("plan", str(out), "--fast", "12MiB", "--slices", f"{begins + 2}..", "--format", "json")
        assert later.returncode == 0 and later.stderr == "", later
        whole, rest = (json.loads(it.stdout)["predicted"]["slow_share_before"] for it in (made, later))
        # What was touched first is in its way, unless it does not count.
        assert whole > 0.4 and rest < 0.2, (whole, rest)

    retried(attempt)
    assert "slices 0 to" in failed(2, "plan", str(out), "--fast", "12MiB", "--slices", "999")


def test_a_recording_begins_later_on_request(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "later.rec"

    def attempt() -> None:
        summary, _ = record(
            out, "--delay", "1500ms", "--source", "faults", "--slice", "200ms", "--granule", "1MiB", "--", sys.executable, "-c", BEGINS
        )
        # It had filled its memory before, and its beginning is not there.
        assert summary["slices"] > 2 and summary["initialisation_slices"] == 0, summary
        assert summary["touched_bytes"] < 16 * MIB, summary

    retried(attempt)


def test_a_program_that_ends_before_its_recording_begins_leaves_it_empty(tmp_path: pathlib.Path) -> None:
    summary, said = record(tmp_path / "ended.rec", "--delay", "600s", "--", "true")
    assert summary["samples"] == 0 and "before anything was seen of it" in said


def test_a_part_is_looked_at_more_closely(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "closer.rec"
    # Read so slowly that most pages are touched in few slices. On a busy machine the recorder's windows are as long as a slice or
    # longer, for it waits for a processor between them; granules all of whose pages are touched in each are alike to it.
    command = workload("skewed", "--footprint 16MiB --granule 64KiB --seconds 4 --per-second 10000")

    def attempt() -> None:
        _, said = record(out, "--slice", "200ms", "--closer", "anon=64KiB", "--small-pages", "--", *command)
        # Spread evenly over granules of 4 MiB there would be next to none.
        assert agreement(out, 64 << 10, said, 256) > 0.7

    retried(attempt)


@pytest.mark.parametrize("name", ["hottest", "largest", "anon 1"])
def test_a_region_has_the_same_names_everywhere(tmp_path: pathlib.Path, name: str) -> None:
    out, rows = tmp_path / "named.rec", tmp_path / "rows.csv"
    command = workload("skewed", "--footprint 16MiB --granule 64KiB --seconds 3 --per-second 100000")

    def attempt() -> None:
        record(out, "--slice", "200ms", "--closer", f"{name}=64KiB", "--small-pages", "--", *command)
        done = tiermem("heatmap", str(out), "--region", name, "--granule", "64KiB", "-o", str(rows))
        assert done.returncode == 0, done
        with rows.open(newline="") as file:
            heat = list(csv.DictReader(file))
        assert {row["name"] for row in heat} == {"anon 1"}
        # The source cannot tell them apart.
        assert {(row["loads"], row["stores"]) for row in heat} == {("0", "0")}
        assert "does not tell loads" in failed(2, "heatmap", str(out), "--op", "load")
        # From the slice on in which it was known, it was looked at in these granules.
        counts = collections.Counter(row["accesses"] for row in heat if int(row["slice"]) > 3)
        assert len(counts) > 30, counts

    retried(attempt)


def test_a_name_that_nothing_has_is_told(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "named.rec"
    command = workload("skewed", "--footprint 16MiB --seconds 1 --per-second 100000")
    done = tiermem("record", "-o", str(out), "--slice", "100ms", "--closer", "anon 77=64KiB", "--", *command)
    assert done.returncode not in (0, 2) and "no such region" in done.stderr, done
    for says in ["`hottest`", "anon 1", "heap", "libc.so.6 text"]:
        assert says in done.stderr, done
    said = failed(2, "heatmap", str(out), "--region", "anon 77")
    assert "no region" in said and "`hottest`" in said and "anon 1" in said and "libc.so.6 text" in said
    assert tiermem("heatmap", str(out), "--region", "anon", "-o", str(tmp_path / "a.png")).returncode == 0


def wait_until_filled(pid: int) -> None:
    pages = pathlib.Path(f"/proc/{pid}/statm")
    eventually(lambda: int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") > 60 * MIB, "its table is filled")


@pytest.fixture
def runs() -> Iterator[subprocess.Popen]:
    """A program that has been running for a while, and ends with the test."""
    command = workload("skewed", "--footprint 64MiB --seconds 600")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_filled(process.pid)
        yield process
    finally:
        process.kill()
        process.wait()


def test_what_runs_already_is_looked_at_as_wholes(runs: subprocess.Popen, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "pid.rec"

    def attempt() -> None:
        summary, said = record(out, "--pid", str(runs.pid), "--duration", "1s", "--slice", "100ms")
        assert summary["ended"] == "stopped" and summary["program_cpu_s"] == 0
        assert said.startswith("tiermem: refs: there was no agent") and "as wholes" in said
        assert regions(out)[0]["bytes"] >= 64 * MIB
        assert summary["unknown_heat_share"] > 0.5, summary
        # No more is touched than there is.
        resident = int(pathlib.Path(f"/proc/{runs.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        assert 32 * MIB < summary["touched_bytes"] <= resident, summary
        assert regions(out)[0]["touched_granules"] is None

    retried(attempt)
    assert runs.poll() is None, "recording has ended the program"
    page = tmp_path / "pid.html"
    assert tiermem("heatmap", str(out), "-o", str(page)).returncode == 0
    assert "Which memory is hot is not known" in page.read_text()
    for command in ["plan", str(out)], ["sim", "place", str(out)]:
        said = failed(1, *command, "--fast", "16MiB")
        assert "--inject" in said and "--source damon" in said, said


def test_a_recorder_finds_another_at_work(runs: subprocess.Popen, tmp_path: pathlib.Path) -> None:
    shared = ["--pid", str(runs.pid), "--slice", "100ms"]
    first = subprocess.Popen([binary(), "record", "-o", str(tmp_path / "first.rec"), *shared], stdout=subprocess.DEVNULL)
    try:
        # Its recording is there after the first slice.
        eventually((tmp_path / "first.rec").exists, "the first recorder records")
        for second in [], ["--inject"], ["--source", "writes"]:
            said = failed(1, "record", "-o", str(tmp_path / "second.rec"), *shared, *second)
            assert f"being observed already by process {first.pid}" in said and "--source faults" in said, said
        assert not (tmp_path / "second.rec").exists()
        # Page faults can be seen by two.
        done = tiermem("record", "-o", str(tmp_path / "faults.rec"), *shared, "--source", "faults", "--duration", "300ms")
        assert "observed already" not in done.stderr, done
    finally:
        first.send_signal(signal.SIGINT)
        assert first.wait(PATIENCE_S) == 0
    record(tmp_path / "second.rec", *shared, "--duration", "300ms")


def test_a_terminal_shows_how_far_a_recording_is(runs: subprocess.Popen, tmp_path: pathlib.Path) -> None:
    def attempt() -> None:
        ours, theirs = pty.openpty()
        command = [binary(), "record", "-o", str(tmp_path / "shown.rec"), "--pid", str(runs.pid)]
        recorder = subprocess.Popen([*command, "--duration", "2s", "--slice", "100ms"], stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        shown = b""
        # A terminal that nobody writes to any more ends with an error.
        with contextlib.suppress(OSError):
            while more := os.read(ours, 1 << 16):
                shown += more
        os.close(ours)
        assert recorder.wait() == 0
        assert re.search(rb"s of 2s  \d+ slices, [0-9.]+[KM]iB written", shown), shown

    retried(attempt)
    done = tiermem("record", "-o", str(tmp_path / "quiet.rec"), "--pid", str(runs.pid), "--duration", "500ms")
    assert done.returncode == 0 and "written" not in done.stderr, done


def test_what_runs_already_is_looked_at_in_granules_on_request(runs: subprocess.Popen, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "injected.rec"

    def attempt() -> None:
        summary, said = record(out, "--pid", str(runs.pid), "--inject", "--duration", "2s", "--slice", "200ms", "--granule", "1MiB")
        assert summary["ended"] == "stopped" and "no agent" not in said
        assert len({row["granule"] for row in table(out, MIB)}) >= 32
        assert summary["unknown_heat_share"] == 0, summary
        assert tiermem("plan", str(out), "--fast", "16MiB").returncode == 0

    retried(attempt)
    assert runs.poll() is None, "recording has ended the program"
    # Its mappings are whole again.
    assert len(pathlib.Path(f"/proc/{runs.pid}/maps").read_text().splitlines()) < 60


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_an_interrupt_keeps_the_recording(tmp_path: pathlib.Path, number: signal.Signals) -> None:
    out, report = tmp_path / "interrupted.rec", tmp_path / "report"
    command = workload("skewed", "--footprint 64MiB --seconds 600")

    def attempt() -> None:
        with subprocess.Popen(
            [binary(), "record", "-o", str(out), "--slice", "50ms", "--format", "json", "--report", str(report), "--", *command],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            # Under nohup, which these tests may run under, it goes on without its terminal.
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        ) as process:  # fmt: skip
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
            try:
                eventually(lambda: children.read_text(), "it has started the program")
                # The first one is the program, the second one its agent.
                child, *_ = sorted(children.read_text().split(), key=int)
                wait_until_filled(int(child))
                time.sleep(1)
                process.send_signal(number)
                printed, said = process.communicate(timeout=PATIENCE_S)
            finally:
                process.kill()
        assert process.returncode == 128 + number and printed == "", said
        assert json.loads(report.read_text())[0]["ended"] == "stopped"
        assert not pathlib.Path(f"/proc/{child}").exists(), "the program has outlived its recording"
        assert regions(out)[0]["bytes"] >= 64 * MIB

    retried(attempt)


def test_a_program_that_becomes_another_is_followed(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "exec.rec"
    [program] = workload("skewed")

    def attempt() -> None:
        shell = f"exec '{program}' --footprint 32MiB --granule 4MiB --seconds 3"
        summary, said = record(out, "--slice", "100ms", "--", "sh", "-c", shell)
        assert summary["ended"] == "exit status: 0" and "began another program" in said
        assert regions(out)[0]["bytes"] >= 32 * MIB
        assert len({row["granule"] for row in table(out, 4 * MIB)}) >= 8

    retried(attempt)


def test_what_was_seen_of_a_killed_program_is_kept(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "killed.rec"

    def attempt() -> None:
        # It works all the time, so that there is something to see whenever the recorder gets to look.
        shell = "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done; kill -KILL $$"
        summary, said = record(out, "--slice", "50ms", "--", "sh", "-c", shell, code=128 + signal.SIGKILL)
        assert "SIGKILL" in summary["ended"]
        assert sum(row["accesses"] for row in regions(out)) > 0

    retried(attempt)


@pytest.mark.parametrize(
    ("code", "arguments", "says"),
    [
        (125, ["--granule", "5000", "--", "true"], "multiple of 4KiB"),
        (125, ["--slice", "0s", "--", "true"], "1ms long"),
        (125, ["--source", "magic", "--", "true"], "refs, writes, faults, damon"),
        (125, ["--pid", "1", "--", "true"], "cannot be used with"),
        (127, ["--", "no-such-program"], "not in PATH"),
        (125, [], "required"),
        (1, ["--pid", str(1 << 23)], f"no process {1 << 23}"),
    ],
)
def test_what_cannot_be_recorded_is_told(tmp_path: pathlib.Path, code: int, arguments: list[str], says: str) -> None:
    assert says in failed(code, "record", "-o", str(tmp_path / "a.rec"), *arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_monitor_in_use_is_left_alone(tmp_path: pathlib.Path) -> None:
    if os.geteuid() != 0 or not KDAMONDS.exists() or int(KDAMONDS.read_text()) == 0:
        pytest.skip("DAMON is not in use by somebody else, or may not be asked")
    before = KDAMONDS.read_text()
    said = failed(125, "record", "-o", str(tmp_path / "a.rec"), "--source", "damon", "--", "sleep", "1")
    assert "DAMON is in use by somebody else" in said and said.count("\n") == 1
    assert KDAMONDS.read_text() == before


def test_a_moving_hotspot_is_planned_for(passes: pathlib.Path, plan: pathlib.Path) -> None:
    made = json.loads(plan.read_text())
    assert made["granule_bytes"] == 4 * MIB and made["fast_bytes"] <= 128 * MIB
    [sweep] = made["sweeps"]
    assert sweep["bytes_per_s"] > 0 and sweep["window_bytes"] + sum(it["bytes"] for it in made["always"]) <= 128 * MIB
    predicted = made["predicted"]
    assert predicted["slow_share_after"] < predicted["slow_share_before"]
    printed = tiermem("plan", str(passes), "--fast", "128MiB", "--format", "json")
    assert printed.returncode == 0 and json.loads(printed.stdout) == made


def test_a_plan_is_replayed_over_its_recording(passes: pathlib.Path, plan: pathlib.Path) -> None:
    done = tiermem("sim", "place", str(passes), "--plan", str(plan), "--format", "json")
    assert done.returncode == 0, done
    rows = {row["placement"]: row for row in json.loads(done.stdout)}
    assert list(rows) == ["first-touch", "static", "plan", "plan+live", "live", "clairvoyant", "unlimited"]
    predicted = json.loads(plan.read_text())["predicted"]
    assert rows["first-touch"]["slow_share"] == pytest.approx(predicted["slow_share_before"], abs=0.01)
    assert rows["plan"]["slow_share"] == pytest.approx(predicted["slow_share_after"], abs=0.01)
    for row in rows.values():
        assert row["slow_share"] == pytest.approx(row["slow"] / row["accesses"], abs=0.001)
        assert row["slow_share"] >= rows["unlimited"]["slow_share"] or row["placement"] == "static"
    assert rows["first-touch"]["moved_bytes"] == rows["static"]["moved_bytes"] == 0 < rows["plan"]["moved_bytes"]
    # What a plan was made of it is right for.
    assert all(row["resting_slices"] == 0 for name, row in rows.items() if name != "live"), rows


def test_a_plan_of_another_program_is_left_when_it_is_replayed(tmp_path: pathlib.Path) -> None:
    out, wrong = tmp_path / "first.rec", tmp_path / "wrong.plan"
    # Hot is what is touched first.
    command = workload("hotspot", "--footprint 64MiB --hot 8MiB --background 2 --pass-ms 600000 --passes 1")

    def attempt() -> None:
        record(out, "--slice", "100ms", "--granule", "1MiB", "--duration", "6s", "--end-program", "--", *command)
        assert tiermem("plan", str(out), "--fast", "16MiB", "-o", str(wrong)).returncode == 0
        made = json.loads(wrong.read_text())
        largest = max(range(len(made["regions"])), key=lambda at: made["regions"][at]["bytes"])
        last = {"region": largest, "offset": 40 * MIB, "bytes": made["fast_bytes"] // MIB * MIB}
        wrong.write_text(json.dumps(made | {"always": [last], "sweeps": [], "phases": []}))
        done = tiermem("sim", "place", str(out), "--plan", str(wrong), "--format", "json")
        rows = {row["placement"]: row for row in json.loads(done.stdout)}
        slices = len({row["slice"] for row in table(out, MIB)})
        first, planned = rows["first-touch"]["slow_share"], rows["plan"]["slow_share"]
        # Hardly anything is where the plan has fast memory: its first slices are lost, and no more.
        assert first < 0.2 and planned < first + 0.4 and rows["plan+live"]["slow_share"] < first + 0.4, (rows, slices)
        assert rows["plan"]["resting_slices"] > slices / 2, (rows, slices)

    retried(attempt)


def test_what_is_no_recording_or_no_plan_is_refused(passes: pathlib.Path, plan: pathlib.Path, tmp_path: pathlib.Path) -> None:
    whole, good = passes.read_bytes(), plan.read_text()
    for name, content in [("empty", b""), ("head", whole[: len(whole) // 2]), ("tail", whole[:-1]), ("plan", good.encode())]:
        cut = tmp_path / f"{name}.rec"
        cut.write_bytes(content)
        for command in (["plan"], ["sim", "place"]):
            said = failed(1, *command, str(cut), "--fast", "1MiB")
            assert "recording is incomplete" in said and said.count("\n") == 1, said
    for content, says in [
        ("garbage", "not a plan"),
        ("{}", "not a plan"),
        (good[: len(good) // 2], "not a plan"),
        (json.dumps({**json.loads(good), "version": 99}), "version 99"),
    ]:
        bad = tmp_path / "bad.plan"
        bad.write_text(content)
        for command in (["sim", "place", str(passes), "--plan", str(bad)], ["run", "--plan", str(bad), "--", "true"]):
            said = failed(125 if command[0] == "run" else 1, *command)
            assert says in said and said.count("\n") == 1, said
    assert "--fast" in failed(2, "plan", str(passes))
    assert "--fast" in failed(2, "sim", "place", str(passes))
    assert "no source writes" in failed(2, "plan", str(passes), "--fast", "1MiB", "--source", "writes")


def test_a_plan_for_another_build_of_a_library_is_refused(passes: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = tiermem("plan", str(passes), "--fast", "10GiB", "--granule", "1MiB", "--format", "json")
    assert done.returncode == 0, done
    made = json.loads(done.stdout)
    library = next((region for region in made["regions"] if region["build_id"]), None)
    if library is None:
        pytest.skip("no part of a library is in the plan")
    library["build_id"] = "0123456789abcdef"
    other = tmp_path / "other.plan"
    other.write_text(json.dumps(made))
    said = failed(1, "sim", "place", str(passes), "--plan", str(other))
    assert library["name"] in said and "make a plan of this recording" in said


def test_a_plan_for_another_footprint_is_told(plan: pathlib.Path, tmp_path: pathlib.Path) -> None:
    smaller = tmp_path / "smaller.rec"
    command = workload("skewed", "--footprint 64MiB --granule 4MiB --seconds 1 --per-second 1000000")
    retried(lambda: record(smaller, "--slice", "100ms", "--", *command))
    done = tiermem("sim", "place", str(smaller), "--plan", str(plan))
    assert done.returncode in (0, 1) and done.stderr != "", "nothing is said"


def test_writes_of_what_runs_already_cannot_be_seen(runs: subprocess.Popen, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "writes.rec"
    summary, said = record(out, "--source", "writes", "--pid", str(runs.pid), "--duration", "1s")
    assert summary["samples"] == 0 and runs.poll() is None
    assert "the program ended" not in said and "agent" in said and "no access was seen" in said


def test_a_plan_needs_two_nodes(passes: pathlib.Path, plan: pathlib.Path) -> None:
    nodes = NODES.read_text().strip() if NODES.exists() else "0"
    if not nodes.isdigit():
        pytest.skip(f"this machine has nodes {nodes} with memory")
    assert "a plan divides two" in failed(125, "run", "--plan", str(plan), "--", "true")
    said = failed(1, "plan", str(passes), "--fast", "128MiB", "--move-bandwidth", "measured")
    assert "one node with memory" in said and "--move-bandwidth SIZE" in said
    assert "measured:0,1" in failed(2, "plan", str(passes), "--fast", "128MiB", "--move-bandwidth", "measured:x")
