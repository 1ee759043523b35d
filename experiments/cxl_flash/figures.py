"""How the figures are laid out from the tables of rows, with the functions of tiermem.plots."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tiermem.plots import cxl_flash as draw
from tiermem.plots import cxl_flash_traces as draw_traces

Row = dict[str, Any]
# Text as text, and the same file from the same rows.
plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tiermem"})


def panels(count: int, columns: int, width: float = 4.4, height: float = 3.5) -> tuple[Figure, list[Axes]]:
    """Axes in rows; those that are not needed are taken away."""
    columns = min(columns, count)
    figure, grid = plt.subplots(
        -(-count // columns), columns, figsize=(width * columns, height * -(-count // columns)), layout="constrained", squeeze=False
    )
    axes = list(grid.flat)
    for spare in axes[count:]:
        spare.remove()
    return figure, axes[:count]


def workloads(rows: list[Row]) -> list[str]:
    """As they come."""
    return list(dict.fromkeys(row["workload"] for row in rows))


def typical(rows: list[Row]) -> list[Row]:
    """Of each workload the rows of one recording: that whose mean share below a microsecond is the median."""
    found = []
    for workload in workloads(rows):
        of = [row for row in rows if row["workload"] == workload]
        means = {
            recording: statistics.fmean(float(row["sub_us_percent"]) for row in of if row["recording"] == recording)
            for recording in sorted({row["recording"] for row in of})
        }
        median = sorted(means, key=lambda recording: means[recording])[(len(means) - 1) // 2]
        # Figures tell workloads apart by the trace's name, which has the recording's number.
        found += [{**row, "trace": workload} for row in of if row["recording"] == median]
    return found


def each(rows: list[Row], function: Callable[..., Axes], columns: int = 3, width: float = 4.4) -> Figure:
    """A panel for each workload."""
    names = workloads(rows)
    figure, axes = panels(len(names), columns, width)
    for name, at in zip(names, axes, strict=True):
        function(rows, at, workload=name)
    return figure


def each_against(rows: list[Row]) -> Figure:
    """A panel for each workload with rows of both addresses, of all recordings."""
    # Figures tell workloads apart by the trace's name, which has the recording's number.
    rows = [{**row, "trace": row["workload"]} for row in sorted(rows, key=lambda row: int(row["recording"]))]
    virtual, physical = ([row for row in rows if row["addresses"] == kind] for kind in ("virtual", "physical"))
    names = workloads(virtual)
    figure, axes = panels(len(names), 2, 7.0)
    for name, at in zip(names, axes, strict=True):
        draw.virtual_against_physical(virtual, physical, at, workload=name)
    return figure


def side_by_side(rows: list[Row], functions: Sequence[Callable[..., Axes]], width: float, columns: int = 2) -> Figure:
    """Several figures of the same rows."""
    figure, axes = panels(len(functions), columns, width, 4.0)
    for function, at in zip(functions, axes, strict=True):
        function(rows, at)
    return figure


def of_next_n(rows: list[Row]) -> Figure:
    """Degrees above, offsets below."""
    figure, (above, below) = panels(2, 1, 9.5)
    draw.share_by_prefetch_degree(rows, above, offset=16)
    draw.share_by_prefetch_offset(rows, below, degree=4)
    return figure


def of_prefetchers(rows: list[Row]) -> Figure:
    """Bars are typical recordings; what each recording has below a microsecond is a dot."""
    figure = side_by_side(typical(rows), (draw.share_by_prefetcher, draw.hits_by_prefetcher, draw.lifetime_by_prefetcher), 9.5, 1)
    axes = figure.axes[0]
    for prefetcher, bars in zip(dict.fromkeys(row["prefetch"] for row in rows), axes.containers, strict=True):
        for name, bar in zip(workloads(rows), bars, strict=True):  # type: ignore[arg-type]
            found = [row["sub_us_percent"] / 100 for row in rows if (row["workload"], row["prefetch"]) == (name, prefetcher)]
            left = bar.get_x() + bar.get_width() / 8
            if len(found) > 1:
                axes.scatter([left] * len(found), found, s=9, color="white", edgecolors="#222222", linewidths=0.7, zorder=3)
    return figure


def of_hints(rows: list[Row]) -> Figure:
    """More frames, and a higher chance."""
    figure, (left, right) = panels(2, 2, 5.4, 3.8)
    none = [row for row in rows if not row["hint_percent"]]
    more = [row for row in rows if row["hint_percent"] and row["setting"].startswith("hints.top_percent")]
    likelier = [row for row in rows if row["setting"].startswith("hints.probability")]
    draw.hints(none + more, left, vary="top_percent")
    draw.hints(none + likelier, right, vary="probability")
    return figure


def mark_phases(axes: Axes, rows: list[Row]) -> None:
    """Lines at the ends of page rank's phases, as far as the trace has them, on a scale of millions of requests."""
    begin = 0.0
    for name, end in (("loading", rows[0]["loading_ends"]), ("building", rows[0]["building_ends"]), ("computing", None)):
        right = axes.get_xlim()[1] if end is None else end / 1e6
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.5, "pad": 1.5}
        middle, style = (begin + right) / 2, {"color": "#222222", "linewidth": 1}
        axes.text(middle, 0.03, name, ha="center", va="bottom", transform=axes.get_xaxis_transform(), fontsize="small", bbox=box)
        if end is None:
            return
        axes.axvline(right, linestyle="--", **style)
        begin = right


def over_windows(rows: list[Row]) -> Figure:
    """Figure 16b: a panel for each recording."""
    recordings = sorted({row["recording"] for row in rows})
    figure, every = panels(len(recordings), 2, 8.0)
    for recording, axes in zip(recordings, every, strict=True):
        of = [row for row in rows if row["recording"] == recording]
        draw.metrics_over_windows(of, axes)
        axes.set_title(f"{of[0]['workload']}, recording {recording}")
        axes.set_xlim(0, sum(row["requests"] for row in of if row["window"] != "all") / 1e6)
        mark_phases(axes, of)
    return figure


FIGURES: dict[str, Callable[[list[Row]], Figure]] = {
    "fig5": lambda rows: side_by_side(rows, (draw.latency_by_cache, draw.flash_interarrival_by_cache), 6.2),
    "fig6": lambda rows: side_by_side(rows, (draw.repeated_reads,), 7),
    "fig7": lambda rows: each(rows, draw.latency_distribution),
    "fig8": of_next_n,
    "fig9": lambda rows: side_by_side(rows, (draw.latency_by_technology, draw.lifetime_by_technology), 5.4),
    "fig10": lambda rows: each(rows, draw.share_by_parallelism, 2),
    "fig11": lambda rows: each(typical(rows), draw.share_by_policy),
    "fig12": lambda rows: each(typical(rows), draw.flash_writes_by_policy),
    "fig13": of_prefetchers,
    "fig14": lambda rows: side_by_side(
        [row for row in typical(rows) if row["prefetch"] == "best-offset"], (draw.performance_per_dollar,), 7.5
    ),
    "fig15": lambda rows: each(typical(rows), draw.prefetch_metrics),
    "fig16": over_windows,
    "fig17": each_against,
    "fig18": of_hints,
}


def of_traces(recordings: dict[str, list[Path]]) -> Figure:
    """Figure 3: a column for each program: virtual pages, physical frames, and how far apart accesses are."""
    figure, axes = panels(3 * len(recordings), len(recordings), 3.6, 2.9)
    for at, (name, files) in enumerate(recordings.items()):
        draw_traces.scatter(files[0], axes[at], addresses="virtual", title=f"{name}: virtual pages")
        draw_traces.scatter(files[0], axes[at + len(recordings)], addresses="physical", title=f"{name}: physical frames")
        draw_traces.deltas(files, axes[at + 2 * len(recordings)], title=f"{name}: distances")
    return figure


def over_time(recordings: list[tuple[int, Path]], rows: list[Row]) -> Figure:
    """Figure 16a: a panel for each recording."""
    figure, every = panels(len(recordings), 2, 8.0)
    for (recording, trace), axes in zip(recordings, every, strict=True):
        title = f"{rows[0]['workload']}, recording {recording}: physical frames"
        draw_traces.scatter(trace, axes, addresses="physical", points=8000, title=title)
        mark_phases(axes, [row for row in rows if row["recording"] == recording])
    return figure


def save(figure: Figure, stem: Path) -> None:
    """As SVG to read, and as PNG for who cannot."""
    figure.savefig(stem.with_suffix(".svg"), dpi=110, metadata={"Date": None})
    figure.savefig(stem.with_suffix(".png"), dpi=110)
    plt.close(figure)
