"""How the figures are laid out from the rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bars import Bar, Panel, picture
from judge import OURS, SEED, SEED_UNITS, Row, known, units_of

KIB = 1 << 10
MIB = 1 << 20
# From Okabe and Ito's colours, which are told apart with any kind of colour vision; shades go from small blocks to large ones.
COLOURS = {
    "32K whole": "#b9dcf2", "64K whole": "#7cbfe6", "128K whole": "#3a94cf", "256K whole": "#00588f",
    "32K units": "#d9d9d9", "64K units": "#b3b3b3", "128K units": "#858585", "256K units": "#525252",
    SEED: "#e69f00", SEED_UNITS: "#f3d27a", OURS: "#d55e00",
}  # fmt: skip
KINDS = [
    ("fixed, whole fills (darker: larger blocks)", COLOURS["128K whole"]),
    ("fixed, sub-block", COLOURS["128K units"]),
    ("seed: adaptive by request, whole fills", COLOURS[SEED]),
    ("seed units: the same, sub-block", COLOURS[SEED_UNITS]),
    ("ours: as observed, sub-block", COLOURS[OURS]),
]
MOVED = [
    ("core_read_bytes", "read from the store", "#0072b2"),
    ("core_written_bytes", "written to the store", "#56b4e9"),
    ("cache_read_bytes", "read from the cache", "#e69f00"),
    ("cache_written_bytes", "written to the cache", "#f3d27a"),
]
# Requests of at most so many bytes, and more than those before.
STEPS = [
    (4096, "at most 4 KiB", "#d9d9d9"), (32768, "to 32 KiB", "#b9dcf2"), (65536, "to 64 KiB", "#3a94cf"),
    (262144, "to 256 KiB", "#00588f"), (None, "larger", "#222222"),
]  # fmt: skip


def named(of: dict[str, Row], metric: str, unit: str, title: str, scale: float = 1.0, digits: int = 0) -> Panel:
    """A panel with a bar for each contender that has the figure."""
    bars = []
    for name, colour in COLOURS.items():
        if (value := known(of, name, metric)) is not None:
            row, value = of[name], value / scale
            ends = (
                (row[f"{metric}_low"] / scale, row[f"{metric}_high"] / scale)
                if row.get("rounds", 1) > 1 and f"{metric}_low" in row
                else None
            )
            bars.append(Bar(name, [(value, colour)], f"{value:,.{digits}f}", ends))
    return Panel(title, unit, bars)


def of_latencies(rows: list[Row], claim: dict[str, Any]) -> str:
    """Reads to the left, writes to the right."""
    live = "read_mean_us" in rows[0]
    metrics = ("read_mean_us", "write_mean_us") if live else ("read_latency_us", "write_latency_us")
    panels = [
        [named(of, metric, "us", f"{unit}: {words}") for metric, words in zip(metrics, ("reads", "writes"), strict=True)]
        for unit, of in units_of(rows, claim).items()
    ]
    spread = "median of rounds, line: lowest to highest" if live else "reckoned from the devices' prices"
    return picture(f"Mean latency of requests ({spread})", panels, KINDS)


def of_hits(rows: list[Row], claim: dict[str, Any]) -> str:
    """Hit ratios, reads to the left, writes to the right."""
    panels = [
        [named(of, f"{op}_hit_ratio", "% of requests", f"{unit}: {op}s that hit", 0.01, 1) for op in ("read", "write")]
        for unit, of in units_of(rows, claim).items()
    ]
    return picture("Requests that find all they ask for, whole traces (simulated)", panels, KINDS)


def in_pairs(panels: list[Panel]) -> list[list[Panel]]:
    """Two in a row."""
    return [panels[at : at + 2] for at in range(0, len(panels), 2)]


def of_volumes(rows: list[Row], claim: dict[str, Any]) -> str:
    """The four volumes of each contender, one behind the other."""
    panels = []
    for unit, of in units_of(rows, claim).items():
        bars = []
        for name in COLOURS:
            if name in of:
                parts = [(of[name][metric] / MIB, colour) for metric, _, colour in MOVED]
                bars.append(Bar(name, parts, f"{sum(value for value, _ in parts):,.0f}"))
        panels.append(Panel(unit, "MiB", bars))
    return picture("What is moved while a trace is replayed", in_pairs(panels), [(words, colour) for _, words, colour in MOVED])


def of_memory(rows: list[Row], claim: dict[str, Any]) -> str:
    """What metadata take, in the mean over the replay."""
    units = units_of(rows, claim, shared=True)
    panels = [named(of, "metadata_mean_bytes", "KiB", unit, KIB) for unit, of in units.items()]
    return picture("Memory of metadata, mean over the replay", in_pairs(panels), KINDS)


def of_sizes_given(rows: list[Row], claim: dict[str, Any]) -> str:
    """Mean sizes of requests that miss, and of blocks."""
    panels = []
    for unit, of in units_of(rows, claim).items():
        bars = []
        for name in (SEED, SEED_UNITS, OURS):
            for metric, words, colour in (
                ("mean_missed_request_bytes", "asked", "#999999"),
                ("mean_block_bytes", "given", COLOURS[name]),
            ):
                if (value := known(of, name, metric)) is not None:
                    bars.append(Bar(f"{name}: {words}", [(value / KIB, colour)], f"{value / KIB:.1f}"))
        panels.append(Panel(unit, "KiB", bars))
    legend = [("mean size of requests that miss", "#999999"), *KINDS[2:]]
    return picture("Requests that miss, and the blocks allocated for them", in_pairs(panels), legend)


def of_processing(rows: list[Row], claim: dict[str, Any]) -> str:
    """The time from receipt to dispatch: the mean to the left, the median to the right."""
    panels = [
        [
            named(of, f"processing_{metric}_ns", "us", f"{unit}: {words}", 1000, 1)
            for metric, words in (("mean", "mean"), ("p50", "median"))
        ]
        for unit, of in units_of(rows, claim).items()
    ]
    return picture("From receipt to dispatch (median of rounds, line: lowest to highest)", panels, KINDS)


def of_instructions(rows: list[Row], claim: dict[str, Any]) -> str:
    """The instructions that the decisions take."""
    panels = [named(of, "processing", "instructions", unit) for unit, of in units_of(rows, claim).items()]
    return picture("Instructions for a request: look-up, sizes, allocation, eviction (counted)", in_pairs(panels), KINDS)


def of_request_sizes(rows: list[Row], _: dict[str, Any]) -> str:
    """How many requests are how large."""
    bars = []
    for row in rows:
        parts, below = [], 0.0
        for limit, _words, colour in STEPS:
            share = 100 * row["at_most"][str(limit)] if limit else 100.0
            parts.append((share - below, colour))
            below = share
        bars.append(Bar(row["workload"], parts, f"{row['requests']:,}"))
    return picture(
        "Sizes of requests",
        [[Panel("share of requests; how many there are", "%", bars)]],
        [(words, colour) for _, words, colour in STEPS],
    )


DRAW: dict[str, Callable[[list[Row], dict[str, Any]], str]] = {
    "fig2.3": of_request_sizes,
    "fig2.7": of_latencies,
    "fig2.8": of_latencies,
    "fig2.9": of_processing,
    "instructions": of_instructions,
    "fig2.10": of_volumes,
    "fig2.11": of_hits,
    "latencies": of_latencies,
    "fig2.12": of_memory,
    "fig2.13": of_sizes_given,
}


def draw(figure: dict[str, Any], rows: list[Row], out: Path) -> bool:
    """Draws a figure, if there is anything to be drawn."""
    if figure["of"] != "sizes" and not units_of(rows, figure):
        return False
    (out / f"{figure['name']}.svg").write_text(DRAW[figure["name"]](rows, figure))
    return True
