"""The data of experiments/cxl_flash: every claim has its place, and every place its data."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import pytest

tomllib = pytest.importorskip("tomllib")

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "experiments" / "cxl_flash"
CLAIMS = {f"002-{number:02}" for number in range(2, 50)}


def load(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / name).read_text())


@pytest.fixture(scope="module")
def checks() -> dict[str, Any]:
    sys.path.insert(0, str(FOLDER))
    try:
        from verdicts import CHECKS
    finally:
        sys.path.remove(str(FOLDER))
    return CHECKS


def test_every_claim_is_compared_or_said_not_to_be() -> None:
    data = load("published.toml")
    compared = [claim["id"] for claim in data["claim"]]
    left_out = [claim["id"] for claim in data["not_covered"]]
    assert len(set(compared + left_out)) == len(compared + left_out)
    assert set(compared + left_out) == CLAIMS
    assert all(claim["why"] for claim in data["not_covered"])


def test_what_a_claim_names_is_there(checks: dict[str, Any]) -> None:
    data, sweeps = load("published.toml"), load("sweeps.toml")
    workloads = {workload["name"] for workload in load("workloads.toml")["workload"]}
    tables = {figure["name"] for figure in sweeps["figure"]} | {"traces"}
    for claim in data["claim"]:
        assert claim["of"] in tables, claim["id"]
        assert claim["check"] in checks, claim["id"]
        assert set(claim.get("workloads", [])) <= workloads, claim["id"]
    assert {claim["check"] for claim in data["claim"]} == set(checks)
    # Each table of rows is there for some claim.
    assert {claim["of"] for claim in data["claim"]} == tables
    for figure in sweeps["figure"]:
        assert set(figure.get("workloads", [])) <= workloads
        assert figure.get("kind", "synthetic") in ("synthetic", "application")


def test_workloads_have_both_forms() -> None:
    data = load("workloads.toml")
    kinds = [workload["kind"] for workload in data["workload"]]
    assert (kinds.count("synthetic"), kinds.count("application")) == (5, 5)
    for workload in data["workload"]:
        assert {"short", "full"} <= set(workload), workload["name"]
        assert {"interarrival_ns", "reads_percent"} <= set(workload["paper"]), workload["name"]


def test_a_verdict_is_computed(checks: dict[str, Any]) -> None:
    def row(offset: float | None, share: float) -> dict[str, Any]:
        prefetch = {"prefetch": "next-n", "degree": 4.0} if offset else {"prefetch": "none", "degree": None}
        return {"workload": "hash-map", "offset": offset, "sub_us_percent": share, **prefetch}

    (claim,) = (claim for claim in load("published.toml")["claim"] if claim["id"] == "002-19")
    check = checks[claim["check"]]
    found = check([row(None, 50), row(4.0, 60), row(16.0, 70), row(64.0, 55)], claim)
    assert [line.holds for line in found] == [True, True] and found[0].ours == "60.0 70.0 55.0%"
    found = check([row(4.0, 60), row(16.0, 50), row(64.0, 55)], claim)
    assert [line.holds for line in found] == [False, False]
    # A sweep without one of them says nothing.
    assert check([row(4.0, 60), row(16.0, 50)], claim) == []
