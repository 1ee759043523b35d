"""Miss-ratio curves: the function that users call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from . import _parts
from ._curves import Curves, Question, Sampling, Unit
from ._trace import Progress, Reading, Reporting, TraceLike, named, reading


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
    """Miss-ratio curves: the miss ratio of a cache at each size.

    Args:
        trace: A path, a generator, or an Arrow table or stream. A list of paths is the parts of one trace that
            was split by key (``tiermem trace split --parts``): each part is a spatial sample, and their mean is the whole
            curve, with an error that follows from how much they differ.
        policy: One or several names from :func:`policies`; ``"klru:2.5"`` includes its K.
        k: One or several K, for the policies that have one.
        sizes: The number of sizes, evenly spaced up to the working set, or a list of sizes.
        sample: Follow only this share of the keys (spatial sampling, SHARDS, FAST'15); curves then have an error.
        seed: Seed of the choice of keys.
        unit: Sizes count objects, or bytes of values.
        window: One curve per this many requests; caches stay warm. None: one curve for the whole trace.
        requests: Stop after this many requests.
        skip_bad: Skip up to this many broken records.
        trace_format: As for :func:`read_trace`.
        columns: As for :func:`read_trace`.
        engine: ``"ray"`` evaluates the parts of a trace on the machines of a Ray cluster. It takes a list of paths that these
            machines can read.
        progress: A callback, False for none, None for a bar if standard error is a terminal.

    Returns:
        One curve for each policy, K and window, in this order.

    Raises:
        OSError: The file cannot be read.
        ValueError: The trace or an argument is wrong; the message says where and how to fix it.
        ImportError: Ray is asked for and not installed.
    """
    how = reading(requests, skip_bad, trace_format, columns)
    question = _question(policy, k, sizes, unit, {"sample": sample, "seed": seed, "window": window}, how)
    if engine not in ("local", "ray"):
        raise ValueError(f"there is no engine {engine!r}; the engines are 'local' and 'ray'")
    if isinstance(trace, (list, tuple)):
        return _parts.mean(question, [named(part) for part in trace], engine)
    if engine == "ray":
        raise ValueError(
            "engine='ray' takes a list of files that a trace was split into by key: "
            "tiermem trace split TRACE --parts 16 -o 'part-{}.parquet'"
        )
    with Reporting(progress) as callback:
        return question.answer(named(trace), callback)  # type: ignore[arg-type]
