"""Guest machines: their two nodes, what goes in and comes out, and what is said when something is amiss."""

from __future__ import annotations

import pathlib
import re

import pytest

import guest_image
import guest_packages
from machine import EmulatorFailed, GuestFailed, Machine
from store import binary

# Says what the kernel has, and has the pages of a file placed on node 1 without any program of ours.
LOOK = """
cd /sys/devices/system/node
echo "memory $(cat has_memory)"
echo "processors of 0: $(cat node0/cpulist)"
echo "processors of 1: $(cat node1/cpulist)"
for node in 0 1; do echo "KiB of $node: $(sed -n 's/.*MemTotal: *//p' node$node/meminfo)"; done
echo "shared on 1: $(sed -n 's/.*Shmem: *//p' node1/meminfo)"
mkdir /far
mount -t tmpfs -o mpol=bind:1 tmpfs /far
dd if=/dev/zero of=/far/pages bs=64k count=64 2>/dev/null
# Each processor counts for itself until told to add up.
cat /proc/sys/vm/stat_refresh
echo "shared on 1 then: $(sed -n 's/.*Shmem: *//p' node1/meminfo)"
echo "balancing $(cat /proc/sys/kernel/numa_balancing)"
[ -e /sys/kernel/mm/mempolicy/weighted_interleave/node1 ] && echo "weighted interleaving"
echo 1 >/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds && echo 1 >/sys/kernel/mm/damon/admin/kdamonds/0/contexts/nr_contexts
echo "DAMON for $(cat /sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/avail_operations | xargs)"
echo "AVX2 $(grep -c -w avx2 /proc/cpuinfo)"
cat /proc/iomem >/out/iomem
for tier in /sys/devices/virtual/memory_tiering/memory_tier*; do cat $tier/nodelist; done >/out/tiers
[ ! -e node1/access0/initiators ] || cat node?/access0/initiators/read_latency >/out/latency
"""


def look(machine: Machine) -> tuple[str, dict[str, str]]:
    """What a guest of two nodes says of itself; what holds in each of them is checked here."""
    result = machine.run(LOOK)
    said = result.output
    assert result.exit_code == 0 and "memory 0-1\nprocessors of 0: 0-1\nprocessors of 1: \n" in said, said
    for node in (0, 1):
        total = re.search(rf"KiB of {node}: (\d+) kB", said)
        # The kernel keeps some.
        assert total and 0.85 < int(total[1]) / 1024 / machine.memory_mib[node] <= 1, said
    assert "shared on 1: 0 kB\nshared on 1 then: 4096 kB\n" in said, said
    assert "balancing 0\nweighted interleaving\nDAMON for vaddr fvaddr paddr\nAVX2 2\n" in said, said
    return said, {name: data.decode() for name, data in result.files_out.items()}


def test_two_nodes_are_seen_and_take_pages(guest: type[Machine]) -> None:
    _, files = look(guest("two-nodes", (384, 512)))
    assert files["tiers"] == "0-1\n" and "dax" not in files["iomem"]


def test_figures_of_the_firmware_make_two_tiers(guest: type[Machine]) -> None:
    _, files = look(guest("two-nodes-hmat"))
    # The slower one comes first.
    assert sorted(files["tiers"].split()) == ["0", "1"] and files["latency"] == "96\n244\n", files


def test_memory_of_a_cxl_device_is_node_1(guest: type[Machine]) -> None:
    _, files = look(guest("cxl", (512, 512)))
    # What lies between the window and the memory differs from kernel to kernel.
    window = re.search(r"^(\w+)-(\w+) : CXL Window 0\n(?: +.*\n)*? +\1-\2 : System RAM \(kmem\)$", files["iomem"], re.MULTILINE)
    assert window and int(window[2], 16) - int(window[1], 16) + 1 == 512 << 20, files["iomem"]
    assert sorted(files["tiers"].split()) == ["0", "1"], files


def test_programs_and_files_go_in_and_output_code_and_files_come_out(guest: type[Machine], tmp_path: pathlib.Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "number").write_bytes(bytes(range(256)))
    result = guest(memory_mib=(768, 256)).run(
        """
        echo first
        echo second >&2
        echo third >/dev/stdout
        tiermem --version
        tiermem no-such-command 2>/dev/null || echo "refused with $?"
        mkdir /out/below && cp /data/deep/number /out/below/copy
        # What is left running does not keep the guest from ending.
        sleep 10000 &
        setsid sleep 10000 &
        exit 7
        """,
        files={"/bin/tiermem": binary(), "/data": tmp_path},
    )
    lines = result.output.splitlines()
    assert result.exit_code == 7 and lines[:3] == ["first", "second", "third"], result
    assert lines[3].startswith("tiermem ") and lines[4] == "refused with 2", result
    assert result.files_out == {"below/copy": bytes(range(256))}


def test_a_guest_that_does_not_reach_the_end_says_how_far_it_came(guest: type[Machine]) -> None:
    with pytest.raises(GuestFailed, match=r"ended before its script did(?s:.*)so far"):
        guest().run("echo so far; sleep 10; poweroff -f; sleep 100")
    with pytest.raises(GuestFailed, match=r"not ready after 0\.5 s"):
        guest().run("true", timeout_s=0.5)
    # What the kernel says when the emulator fails it; the guest is started again before this is told.
    with pytest.raises(EmulatorFailed, match="breakpoint(?s:.*)Oops"):
        guest().run("echo 'Oops: int3: 0000 [#1]' >/dev/ttyS0; poweroff -f; sleep 100")


def test_what_cannot_be_is_refused_before_the_start(guest: type[Machine], tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="the shapes are two-nodes, "):
        guest("three-nodes")
    with pytest.raises(ValueError, match="node 0 needs"):
        guest(memory_mib=(64, 64))
    with pytest.raises(ValueError, match="no multiple of 256"):
        guest("cxl", (512, 300))
    with pytest.raises(guest_image.BadFile, match="no-such-file is not there"):
        guest().run("true", files={"/bin/program": tmp_path / "no-such-file"})
    (tmp_path / "large").write_bytes(bytes(200 << 20))
    with pytest.raises(ValueError, match=r"20\d MiB, so that node 0 needs"):
        guest().run("true", files={"/large": tmp_path / "large"})


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("sources.list", "# deb http://old/ tin main\ndeb [arch=amd64 signed-by=/key] http://mirror/d tin main # ours\n", "/key"),
        ("sources.list", "deb http://other/ tin-security main\ndeb http://mirror/d tin contrib main\n", ""),
        (
            "sources.list.d/debian.sources",
            "Types: deb\n# http://old/\nURIs: http://mirror/d\nSuites: tin tin-updates\nComponents: main\nSigned-By: /key\n\n"
            "Types: deb\nURIs: http://other/\nSuites: tin-security\nComponents: main\n",
            "/key",
        ),
        (
            "sources.list.d/debian.sources",
            "Types: deb\nURIs: http://other/\nSuites: tin\nComponents: main\nEnabled: no\n\n"
            "Types: deb deb-src\nURIs: http://mirror/d\nSuites: tin\nComponents: main\nSigned-By:\n -----BEGIN\n .\n -----END\n",
            "\n -----BEGIN\n .\n -----END",
        ),
    ],
)
def test_backports_come_from_the_mirror_of_the_system(tmp_path: pathlib.Path, name: str, text: str, said: str) -> None:
    (tmp_path / "os-release").write_text('NAME="Tin"\nVERSION_CODENAME=tin\n')
    path = tmp_path / "apt" / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    codename, sources = guest_packages.backports_sources(tmp_path)
    key = f"Signed-By:{'' if said.startswith(chr(10)) else ' '}{said}\n" if said else ""
    assert codename == "tin"
    assert sources == f"Types: deb\nURIs: http://mirror/d\nSuites: tin tin-backports\nComponents: main\nArchitectures: amd64\n{key}"


def test_a_system_without_such_a_mirror_is_told_so(tmp_path: pathlib.Path) -> None:
    with pytest.raises(guest_packages.Unavailable, match="names no release"):
        guest_packages.backports_sources(tmp_path)
    (tmp_path / "os-release").write_text("VERSION_CODENAME=tin\n")
    with pytest.raises(guest_packages.Unavailable, match="name no mirror of tin"):
        guest_packages.backports_sources(tmp_path)
