"""`tiermem sim frames`: faults over tiers, beside a model in a few lines, and inputs that nobody asked for."""

from __future__ import annotations

import csv
import io
import json
import pathlib
import random
import sys
from collections import OrderedDict

import pytest

from store import TESTDATA, tiermem

FIELDS = [
    *["evict", "prefetch", "overcommit", "dram_bytes", "touches", "faults", "faults_low", "faults_high", "fault_ratio"],
    *["prefetch_accuracy", "prefetch_coverage", "prefetch_lateness", "prefetch_pollution", "read_bytes", "written_bytes"],
]
GCC = str(TESTDATA / "address_gcc-500.trace.gz")


def simulate(trace: str, *flags: str) -> list[dict]:
    done = tiermem("sim", "frames", trace, *flags, "--format", "json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def block_trace(path: pathlib.Path, accesses: list[tuple[int, int, bool]]) -> str:
    """Byte offset, bytes and whether it writes, as MSR Cambridge has them."""
    lines = (
        f"{128166372003061629 + n},host,0,{'Write' if write else 'Read'},{offset},{size},100"
        for n, (offset, size, write) in enumerate(accesses)
    )
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def lru(accesses: list[tuple[int, int, bool]], dram: int, victims: list[int] | None = None) -> dict:
    """DRAM of so many frames in the order of their use, over flash with room for all. Tells who leaves, in `victims`."""
    frames: OrderedDict[int, str] = OrderedDict()
    below: set[int] = set()
    counts = {"touches": 0, "faults": 0, "read_bytes": 0, "written_bytes": 0}
    for offset, size, write in accesses:
        for page in range(offset // 4096, (offset + max(size, 1) - 1) // 4096 + 1):
            counts["touches"] += 1
            state = frames.pop(page, None)
            if state is None:
                if len(frames) == dram:
                    victim, was = frames.popitem(last=False)
                    if victims is not None:
                        victims.append(victim)
                    if was != "zero":
                        below.add(victim)
                        counts["written_bytes"] += 4096 * (was == "dirty")
                state = "clean" if page in below else "zero"
                counts["faults"] += page in below
                counts["read_bytes"] += 4096 * (page in below)
            frames[page] = "dirty" if write else state
    return counts


@pytest.fixture(scope="module")
def accesses() -> list[tuple[int, int, bool]]:
    draw = random.Random(11)
    return [
        (int(400 * draw.random() ** 3) * 4096 + draw.randrange(4096), draw.choice([1, 64, 4096, 9000]), draw.random() < 0.3)
        for _ in range(3000)
    ]


def test_who_leaves_is_told_in_order(accesses: list[tuple[int, int, bool]], tmp_path: pathlib.Path) -> None:
    trace, out = block_trace(tmp_path / "msr.csv", accesses), tmp_path / "evicted.csv"
    victims: list[int] = []
    lru(accesses, 20, victims)
    simulate(trace, "--dram", str(20 * 4096), "--evicted", str(out))
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert [int(row["address"]) // 4096 for row in rows] == victims
    touches = [int(row["touch"]) for row in rows]
    assert touches == sorted(touches) and touches[0] > 20
    done = tiermem("sim", "frames", trace, "--dram", "1MiB", "--evict", "lru", "--evict", "arc", "--evicted", str(out))
    assert done.returncode == 2 and "one --evict, one --prefetch and one size of DRAM" in done.stderr


def test_more_dram_saves_what_a_simulation_of_it_saves(accesses: list[tuple[int, int, bool]], tmp_path: pathlib.Path) -> None:
    trace = block_trace(tmp_path / "msr.csv", accesses)
    more = ["--more-dram", "50%", "--more-dram", str(100 * 4096 + 1)]
    rows = simulate(trace, "--dram", str(100 * 4096), "--evict", "lru", "--evict", "kernel", *more)
    fields = ["evict", "prefetch", "dram_bytes", "faults", "prefetch_used"]
    assert [list(row) for row in rows] == [fields] * 6
    assert [row["evict"] for row in rows] == ["lru"] * 3 + ["kernel"] * 3
    assert [(row["dram_bytes"], row["faults"]) for row in rows] == [(n * 4096, lru(accesses, n)["faults"]) for n in (100, 150, 200)] * 2
    (first, ahead) = simulate(trace, "--dram", str(100 * 4096), "--prefetch", "next-n", "--more-dram", "400%")
    assert first["prefetch_used"] > 0 and (ahead["faults"], ahead["prefetch_used"]) == (0, 0)


def test_lru_faults_as_a_list_does_and_belady_less(accesses: list[tuple[int, int, bool]], tmp_path: pathlib.Path) -> None:
    trace = block_trace(tmp_path / "msr.csv", accesses)
    for frames in (1, 20, 200):
        rows = simulate(trace, "--dram", str(frames * 4096), "--evict", "lru", "--evict", "belady", "--evict", "s3-fifo")
        assert [list(row) for row in rows] == [FIELDS] * 3
        assert [row["evict"] for row in rows] == ["lru", "belady", "s3-fifo"]
        expected = lru(accesses, frames)
        assert {name: rows[0][name] for name in expected} == expected
        assert all(row["faults_low"] == row["faults"] == row["faults_high"] for row in rows), "the order is known"
        assert rows[0]["fault_ratio"] == pytest.approx(expected["faults"] / expected["touches"], abs=1e-6)
        assert rows[1]["faults"] <= min(rows[0]["faults"], rows[2]["faults"])


def test_policies_and_prefetchers_are_combined_and_the_tiers_may_be_named() -> None:
    flags = ["--evict", "klru", "--evict", "belady", "--prefetch", "none", "--prefetch", "next-n", "--k", "3"]
    rows = simulate(GCC, "--dram", "8KiB", *flags)
    assert [(row["evict"], row["prefetch"]) for row in rows] == [
        (evict, prefetch) for evict in ("klru", "belady") for prefetch in ("none", "next-n")
    ]
    assert all(row["dram_bytes"] == 8192 for row in rows)
    # --dram is short for the first tier.
    assert rows == simulate(GCC, "--tier", "dram=8KiB", "--tier", "flash:/nowhere=1GiB", *flags, "--threads", "1")
    # A second tier of memory serves without faults.
    [small] = simulate(GCC, "--tier", "dram=8KiB", "--tier", "numa=1GiB", "--tier", "flash=1GiB")
    assert small["faults"] == 0 == small["read_bytes"]
    # With room for all there is no fault; where data lies on flash at first there is one for each frame.
    [whole] = simulate(GCC, "--dram", "100%")
    [first] = simulate(GCC, "--dram", "100%", "--first-touch", "fetch")
    assert whole["faults"] == 0 and first["faults"] * 4096 == first["read_bytes"] == first["dram_bytes"]
    done = tiermem("sim", "frames", GCC, "--dram", "8KiB", "--format", "csv")
    [row] = csv.DictReader(io.StringIO(done.stdout))
    assert list(row) == FIELDS and row["evict"] == "lru" and row["prefetch"] == "none"


def test_overcommit_is_the_required_memory_over_dram(tmp_path: pathlib.Path) -> None:
    # A hundred pages are written one after the other, three times.
    trace = block_trace(tmp_path / "sweep.csv", [(page * 4096, 4096, True) for _ in range(3) for page in range(100)])
    flags = ["--overcommit", "1", "--overcommit", "2", "--overcommit", "3"]
    rows = simulate(trace, *flags, "--evict", "lru", "--evict", "fixed")
    assert [(row["evict"], row["dram_bytes"] // 4096) for row in rows] == [
        (evict, frames) for frames in (100, 50, 33) for evict in ("lru", "fixed")
    ]
    assert [row["overcommit"] for row in rows[::2]] == pytest.approx([1, 2, 100 / 33], abs=1e-6)
    # LRU keeps nothing of a sweep that does not fit; the best set keeps all but one of its frames, which the others use in turn.
    assert [row["faults"] for row in rows] == [0, 0, 200, 2 * 51, 200, 2 * 68]
    assert [row["written_bytes"] for row in rows[1::2]] == [0, 3 * 51 * 4096, 3 * 68 * 4096]
    assert simulate(trace, "--dram", "50%") == rows[2:3]
    [less] = simulate(trace, "--overcommit", "2", "--required", "80KiB")
    assert (less["dram_bytes"], less["overcommit"]) == (40960, 2)
    # A fixed set fetches nothing ahead, so it is one row; what is fetched ahead is used here.
    rows = simulate(trace, "--overcommit", "2", "--evict", "fixed", "--evict", "fifo", "--prefetch", "none", "--prefetch", "next-n")
    assert [(row["evict"], row["prefetch"]) for row in rows] == [("fixed", "none"), ("fifo", "none"), ("fifo", "next-n")]
    ahead = rows[2]
    assert ahead["prefetch_accuracy"] > 0.5 and ahead["prefetch_coverage"] > 0.5 and ahead["prefetch_lateness"] == 0
    [late] = simulate(trace, "--overcommit", "2", "--prefetch", "next-n", "--fetch-delay", "1k")
    assert late["prefetch_lateness"] > 0


def test_what_a_live_pager_hears_is_less_than_each_touch(tmp_path: pathlib.Path) -> None:
    # A page is used all the time, while two hundred others pass.
    hot = [(page * 4096, 1, True) for other in range(600) for page in (0, 1 + other % 200)]
    trace = block_trace(tmp_path / "hot.csv", hot)
    faults = [
        simulate(trace, "--dram", "400KiB", *flags)[0]["faults"]
        for flags in ([], ["--references", "told"], ["--references", "granule=4KiB", "--look", "10"], ["--references", "faults"])
    ]
    told, same, by_granule, by_fault = faults
    # LRU keeps the hot page where it hears of its uses; where it hears of faults alone, the page is as cold as the others.
    assert told == same == by_granule == 400 < by_fault < 410
    [kernel] = simulate(trace, "--dram", "400KiB", "--references", "faults", "--evict", "kernel")
    assert (kernel["evict"], kernel["faults"]) == ("kernel", 400), "the kernel sees what is used"
    # A trace without times has no looks at times.
    wrong = [
        (["--references", "granule"], "--look"),
        (["--references", "granule=3000"], "power of two"),
        (["--references", "granule=64"], "--frame"),
        (["--references", "all"], "neither told"),
        (["--look", "0"], "at least 1"),
        (["--overcommit", "2"], "--dram"),
    ]
    for flags, reason in wrong:
        done = tiermem("sim", "frames", trace, "--dram", "400KiB", *flags)
        assert (done.returncode, reason in done.stderr) == (2, True), done
    done = tiermem("sim", "frames", trace, "--overcommit", "0")
    assert done.returncode == 2 and "above 0" in done.stderr, done


def test_a_recording_tells_no_order_within_a_slice(tmp_path: pathlib.Path) -> None:
    recording = str(tmp_path / "sweep.rec")
    program = "import time\nb = bytearray(32 << 20)\nfor _ in range(20):\n  b[::4096] = bytes(len(b) // 4096)\n  time.sleep(0.05)"
    done = tiermem("record", "--slice", "100ms", "--granule", "64KiB", "-o", recording, "--", sys.executable, "-c", program)
    assert done.returncode == 0, done
    [lru, fixed] = simulate(recording, "--overcommit", "2", "--evict", "lru", "--evict", "fixed")
    assert lru["faults_low"] < lru["faults_high"] and lru["faults_low"] <= lru["faults"] <= lru["faults_high"]
    assert fixed["faults"] < lru["faults_high"]
    # What is heard is what the live pager hears.
    assert simulate(recording, "--overcommit", "2", "--references", "faults") == [lru]


def test_the_tiers_may_stand_in_a_file_that_servers_read(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "store.toml"
    lines = ["[[tier]]", "kind = 'dram'", "capacity = '8KiB'", "price_per_gb = 5", "[[tier]]", "kind = 'flash'", "capacity = '1GiB'"]
    file.write_text("\n".join([*lines, f"path = '{tmp_path}/flash'"]) + "\n")
    rows = simulate(GCC, "--config", str(file))
    assert rows == simulate(GCC, "--tier", "dram=8KiB", "--tier", "flash=1GiB")
    # What is given as a flag replaces the file's list.
    assert simulate(GCC, "--config", str(file), "--dram", "16KiB") == simulate(GCC, "--dram", "16KiB") != rows
    assert simulate(GCC, "--config", str(file), "--tier", "dram=16KiB") == simulate(GCC, "--dram", "16KiB")
    file.write_text("[[tier]]\nkind = 'dram'\n")
    for wrong, reason in [(file, "capacity"), (tmp_path / "none.toml", "none.toml")]:
        done = tiermem("sim", "frames", GCC, "--config", str(wrong))
        assert done.returncode == 2 and reason in done.stderr and str(wrong) in done.stderr, done


def test_odd_inputs_give_rows_or_reasons(tmp_path: pathlib.Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    one = block_trace(tmp_path / "one.csv", [(5, 1, True)] * 9)
    # Sizes are rounded down to whole frames.
    for size, dram in [("8191", 4096), ("10000", 8192), ("1TiB", 1 << 40)]:
        [row] = simulate(one, "--dram", size, "--evict", "arc")
        assert (row["touches"], row["faults"], row["dram_bytes"]) == (9, 0, dram)
    for size in ("4KiB", "50%"):
        done = tiermem("sim", "frames", empty, "--trace-format", "msr", "--dram", size, "--evict", "belady", "--format", "json")
        assert done.returncode == 1 and "the trace is empty" in done.stderr, done
    wrong = [
        (2, ["--dram", "4095"], "less than one frame"),
        (2, ["--dram", "0"], "less than one frame"),
        (2, [], "--dram"),
        (2, ["--dram", "4KiB", "--evict", "oracle"], "belady, fixed"),
        (2, ["--dram", "4KiB", "--prefetch", "oracle"], "leap"),
        (2, ["--tier", "flash=4KiB", "--tier", "dram=4KiB"], "tier 0"),
        (2, ["--tier", "tape=4KiB"], "compressed"),
        (2, ["--dram", "4KiB", "--tier", "4KiB"], "flash=8GiB"),
        (2, ["--dram", "4KiB", *["--tier", "numa=4KiB"] * 4], "at most 4"),
        (2, ["--dram", "4KiB", "--frame", "3000"], "power of two"),
        (1, ["--dram", "4KiB", "--tier", "flash=4KiB"], "give the last --tier more"),
    ]
    for code, flags, reason in wrong:
        done = tiermem("sim", "frames", GCC, *flags)
        assert (done.returncode, reason in done.stderr) == (code, True), done
    # Larger frames are fewer, and the trace's sizes count.
    [large] = simulate(GCC, "--dram", "64KiB", "--frame", "64KiB")
    [small] = simulate(GCC, "--dram", "64KiB")
    assert large["touches"] <= small["touches"]
