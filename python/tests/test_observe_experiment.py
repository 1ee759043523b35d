"""experiments/observe: every claim has its place, measures are what they say, and a short run makes the whole page."""

from __future__ import annotations

import importlib
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

tomllib = pytest.importorskip("tomllib")

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "experiments" / "observe"
CLAIMS = {f"004-{number:02}" for number in range(1, 34)}


@pytest.fixture(scope="module")
def modules() -> Any:
    """The experiment's own, by name."""
    names = ("measure", "verdicts", "figures", "recordings")
    before = {name: sys.modules.pop(name, None) for name in names}
    sys.path.insert(0, str(FOLDER))
    try:
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(FOLDER))
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module


def numbers(text: str) -> set[str]:
    """The claims of an id: one, some, or a range."""
    found = set()
    for first, last in re.findall(r"004-(\d+)(?: to 004-(\d+))?", text):
        found |= {f"004-{number:02}" for number in range(int(first), int(last or first) + 1)}
    return found


def test_every_claim_is_compared_or_said_not_to_be(modules: dict[str, Any]) -> None:
    claims = tomllib.loads((FOLDER / "published.toml").read_text())["claim"]
    assert set().union(*(numbers(claim["id"]) for claim in claims)) == CLAIMS
    compared = {claim["check"] for claim in claims if "check" in claim}
    assert compared == set(modules["verdicts"].CHECKS)
    for claim in claims:
        assert ("check" in claim) != ("needs" in claim), claim["id"]
        assert "needs" not in claim or claim["instead"]
        assert "of" not in claim or claim["of"] in modules["recordings"].MAKERS
    assert set(modules["figures"].PICTURES) == set(modules["recordings"].MAKERS)


def test_measures_are_what_their_definitions_say(modules: dict[str, Any]) -> None:
    measure = modules["measure"]
    values = np.random.default_rng(4).random(200)
    around = values - values.mean()
    for lag in (1, 7, 60):
        expected = float((around[:-lag] * around[lag:]).sum() / (around**2).sum())
        assert measure.autocorrelation(list(values), lag) == pytest.approx(expected)
    assert measure.ranks([3.0, 1.0, 3.0, 2.0]) == [2.5, 0, 2.5, 1]
    assert measure.rank_correlation([(1, 10), (2, 40), (3, 90)]) == pytest.approx(1)
    assert measure.rank_correlation([(1, 9), (2, 4), (3, 1)]) == pytest.approx(-1)
    rows = [{"slice": 0, "granule": 0, "accesses": 1.0}, {"slice": 2, "granule": 3, "accesses": 2.0}]
    assert measure.totals(rows) == {0: 1.0, 3: 2.0}
    assert measure.touched_by_slice(rows, 4) == [0.25, 0.25]


def test_a_short_run_makes_the_page(tmp_path: pathlib.Path) -> None:
    tiermem = pathlib.Path(os.environ.get("TIERMEM", "tiermem"))
    if not tiermem.with_name("skewed").exists():
        pytest.skip("the workloads are not beside the program: cargo build -p tiermem-workloads")
    command = [sys.executable, str(FOLDER / "run.py"), "skewed", "matvec", "pagerank", "--short", "--tiermem", str(tiermem)]
    command += ["--recordings", str(tmp_path / "recordings"), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "out" / "results.md").read_text()
    wanted = ["## Claims", "## Heat", "## Plans", "| matvec |", "| pagerank |"]
    for words in [*wanted, "`decode` was not recorded", "not measured: needs"]:
        assert words in page
    pictures = re.findall(r"\]\((.*\.png)\)", page)
    assert len(pictures) == 3
    for picture in pictures:
        assert (tmp_path / "out" / picture).read_bytes().startswith(b"\x89PNG")
