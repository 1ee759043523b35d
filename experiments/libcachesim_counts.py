#!/usr/bin/env python3
"""Miss counts of every policy at eight sizes: ours, and those of the Python package libcachesim 0.3.5.

Writes `golden.csv` and `libcachesim.csv` as they lie in `crates/sim/tests/data`. Both take oracleGeneral files whose next
accesses are right within the file (libcachesim's Belady reads them); sizes are shares of the distinct objects.

    python experiments/libcachesim_counts.py OUT_DIR NAME=FILE.oracleGeneral.bin ... --tiermem PATH
"""

import argparse
import json
import pathlib
import struct
import subprocess

import libcachesim as lcs

SHARES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
THEIRS = {
    "fifo": lcs.FIFO,
    "lru": lcs.LRU,
    "clock": lcs.Clock,
    "clock2": lambda size: lcs.Clock(size, n_bit_counter=2),
    "sieve": lcs.Sieve,
    "s3-fifo": lcs.S3FIFO,
    "arc": lcs.ARC,
    "2q": lcs.TwoQ,
    "lfu": lcs.LFU,
    "s4lru": lcs.SLRU,
    "belady": lcs.Belady,
}
OURS = (
    "fifo clock clock2 lru lru-lazy slru s4lru klru redis random lfu lfu-da arc 2q s3-fifo sieve lhd hyperbolic cflru "
    "belady"
).split()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("trace", nargs="+")
    parser.add_argument("--tiermem", default="tiermem")
    args = parser.parse_args()
    golden, other = [], []
    for name, file in (trace.split("=", 1) for trace in args.trace):
        records = list(struct.iter_unpack("<IQIq", pathlib.Path(file).read_bytes()))
        objects = len({record[1] for record in records})
        sizes = [max(1, round(objects * share)) for share in SHARES]
        command = [args.tiermem, "sim", "cache", file, "--format", "json"]
        command += [word for size in sizes for word in ("--size", str(size))]
        command += [word for policy in OURS for word in ("--policy", policy)]
        for row in json.loads(subprocess.check_output(command)):
            golden.append((name, row["policy"], row["size"], row["misses"]))
        parameters = lcs.ReaderInitParam(ignore_obj_size=True, ignore_size_zero_req=False)
        reader = lcs.TraceReader(file, lcs.TraceType.ORACLE_GENERAL_TRACE, parameters)
        for policy, make in THEIRS.items():
            for size in sizes:
                reader.reset()
                miss_ratio, _ = make(size).process_trace(reader)
                other.append((name, policy, size, round(miss_ratio * len(records))))
    for path, rows in (("golden.csv", golden), ("libcachesim.csv", other)):
        lines = ["trace,policy,size_objects,misses", *(",".join(map(str, row)) for row in rows)]
        (args.out / path).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
