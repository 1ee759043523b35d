"""Miss-ratio curves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._trace import ArrowStream, Progress, Reading

Unit = Literal["objects", "bytes"]


class Sampling(TypedDict):
    """Which keys are sampled, and the length of windows."""

    sample: float
    seed: int
    window: int | None


@dataclass(frozen=True, eq=False)
class Curve:
    """The miss ratio of one policy as a function of the cache's size.

    ``sizes`` (uint64, ascending, in ``unit``), ``miss_ratio`` (float64, misses over requests) and ``error`` (float64) have the
    same length. The truth lies within ``miss_ratio`` plus or minus ``error`` in 95 of 100 samples; ``error`` is 0 without
    sampling. ``k`` is None for policies without K; ``window`` is the number of the window of the trace.
    """

    policy: str
    k: float | None
    unit: Unit
    window: int
    sizes: NDArray[np.uint64]
    miss_ratio: NDArray[np.float64]
    error: NDArray[np.float64]

    @property
    def name(self) -> str:
        """The policy with its K."""
        return self.policy if self.k is None else f"{self.policy}, K = {self.k:g}"

    def at(self, size: float) -> float:
        """The miss ratio at a size: interpolated linearly, from 1 at size 0; constant beyond the last point."""
        known = np.concatenate(([0.0], self.sizes.astype(np.float64)))
        return float(np.interp(size, known, np.concatenate(([1.0], self.miss_ratio))))


@dataclass(frozen=True, eq=False)
class Curves:
    """Curves of one trace: a sequence of :class:`Curve`.

    ``requests`` are the look-ups and writes of the trace, ``keys`` its distinct keys (an estimate where it was sampled).
    """

    curves: tuple[Curve, ...]
    requests: int
    keys: float

    def __iter__(self) -> Iterator[Curve]:
        return iter(self.curves)

    def __len__(self) -> int:
        return len(self.curves)

    def __getitem__(self, number: int) -> Curve:
        return self.curves[number]

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table`` with the fields of ``tiermem mrc``: policy, k (0: none), size, miss_ratio, error, window."""
        import pyarrow as pa

        lengths = [len(curve.sizes) for curve in self.curves]

        def repeated(values: list[Any]) -> NDArray[Any]:
            return np.repeat(np.array(values), lengths)

        def joined(arrays: list[NDArray[Any]]) -> NDArray[Any]:
            return np.concatenate(arrays) if arrays else np.array([])

        return pa.table(
            {
                "policy": pa.array(repeated([curve.policy for curve in self.curves]), pa.string()),
                "k": pa.array(repeated([curve.k or 0.0 for curve in self.curves]), pa.float64()),
                "size": pa.array(joined([curve.sizes for curve in self.curves]), pa.uint64()),
                "miss_ratio": pa.array(joined([curve.miss_ratio for curve in self.curves]), pa.float64()),
                "error": pa.array(joined([curve.error for curve in self.curves]), pa.float64()),
                "window": pa.array(repeated([curve.window for curve in self.curves]), pa.int64()),
            }
        )


@dataclass(frozen=True)
class Question:
    """A request for curves, in a form that can be sent to another machine."""

    policies: tuple[str, ...]
    ks: tuple[float, ...]
    sizes: tuple[int, ...]
    sizes_count: int
    unit: Unit
    sampling: Sampling
    reading: Reading

    def answer(self, trace: str | ArrowStream, progress: Progress | None = None) -> Curves:
        """The curves of a trace."""
        rows, requests, keys = _native.mrc(
            trace,
            self.reading,
            self.policies,
            self.ks,
            self.sizes,
            self.sizes_count,
            self.unit,
            self.sampling,
            progress,
        )
        curves = tuple(
            Curve(policy, k, self.unit, window, np.array(sizes, np.uint64), np.array(ratios), np.array(errors))
            for policy, k, window, sizes, ratios, errors in rows
        )
        return Curves(curves, requests, keys)
