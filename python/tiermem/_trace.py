"""Opening traces, and the arguments that all functions with a trace share."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Literal, Protocol, TypedDict, Union, runtime_checkable

from . import _native

Progress = Callable[[str, float, float | None], object]
"""Called as ``progress(stage, done, total)``; ``total`` is None where it is not known."""


@runtime_checkable
class ArrowStream(Protocol):
    """Any object with the Arrow stream interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The stream as a capsule."""


TraceLike = Union[str, "os.PathLike[str]", ArrowStream]


class Reading(TypedDict):
    """How a file is read."""

    requests: int | None
    skip_bad: int
    trace_format: str | None
    columns: str | None
    addresses: Literal["virtual", "physical"]


def reading(
    requests: int | None,
    skip_bad: int,
    trace_format: str | None,
    columns: str | None,
    addresses: Literal["virtual", "physical"] = "virtual",
) -> Reading:
    """The arguments by their names, checked."""
    if requests is not None and requests < 0:
        raise ValueError(f"requests is a number from 0 on, not {requests}")
    if skip_bad < 0:
        raise ValueError(f"skip_bad is a number from 0 on, not {skip_bad}")
    return {
        "requests": requests,
        "skip_bad": skip_bad,
        "trace_format": trace_format,
        "columns": columns,
        "addresses": addresses,
    }


def named(trace: TraceLike) -> str | ArrowStream:
    """A path as text, anything else as it is."""
    return os.fspath(trace) if isinstance(trace, os.PathLike) else trace


class _Bar:
    """A progress line on a terminal."""

    def __init__(self) -> None:
        self._drawn_at = self._started_at = time.monotonic()
        self._drawn = False

    def __call__(self, stage: str, done: float, total: float | None) -> None:
        now = time.monotonic()
        # What is over within a second needs no bar.
        if now - self._started_at < 1 or now - self._drawn_at < 0.2:
            return
        self._drawn_at, self._drawn = now, True
        share = f"{100 * done / total:5.1f}%" if total else f"{done:,.0f} requests"
        print(f"\r{stage} {share} ", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Clears the line."""
        if self._drawn:
            print("\r" + " " * 40 + "\r", end="", file=sys.stderr, flush=True)


class Reporting:
    """The progress callback of a call, for a ``with`` statement: the user's, a bar on a terminal, or none."""

    def __init__(self, progress: Progress | Literal[False] | None) -> None:
        self._bar = _Bar() if progress is None and sys.stderr.isatty() else None
        self._callback = self._bar if progress is None else progress or None

    def __enter__(self) -> Progress | None:
        return self._callback

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.close()


def read_trace(
    path: str | os.PathLike[str],
    *,
    requests: int | None = None,
    skip_bad: int = 0,
    trace_format: str | None = None,
    columns: str | None = None,
    addresses: Literal["virtual", "physical"] = "virtual",
    batch_records: int = 65_536,
) -> _native.TraceStream:
    """Opens a trace as a stream of Arrow record batches, read lazily.

    Args:
        path: A trace file (plain or .gz, .zst, .xz, .bz2), or the description of a generator.
        requests: Stop after this many requests.
        skip_bad: Skip up to this many broken records.
        trace_format: The name of the format, if it is not detected from the file.
        columns: The meaning of the columns of a text file, such as ``"key=2,size=3,time=1,unit=ms"``.
        addresses: Which address of a memory trace is the key; only ``tiermem record --physical`` records physical ones.
        batch_records: Rows per batch.

    Returns:
        A stream with the columns ``time_ns`` (uint64, nanoseconds since the start), ``op`` (dictionary), ``key`` (uint64), ``size``
        (uint32, bytes), ``tenant`` (uint32), ``key_size`` (uint16, bytes) and ``ttl_s`` (uint32, seconds). Pass it to pyarrow,
        polars, duckdb or pandas as it is, or call ``to_table()`` or ``to_reader()``. Buffers are not copied. The stream can be
        read once.

    Raises:
        OSError: The file cannot be read (FileNotFoundError and similar).
        ValueError: The format is unknown, or a description is wrong. Broken records raise an error where the stream is read.
    """
    how = reading(requests, skip_bad, trace_format, columns, addresses)
    return _native.read_trace(os.fspath(path), how, batch_records)


def generate(spec: str, *, batch_records: int = 65_536) -> _native.TraceStream:
    """The accesses of a generator, such as ``"zipf:alpha=0.99,objects=1M,requests=10M"``; see ``docs/generators.md``.

    Equal descriptions give equal traces on every machine.

    Returns:
        A stream like that of :func:`read_trace`.

    Raises:
        ValueError: The description is wrong; the message says what is allowed.
    """
    return _native.generate(spec, batch_records)
