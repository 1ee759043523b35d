"""Plots of a trace: popularity, sizes, reuse times, working set."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from .._stat import Distribution, TraceStat
from ._axes import COLOURS, in_bytes, new_axes, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def popularity(stat: TraceStat, axes: Axes | None = None) -> Axes:
    """Accesses by rank, on logarithmic scales, with the Zipf distribution that fits."""
    axes = new_axes(axes, "Popularity", "rank of the key", "accesses of the key")
    if stat.popularity:
        rank, accesses = (stat.popularity[name].astype(float) for name in ("rank", "accesses"))
        axes.loglog(rank, accesses, color=COLOURS[0])
        fitted = accesses >= 5
        if stat.zipf and fitted.any():
            alpha = float(stat.zipf["alpha_least_squares"] or 0.0)
            offset = np.mean(np.log(accesses[fitted]) + alpha * np.log(rank[fitted]))
            fit = np.exp(offset - alpha * np.log(rank))
            axes.plot(rank[fit >= 1], fit[fit >= 1], color="#8b9097", linestyle=":", label=f"Zipf {alpha:.2f}")
            axes.legend(frameon=False)
    return axes


def _histogram(of: Distribution | None, axes: Axes) -> Axes:
    if of is not None:
        start = np.where(of.bucket_from == 0, 0.5, of.bucket_from.astype(float))
        width = of.bucket_to.astype(float) + 1 - start
        axes.bar(start, of.bucket_count / of.bucket_count.sum(), width=0.96 * width, align="edge", color=COLOURS[0])
        axes.axvline(max(of.p50, 0.5), color="#5b6067", linestyle=":", linewidth=1)
        axes.annotate(" median", (max(of.p50, 0.5), 1), xycoords=("data", "axes fraction"), va="top", fontsize="small")
    axes.set_xscale("log", base=2)
    percent(axes.yaxis)
    return axes


def sizes(stat: TraceStat, axes: Axes | None = None) -> Axes:
    """Sizes of the requested values, by powers of two."""
    axes = _histogram(stat.size_bytes, new_axes(axes, "Sizes", "size of the value", "of all requests"))
    in_bytes(axes.xaxis)
    return axes


def reuse_time(stat: TraceStat, axes: Axes | None = None) -> Axes:
    """Requests between two accesses to a key, by powers of two."""
    x, y = "requests since the last access to the key", "of the requests that come again"
    axes = _histogram(stat.reuse_time_requests, new_axes(axes, "Reuse time", x, y))
    axes.set_xscale("log", base=10)
    return axes


def working_set(stat: TraceStat, axes: Axes | None = None, *, unit: str = "bytes") -> Axes:
    """The working set over the trace: since the start, and in use in each interval.

    Args:
        stat: The result of :func:`tiermem.stat`.
        axes: Axes to draw into; None makes new ones.
        unit: ``"bytes"`` or ``"keys"``.
    """
    if unit not in ("bytes", "keys"):
        raise ValueError(f"there is no unit {unit!r}; the units are 'bytes' and 'keys'")
    axes = new_axes(axes, "Working set", "requests", "bytes of values" if unit == "bytes" else "keys")
    if stat.growth:
        requests = stat.growth["requests"].astype(float)
        axes.plot(requests, stat.growth[f"{unit}_total"].astype(float), color=COLOURS[0], label="seen so far")
        # The last stretch may have been cut short, and uses less for that alone.
        full = len(requests) - (len(requests) > 1 and requests[-1] % requests[0] != 0)
        in_use = stat.growth[f"{unit}_in_use"].astype(float)
        axes.plot(requests[:full], in_use[:full], color=COLOURS[1], label="in a stretch")
        axes.legend(frameon=False)
    axes.set_ylim(bottom=0)
    if unit == "bytes":
        from matplotlib.ticker import MultipleLocator

        in_bytes(axes.yaxis)
        # Binary units are divided by powers of two.
        axes.yaxis.set_major_locator(MultipleLocator(2.0 ** round(math.log2(max(axes.get_ylim()[1], 8) / 5))))
    return axes
