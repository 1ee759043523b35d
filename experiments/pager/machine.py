"""Settings of the machine that a measurement changes: how swap reads ahead, and what it is. All are put back afterwards, also when it is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from arms import Arm

PAGE_CLUSTER = Path("/proc/sys/vm/page-cluster")
ZSWAP = Path("/sys/module/zswap/parameters/enabled")
ZRAM = Path("/sys/class/zram-control")
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


class Zram:
    """A device in memory that compresses what is written to it, made for one measurement."""

    def __init__(self) -> None:
        if not ZRAM.is_dir():
            sys.exit(f"there is no {ZRAM}: the kernel has no zram here (modprobe zram)")
        # To read it makes a device.
        self.number = (ZRAM / "hot_add").read_text().strip()
        self.device = Path(f"/dev/zram{self.number}")

    def make_swap(self, size: int) -> None:
        """Empty swap of so many bytes."""
        block = Path(f"/sys/block/zram{self.number}")
        (block / "reset").write_text("1")
        (block / "disksize").write_text(str(size))
        subprocess.run(["mkswap", str(self.device)], check=True, capture_output=True)

    def remove(self) -> None:
        """Also while a program that has been told to end still has its swap on."""
        deadline = time.monotonic() + PATIENCE_S
        while self.device.exists() and time.monotonic() < deadline:
            try:
                (ZRAM / "hot_remove").write_text(self.number)
            except OSError:
                time.sleep(0.1)


class Settings:
    """`vm.page-cluster`, the device's `rotational` and `zswap`, as they are found; all are put back at the end.

    A guard process waits for the end of this one, whatever it is, and puts them back too: it survives signals to the terminal's group.
    It also removes `scratch`, the folder of what the measurement's programs write.
    """

    def __init__(self, folder: Path, scratch: Path | None = None, arms: Iterable[Arm] = ()) -> None:
        self.scratch = scratch
        self.rotational = queue_of(folder) / "rotational"
        self.compressed = {arm.compressed for arm in arms}
        if "zswap" in self.compressed and not ZSWAP.exists():
            sys.exit(f"there is no {ZSWAP}: the kernel has no zswap here")
        changed = [PAGE_CLUSTER, self.rotational, *([ZSWAP] if "zswap" in self.compressed else [])]
        self.found = {path: path.read_text().strip() for path in changed}
        self._zram: Zram | None = None

    def __enter__(self) -> Settings:
        # Before the guard, which removes it.
        self._zram = Zram() if "zram" in self.compressed else None
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
            if self._zram:
                self._zram.remove()
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

    def flash(self, arm: Arm, folder: Path, size_mib: int) -> str:
        """Where an arm pages to, for --flash."""
        if arm.compressed == "zram" and self._zram:
            self._zram.make_swap(size_mib << 20)
            # A page of it is the swap's own.
            return f"{self._zram.device}={size_mib - 1}MiB"
        return f"{folder}={size_mib}MiB"

    def _remove_scratch(self) -> None:
        """As often as it takes: a program that has been told to end may still write there."""
        deadline = time.monotonic() + PATIENCE_S
        while self.scratch and self.scratch.exists() and time.monotonic() < deadline:
            shutil.rmtree(self.scratch, ignore_errors=True)
            time.sleep(0.1)

    def use(self, arm: Arm) -> None:
        """For the next run; what an arm does not name is as it was found. Swap looks at the device when it is turned on, and at the other at
        each fault.
        """
        wanted = {PAGE_CLUSTER: arm.page_cluster, self.rotational: arm.rotational, ZSWAP: "Y" if arm.compressed == "zswap" else None}
        for path, found in self.found.items():
            value = wanted[path]
            path.write_text(found if value is None else str(value))
