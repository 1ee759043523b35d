"""`tiermem sim frames`: faults over tiers, beside a model in a few lines, and inputs that nobody asked for."""

from __future__ import annotations

import csv
import io
import json
import pathlib
import random
from collections import OrderedDict

import pytest

from store import TESTDATA, tiermem

FIELDS = ["evict", "prefetch", "dram_bytes", "touches", "faults", "fault_ratio", "read_bytes", "written_bytes"]
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


def lru(accesses: list[tuple[int, int, bool]], dram: int) -> dict:
    """DRAM of so many frames in the order of their use, over flash with room for all."""
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


def test_lru_faults_as_a_list_does_and_belady_less(accesses: list[tuple[int, int, bool]], tmp_path: pathlib.Path) -> None:
    trace = block_trace(tmp_path / "msr.csv", accesses)
    for frames in (1, 20, 200):
        rows = simulate(trace, "--dram", str(frames * 4096), "--evict", "lru", "--evict", "belady", "--evict", "s3-fifo")
        assert [list(row) for row in rows] == [FIELDS] * 3
        assert [row["evict"] for row in rows] == ["lru", "belady", "s3-fifo"]
        expected = lru(accesses, frames)
        assert {name: rows[0][name] for name in expected} == expected
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
        (2, ["--dram", "4KiB", "--evict", "oracle"], "belady"),
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
