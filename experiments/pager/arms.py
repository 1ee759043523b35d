"""How a program is paged: by the kernel's swap as it comes, by its swap at its best, and steered by tiermem; and the ways to run one."""

from __future__ import annotations

import ctypes
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass

CLUSTERS = (0, 3, 5, 6)
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True)
class Arm:
    """How the program is paged, and with which settings of the machine (None: its own)."""

    name: str
    how: str
    page_cluster: int | None = None
    rotational: int | None = None
    # More words for tiermem.
    steering: tuple[str, ...] = ()
    # "zram": swap is a device in memory that compresses; "zswap": such a cache stands before the device. Their memory is not the group's.
    compressed: str = ""


AS_IT_COMES = Arm("swap as it comes", "swap")
TUNED = tuple(Arm(f"swap, page-cluster {cluster}, not rotating", "swap", cluster, 0) for cluster in CLUSTERS)
STEERED = Arm("kernel", "kernel")
# What it costs to be watched, where nothing is fetched.
WATCHED = Arm("kernel, nothing fetched", "kernel", steering=("--prefetch", "none"))
BY_GRANULE = Arm("kernel, lru by granule", "kernel", steering=("--evict", "lru", "--references", "granule"))
COMPRESSED = (Arm("swap, zram", "swap", compressed="zram"), Arm("swap, zswap", "swap", compressed="zswap"))
# The one of TUNED that does best, and a database under its own limit.
AT_ITS_BEST = "swap at its best"
ENGINE = "engine's own limit"
# Names, as tables have them.
ROWS = (AS_IT_COMES.name, AT_ITS_BEST, STEERED.name, ENGINE)


def call(command: list[str]) -> str:
    """What a program prints; its failure is this program's."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{shlex.join(command)} exited with {done.returncode}: {done.stderr or done.stdout}")
    return done.stdout


def end_with_this() -> None:
    """For a child before its `exec`: it is told to end when this program ends, however it does. tiermem passes that on to the program."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
