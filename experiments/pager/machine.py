"""Settings of the machine that a measurement changes: how swap reads ahead. All are put back afterwards, also when it is killed."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path
from types import TracebackType

PAGE_CLUSTER = Path("/proc/sys/vm/page-cluster")
SWAPS = Path("/proc/swaps")
# How long swap of others may take to go, and programs of a measurement that was killed.
PATIENCE_S = 120


def queue_of(folder: Path) -> Path:
    """The folder in which the kernel tells of the device below a folder (of a partition: of the whole disk)."""
    number = folder.stat().st_dev
    device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not device.exists():
        sys.exit(f"{folder} lies on no block device; --folder names another place")
    device = device.resolve()
    return (device if (device / "queue").exists() else device.parent) / "queue"


def areas() -> list[str]:
    """Swap that is on."""
    return [line.split()[0] for line in SWAPS.read_text().splitlines()[1:]]


def wait_for_no_swap(patience_s: float = PATIENCE_S) -> None:
    """Swap of others would take a part of the pages, and read ahead as their devices do."""
    deadline = time.monotonic() + patience_s
    while found := areas():
        if time.monotonic() >= deadline:
            sys.exit(f"swap is on already: {', '.join(found)}; turn it off (swapoff) or measure on another machine")
        time.sleep(0.5)


class Settings:
    """`vm.page-cluster` and the device's `rotational`, as they are found; both are put back at the end.

    A guard process waits for the end of this one, whatever it is, and puts them back too: it survives signals to the terminal's group.
    It also removes `scratch`, the folder of what the measurement's programs write.
    """

    def __init__(self, folder: Path, scratch: Path | None = None) -> None:
        self.scratch = scratch
        self.rotational = queue_of(folder) / "rotational"
        self.found = {path: path.read_text().strip() for path in (PAGE_CLUSTER, self.rotational)}

    def __enter__(self) -> Settings:
        ends, self._open = os.pipe()
        self._guard = os.fork()
        if self._guard == 0:
            os.setsid()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            os.close(self._open)
            # Nothing is ever written: this returns when the other end has gone.
            os.read(ends, 1)
            self.put_back()
            self._remove_scratch()
            os._exit(0)
        os.close(ends)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._open)
        os.waitpid(self._guard, 0)

    def put_back(self) -> None:
        """As they were found."""
        for path, value in self.found.items():
            path.write_text(value)

    def _remove_scratch(self) -> None:
        """As often as it takes: a program that has been told to end may still write there."""
        deadline = time.monotonic() + PATIENCE_S
        while self.scratch and self.scratch.exists() and time.monotonic() < deadline:
            shutil.rmtree(self.scratch, ignore_errors=True)
            time.sleep(0.1)

    def use(self, page_cluster: int | None, rotational: int | None) -> None:
        """For the next run; None: as it was found. Swap looks at the device when it is turned on, and at the other at each fault."""
        for path, value in ((PAGE_CLUSTER, page_cluster), (self.rotational, rotational)):
            path.write_text(self.found[path] if value is None else str(value))
