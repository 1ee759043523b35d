"""Cache simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._trace import Progress, Reporting, TraceLike, named, reading


@dataclass(frozen=True, eq=False)
class Simulation:
    """Counts of simulated caches: columns of equal length, one entry for each policy, K and size, in this order.

    ``k`` is 0 for policies without K. ``size`` is in objects or bytes, as requested; ``requests`` are look-ups and writes,
    ``misses`` those that did not find their object, ``bytes`` and ``miss_bytes`` the sizes of their values.
    """

    policy: tuple[str, ...]
    k: NDArray[np.uint64]
    size: NDArray[np.uint64]
    requests: NDArray[np.uint64]
    misses: NDArray[np.uint64]
    bytes: NDArray[np.uint64]
    miss_bytes: NDArray[np.uint64]

    @property
    def miss_ratio(self) -> NDArray[np.float64]:
        """Misses over requests."""
        return np.asarray(self.misses / np.maximum(self.requests, 1), dtype=np.float64)

    @property
    def byte_miss_ratio(self) -> NDArray[np.float64]:
        """Bytes of misses over bytes of requests."""
        return np.asarray(self.miss_bytes / np.maximum(self.bytes, 1), dtype=np.float64)

    def __len__(self) -> int:
        return len(self.policy)

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table`` with a column for each field, and both miss ratios."""
        import pyarrow as pa

        columns = {name: getattr(self, name) for name in ("k", "size", "requests", "misses", "bytes", "miss_bytes")}
        ratios = {"miss_ratio": self.miss_ratio, "byte_miss_ratio": self.byte_miss_ratio}
        return pa.table({"policy": list(self.policy), **columns, **ratios})


def simulate(
    trace: TraceLike,
    *,
    sizes: int | Sequence[int],
    policy: str | Sequence[str] = "lru",
    k: int | Sequence[int] = 5,
    unit: Literal["objects", "bytes"] = "objects",
    seed: int = 0,
    requests: int | None = None,
    skip_bad: int = 0,
    trace_format: str | None = None,
    columns: str | None = None,
    progress: Progress | Literal[False] | None = None,
) -> Simulation:
    """Simulates caches of every policy, K and size in one pass over a trace, as ``tiermem sim cache`` does.

    A miss inserts its object, unless that is larger than the cache. A deletion is not counted as a request.

    Args:
        trace: A path, a generator, or an Arrow table or stream.
        sizes: One or several sizes of caches.
        policy: One or several policies, such as ``"s3-fifo"``; ``"belady"`` knows the future: the bound.
        k: One or several K for ``"klru"`` and ``"redis"``.
        unit: Sizes count objects, or bytes of values.
        seed: Seed of the policies that draw at random.
        requests: Stop after this many requests.
        skip_bad: Skip up to this many broken records.
        trace_format: As for :func:`read_trace`.
        columns: As for :func:`read_trace`.
        progress: A callback, False for none, None for a bar if standard error is a terminal.

    Raises:
        OSError: The file cannot be read.
        ValueError: The trace or an argument is wrong; the message says where and how to fix it.
    """
    if unit not in ("objects", "bytes"):
        raise ValueError(f"there is no unit {unit!r}; the units are 'objects' and 'bytes'")
    listed = [sizes] if isinstance(sizes, int) else [int(size) for size in sizes]
    ks = [k] if isinstance(k, int) else [int(one) for one in k]
    if not listed or min(listed) < 1 or not ks or min(ks) < 1:
        raise ValueError("sizes and k are numbers from 1 on, one or several")
    names = [policy] if isinstance(policy, str) else list(policy)
    how = reading(requests, skip_bad, trace_format, columns)
    with Reporting(progress) as callback:
        rows = _native.simulate(named(trace), how, names, ks, listed, unit == "bytes", seed, callback)
    columns_of: list[tuple[Any, ...]] = list(zip(*rows, strict=True)) if rows else [()] * 7
    counts = [np.array([value or 0 for value in column], np.uint64) for column in columns_of[1:]]
    return Simulation(tuple(columns_of[0]), *counts)
