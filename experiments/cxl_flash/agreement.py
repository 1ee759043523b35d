#!/usr/bin/env python3
"""Holds `tiermem sim cxl-flash --compat atc23` against what the published simulator gave.

    experiments/cxl_flash/agreement.py --tiermem target/release/tiermem --out docs/results/cxl-flash-atc23.md

Theirs is MQSim_CXL_Linux at commit 3701f7b, run once per row: 64 MiB of cache, 16-way CFLRU, before 64 GiB of flash of
8 x 8, 3/100/1000 us. The traces are made here: a footprint of 1 GiB, 30% writes, 200 ns between requests on average.
"""

from __future__ import annotations

import argparse
import bisect
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

WORD = (1 << 64) - 1
FOOTPRINT_BYTES = 1 << 30
REQUESTS = {"zipf": 2_000_000, "stride": 1_000_000, "random": 1_000_000}
# Trace, settings; requests below 1 us in percent, mean latency in ns, flash reads, flash writes, thousand requests a second.
THEIRS = [
    ("zipf", "prefetch=none", 69.34, 4232, 153267, 105035, 278),
    ("zipf", "prefetch=next-n", 65.48, 5850, 845349, 126843, 135),
    ("zipf", "prefetch=feedback-directed", 66.91, 5272, 568481, 119307, 175),
    ("zipf", "prefetch=best-offset", 69.33, 4245, 154206, 105121, 258),
    ("zipf", "prefetch=leap", 67.02, 5065, 349764, 117164, 201),
    ("stride", "prefetch=none", 0.00, 32722, 250000, 175543, 174),
    ("stride", "prefetch=next-n", 48.93, 23586, 250016, 175557, 124),
    ("stride", "prefetch=feedback-directed", 67.70, 11763, 250052, 175588, 125),
    ("stride", "prefetch=best-offset", 95.41, 342, 250117, 175637, 79),
    ("stride", "prefetch=leap", 0.95, 31919, 250001, 175543, 153),
    ("random", "prefetch=none", 6.20, 45728, 937209, 278570, 68),
    ("random", "prefetch=next-n", 6.23, 49810, 1880813, 281419, 24),
    ("random", "prefetch=feedback-directed", 6.24, 49800, 1874278, 281417, 22),
    ("random", "prefetch=best-offset", 6.20, 45728, 937209, 278570, 43),
    ("random", "prefetch=leap", 6.23, 47362, 1577358, 281042, 28),
    ("zipf", "policy=random", 66.02, None, None, 123545, None),
    ("zipf", "policy=fifo", 65.94, None, None, 125238, None),
    ("zipf", "policy=lru", 69.10, None, None, 109698, None),
    ("zipf", "ways=2", 68.56, None, None, 112317, None),
    ("zipf", "ways=full window=0.25", 69.28, None, None, 106726, None),
    ("zipf", "mshr=off", 69.34, None, 613146, None, None),
    ("zipf", "cache=0", 0.00, 90500, None, None, None),
]
FIELDS = ["sub_us_percent", "mean_latency_ns", "flash_reads", "flash_writes", "simulated_requests_per_second"]


def draws() -> Iterator[int]:
    """splitmix64 from 1."""
    state = 1
    while True:
        state = (state + 0x9E3779B97F4A7C15) & WORD
        word = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & WORD
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
        yield word ^ (word >> 31)


def write_trace(pattern: str, path: Path) -> None:
    """One of the three traces, as MQSim_CXL reads it."""
    draw = draws().__next__
    pages = FOOTPRINT_BYTES // 4096
    total, shares = 0.0, []
    if pattern == "zipf":
        for rank in range(1, pages + 1):
            total += rank**-0.99
            shares.append(total)
    now_ns = left = page = line = 0
    with path.open("w") as out:
        for number in range(REQUESTS[pattern]):
            if pattern == "random":
                address = draw() % (FOOTPRINT_BYTES // 64) * 64
            elif pattern == "stride":
                address = number * 1024 % FOOTPRINT_BYTES
            else:
                # Four lines in a row of a page whose popularity follows Zipf's law.
                if left == 0:
                    page = bisect.bisect_left(shares, (draw() >> 11) * 2.0**-53 * total) * 2654435761 % pages
                    line, left = draw() % 64, 4
                address = page * 4096 + line * 64
                line, left = (line + 1) % 64, left - 1
            now_ns += 100 + draw() % 201
            out.write(f"{now_ns} 0 {address} 8 {0 if draw() % 100 < 30 else 1}\n")


def simulate(tiermem: str, trace: Path, settings: str) -> dict[str, float]:
    """One row."""
    flags = ["--preset", "table6", "--compat", "atc23", "--trace-format", "mqsim-cxl", "--format", "json"]
    given = [flag for setting in ["capacity=64GiB", *settings.split()] for flag in ("--set", setting)]
    command = [tiermem, "sim", "cxl-flash", str(trace), *flags, *given]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)[0]


def main() -> None:
    """Runs all rows and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", default="target/release/tiermem", help="the program")
    parser.add_argument("--out", type=Path, required=True, help="where the table goes, in Markdown")
    options = parser.parse_args()
    lines = [
        "# The published simulator's arithmetic, theirs / ours",
        "",
        "Written by `experiments/cxl_flash/agreement.py`. Reads and writes are counted when the last request is answered there and",
        "when the last event is done here. Random replacement draws from another generator.",
        "",
        "| trace | setting | below 1 us, % | mean, ns | flash reads | flash writes | thousand requests/s |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for pattern in REQUESTS:
            write_trace(pattern, Path(folder) / pattern)
        for pattern, settings, *theirs in THEIRS:
            row = simulate(options.tiermem, Path(folder) / pattern, settings)
            ours = [row[field] for field in FIELDS]
            ours[4] /= 1000
            digits = [2, 0, 0, 0, 0]
            pairs = [
                f"{'-' if their is None else format(their, f'.{digit}f')} / {our:.{digit}f}"
                for their, our, digit in zip(theirs, ours, digits, strict=True)
            ]
            lines.append(f"| {pattern} | {settings} | {' | '.join(pairs)} |")
    options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
