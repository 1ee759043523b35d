"""`tiermem run` where there are two memory nodes: placements put memory where they say, and a plan moves pages there."""

from __future__ import annotations

import csv
import io
import json
import pathlib
import re
import subprocess

import pytest

from machine import Machine
from programs import tool
from store import binary
from test_observe import retried

PROGRAMS = pathlib.Path(binary()).parent
HEAT = pathlib.Path(__file__).parents[3] / "experiments/observe/programs/heat.c"
# Memory of its own, 64 MiB, that it goes through for a time; the rest of a program is small beside it. Where its memory lies is looked at
# now and then, so a program that ends sooner on a fast machine than it is looked at on a busy one would not be seen with all of it.
FILL = "hotspot --footprint 67108864 --hot 67108864 --background 0 --per-second 200000 --pass-ms 3000 --passes 1"
MIB = 1 << 20
OF_THEM = 64 * MIB

# Small pages, so that interleaving is seen page by page.
PLACES = f"""
echo never >/sys/kernel/mm/transparent_hugepage/enabled
weights=/sys/kernel/mm/mempolicy/weighted_interleave
cat $weights/node0 $weights/node1 >/out/before
for place in default local remote interleave weighted=3:1; do
    tiermem run --place $place --cpus 0 --format json --report /out/$place -- {FILL} || exit 1
done
cat $weights/node0 $weights/node1 >/out/after
tiermem run --compare local,remote,weighted=1:3 --trials 2 --bandwidth 8MiB --format json --report /out/compared -- {FILL} || exit 1
tiermem run --place weighted=1:2:3 -- true && exit 1
tiermem run --cold --trials 1 --format json --report /out/cold -- true || exit 1
"""


def shares(told: dict, strategy: str) -> dict[int, float]:
    rows = [row for row in told["nodes"] if row["strategy"] == strategy]
    assert sum(row["bytes"] for row in rows) > OF_THEM, told
    return {row["node"]: row["share"] for row in rows}


def test_memory_lies_where_the_placement_says(guest: type[Machine]) -> None:
    result = guest("two-nodes", (768, 512)).run(PLACES, files=with_programs("hotspot"))
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
    script = f"tiermem run --place interleave --format json --report /out/told -- {FILL}"
    result = guest("two-nodes-hmat", (768, 512)).run(script, files=with_programs("hotspot"))
    assert result.exit_code == 0, result.output
    tiers = {row["node"]: row["tier"] for row in json.loads(result.files_out["told"])["nodes"]}
    assert tiers[1] > tiers[0]


# A plan as `tiermem plan` makes it of such a program: what is hot, 8 MiB, moves through a table of 64 MiB in 8 s. A recording made
# in a guest would not always show that.
TABLE = {"name": "anon 1", "kind": "anonymous", "path": None, "build_id": None, "file_offset": 0, "permissions": "rw-p", "bytes": OF_THEM}
SWEEP = {
    "span": {"region": 0, "offset": 0, "bytes": OF_THEM},
    "period_ns": 8_000_000_000,
    "bytes_per_s": 7 << 20,
    "hot_bytes": 8 << 20,
    "lead_bytes": 4 << 20,
    "window_bytes": 16 << 20,
    "stride_bytes": 0,
}
PLAN = {
    "version": 1,
    "made_from": {"recording": "", "command": ["hotspot"], "executable": "/bin/hotspot", "build_id": None},
    "granule_bytes": 1 << 20,
    "fast_bytes": 24 << 20,
    "small_bytes": 0,
    "assumed": {"fast_latency_ns": 96, "slow_latency_ns": 244, "move_bytes_per_s": 1 << 31},
    "regions": [TABLE],
    "always": [],
    "phases": [],
    "sweeps": [SWEEP],
    "predicted": {"slow_share_before": 0.6, "slow_share_after": 0.1, "slow_share_clairvoyant": 0.0, "moved_bytes_per_s": 0, "moving_s_per_s": 0, "saved_ns_per_s": 0},
}
PLANNED = """
echo never >/sys/kernel/mm/transparent_hugepage/enabled
for follow in first-touch plan; do
    tiermem run --place plan --plan /plan.json --follow $follow --slice 100ms --format json --report /out/$follow -- \
        hotspot --footprint 67108864 --hot 8388608 --background 2 --per-second 400000 --pass-ms 8000 --passes 1 || exit 1
done
"""


def test_a_plan_moves_pages_and_says_what_came_of_it(guest: type[Machine], tmp_path: pathlib.Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(PLAN))
    files = with_programs("hotspot") | {"/plan.json": plan}
    # Pages that move lie where accesses go. How far that succeeds is a matter of time, of which a guest on a busy machine may have
    # too little, so it may try again.
    for attempt in range(3):
        result = guest("two-nodes", (768, 512)).run(PLANNED, files=files)
        assert result.exit_code == 0, result.output
        still, moving = (json.loads(result.files_out[name])[0] for name in ("first-touch", "plan"))
        assert still["moved_bytes"] == 0, still
        # Without an access that was seen there is no share.
        shares = [row["slow_share"] for row in (still, moving)]
        if None not in shares and moving["moved_bytes"] > 0 and shares[1] < shares[0] < 1:
            break
        assert attempt < 2, (still, moving)
    assert moving["failed_pages"] * 4096 < moving["moved_bytes"] / 10, moving


# A part of the table that a plan keeps in fast memory; what is not lies on the other node. All of the table is equally hot: first touch
# would be no better.
KEPT = {"region": 0, "offset": 16 << 20, "bytes": 16 << 20}
ALWAYS = PLAN | {"always": [KEPT], "sweeps": [], "fast_bytes": 16 << 20}
TIER_BY_TIER = """
echo never >/sys/kernel/mm/transparent_hugepage/enabled
tiermem run --plan /plan.json --follow plan --slice 100ms --format json --report /out/run -- \
    hotspot --footprint 67108864 --hot 67108864 --background 0 --per-second 200000 --pass-ms 60000 --passes 10 &
for step in $(seq 1000); do
    # Its agent has the same name there, and came later.
    pid=$(pidof hotspot) && pid=${pid##* } && break
    sleep 0.1
done
sleep ${SETTLE}
cat /proc/$pid/maps >/out/maps || exit 1
cat /proc/$pid/numa_maps >/out/numa_maps || exit 1
kill $pid
wait
"""


@pytest.mark.parametrize("shape", ["two-nodes", "cxl"])
def test_pages_lie_tier_by_tier_where_the_plan_says(guest: type[Machine], tmp_path: pathlib.Path, shape: str) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(ALWAYS))
    # The kernel tells on which node the pages of each mapping lie, whatever the mover has counted; a granule is a mapping of its own.
    for settle_s in (4, 12, 25):
        script = TIER_BY_TIER.replace("${SETTLE}", str(settle_s))
        result = guest(shape, (768, 512)).run(script, files=with_programs("hotspot") | {"/plan.json": plan})
        assert "numa_maps" in result.files_out, result.output
        remote = remote_granules(result.files_out["maps"].decode(), result.files_out["numa_maps"].decode(), 64)
        right = [share < 0.5 if 16 <= granule < 32 else share > 0.5 for granule, share in remote.items()]
        if len(right) > 48 and all(right):
            return
    raise AssertionError((result.output, remote))


AT_ONCE = """
echo never >/sys/kernel/mm/transparent_hugepage/enabled
tiermem run --plan /plan.json --follow plan --slice 3s --format json --report /out/told -- \
    hotspot --footprint 67108864 --hot 8388608 --background 2 --per-second 200000 --pass-ms 6000 --passes 1 --pause-ms 1500
"""


def test_memory_is_placed_when_it_is_mapped(guest: type[Machine], tmp_path: pathlib.Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(ALWAYS))
    # 48 MiB of the table belong on the other node. The program fills it some time after it has mapped it, and before the slice ends: if
    # the mapping were seen at that end alone, all of them would lie in fast memory and would have to be moved.
    result = guest("two-nodes", (768, 512)).run(AT_ONCE, files=with_programs("hotspot") | {"/plan.json": plan})
    assert result.exit_code == 0, result.output
    [told] = json.loads(result.files_out["told"])
    assert told["moved_bytes"] + told["corrected_bytes"] < 16 << 20, (told, result.output)
    assert 0 < told["slow_share"] < 1, told


# A processor's list of free pages can hold as much as the plan has for the program: here they are short.
SHORT_LISTS = "echo 100000 >/proc/sys/vm/percpu_pagelist_high_fraction"
# Nothing is bound or moved; the fast node has room for what the plan has in it and no more, a quarter of what is read.
FIRST_TOUCH = f"""
{SHORT_LISTS}
echo never >/sys/kernel/mm/transparent_hugepage/enabled
tiermem run --plan /plan.json --follow first-touch --slice 500ms --format json --report /out/told -- \
    hotspot --footprint 67108864 --hot 67108864 --background 0 --per-second 2000000 --pass-ms 6000 --passes 1
tiermem run --plan /large.json --follow first-touch --format json --report /out/large -- true
"""


def test_first_touch_is_the_kernels_own_on_a_node_that_has_so_much_left(guest: type[Machine], tmp_path: pathlib.Path) -> None:
    plan, large = tmp_path / "plan.json", tmp_path / "large.json"
    plan.write_text(json.dumps(ALWAYS))
    large.write_text(json.dumps(ALWAYS | {"fast_bytes": 1 << 40}))
    files = with_programs("hotspot") | {"/plan.json": plan, "/large.json": large}
    result = guest("two-nodes", (768, 512)).run(FIRST_TOUCH, files=files)
    assert result.exit_code == 0, result.output
    [told] = json.loads(result.files_out["told"])
    # Sampled, on emulated processors that may be slow. Wrong would be all of it, or a half.
    assert told["slow_share"] == pytest.approx(0.75, abs=0.15), (told, result.output)
    assert told["moved_bytes"] == told["corrected_bytes"] == 0, told
    # What cannot be had is not measured, and said.
    [told] = json.loads(result.files_out["large"])
    assert told["slow_share"] is None, told
    assert "first touch was not measured: node 0 has" in result.output, result.output


# Memory of 64 MiB that is filled first to last, and of which one quarter has nine of ten accesses. It says itself where they went.
LATE = PLAN | {"always": [KEPT | {"offset": 48 << 20}], "sweeps": [], "fast_bytes": 16 << 20}
# Of `heat quarter`, whose second quarter is hot and has fast memory by first touch, this plan has the fast half for the third and last.
MISTAKEN = LATE | {"always": [KEPT | {"offset": 32 << 20, "bytes": 32 << 20}], "fast_bytes": 32 << 20}
# On one processor, as emulated ones wait long for each other when accessed bits are cleared.
TOLD_BY_THEMSELVES = f"""
echo never >/sys/kernel/mm/transparent_hugepage/enabled
{SHORT_LISTS}
for how in first-touch plan live 'live --source damon'; do
    taskset 1 tiermem run --plan /plan.json --follow $how --slice 200ms --format json --report "/out/$how" -- \
        heat 64 SECONDS small SHAPE /dev/null "/out/$how.places" || exit 1
done
"""


FOLLOWED = ("plan", "live", "live --source damon")


@pytest.mark.parametrize("shape, made", [("late", LATE), ("quarter", MISTAKEN)])
def test_a_plan_is_followed_where_it_is_right_and_left_where_it_is_not(
    guest: type[Machine], tmp_path: pathlib.Path, shape: str, made: dict
) -> None:
    plan, heat = tmp_path / "plan.json", tmp_path / "heat"
    plan.write_text(json.dumps(made))
    subprocess.run([tool("cc"), "-O2", "-o", str(heat), str(HEAT)], check=True)
    # How soon a plan is found to be wrong is a matter of slices, of which a busy machine has few in a second.
    for seconds in (12, 40, 120):
        script = TOLD_BY_THEMSELVES.replace("SECONDS", str(seconds)).replace("SHAPE", shape)
        result = guest("two-nodes", (768, 512)).run(script, files=with_programs() | {"/bin/heat": heat, "/plan.json": plan})
        assert result.exit_code == 0, result.output
        told = {how: json.loads(result.files_out[how])[0] for how in ("first-touch", *FOLLOWED)}
        # Of the second half of their time, when what has failed was undone.
        slow = {how: slow_share(result.files_out[f"{how}.places"].decode()) for how in told}
        rests = [told[how]["resting_slices"] > 0 for how in FOLLOWED]
        if shape == "late":
            right = not any(rests) and all(slow[how] <= slow["first-touch"] / 4 for how in FOLLOWED)
        else:
            right = all(rests) and all(slow[how] <= slow["first-touch"] + 0.02 for how in FOLLOWED)
        if right:
            break
    assert right, (slow, told)
    assert all(row["accesses"] > 0 for row in told.values()), told
    for row in (told[how] for how in FOLLOWED) if shape == "quarter" else ():
        assert row["rested_first_touch"] < row["rested_plan"], row


def slow_share(places: str) -> float:
    rows = [(float(row["accesses"]), float(row["slow"])) for row in csv.DictReader(io.StringIO(places))]
    late = rows[len(rows) // 2 :]
    return sum(slow for _, slow in late) / sum(accesses for accesses, _ in late)


def with_programs(*names: str) -> dict[str, pathlib.Path | str]:
    """The program under test and some workloads, where a guest finds them."""
    for name in names:
        if not (PROGRAMS / name).exists():
            pytest.skip(f"{PROGRAMS / name} is not there: build it with `cargo build -p tiermem-workloads`")
    return {"/bin/tiermem": binary(), **{f"/bin/{name}": PROGRAMS / name for name in names}}


def remote_granules(maps: str, numa_maps: str, granules: int) -> dict[int, float]:
    """Of each granule (1 MiB) of the program's one large table: the share of its pages on nodes other than the first."""
    ends = {int(start, 16): int(end, 16) for start, end in (line.split()[0].split("-") for line in maps.splitlines())}
    pages: dict[int, list[float]] = {}
    for line in numa_maps.splitlines():
        start = int(line.split()[0], 16)
        nodes = {int(node): int(count) for node, count in re.findall(r"\bN(\d+)=(\d+)", line)}
        for at in range(start, ends.get(start, start), MIB) if "anon=" in line else ():
            share = min(MIB, ends[start] - at) / (ends[start] - start)
            of = pages.setdefault(at, [0.0, 0.0])
            of[0] += share * sum(count for node, count in nodes.items() if node != 0)
            of[1] += share * sum(nodes.values())
    # The table: the longest run of granules one behind the other.
    runs: list[list[int]] = []
    for at in sorted(pages):
        if runs and runs[-1][-1] + MIB == at:
            runs[-1].append(at)
        else:
            runs.append([at])
    table = max(runs, key=len)
    # Less of it, if the program is still filling it.
    assert len(table) <= granules + 1, (maps, numa_maps)
    return {number: pages[at][0] / pages[at][1] for number, at in enumerate(table[:granules]) if pages[at][1] > 0}


def remote_shares(text: bytes, granules: int) -> dict[int, float]:
    """Of each granule of the region with so many: the share of accesses to it that other nodes answered."""
    sums: dict[str, dict[int, list[float]]] = {}
    for row in csv.DictReader(io.StringIO(text.decode())):
        of = sums.setdefault(row["region"], {}).setdefault(int(row["granule"]), [0.0, 0.0])
        of[0] += float(row["remote"])
        of[1] += float(row["remote"]) + float(row["local"])
    found = max(sums.values(), key=len)
    assert granules * 0.7 <= len(found) <= granules + 1, len(found)
    return {granule: remote / both for granule, (remote, both) in found.items() if both > 0}


RECORDED = """
echo never >/sys/kernel/mm/transparent_hugepage/enabled
for place in local remote interleave; do
    tiermem run --place $place --cpus 0 -- tiermem record --slice 500ms --granule 1MiB -o /out/$place.rec -- \
        skewed --footprint 33554432 --granule 1048576 --seconds 3 --per-second 200000 >/out/said.$place 2>&1 || exit 1
    tiermem heatmap /out/$place.rec --granule 1MiB -o /out/$place.csv || exit 1
done
for nodes in "" :0,1 :1,0; do
    tiermem plan /out/local.rec --fast 16MiB --move-bandwidth measured$nodes -o /out/plan$nodes || exit 1
done
tiermem plan /out/local.rec --fast 16MiB --move-bandwidth measured:0,7 && exit 1
true
"""


def test_a_recording_tells_on_which_node_memory_lies(guest: type[Machine]) -> None:
    result = guest("two-nodes", (768, 512)).run(RECORDED, files=with_programs("skewed"))
    assert result.exit_code == 0, result.output
    for place, wanted in (("local", 0.0), ("remote", 1.0), ("interleave", 0.5)):
        shares = remote_shares(result.files_out[f"{place}.csv"], 32)
        assert sum(shares.values()) / len(shares) == pytest.approx(wanted, abs=0.1), (place, shares)
    # The plan counts on what was measured here, which is said.
    for name, nodes in (("plan", "0 and 1"), ("plan:0,1", "0 and 1"), ("plan:1,0", "1 and 0")):
        assert json.loads(result.files_out[name])["assumed"]["move_bytes_per_s"] > 1 << 20
        assert f"pages move between nodes {nodes} at " in result.output
    assert "this machine has no node 7 with memory" in result.output


# 16 MiB of 64 are hot and nothing else is read; they move through in 40 s.
MONITORED = """
echo never >/sys/kernel/mm/transparent_hugepage/enabled
tiermem record --source damon --slice 2s --granule 1MiB --duration 30s -o /out/heat.rec -- \\
    hotspot --footprint 67108864 --hot 16777216 --background 0 --per-second 300000 --pass-ms 40000 --passes 1 || exit 1
tiermem heatmap /out/heat.rec --granule 1MiB -o /out/heat.csv || exit 1
"""


def test_the_kernels_monitor_sees_which_memory_is_hot(guest: type[Machine]) -> None:
    # What the monitor sees is a matter of time, of which a guest on a busy machine may have too little, so it may try again.
    def attempt() -> None:
        result = guest("two-nodes", (768, 512)).run(MONITORED, files=with_programs("hotspot"))
        assert result.exit_code == 0, result.output
        rows = list(csv.DictReader(io.StringIO(result.files_out["heat.csv"].decode())))
        # Of memory of no file the table is not always the lowest, by which it would have its name.
        table = max({row["region"] for row in rows}, key=lambda region: sum(row["region"] == region for row in rows))
        heat: dict[int, dict[int, float]] = {}
        for row in rows:
            if row["region"] == table:
                heat.setdefault(int(row["slice"]), {})[int(row["granule"])] = float(row["accesses"])
        middles = []
        # The monitor takes some time to divide what it looks at.
        for of in [heat[number] for number in sorted(heat)][3:-1]:
            middles.append(sum(granule * count for granule, count in of.items()) / sum(of.values()))
            hottest = sorted(of.values(), reverse=True)
            assert sum(hottest[:32]) > 0.7 * sum(hottest), of
        assert len(middles) > 5 and middles[-1] > middles[0] + 8, (middles, result.output)

    retried(attempt)


# The hot table lies on one node, and then on the other; the machine's memory is looked at from outside of the program.
MACHINE = """
echo never >/sys/kernel/mm/transparent_hugepage/enabled
for place in local remote; do
    tiermem run --place $place --cpus 0 -- \
        hotspot --footprint 67108864 --hot 67108864 --background 0 --per-second 300000 --pass-ms 60000 --passes 10 >/dev/null &
    for step in $(seq 1000); do
        # Its agent has the same name there, and came later.
    pid=$(pidof hotspot) && pid=${pid##* } && break
        sleep 0.1
    done
    tiermem record --machine --slice 2s --granule 4MiB --duration 20s -o /out/$place.rec || exit 1
    tiermem heatmap /out/$place.rec --granule 4MiB -o /out/$place.csv || exit 1
    kill $pid
    wait
done
tiermem plan /out/local.rec --fast 64MiB && exit 1
true
"""


def test_the_machines_memory_is_seen_by_physical_addresses(guest: type[Machine]) -> None:
    # As above.
    def attempt() -> None:
        result = guest("two-nodes", (768, 512)).run(MACHINE, files=with_programs("hotspot"))
        assert result.exit_code == 0, result.output
        heat: dict[str, dict[str, float]] = {}
        for place in ("local", "remote"):
            nodes = heat.setdefault(place, {"0": 0.0, "1": 0.0})
            for row in csv.DictReader(io.StringIO(result.files_out[f"{place}.csv"].decode())):
                # What the monitor says at first is of large stretches.
                if int(row["slice"]) >= 5:
                    nodes[row["name"].split()[1]] += float(row["accesses"])
        # The kernel and the recorder themselves have pages on node 0 alone.
        assert heat["remote"]["1"] > 5 * heat["local"]["1"], (heat, result.output)
        assert heat["local"]["0"] > heat["remote"]["0"], (heat, result.output)
        assert "the kernel's monitor took" in result.output

    retried(attempt)


# The monitor is the machine's: somebody may switch it off, and the recorder must not leave it on when its terminal goes away.
MONITOR_LOST = """
monitors=/sys/kernel/mm/damon/admin/kdamonds
# An idle machine may touch too little for a sample to find it.
hotspot --footprint 67108864 --hot 67108864 --background 0 --per-second 300000 --pass-ms 60000 --passes 100 >/dev/null &
program=$!
recorded() {
    tiermem record --machine --slice 1s --granule 4MiB --duration 600s -o /out/$1.rec &
    recorder=$!
    for step in $(seq 1000); do
        [ "$(cat $monitors/0/state 2>/dev/null)" = on ] && break
        sleep 0.1
    done
    sleep 15
}
recorded off
# The kernel answers EBUSY while the recorder's own command is under way.
until echo off >$monitors/0/state; do
    sleep 0.1
done
wait $recorder || exit 1
recorded hung-up
kill -HUP $recorder
wait $recorder || exit 1
kill $program
cat $monitors/nr_kdamonds >/out/monitors
for name in off hung-up; do
    tiermem heatmap /out/$name.rec --granule 4MiB -o /out/$name.csv || exit 1
done
"""


def test_a_monitor_that_goes_away_ends_the_recording_and_none_is_left_behind(guest: type[Machine]) -> None:
    result = guest("two-nodes", (768, 512)).run(MONITOR_LOST, files=with_programs("hotspot"))
    assert result.exit_code == 0, result.output
    assert "the kernel's monitor went away" in result.output
    assert result.files_out["monitors"].strip() == b"0"
    for name in ("off", "hung-up"):
        # One line is the header.
        assert len(result.files_out[f"{name}.csv"].splitlines()) > 1, (name, result.output)
