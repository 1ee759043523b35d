"""The workloads: how each gets its program, makes its data, runs, and checks what comes out."""

from __future__ import annotations

from kinds.contract import Workload
from kinds.tpch import Tpch

ALL: dict[str, type[Workload]] = {"tpch": Tpch}
