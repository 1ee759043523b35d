"""Shared by all plots: axes, colours, units."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0b62a4", "#c4500b", "#0a7d5a", "#91458c", "#8a6d00", "#5b6067")
"""Of things that have no order."""

MARKERS = ("o", "s", "^", "D", "v", "P")
"""Beside the colours, for lines that lie close together."""

GREY = "#8b9097"


def ordered_colours(count: int) -> list[Any]:
    """Colours of ordered things, from light to dark: they differ in lightness, so hues need not be seen."""
    from matplotlib import colormaps

    return [colormaps["viridis"](0.88 - 0.8 * at / max(count - 1, 1)) for at in range(count)]


def new_axes(axes: Axes | None, title: str, x: str, y: str) -> Axes:
    """The given axes or new ones, with title and labels."""
    if axes is None:
        import matplotlib.pyplot as plt

        _, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=GREY, alpha=0.25, linewidth=0.8)
    axes.set_axisbelow(True)
    return axes


def percent(axis: Any) -> None:
    """Shares as percent."""
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(1.0, decimals=None))


def in_bytes(axis: Any) -> None:
    """Bytes in binary units."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: binary(value)))


def in_time(axis: Any) -> None:
    """Nanoseconds on a logarithmic scale, in the unit that suits them."""
    log_ticks(axis, duration)


def log_ticks(axis: Any, form: Callable[[float], str]) -> None:
    """Ticks at powers of ten, and between them if there are few."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    if high < 100 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: form(value)))
    axis.set_minor_formatter(NullFormatter())


def binary(value: float) -> str:
    """Bytes in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"


def duration(value_ns: float) -> str:
    """A time in the unit that suits it."""
    for unit in ("ns", "us", "ms"):
        if abs(value_ns) < 1000:
            return f"{value_ns:.3g} {unit}"
        value_ns /= 1000
    return f"{value_ns:.4g} s"
