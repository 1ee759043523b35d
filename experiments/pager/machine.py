"""Settings of the machine that a measurement changes: how swap reads ahead. All are put back afterwards, also when it is killed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import TracebackType

PAGE_CLUSTER = Path("/proc/sys/vm/page-cluster")
SWAPS = Path("/proc/swaps")


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


class Settings:
    """`vm.page-cluster` and the device's `rotational`, as they are found; both are put back at the end.

    A guard process waits for the end of this one, whatever it is, and puts them back too: it survives signals to the terminal's group.
    """

    def __init__(self, folder: Path) -> None:
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

    def use(self, page_cluster: int | None, rotational: int | None) -> None:
        """For the next run; None: as it was found. Swap looks at the device when it is turned on, and at the other at each fault."""
        for path, value in ((PAGE_CLUSTER, page_cluster), (self.rotational, rotational)):
            path.write_text(self.found[path] if value is None else str(value))
