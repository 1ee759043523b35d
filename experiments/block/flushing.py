#!/usr/bin/env python3
"""Writes that are flushed one by one, through a cache whose backing store is slow, beside the same cache whose store is not.

    experiments/block/flushing.py --pairs 7
    experiments/block/flushing.py --pairs 1 --seconds 1 --volume-mib 64 --tiermem target/debug/tiermem

fio writes 4 KiB at random with --fsync=1 to an export of a new cache, which holds the whole volume. Each pair is a run over a store
without a delay and one over a store with --delay; the backing store is a file. Three cases: nothing is old enough to be written back
(*undisturbed*), everything is after a second, so that groups go to the store all the time (*aged*), and the volume is smaller and nearly
as large as the cache, so that more than dirty_percent is dirty and less than the 90% at which writers wait (*full*). Prints writes per
second of both, the ratio, and what the server counted in the last slow run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from servers import PATIENCE_S, Machine, Status, free_port, status_of

MIB = 1 << 20


@dataclass(frozen=True)
class Case:
    """How old dirty data becomes, the volume as a part of --volume-mib, and how much larger the cache is."""

    name: str
    dirty_age: str
    volume_share: float
    cache_share: float


FIELDS = ["dirty_bytes", "write_back_groups", "write_back_groups_grown", "store_flushes", "copies_out", "core_written_bytes", "parked"]
CASES = [Case("undisturbed", "3600s", 1, 2), Case("aged", "1s", 1, 2), Case("full", "3600s", 1 / 16, 1.2)]


def measure(machine: Machine, case: Case, options: argparse.Namespace, delay: str) -> tuple[float, Status]:
    """Writes per second, and the export's figures afterwards."""
    volume_mib = int(options.volume_mib * case.volume_share)
    with tempfile.TemporaryDirectory(dir=options.scratch) as name:
        folder = Path(name)
        with (folder / "disk.img").open("wb") as file:
            file.truncate(volume_mib * MIB)
        port = free_port()
        lines = [
            f'listen = ["unix:{folder / "nbd"}"]',
            f'http = "127.0.0.1:{port}"',
            "[cache]",
            f'path = "{folder / "cache"}"',
            f'capacity = "{int(volume_mib * case.cache_share)}MiB"',
            f'dirty_age = "{case.dirty_age}"',
            f'order = "{options.order}"',
            "[[export]]",
            'name = "disk"',
            f'backing = "{folder / "disk.img"}{"" if delay == "0ms" else f",delay={delay}"}"',
            'mode = "write-back"',
        ]
        (folder / "config.toml").write_text("\n".join(lines) + "\n")
        command = [*machine.on(machine.server_core), str(machine.tiermem), "block", "serve", "--config", str(folder / "config.toml")]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not (folder / "nbd").exists():
                if server.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"the server does not serve: {(folder / 'log').read_text(errors='replace')}")
                time.sleep(0.02)
            client = [*machine.on(machine.client_core), "fio", "--name=w", "--ioengine=nbd", "--rw=randwrite", "--bs=4k", "--fsync=1"]
            client += [f"--uri=nbd+unix:///disk?socket={folder / 'nbd'}", f"--size={volume_mib}m", "--norandommap"]
            client += ["--time_based", f"--runtime={options.seconds}", "--output-format=json", "--output=told.json"]
            subprocess.run(client, capture_output=True, timeout=options.seconds + PATIENCE_S, check=True, cwd=folder)
            iops: float = json.loads((folder / "told.json").read_text())["jobs"][0]["write"]["iops"]
            export: Status = status_of(port)["exports"][0]
            return iops, export
        finally:
            # What is dirty has been counted; nobody needs it written back.
            server.kill()
            server.wait()


def main() -> None:
    """Measures, and prints a line a case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", type=Path, default=Path("target/release/tiermem"))
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--delay", default="20ms")
    parser.add_argument("--order", default="group")
    parser.add_argument("--volume-mib", type=int, default=512)
    parser.add_argument("--scratch", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--cores", type=int, nargs=2, default=[0, 1], help="of the server and of fio")
    parser.add_argument("--nice", type=int, default=0)
    options = parser.parse_args()
    machine = Machine(options.tiermem, options.cores[0], options.cores[1], options.nice)
    for case in CASES:
        pairs: list[tuple[float, float]] = []
        last: Status = {}
        for _ in range(options.pairs):
            fast, _ = measure(machine, case, options, "0ms")
            slow, last = measure(machine, case, options, options.delay)
            pairs.append((fast, slow))
        ratios = sorted(slow / fast for fast, slow in pairs)
        fast, slow = (statistics.median(pair[at] for pair in pairs) for at in (0, 1))
        print(
            f"{case.name}: {fast:.0f} writes/s at 0 ms, {slow:.0f} at {options.delay}: {statistics.median(ratios):.2f} x "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f}, {len(ratios)} pairs); then "
            + ", ".join(f"{field} {last.get(field)}" for field in FIELDS),
            flush=True,
        )


if __name__ == "__main__":
    main()
