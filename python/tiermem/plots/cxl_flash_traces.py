"""Memory traces by virtual and by physical address: pages over time, and how far apart consecutive accesses are.

A *trace* is the path of a Parquet file as ``tiermem record --physical`` writes it, or a table of Arrow, with the columns ``key``
(the virtual address) and ``frame`` (the number of the physical page).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ._axes import COLOURS, GREY, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

__all__ = ["deltas", "pages", "scatter"]

PAGE_BITS = 12
# Regions of a program's addresses that are further apart than this many pages are not drawn in one picture.
GAP_PAGES = 1 << 10
POINTS_MAX = 600


def pages(trace: Any, addresses: str = "virtual") -> NDArray[np.int64]:
    """The page of each access: of its virtual address, or its frame.

    Args:
        trace: A trace.
        addresses: ``"virtual"`` or ``"physical"``.
    """
    if addresses not in ("virtual", "physical"):
        raise ValueError(f"there are no {addresses!r} addresses; there are 'virtual' and 'physical' ones")
    column = "key" if addresses == "virtual" else "frame"
    if isinstance(trace, (str, os.PathLike)):
        import pyarrow.parquet as pq

        file = pq.ParquetFile(trace)
        names = file.schema_arrow.names
        trace = file.read(columns=[column]) if column in names else None
    else:
        import pyarrow as pa

        trace = trace if isinstance(trace, pa.Table) else pa.table(trace)
        names = trace.column_names
    if column not in names:
        raise ValueError(f"the trace has no column `{column}`; `tiermem record --physical` writes one with both addresses")
    numbers: NDArray[np.uint64] = trace.column(column).to_numpy().astype(np.uint64)
    page: NDArray[np.int64] = (numbers >> np.uint64(PAGE_BITS if addresses == "virtual" else 0)).astype(np.int64)
    return page


def _main_region(page: NDArray[np.int64]) -> tuple[NDArray[np.bool_], int]:
    """Accesses to the region that has most of them, and its first page: heap and libraries are terabytes apart."""
    distinct, counts = np.unique(page, return_counts=True)
    region = np.concatenate([[0], np.cumsum(np.diff(distinct) > GAP_PAGES)])
    most = np.argmax(np.bincount(region, weights=counts))
    inside = distinct[region == most]
    return (page >= inside[0]) & (page <= inside[-1]), int(inside[0])


def scatter(trace: Any, axes: Axes | None = None, *, addresses: str = "virtual", points: int = 20_000, title: str = "") -> Axes:
    """Which page is accessed when (Yang 2023, Figures 3a to 3j and 16a).

    Of the virtual pages, only the region with most accesses is drawn, numbered from its first page; a note tells the rest's share.

    Args:
        trace: A trace.
        axes: Axes to draw into; None makes new ones.
        addresses: ``"virtual"`` or ``"physical"``.
        points: Draw at most this many accesses, at equal distances.
        title: Title of the plot.
    """
    page = pages(trace, addresses)
    kind = "virtual page" if addresses == "virtual" else "physical frame"
    axes = new_axes(axes, title or f"{kind}s over time", "access, millions", f"{kind}, thousands")
    if not len(page):
        return axes
    here, first = _main_region(page) if addresses == "virtual" else (np.ones(len(page), bool), 0)
    # Not every n-th: that would fall in step with programs that stride.
    rng = np.random.default_rng(1)
    at = np.arange(len(page)) if len(page) <= points else np.sort(rng.choice(len(page), points, replace=False))
    at = at[here[at]]
    axes.scatter(at / 1e6, (page[at] - first) / 1e3, s=1.2, color=COLOURS[0], linewidths=0, alpha=0.6, rasterized=True)
    elsewhere = 1 - here.mean()
    if elsewhere > 0:
        axes.set_xlabel(f"{axes.get_xlabel()} ({max(elsewhere, 0.0001):.2%} are elsewhere)")
    axes.set_xlim(0, len(page) / 1e6)
    return axes


def _distances(page: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Distances in pages, ascending, and the share of accesses at each or less; thinned to what a picture needs."""
    distance, counts = np.unique(np.abs(np.diff(page)), return_counts=True)
    shares = np.cumsum(counts) / counts.sum()
    if len(distance) > POINTS_MAX:
        kept = np.unique(np.concatenate([np.searchsorted(shares, np.linspace(0, 1, POINTS_MAX)), [0, len(distance) - 1]]))
        kept = kept[kept < len(distance)]
        distance, shares = distance[kept], shares[kept]
    return distance.astype(float), shares


def deltas(recordings: Sequence[Any], axes: Axes | None = None, *, title: str = "") -> Axes:
    """How far apart consecutive accesses are, in pages (Yang 2023, Figures 3k to 3o).

    Virtual addresses have one line, of the first recording (black, dashed); physical ones a line for each recording.

    Args:
        recordings: Traces of one program, each of a different run.
        axes: Axes to draw into; None makes new ones.
        title: Title of the plot.
    """
    from matplotlib.ticker import FuncFormatter, NullLocator

    axes = new_axes(
        axes, title or "Distance of consecutive accesses", "distance from the access before, pages", "share of accesses"
    )
    lines = [(pages(trace, "physical"), GREY, "-", 1.1) for trace in recordings]
    lines += [(pages(recordings[0], "virtual"), "#000000", "--", 1.6)]
    for number, (page, colour, style, width) in enumerate(lines):
        if len(page) > 1:
            x, y = _distances(page)
            name = "virtual" if number == len(lines) - 1 else "physical" if number == 0 else "_again"
            axes.step(x, y, where="post", color=colour, linestyle=style, linewidth=width, label=name)
    # The same page is a distance of 0, which a logarithmic scale has not.
    axes.set_xscale("symlog", base=10, linthresh=1)
    axes.set_xlim(left=0)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: "0" if value == 0 else f"$10^{{{round(np.log10(value))}}}$"))
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f}%"))
    axes.legend(frameon=False, fontsize="small", loc="upper left")
    return axes
