"""Programs that know every byte of their memory (`examples/workloads`: sweep, touches, hostile.c): they find all of it right, and a
byte that somebody else has changed wrong."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import subprocess

import pytest

from programs import tool, workload
from store import PATIENCE_S, ROOT, eventually


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    program = tmp_path_factory.mktemp("hostile") / "hostile"
    source = ROOT / "examples" / "workloads" / "hostile.c"
    subprocess.run([tool("cc"), "-O2", "-Wall", "-Werror", "-pthread", "-o", str(program), str(source)], check=True, timeout=PATIENCE_S)
    return str(program)


def run(*command: str, cwd: pathlib.Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.parametrize("flags", ["", "--write", "--huge-pages --write", "--small-pages"])
def test_a_sweep_tells_each_pass(flags: str) -> None:
    done = run(*workload("sweep", f"--size 40MiB --passes 3 --range {flags}"))
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(
        r"range 0x([0-9a-f]+)-0x([0-9a-f]+)\nsweep: (\d+) bytes, (read|write), fill [\d.]+ s, passes((?: \d+\.\d{6}){3}) s, "
        r"major faults (\d+), checksum [0-9a-f]{16} ok\n",
        done.stdout,
    )
    assert found, done.stdout
    start, end = (int(found[at], 16) for at in (1, 2))
    assert start % 4096 == 0 and end - start == int(found[3]) == 40 << 20
    assert found[4] == ("write" if "--write" in flags else "read")


def test_touches_repeat_by_their_seed() -> None:
    def out(flags: str) -> str:
        done = run(*workload("touches", f"--pages 2000 --touches 20000 --check-all {flags}"))
        assert done.returncode == 0, done.stderr
        found = re.fullmatch(r"touches: 20000 of 2000 pages, [\d.]+ s, major faults \d+, checksum ([0-9a-f]{16}) ok\n", done.stdout)
        assert found, done.stdout
        return found[1]

    sums = [out(flags) for flags in ("", "--seed 2", "--scattered", "--scattered --writes 40", "--hot-pages 100", "--hot-touches 0")]
    assert len(set(sums)) == len(sums)
    assert out("--scattered --writes 40") == sums[3]


def change(pid: int, address: int) -> None:
    """One bit of another process's memory."""
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(address)
        byte = memory.read(1)
        memory.seek(address)
        memory.write(bytes([byte[0] ^ 16]))


def test_a_sweep_finds_a_wrong_byte() -> None:
    command = workload("sweep", "--size 40MiB --passes 100k --range")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout
        start = int(program.stdout.readline().removeprefix("range ").split("-")[0], 16)
        change(program.pid, start + 77 * 4096 + 4095)
        out, err = program.communicate(timeout=PATIENCE_S)
    assert program.returncode == 1 and not out
    assert re.match(r"sweep: pass \d+: page 77, version 0, word 511: [0-9a-f]{16} instead of [0-9a-f]{16}\n$", err), err


@pytest.mark.parametrize("flags", ["--threads 1", "--threads 5 --seed 7 --locked 0"])
def test_hostile_finds_its_memory_right(hostile: str, tmp_path: pathlib.Path, flags: str) -> None:
    done = run(hostile, "--size", "24MiB", "--seconds", "1", *flags.split(), cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.endswith(" ok\n"), done.stderr
    assert f"seed {7 if 'seed' in flags else 1}, " in done.stdout
    # Every kind of work was done.
    assert not re.search(r" 0[, ]", done.stdout.split("checked")[1]), done.stdout
    assert not list(tmp_path.iterdir())


def test_hostile_finds_a_wrong_byte(hostile: str, tmp_path: pathlib.Path) -> None:
    command = [hostile, "--size", "24MiB", "--seconds", str(PATIENCE_S), "--threads", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as program:

        def spoil() -> bool:
            """Somewhere in a large mapping; it may be written anew before it is read, or dropped."""
            for line in pathlib.Path(f"/proc/{program.pid}/maps").read_text().splitlines():
                start, end = (int(it, 16) for it in line.split()[0].split("-"))
                if "rw-p" in line and len(line.split()) == 5 and 1 << 20 <= end - start < 8 << 20:
                    # It may have moved, or the program have ended.
                    with contextlib.suppress(OSError):
                        change(program.pid, start + 100 * 4096)
            return program.poll() is not None

        eventually(spoil, "it noticed")
        _, err = program.communicate(timeout=PATIENCE_S)
    assert program.returncode == 1 and err.startswith("hostile: seed 1: ") and " instead of " in err, err


def test_wrong_use_is_told(hostile: str, tmp_path: pathlib.Path) -> None:
    sweep = workload("sweep")
    for command in ([*sweep, "--bogus"], [*sweep, "--size", "many"], [hostile, "--threads", "65"], [hostile, "--size"]):
        done = run(*command, cwd=tmp_path)
        assert done.returncode == 2 and "--help" in done.stderr, command
    for command in ([*sweep], [*workload("touches")], [hostile]):
        done = run(*command, "--help", cwd=tmp_path)
        assert done.returncode == 0 and ("--seed" in done.stdout or "--passes" in done.stdout), command
    missing = run(hostile, "--folder", "/nowhere/at/all", cwd=tmp_path)
    assert missing.returncode == 1 and "--folder names another" in missing.stderr
    assert os.listdir(tmp_path) == []
