"""Miss-ratio curves."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .._curves import Curve
from ._axes import COLOURS, in_bytes, new_axes, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def mrc(curves: Iterable[Curve], axes: Axes | None = None, *, log: bool = True) -> Axes:
    """Miss ratios by size, with error bands if the curves come from a sample.

    Args:
        curves: The curves of :func:`tiermem.mrc`, or some of them.
        axes: Axes to draw into; None makes new ones.
        log: Logarithmic sizes: curves fall mostly at small caches.
    """
    drawn = list(curves)
    unit = drawn[0].unit if drawn else "objects"
    axes = new_axes(axes, "Miss ratio", f"cache size, {'bytes of values' if unit == 'bytes' else unit}", "misses of all requests")
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
        in_bytes(axes.xaxis)
    axes.set_ylim(bottom=0)
    percent(axes.yaxis)
    if names:
        axes.legend(frameon=False)
    return axes
