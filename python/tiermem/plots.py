"""Plots of what the other functions find, with matplotlib (``pip install 'tiermem[plots]'``).

Each function draws into the axes that it is given, or into new ones, and returns them. Colours can be told apart by the
colour-blind.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ._curves import Curve
from ._stat import Distribution, TraceStat

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0b62a4", "#c4500b", "#0a7d5a", "#91458c", "#8a6d00", "#5b6067")
"""Of things that have no order."""


def _axes(axes: Axes | None, title: str, x: str, y: str) -> Axes:
    if axes is None:
        import matplotlib.pyplot as plt

        _, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#8b9097", alpha=0.25, linewidth=0.8)
    return axes


def _percent(axis: Any) -> None:
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(1.0, decimals=None))


def _bytes(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: _binary(value)))


def _binary(value: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"


def mrc(curves: Iterable[Curve], axes: Axes | None = None, *, log: bool = True) -> Axes:
    """Miss ratios by size, with bands where curves come from a sample.

    Args:
        curves: What :func:`tiermem.mrc` gives, or some of it.
        axes: Where to draw.
        log: Spread sizes by their logarithms: small caches are where curves fall.
    """
    drawn = list(curves)
    unit = drawn[0].unit if drawn else "objects"
    axes = _axes(axes, "Miss ratio", f"cache size, {'bytes of values' if unit == 'bytes' else unit}", "misses of all requests")
    names: dict[str, Any] = {}
    for curve, colour in zip(drawn, itertools.cycle(COLOURS), strict=False):
        name = curve.name if curve.window == 0 else f"{curve.name}, window {curve.window}"
        sizes = curve.sizes.astype(float)
        (names[name],) = axes.plot(sizes, curve.miss_ratio, color=colour, label=name)
        if curve.error.any():
            low, high = curve.miss_ratio - curve.error, curve.miss_ratio + curve.error
            axes.fill_between(sizes, np.clip(low, 0, 1), np.clip(high, 0, 1), color=colour, alpha=0.16, linewidth=0)
    if log:
        axes.set_xscale("log", base=2 if unit == "bytes" else 10)
    if unit == "bytes":
        _bytes(axes.xaxis)
    axes.set_ylim(bottom=0)
    _percent(axes.yaxis)
    if names:
        axes.legend(frameon=False)
    return axes


def popularity(stat: TraceStat, axes: Axes | None = None) -> Axes:
    """Accesses by rank, both by their logarithms, with the Zipf distribution that fits."""
    axes = _axes(axes, "Popularity", "rank of the key", "accesses of the key")
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
    _percent(axes.yaxis)
    return axes


def sizes(stat: TraceStat, axes: Axes | None = None) -> Axes:
    """Sizes of what is asked for, by powers of two."""
    axes = _histogram(stat.size_bytes, _axes(axes, "Sizes", "size of the value", "of all requests"))
    _bytes(axes.xaxis)
    return axes


def reuse_time(stat: TraceStat, axes: Axes | None = None) -> Axes:
    """Requests between two accesses to a key, by powers of two."""
    x, y = "requests since the last access to the key", "of the requests that come again"
    axes = _histogram(stat.reuse_time_requests, _axes(axes, "Reuse time", x, y))
    axes.set_xscale("log", base=10)
    return axes


def working_set(stat: TraceStat, axes: Axes | None = None, *, unit: str = "bytes") -> Axes:
    """The working set over the trace: what was seen so far, and what was in use in each stretch.

    Args:
        stat: What :func:`tiermem.stat` gives.
        axes: Where to draw.
        unit: ``"bytes"`` or ``"keys"``.
    """
    if unit not in ("bytes", "keys"):
        raise ValueError(f"there is no unit {unit!r}; the units are 'bytes' and 'keys'")
    axes = _axes(axes, "Working set", "requests", "bytes of values" if unit == "bytes" else "keys")
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

        _bytes(axes.yaxis)
        # Binary units are divided by powers of two.
        axes.yaxis.set_major_locator(MultipleLocator(2.0 ** round(math.log2(max(axes.get_ylim()[1], 8) / 5))))
    return axes
