"""`tiermem run --dram` with control groups of version 2, as users have them: limits, swap on a device and in a file, steering, the end."""

from __future__ import annotations

import json
import re

from machine import Machine
from programs import workload
from store import binary

MIB = 1 << 20

# A sweep over 96 MiB in half of that, checked to the byte by the program itself.
SCRIPT = """
echo never >/sys/kernel/mm/transparent_hugepage/enabled
mkswap /dev/ram0 >/dev/null && mke2fs /dev/ram1 >/dev/null && mkdir /flash && mount /dev/ram1 /flash || exit 1
left() { grep -c / /proc/swaps; find /sys/fs/cgroup -name 'tiermem-pager-*'; ls /flash /run/tiermem/pager | grep -e swap -e json; }
half() { echo "== $1"; shift; tiermem run --dram 48MiB "$@" -- sweep --size 100663296 --passes 2; echo "code $?"; left; }
half swap --how swap --flash /dev/ram0=128MiB --report /out/swap.json
half kernel --how kernel --flash /dev/ram0=128MiB --report /out/kernel.json
half evict --how kernel --evict clock --prefetch none --flash /dev/ram0=128MiB --report /out/evict.json
half granule --how kernel --evict lru --references granule --flash /dev/ram0=128MiB --report /out/granule.json
half file --flash /flash=100MiB --report /out/file.json
echo "== full"; tiermem run --dram 32MiB --flash /dev/ram0=24MiB --report /out/full.json -- sh -c 'sleep 100 & sweep --size 134217728'
echo "code $?"; left
echo "== killed"; tiermem run --dram 48MiB --flash /dev/ram0=128MiB -- sh -c 'sweep --size 67108864 --passes 1; sleep 3; echo goes on' &
pager=$!; until tiermem pager status --format csv | grep -q sweep; do sleep 0.2; done
kill -9 $pager; wait $pager; tiermem pager status --format csv | cut -d , -f 2-4; sleep 12; tiermem pager status --format csv; left
echo "== stopped"; tiermem run --dram 32MiB --flash /dev/ram0=128MiB -- sweep --size 67108864 --passes 12 &
pager=$!; for _ in $(seq 300); do grep -qs '[f]resh-counts' /proc/*/cmdline && break; sleep 0.1; done
sleep 1; grep -ls '[f]resh-counts' /proc/*/cmdline | wc -l; kill -STOP $pager; sleep 5; kill -CONT $pager; wait $pager; echo "code $?"; left
cat /sys/fs/cgroup/cgroup.subtree_control
"""


def test_version_2_limits_pages_and_leaves_nothing(guest: type[Machine]) -> None:
    programs = {"/bin/tiermem": binary(), "/bin/sweep": workload("sweep")[0]}
    result = guest("ram-disks", (1024, 64)).run(SCRIPT, files=programs)
    parts = dict(part.split("\n", 1) for part in result.output.split("== ")[1:])
    reports = {name.removesuffix(".json"): json.loads(text) for name, text in result.files_out.items()}
    for name in ("swap", "kernel", "evict", "granule", "file"):
        # Nothing is on, no group is there, nothing stands in the register.
        assert parts[name].endswith(" ok\ncode 0\n0\n"), result.output
        told = reports[name]
        assert 96 * MIB <= told["required_bytes"] <= 112 * MIB, told
        # The kernel lets a group exceed its limit by some pages for a moment.
        assert told["charged_peak_bytes"] <= 49 * MIB and told["flash_peak_bytes"] >= 40 * MIB
        assert told["major_faults"] > 0 and told["read_bytes"] >= 90 * MIB
    assert [reports[name]["how"] for name in ("swap", "kernel", "evict")] == ["swap", "kernel", "kernel"]
    assert reports["swap"]["prefetched_pages"] is None
    # A sweep is what readahead is for. Where the emulated processors are slow, some of it is gone again before it is used.
    assert reports["kernel"]["prefetch_used_pages"] > 0.5 * reports["kernel"]["prefetched_pages"] > 1000
    assert reports["kernel"]["major_faults"] < reports["swap"]["major_faults"]
    # All processes end together, and the reason is told.
    assert "code 137\n0\n" in parts["full"] and "the kernel killed it for want of memory" in reports["full"]["ended"], result.output
    killed = parts["killed"]
    # Without the one who takes care, under its limit, to its end.
    assert f",2,{48 * MIB}\n" in killed and "goes on\n" in killed, result.output
    assert ",command," in killed.splitlines()[-2] and killed.endswith("\n0\n"), result.output
    # While it dropped what the sweep had passed nobody steered for a while, and the sweep went on.
    stopped = parts["stopped"]
    assert stopped.startswith("1\nsweep: ") and " ok\n" in stopped and stopped.endswith("\ncode 0\n0\nmemory\n"), result.output


# A program of 96 MiB in a group that had a limit before, attached to and set; then as a process.
ATTACH = """
echo never >/sys/kernel/mm/transparent_hugepage/enabled
mkswap /dev/ram0 >/dev/null; group=/sys/fs/cgroup/app
echo +memory >/sys/fs/cgroup/cgroup.subtree_control; mkdir $group; echo 209715200 >$group/memory.max; echo 199999488 >$group/memory.high
sh -c "echo \\$\\$ >$group/cgroup.procs; exec sweep --size 100663296 --passes 100000" &
until [ "$(cat $group/memory.current)" -gt 100000000 ]; do sleep 0.2; done
program=$(cat $group/cgroup.procs)
limits() { echo "$1 $(cat $group/memory.max) $(cat $group/memory.swap.max) $(cat $group/memory.high)"; }
attach() { tiermem pager attach "$@" & owner=$!; until tiermem pager set prefetch=none >/dev/null 2>&1; do sleep 0.2; done; }
limits before
attach --cgroup /app --dram 48MiB --flash /dev/ram0=128MiB --report /out/attached.json; limits attached
tiermem pager set dram=32MiB --format csv | cut -d , -f 2; limits lower
tiermem pager set dram=64MiB --format csv | cut -d , -f 2; limits higher
kill $owner; wait $owner; echo "code $?"; limits detached
attach --cgroup $group --dram 48MiB --flash /dev/ram0=128MiB; limits again
kill -9 $owner; wait $owner; tiermem pager status --format csv | wc -l; limits restored
tiermem pager attach --cgroup app --dram 32MiB --flash /dev/ram0=16MiB; echo "code $?"; limits refused
attach --pid $program --dram 48MiB --flash /dev/ram0=128MiB --report /out/process.json; limits process
until [ "$(sed -n 's/^VmSwap:[^0-9]*\\([0-9]*\\) kB/\\1/p' /proc/$program/status)" -gt 40000 ]; do sleep 0.2; done
kill $owner; wait $owner; echo "code $?"
grep -c / /proc/swaps; ls /run/tiermem/pager; grep -w oom_kill $group/memory.events; ls -d /proc/$program; kill $program
"""


def test_version_2_is_attached_to_and_put_back(guest: type[Machine]) -> None:
    programs = {"/bin/tiermem": binary(), "/bin/sweep": workload("sweep")[0]}
    result = guest("ram-disks", (1024, 64)).run(ATTACH, files=programs)
    lines = result.output.splitlines()
    of = {line.split()[0]: line.split()[1:] for line in lines if len(line.split()) == 4}
    before = [str(200 * MIB), "max", "199999488"]
    assert of["before"] == before, result.output
    for name, dram_mib in [("attached", 48), ("again", 48), ("lower", 32), ("higher", 64)]:
        assert of[name] == [str(dram_mib * MIB), str(128 * MIB), before[2]], result.output
    for name in ("detached", "restored", "refused", "process"):
        assert of[name] == before, result.output
    assert [line for line in lines if line.startswith("code")] == ["code 0", "code 1", "code 0"], result.output
    assert "there is room for 16MiB on flash" in result.output and lines.count("1") >= 1
    # No swap is on, nobody was killed, and the program goes on.
    assert lines[-4:-1] == ["0", "lock", "oom_kill 0"] and lines[-1].startswith("/proc/"), result.output
    reports = {name.removesuffix(".json"): json.loads(text) for name, text in result.files_out.items()}
    assert reports["attached"]["dram_bytes"] == 64 * MIB and reports["attached"]["flash_peak_bytes"] > 40 * MIB
    assert reports["process"]["dram_bytes"] == 48 * MIB and reports["process"]["written_bytes"] > 40 * MIB
    assert all(told["ended"] == "detached" for told in reports.values())


# 96 MiB over two nodes with 24 MiB each, and flash; then over two nodes alone, where the hot pages are those that are filled last, when local memory
# is full. Where pages lie is told while the program runs, and the last telling counts.
POOL = """
echo never >/sys/kernel/mm/transparent_hugepage/enabled; mkswap /dev/ram0 >/dev/null || exit 1
tiermem run --dram 48MiB --pool 50:50 --flash /dev/ram0=128MiB --log pool.log --report /out/pool.json -- \\
    touches --pages 24576 --touches 200000 --check-all &
runner=$!
until tiermem pager status --format csv | grep -q touches; do sleep 0.2; done
echo "== changes"; tiermem pager set dram=24MiB; tiermem pager set evict=kernel
echo "== pool"; wait $runner; echo "code $?"; tiermem pager replay pool.log; echo "code $?"
echo "== hot"
tiermem run --tier dram=24MiB --tier numa:1=100MiB --tier flash:/dev/ram0=128MiB --pool tiers --report /out/hot.json -- \\
    touches --pages 24576 --touches 15000000 --hot-pages 15 --hot-from 85 --hot-touches 100 &
runner=$!; sleep 1
# The agent has the program's name.
while program=$(pidof touches | tr ' ' '\\n' | sort -n | head -n 1) && [ "$program" ]; do
    cat /proc/$program/maps >maps; cat /proc/$program/numa_maps >numa_maps
    grep -q 'N1=' numa_maps && cp maps numa_maps /out
    sleep 0.5
done 2>/dev/null
wait $runner; echo "code $?"
echo "== refused"; tiermem run --tier dram=24MiB --tier numa=900MiB --pool tiers -- true; echo "code $?"
"""


def test_a_pool_has_local_memory_that_of_the_other_node_and_flash(guest: type[Machine]) -> None:
    programs = {"/bin/tiermem": binary(), "/bin/touches": workload("touches")[0]}
    result = guest("ram-disks", (1024, 256)).run(POOL, files=programs)
    parts = dict(part.split("\n", 1) for part in result.output.split("== ")[1:])
    assert "it is from 28MiB to " in parts["changes"] and "evict=kernel takes a program without a pool" in parts["changes"], result.output
    # The program is right, to the byte, and what steered it can be replayed.
    assert result.output.count("touches: ") == result.output.count(" ok\n") == 2, result.output
    assert parts["pool"].count("code 0\n") == 2 and "code 0\n" in parts["hot"], result.output
    told = {name: json.loads(result.files_out[f"{name}.json"]) for name in ("pool", "hot")}
    assert all([tier["name"] for tier in it["tiers"]] == ["dram", "numa", "flash"] for it in told.values())
    local, remote, flash = told["pool"]["tiers"]
    assert [local["capacity_bytes"], remote["capacity_bytes"]] == [24 * MIB, 24 * MIB]
    # What the core has in local memory is brought there: never more, and little less. The kernel keeps the sum.
    assert 20 * MIB <= local["peak_bytes"] <= 24 * MIB and 20 * MIB <= remote["peak_bytes"] <= 48 * MIB, told["pool"]["tiers"]
    assert flash["peak_bytes"] >= 44 * MIB and told["pool"]["charged_peak_bytes"] <= 49 * MIB
    # Where nothing has to leave, the hot pages have changed places with local ones in the end.
    local, remote, flash = told["hot"]["tiers"]
    hot_bytes = 24576 * 4096 * 15 // 100
    assert flash["peak_bytes"] == 0 and min(remote["read_bytes"], remote["written_bytes"]) > 0.8 * hot_bytes, told["hot"]["tiers"]
    pages = pages_of_top(hot_bytes, *(result.files_out[name].decode() for name in ("maps", "numa_maps")))
    assert pages.get(0, 0) * 4096 > 0.8 * hot_bytes, (pages, hot_bytes)
    assert "node 1 has " in parts["refused"] and "code 125" in parts["refused"], result.output


def pages_of_top(size: int, maps: str, numa_maps: str) -> dict[int, int]:
    """Pages by node of the uppermost bytes of the largest stretch of memory without a file."""
    ends = {int(start, 16): int(end, 16) for start, end in re.findall(r"^([0-9a-f]+)-([0-9a-f]+) .{4} 0+ 00:00 0 *$", maps, re.M)}
    stretches: list[list[int]] = []
    for start, end in sorted(ends.items()):
        if stretches and stretches[-1][1] == start:
            stretches[-1][1] = end
        else:
            stretches.append([start, end])
    top = max(stretches, key=lambda stretch: stretch[1] - stretch[0])[1]
    pages: dict[int, int] = {}
    for line in numa_maps.splitlines():
        if top - size <= int(line.split()[0], 16) < top:
            for node, count in re.findall(r" N(\d+)=(\d+)", line):
                pages[int(node)] = pages.get(int(node), 0) + int(count)
    return pages
