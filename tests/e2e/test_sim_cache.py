"""`tiermem sim cache`: policies, sizes and windows in one pass."""

from __future__ import annotations

import csv
import io
import json

import pytest

from store import TESTDATA, tiermem

TWITTER = str(TESTDATA / "twitter_cluster52-20k.csv.zst")
FIELDS = ["policy", "k", "size", "requests", "misses", "miss_ratio", "byte_miss_ratio", "window"]


def simulate(*flags: str, trace: str = TWITTER) -> list[dict]:
    done = tiermem("sim", "cache", trace, *flags, "--format", "json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def test_policies_and_sizes_in_one_pass_are_what_each_gives_alone() -> None:
    flags = ["--size", "612", "--size", "20%", "--policy", "lru", "--policy", "klru", "--policy", "belady"]
    rows = simulate(*flags, "--k", "1", "--k", "16")
    assert [(row["policy"], row["k"], row["size"]) for row in rows] == [
        (policy, k, size)
        for policy, k in [("lru", 0), ("klru", 1), ("klru", 16), ("belady", 0)]
        for size in (612, 1223)
    ]
    assert list(rows[0]) == FIELDS
    # The counts that another simulator gives.
    misses = {(row["policy"], row["size"]): row["misses"] for row in rows}
    assert misses["lru", 612] == 7936 and misses["belady", 1223] == 6116
    assert rows == simulate(*flags, "--k", "1", "--k", "16", "--threads", "1")
    alone = simulate("--size", "612", "--policy", "klru", "--k", "16")
    assert alone == [row for row in rows if row["k"] == 16 and row["size"] == 612]


def test_windows_add_up_and_a_warm_up_is_left_out() -> None:
    [whole] = simulate("--size", "1000", "--policy", "sieve")
    windows = simulate("--size", "1000", "--policy", "sieve", "--window", "3000")
    assert [row["requests"] for row in windows] == [3000] * 6 + [2000]
    assert [row["window"] for row in windows] == list(range(7))
    assert sum(row["misses"] for row in windows) == whole["misses"]
    warm = simulate("--size", "1000", "--policy", "sieve", "--warmup", "3000", "--window", "6000")
    assert [row["requests"] for row in warm] == [6000, 6000, 5000]
    assert warm[0]["misses"] == windows[1]["misses"] + windows[2]["misses"]


def test_sizes_over_the_working_set_in_bytes() -> None:
    rows = simulate("--sizes", "4", "--bytes")
    sizes = [row["size"] for row in rows]
    assert len(sizes) == 4 and sizes[1] == pytest.approx(sizes[3] / 2, abs=1)
    ratios = [row["byte_miss_ratio"] for row in rows]
    assert ratios == sorted(ratios, reverse=True)
    # With room for everything each key misses once.
    assert rows[3]["misses"] == 6116


def test_csv_has_the_fields() -> None:
    done = tiermem("sim", "cache", "zipf:objects=1k,requests=10k", "--size", "100", "--format", "csv")
    [row] = csv.DictReader(io.StringIO(done.stdout))
    assert list(row) == FIELDS and row["policy"] == "lru" and row["requests"] == "10000"


def test_a_flash_tier_below_memory_is_simulated_as_the_store_runs_it() -> None:
    def ladder(*tiers: str) -> dict:
        flags = [flag for tier in tiers for flag in ("--tier", tier)]
        trace = "zipf:objects=20k,requests=100k,size=1000"
        done = tiermem("sim", "cache", trace, *flags, "--flash-segment", "64KiB", "--window", "50000", "--format", "json")
        assert done.returncode == 0, done
        return json.loads(done.stdout)

    memory, whole = ladder("dram=4MiB"), ladder("dram=4MiB", "flash:/nowhere=32MiB")
    assert "flash" not in memory and memory["flash_hits"] == 0
    [flash] = whole["flash"]
    assert flash["evictions"] == 0 and flash["hits"] == whole["flash_hits"] > 0, "all of it has room"
    assert whole["misses"] < memory["misses"]
    assert flash["written_bytes"] == whole["flash_written_bytes"] > 0
    windows = whole["windows"]
    assert [list(window)[1:] for window in windows] == [list(whole)[2 : len(windows[0]) + 1]] * 2
    assert sum(window["flash_hits"] for window in windows) == flash["hits"]


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--tier", "flash=32MiB"], "the last one, below memory"),
        (["--tier", "flash=32MiB", "--tier", "4MiB"], "the last one, below memory"),
        (["--tier", "4MiB", "--tier", "flash=1MiB"], "--flash-segment"),
        (["--tier", "4MiB", "--tier", "flash=32MiB", "--flash-segment", "100"], "power of two"),
        (["--tier", "tape=4MiB"], "is not a kind of tier; there are dram"),
        (["--size", "10", "--policy", "best"], "there is no policy"),
        (["--size", "0%"], "percentage"),
        (["--size", "10", "--k", "0"], "0 is not in"),
        (["--policy", "lru"], "--size"),
        (["--size", "10", "--tier", "1MiB"], "cannot be used with"),
        (["--size", "10", "--config", "x"], "cannot be used with"),
        (["--size", "10", "--tenants", "fair"], "give --tier or --config"),
        (["--config", "/nowhere.toml"], "cannot read the configuration /nowhere.toml"),
        (["--tier", "4MiB", "--tier", "remote=1GiB"], "sim cache serves tiers of kind dram"),
    ],
)
def test_wrong_use_is_told(flags: list[str], why: str) -> None:
    done = tiermem("sim", "cache", TWITTER, *flags)
    assert done.returncode == 2 and why in done.stderr, done
