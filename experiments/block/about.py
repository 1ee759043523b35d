"""How rows were got, in words."""

from __future__ import annotations

import time

from setting import Live, Workload

MIB = 1 << 20
LIVE = """\
**Live**, measured {date}. Each contender is a server of its own with an empty cache, write-back; rounds: {rounds},
contenders in another order in each. The server has a core and the client another. The client has {workers} request under way
for each export, sends the next as soon as one is answered, and checks what comes back. Stores are sparse files (on
{scratch}), read and written past the page cache, behind our own delay (`{backing}`); the cache is a file, without copies in
DRAM (`memory = {memory}`). For all alike: what has been dirty for {dirty_age} is written back, and what there is once
{dirty_percent}% of the cache are dirty; blocks that go next are cleaned ahead of need. What is dirty at the end counts as
written to the store. The cache's blocks have a tenth of what the replayed requests touch, in units of 4 KiB, and at least 2
MiB; log and table come on top."""
SIMULATED = """\
**Simulated**, {date}: {what}, a tenth of the working set as cache (at least 2 MiB), LRU, write-back, dirty bytes written
back by the request that drives their block out. A store is reckoned with 1 ms and 1.25 GB/s, the cache's device with 80 us
and 3 GB/s."""


def today() -> str:
    """The date of the figures."""
    return time.strftime("%Y-%m-%d")


def live(setting: Live, scratch: str, workloads: list[Workload], capacities: list[int]) -> list[str]:
    """The replay to servers, each workload with a cache of so many bytes."""
    rows = [each(workload, capacity) for workload, capacity in zip(workloads, capacities, strict=True)]
    head = ["| workload | what | replayed | cache |", "| --- | --- | --- | --- |"]
    return [LIVE.format(date=today(), scratch=scratch, **vars(setting)), "", *head, *rows]


def each(workload: Workload, capacity_bytes: int) -> str:
    """A row of the table of workloads."""
    requests = f"the first {workload.replay:,} requests" if workload.replay else "all requests"
    packed = f", offsets of each volume modulo {workload.window >> 30} GiB" if workload.window else ""
    return f"| {workload.name} | {workload.about} | {requests}{packed} | {capacity_bytes / MIB:.2f} MiB |"


def simulated(short: bool) -> list[str]:
    """The simulated whole traces."""
    return [SIMULATED.format(date=today(), what="slices" if short else "all requests of the traces")]
