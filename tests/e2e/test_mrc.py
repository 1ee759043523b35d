"""`tiermem mrc`: curves of real and made traces, whole, sampled and by window, as a user would ask for them."""

from __future__ import annotations

import csv
import io
import json
import pathlib

import pytest

from store import TESTDATA, tiermem

TWITTER = str(TESTDATA / "twitter_cluster52-20k.csv.zst")
FIELDS = ["policy", "k", "size", "miss_ratio", "error", "window"]


def mrc(*arguments: object) -> list[dict[str, str]]:
    result = tiermem("mrc", *map(str, arguments), "--format", "csv")
    assert result.returncode == 0, result.stderr
    return list(csv.DictReader(io.StringIO(result.stdout)))


def ratios(rows: list[dict[str, str]], policy: str, k: str = "0") -> dict[int, float]:
    return {int(row["size"]): float(row["miss_ratio"]) for row in rows if (row["policy"], row["k"]) == (policy, k)}


def test_the_curve_of_lru_is_what_simulation_counts() -> None:
    rows = mrc(TWITTER, "--sizes", 5)
    assert list(rows[0]) == FIELDS
    simulated = tiermem("sim", "cache", TWITTER, "--format", "csv", *(f"--size={row['size']}" for row in rows))
    counts = list(csv.DictReader(io.StringIO(simulated.stdout)))
    assert [row["miss_ratio"] for row in rows] == [row["miss_ratio"] for row in counts]
    # The last size is the working set: only first requests miss.
    assert float(rows[-1]["miss_ratio"]) == pytest.approx(int(rows[-1]["size"]) / 20_000, abs=1e-6)


def test_models_are_close_to_the_policies_that_they_model() -> None:
    rows = mrc(
        TWITTER, "--size", 1500, "--size", 3000, "--k", 5, "--k", 1.5,
        *(flag for name in ("klru", "redis", "krr", "mini-klru", "mini-redis", "lru", "aet") for flag in ("--policy", name)),
    )
    for size in (1500, 3000):
        klru, redis = ratios(rows, "mini-klru", "5")[size], ratios(rows, "mini-redis", "5")[size]
        assert ratios(rows, "klru", "5")[size] == pytest.approx(klru, abs=0.003)
        assert ratios(rows, "krr", "5")[size] == pytest.approx(klru, abs=0.003)
        assert ratios(rows, "redis", "5")[size] == pytest.approx(redis, abs=0.003)
        assert ratios(rows, "aet")[size] == pytest.approx(ratios(rows, "lru")[size], abs=0.02)
        assert ratios(rows, "klru", "1.50")[size] > ratios(rows, "klru", "5")[size]


def test_the_lowest_curve_says_whose_it_is() -> None:
    policies = ["--policy", "lru", "--policy", "s3-fifo", "--policy", "klru", "--k", "1", "--k", "16"]
    every, lowest = mrc(TWITTER, "--sizes", 4, *policies), mrc(TWITTER, "--sizes", 4, *policies, "--lowest")
    assert len(every) == 16 and len(lowest) == 4
    for row in lowest:
        same_size = [float(other["miss_ratio"]) for other in every if other["size"] == row["size"]]
        assert float(row["miss_ratio"]) == min(same_size)
        assert ratios(every, row["policy"], row["k"])[int(row["size"])] == float(row["miss_ratio"])


@pytest.mark.parametrize("sample", [["--sample", "0.1"], ["--sample-keys", "3000"]])
def test_a_sample_knows_how_far_off_it_may_be(sample: list[str]) -> None:
    trace = "zipf:alpha=0.9,objects=40k,requests=400k"
    sizes = ["--size", "4k", "--size", "16k", "--size", "30k", "--policy", "lru", "--policy", "klru"]
    truth, sampled = mrc(trace, *sizes), mrc(trace, *sizes, *sample)
    for exact, estimate in zip(truth, sampled, strict=True):
        assert exact["error"] == "0.000000"
        error = float(estimate["error"])
        assert 0 < error < 0.05
        # Twice the interval of 95%: this is one sample, always the same.
        assert abs(float(exact["miss_ratio"]) - float(estimate["miss_ratio"])) <= 2 * error


def test_windows_follow_the_trace() -> None:
    rows = mrc("phase:alpha=1,objects=10k,requests=100k", "--size", 2000, "--window", 25_000)
    windows = {int(row["window"]): float(row["miss_ratio"]) for row in rows}
    assert list(windows) == [0, 1, 2, 3]
    # The first is cold, and after half of the requests other keys are hot.
    assert windows[1] < windows[0] and windows[3] < windows[2] and windows[2] > windows[1] + 0.02


def test_bytes_count_values(tmp_path: pathlib.Path) -> None:
    trace = tmp_path / "two.csv"
    trace.write_text("time_ns,op,key,size\n" + "0,get,1,100\n0,get,2,300\n" * 50)
    rows = mrc(trace, "--bytes", "--size", 99, "--size", 399, "--size", 400)
    assert [float(row["miss_ratio"]) for row in rows] == [1, 1, 0.02]


def test_json_has_the_same_fields() -> None:
    result = tiermem("mrc", TWITTER, "--size", "100", "--format", "json")
    [row] = json.loads(result.stdout)
    assert list(row) == FIELDS and row["policy"] == "lru" and 0 < row["miss_ratio"] < 1


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--policy", "belady"], 2, "no curve"),
        (["--policy", "klru", "--k", "0.5"], 2, "from 1 on"),
        (["--size", "0"], 2, "sizes start at 1"),
        (["--sizes", "0"], 2, "--sizes"),
        (["--sample", "0"], 2, "above 0"),
        (["--sample", "0.5", "--sample-keys", "9"], 2, "cannot be used with"),
        (["--window", "0"], 2, "--window"),
        (["--size", "18446744073709551615", "--policy", "lru"], 0, ""),
    ],
)
def test_wrong_use_is_told(arguments: list[str], code: int, says: str) -> None:
    result = tiermem("mrc", TWITTER, *arguments)
    assert result.returncode == code, result.stderr
    assert says in result.stderr


def test_broken_traces_are_told_with_file_and_line(tmp_path: pathlib.Path) -> None:
    empty, broken, deletes = tmp_path / "empty.csv", tmp_path / "broken.csv", tmp_path / "deletes.csv"
    empty.write_text("")
    broken.write_text("time_ns,op,key,size\n" + "0,get,1,100\n" * 500 + "0,get,2\n")
    deletes.write_text("time_ns,op,key,size\n0,del,1,0\n")
    for path, says in [(empty, "empty"), (broken, "broken.csv"), (deletes, "nothing can miss"), (tmp_path / "no", "no")]:
        result = tiermem("mrc", str(path))
        assert result.returncode == 1, result.stderr
        assert says in result.stderr and "panicked" not in result.stderr
    assert "502" in tiermem("mrc", str(broken)).stderr
    assert tiermem("mrc", str(broken), "--skip-bad", "1").returncode == 0


@pytest.mark.parametrize("unit", [[], ["--bytes"]])
def test_a_simulated_curve_is_what_the_simulator_counts(unit: list[str]) -> None:
    trace = "ycsb-a:objects=2k,requests=20k,size=50-500"
    names = "fifo clock clock2 lru slru s4lru klru redis lfu lfu-da arc 2q s3-fifo sieve lhd hyperbolic cflru".split()
    sizes = ["--size", "10%", "--size", "60%", *unit]
    rows = mrc(trace, *sizes, *(flag for name in names for flag in ("--policy", f"mini-{name}")))
    counts = tiermem(
        "sim", "cache", trace, *sizes, *(flag for name in names for flag in ("--policy", name)), "--format", "csv"
    )
    counted = list(csv.DictReader(io.StringIO(counts.stdout)))
    told = [(row["policy"].removeprefix("mini-"), row["size"], row["miss_ratio"]) for row in rows]
    assert told == [(row["policy"], row["size"], row["miss_ratio"]) for row in counted]
    assert len(set(told)) == 2 * len(names)
