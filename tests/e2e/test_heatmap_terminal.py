"""What `tiermem heatmap` prints for people without a browser: maps as text, idle ages, addresses."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import pty
import struct
import subprocess
import sys
import termios

import pytest

from heatmaps import GRANULE_BYTES, drawn, rows, table
from programs import workload
from store import MIB, PATIENCE_S, binary, tiermem

PAGE = 4096


def text(path: pathlib.Path, *arguments: str) -> list[str]:
    done = tiermem("heatmap", str(path), "--text", *arguments)
    assert done.returncode == 0, done
    return done.stdout.splitlines()


def maps(lines: list[str]) -> dict[str, str]:
    """What stands between the bars, by what stands before them."""
    parts = [line.split("|") for line in lines if line.count("|") == 2]
    return {part[0].strip(): part[1] for part in parts}


def test_a_region_over_time(recording: pathlib.Path) -> None:
    lines = text(recording, "--region", "llama.gguf", "--granule", "4MiB")
    assert lines[0] == "llama.gguf: samples per second and granule of 4 MiB"
    assert max(map(len, lines)) <= 80
    found = list(maps(lines).values())
    assert len(found) == 32 and set(map(len, found)) == {5 * 12}
    # The hotspot passes through from high to low addresses in twelve slices.
    for row, cells in list(enumerate(found))[4:28]:
        levels = [".:-=+*%#@".index(cell) for cell in cells[::5]]
        hottest = [at for at, level in enumerate(levels) if level == max(levels)]
        assert abs(sum(hottest) / len(hottest) - 12 * (1 - row / 32)) < 2, (row, cells)
    assert list(maps(text(recording, "--region", "llama.gguf", "--absolute")))[:1] == ["0x7e0000000000"]
    part = maps(text(recording, "--region", "llama.gguf:1GiB+64MiB", "--slices", "3-4"))
    assert list(part)[:2] == ["1024 MiB", "1026 MiB"] and len(part) == 32


def test_regions_over_time(recording: pathlib.Path) -> None:
    lines = text(recording)
    assert list(maps(lines)) == ["llama.gguf", "anon 1", "heap", "stack"] and max(map(len, lines)) <= 80, lines
    shares = {line.split("|")[0].strip(): line.split()[-1] for line in lines if line.count("|") == 2}
    for row in table(str(recording)):
        assert (
            float(shares[row["name"]].rstrip("%")) / 100 == round(row["share"], 3)
            or abs(float(shares[row["name"]].rstrip("%")) / 100 - row["share"]) < 1e-3
        )
    assert list(maps(text(recording, "--region", "anon"))) != []


def test_a_map_is_as_wide_as_the_terminal(recording: pathlib.Path) -> None:
    for columns in (60, 132):
        master, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        with os.fdopen(master, "rb", buffering=0) as reader:
            command = [binary(), "heatmap", str(recording), "--text", "--region", "llama.gguf"]
            with subprocess.Popen(command, stdout=terminal, stderr=subprocess.DEVNULL) as process:
                os.close(terminal)
                shown = b""
                try:
                    while more := reader.read(65536):
                        shown += more
                except OSError:
                    # The other end has been closed.
                    pass
            assert process.returncode == 0
        lines = shown.decode().splitlines()
        assert set(map(len, maps(lines).values())) == {12 * (4 if columns == 60 else 10)}
        assert max(map(len, lines)) <= columns, lines


def test_addresses_are_told_on_request(recording: pathlib.Path, tmp_path: pathlib.Path) -> None:
    assert "start" not in table(str(recording))[0]
    found = {row["name"]: row for row in table(str(recording), "--absolute")}
    assert (found["llama.gguf"]["start"], found["llama.gguf"]["end"]) == (
        "0x7e0000000000",
        hex(0x7E0000000000 + 2048 * GRANULE_BYTES),
    )
    assert found["heap"]["start"] == "0x555500000000"
    drawn(recording, tmp_path / "heap.csv", "--region", "heap", "--absolute")
    told = rows(tmp_path / "heap.csv")
    assert told and all(int(row["address"], 16) == 0x555500000000 + int(row["offset"]) for row in told)
    drawn(recording, tmp_path / "plain.csv", "--region", "heap")
    assert "address" not in rows(tmp_path / "plain.csv")[0]


def trace(folder: pathlib.Path, accesses: list[tuple[int, int]]) -> pathlib.Path:
    """A memory trace of these seconds and pages."""
    lines = ["time,op,key,size", *(f"{second},load,{0x10000000 + PAGE * page},8" for second, page in accesses)]
    (folder / "trace.csv").write_text("\n".join(lines) + "\n")
    done = tiermem(
        "trace",
        "convert",
        str(folder / "trace.csv"),
        "-o",
        str(folder / "trace.parquet"),
        "--columns",
        "time=1,op=2,key=3,size=4,header",
    )
    assert done.returncode == 0, done
    return folder / "trace.parquet"


def idle(path: pathlib.Path, *arguments: str) -> dict[str, dict]:
    return {row["name"]: row for row in table(str(path), "--show", "idle", *arguments)}


def test_ages_count_from_the_last_slice(tmp_path: pathlib.Path) -> None:
    accesses = [*((0, page) for page in range(4)), (50, 4), (50, 5), (79, 6), (80, 7), (80, 11)]
    path = trace(tmp_path, accesses)
    for name in ("all", "0x10000000"):
        found = idle(path)[name]
        assert found["idle_s"] == 0 and found["touched_bytes"] == 9 * PAGE, found
        assert [found[f"idle_{age}s_bytes"] // PAGE for age in (1, 10, 60)] == [7, 6, 4], found
        # Pages 8 to 10.
        assert found["never_accessed_bytes"] == 3 * PAGE
    # As if the recording had ended earlier.
    found = idle(path, "--slices", "0-55")["all"]
    assert found["idle_s"] == 5 and [found[f"idle_{age}s_bytes"] // PAGE for age in (1, 10, 60)] == [6, 4, 0], found
    assert found["never_accessed_bytes"] == 6 * PAGE
    [row] = table(str(path), "--slices", "0-55")
    assert row["idle_s"] == 5


PASSES_ON = """
import mmap, os, time
def touch(memory, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for at in range(0, len(memory), 4096):
            memory[at] = 1
        time.sleep(0.005)
first, second = mmap.mmap(-1, 24 << 20), mmap.mmap(-1, 32 << 20)
touch(first, 1)
touch(second, 1)
first.close()
touch(second, 2)
# What is closed at the end would be gone in the last slice.
os._exit(0)
"""


def test_memory_that_is_not_there_is_not_idle(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "passes.rec"
    done = tiermem(
        "record", "--slice", "100ms", "--granule", "1MiB", "-o", str(out), "--", sys.executable, "-c", PASSES_ON,
        patience_s=2 * PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done
    shared = {row["bytes"] // MIB: row["name"] for row in table(str(out)) if row["name"].startswith("shared")}
    gone, there = shared[24], shared[32]
    found = idle(out)
    assert found[gone]["touched_bytes"] > 16 * MIB and found[gone]["idle_s"] is None and found[gone]["idle_1s_bytes"] == 0, found
    assert found[there]["idle_s"] is not None and found[there]["idle_s"] < 1, found
    assert found["all"]["idle_1s_bytes"] < 16 * MIB, found["all"]
    line = maps(text(out))[gone]
    assert line.endswith("    ") and line.strip(), line


def test_ages_that_cannot_be_known_are_not_told(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "whole.rec"
    command = workload("skewed", "--footprint 64MiB --granule 1MiB --seconds 2 --per-second 200000")
    done = tiermem("record", "--slice", "200ms", "--no-agent", "-o", str(out), "--", *command, patience_s=2 * PATIENCE_S)
    assert done.returncode == 0, done
    [largest] = [row for row in table(str(out)) if row["bytes"] > 60 * MIB]
    found = idle(out)
    for name in (largest["name"], "all"):
        unknown = [found[name][field] for field in ("idle_1s_bytes", "idle_10s_bytes", "idle_60s_bytes", "never_accessed_bytes")]
        assert unknown == [None] * 4, found
    drawn(out, tmp_path / "whole.svg", "--show", "idle", "--region", largest["name"])
    assert "parts may have been idle for longer" in (tmp_path / "whole.svg").read_text()
    # That it was accessed is known, and when.
    assert found[largest["name"]]["idle_s"] is not None
    assert "?" in maps(text(out))[largest["name"]] and "@" not in maps(text(out, "--region", largest["name"]))["0 MiB"]
    done = tiermem("heatmap", str(out), "--show", "idle", "--format", "json")
    assert json.loads(done.stdout)[0]["idle_1s_bytes"] is None


def test_page_faults_tell_no_ages(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "faults.rec"
    command = workload("skewed", "--footprint 16MiB --granule 1MiB --seconds 1 --per-second 200000")
    done = tiermem("record", "--slice", "200ms", "--source", "faults", "-o", str(out), "--", *command, patience_s=2 * PATIENCE_S)
    if "perf_event_paranoid" in done.stderr:
        pytest.skip("page faults may not be observed here")
    assert done.returncode == 0, done
    assert any(row["accesses"] > 0 for row in table(str(out)))
    assert all(row["idle_s"] is None for row in table(str(out)))
    assert idle(out)["all"]["idle_1s_bytes"] is None
    done = tiermem("heatmap", str(out), "--show", "idle", "-o", str(tmp_path / "faults.svg"))
    assert done.returncode == 2 and "first accesses alone" in done.stderr, done
    drawn(out, tmp_path / "faults.html")
    assert '"tellsAges":false' in (tmp_path / "faults.html").read_text()
