#!/usr/bin/env python3
"""Where the phases of a recorded page rank end: loading edges, building the graph, computing scores (Yang 2023, Figure 16).

    python experiments/cxl_flash/phases.py traces/pagerank.parquet

The ends are in the trace itself. The program (pagerank.rs of examples/workloads) appends its edges to one array, the largest that
it fills from front to end; then it reads that array from front to end twice, to count the edges of vertices and to place them;
then it drops it. So the second of three passes over the array ends the loading as it begins, and the third ends the building. The
array is found as the longest run of virtual pages that are touched for the first time in ascending order. What lies behind it may
seem to go on with the run by a page or two, so that the last pages are left out, and the building ends early by about a hundredth
of the third pass. Only loads count: lines are written back whenever the cache wants.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tiermem.plots.cxl_flash_traces import pages


def longest_run(page: Any) -> tuple[int, int]:
    """The first and the last page of the longest run that is touched for the first time page after page."""
    distinct, at = np.unique(page, return_index=True)
    touched = distinct[np.argsort(at)]
    ends = np.flatnonzero(np.append(np.diff(touched) != 1, True))
    begins = np.append(0, ends[:-1] + 1)
    longest = np.argmax(ends - begins)
    return int(touched[begins[longest]]), int(touched[ends[longest]])


def ends_of(page: Any, load: Any) -> tuple[int | None, int | None]:
    """How many accesses lie before the end of loading, and of building; None for an end that is not in the trace.

    Args:
        page: The virtual page of each access.
        load: Whether it is a load.
    """
    if not len(page):
        return None, None
    first, last = longest_run(page)
    last -= min((last - first) // 256 + 3, last - first)
    at = np.flatnonzero(load & (page >= first) & (page <= last))
    # From one access to the next a pass goes on by a page or none; the next one begins far in front of that.
    passes = np.split(at, np.flatnonzero(np.diff(page[at]) < -((last - first) // 2 + 1)) + 1)
    # Without a second pass the array that is filled may be another.
    loading = int(passes[1][0]) if len(passes) > 1 else None
    placed = passes[2][page[passes[2]] == last] if len(passes) > 2 else []
    return loading, int(placed[0]) + 1 if len(placed) else None


def phase_ends(trace: Path, requests: int | None = None) -> tuple[int | None, int | None]:
    """The same of a recording, of which so many requests count."""
    page = pages(trace, "virtual")[:requests]
    operation = pq.ParquetFile(trace).read(columns=["op"]).column("op")[:requests]
    return ends_of(page, pc.equal(operation, "load").to_numpy())


if __name__ == "__main__":
    loading, building = phase_ends(Path(sys.argv[1]))
    print(f"loading ends after {loading} accesses, building after {building}")
