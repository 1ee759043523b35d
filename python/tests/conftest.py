"""Where the tests find the trace and the program that they compare with."""

from __future__ import annotations

import csv
import io
import os
import pathlib
import subprocess
from collections.abc import Callable

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
Rows = list[dict[str, str]]


@pytest.fixture(scope="session")
def trace() -> str:
    """20,000 requests of Twitter's cache cluster 52."""
    return str(ROOT / "crates" / "trace" / "testdata" / "twitter_cluster52-20k.csv.zst")


@pytest.fixture(scope="session")
def program() -> str:
    """The command tiermem: the one that TIERMEM names, else the one that cargo has built."""
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
    path = pathlib.Path(os.environ.get("TIERMEM", f"{target}/debug/tiermem"))
    if not path.exists():
        pytest.skip(f"{path} is not there: build it with `cargo build -p tiermem-cli`")
    return str(path)


@pytest.fixture(scope="session")
def table_of(program: str) -> Callable[..., Rows]:
    """Runs the command and gives the rows that it prints."""

    def run(*arguments: str) -> Rows:
        done = subprocess.run([program, *arguments, "--format", "csv"], capture_output=True, text=True, check=True, timeout=120)
        return list(csv.DictReader(io.StringIO(done.stdout)))

    return run
