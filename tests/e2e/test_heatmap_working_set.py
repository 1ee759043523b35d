"""The working set of a program in bytes, and what it has in memory beside it."""

from __future__ import annotations

import csv
import json
import pathlib
import subprocess

from heatmaps import drawn, rows, table
from programs import workload
from store import MIB, PATIENCE_S, binary, tiermem

FIVE = ["min_bytes", "p25_bytes", "p50_bytes", "p75_bytes", "max_bytes"]


def by_name(recording: pathlib.Path, *arguments: str) -> dict[str, dict]:
    return {row["name"]: row for row in table(str(recording), "--view", "wss", *arguments)}


def test_quartiles_are_of_the_bytes_of_each_slice(recording: pathlib.Path, tmp_path: pathlib.Path) -> None:
    drawn(recording, tmp_path / "heap.csv", "--region", "heap", "--granule", "4KiB")
    touched: dict[str, set[str]] = {}
    for row in rows(tmp_path / "heap.csv"):
        touched.setdefault(row["slice"], set()).add(row["granule"])
    pages = sorted(len(granules) for granules in touched.values())
    assert len(pages) == 12 and pages[0] < pages[-1], pages
    wanted = [4096 * pages[rank - 1] for rank in (1, 3, 6, 9, 12)]
    found = by_name(recording, "--region", "heap")
    for name in ("all", "heap"):
        assert [found[name][field] for field in FIVE] == wanted, found
        assert found[name]["touched_bytes"] == 4096 * len(set.union(*touched.values()))
        # Nobody knows what was in memory: it is not nothing.
        assert found[name]["rss_p50_bytes"] is None and found[name]["unknown_heat_share"] == 0
    assert found["all"]["of"] == "all" and found["heap"]["of"] == "region"
    # People read units, machines numbers.
    done = tiermem("heatmap", str(recording), "--view", "wss")
    assert "8GiB" in done.stdout and "p50_bytes" in done.stdout, done
    done = tiermem("heatmap", str(recording), "--view", "wss", "--format", "csv")
    assert {row["name"]: row["bytes"] for row in csv.DictReader(done.stdout.splitlines())}["llama.gguf"] == str(8 << 30)


def record(folder: pathlib.Path, *arguments: str) -> dict:
    """The summary of a recording `app.rec`."""
    command = [
        binary(),
        "record",
        "--slice",
        "200ms",
        "--granule",
        "1MiB",
        "--format",
        "json",
        "--report",
        "app.json",
        "-o",
        "app.rec",
    ]
    done = subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    [summary] = json.loads((folder / "app.json").read_text())
    return summary


def test_what_is_in_memory_stands_beside_what_is_touched(tmp_path: pathlib.Path) -> None:
    command = workload("skewed", "--footprint 64MiB --granule 1MiB --seconds 3 --per-second 1000000")
    summary = record(tmp_path, "--", *command)
    five = [summary[f"working_set_{field}"] for field in FIVE]
    assert five == sorted(five) and 32 * MIB < five[2] and five[4] <= summary["touched_bytes"] <= summary["rss_max_bytes"], summary
    assert 64 * MIB < summary["rss_p50_bytes"] <= summary["rss_max_bytes"] < 96 * MIB, summary
    found = by_name(tmp_path / "app.rec")
    assert [found["all"][field] for field in FIVE] == five
    assert (found["all"]["rss_p50_bytes"], found["all"]["rss_max_bytes"]) == (summary["rss_p50_bytes"], summary["rss_max_bytes"])
    done = tiermem("heatmap", str(tmp_path / "app.rec"), "-o", str(tmp_path / "app.html"))
    page = (tmp_path / "app.html").read_text()
    assert done.returncode == 0 and "(RSS)" in page and "<th>in a slice</th>" in page
    # People see it at the end of a recording.
    told = subprocess.run(
        [binary(), "record", "--slice", "200ms", "-o", str(tmp_path / "b.rec"), "--", *command],
        capture_output=True, text=True, timeout=2 * PATIENCE_S, check=True,
    ).stderr  # fmt: skip
    [line] = [line for line in told.splitlines() if line.startswith("working set")]
    assert "median of the slices; min " in line and "at most" not in line and "\nresident (RSS)" in told, told


def test_each_process_has_its_own(tmp_path: pathlib.Path) -> None:
    words = "--footprint {}MiB --granule 1MiB --seconds 2 --per-second 200000"
    small, large = (" ".join(workload("skewed", words.format(mib))) for mib in (32, 64))
    summary = record(tmp_path, "--", "sh", "-c", f"{small} > /dev/null & {large} > /dev/null; wait")
    processes = {row["name"]: row for row in table(str(tmp_path / "app.rec"), "--view", "wss") if row["of"] == "process"}
    told = sorted(row["rss_max_bytes"] // MIB for name, row in processes.items() if name.startswith("skewed"))
    assert len(told) == 2 and 32 <= told[0] < 64 <= told[1] < 96, processes
    assert summary["rss_max_bytes"] >= 96 * MIB, summary
    [alone] = [name for name, row in processes.items() if row["rss_max_bytes"] >= 64 * MIB]
    assert by_name(tmp_path / "app.rec", "--process", alone)["all"]["rss_max_bytes"] == processes[alone]["rss_max_bytes"]


def test_what_was_looked_at_as_a_whole_is_an_upper_bound(tmp_path: pathlib.Path) -> None:
    command = workload("skewed", "--footprint 64MiB --granule 1MiB --seconds 2 --per-second 200000")
    summary = record(tmp_path, "--no-agent", "--", *command)
    assert summary["unknown_heat_share"] > 0, summary
    found = by_name(tmp_path / "app.rec")
    assert max(found.values(), key=lambda row: (row["of"] == "region", row["bytes"]))["unknown_heat_share"] == 1, found
    assert found["all"]["unknown_heat_share"] > 0 and found["all"]["max_bytes"] <= found["all"]["rss_max_bytes"], found["all"]
