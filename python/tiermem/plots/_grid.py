"""Rows of a simulated grid, drawn as bars and lines."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ._axes import COLOURS, GREY, MARKERS, ordered_colours, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row: TypeAlias = dict[str, Any]
Cells: TypeAlias = dict[tuple[Hashable, Hashable], float]


def rows_of(table: Any) -> list[Row]:
    """The rows of a Parquet file, of a table of Arrow, or of dictionaries."""
    if isinstance(table, (str, os.PathLike)):
        import pyarrow.parquet as pq

        # Opened here: a single file, in a folder whose name pyarrow might take for a partition.
        table = pq.ParquetFile(table).read()
    elif hasattr(table, "__arrow_c_stream__") and not hasattr(table, "to_pylist"):
        import pyarrow as pa

        table = pa.table(table)
    rows: list[Row] = table.to_pylist() if hasattr(table, "to_pylist") else [dict(row) for row in table]
    if not rows:
        raise ValueError("there is nothing to draw: the table has no rows")
    return rows


def whole(table: Any) -> list[Row]:
    """Rows of whole traces, without those of their windows."""
    rows = [row for row in rows_of(table) if row.get("window", "all") == "all"]
    if not rows:
        raise ValueError("the table has rows of windows alone")
    return rows


def workload(row: Mapping[str, Any]) -> str:
    """The name of a trace: its file's name without folders and extensions, or the description of the generator."""
    trace = str(row["trace"])
    return trace if ":" in trace else os.path.basename(trace).split(".")[0]


def of_one(rows: Iterable[Row], wanted: str | None) -> tuple[str, list[Row]]:
    """The rows of one workload, which must be named if there are several."""
    rows = list(rows)
    names = list(dict.fromkeys(map(workload, rows)))
    if wanted is None:
        if len(names) > 1:
            raise ValueError(f"there are several workloads, of which one can be drawn: workload= one of {', '.join(names)}")
        wanted = names[0]
    if wanted not in names:
        raise ValueError(f"there is no workload {wanted!r}; there are {', '.join(names)}")
    return wanted, [row for row in rows if workload(row) == wanted]


def order(rows: Iterable[Row], key: Callable[[Row], Any], *, ascending: bool = False) -> list[Any]:
    """The distinct values of a key, in order of appearance or ascending."""
    values = list(dict.fromkeys(map(key, rows)))
    return sorted(values) if ascending else values


def cells(
    rows: Iterable[Row], x: Callable[[Row], Hashable], series: Callable[[Row], Hashable], value: Callable[[Row], float | None]
) -> Cells:
    """The value of each place and series; none if it is unknown. Rows with different values for one place are refused."""
    found: Cells = {}
    settings: dict[tuple[Hashable, Hashable], Any] = {}
    for row in rows:
        at, number = (x(row), series(row)), value(row)
        if number is None or not math.isfinite(number):
            continue
        if at in found and not math.isclose(found[at], number, rel_tol=1e-9):
            both = f"{settings[at]!r} and {row.get('setting')!r}"
            raise ValueError(f"{workload(row)} has two rows for {at[0]}, {at[1]}: {both}; leave one of them out")
        found[at], settings[at] = number, row.get("setting")
    return found


def _colours(series: Sequence[Any], ordered: bool) -> list[Any]:
    """In order or not; what stands outside of the order, None, is grey."""
    if not ordered:
        return list(itertools.islice(itertools.cycle(COLOURS), len(series)))
    inside = [one for one in series if one is not None]
    return [GREY] * (len(series) - len(inside)) + ordered_colours(len(inside))


def bars(
    axes: Axes, xs: Sequence[Any], series: Sequence[Any], values: Cells, *, ordered: bool = False,
    name: Callable[[Any], str] = str, tick: Callable[[Any], str] = str, decimals: int = 0, factor: float = 1.0,
    marks: bool = False,
) -> None:  # fmt: skip
    """Bars side by side, each with its value above it (``decimals`` of them, times ``factor``), and a dash where there is none.

    With ``marks``, marks are drawn instead, since the length of a bar means nothing on a logarithmic scale.
    """
    width = 0.84 / len(series)
    for number, (one, colour) in enumerate(zip(series, _colours(series, ordered), strict=True)):
        places = [at - 0.42 + width * (number + 0.5) for at in range(len(xs))]
        heights = [values.get((x, one), math.nan) for x in xs]
        if marks:
            marker = MARKERS[number % len(MARKERS)]
            axes.plot(places, heights, linestyle="", marker=marker, markersize=7, color=colour, label=name(one))
        else:
            axes.bar(places, heights, width=0.92 * width, color=colour, label=name(one))
        for place, height in zip(places, heights, strict=True):
            missing = math.isnan(height)
            text = "–" if missing else f"{height * factor:.{decimals}f}"
            bottom = ("data", "axes fraction") if missing else "data"
            axes.annotate(
                text, (place, 0 if missing else height), xycoords=bottom, xytext=(0, 5 if marks else 1), textcoords="offset points",
                ha="center", va="bottom", fontsize=6.5 if len(xs) * len(series) > 15 else 8, color="#222222",
            )  # fmt: skip
    axes.set_xticks(range(len(xs)), [tick(x) for x in xs])
    axes.set_xlim(-0.6, len(xs) - 0.4)


def lines(
    axes: Axes, xs: Sequence[Any], series: Sequence[Any], values: Cells, *, ordered: bool = False,
    name: Callable[[Any], str] = str, tick: Callable[[Any], str] = str,
) -> None:  # fmt: skip
    """A line for each series over places at equal distances, with a mark at each value."""
    for one, colour, marker in zip(series, _colours(series, ordered), itertools.cycle(MARKERS), strict=False):
        heights = [values.get((x, one), math.nan) for x in xs]
        axes.plot(range(len(xs)), heights, color=colour, marker=marker, markersize=5, label=name(one))
    axes.set_xticks(range(len(xs)), [tick(x) for x in xs])
    axes.set_xlim(-0.3, len(xs) - 0.7)


def legend(axes: Axes, title: str = "") -> None:
    """The legend, above the plot, in as many columns as there is room for."""
    handles, names = axes.get_legend_handles_labels()
    if len(names) > 1:
        # What the axes take of the figure's width, and what a name takes of it.
        grid = axes.get_subplotspec()
        inches = axes.get_figure(root=True).get_figwidth() / (grid.get_gridspec().ncols if grid else 1)  # type: ignore[union-attr]
        columns = min(len(names), max(1, int((inches - 0.8) / (0.45 + 0.075 * max(map(len, names))))))
        axes.legend(
            handles, names, title=title or None, frameon=False, fontsize="small", title_fontsize="small", alignment="left",
            ncols=columns, loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.2, columnspacing=1.2, handlelength=1.4,
        )  # fmt: skip
        # The title stands above the legend.
        rows = math.ceil(len(names) / columns) + bool(title)
        axes.set_title(axes.get_title(), pad=8 + 13 * rows)


def shares(axes: Axes) -> None:
    """A scale from 0 to 100%, with room for the values above the bars."""
    percent(axes.yaxis)
    axes.set_ylim(0, 1.04)
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])


def from_zero(axes: Axes) -> None:
    """A scale that begins at 0, with room for the values above the bars."""
    axes.set_ylim(0, 1.06 * max(axes.dataLim.ymax, 1e-9))


def no_value(axes: Axes, text: str) -> None:
    """A note in place of a plot that has nothing to draw."""
    axes.annotate(text, (0.5, 0.5), xycoords="axes fraction", ha="center", va="center", color=GREY)
