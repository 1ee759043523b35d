"""A recording of a sweep, and a plan that holds a half of it."""

from __future__ import annotations

import json
import pathlib

import pytest

from programs import workload
from store import tiermem

MIB = 1 << 20
SWEEP_MIB = 96


def sweep(passes: int, mib: int = SWEEP_MIB) -> list[str]:
    return workload("sweep", f"--size {mib}MiB --passes {passes} --pause-ms 100 --small-pages")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    file = tmp_path_factory.mktemp("recorded") / "sweep.rec"
    recorded = tiermem("record", "--slice", "50ms", "--granule", "1MiB", "-o", str(file), "--", *sweep(6))
    assert recorded.returncode == 0, recorded.stderr
    return file


@pytest.fixture(scope="module")
def plan(recording: pathlib.Path) -> pathlib.Path:
    """Holds every second MiB of the memory that is swept."""
    file = recording.with_name("sweep.plan.json")
    planned = tiermem("plan", str(recording), "--fast", f"{SWEEP_MIB // 2}MiB", "-o", str(file))
    assert planned.returncode == 0, planned.stderr
    told = json.loads(file.read_text())
    # Nothing else: a heap that a recording has seen hot is there with memory of any size.
    number, region = 0, next(it for it in told["regions"] if it["bytes"] >= SWEEP_MIB * MIB)
    told["regions"], told["phases"] = [region], []
    span = {"region": number, "offset": 0, "bytes": region["bytes"]}
    whole = {"span": span, "period_ns": 0, "bytes_per_s": 1.0, "hot_bytes": 0, "lead_bytes": 0, "window_bytes": 0, "stride_bytes": 0, "every": 1}
    told["always"] = [{"region": number, "offset": at * MIB, "bytes": MIB} for at in range(0, SWEEP_MIB, 2)]
    told["sweeps"] = [whole]
    file.write_text(json.dumps(told))
    return file
