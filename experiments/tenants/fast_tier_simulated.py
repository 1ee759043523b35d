#!/usr/bin/env python3
"""The fast tier shared freely or divided among tenants, simulated: what the tiers' curves charge a request, and nothing else.

Two and three tenants with real traces, a request of each in turn (Twitter cluster 52, the keys of a recommendation service, and
ARC's OLTP, as far as the shortest goes), and the three cases of `fast_tier.py` with a smaller number of keys. Unlike `fast_tier.py`
this measures no processor time: the decisions themselves cost nothing here. Time: about ten minutes.

    experiments/tenants/fast_tier_simulated.py --tiermem target/release/tiermem --trace-dir traces
"""

from __future__ import annotations

import argparse
import json
import lzma
import struct
import subprocess
import tempfile
from pathlib import Path

from fast_tier import cases

SHARINGS = ["free", "equal", "latency"]
KEYS, REQUESTS = 300_000, 6_000_000
# Shares of all items' bytes, fast and slow: all of them fit, or half of them.
SIZES = [("10%", "130%"), ("25%", "130%"), ("50%", "130%"), ("10%", "40%")]


def lines(path: Path) -> list[str]:
    return subprocess.run(["zstd", "-dc", str(path)], capture_output=True, text=True, check=True).stdout.splitlines()


def tenants(folder: Path) -> list[list[tuple[str, int]]]:
    """Keys and sizes, by tenant."""
    columns = (line.split(",") for line in lines(folder / "twitter_cluster52.csv.zst"))
    twitter = [(fields[1].strip(), int(fields[2])) for fields in columns if fields[2].strip().isdigit()]
    keys = lzma.open(folder / "scarab-recs.trace.xz").read()
    services = [(str(key), 300) for (key,) in struct.iter_unpack(">q", keys[: len(keys) // 8 * 8])]
    oltp = [(line.split()[0], 512) for line in lines(folder / "arc_OLTP.lis.zst")]
    return [twitter, services, oltp]


def merge(streams: list[list[tuple[str, int]]], path: Path) -> None:
    """One file of all tenants, a request of each in turn."""
    with path.open("w") as out:
        for turn in zip(*streams):
            out.writelines(f"{tenant}{key},{max(size, 1)},{tenant}\n" for tenant, (key, size) in enumerate(turn))


def simulate(tiermem: str, about: str, words: list[str]) -> None:
    told = []
    for sharing in SHARINGS:
        command = [tiermem, "sim", "cache", *words, "--tenants", sharing, "--tenant-window", "150000", "--format", "json"]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        told.append(f"{found['charged_ns_per_request']:.1f} ns, {found['fast_hit_share']:.3f} in the fast tier")
    print(f"{about}: {'; '.join(f'{sharing} {figures}' for sharing, figures in zip(SHARINGS, told))}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", default="target/release/tiermem")
    parser.add_argument("--trace-dir", type=Path, required=True)
    args = parser.parse_args()
    for name, case in cases(KEYS).items():
        fast = f"{case.fast * 100:.0f}%"
        words = [case.spec(REQUESTS), "--tier", fast, "--tier", "130%", "--preload", "--tenant-sample", "0.01"]
        simulate(args.tiermem, f"{name}, {fast}", words)
    streams = tenants(args.trace_dir)
    with tempfile.TemporaryDirectory() as folder:
        for count in (2, 3):
            path = Path(folder) / f"{count}.csv"
            merge(streams[:count], path)
            for fast, slow in SIZES:
                words = [str(path), "--trace-format", "csv", "--columns", "key=1,size=2,tenant=3", "--tier", fast, "--tier", slow]
                words += ["--tenant-sample", "0.05", *(["--preload"] if slow == "130%" else [])]
                simulate(args.tiermem, f"{count} traces, {fast} and {slow}", words)


if __name__ == "__main__":
    main()
