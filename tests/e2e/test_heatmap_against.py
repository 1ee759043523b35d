"""`tiermem heatmap --against`: two recordings beside each other."""

from __future__ import annotations

import pathlib
import re

import pytest

from heatmaps import table
from programs import workload
from store import MIB, PATIENCE_S, tiermem

PAGE = 4096
NEAR, FAR = 0x10000000, 0x7F0000000000


def trace(path: pathlib.Path, seconds: int, accesses: list[tuple[int, int]]) -> pathlib.Path:
    """A memory trace with these accesses (address and how often) in each second."""
    lines = ["time,op,key,size"]
    lines += [f"{second},load,{address},8" for second in range(seconds) for address, times in accesses for _ in range(times)]
    text = path.with_suffix(".csv")
    text.write_text("\n".join(lines) + "\n")
    done = tiermem("trace", "convert", str(text), "-o", str(path), "--columns", "time=1,op=2,key=3,size=4,header")
    assert done.returncode == 0, done
    return path


@pytest.fixture
def after(tmp_path: pathlib.Path) -> pathlib.Path:
    """Six accesses a second to three pages."""
    return trace(tmp_path / "after.parquet", 4, [(NEAR, 1), (NEAR + PAGE, 2), (NEAR + 2 * PAGE, 3)])


@pytest.fixture
def before(tmp_path: pathlib.Path) -> pathlib.Path:
    """Four a second to one of those pages, and twelve elsewhere, for half as long."""
    return trace(tmp_path / "before.parquet", 2, [(NEAR, 4), (FAR, 12)])


def test_regions_of_one_name_stand_side_by_side(after: pathlib.Path, before: pathlib.Path) -> None:
    rows = table(str(after), "--against", str(before))
    assert [(row["of"], row["name"]) for row in rows] == [("all", "all"), ("region", hex(FAR)), ("region", hex(NEAR))]
    found = {row["name"]: row for row in rows}
    assert found[hex(NEAR)] == {
        "of": "region", "name": hex(NEAR), "kind": "anonymous", "bytes": 3 * PAGE, "against_bytes": PAGE,
        "touched_bytes": 3 * PAGE, "against_touched_bytes": PAGE, "touched_ratio": 3,
        "share": 1, "against_share": 0.25,
        # Per second, however long each was recorded.
        "accesses_per_s": 6, "against_accesses_per_s": 4, "difference_per_s": 2, "ratio": 1.5,
    }  # fmt: skip
    # What is in one of them alone is nothing to compare with; it is not zero.
    far = found[hex(FAR)]
    assert (far["against_bytes"], far["against_accesses_per_s"], far["against_share"]) == (PAGE, 12, 0.75)
    assert [
        far[name] for name in ("bytes", "touched_bytes", "touched_ratio", "share", "accesses_per_s", "difference_per_s", "ratio")
    ] == [None] * 7
    assert found["all"]["difference_per_s"] == 6 - 16 and found["all"]["ratio"] == 6 / 16
    # The other way round.
    found = {row["name"]: row for row in table(str(before), "--against", str(after))}
    assert (found[hex(NEAR)]["difference_per_s"], found[hex(NEAR)]["ratio"]) == (-2, 0.667)
    assert found[hex(FAR)]["bytes"] == PAGE and found[hex(FAR)]["against_bytes"] is None


def test_what_is_chosen_is_chosen_of_both(after: pathlib.Path, before: pathlib.Path) -> None:
    assert [row["name"] for row in table(str(after), "--against", str(before), "--region", hex(NEAR))] == ["all", hex(NEAR)]
    # The hottest of each.
    assert [row["name"] for row in table(str(after), "--against", str(before), "--region", "hottest")] == [
        "all",
        hex(FAR),
        hex(NEAR),
    ]
    # One of them has it.
    [all_rows, far] = table(str(after), "--against", str(before), "--region", hex(FAR))
    assert far["accesses_per_s"] is None and far["against_accesses_per_s"] == 12 and all_rows["accesses_per_s"] is None
    for arguments, code, says in [
        (["--region", "stak"], 2, "the regions are 0x10000000"),
        (["--slices", "3"], 2, "before.parquet has slices 0 to 1"),
        (["--text"], 2, "cannot be used with"),
        (["--region", hex(NEAR), "-o", "x.csv"], 2, "--against writes"),
    ]:
        done = tiermem("heatmap", str(after), "--against", str(before), *arguments)
        assert done.returncode == code and says in done.stderr, done


def test_counts_that_mean_different_things_are_refused(recording: pathlib.Path, after: pathlib.Path) -> None:
    done = tiermem("heatmap", str(after), "--against", str(recording))
    assert done.returncode == 1 and "cannot be compared" in done.stderr and "perf-mem" in done.stderr, done
    done = tiermem("heatmap", str(after), "--against", str(after.with_name("nowhere")))
    assert done.returncode == 1 and "nowhere" in done.stderr, done


def test_maps_are_on_one_scale(after: pathlib.Path, before: pathlib.Path, tmp_path: pathlib.Path) -> None:
    picture = tmp_path / "both.svg"
    done = tiermem("heatmap", str(after), "--against", str(before), "-o", str(picture))
    assert (done.returncode, done.stdout) == (0, f"{picture}\n"), done
    svg = picture.read_text()
    assert "accesses per granule and second" in svg and svg.count("on one scale".capitalize()) == 1 and "NaN" not in svg
    assert all(f">{path}<" in svg or path.name in svg for path in (after, before))
    done = tiermem("heatmap", str(after), "--against", str(before), "-o", str(tmp_path / "both.png"))
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG"), done
    page = tmp_path / "both.html"
    done = tiermem("heatmap", str(after), "--against", str(before), "-o", str(page))
    assert (done.returncode, done.stdout) == (0, f"{page}\n"), done
    html = page.read_text()
    assert "after.parquet has 0.375 times as many accesses per second as before.parquet" in html
    assert "after.parquet: 6 accesses per second, 12 KiB touched. before.parquet: 16 accesses per second, 8 KiB touched." in html
    # The region that both have, in two themes; of the other one there is a row.
    assert html.count("<svg") == 2 and f"<th>{hex(FAR)}</th><td>anonymous</td><td>–</td><td>4 KiB</td>" in html
    assert not re.search(r"https?://|url\(|@import| src=", html) and "NaN" not in html
    done = tiermem("heatmap", str(before), "--against", str(after), "--region", hex(FAR), "-o", str(picture))
    assert done.returncode == 1 and re.search(f"has no region .*{hex(FAR)}", done.stderr), done


def test_bytes_of_what_was_looked_at_as_a_whole_are_not_compared(tmp_path: pathlib.Path) -> None:
    command = workload("skewed", "--footprint 64MiB --granule 1MiB --seconds 2 --per-second 200000")
    for name, arguments in [("parts", []), ("whole", ["--no-agent"])]:
        done = tiermem(
            "record", "--slice", "200ms", "--granule", "1MiB", *arguments, "-o", str(tmp_path / name), "--", *command,
            patience_s=2 * PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == 0, done
    rows = table(str(tmp_path / "parts"), "--against", str(tmp_path / "whole"), "--region", "largest")
    for row in rows:
        assert row["touched_bytes"] > 32 * MIB and row["against_touched_bytes"] is None and row["touched_ratio"] is None, rows
        # How often it was accessed is known.
        assert row["accesses_per_s"] > 0 and row["against_accesses_per_s"] > 0 and row["ratio"] > 0, rows
