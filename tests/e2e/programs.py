"""Programs that tests drive and that a machine may lack."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
from collections.abc import Callable

import pytest

from store import binary

RedisCli = Callable[..., subprocess.CompletedProcess]


def tool(name: str) -> str:
    """The path of a program that may not be installed; the test is skipped without it."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"there is no {name} here")
    return path


def workload(name: str, flags: str = "") -> list[str]:
    """A program beside the one under test, with its flags."""
    path = pathlib.Path(binary()).parent / name
    if not path.exists():
        pytest.skip(f"{path} is not there: build it with `cargo build -p tiermem-workloads`")
    return [str(path), *flags.split()]
