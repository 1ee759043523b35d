"""Programs of many kinds in half of what they need, by each way of paging: what they show is what they show alone. And devices that fail."""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

from programs import tool, workload
from store import PATIENCE_S, binary, eventually, tiermem
from test_pager import MIB, areas, assert_nothing_is_left, eater, machine, skip_where_nothing_is_steered, status  # noqa: F401  (a fixture)

HERE = pathlib.Path(__file__).parent
# Memory of huge pages, gone over twice; the kernel splits them to page them out.
HUGE = """
import mmap
size = int({mib}) << 20
memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE)
for _ in range(3):
    for at in range(0, size, 4096): memory[at:at + 8] = (at * 31 + 7).to_bytes(8, "little")
    assert all(memory[at:at + 8] == (at * 31 + 7).to_bytes(8, "little") for at in range(0, size, 4096))
print("right")
"""


def built(source: pathlib.Path, *command: str) -> str:
    program = source.with_suffix("")
    subprocess.run([*command, "-o", str(program), str(source)], check=True, timeout=300, cwd=source.parent)
    return str(program)


def java(folder: pathlib.Path) -> list[str]:
    subprocess.run([tool("javac"), "-d", str(folder), str(HERE / "paged" / "Sorted.java")], check=True, timeout=PATIENCE_S)
    return [tool("java"), "-Xmx256m", "-XX:+UseG1GC", "-cp", str(folder), "Sorted", "200"]


def go(folder: pathlib.Path) -> list[str]:
    source = folder / "tree.go"
    source.write_text((HERE / "paged" / "tree.go").read_text())
    return [built(source, tool("go"), "build"), "750000"]


def jemalloc(_: pathlib.Path) -> list[str]:
    found = [path for path in pathlib.Path("/usr/lib").glob("*/libjemalloc.so.2")]
    if not found:
        pytest.skip("there is no jemalloc here")
    words = "words = [str(n * 7919 % 1000003) * 9 for n in range(450_000)]; words.sort(); print(hash(words[1000]), len(set(words)))"
    return ["env", f"LD_PRELOAD={found[0]}", "PYTHONMALLOC=malloc", "PYTHONHASHSEED=1", sys.executable, "-c", words]


def huge(_: pathlib.Path) -> list[str]:
    return [sys.executable, "-c", HUGE.format(mib=100)]


@pytest.mark.parametrize("make", [java, go, jemalloc, huge])
@pytest.mark.parametrize("how", [["--how", "kernel"], ["--how", "kernel", "--evict", "clock"]])
def test_programs_of_many_kinds_show_what_they_show_alone(tmp_path: pathlib.Path, make, how: list[str]) -> None:  # noqa: ANN001
    command = make(tmp_path)
    alone = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    done = tiermem("run", "--dram", "64MiB", "--flash", "512MiB", *how, "--report", str(tmp_path / "r.json"), "--", *command)
    skip_where_nothing_is_steered(done)
    assert (done.returncode, done.stdout) == (0, alone.stdout), done.stderr
    told = json.loads((tmp_path / "r.json").read_text())
    assert told["overcommit"] > 1.3 and told["major_faults"] > 0 and told["how"] == "kernel", told
    assert_nothing_is_left()


def test_a_page_that_cannot_be_read_is_a_bus_error_and_is_told(tmp_path: pathlib.Path) -> None:
    # A device that shrinks while it is used: what lay beyond its end cannot be read.
    backing = tmp_path / "device"
    with backing.open("wb") as file:
        file.truncate(128 * MIB)
    attached = subprocess.run([tool("losetup"), "--find", "--show", str(backing)], capture_output=True, text=True, check=False)
    if attached.returncode != 0:
        pytest.skip(f"there is no loop device here: {attached.stderr.strip()}")
    device = attached.stdout.strip()
    try:
        subprocess.run([tool("mkswap"), device], check=True, capture_output=True)
        then = "sys.stdin.read()\nfor page in range(pages): assert memory[page * 4096] == page & 255\nprint('still right', flush=True)"
        command = [binary(), "run", "--dram", "32MiB", "--flash", f"{device}=128MiB", "--", *eater(60, then)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as pager:
            assert pager.stdout and pager.stdout.readline() == "right\n"
            os.truncate(backing, MIB)
            told, said = pager.communicate("", timeout=PATIENCE_S)
            assert (pager.returncode, told) == (128 + signal.SIGBUS, ""), said
            assert "`dmesg` has its read errors" in said
        assert_nothing_is_left()
    finally:
        subprocess.run([tool("losetup"), "--detach", device], check=False)


def test_wherever_the_pager_is_killed_the_program_ends_right() -> None:
    chance = random.Random(26)
    for _ in range(int(os.environ.get("TIERMEM_KILL_ROUNDS", "5"))):
        sweep = workload("sweep", f"--size {64 * MIB} --passes 8 --small-pages --write --range")
        pager = subprocess.Popen([binary(), "run", "--dram", "32MiB", "--flash", "96MiB", "--", *sweep], stdout=subprocess.PIPE, text=True)
        assert pager.stdout and pager.stdout.readline()
        time.sleep(chance.uniform(0.05, 1.5))
        pager.kill()
        assert pager.stdout.read().endswith(" ok\n")
        pager.wait()
        eventually(lambda: status() == [] and areas() == [], "all is taken away")
    assert_nothing_is_left()
