"""Programs that tests drive and that a machine may lack."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable

import pytest

RedisCli = Callable[..., subprocess.CompletedProcess]


def tool(name: str) -> str:
    """The path of a program that may not be installed; the test is skipped without it."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"there is no {name} here")
    return path
