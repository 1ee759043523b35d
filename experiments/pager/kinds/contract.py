"""What every workload can do."""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paged import Failed, Paging
from programs import Programs

INSIDE = Path(__file__).resolve().parents[1] / "inside"


@dataclass(frozen=True)
class Outcome:
    """What a run gives: its performance in the workload's unit, and a result that must be the same in every run."""

    performance: float
    result: str


@dataclass(frozen=True)
class Place:
    """Where a workload finds its programs, keeps what it makes once, and writes what a run leaves."""

    programs: Programs
    data: Path
    scratch: Path
    tiermem: Path


class TooSmall(Failed):
    """An engine cannot work within its own limit, and says so."""


class Workload(ABC):
    """One real program with its data. `sizes` are those of workloads.toml."""

    # Whether an engine's own limit can stand beside (`engine_bytes`).
    has_engine = False

    def __init__(self, place: Place, sizes: dict[str, Any]) -> None:
        self.place = place
        self.sizes = sizes

    @abstractmethod
    def prepare(self) -> None:
        """Gets the program and makes the data, once. Not measured. Raises `Unavailable` where the program cannot be had."""

    @abstractmethod
    def run(self, paging: Paging, engine_bytes: int | None = None) -> Outcome:
        """One run in an empty scratch folder. Raises `Failed` where the program fails. `engine_bytes`: the limit that the engine
        is told; `TooSmall` where it cannot work within that.
        """

    def files(self) -> Iterable[Path]:
        """Files and folders that a run reads, which the machine is to have forgotten before it."""
        return ()

    def forget(self) -> None:
        """Drops them from the file cache. Else a run would find them there, charged to a run before it, and have more than its DRAM."""
        for top in self.files():
            drop_from_cache(top)


def drop_from_cache(top: Path) -> None:
    """A file, or all files of a folder."""
    for path in [top] if top.is_file() else [it for it in top.rglob("*") if it.is_file() and not it.is_symlink()]:
        number = os.open(path, os.O_RDONLY)
        try:
            # Only what is on disk can be dropped.
            os.fsync(number)
            os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(number)


def succeed(command: list[str], environment: dict[str, str] | None = None, **more: Any) -> str:
    """What a program beside the measured one prints; its failure is the run's."""
    base = os.environ | (environment or {})
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=base, **more)
    if done.returncode:
        raise Failed(f"{' '.join(command)} exited with {done.returncode}: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout
