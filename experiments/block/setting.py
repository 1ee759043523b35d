"""The data of these experiments: who is compared on what, and what Yang 2024 says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomllib

HERE = Path(__file__).resolve().parent
WORKLOADS = HERE / "workloads.toml"
PUBLISHED = HERE / "published.toml"
# The slices of real traces that tests use.
SLICES = HERE.parents[1] / "crates" / "trace" / "testdata"


def load(path: Path) -> dict[str, Any]:
    """A file of TOML."""
    with path.open("rb") as file:
        return tomllib.load(file)


@dataclass(frozen=True)
class Contender:
    """A cache that is compared."""

    name: str
    role: str
    blocks: list[str]
    fill: str
    sizing: str


@dataclass(frozen=True)
class Workload:
    """A trace that is there, and how it is used."""

    name: str
    family: str
    about: str
    path: Path
    # Requests that are simulated and sent to a live server; all of them where it is None.
    requests: int | None = None
    replay: int | None = None
    # An export for each of these, which are tenants 0, 1, ... of the trace; one export for all where there are none.
    volumes: list[str] = field(default_factory=list)
    # Where its volumes are too many and too large for a file each: into how many bytes each is brought for the live replay.
    window: int | None = None


@dataclass(frozen=True)
class Live:
    """How live servers are set up and driven."""

    workers: int
    rounds: int
    backing: str
    memory: str
    dirty_age: str
    dirty_percent: int


def contenders() -> list[Contender]:
    """All of them, in the order of the tables."""
    return [Contender(**it) for it in load(WORKLOADS)["contender"]]


def live() -> Live:
    """As the file says."""
    return Live(**load(WORKLOADS)["live"])
