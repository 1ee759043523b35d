"""What is found of each claim: in words, and whether the shape that the work describes is there."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from measure import Row, autocorrelation, counts, main_region, rank_correlation, region_named, sweep, totals, touched_by_slice
from recordings import HERE, Tools, decode_slice_ms, said

Verdict = tuple[str, bool | None]
PAGE_BYTES = 4096


def layout(tools: Tools, model: str) -> dict[str, Any]:
    """Of a model's file."""
    command = [sys.executable, str(HERE / "gguf_layers.py"), str(tools.folder / f"{model}.gguf"), "--summary"]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def dense(rows: list[Row]) -> list[float]:
    """Accesses of each granule from the first to the last."""
    by_granule = totals(rows)
    return [by_granule.get(at, 0.0) for at in range(max(by_granule) + 1)]


def stride(tools: Tools) -> Verdict:
    """Of all loads, the period against the file's layers."""
    row = region_named(tools, "layers", "layers.gguf")
    wanted = layout(tools, "layers")["stride_bytes"] / PAGE_BYTES
    found = row["period_granules"]
    return f"period of {found} granules of 4 KiB; layers follow each other at {wanted:.2f}", found == round(wanted)


def at_stride(tools: Tools, *words: str) -> tuple[float, list[float], int]:
    """The autocorrelation at the layer's stride."""
    values = dense(counts(tools, "layers", "layers.gguf", *words))
    lag = round(layout(tools, "layers")["stride_bytes"] / PAGE_BYTES)
    return autocorrelation(values, lag), values, lag


def autocorrelation_all(tools: Tools) -> Verdict:
    """Of all loads."""
    height, _, lag = at_stride(tools)
    return f"{height:.2f} at {lag} granules", height >= 0.5


def autocorrelation_memory(tools: Tools) -> Verdict:
    """Of loads that the modelled cache does not answer."""
    height, _, lag = at_stride(tools, "--access", "memory")
    everything, *_ = at_stride(tools)
    return f"{height:.2f} at {lag} granules, all accesses {everything:.2f}", height > everything


def second_peak(tools: Tools) -> Verdict:
    """Within a stride, the lag with the next highest correlation."""
    _, values, lag = at_stride(tools)
    heights = {at: autocorrelation(values, at) for at in range(lag // 8, lag - lag // 8)}
    best = max(heights, key=lambda at: heights[at])
    return f"{heights[best]:.2f} at {best} granules, {best / lag:.2f} of the stride", abs(best / lag - 1 / 3) < 0.05


def hot_vector(tools: Tools) -> Verdict:
    """Accesses of a KiB of the vector beside one of the matrix; the matrix has the largest region of all."""
    told = said(tools, "vector")
    by_place = {place: by_address(tools, *told[place]) for place in ("matrix", "vector")}
    all_of = {place: sum(values) for place, values in by_place.items()}
    per_kib = {place: statistics.median(values) for place, values in by_place.items()}
    share = all_of["vector"] / sum(all_of.values())
    times = per_kib["vector"] / per_kib["matrix"]
    found = f"{times:.0f} times as often, KiB for KiB; {share:.0%} of the loads of both are the vector's"
    return found, share > 0.5


def vector_period(tools: Tools) -> Verdict:
    """Whether granules of the vector differ."""
    inner = by_address(tools, *said(tools, "vector")["vector"])[1:-1]
    spread = statistics.pstdev(inner) / statistics.fmean(inner)
    return f"accesses of its KiB differ by {spread:.1%} (standard deviation)", spread > 0.05


def by_address(tools: Tools, start: int, length: int) -> list[float]:
    """Accesses of each granule of a stretch, which the program has told by its addresses."""
    table = pq.read_table(tools.folder / "vector.rec", columns=["key", "weight"])
    found: dict[int, float] = {}
    for address, weight in zip(table["key"].to_pylist(), table["weight"].to_pylist(), strict=True):
        if start <= address < start + length:
            at = address >> 10
            found[at] = found.get(at, 0.0) + weight
    return [value for _, value in sorted(found.items())]


def token_s(tools: Tools) -> float:
    """How long the program took for a token."""
    return 1 / float(said(tools, "decode")["decode_tokens_per_s"])


def weights_rows(tools: Tools) -> tuple[list[Row], int]:
    """Granules of the weights by slice while tokens are decoded, which the program does last, and how many there are."""
    region = main_region(tools, "decode")
    rows = counts(tools, "decode", region["name"])
    told = said(tools, "decode")
    slices = max(row["slice"] for row in rows)
    loading = round(slices * told["load_s"] / (told["load_s"] + told["decode_s"])) + 1
    return [row for row in rows if row["slice"] > loading], region["bytes"] // region["granule_bytes"]


def long_slices(tools: Tools) -> Verdict:
    """Slices taken together until they are longer than two tokens."""
    rows, granules = weights_rows(tools)
    together = int(2000 * token_s(tools) / decode_slice_ms(tools)) + 1
    merged = [row | {"slice": row["slice"] // together} for row in rows]
    pairs = {(row["slice"], row["granule"]) for row in merged if row["accesses"] > 0}
    shares = touched_by_slice([{"slice": of, "accesses": 1} for of, _ in sorted(pairs)], granules)
    middle = shares[1:-1] or shares
    return f"{min(middle):.0%} at least, {statistics.median(middle):.0%} in the median", min(middle) > 0.9


def short_slices(tools: Tools) -> Verdict:
    """Each slice as it was recorded."""
    rows, granules = weights_rows(tools)
    shares = touched_by_slice(rows, granules)
    middle = statistics.median(shares)
    return f"{middle:.0%} of the granules are accessed in the median slice", middle < 0.9


def path(tools: Tools) -> Verdict:
    """The way of the hotspot, by the plan."""
    found = sweep(tools, "decode")
    if found is None:
        return "no hotspot was found to move", False
    direction = "low to high" if found["bytes_per_s"] > 0 else "high to low"
    period = found["period_ns"] / 1e9
    span = found["span"]["bytes"] >> 20
    text = f"from {direction} addresses, through {span} MiB every {period:.2f} s; a token takes {token_s(tools):.2f} s"
    return text, found["bytes_per_s"] < 0


def true_heat(tools: Tools) -> float:
    """The rank correlation of what `refs` saw with what the program counted."""
    region = main_region(tools, "skewed")
    seen = totals(counts(tools, "skewed", region["name"]))
    lines = (line.split(",") for line in (tools.folder / "skewed.out").read_text().splitlines())
    counted = {int(words[0]): float(words[1]) for words in lines if len(words) == 2 and words[0].isdigit()}
    # The table begins a little behind its region's start: most of a granule is what counts.
    return rank_correlation([(seen.get(at, 0.0), reads) for at, reads in counted.items()])


CHECKS: dict[str, Callable[[Tools], Verdict]] = {
    check.__name__: check
    for check in (
        stride, autocorrelation_all, autocorrelation_memory, second_peak,
        hot_vector, vector_period, long_slices, short_slices, path,
    )
}  # fmt: skip


def recorded(tools: Tools, name: str) -> bool:
    """Whether there is such a recording."""
    return Path(tools.folder / f"{name}.rec").exists()
