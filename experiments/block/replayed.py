"""Traces sent to live servers, one after the other, round by round: what clients waited for, and what servers moved and held."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from servers import Looks, Machine, Status, fitted, replay, running
from setting import Contender, Live, Workload

Row = dict[str, Any]
# Of the server's status, for each export.
COUNTS = [
    "core_read_bytes", "core_written_bytes", "cache_read_bytes", "cache_written_bytes", "core_reads", "core_writes",
    "missed_requests", "missed_request_bytes", "bypassed_reads", "allocated_blocks", "allocated_bytes", "read_hits", "write_hits", "parked",
]  # fmt: skip
# Of the client.
SEEN = [
    "requests", "reads", "writes", "read_mean_us", "read_p50_us", "read_p99_us", "write_mean_us", "write_p50_us", "write_p99_us",
    "errors", "mismatches",
]  # fmt: skip


def figures(seen: Row, exports: list[Row]) -> Row:
    """What one export did, or several together."""
    row = {name: seen[name] for name in SEEN} | {name: sum(export[name] for export in exports) for name in COUNTS}
    # What the store still lacks has to go there too; sooner or later, as chance has it.
    row["core_written_bytes"] += sum(export["dirty_bytes"] for export in exports)
    for op in ("read", "write"):
        requests = sum(export[f"{op}s"] for export in exports)
        row[f"{op}_hit_ratio"] = row[f"{op}_hits"] / requests if requests else None
    row["mean_missed_request_bytes"] = row["missed_request_bytes"] / max(row["missed_requests"], 1)
    row["mean_block_bytes"] = row["allocated_bytes"] / max(row["allocated_blocks"], 1)
    # Of several exports the mean, weighted by their requests, stands for the median.
    requests = [export["reads"] + export["writes"] for export in exports]
    for name in ("processing_mean_ns", "processing_p50_ns"):
        row[name] = sum((export[name] or 0) * count for export, count in zip(exports, requests, strict=True)) / max(
            sum(requests), 1
        )
    return row


def one(machine: Machine, contender: Contender, live: Live, workload: Workload, device_bytes: int, folder: Path) -> list[Row]:
    """A row for all volumes of a workload, and one for each that has an export to itself."""
    with running(machine, contender, live, max(len(workload.volumes), 1), device_bytes, folder) as server, Looks(server) as looks:
        seen = replay(machine, server, live, workload)
    last: Status = looks.statuses[-1]
    blocks = [sum(size["blocks"] for size in status["cache"]["blocks"]) for status in looks.statuses[1:]]
    shared = {
        "seconds": seen["seconds"],
        "capacity_bytes": last["cache"]["capacity_bytes"],
        "metadata_mean_bytes": looks.mean("metadata_bytes"),
        "blocks_mean": sum(blocks) / len(blocks),
        "metadata_empty_bytes": looks.statuses[0]["cache"]["metadata_bytes"],
        "metadata_end_bytes": last["cache"]["metadata_bytes"],
        "blocks_end": blocks[-1],
    }
    found = [{"volume": "all", **figures(seen, last["exports"]), **shared}]
    for name, own, export in zip(workload.volumes, seen["exports"], last["exports"], strict=bool(workload.volumes)):
        found.append({"volume": name, **figures(own, [export]), **shared})
    return found


def measure(
    machine: Machine,
    live: Live,
    compared: list[Contender],
    workloads: list[tuple[Workload, int]],
    folder: Path,
    tell: Callable[[str], None],
) -> Iterator[list[Row]]:
    """All contenders on all workloads, each with a cache of so many bytes: all rows so far after each round."""
    rows: list[Row] = []
    fits: dict[tuple[str, str], int] = {}
    order = random.Random(1)
    for turn in range(1, live.rounds + 1):
        for workload, capacity_bytes in workloads:
            # Whatever else the machine does by turns meets all alike.
            for contender in order.sample(compared, len(compared)):
                key = (workload.name, contender.name)
                if key not in fits:
                    fits[key] = fitted(machine, contender, live, capacity_bytes, folder / "server")
                named = {"workload": workload.name, "family": workload.family, "contender": contender.name, "round": turn}
                found = one(machine, contender, live, workload, fits[key], folder / "server")
                rows += [{**named, **row} for row in found]
                read, write = (found[0][name] or 0 for name in ("read_mean_us", "write_mean_us"))
                tell(f"round {turn} {workload.name:14} {contender.name:10} reads {read:8.1f} us, writes {write:8.1f} us")
        yield rows
