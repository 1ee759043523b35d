"""One program that stops at every step, paged live and simulated: the same pages leave, in the same order.

The program is attached to by `--pid`, so that the kernel has no limit to keep and takes nothing by itself. What it has besides its pages takes
some of its DRAM, so that live a few more leave; those that leave in both are compared."""

from __future__ import annotations

import contextlib
import csv
import functools
import os
import pathlib
import random
import subprocess

from programs import workload
from store import PATIENCE_S, eventually, tiermem
from test_pager import MIB, machine  # noqa: F401  (a fixture)
from test_pager_attach import attached, detach
from test_sim_frames import block_trace, simulate

DRAM = 16 * MIB
PAGES = 10_240
# Pages that are touched one after the other, in the order of their addresses, before the pager is waited for.
BLOCK = 64
# A page in swap, as /proc/PID/pagemap has it.
SWAPPED = 1 << 62
PAGE_MASK = (1 << 45) - 1

# Runs, until one is as it should be.
ATTEMPTS = 3


class AdviceMissed(Exception):
    """The kernel kept a page that it was advised to page out, as it does while it has taken the page off its lists for a moment. Such a page
    is as good as new, and leaves late: a run with it is not the one that is simulated."""


# Pages that leave, with what each step of the pager let go at once: there the order is that of addresses.
Steps = list[set[int]]


class Gated:
    """The program, and what it has touched."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(workload("gated", f"--pages {PAGES}"), stdin=pipe, stdout=pipe, text=True, bufsize=1)
        # The last pages that it touches on a processor lie in a batch of that processor, where no advice finds them, until more are
        # touched there. If it went to another processor in between, they would stay when they should leave.
        os.sched_setaffinity(self.process.pid, {min(os.sched_getaffinity(0))})
        assert self.process.stdout is not None
        self.first = int(self.process.stdout.readline(), 16) // 4096
        self.touched: list[int] = []
        # How far the log was read.
        self.heard = 0

    def touch(self, pages: list[int]) -> None:
        """One after the other: it stops behind each until it is told the next.

        A page scan tells what it finds in the order of addresses, also of pages whose fault is told afterwards."""
        assert self.process.stdin is not None and self.process.stdout is not None
        for page in pages:
            self.process.stdin.write(f"{page}\n")
            assert self.process.stdout.readline() == f"{page}\n"
            self.touched.append(page)

    def swapped(self) -> set[int]:
        with open(f"/proc/{self.process.pid}/pagemap", "rb") as file:
            file.seek(self.first * 8)
            entries = file.read(PAGES * 8)
        return {page for page in range(PAGES) if int.from_bytes(entries[page * 8 : page * 8 + 8], "little") & SWAPPED}

    def end(self) -> None:
        """Every page held what it should until now."""
        _, _ = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0


def is_watched(pager: subprocess.Popen[str]) -> bool:
    """Whether its page faults are; of files that it closes meanwhile nothing is asked."""
    for file in pathlib.Path(f"/proc/{pager.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if "perf_event" in os.readlink(file):
                return True
    return False


def live_steps(log: pathlib.Path, first: int) -> Steps:
    """What left of the program's pages, event by event."""
    steps: Steps = [set()]
    for line in log.read_text().splitlines():
        words = line.split()
        if words[:2] != [">", "out"]:
            steps.append(set())
        elif 0 <= (page := (int(words[2]) & PAGE_MASK) - first) < PAGES:
            steps[-1].add(page)
    return [step for step in steps if step]


def simulated_steps(trace: str, evicted: pathlib.Path) -> Steps:
    flags = ["--evict", "lru", "--prefetch", "none", "--references", "faults", "--evicted", str(evicted)]
    simulate(trace, "--dram", str(DRAM), *flags)
    by_touch: dict[int, set[int]] = {}
    with evicted.open(newline="") as file:
        for row in csv.DictReader(file):
            by_touch.setdefault(int(row["touch"]), set()).add(int(row["address"]) // 4096)
    return list(by_touch.values())


def blocks(numbers: list[int]) -> list[int]:
    return [page for number in numbers for page in range(number * BLOCK, (number + 1) * BLOCK)]


def left_in_order(came: list[int], steps: Steps) -> int:
    """How many have left, those first that came first, as LRU lets them go that hears of page faults alone. Fails if another one left."""
    left = 0
    for step in steps:
        assert step == set(came[left : left + len(step)]), f"after {left} pages"
        left += len(step)
    return left


def step_by_step(program: Gated, log: pathlib.Path, numbers: list[int]) -> None:
    """Touches blocks that are not there. The next one begins when the pager has heard of the last page of the one before."""
    for number in numbers:
        program.touch(blocks([number]))
        fault = f" fault {program.first + (number + 1) * BLOCK - 1} "

        def is_heard(fault: str = fault) -> bool:
            with log.open() as file:
                file.seek(program.heard)
                text = file.read()
            # Of a line that is being written a part may be there.
            at = text.find(fault)
            program.heard += max(at, 0)
            return at >= 0

        eventually(is_heard, "the pager has heard of the block")


def must_not_have_stayed(log: pathlib.Path) -> None:
    """Raises if a page that was paged out was found in memory by a page scan afterwards, without a page fault."""
    # Pages by the number of their act, and those whose act has ended well since they were used last.
    acts: list[int] = []
    out: set[int] = set()
    for line in log.read_text().splitlines():
        match line.split():
            case [">", _, page, *_]:
                acts.append(int(page))
            case [_, "done", act]:
                out.add(acts[int(act)])
            case [_, "fault", page, *_]:
                out.discard(int(page))
            case [_, "present", first, end] if any(int(first) <= page < int(end) for page in out):
                raise AdviceMissed


def have_left(program: Gated, log: pathlib.Path, numbers: list[int]) -> bool:
    if program.swapped() >= set(blocks(numbers)):
        return True
    must_not_have_stayed(log)
    return False


def compare(tmp_path: pathlib.Path) -> None:
    """Of one run."""
    log = tmp_path / "log"
    draw = random.Random(3)
    order = draw.sample(range(PAGES // BLOCK), PAGES // BLOCK)
    early, late = order[:6], order[70:78]
    again = draw.sample(early, 5)
    program = Gated()
    arguments = ["--dram", "16MiB", "--flash", "96MiB", "--evict", "lru", "--prefetch", "none", "--drop-behind", "off"]
    try:
        with attached("--pid", str(program.process.pid), *arguments, "--log", str(log), "--format", "json") as pager:
            eventually(lambda: is_watched(pager), "page faults are watched")
            step = functools.partial(step_by_step, program, log)
            step(order[:78])
            # Whenever the pager takes its steps.
            eventually(lambda: have_left(program, log, early), "the first pages are on flash")
            # Some come back, in another order. What is there still is used, of which nobody hears.
            step(again)
            program.touch(blocks(draw.sample(late, 4)))
            step(order[78:])
            eventually(lambda: have_left(program, log, early), "those that came back have left again")
            report = detach(pager)
        program.end()
    finally:
        program.process.kill()
        program.process.communicate()
    must_not_have_stayed(log)
    assert report["events_lost"] == 0 and report["kernel_evicted_pages"] == 0
    came = blocks(order[:78] + again + order[78:])
    trace = block_trace(tmp_path / "touches.csv", [(page * 4096, 4096, True) for page in program.touched])
    simulated = left_in_order(came, simulated_steps(trace, tmp_path / "evicted.csv"))
    live = left_in_order(came, live_steps(log, program.first))
    # All but what fits. Live what the program has besides takes room, and what it is charged may be told before its page faults are.
    assert len(came) - DRAM // 4096 < simulated <= live < simulated + 1024
    same = tiermem("pager", "replay", str(log))
    assert same.returncode == 0 and "all the same" in same.stdout, same.stderr


def test_the_same_pages_leave_live_and_simulated(tmp_path: pathlib.Path) -> None:
    # Another decision shows in every run. What the kernel does beside it, on a busy machine, in one of some tens.
    for attempt in range(ATTEMPTS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        try:
            return compare(folder)
        except (AdviceMissed, AssertionError):
            if attempt + 1 == ATTEMPTS:
                raise
