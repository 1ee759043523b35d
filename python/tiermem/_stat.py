"""Statistics of a trace."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._trace import Progress, Reporting, TraceLike, named, reading


@dataclass(frozen=True, eq=False)
class Distribution:
    """The distribution of one quantity.

    ``p50`` to ``p999`` are percentiles to three digits. The histogram has buckets by powers of two: ``bucket_count[i]`` values lie
    between ``bucket_from[i]`` and ``bucket_to[i]``, both included; the three arrays (uint64) have the same length.
    """

    count: int
    min: int
    mean: float
    p50: int
    p90: int
    p99: int
    p999: int
    max: int
    bucket_from: NDArray[np.uint64]
    bucket_to: NDArray[np.uint64]
    bucket_count: NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class TraceStat:
    """Statistics of a trace; names, units and meanings are those of ``tiermem trace stat --help``.

    ``popularity`` (``rank``, ``accesses``) and ``growth`` (``requests``, ``time_ns``, ``keys_total``, ``bytes_total``,
    ``keys_in_use``, ``bytes_in_use``, ``keys_new``) map column names to arrays (uint64) of equal length. A
    distribution is None if the trace has no such values.
    """

    requests: int
    sample_rate: float
    unique_keys: int
    working_set_bytes: int
    requested_bytes: int
    reads: int
    writes: int
    deletes: int
    read_write_ratio: float | None
    compulsory_miss_ratio: float
    one_hit_keys: int
    one_hit_ratio: float
    duration_ns: int
    requests_per_second: float | None
    time_steps_back: int
    zipf: Mapping[str, float | None] | None
    ops: tuple[Mapping[str, Any], ...]
    tenants: tuple[Mapping[str, Any], ...]
    size_bytes: Distribution | None
    inter_arrival_ns: Distribution | None
    reuse_time_requests: Distribution | None
    stack_distance_keys: Distribution | None
    accesses_per_key: Distribution | None
    popularity: Mapping[str, NDArray[np.uint64]]
    growth: Mapping[str, NDArray[np.uint64]]
    spatial: Mapping[str, Any]
    addresses: Mapping[str, float] | None


_DISTRIBUTIONS = ("size_bytes", "inter_arrival_ns", "reuse_time_requests", "stack_distance_keys", "accesses_per_key")


def _distribution(of: dict[str, Any] | None) -> Distribution | None:
    if of is None:
        return None
    histogram = of.pop("histogram")
    return Distribution(
        **of,
        bucket_from=_column(histogram, "from"),
        bucket_to=_column(histogram, "to"),
        bucket_count=_column(histogram, "count"),
    )


def _column(rows: list[dict[str, int]], name: str) -> NDArray[np.uint64]:
    return np.array([row[name] for row in rows], dtype=np.uint64)


def stat(
    trace: TraceLike,
    *,
    sample: float = 1.0,
    block: int | None = None,
    requests: int | None = None,
    skip_bad: int = 0,
    trace_format: str | None = None,
    columns: str | None = None,
    progress: Progress | Literal[False] | None = None,
) -> TraceStat:
    """Computes the statistics of a trace in one pass.

    Args:
        trace: A path, a generator, or an Arrow table or stream.
        sample: Follow only this share of the keys (spatial sampling); figures about keys are then estimates.
        block: Units of the key in a block, for spatial locality; None derives it from the operations.
        requests: Stop after this many requests.
        skip_bad: Skip up to this many broken records.
        trace_format: As for :func:`read_trace`.
        columns: As for :func:`read_trace`.
        progress: A callback, False for none, None for a bar if standard error is a terminal.

    Raises:
        OSError: The file cannot be read.
        ValueError: The trace or an argument is wrong; the message says where and how to fix it.
    """
    how = reading(requests, skip_bad, trace_format, columns)
    with Reporting(progress) as callback:
        found = json.loads(_native.stat(named(trace), how, sample, block, callback))
    for name in _DISTRIBUTIONS:
        found[name] = _distribution(found[name])
    for name in ("popularity", "growth"):
        rows = found[name]
        found[name] = {column: _column(rows, column) for column in (rows[0] if rows else ())}
    for name in ("ops", "tenants"):
        found[name] = tuple(found[name])
    return TraceStat(**{field.name: found[field.name] for field in fields(TraceStat)})
