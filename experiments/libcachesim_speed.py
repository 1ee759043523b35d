#!/usr/bin/env python3
"""Requests per second of `tiermem sim cache` beside libCacheSim's `cachesim`, as ratios of interleaved pairs.

Claim: at least twice libCacheSim's requests per second for LRU, FIFO, S3-FIFO, SIEVE and sampling LRU, on
one thread, object sizes ignored. Both read the same oracleGeneral file, which is the best form of both. The figure is
processor time of the whole process, user and system, reading included.

    python experiments/libcachesim_speed.py TRACE.oracleGeneral.bin SIZE --cachesim PATH --tiermem PATH [--pairs 5]

libCacheSim is run, never read: `cachesim` is built from the source package `libcachesim` 0.3.5 on PyPI, outside this repository.
"""

import argparse
import os
import resource
import statistics
import subprocess

# libCacheSim's name and parameters, ours with ours.
PAIRS = [
    ("LRU", "", ["lru"]),
    ("FIFO", "", ["fifo"]),
    ("S3FIFO", "", ["s3-fifo"]),
    ("Sieve", "", ["sieve"]),
    ("RandomLRU", "n-samples=1", ["klru", "--k", "1"]),
    ("RandomLRU", "n-samples=5", ["klru", "--k", "5"]),
    ("RandomLRU", "n-samples=16", ["klru", "--k", "16"]),
]


def cpu_seconds(command: list[str]) -> float:
    """Processor time of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("size", help="cache size in objects")
    parser.add_argument("--cachesim", default="cachesim")
    parser.add_argument("--tiermem", default="tiermem")
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    requests = os.path.getsize(args.trace) / 24
    print("policy,ratio,ratio_min,ratio_max,libcachesim_mrps,tiermem_mrps")
    for name, parameters, policy in PAIRS:
        theirs = [args.cachesim, args.trace, "oracleGeneral", name, args.size]
        theirs += ["--ignore-obj-size=true", "--num-thread=1"] + (["-e", parameters] if parameters else [])
        ours = [args.tiermem, "sim", "cache", args.trace, "--size", args.size, "--threads", "1", "--policy", *policy]
        times = [(cpu_seconds(theirs), cpu_seconds(ours)) for _ in range(args.pairs)]
        ratios = sorted(a / b for a, b in times)
        rates = [requests / 1e6 / statistics.median(column) for column in zip(*times)]
        label = "-".join([policy[0], *policy[2:]])
        print(
            f"{label},{statistics.median(ratios):.2f},{ratios[0]:.2f},{ratios[-1]:.2f},{rates[0]:.2f},{rates[1]:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
