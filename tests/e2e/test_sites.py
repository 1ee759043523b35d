"""Which code first touches the memory of a program, and how hot that is."""

from __future__ import annotations

import csv
import json
import pathlib
import subprocess

import pytest

from heatmaps import table
from programs import tool
from store import MIB, PATIENCE_S, binary, tiermem

SOURCES = pathlib.Path(__file__).parent / "sites"


def built(folder: pathlib.Path, name: str, *flags: str) -> str:
    source = SOURCES / name
    compiler = tool("c++" if source.suffix == ".cc" else "cc")
    program = folder / source.stem
    subprocess.run([compiler, *flags, "-o", str(program), str(source)], check=True, timeout=PATIENCE_S)
    return str(program)


def record(path: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [binary(), "record", "--slice", "500ms", "-o", str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False)
    if "perf_event_open" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return done


def line_of(source: str, mark: str) -> int:
    lines = (SOURCES / source).read_text().splitlines()
    [number] = [number for number, line in enumerate(lines, 1) if mark in line]
    return number


def sites(path: pathlib.Path, *arguments: str) -> list[dict]:
    return table(str(path), "--sites", *arguments)


def check_arrays(rows: list[dict]) -> tuple[dict, dict]:
    """The first site is hot, and another one is cold and three times as large; and what is told adds up. Both."""
    hot = rows[0]
    cold = max(rows[1:], key=lambda row: row["touched_bytes"])
    # How long the program takes to start is the machine's business; what is started is no site of the arrays.
    assert hot["share"] > 0.8 and hot["share"] > 8 * cold["share"] > 0, rows[:3]
    assert 28 * MIB < hot["touched_bytes"] < 36 * MIB and 92 * MIB < cold["touched_bytes"] < 100 * MIB, rows[:3]
    assert 0.2 < hot["touched_share"] < 0.3 and 0.7 < cold["touched_share"] < 0.8
    assert sum(row["share"] for row in rows) == pytest.approx(1, abs=0.01)
    # Accessed bits do not tell loads from stores.
    assert hot["loads"] is None and hot["stores"] is None
    return hot, cold


@pytest.mark.parametrize("flags", [("-g", "-O2", "-fomit-frame-pointer"), ("-g", "-O1", "-fno-omit-frame-pointer"), ("-g", "-O2", "-static")])
def test_sites_are_told_by_function_and_line(tmp_path: pathlib.Path, flags: tuple[str, ...]) -> None:
    path = tmp_path / "a.rec"
    record(path, "--sites", "--", built(tmp_path, "arrays.c", *flags))
    rows = sites(path)
    both = check_arrays(rows)
    names = [row["site"].partition(".")[0] for row in both]
    assert names == ["make_hot", "make_cold"], rows[:3]
    places = [f"{SOURCES}/arrays.c:{line_of('arrays.c', mark)}" for mark in ("/* hot */", "/* cold */")]
    assert [row["source"] for row in both] == places
    assert all(row["callers"].startswith("main") and row["module"].endswith("/arrays") for row in both)
    # Machines get the same, and people units.
    done = tiermem("heatmap", str(path), "--sites", "--format", "csv")
    assert next(csv.DictReader(done.stdout.splitlines()))["source"] == places[0]
    done = tiermem("heatmap", str(path), "--sites")
    assert "MiB" in done.stdout and places[0] in done.stdout
    # Of the accesses that are selected only.
    regions = {row["name"]: row for row in table(str(path))}
    largest = max(regions.values(), key=lambda row: row["bytes"])["name"]
    assert sites(path, "--region", largest)[0]["site"] == rows[0]["site"]
    assert "make_hot" not in [row["site"] for row in sites(path, "--region", "stack")]


def test_without_symbols_sites_are_addresses_in_the_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.rec"
    record(path, "--sites", "--", built(tmp_path, "arrays.c", "-O2", "-s"))
    rows = sites(path)
    hot, cold = check_arrays(rows)
    assert all(row["site"].startswith("arrays+0x") and row["source"] == "" for row in (hot, cold)), rows[:3]
    assert hot["site"] != cold["site"]


def test_a_child_has_the_sites_of_the_program_that_it_runs(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.rec"
    record(path, "--sites", "--", "sh", "-c", f"{built(tmp_path, 'arrays.c', '-g', '-O2')} twice; true")
    check_arrays(sites(path))
    child = max(table(str(path), "--processes"), key=lambda row: row["accesses"])["name"]
    rows = sites(path, "--process", child)
    check_arrays(rows)
    assert rows[0]["site"] == "make_hot" and rows[0]["module"].endswith("/arrays"), rows[:2]
    assert "make_hot" not in [row["site"] for row in sites(path, "--process", "sh")]


def test_what_the_library_touches_is_of_its_caller(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.rec"
    record(path, "--sites", "--", built(tmp_path, "vector.cc", "-g", "-O2"))
    hot = sites(path)[0]
    assert hot["site"].startswith("make_rows") and hot["source"].endswith(f"vector.cc:{line_of('vector.cc', '// hot')}"), hot
    assert hot["share"] > 0.9 and 56 * MIB < hot["touched_bytes"] < 72 * MIB, hot


def test_memory_that_was_touched_before_has_no_site(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.rec"
    with subprocess.Popen([built(tmp_path, "arrays.c", "-g", "-O2")]) as program:
        try:
            # It has filled its memory when it has as much.
            statm = pathlib.Path(f"/proc/{program.pid}/statm")
            while int(statm.read_text().split()[1]) * 4096 < 120 * MIB:
                assert program.poll() is None
            done = record(path, "--sites", "--pid", str(program.pid), "--duration", "1s")
        finally:
            program.kill()
    assert "touched before the recording began has no site" in done.stderr + done.stdout
    rows = sites(path)
    assert rows[-1]["site"] == "unknown" and rows[-1]["share"] > 0.9, rows
    assert rows[-1]["source"] == rows[-1]["callers"] == rows[-1]["module"] == ""


def test_programs_that_end_at_once_and_recordings_without_sites(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.rec"
    record(path, "--sites", "--", "true")
    assert isinstance(sites(path), list)
    record(path, "--", "true")
    done = tiermem("heatmap", str(path), "--sites")
    assert done.returncode == 1 and "record it again with `tiermem record --sites`" in done.stderr
    for wrong in (["--source", "lackey"], ["--source", "perf-mem"]):
        done = tiermem("record", "--sites", *wrong, "-o", str(path), "--", "true")
        assert done.returncode == 125 and "leave --sites out" in done.stderr, done


def test_a_program_is_not_changed_and_whole_mappings_need_one_site(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.rec"
    program = built(tmp_path, "arrays.c", "-g", "-O2")
    record(path, "--sites", "--no-agent", "--", program)
    # Both arrays are in one mapping: whose accesses these are is unknown, and who touched it is not.
    rows = sites(path)
    assert rows[-1]["site"] == "unknown" and rows[-1]["share"] > 0.9, rows
    touched = {row["site"]: row["touched_bytes"] for row in rows}
    assert touched["make_cold"] > 2 * touched["make_hot"] > 40 * MIB, rows
    told = [subprocess.run([*before, "sh", "-c", "ls -l /proc/self/fd | wc -l; env | sort | md5sum"], capture_output=True, text=True,
                           timeout=PATIENCE_S, check=True).stdout
            for before in ([], [binary(), "record", "--sites", "-o", str(path), "--"])]
    assert told[0] == told[1]
    assert json.loads(tiermem("heatmap", str(path), "--format", "json").stdout) is not None
