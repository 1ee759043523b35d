"""The package gives what the command gives, and takes what people give it."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiermem

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

Table = Callable[..., list[dict[str, str]]]
SMALL = "zipf:objects=2k,requests=30k,size=64-1024"


def test_curves_are_those_of_the_command(trace: str, table_of: Table) -> None:
    for sample in ("1", "0.2"):
        rows = table_of(
            "mrc", trace, "--policy", "lru", "--policy", "klru", "--policy", "s3-fifo", "--k", "1", "--k", "5",
            "--sizes", "7", "--bytes", "--sample", sample,
        )  # fmt: skip
        curves = tiermem.mrc(trace, policy=["lru", "klru", "s3-fifo"], k=[1, 5], sizes=7, unit="bytes", sample=float(sample))
        found = curves.to_arrow().to_pylist()
        assert [(row["policy"], row["k"], row["size"]) for row in found] == [
            (row["policy"], float(row["k"]), int(row["size"])) for row in rows
        ]
        for name in ("miss_ratio", "error"):
            np.testing.assert_allclose([row[name] for row in found], [float(row[name]) for row in rows], atol=1e-6)
        assert any(row["error"] > 0 for row in found) == (sample != "1")


def test_windows(trace: str, table_of: Table) -> None:
    rows = table_of("mrc", trace, "--sizes", "3", "--window", "6000")
    curves = tiermem.mrc(trace, sizes=3, window=6000)
    assert [curve.window for curve in curves] == [0, 1, 2, 3]
    found = np.concatenate([curve.miss_ratio for curve in curves])
    np.testing.assert_allclose(found, [float(row["miss_ratio"]) for row in rows], atol=1e-6)


def test_simulation_is_that_of_the_command(trace: str, table_of: Table) -> None:
    policies = ["sieve", "klru", "belady"]
    flags = [flag for policy in policies for flag in ("--policy", policy)]
    rows = table_of("sim", "cache", trace, *flags, "--k", "3", "--size", "100", "--size", "900")
    found = tiermem.simulate(trace, policy=policies, k=3, sizes=[100, 900])
    assert [int(row["misses"]) for row in rows] == found.misses.tolist()
    assert found.policy == ("sieve", "sieve", "klru", "klru", "belady", "belady")
    assert found.k.tolist() == [0, 0, 3, 3, 0, 0]
    assert found.to_arrow().num_rows == len(found) == 6
    alone = tiermem.simulate(trace, policy="klru", k=3, sizes=900)
    assert alone.misses.tolist() == found.misses[[3]].tolist()


def test_statistics_are_those_of_the_command(trace: str, program: str) -> None:
    done = subprocess.run([program, "trace", "stat", trace, "--format", "json"], capture_output=True, check=True)
    rows = json.loads(done.stdout)
    found = tiermem.stat(trace)
    for name in ("requests", "unique_keys", "working_set_bytes", "one_hit_ratio", "zipf", "spatial"):
        assert getattr(found, name) == rows[name], name
    assert found.size_bytes is not None
    assert found.size_bytes.p99 == rows["size_bytes"]["p99"]
    assert found.size_bytes.bucket_count.sum() == found.requests == found.growth["requests"][-1]
    assert found.popularity["rank"][0] == 1


def test_a_trace_as_columns(trace: str) -> None:
    table = tiermem.read_trace(trace).to_table()
    assert table.column_names == ["time_ns", "op", "key", "size", "tenant", "key_size", "ttl_s"]
    assert table.schema.field("op").type == pa.dictionary(pa.int8(), pa.string())
    assert table.num_rows == 20_000
    assert tiermem.read_trace(trace, requests=10).to_table() == table.slice(0, 10).combine_chunks()
    reader = tiermem.read_trace(trace, batch_records=3000).to_reader()
    assert [batch.num_rows for batch in reader] == [3000] * 6 + [2000]


def test_columns_that_a_file_has_come_with_it(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "placed.parquet"
    columns = {
        "key": pa.array([64, 4096], pa.uint64()),
        "pc": pa.array([1, 2**64 - 1], pa.uint64()),
        "node": pa.array([0, 255], pa.uint8()),
    }
    pq.write_table(pa.table(columns), file)
    table = tiermem.read_trace(file).to_table()
    assert table.column_names[7:] == ["node", "pc"]
    assert table.schema.field("node").type == pa.uint8()
    assert (table["node"].to_pylist(), table["pc"].to_pylist()) == ([0, 255], [1, 2**64 - 1])
    # Functions take it as they take any trace.
    assert tiermem.stat(tiermem.read_trace(file)).requests == 2
    columns["node"] = pa.array([0, None], pa.uint8())
    pq.write_table(pa.table(columns), file)
    with pytest.raises(Exception, match="`node` has nulls"):
        tiermem.read_trace(file).to_table()


def test_what_arrow_gets_is_not_copied() -> None:
    before = pa.total_allocated_bytes()
    table = tiermem.generate("zipf:objects=100k,requests=500k").to_table()
    # Buffers of 500,000 rows are held, and none of them by pyarrow's own memory.
    assert table.nbytes > 15_000_000
    assert pa.total_allocated_bytes() - before < 100_000


def test_a_stream_is_taken_once() -> None:
    stream = tiermem.generate("zipf:requests=10")
    pa.table(stream)
    assert "has been read" in repr(stream)
    with pytest.raises(ValueError, match="opens a new one"):
        pa.table(stream)


def test_tables_and_files_give_the_same(trace: str) -> None:
    table = tiermem.read_trace(trace).to_table()
    expected = tiermem.mrc(trace, sizes=5, policy=["lru", "sieve"])
    for source in (table, table.to_reader(1000), tiermem.read_trace(trace), table.select(["key", "size"])):
        found = tiermem.mrc(source, sizes=5, policy=["lru", "sieve"])
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one.miss_ratio, other.miss_ratio)
    assert tiermem.stat(table).growth["time_ns"].tolist() == tiermem.stat(trace).growth["time_ns"].tolist()


@settings(max_examples=40, deadline=None)
@given(
    keys=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=60),
    kind=st.sampled_from([pa.uint64(), pa.int64(), pa.int32()]),
    size=st.integers(1, 20),
)
def test_lru_is_what_a_list_gives(keys: list[int], kind: pa.DataType, size: int) -> None:
    keys = [key % 2**31 % 23 if kind == pa.int32() else key % 2**63 if kind == pa.int64() else key for key in keys]
    stack: list[int] = []
    misses = 0
    for key in keys:
        misses += key not in stack[:size]
        stack = [key, *(other for other in stack if other != key)]
    table = pa.table({"key": pa.array(keys, kind)})
    assert tiermem.mrc(table, sizes=[size])[0].miss_ratio[0] == pytest.approx(misses / len(keys))
    assert tiermem.simulate(table, sizes=size).misses.tolist() == [misses]


def test_operations_by_any_encoding() -> None:
    ops = ["get", "set", "del", "get"]
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        table = pa.table({"key": [1, 1, 1, 1], "op": pa.array(ops, pa.string()).cast(kind)})
        found = tiermem.stat(table)
        assert (found.reads, found.writes, found.deletes) == (2, 1, 1)


def test_progress_is_told_and_can_stop() -> None:
    told: list[tuple[str, float, float | None]] = []
    tiermem.mrc(SMALL.replace("30k", "300k"), progress=lambda *report: told.append(report))
    assert {stage for stage, _, _ in told} == {"reading", "curves"}
    reading = [done for stage, done, total in told if stage == "reading" and total == 300_000]
    assert reading == sorted(reading) and len(reading) >= 4

    class EnoughError(Exception):
        pass

    def stop(stage: str, done: float, total: float | None) -> None:
        if stage == stopping:
            raise EnoughError(stage)

    for stopping in ("reading", "curves"):
        with pytest.raises(EnoughError, match=stopping):
            tiermem.mrc(SMALL.replace("30k", "300k"), progress=stop)


def turns_of_another_thread(call: Callable[[], object]) -> int:
    """How often another thread had its turn during a call, when nobody is made to give up the interpreter's lock."""
    turns = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal turns
        while not stop.is_set():
            turns += 1
            time.sleep(0)  # Gives the lock up.

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=count)
    thread.start()
    try:
        sys.setswitchinterval(1000)
        before = turns
        call()
        return turns - before
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()


def test_other_threads_go_on_meanwhile() -> None:
    # A call that keeps the lock, for comparison.
    assert turns_of_another_thread(lambda: sum(range(3_000_000))) <= 2
    # Fewer requests than between two reports, so that it is not the reports that let others in.
    quiet = {"progress": False, "requests": 60_000}
    assert turns_of_another_thread(lambda: tiermem.mrc("zipf:objects=20k", policy="sieve", sizes=60, **quiet)) > 20
    assert turns_of_another_thread(lambda: tiermem.simulate("zipf:objects=20k", sizes=range(100, 2000, 50), **quiet)) > 20
    assert turns_of_another_thread(lambda: tiermem.stat("zipf:objects=20k", **quiet)) > 20


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        (lambda: tiermem.mrc("nowhere.csv"), FileNotFoundError, "nowhere.csv"),
        (lambda: tiermem.stat("zipf:objcts=1"), ValueError, "its settings are"),
        (lambda: tiermem.generate("twitter.csv"), ValueError, "generator"),
        (lambda: tiermem.mrc(SMALL, policy="lruu"), ValueError, "s3-fifo"),
        (lambda: tiermem.mrc(SMALL, policy="klru", k=0), ValueError, "from 1 on"),
        (lambda: tiermem.mrc(SMALL, sample=0), ValueError, "above 0 and at most 1"),
        (lambda: tiermem.mrc(SMALL, sizes=0), ValueError, "from 1 on"),
        (lambda: tiermem.mrc(SMALL, sizes=[0]), ValueError, "sizes start at 1"),
        (lambda: tiermem.mrc(SMALL, window=0), ValueError, "at least 1 request"),
        (lambda: tiermem.mrc(SMALL, unit="pages"), ValueError, "objects"),
        (lambda: tiermem.mrc(SMALL, engine="dask"), ValueError, "'local' and 'ray'"),
        (lambda: tiermem.mrc(SMALL, engine="ray"), ValueError, "trace split"),
        (lambda: tiermem.mrc([]), ValueError, "at least one part"),
        (lambda: tiermem.simulate(SMALL, sizes=[]), ValueError, "from 1 on"),
        (lambda: tiermem.simulate(SMALL, sizes=5, policy="belady!"), ValueError, "there is no policy"),
        (lambda: tiermem.mrc(pa.table({"size": [1]})), ValueError, "a column `key`"),
        (lambda: tiermem.mrc(pa.table({"key": [1, None]})), ValueError, "1 nulls"),
        (lambda: tiermem.mrc(pa.table({"key": [-1]})), ValueError, "`key`"),
        (lambda: tiermem.mrc(pa.table({"key": [1], "op": ["fetch"]})), ValueError, "there is no operation `fetch`"),
        (lambda: tiermem.mrc(pa.table({"key": pa.array([], pa.uint64())})), ValueError, "nothing can miss"),
        (lambda: tiermem.mrc(5), TypeError, "__arrow_c_stream__"),
        (lambda: tiermem.stat(SMALL, requests=-1), ValueError, "from 0 on"),
        (lambda: tiermem.stat(SMALL, trace_format="parquett"), ValueError, "parquet"),
        (lambda: tiermem.report(SMALL, "/nowhere/r.html"), FileNotFoundError, "nowhere"),
        (lambda: tiermem.report(SMALL, "/dev/null", price_dram=-1), ValueError, "from 0 on"),
    ],
)
def test_mistakes_are_explained(call: Callable[[], object], kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        call()


def test_broken_records(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("time_ns,op,key,size\n1,get,5,6\n2,get,5,big\n3,get,5,6\n")
    with pytest.raises(ValueError, match=r"line 3.*skip_bad=N"):
        tiermem.stat(path)
    assert tiermem.stat(path, skip_bad=1).requests == 2
    with pytest.raises(Exception, match="line 3"):
        tiermem.read_trace(path).to_table()


def test_the_report(tmp_path: pathlib.Path, trace: str) -> None:
    path = tiermem.report(trace, tmp_path / "page.html", price_misses=2.0)
    page = path.read_text()
    assert page.startswith("<!doctype html>") and "twitter_cluster52-20k.csv.zst" in page and "not sampled" in page
    assert str(pathlib.Path(trace).parent) not in page
    table = tiermem.read_trace(trace).to_table()
    assert "<svg" in tiermem.report(table, tmp_path / "table.html", sample=0.3).read_text()


def test_parts_of_a_trace_make_the_whole(tmp_path: pathlib.Path, program: str) -> None:
    spec = "zipf:objects=20k,requests=200k,size=64-1024,alpha=0.8"
    files = [str(tmp_path / f"part-{part}.parquet") for part in range(8)]
    subprocess.run(
        [program, "trace", "split", spec, "--parts", "8", "-o", str(tmp_path / "part-{}.parquet")],
        check=True, capture_output=True,
    )  # fmt: skip
    for question in ({"sizes": 10, "unit": "bytes"}, {"sizes": [500, 2000, 9000]}):
        whole = tiermem.mrc(spec, policy=["lru", "s3-fifo"], **question)
        mean = tiermem.mrc(files, policy=["lru", "s3-fifo"], **question)
        assert (mean.requests, mean.keys) == (whole.requests, whole.keys)
        for one, other in zip(mean, whole, strict=True):
            np.testing.assert_allclose(one.sizes.astype(float), other.sizes.astype(float), rtol=0.001)
            assert (one.error > 0).all()
            assert (abs(one.miss_ratio - other.miss_ratio) <= one.error + 1e-9).mean() >= 0.9
            assert abs(one.miss_ratio - other.miss_ratio).max() < 0.01
    sampled = tiermem.mrc(files, sizes=10, sample=0.3)[0]
    assert abs(sampled.miss_ratio - tiermem.mrc(spec, sizes=10)[0].miss_ratio).max() < 0.05


@pytest.mark.slow
def test_ray_gives_what_this_process_gives(tmp_path: pathlib.Path, program: str) -> None:
    ray = pytest.importorskip("ray")
    spec = "zipf:objects=5k,requests=50k"
    subprocess.run(
        [program, "trace", "split", spec, "--parts", "4", "-o", str(tmp_path / "part-{}.parquet")],
        check=True, capture_output=True,
    )  # fmt: skip
    files = [str(tmp_path / f"part-{part}.parquet") for part in range(4)]
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        far = tiermem.mrc(files, sizes=10, engine="ray")[0]
    finally:
        ray.shutdown()
    near, whole = tiermem.mrc(files, sizes=10)[0], tiermem.mrc(spec, sizes=10)[0]
    np.testing.assert_array_equal(far.miss_ratio, near.miss_ratio)
    assert (abs(far.miss_ratio - whole.miss_ratio) <= far.error + 1e-9).mean() >= 0.9


def test_plots(trace: str) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    from tiermem import plots

    curves = tiermem.mrc(trace, policy=["lru", "klru"], k=[1, 5], sizes=8, sample=0.5, unit="bytes")
    axes = plots.mrc(curves)
    assert len(axes.lines) == len(curves) == 3 and len(axes.collections) == 3
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), curves[0].miss_ratio)
    stat = tiermem.stat(trace)
    for draw in (plots.popularity, plots.sizes, plots.reuse_time, plots.working_set):
        axes = draw(stat)
        assert axes.lines or axes.patches
        axes.figure.canvas.draw()
    plt.close("all")
