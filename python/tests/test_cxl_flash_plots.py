"""What is drawn of simulated devices: marks, heights and names, from small tables written here."""

from __future__ import annotations

import itertools
import math
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
pa = pytest.importorskip("pyarrow")
matplotlib.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

from tiermem import plots  # noqa: E402
from tiermem.plots import cxl_flash as draw  # noqa: E402
from tiermem.plots import cxl_flash_traces as draw_traces  # noqa: E402

Row = dict[str, Any]
ROW: Row = {
    "trace": "random.parquet", "setting": "", "window": "all", "start_ns": 0, "cache_bytes": 64 << 20, "cache_ways": 16,
    "policy": "cflru", "prefetch": "none", "degree": None, "offset": None, "technology": "ull", "channels": 8, "flash_ways": 8,
    "mshr": "on", "hint_percent": 0.0, "hint_probability": 0.1, "requests": 1000, "sub_us_percent": 60.0, "mean_latency_ns": 2000.0,
    "p10_ns": 0, "p25_ns": 46, "p50_ns": 46, "p75_ns": 3000, "p90_ns": 4000, "p95_ns": 5000, "p99_ns": 6000, "p999_ns": 7000,
    "p9999_ns": 8000, "hits": 600, "hits_under_miss": 300, "misses": 100, "repeated_reads": 0, "prefetches": 0,
    "prefetch_accuracy": 0.0, "prefetch_coverage": 0.0, "prefetch_lateness": 0.0, "prefetch_pollution": 0.0, "flash_reads": 200_000,
    "flash_writes": 50_000, "flash_interarrival_ns": 500.0, "lifetime_years": 2.0, "lifetime_years_unamplified": 4.0,
}  # fmt: skip


def rows(*changes: Row) -> list[Row]:
    return [{**ROW, "setting": str(number), **change} for number, change in enumerate(changes)]


def grid(**fields: list[Any]) -> list[Row]:
    """Every combination, each with a share of its own."""
    found = itertools.product(*fields.values())
    return rows(*({**dict(zip(fields, values, strict=True)), "sub_us_percent": 10.0 + at} for at, values in enumerate(found)))


@pytest.fixture(autouse=True)
def drawn() -> Iterator[None]:
    """Whatever a test has drawn can be laid out."""
    yield
    for number in plt.get_fignums():
        plt.figure(number).canvas.draw()
    plt.close("all")


def names(axes: Axes) -> list[str]:
    return axes.get_legend_handles_labels()[1]


def ticks(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_xticklabels()]


def heights(axes: Axes) -> dict[str, list[float]]:
    """Of bars, by what they are called."""
    return {bars.get_label(): [patch.get_height() for patch in bars] for bars in axes.containers}


def line(axes: Axes, name: str) -> list[float]:
    return list(next(it for it in axes.lines if it.get_label() == name).get_ydata())


def test_latency_and_traffic_by_cache() -> None:
    table = rows(
        {"cache_bytes": 8 << 30, "mean_latency_ns": 90.0, "flash_interarrival_ns": 0.0},
        {"cache_bytes": 0, "mean_latency_ns": 5e5},
        {"trace": "traces/stride.csv.zst", "cache_bytes": 0, "mean_latency_ns": 7e5},
    )
    axes = draw.latency_by_cache(table)
    assert ticks(axes) == ["none", "8 GiB"]
    assert names(axes) == ["random", "stride", "DRAM, 46 ns"]
    assert line(axes, "random") == [5e5, 90.0]
    # Nothing was simulated there.
    assert line(axes, "stride")[0] == 7e5 and math.isnan(line(axes, "stride")[1])
    assert axes.get_yscale() == "log"
    # A device that sent nothing to flash has no time between two requests.
    axes = draw.flash_interarrival_by_cache(table)
    assert line(axes, "random")[0] == 500.0 and math.isnan(line(axes, "random")[1])


def test_repeated_reads() -> None:
    axes = draw.repeated_reads(rows({"mshr": "off", "repeated_reads": 150_000}, {"mshr": "on"}, {"mshr": "off", "trace": "heap"}))
    assert heights(axes) == {"all reads": [0.2, 0.2], "of them, of a line already on its way": [0.15, 0.0]}
    assert [text.get_text() for text in axes.texts] == ["75.0%", "0.0%"]
    assert ticks(axes) == ["random", "heap"]


def test_latency_distribution() -> None:
    axes = draw.latency_distribution(rows({"mshr": "off", "p9999_ns": 90_000}, {"mshr": "on"}))
    assert names(axes) == ["with MSHRs", "without MSHRs"]
    np.testing.assert_allclose(line(axes, "with MSHRs"), [0.9, 0.75, 0.5, 0.25, 0.1, 0.05, 0.01, 0.001, 0.0001])
    given, without = (next(it for it in axes.lines if it.get_label() == name) for name in names(axes))
    assert (given.get_linestyle(), without.get_linestyle()) == ("-", "--")
    assert given.get_xdata()[-1] == 8000 and without.get_xdata()[-1] == 90_000
    # No time at all stands at the scale's begin.
    assert given.get_xdata()[0] == 1


def test_next_n() -> None:
    none = rows({"sub_us_percent": 64.0})
    degrees = rows(*({"prefetch": "next-n", "degree": float(it), "offset": 16.0, "sub_us_percent": 70.0 + it} for it in (4, 1)))
    offsets = rows(*({"prefetch": "next-n", "degree": 4.0, "offset": float(it), "sub_us_percent": 70.0} for it in (4, 64)))
    table = none + degrees + offsets
    axes = draw.share_by_prefetch_degree(table, offset=16)
    assert heights(axes) == {"no prefetching": [0.64], "(1, 16)": [0.71], "(4, 16)": [0.74]}
    axes = draw.share_by_prefetch_offset(table, degree=4)
    assert list(heights(axes)) == ["no prefetching", "(4, 4)", "(4, 16)", "(4, 64)"]
    assert axes.get_ylim()[0] == 0
    with pytest.raises(ValueError, match="several values of offset"):
        draw.share_by_prefetch_degree(table)


def test_technologies() -> None:
    table = rows(
        {"technology": "tlc", "lifetime_years_unamplified": 0.5},
        {"technology": "ull", "lifetime_years": 3.0},
        {"technology": "ull", "cache_bytes": 1 << 30, "lifetime_years_unamplified": math.inf},
    )
    axes = draw.latency_by_technology(table)
    assert names(axes) == ["ULL", "TLC"]
    axes = draw.lifetime_by_technology(table)
    assert line(axes, "ULL")[0] == 4.0 and math.isnan(line(axes, "ULL")[1]) and line(axes, "TLC")[0] == 0.5
    assert line(draw.lifetime_by_technology(table, amplified=True), "ULL")[0] == 3.0
    assert axes.get_ylabel() == "years (no mark: none written)"


def test_parallelism() -> None:
    table = grid(channels=[32, 8], cache_bytes=[1 << 30, 1 << 20])
    axes = draw.share_by_parallelism(table)
    assert ticks(axes) == ["8x8", "32x8"]
    assert names(axes) == ["1 MiB", "1 GiB"]
    assert line(axes, "1 GiB") == pytest.approx([0.12, 0.10])


def test_policies() -> None:
    table = grid(policy=["fifo", "cflru"], cache_ways=[1, 16])
    axes = draw.share_by_policy(table)
    assert ticks(axes) == ["1", "16"]
    assert heights(axes) == {"FIFO": pytest.approx([0.10, 0.11]), "CFLRU": pytest.approx([0.12, 0.13])}
    axes = draw.flash_writes_by_policy(table)
    assert axes.get_ylabel() == "lines written to flash, thousands" and heights(axes)["FIFO"] == [50, 50]
    axes = draw.flash_writes_by_policy([{**row, "flash_writes": 2_000_000} for row in table])
    assert axes.get_ylabel() == "lines written to flash, millions" and heights(axes)["FIFO"] == [2, 2]


def test_prefetchers() -> None:
    table = rows({}, {"prefetch": "best-offset", "sub_us_percent": 80.0, "hits": 900, "hits_under_miss": 50, "misses": 50})
    axes = draw.share_by_prefetcher(table)
    assert heights(axes) == {"none": [0.6], "best-offset": [0.8]}
    axes = draw.hits_by_prefetcher(table)
    assert heights(axes) == {
        "hit": [0.6, 0.9],
        "hit under miss": [pytest.approx(0.3), pytest.approx(0.05)],
        "miss": [pytest.approx(0.1), pytest.approx(0.05)],
    }
    assert [patch.get_y() for patch in axes.containers[2]] == pytest.approx([0.9, 0.95])
    assert ticks(axes) == ["NP", "BO"] and axes.get_xlabel() == "NP: none, BO: best-offset"
    axes = draw.lifetime_by_prefetcher([{**table[0], "lifetime_years_unamplified": None}, table[1]])
    assert math.isnan(line(axes, "none")[0]) and line(axes, "best-offset") == [4.0]
    assert [text.get_text() for text in axes.texts] == ["–", "4.0"]


def test_performance_per_dollar() -> None:
    axes = draw.performance_per_dollar(rows({}))
    assert heights(axes) == {"flash at 0.30 $/GB": [pytest.approx(10)], "flash at 0.05 $/GB": [pytest.approx(60)]}
    assert names(axes)[0] == "DRAM at 5 $/GB"


def test_metrics_are_better_when_higher() -> None:
    found = {"prefetch_accuracy": 0.4, "prefetch_coverage": 0.3, "prefetch_lateness": 0.2, "prefetch_pollution": 0.1}
    table = rows({}, {"prefetch": "leap", "prefetches": 5, **found}, {"prefetch": "best-offset"})
    axes = draw.prefetch_metrics(table)
    assert ticks(axes) == ["accuracy", "coverage", "1 − lateness", "1 − pollution"]
    assert heights(axes)["Leap"] == pytest.approx([0.4, 0.3, 0.8, 0.9])
    # Nothing was prefetched: there is no accuracy, and nothing was in time.
    assert [math.isnan(height) for height in heights(axes)["best-offset"]] == [True, False, True, False]
    axes = draw.virtual_against_physical(table[1:2], [{**table[1], "prefetch_accuracy": 0.1}])
    assert heights(axes)["virtual addresses"][0] == 0.4 and heights(axes)["physical addresses"][0] == 0.1
    # Recordings are numbered; those of another program do not count.
    physical = [{**table[1], "prefetch_accuracy": share, "trace": name} for name, share in (("heap", 0.9), ("a", 0.1), ("a", 0.2))]
    axes = draw.virtual_against_physical([{**table[1], "trace": "a"}], physical)
    assert [(name, values[0]) for name, values in heights(axes).items()] == [
        ("virtual addresses", 0.4), ("physical 1", 0.1), ("physical 2", 0.2)
    ]  # fmt: skip


def test_windows() -> None:
    table = rows(
        {"window": "1", "prefetches": 4, "prefetch_accuracy": 1.5},
        {"window": "0", "hits": 250},
        {"window": "all"},
    )
    axes = draw.metrics_over_windows(table)
    assert line(axes, "hits in the cache") == [0.25, 0.6]
    assert list(axes.lines[0].get_xdata()) == [0.0005, 0.0015]
    assert math.isnan(line(axes, "accuracy")[0]) and line(axes, "accuracy")[1] == 1.0
    with pytest.raises(ValueError, match="several devices"):
        draw.metrics_over_windows(table + table)


def test_hints() -> None:
    table = rows(
        {},
        {"hint_percent": 10.0, "sub_us_percent": 75.0, "hits_under_miss": 75},
        {"hint_percent": 5.0, "sub_us_percent": 70.0, "hits_under_miss": 150},
    )
    axes = draw.hints(table)
    assert heights(axes) == {"requests below 1 us": [0.6, 0.7, 0.75]} and ticks(axes) == ["0", "5", "10"]
    assert axes.get_ylim()[0] == 0
    (other,) = (it for it in axes.figure.axes if it is not axes)
    assert line(other, "fewer hits under miss") == pytest.approx([0, 0.15, 0.225])
    # Hints may also cost: more hits under miss than without them.
    axes = draw.hints([table[0], {**table[1], "hits_under_miss": 400}])
    (other,) = (it for it in axes.figure.axes if it is not axes)
    assert line(other, "fewer hits under miss") == [0, -0.1] and other.get_ylim()[0] < -0.1
    assert ticks(draw.hints(table[:2], vary="probability")) == ["0", "10"]
    with pytest.raises(ValueError, match="several values of hint_percent"):
        draw.hints(table, vary="probability")
    with pytest.raises(ValueError, match="without hints"):
        draw.hints(table[1:])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: draw.share_by_prefetcher([]), "no rows"),
        (lambda: draw.share_by_prefetcher(rows({}, {"sub_us_percent": 1.0})), "two rows"),
        (lambda: draw.share_by_policy(rows({}, {"trace": "stride"})), "random, stride"),
        (lambda: draw.share_by_policy(rows({}), workload="xz"), "no workload 'xz'"),
        (lambda: draw.share_by_policy(rows({"window": "0"})), "windows alone"),
        (lambda: draw.hints(rows({}), vary="lead"), "top_percent"),
    ],
)
def test_what_cannot_be_drawn_is_said(call: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call()


def test_tables_of_any_kind(tmp_path: pathlib.Path) -> None:
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(rows({}, {"prefetch": "leap"}))
    pq.write_table(table, tmp_path / "grid.parquet")
    _, given = plt.subplots()
    for source in (table, tmp_path / "grid.parquet", str(tmp_path / "grid.parquet"), table.to_reader()):
        assert list(heights(draw.share_by_prefetcher(source))) == ["none", "Leap"]
    assert draw.share_by_prefetcher(table, given) is given


def memory_trace(tmp_path: pathlib.Path) -> pathlib.Path:
    import pyarrow.parquet as pq

    # A heap of four pages, one after the other, and once a library far away; frames are scattered.
    page = [1000, 1001, 1002, 1003, 1 << 35, 1000]
    frame = [7, 900_007, 12, 500_000, 3, 7]
    table = pa.table({"key": pa.array([it << 12 for it in page], pa.uint64()), "frame": pa.array(frame, pa.uint64())})
    pq.write_table(table, tmp_path / "heap.parquet")
    return tmp_path / "heap.parquet"


def test_pages_over_time(tmp_path: pathlib.Path) -> None:
    path = memory_trace(tmp_path)
    assert draw_traces.pages(path).tolist() == [1000, 1001, 1002, 1003, 1 << 35, 1000]
    axes = draw_traces.scatter(path)
    np.testing.assert_allclose(axes.collections[0].get_offsets()[:, 1] * 1e3, [0, 1, 2, 3, 0])
    assert "16.67% are elsewhere" in axes.get_xlabel()
    axes = draw_traces.scatter(path, addresses="physical", points=4)
    assert len(axes.collections[0].get_offsets()) == 4 and "elsewhere" not in axes.get_xlabel()
    with pytest.raises(ValueError, match="'virtual' and 'physical'"):
        draw_traces.pages(path, "real")
    with pytest.raises(ValueError, match="no column `frame`"):
        draw_traces.pages(pa.table({"key": [1]}), "physical")


def test_distances(tmp_path: pathlib.Path) -> None:
    path = memory_trace(tmp_path)
    axes = draw_traces.deltas([path, path])
    assert len(axes.lines) == 3 and axes.lines[-1].get_linestyle() == "--"
    virtual = axes.lines[-1]
    assert virtual.get_xdata()[0] == 1 and virtual.get_ydata()[0] == pytest.approx(0.6)
    assert axes.lines[0].get_xdata()[0] == 4 and axes.lines[0].get_ydata()[-1] == 1


def test_names_of_the_package_are_there() -> None:
    for name in plots.__all__:
        assert hasattr(plots, name)
    for module in (draw, draw_traces):
        assert all(callable(getattr(module, name)) for name in module.__all__)
