"""Curves of a trace in several parts, evaluated here or on the machines of a Ray cluster.

If a trace was split by a hash of its keys, each part is a spatial sample of the whole (SHARDS, FAST'15): to a part, a cache that
holds a share of the whole working set is a cache that holds the same share of the part's working set.
Misses and requests of the parts add up, so the miss ratio of the whole is the mean of theirs, weighted by requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from . import _native
from ._curves import Curve, Curves, Question
from ._trace import ArrowStream


def mean(question: Question, parts: Sequence[str | ArrowStream], engine: str) -> Curves:
    """The curves of the whole, computed from those of its parts."""
    if not parts:
        raise ValueError("a trace has at least one part")
    if question.sampling["window"] is not None:
        raise ValueError("parts have no common clock, so there are no windows; give the whole trace as one file")
    asked = question
    if question.sizes:
        # Sizes of the whole, as the part sees them.
        asked = replace(question, sizes=tuple(max(1, round(size / len(parts))) for size in question.sizes))
    if question.sampling["sample"] < 1.0:
        # Parts were told apart by the hash by which keys are sampled: another one makes the choices independent.
        asked = replace(asked, sampling={**question.sampling, "seed": question.sampling["seed"] + 1})
    answers = _with_ray(asked, parts) if engine == "ray" else [asked.answer(part) for part in parts]
    curves = [_mean(question, [answer[number] for answer in answers], answers) for number in range(len(answers[0]))]
    requests = sum(answer.requests for answer in answers)
    return Curves(tuple(curves), requests, sum(answer.keys for answer in answers))


def _mean(question: Question, curves: list[Curve], answers: list[Curves]) -> Curve:
    first = curves[0]
    if question.sizes:
        sizes = np.array(sorted(set(question.sizes)), np.uint64)
        # Sizes that fall together in a part have one point there.
        per_part = [[curve.at(size / len(curves)) for size in sizes] for curve in curves]
    else:
        # Equal shares of the working sets; small parts may have fewer points than shares.
        shares = (np.arange(question.sizes_count) + 1) / question.sizes_count
        whole = [float(curve.sizes[-1]) for curve in curves]
        sizes = np.maximum(1, np.round(shares * sum(whole))).astype(np.uint64)
        per_part = [[curve.at(share * own) for share in shares] for curve, own in zip(curves, whole, strict=True)]
    weighted = [(float(answer.requests), ratios) for answer, ratios in zip(answers, per_part, strict=True)]
    ratios, errors = _native.mean_curve([int(size) for size in sizes], weighted)
    return Curve(first.policy, first.k, first.unit, 0, sizes, np.array(ratios), np.array(errors))


def _with_ray(question: Question, parts: Sequence[str | ArrowStream]) -> list[Curves]:
    try:
        import ray
    except ImportError as error:
        raise ImportError("engine='ray' needs Ray: pip install 'tiermem[ray]', or use engine='local'") from error
    if not all(isinstance(part, str) for part in parts):
        raise ValueError("engine='ray' takes paths of files, which the machines of the cluster read by themselves")
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    answer: Any = ray.remote(Question.answer)
    return list(ray.get([answer.remote(question, part) for part in parts]))
