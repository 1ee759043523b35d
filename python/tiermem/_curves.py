"""Miss-ratio curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._trace import ArrowStream, Progress, Reading, Reporting, TraceLike, named, reading

Unit = Literal["objects", "bytes"]


class Sampling(TypedDict):
    """Which keys are looked at, and in which windows."""

    sample: float
    seed: int
    window: int | None


@dataclass(frozen=True, eq=False)
class Curve:
    """The miss ratio of one policy as a function of the cache's size.

    ``sizes`` (uint64, ascending, in ``unit``), ``miss_ratio`` (float64, misses over requests) and ``error`` (float64) are equally
    long. The truth lies within ``miss_ratio`` plus or minus ``error`` in 95 of 100 samples; 0 where nothing was sampled.
    ``k`` is None for policies that have none; ``window`` counts the stretches of the trace.
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
        """The miss ratio at a size: straight between points and from 1 at size 0, constant beyond the last."""
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
    """What curves are asked for, in a form that can be sent to another machine."""

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


def _names(policy: str | Sequence[str]) -> tuple[str, ...]:
    return (policy,) if isinstance(policy, str) else tuple(policy)


def _question(
    policy: str | Sequence[str],
    k: float | Sequence[float],
    sizes: int | Sequence[int],
    unit: Unit,
    sampling: Sampling,
    how: Reading,
) -> Question:
    ks = (float(k),) if isinstance(k, (int, float)) else tuple(float(one) for one in k)
    count, listed = (sizes, ()) if isinstance(sizes, int) else (0, tuple(int(size) for size in sizes))
    if count < 1 and not listed:
        raise ValueError("sizes is how many sizes there shall be, from 1 on, or a sequence of sizes")
    if any(size < 1 for size in listed):
        raise ValueError("a cache of size 0 misses everything; sizes start at 1")
    return Question(_names(policy), ks, listed, count, unit, sampling, how)


def mrc(
    trace: TraceLike | Sequence[TraceLike],
    *,
    policy: str | Sequence[str] = "lru",
    k: float | Sequence[float] = 5,
    sizes: int | Sequence[int] = 25,
    sample: float = 1.0,
    seed: int = 0,
    unit: Unit = "objects",
    window: int | None = None,
    requests: int | None = None,
    skip_bad: int = 0,
    trace_format: str | None = None,
    columns: str | None = None,
    engine: Literal["local", "ray"] = "local",
    progress: Progress | Literal[False] | None = None,
) -> Curves:
    """Miss-ratio curves: how much a cache of each size would miss.

    Args:
        trace: A path, a generator, or a table or stream of Arrow. A list of paths is taken as the parts of one trace that
            was split by key (``tiermem trace split --parts``): each part is a spatial sample, and their mean is the whole
            curve, with an error that follows from how much they differ.
        policy: One or several names out of :func:`policies`; ``"klru:2.5"`` brings its K along.
        k: One or several K for the policies that have one.
        sizes: So many sizes evenly over the working set, or the sizes.
        sample: Look at this share of the keys only (spatial sampling, SHARDS, FAST'15); curves carry an error then.
        seed: Another choice of keys.
        unit: Count sizes in objects or in bytes of values.
        window: A curve for every so many requests; caches stay warm. None is one curve for all.
        requests: Stop after so many.
        skip_bad: Pass over so many broken records.
        trace_format: As for :func:`read_trace`.
        columns: As for :func:`read_trace`.
        engine: ``"ray"`` looks at the parts of a trace on the machines of a Ray cluster. It takes a list of paths that these
            machines can read.
        progress: A callback, False for none, None for a bar if standard error is a terminal.

    Returns:
        For each policy, K and window one curve, in this order.

    Raises:
        OSError: The file cannot be read.
        ValueError: The trace or an argument is wrong; the message says where and how to mend it.
        ImportError: Ray is asked for and not installed.
    """
    how = reading(requests, skip_bad, trace_format, columns)
    question = _question(policy, k, sizes, unit, {"sample": sample, "seed": seed, "window": window}, how)
    if engine not in ("local", "ray"):
        raise ValueError(f"there is no engine {engine!r}; the engines are 'local' and 'ray'")
    if isinstance(trace, (list, tuple)):
        from . import _parts

        return _parts.mean(question, [named(part) for part in trace], engine)
    if engine == "ray":
        raise ValueError(
            "engine='ray' takes a list of files that a trace was split into by key: "
            "tiermem trace split TRACE --parts 16 -o 'part-{}.parquet'"
        )
    with Reporting(progress) as callback:
        return question.answer(named(trace), callback)  # type: ignore[arg-type]
