"""Whole traces through the engine's decisions, without devices: `tiermem sim block`."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path
from typing import Any

from setting import Contender, Workload
from traces import Tiermem, rows_of

Row = dict[str, Any]
# Bytes of a request, at which shares are counted.
SIZES = [512 << at for at in range(13)]


def simulate(run: Tiermem, compared: list[Contender], workload: Workload, capacity_bytes: int) -> list[Row]:
    """A row for all volumes of a workload with each contender, and one for each volume."""
    rows = []
    # What differs in its blocks alone is simulated at once, as many at a time as there are processors.
    alike = sorted(compared, key=lambda it: (it.fill, it.sizing))
    for (fill, sizing), group in itertools.groupby(alike, key=lambda it: (it.fill, it.sizing)):
        names = {",".join(contender.blocks): contender.name for contender in group}
        words: list[object] = ["sim", "block", workload.path, "--cache", f"{capacity_bytes}B", "--fill", fill, "--sizing", sizing]
        words += [word for blocks in names for word in ("--blocks", blocks)]
        words += ["--requests", workload.requests] if workload.requests else []
        words += ["--volumes"] if workload.volumes else []
        for row in rows_of(run(*words, "--format", "csv")):
            volume = row["volume"] if row["volume"] == "all" else workload.volumes[int(row["volume"])]
            own = {"workload": workload.name, "family": workload.family, "contender": names[row["blocks"]], "volume": volume}
            rows.append({**row, **own})
    order = [contender.name for contender in compared]
    return sorted(rows, key=lambda row: (row["volume"] != "all", row["volume"], order.index(row["contender"])))


def sizes(run: Tiermem, workload: Workload, folder: Path) -> Row:
    """How large requests are: the shares of those of at most 512 bytes, 1 KiB, ... 2 MiB."""
    plain = folder / f"{workload.name}-sizes.csv"
    run("trace", "convert", workload.path, *(["--requests", workload.requests] if workload.requests else []), "--output", plain)
    counts = [0] * len(SIZES)
    requests = reads = 0
    with plain.open(newline="") as file:
        for row in csv.DictReader(file):
            requests += 1
            reads += row["op"] == "read"
            for at, limit in enumerate(SIZES):
                counts[at] += int(row["size"]) <= limit
    plain.unlink()
    shares = {str(limit): count / max(requests, 1) for limit, count in zip(SIZES, counts, strict=True)}
    return {"workload": workload.name, "family": workload.family, "requests": requests, "reads": reads, "at_most": shares}
