"""Figures of a flash device behind a cache, each from one table as ``tiermem sim cxl-flash --sweep ... -o grid.parquet`` writes it.

A *table* is the path of such a file, a table of Arrow, or a sequence of dictionaries. The functions draw the figures of Yang
et al. (USENIX ATC 2023); each names its figure there. If a figure is of one workload and the table has several, ``workload``
selects one. Rows with different values for the same place are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ._axes import COLOURS, GREY, binary, duration, in_time, log_ticks, new_axes
from ._grid import (
    Cells,
    Row,
    bars,
    cells,
    from_zero,
    legend,
    lines,
    no_value,
    of_one,
    order,
    rows_of,
    shares,
    whole,
    workload,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "flash_interarrival_by_cache",
    "flash_writes_by_policy",
    "hints",
    "hits_by_prefetcher",
    "latency_by_cache",
    "latency_by_technology",
    "latency_distribution",
    "lifetime_by_prefetcher",
    "lifetime_by_technology",
    "metrics_over_windows",
    "performance_per_dollar",
    "prefetch_metrics",
    "repeated_reads",
    "share_by_parallelism",
    "share_by_policy",
    "share_by_prefetch_degree",
    "share_by_prefetch_offset",
    "share_by_prefetcher",
    "virtual_against_physical",
]

BELOW_1_US = "requests below 1 us"
PERCENTILES = {"p10": 10, "p25": 25, "p50": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99, "p999": 99.9, "p9999": 99.99}
PREFETCHERS = {"next-n": "next-N", "leap": "Leap"}
TECHNOLOGIES = ("ULL", "SLC", "MLC", "TLC")
METRICS = ("accuracy", "coverage", "lateness", "pollution")
INVERTED = ("lateness", "pollution")


def _share(row: Row) -> float:
    return float(row["sub_us_percent"]) / 100


def _cache(row: Row) -> int:
    return int(row["cache_bytes"])


def _cache_name(size: int) -> str:
    return binary(size) if size else "none"


def _prefetcher(row: Row) -> str:
    return str(row["prefetch"])


def _prefetcher_name(name: str) -> str:
    return PREFETCHERS.get(name, name)


def _by_cache(
    rows: Sequence[Row], axes: Axes, series: Callable[[Row], Any], names: Sequence[Any], value: Callable[[Row], float | None]
) -> None:
    sizes = order(rows, _cache, ascending=True)
    lines(axes, sizes, names, cells(rows, _cache, series, value), name=lambda it: str(it), tick=_cache_name)


def latency_by_cache(table: Any, axes: Axes | None = None, *, dram_ns: float = 46.0) -> Axes:
    """Mean latency by the size of the cache, a line for each workload (Yang 2023, Figure 5a).

    Args:
        table: Rows that differ in workload and ``cache_bytes``.
        axes: Axes to draw into; None makes new ones.
        dram_ns: The latency of DRAM alone, drawn as a line to compare with.
    """
    rows = whole(table)
    axes = new_axes(axes, "Mean latency of requests", "cache in the device", "mean latency")
    _by_cache(rows, axes, workload, order(rows, workload), lambda row: row["mean_latency_ns"] or None)
    axes.axhline(dram_ns, color=GREY, linestyle=":", linewidth=1.2, label=f"DRAM, {duration(dram_ns)}")
    axes.set_yscale("log")
    in_time(axes.yaxis)
    legend(axes)
    return axes


def flash_interarrival_by_cache(table: Any, axes: Axes | None = None) -> Axes:
    """Time from one read or write of flash to the next, by the size of the cache (Yang 2023, Figure 5b).

    Args:
        table: Rows that differ in workload and ``cache_bytes``. A device that sent nothing to flash has no value.
        axes: Axes to draw into; None makes new ones.
    """
    rows = whole(table)
    axes = new_axes(axes, "Requests to flash", "cache in the device", "mean time between two")
    _by_cache(rows, axes, workload, order(rows, workload), lambda row: row["flash_interarrival_ns"] or None)
    axes.set_yscale("log")
    in_time(axes.yaxis)
    legend(axes)
    return axes


def repeated_reads(table: Any, axes: Axes | None = None) -> Axes:
    """Reads of flash; those that repeat a read in flight are shaded (Yang 2023, Figure 6).

    The paper shows them for each physical frame; this shows their sum for each workload.

    Args:
        table: A row for each workload, without miss registers (``mshr=off``); other rows are left out.
        axes: Axes to draw into; None makes new ones.
    """
    rows = [row for row in whole(table) if row["mshr"] == "off"]
    axes = new_axes(axes, "Reads of flash, without MSHRs", "", "reads, millions")
    names = order(rows, workload)
    reads = cells(rows, workload, lambda _: "all", lambda row: row["flash_reads"] / 1e6)
    repeated = cells(rows, workload, lambda _: "all", lambda row: row["repeated_reads"] / 1e6)
    heights = [reads[name, "all"] for name in names]
    again = [repeated[name, "all"] for name in names]
    axes.bar(range(len(names)), heights, width=0.62, color=COLOURS[0], label="all reads")
    axes.bar(
        range(len(names)), again, width=0.62, color="#ffffff", edgecolor=COLOURS[1], hatch="///", alpha=0.9,
        linewidth=0.8, label="of them, of a line already on its way",
    )  # fmt: skip
    for at, (height, of_it) in enumerate(zip(heights, again, strict=True)):
        share = f"{of_it / height:.1%}" if height else "no reads"
        axes.annotate(share, (at, height), xytext=(0, 1), textcoords="offset points", ha="center", va="bottom", fontsize="small")
    axes.set_xticks(range(len(names)), names)
    if names:
        from_zero(axes)
    legend(axes)
    return axes


def latency_distribution(table: Any, axes: Axes | None = None, *, workload: str | None = None) -> Axes:
    """Share of requests above each latency, with miss registers (solid) and without (dashed) (Yang 2023, Figure 7).

    Both scales are logarithmic, so that the slowest of ten thousand can be seen. Marks are the simulated percentiles; lines
    between them are interpolated.

    Args:
        table: Rows that differ in workload and ``mshr``.
        axes: Axes to draw into; None makes new ones.
        workload: The one to draw, if there are several.
    """
    from matplotlib.ticker import FuncFormatter

    name, rows = of_one(whole(table), workload)
    axes = new_axes(axes, name, "latency", "requests that take longer")
    for state, style, colour, marker in (("on", "-", COLOURS[0], "o"), ("off", "--", COLOURS[1], "s")):
        for row in [row for row in rows if row["mshr"] == state][:1]:
            slower = [1 - percentile / 100 for percentile in PERCENTILES.values()]
            # A request that waits for nothing takes no time; a logarithmic scale starts behind it.
            latencies = [max(float(row[f"{key}_ns"]), 1.0) for key in PERCENTILES]
            label = "with MSHRs" if state == "on" else "without MSHRs"
            axes.plot(latencies, slower, color=colour, linestyle=style, marker=marker, markersize=4, label=label)
    axes.axvline(1000, color=GREY, linestyle=":", linewidth=1)
    axes.set(xscale="log", yscale="log", ylim=(0.7e-4, 1.3))
    in_time(axes.xaxis)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
    legend(axes)
    return axes


def _share_by_next_n(table: Any, axes: Axes | None, title: str, keep: str, at: int | None, vary: str) -> Axes:
    rows = whole(table)
    next_n = [row for row in rows if row["prefetch"] == "next-n"]
    kept = order(next_n, lambda row: int(row[keep]), ascending=True)
    if at is None:
        if len(kept) > 1:
            raise ValueError(f"there are several values of {keep}, of which one can be drawn: {kept}")
        at = kept[0] if kept else 0
    drawn = [row for row in rows if row["prefetch"] == "none"] + [row for row in next_n if row[keep] == at]
    axes = new_axes(axes, title, "", BELOW_1_US)

    def series(row: Row) -> tuple[int, int] | None:
        return None if row["prefetch"] == "none" else (int(row["degree"]), int(row["offset"]))

    pairs = sorted((pair for pair in order(drawn, series) if pair is not None), key=lambda pair: pair[vary == "offset"])
    present = [None, *pairs] if any(row["prefetch"] == "none" for row in drawn) else pairs
    names = order(drawn, workload)
    values = cells(drawn, workload, series, _share)
    bars(axes, names, present, values, ordered=True, name=lambda pair: str(pair) if pair else "no prefetching", factor=100)
    shares(axes)
    legend(axes, "(degree, offset) in lines")
    return axes


def share_by_prefetch_degree(table: Any, axes: Axes | None = None, *, offset: int | None = None) -> Axes:
    """Requests below a microsecond by next-N's degree, the lines that it fetches at once (Yang 2023, Figure 8a).

    Args:
        table: Rows that differ in workload and ``degree``, and rows without prefetching to compare with.
        axes: Axes to draw into; None makes new ones.
        offset: Draw the rows of this offset; needed if there are several.
    """
    return _share_by_next_n(table, axes, "Degree of next-N", "offset", offset, "degree")


def share_by_prefetch_offset(table: Any, axes: Axes | None = None, *, degree: int | None = None) -> Axes:
    """Requests below a microsecond by next-N's offset, how far ahead it fetches (Yang 2023, Figure 8b).

    Args:
        table: Rows that differ in workload and ``offset``, and rows without prefetching to compare with.
        axes: Axes to draw into; None makes new ones.
        degree: Draw the rows of this degree; needed if there are several.
    """
    return _share_by_next_n(table, axes, "Offset of next-N", "degree", degree, "offset")


def _technology(row: Row) -> str:
    return str(row["technology"]).upper()


def _technologies(rows: Sequence[Row]) -> list[str]:
    present = order(rows, _technology)
    return [*(name for name in TECHNOLOGIES if name in present), *(name for name in present if name not in TECHNOLOGIES)]


def latency_by_technology(table: Any, axes: Axes | None = None, *, workload: str | None = None) -> Axes:
    """Mean latency by the size of the cache, a line for each kind of flash (Yang 2023, Figure 9a).

    Args:
        table: Rows that differ in ``technology`` and ``cache_bytes``.
        axes: Axes to draw into; None makes new ones.
        workload: The one to draw, if there are several.
    """
    name, rows = of_one(whole(table), workload)
    axes = new_axes(axes, f"{name}: mean latency", "cache in the device", "mean latency")
    _by_cache(rows, axes, _technology, _technologies(rows), lambda row: row["mean_latency_ns"])
    axes.set_yscale("log")
    in_time(axes.yaxis)
    legend(axes)
    return axes


def lifetime_by_technology(table: Any, axes: Axes | None = None, *, workload: str | None = None, amplified: bool = False) -> Axes:
    """Years until flash is worn out, by the size of the cache, a line for each kind of flash (Yang 2023, Figure 9b).

    Args:
        table: Rows that differ in ``technology`` and ``cache_bytes``. A device to which nothing is written has no value.
        axes: Axes to draw into; None makes new ones.
        workload: The one to draw, if there are several.
        amplified: Count what cleaning writes too; the paper does not.
    """
    name, rows = of_one(whole(table), workload)
    what = "what cleaning moves counted" if amplified else "without what cleaning moves"
    axes = new_axes(axes, f"{name}: lifetime, {what}", "cache in the device", "years (no mark: none written)")
    field = "lifetime_years" if amplified else "lifetime_years_unamplified"
    _by_cache(rows, axes, _technology, _technologies(rows), lambda row: row[field])
    _years(axes)
    legend(axes)
    return axes


def _years(axes: Axes) -> None:
    axes.set_yscale("log")
    log_ticks(axes.yaxis, lambda value: f"{value:g}")


def share_by_parallelism(table: Any, axes: Axes | None = None, *, workload: str | None = None) -> Axes:
    """Requests below a microsecond by channels x ways of the flash, a line for each size of the cache (Yang 2023, Figure 10).

    Args:
        table: Rows that differ in ``channels``, ``flash_ways`` and ``cache_bytes``.
        axes: Axes to draw into; None makes new ones.
        workload: The one to draw, if there are several.
    """
    name, rows = of_one(whole(table), workload)
    axes = new_axes(axes, name, "flash: channels x ways", BELOW_1_US)

    def parallelism(row: Row) -> tuple[int, int, int]:
        return (int(row["channels"]) * int(row["flash_ways"]), int(row["channels"]), int(row["flash_ways"]))

    places, sizes = order(rows, parallelism, ascending=True), order(rows, _cache, ascending=True)
    values = cells(rows, parallelism, _cache, _share)
    lines(axes, places, sizes, values, ordered=True, name=_cache_name, tick=lambda it: f"{it[1]}x{it[2]}")
    shares(axes)
    legend(axes, "cache in the device")
    return axes


def _by_policy(rows: list[Row], axes: Axes, value: Callable[[Row], float], factor: float, decimals: int) -> None:
    def ways(row: Row) -> int:
        return int(row["cache_ways"])

    policies = order(rows, lambda row: str(row["policy"]))
    values = cells(rows, ways, lambda row: str(row["policy"]), value)
    names = {"fifo": "FIFO", "lru": "LRU", "cflru": "CFLRU"}
    places = order(rows, ways, ascending=True)
    bars(axes, places, policies, values, name=lambda it: names.get(it, it), factor=factor, decimals=decimals)


def share_by_policy(table: Any, axes: Axes | None = None, *, workload: str | None = None) -> Axes:
    """Requests below a microsecond by lines in a set of the cache, a bar for each policy (Yang 2023, Figure 11).

    Args:
        table: Rows that differ in ``policy`` and ``cache_ways``.
        axes: Axes to draw into; None makes new ones.
        workload: The one to draw, if there are several.
    """
    name, rows = of_one(whole(table), workload)
    axes = new_axes(axes, name, "lines in a set of the cache", BELOW_1_US)
    _by_policy(rows, axes, _share, 100, 0)
    shares(axes)
    legend(axes)
    return axes


def flash_writes_by_policy(table: Any, axes: Axes | None = None, *, workload: str | None = None) -> Axes:
    """Lines written to flash by lines in a set of the cache, a bar for each policy (Yang 2023, Figure 12).

    Args:
        table: Rows that differ in ``policy`` and ``cache_ways``.
        axes: Axes to draw into; None makes new ones.
        workload: The one to draw, if there are several.
    """
    name, rows = of_one(whole(table), workload)
    most = max(int(row["flash_writes"]) for row in rows)
    unit, text = (1e6, "millions") if most >= 1e6 else (1e3, "thousands")
    axes = new_axes(axes, name, "lines in a set of the cache", f"lines written to flash, {text}")
    # Three figures have room above a bar.
    _by_policy(rows, axes, lambda row: row["flash_writes"] / unit, 1, 0 if most >= 10 * unit else 1)
    from_zero(axes)
    legend(axes)
    return axes


def share_by_prefetcher(table: Any, axes: Axes | None = None) -> Axes:
    """Requests below a microsecond, a bar for each prefetcher (Yang 2023, Figure 13a).

    Args:
        table: Rows that differ in workload and ``prefetch``.
        axes: Axes to draw into; None makes new ones.
    """
    rows = whole(table)
    axes = new_axes(axes, "Requests below a microsecond", "", BELOW_1_US)
    values = cells(rows, workload, _prefetcher, _share)
    bars(axes, order(rows, workload), order(rows, _prefetcher), values, name=_prefetcher_name, factor=100)
    shares(axes)
    legend(axes)
    return axes


def hits_by_prefetcher(table: Any, axes: Axes | None = None) -> Axes:
    """Requests by what they found in the cache: their line, their line in flight, neither (Yang 2023, Figure 13b).

    Args:
        table: Rows that differ in workload and ``prefetch``.
        axes: Axes to draw into; None makes new ones.
    """
    rows = whole(table)
    axes = new_axes(axes, "What requests found in the cache", "", "of all requests")
    names, prefetchers = order(rows, workload), order(rows, _prefetcher)
    places = {
        (name, prefetcher): at * (len(prefetchers) + 1) + number
        for at, name in enumerate(names)
        for number, prefetcher in enumerate(prefetchers)
    }
    bottom = dict.fromkeys(places, 0.0)
    parts = (("hits", "hit", COLOURS[0]), ("hits_under_miss", "hit under miss", "#9ec3e0"), ("misses", "miss", COLOURS[1]))
    for field, label, colour in parts:
        values = cells(rows, workload, _prefetcher, lambda row, field=field: row[field] / row["requests"])  # type: ignore[misc]
        heights = [values.get(place, math.nan) for place in places]
        axes.bar(list(places.values()), heights, 0.88, bottom=list(bottom.values()), color=colour, label=label)
        bottom = {place: bottom[place] + height for place, height in zip(places, heights, strict=True)}
    axes.set_xticks(list(places.values()), [_short(prefetcher) for _, prefetcher in places], fontsize=7)
    for at, name in enumerate(names):
        middle = at * (len(prefetchers) + 1) + (len(prefetchers) - 1) / 2
        axes.text(middle, -0.085, name, ha="center", va="top", transform=axes.get_xaxis_transform())
    axes.set_xlabel(", ".join(f"{_short(it)}: {_prefetcher_name(it)}" for it in prefetchers), labelpad=20, fontsize="small")
    shares(axes)
    legend(axes)
    return axes


def _short(prefetcher: str) -> str:
    known = {"none": "NP", "next-n": "NL", "feedback-directed": "FD", "best-offset": "BO", "leap": "LP"}
    return known.get(prefetcher, prefetcher)


def lifetime_by_prefetcher(table: Any, axes: Axes | None = None, *, amplified: bool = False) -> Axes:
    """Years until flash is worn out, on a logarithmic scale, a mark for each prefetcher (Yang 2023, Figure 13c).

    Args:
        table: Rows that differ in workload and ``prefetch``.
        axes: Axes to draw into; None makes new ones.
        amplified: Count what cleaning writes too; the paper does not.
    """
    rows = whole(table)
    what = "what cleaning moves counted" if amplified else "without what cleaning moves"
    axes = new_axes(axes, f"Lifetime, {what}", "", "years, logarithmic (–: none written)")
    field = "lifetime_years" if amplified else "lifetime_years_unamplified"
    values = cells(rows, workload, _prefetcher, lambda row: row[field])
    bars(axes, order(rows, workload), order(rows, _prefetcher), values, name=_prefetcher_name, decimals=1, marks=True)
    if values:
        _years(axes)
        axes.set_ylim(min(values.values()) / 2, 2.5 * max(values.values()))
    else:
        no_value(axes, "nothing is written to flash")
    legend(axes)
    return axes


def performance_per_dollar(
    table: Any, axes: Axes | None = None, *, dram: float = 5.0, flash: tuple[float, float] = (0.30, 0.05)
) -> Axes:
    """Share of requests below a microsecond per dollar, relative to DRAM alone, where the share is 100% (Yang 2023, Figure 14).

    Args:
        table: A row for each workload. The price is that of flash, without the device's own DRAM.
        axes: Axes to draw into; None makes new ones.
        dram: Dollars per GB of DRAM.
        flash: Dollars per GB of flash, high and low.
    """
    rows = whole(table)
    axes = new_axes(axes, "Performance for the price, against DRAM alone", "", "times as much as DRAM")
    priced = [{**row, "flash": price} for row in rows for price in flash]
    values = cells(priced, workload, lambda row: row["flash"], lambda row: _share(row) * dram / row["flash"])
    bars(axes, order(rows, workload), list(flash), values, name=lambda price: f"flash at {price:.2f} $/GB", decimals=1)
    axes.axhline(1, color="#222222", linestyle=":", linewidth=1, label=f"DRAM at {dram:g} $/GB")
    from_zero(axes)
    legend(axes)
    return axes


def _metric(row: Row, metric: str) -> float | None:
    """Higher is better; nothing where there is nothing of which it is a share."""
    of = row["misses"] if metric == "pollution" else row["requests"] if metric == "coverage" else row["prefetches"]
    value = row[f"prefetch_{metric}"]
    if not of or value is None:
        return None
    return 1 - value if metric in INVERTED else float(value)


def _metric_name(metric: str) -> str:
    return f"1 − {metric}" if metric in INVERTED else metric


def _metrics(
    rows: list[Row], axes: Axes, series: Callable[[Row], Any], names: Sequence[Any], name: Callable[[Any], str],
    ordered: bool = False,
) -> Axes:  # fmt: skip
    each = [{**row, "metric": metric} for row in rows for metric in METRICS]
    values = cells(each, lambda row: row["metric"], series, lambda row: _metric(row, row["metric"]))
    bars(axes, METRICS, names, values, name=name, tick=_metric_name, factor=100, ordered=ordered)
    axes.tick_params(axis="x", labelsize="small")
    shares(axes)
    legend(axes)
    return axes


def prefetch_metrics(table: Any, axes: Axes | None = None, *, workload: str | None = None) -> Axes:
    """Accuracy, coverage, lateness and pollution of each prefetcher; the last two inverted, so that higher is better (Yang 2023,
    Figure 15). A dash stands where a prefetcher fetched nothing.

    Args:
        table: Rows that differ in ``prefetch``.
        axes: Axes to draw into; None makes new ones.
        workload: The one to draw, if there are several.
    """
    name, rows = of_one(whole(table), workload)
    axes = new_axes(axes, name, "higher is better", "share")
    rows = [row for row in rows if row["prefetch"] != "none"]
    return _metrics(rows, axes, _prefetcher, order(rows, _prefetcher), _prefetcher_name)


def virtual_against_physical(virtual: Any, physical: Any, axes: Axes | None = None, *, workload: str | None = None) -> Axes:
    """The metrics of one prefetcher by virtual and by physical addresses, with the latter two inverted (Yang 2023, Figure 17).

    Args:
        virtual: A row with ``--addresses virtual``.
        physical: The same with ``--addresses physical``; or several rows of different recordings, numbered by ``recording`` or in
            order.
        axes: Axes to draw into; None makes new ones.
        workload: The one to draw, if there are several.
    """
    name, rows = of_one(whole(virtual), workload)
    _, others = of_one(whole(physical), name)
    axes = new_axes(axes, name, "higher is better", "share")
    # What is virtual stands outside of the order of recordings.
    numbered = [{**row, "recording": None} for row in rows] + [
        {**row, "recording": row.get("recording") or at} for at, row in enumerate(others, 1)
    ]

    def told(number: int | None) -> str:
        return "virtual addresses" if number is None else f"physical {number}" if len(others) > 1 else "physical addresses"

    present = order(numbered, lambda row: row["recording"])
    return _metrics(numbered, axes, lambda row: row["recording"], present, told, ordered=len(others) > 1)


def metrics_over_windows(table: Any, axes: Axes | None = None, *, workload: str | None = None) -> Axes:
    """Hits and the metrics of a prefetcher for each window of a trace (Yang 2023, Figure 16b).

    A line fetched in one window may be used in the next, whose share may then exceed 100%; it is drawn as 100%.

    Args:
        table: Rows of windows (``--window N``) of one device. A line has a gap where a window has nothing to measure.
        axes: Axes to draw into; None makes new ones.
        workload: The one to draw, if there are several.
    """
    name, rows = of_one([row for row in rows_of(table) if row["window"] != "all"], workload)
    rows.sort(key=lambda row: int(row["window"]))
    if len({row["window"] for row in rows}) < len(rows):
        raise ValueError(f"{name} has windows of several devices: leave all but one of them out")
    axes = new_axes(axes, name, "requests, millions", "share in a window")
    ends, requests = [], 0
    for row in rows:
        requests += row["requests"]
        ends.append((requests - row["requests"] / 2) / 1e6)
    axes.plot(ends, [row["hits"] / row["requests"] for row in rows], color=GREY, linewidth=2.5, label="hits in the cache")
    for metric, colour, style in zip(METRICS, COLOURS, ("-", "--", "-.", ":"), strict=False):
        heights = [_metric(row, metric) for row in rows]
        points = [math.nan if height is None else min(max(height, 0.0), 1.0) for height in heights]
        axes.plot(ends, points, color=colour, linestyle=style, marker=".", markersize=4, label=_metric_name(metric))
    shares(axes)
    axes.set_xlim(left=0)
    legend(axes)
    return axes


def hints(table: Any, axes: Axes | None = None, *, vary: str = "top_percent", workload: str | None = None) -> Axes:
    """Requests below a microsecond by hints of the host (bars), and hits under miss that these turned into hits (line) (Yang 2023,
    Figure 18).

    The line shows by how much hits under miss decrease against no hints; the totals do not tell what became of them.

    Args:
        table: Rows that differ in ``hint_percent`` or in ``hint_probability``, and a row without hints to compare with.
        axes: Axes to draw into; None makes new ones.
        vary: ``"top_percent"`` (Figure 18a) or ``"probability"`` (Figure 18b).
        workload: The one to draw, if there are several.
    """
    fields = {"top_percent": ("hint_percent", 1.0), "probability": ("hint_probability", 100.0)}
    if vary not in fields:
        raise ValueError(f"there is no {vary!r} of hints; there are 'top_percent' and 'probability'")
    field, factor = fields[vary]
    name, rows = of_one(whole(table), workload)
    without = [row for row in rows if not row["hint_percent"] or not row["hint_probability"]]
    if not without:
        raise ValueError("there is no row without hints to compare with")
    hinted = [row for row in rows if row["hint_percent"] and row["hint_probability"]]
    fixed = "hint_probability" if field == "hint_percent" else "hint_percent"
    if len({row[fixed] for row in hinted}) > 1:
        raise ValueError(f"there are several values of {fixed}: leave all but one of them out")
    told = {"top_percent": "most accessed frames that are hinted at", "probability": "accesses to them that are hinted at"}
    axes = new_axes(axes, f"{name}: hints", f"{told[vary]}, percent", f"{BELOW_1_US} (bars)")
    if not hinted:
        no_value(axes, "no row has hints")
        return axes
    before = without[0]
    points = sorted([{**before, field: 0.0}, *hinted], key=lambda row: float(row[field]))
    values: Cells = {(f"{row[field] * factor:g}", BELOW_1_US): _share(row) for row in points}
    bars(axes, [place for place, _ in values], [BELOW_1_US], values, factor=100, decimals=1)
    shares(axes)
    axes.yaxis.label.set_color(COLOURS[0])
    fewer = [before["hits_under_miss"] - row["hits_under_miss"] for row in points]
    unit, text = (1e6, "millions") if max(fewer) >= 1e5 else (1e3, "thousands")
    other = axes.twinx()
    other.plot(range(len(points)), [number / unit for number in fewer], color=COLOURS[1], marker="o", label="fewer hits under miss")
    other.set_ylabel(f"fewer hits under miss, {text} (line)", color=COLOURS[1])
    other.spines["top"].set_visible(False)
    # The line stays below what stands above the bars.
    top = max(1, *fewer) / max(0.8 * min(values.values()), 0.1)
    other.set_ylim(1.1 * min(0, *fewer) / unit, top / unit)
    return axes
