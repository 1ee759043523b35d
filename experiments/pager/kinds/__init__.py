"""The workloads: how each gets its program, makes its data, runs, and checks what comes out."""

from __future__ import annotations

from kinds.build import Build
from kinds.contract import Workload
from kinds.pagerank import PageRank
from kinds.pgbench import PgBench
from kinds.resnet import Resnet
from kinds.sort import Sort
from kinds.tpcc import Tpcc
from kinds.tpch import Tpch
from kinds.video import Video

ALL: dict[str, type[Workload]] = {
    "video": Video,
    "tpcc": Tpcc,
    "tpch": Tpch,
    "resnet": Resnet,
    "build": Build,
    "sort": Sort,
    "pagerank": PageRank,
    "pgbench": PgBench,
}
