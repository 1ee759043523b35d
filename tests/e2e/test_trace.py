"""`tiermem trace`: traces made, measured, shown, filtered, converted, split and merged, as a user would."""

from __future__ import annotations

import csv
import io
import json
import os
import pathlib
import subprocess

import pytest

from store import TESTDATA, binary, tiermem

TWITTER = str(TESTDATA / "twitter_cluster52-20k.csv.zst")
FIELDS = ["time_ns", "op", "key", "size", "tenant", "key_size", "ttl_s"]
DISTRIBUTIONS = [
    "size_bytes",
    "inter_arrival_ns",
    "reuse_time_requests",
    "stack_distance_keys",
    "accesses_per_key",
]


def trace(*arguments: object) -> str:
    """What a subcommand prints when all goes well."""
    done = tiermem("trace", *map(str, arguments))
    assert done.returncode == 0, done
    # Bars are for terminals.
    assert done.stderr == "", done.stderr
    return done.stdout


def refused(code: int, *arguments: object) -> str:
    """What a subcommand says when it fails in this way."""
    done = tiermem("trace", *map(str, arguments))
    assert done.returncode == code, done
    assert "panicked" not in done.stderr
    return done.stderr


def stat(source: object, *flags: object) -> dict:
    return json.loads(trace("stat", source, "--format", "json", *flags))


def records(source: object, *flags: object) -> list[dict]:
    """The records of a trace, as `show` gives them."""
    rows = json.loads(trace("show", source, "--format", "json", *flags))
    assert all(list(row) == FIELDS for row in rows)
    return rows


def untimed(rows: list[dict]) -> list[dict]:
    """Times in a text file count from its first record, so a part of a trace is compared without them."""
    return [{**row, "time_ns": 0} for row in rows]


@pytest.fixture
def generated(tmp_path: pathlib.Path) -> pathlib.Path:
    """Two tenants, one that reads and writes and one that loops."""
    path = tmp_path / "generated.csv"
    trace("gen", "mix:3*ycsb-a(objects=1000)+loop(objects=200,size=64-1KiB),requests=20k", "-o", path)
    return path


def test_a_generated_file_holds_what_the_generator_yields(generated: pathlib.Path) -> None:
    lines = generated.read_text().splitlines()
    assert lines[0].split(",") == FIELDS
    assert len(lines) == 20_001
    spec = "mix:3*ycsb-a(objects=1000)+loop(objects=200,size=64-1KiB),requests=20k"
    assert records(generated) == records(spec)
    assert trace("gen", spec, "-o", "-") == trace("convert", generated, "-o", "-")


@pytest.mark.parametrize("kind", ["zipf", "uniform", "scan", "loop", "phase", *(f"ycsb-{c}" for c in "abcdef")])
def test_every_generator_can_be_measured(kind: str) -> None:
    result = stat(f"{kind}:objects=500,requests=5k,size=100")
    assert result["requests"] == 5000
    assert result["requested_bytes"] == 500_000
    assert result["working_set_bytes"] == 100 * result["unique_keys"]
    writes = {"ycsb-a": 0.5, "ycsb-b": 0.05, "ycsb-d": 0.05, "ycsb-f": 1 / 3}
    if kind != "ycsb-e":
        assert result["writes"] / 5000 == pytest.approx(writes.get(kind, 0), abs=0.05)


def test_statistics_of_a_real_trace_in_every_format() -> None:
    result = stat(TWITTER)
    assert (result["requests"], result["unique_keys"], result["working_set_bytes"]) == (20_000, 6116, 1_352_615)
    assert result["one_hit_ratio"] == pytest.approx(3551 / 6116)
    assert result["zipf"]["alpha_least_squares"] == pytest.approx(0.978688, abs=1e-5)
    for name in DISTRIBUTIONS:
        assert sum(bucket["count"] for bucket in result[name]["histogram"]) == result[name]["count"]

    tables = [list(csv.DictReader(io.StringIO(part))) for part in trace("stat", TWITTER, "--format", "csv").split("\n\n")]
    [record], ops, tenants, near, popularity, growth, distributions, histograms = tables
    for name, text in record.items():
        value = result
        for part in name.split("."):
            # Traces of other things than memory have no addresses.
            value = None if value is None else value[part]
        assert value is None and text == "" or float(text) == pytest.approx(value, abs=1e-6), name
    assert ops[0]["op"] == "get" and tenants[0]["unique_keys"] == "6116" and near[0]["blocks"] == "0"
    # From the most popular key to one of those with a single access; and every key has come by the end.
    assert (popularity[0]["rank"], popularity[-1]) == ("1", {"rank": "6116", "accesses": "1"})
    assert int(popularity[0]["accesses"]) == result["accesses_per_key"]["max"]
    assert (growth[-1]["requests"], growth[-1]["keys_total"]) == ("20000", "6116")
    assert sum(int(row["keys_new"]) for row in growth) == 6116
    assert [row["distribution"] for row in distributions] == DISTRIBUTIONS
    for row in distributions:
        assert all(float(row[f]) == pytest.approx(result[row["distribution"]][f], abs=1e-6) for f in row if f != "distribution")
    assert {row["distribution"] for row in histograms} == set(DISTRIBUTIONS)

    table = trace("stat", TWITTER)
    assert "20,000" in table and "6,116" in table and "stack distance, keys" in table


def test_a_sample_of_the_keys_tells_about_all() -> None:
    spec = "zipf:alpha=0.8,objects=20k,requests=200k"
    exact, sampled = stat(spec), stat(spec, "--sample", 0.2)
    assert sampled["sample_rate"] == 0.2
    assert sampled["requests"] == exact["requests"]
    assert sampled["unique_keys"] == pytest.approx(exact["unique_keys"], rel=0.07)
    assert sampled["zipf"]["alpha_likelihood"] is None


def test_head_and_show(generated: pathlib.Path) -> None:
    everything = records(generated)
    assert json.loads(trace("head", generated, "--format", "json")) == everything[:10]
    assert json.loads(trace("head", generated, "--requests", 3, "--format", "json")) == everything[:3]
    assert records(generated, "--skip", 100, "--requests", 5) == everything[100:105]
    rows = list(csv.DictReader(io.StringIO(trace("head", generated, "--format", "csv"))))
    assert [int(row["key"]) for row in rows] == [row["key"] for row in everything[:10]]
    lines = trace("head", generated).splitlines()
    assert lines[0].split() == FIELDS and len(lines) == 11


def test_filters_keep_what_meets_all_conditions(generated: pathlib.Path, tmp_path: pathlib.Path) -> None:
    everything = records(generated)

    def kept(*flags: object) -> list[dict]:
        out = tmp_path / "kept.csv"
        trace("filter", generated, "-o", out, *flags)
        return untimed(records(out))

    everything = untimed(everything)
    assert kept() == everything
    assert kept("--op", "set") == [row for row in everything if row["op"] == "set"]
    assert kept("--tenant", 1, "--size", "100-1KiB") == [
        row for row in everything if row["tenant"] == 1 and 100 <= row["size"] <= 1024
    ]
    assert kept("--keys", "0-99", "--keys", 500) == [r for r in everything if r["key"] <= 99 or r["key"] == 500]
    assert kept("--every", 7, "--first", 50) == everything[::7][:50]
    assert kept("--since", "5ms", "--until", "8ms") == everything[5000:8000]


def test_samples_and_parts_by_key(generated: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A key is in a sample, and in a part, with all its accesses; parts can be made by filter or by split."""
    everything = records(generated)
    sample = tmp_path / "sample.csv"
    trace("filter", generated, "--sample", 0.3, "-o", sample)
    keys = {row["key"] for row in records(sample)}
    assert len(keys) == pytest.approx(0.3 * len({row["key"] for row in everything}), rel=0.25)
    assert [r["key"] for r in records(sample)] == [r["key"] for r in everything if r["key"] in keys]

    rows = json.loads(trace("split", generated, "--parts", 3, "-o", tmp_path / "part-{}.csv", "--format", "json"))
    assert [row["part"] for row in rows] == [0, 1, 2]
    assert sum(row["requests"] for row in rows) == 20_000
    seen: set[int] = set()
    for row in rows:
        part = records(row["file"])
        assert len(part) == row["requests"]
        own = {record["key"] for record in part}
        assert not own & seen
        seen |= own
        filtered = tmp_path / "filtered.csv"
        trace("filter", generated, "--part", f"{row['part']}/3", "-o", filtered)
        assert filtered.read_text() == pathlib.Path(row["file"]).read_text()


def test_what_is_split_merges_again(generated: pathlib.Path, tmp_path: pathlib.Path) -> None:
    trace("split", generated, "--by-tenant", "-o", tmp_path / "tenant-{}.csv")
    merged = tmp_path / "merged.csv"
    # The first record of each file is its time 0, so the order by time holds within a tenant only.
    trace("merge", tmp_path / "tenant-0.csv", tmp_path / "tenant-1.csv", "--keep-tenants", "-o", merged)
    whole, again = stat(generated), stat(merged)
    for field in ["requests", "unique_keys", "working_set_bytes", "ops", "one_hit_keys", "zipf", "tenants"]:
        assert whole[field] == again[field], field
    for tenant in (0, 1):
        keys = [row["key"] for row in records(generated) if row["tenant"] == tenant]
        assert [row["key"] for row in records(merged) if row["tenant"] == tenant] == keys


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("flags", [["--by-tenant"], ["--parts", "5"], ["--window", "3ms"], ["--chunk", "7k"]])
def test_times_are_kept_so_that_merging_undoes_splitting(
    kind: str, flags: list[str], generated: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    whole, merged = tmp_path / f"whole.{kind}", tmp_path / f"merged.{kind}"
    trace("convert", generated, "-o", whole)
    everything = records(whole)
    assert everything == records(generated)
    rows = json.loads(trace("split", whole, *flags, "-o", tmp_path / ("part-{}." + kind), "--format", "json"))
    assert len(rows) > 1
    trace("merge", *(row["file"] for row in rows), "--keep-tenants", "-o", merged)
    assert records(merged) == everything
    assert stat(merged) == stat(generated)
    late = tmp_path / f"late.{kind}"
    trace("filter", whole, "--since", "5ms", "-o", late)
    assert records(late) == everything[5000:]


def test_windows_and_chunks_follow_each_other(generated: pathlib.Path, tmp_path: pathlib.Path) -> None:
    everything = [row["key"] for row in records(generated)]
    for flags, name in [(["--window", "6ms"], "w"), (["--chunk", "6k"], "c")]:
        pattern = tmp_path / (name + "-{}.csv")
        rows = json.loads(trace("split", generated, *flags, "-o", pattern, "--format", "json"))
        assert [row["requests"] for row in rows] == [6000, 6000, 6000, 2000]
        assert [row["key"] for part in rows for row in records(part["file"])] == everything


def test_conversion_keeps_what_the_format_has_room_for(generated: pathlib.Path, tmp_path: pathlib.Path) -> None:
    packed, back = tmp_path / "packed.csv.zst", tmp_path / "back.csv"
    trace("convert", generated, "-o", packed)
    assert packed.stat().st_size < generated.stat().st_size / 4
    trace("convert", packed, "-o", back)
    assert back.read_text() == generated.read_text()

    binary = tmp_path / "binary"
    trace("convert", generated, "-o", binary, "--output-format", "oracle-general")
    whole, again = stat(generated), stat(binary, "--trace-format", "oracle-general")
    for field in ["requests", "unique_keys", "working_set_bytes", "one_hit_keys", "zipf", *DISTRIBUTIONS]:
        assert field == "inter_arrival_ns" or whole[field] == again[field], field


def test_merging_numbers_tenants_and_parts_key_spaces() -> None:
    inputs = ("scan:objects=3,requests=3", "scan:objects=3,requests=3,size=9")

    def merged(*flags: str) -> list[dict]:
        return list(csv.DictReader(io.StringIO(trace("merge", *inputs, "-o", "-", *flags))))

    rows = merged()
    assert [(int(r["time_ns"]), int(r["tenant"]), int(r["size"])) for r in rows] == [
        (time, tenant, size) for time in (0, 1000, 2000) for tenant, size in ((0, 300), (1, 9))
    ]
    assert [int(row["key"]) for row in rows] == [0, 0, 1, 1, 2, 2]
    assert [int(row["key"]) for row in merged("--key-spaces", "prefixed")][1::2] == [1 << 48, (1 << 48) + 1, (1 << 48) + 2]
    assert len({row["key"] for row in merged("--key-spaces", "hashed")}) == 6
    error = refused(1, "merge", TWITTER, "--key-spaces", "prefixed", "-o", "-")
    assert TWITTER in error and "--key-spaces hashed" in error


def test_broken_records_are_named(tmp_path: pathlib.Path, generated: pathlib.Path) -> None:
    broken = tmp_path / "broken.csv"
    lines = generated.read_text().splitlines()
    lines[7] = lines[7].replace(",", ",?", 3)
    broken.write_text("\n".join(lines) + "\n")
    out = tmp_path / "out.csv"
    for arguments in (
        ["stat", broken],
        ["show", broken],
        ["head", broken],
        ["filter", broken, "-o", out],
        ["convert", broken, "-o", out],
        ["merge", broken, broken, "-o", out],
        ["split", broken, "--chunk", "5", "-o", tmp_path / "s-{}.csv"],
    ):
        error = refused(1, *arguments)
        assert f"{broken}, line 8: " in error and "--skip-bad" in error, error
    # Nobody finds half a trace.
    assert not out.exists()
    done = tiermem("trace", "stat", str(broken), "--skip-bad", "1", "--format", "json")
    assert done.returncode == 0 and json.loads(done.stdout)["requests"] == 19_999
    assert "were skipped: 1" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["stat"], "TRACE"),
        (["stat", "zipf:alpha=9"], "must be a number from 0 to 3"),
        (["stat", "mix:zipf+zpif"], "there is no generator `zpif`"),
        (["stat", "zipf", "--sample", "0"], "above 0 and at most 1"),
        (["stat", "zipf", "--format", "xml"], "xml"),
        (["gen", "zipf"], "--output"),
        (["gen", "nothing", "-o", "-"], "there is no generator `nothing`"),
        (["filter", "zipf", "-o", "-", "--op", "put"], "there is no operation `put`"),
        (["filter", "zipf", "-o", "-", "--keys", "9-3"], "keys are a number or a range"),
        (["filter", "zipf", "-o", "-", "--part", "3/3"], "from 0 to N - 1"),
        (["filter", "zipf", "-o", "-", "--since", "2s", "--until", "1s"], "--until must be later"),
        (["convert", "zipf", "-o", "x", "--output-format", "msr"], "msr can only be read"),
        (["convert", "zipf", "-o", "-", "--output-format", "oracle-general"], "standard output takes csv only"),
        (["split", "zipf", "-o", "x-{}.csv"], "--parts"),
        (["split", "zipf", "-o", "x-{}.csv", "--parts", "2", "--by-tenant"], "cannot be used with"),
        (["split", "zipf", "-o", "x.csv", "--parts", "2"], "the output needs {} once"),
        (["merge", "-o", "-"], "TRACE"),
        (["turn"], "turn"),
    ],
)
def test_wrong_use_is_told_from_failure(arguments: list[str], says: str) -> None:
    assert says in refused(2, *arguments)


def test_what_cannot_be_read_or_written_fails(tmp_path: pathlib.Path) -> None:
    (tmp_path / "empty.csv").write_text("")
    assert "the trace is empty" in refused(1, "stat", tmp_path / "empty.csv")
    assert "cannot open the trace" in refused(1, "stat", tmp_path / "missing.csv")
    assert "cannot write " in refused(1, "gen", "scan:requests=1", "-o", tmp_path / "no" / "t.csv")
    tenants = "mix:" + "+".join(["scan"] * 300) + ",requests=20k"
    assert "--parts" in refused(1, "split", tenants, "--by-tenant", "-o", tmp_path / "t-{}.csv")


@pytest.mark.parametrize("output", ["table", "csv", "json"])
def test_whoever_reads_may_have_seen_enough(output: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [binary(), "trace", "stat", TWITTER, "--format", output]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["gen", "convert", "stat", "show", "head", "filter", "merge", "split"])
def test_every_subcommand_has_examples(command: str) -> None:
    assert f"\n  tiermem trace {command} " in trace(command, "--help")
