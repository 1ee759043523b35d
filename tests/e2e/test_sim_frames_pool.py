"""`tiermem sim frames --pool`: local DRAM, memory of another node, and flash."""

from __future__ import annotations

import pathlib

from store import TESTDATA, tiermem
from test_sim_frames import block_trace, simulate

FIELDS = ["evict", "prefetch", "tier", "capacity_bytes", "peak_bytes", "touches", "moved_up", "moved_down", "read_bytes", "written_bytes"]
GCC = str(TESTDATA / "address_gcc-500.trace.gz")
PAGE = 4096


def sweep(path: pathlib.Path) -> str:
    """Ten passes that write a hundred pages."""
    return block_trace(path / "sweep.csv", [(page * PAGE, PAGE, True) for _ in range(10) for page in range(100)])


def test_local_memory_keeps_its_part_of_a_sweep(tmp_path: pathlib.Path) -> None:
    trace = sweep(tmp_path)
    [whole] = simulate(trace, "--overcommit", "2")
    [pool] = simulate(trace, "--overcommit", "2", "--pool", "50:50")
    assert (whole["faults"], pool["faults"]) == (9 * 100, 9 * 75)
    assert pool["overcommit"] == 2 and pool["dram_bytes"] == 50 * PAGE, "local and remote memory together"
    # The tiers can be given by hand, and divided in other ways.
    by_hand = ["--pool", "tiers", "--tier", f"dram={25 * PAGE}", "--tier", f"numa={25 * PAGE}"]
    assert simulate(trace, *by_hand) == [pool]
    [three_quarters] = simulate(trace, "--dram", "50%", "--pool", "3:1")
    assert three_quarters["faults"] == 9 * (100 - 37), "37 pages of 50 are local"


def test_each_tier_is_counted(tmp_path: pathlib.Path) -> None:
    rows = simulate(sweep(tmp_path), "--overcommit", "2", "--pool", "50:50", "--by-tier", "--tier", "flash=1GiB")
    assert [list(row) for row in rows] == [FIELDS] * 3
    local, remote, flash = rows
    assert [row["tier"] for row in rows] == ["dram", "numa", "flash"]
    assert [row["capacity_bytes"] for row in rows] == [25 * PAGE, 25 * PAGE, 1 << 30]
    assert [row["touches"] for row in rows] == [10 * 25, 75, 9 * 75], "first touches come to memory"
    # What came to local memory stays there. Each page that comes to remote memory leaves it for the next but 24.
    assert [row["moved_up"] for row in rows] == [0, 0, 9 * 75]
    assert [row["moved_down"] for row in rows] == [0, 10 * 75 - 25, 0]
    assert (local["read_bytes"], local["written_bytes"]) == (0, 0)
    assert remote["read_bytes"] == flash["written_bytes"] == (10 * 75 - 25) * PAGE
    assert remote["written_bytes"] == flash["read_bytes"] == 9 * 75 * PAGE
    assert [row["peak_bytes"] for row in rows] == [25 * PAGE, 25 * PAGE, 50 * PAGE]


def test_what_is_used_most_becomes_local(tmp_path: pathlib.Path) -> None:
    # Twenty pages come first, and twenty others are used a hundred times each.
    accesses = [(page * PAGE, 1, True) for page in range(20)]
    accesses += [(page * PAGE, 1, True) for _ in range(100) for page in range(20, 40)]
    trace = block_trace(tmp_path / "hot.csv", accesses)
    flags = ["--dram", f"{40 * PAGE}", "--pool", "50:50", "--by-tier"]
    local, remote, _ = simulate(trace, *flags)
    # With its sixth use a page has four uses more than twice those of a page that was used once.
    assert (local["touches"], remote["touches"]) == (20 + 20 * 94, 20 * 6)
    assert local["moved_down"] == remote["moved_up"] == 20
    # Who hears of faults alone knows of no page that is used more than another.
    local, remote, _ = simulate(trace, *flags, "--references", "faults")
    assert local["moved_down"] == remote["moved_up"] == 0 and local["touches"] == 20


def test_a_pool_of_one_node_is_none() -> None:
    for flags in (["--evict", "klru", "--prefetch", "next-n"], ["--references", "faults"], ["--evict", "belady"]):
        assert simulate(GCC, "--dram", "25%", *flags) == simulate(GCC, "--dram", "25%", "--pool", "100:0", *flags)


def test_a_pool_that_cannot_be_is_refused() -> None:
    wrong = [
        (["--dram", "25%", "--pool", "half"], "50:50"),
        (["--dram", "25%", "--pool", "0:0"], "50:50"),
        (["--dram", "25%", "--pool", "1:99999999"], "at most"),
        (["--tier", "numa=1MiB", "--pool", "50:50"], "--dram SIZE or --overcommit R"),
        (["--dram", "25%", "--pool", "tiers"], "two tiers of memory"),
        (["--dram", "1", "--pool", "50:50"], "less than one frame"),
        (["--dram", "25%", "--pool", "50:50", "--more-dram", "1MiB"], "--more-dram"),
        (["--dram", "25%", "--evict", "fixed", "--by-tier"], "fixed"),
    ]
    for flags, reason in wrong:
        done = tiermem("sim", "frames", GCC, *flags)
        assert (done.returncode, reason in done.stderr) == (2, True), (flags, done)
