"""The report page."""

from __future__ import annotations

import os
import pathlib
from typing import Literal, TypedDict

from . import _native
from ._trace import Progress, Reporting, TraceLike, named, reading


class Prices(TypedDict):
    """What memory and misses cost; None takes the default."""

    dram_per_gb: float | None
    cxl_per_gb: float | None
    months: float | None
    per_million_misses: float | None


def report(
    trace: TraceLike,
    output: str | os.PathLike[str] = "report.html",
    *,
    name: str | None = None,
    sample: float | None = None,
    seed: int = 0,
    price_dram: float | None = None,
    price_cxl: float | None = None,
    price_misses: float | None = None,
    months: float | None = None,
    requests: int | None = None,
    skip_bad: int = 0,
    trace_format: str | None = None,
    columns: str | None = None,
    progress: Progress | Literal[False] | None = None,
) -> pathlib.Path:
    """Writes one self-contained HTML page about a trace, as ``tiermem report`` does.

    Args:
        trace: A path, a generator, or an Arrow table or stream.
        output: The file to write.
        name: The title of the trace on the page; by default the file's name without folders.
        sample: Follow only this share of the keys. None follows all keys of tables, streams and traces of up to 3 million
            requests, and a sample of longer traces; the page says which.
        seed: Seed of the choice of keys.
        price_dram: Dollars per GB of DRAM (4.875).
        price_cxl: Dollars per GB of CXL memory (by default half of DRAM's, which is an assumption).
        price_misses: Dollars per million misses.
        months: Lifetime of memory that is bought (36).
        requests: Stop after this many requests.
        skip_bad: Skip up to this many broken records.
        trace_format: As for :func:`read_trace`.
        columns: As for :func:`read_trace`.
        progress: A callback, False for none, None for a bar if standard error is a terminal.

    Returns:
        The path of the page.

    Raises:
        OSError: The trace cannot be read, or the page cannot be written.
        ValueError: The trace or an argument is wrong; the message says where and how to fix it.
    """
    source = named(trace)
    if name is None:
        is_file = isinstance(source, str) and pathlib.Path(source).exists()
        name = pathlib.Path(str(source)).name if is_file else source if isinstance(source, str) else "a table"
    prices: Prices = {
        "dram_per_gb": price_dram,
        "cxl_per_gb": price_cxl,
        "months": months,
        "per_million_misses": price_misses,
    }
    how = reading(requests, skip_bad, trace_format, columns)
    path = pathlib.Path(output)
    # What cannot be written shall not be computed for minutes first; an older page stays until the new one is there.
    is_new = not path.exists()
    with path.open("a"):
        pass
    try:
        with Reporting(progress) as callback:
            page = _native.report(source, how, name, sample, seed, prices, callback)
        path.write_text(page, encoding="utf-8")
    except BaseException:
        if is_new:
            path.unlink()
        raise
    return path
