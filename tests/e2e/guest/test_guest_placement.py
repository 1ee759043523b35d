"""`tiermem run` where there are two memory nodes: placements put memory where they say, and a plan moves pages there."""

from __future__ import annotations

import json
import pathlib

import pytest

from machine import Machine
from store import binary

PROGRAMS = pathlib.Path(binary()).parent
# Memory of its own, 64 MiB, that it goes through again and again; the rest of a program is small beside it.
FILL = "dd if=/dev/zero of=/dev/null bs=64M count=40"
OF_THEM = 64 << 20

# Small pages, so that interleaving is seen page by page.
PLACES = f"""
echo never >/sys/kernel/mm/transparent_hugepage/enabled
weights=/sys/kernel/mm/mempolicy/weighted_interleave
cat $weights/node0 $weights/node1 >/out/before
for place in default local remote interleave weighted=3:1; do
    tiermem run --place $place --cpus 0 --format json -- {FILL} >/out/$place || exit 1
done
cat $weights/node0 $weights/node1 >/out/after
tiermem run --compare local,remote,weighted=1:3 --trials 2 --bandwidth 8MiB --format json -- {FILL} >/out/compared || exit 1
tiermem run --place weighted=1:2:3 -- true && exit 1
tiermem run --cold --trials 1 --format json -- true >/out/cold || exit 1
"""


def shares(told: dict, strategy: str) -> dict[int, float]:
    rows = [row for row in told["nodes"] if row["strategy"] == strategy]
    assert sum(row["bytes"] for row in rows) > OF_THEM, told
    return {row["node"]: row["share"] for row in rows}


def test_memory_lies_where_the_placement_says(guest: type[Machine]) -> None:
    result = guest("two-nodes", (768, 512)).run(PLACES, files={"/bin/tiermem": binary()}, timeout_s=300)
    assert result.exit_code == 0, result.output
    told = {name: json.loads(text) for name, text in result.files_out.items() if text.startswith(b"{")}
    for name, on_far_node in [("default", 0), ("local", 0), ("remote", 1), ("interleave", 0.5), ("weighted=3:1", 0.25)]:
        share = shares(told[name], name)
        # The programs' files lie on node 0 already: 2 or 3 MiB.
        assert share[1] == pytest.approx(on_far_node, abs=0.06), (name, share)
    assert result.files_out["before"] == result.files_out["after"]
    compared = told["compared"]
    assert [row["strategy"] for row in compared["strategies"]] == ["local", "remote", "weighted=1:3"]
    assert shares(compared, "weighted=1:3")[1] == pytest.approx(0.75, abs=0.06)
    assert all(row["triad_mb_per_s"] > 0 for row in compared["strategies"])
    assert "has 3 weights; this machine has 2 nodes with memory (0, 1)" in result.output
    assert told["cold"]["start"] == "cold"


def test_the_kernels_tiers_are_told(guest: type[Machine]) -> None:
    script = f"tiermem run --place interleave --format json -- {FILL} >/out/told"
    result = guest("two-nodes-hmat", (768, 512)).run(script, files={"/bin/tiermem": binary()})
    assert result.exit_code == 0, result.output
    tiers = {row["node"]: row["tier"] for row in json.loads(result.files_out["told"])["nodes"]}
    assert tiers[1] > tiers[0]


# The table is larger than the fast memory that the plan may use, and what is hot moves through it.
PLANNED = """
echo never >/sys/kernel/mm/transparent_hugepage/enabled
program="hotspot --footprint 67108864 --hot 8388608 --background 2 --per-second 400000 --pass-ms 8000 --passes 1"
tiermem record --slice 200ms --granule 1MiB -o /root/recording.parquet -- $program || exit 1
tiermem plan /root/recording.parquet --fast 24MiB -o /root/plan.json || exit 1
for follow in first-touch plan live; do
    tiermem run --place plan --plan /root/plan.json --follow $follow --slice 100ms --format json -- $program >/out/$follow || exit 1
done
"""


def test_a_plan_moves_pages_and_says_what_came_of_it(guest: type[Machine]) -> None:
    library = PROGRAMS / "libtiermem_preload.so"
    hotspot = PROGRAMS / "hotspot"
    for needed in (library, hotspot):
        if not needed.exists():
            pytest.skip(f"{needed} is not there: build it with `cargo build -p tiermem-preload -p tiermem-workloads`")
    files = {"/bin/tiermem": binary(), "/bin/libtiermem_preload.so": library, "/bin/hotspot": hotspot}
    result = guest("two-nodes", (768, 512)).run(PLANNED, files=files, timeout_s=300)
    assert result.exit_code == 0, result.output
    told = {name: json.loads(text)[0] for name, text in result.files_out.items()}
    assert all(row["touches"] > 0 and row["regions_found"] > 0 for row in told.values()), told
    still = told.pop("first-touch")
    assert still["moved_bytes"] == 0 and 0 < still["slow_share"] < 1, still
    for row in told.values():
        # Pages that move lie where accesses go. How far that succeeds is a matter of time, which a guest does not have.
        assert row["moved_bytes"] > 0 and row["slow_share"] < still["slow_share"], (row, still)
        assert row["failed_pages"] * 4096 < row["moved_bytes"] / 10, row
