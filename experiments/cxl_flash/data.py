"""The data of these experiments: which traces, which sweeps, and what Yang 2023 says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomllib

HERE = Path(__file__).resolve().parent
WORKLOADS = HERE / "workloads.toml"
SWEEPS = HERE / "sweeps.toml"
PUBLISHED = HERE / "published.toml"


def load(path: Path) -> dict[str, Any]:
    """A file of TOML."""
    with path.open("rb") as file:
        return tomllib.load(file)
