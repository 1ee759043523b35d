#!/usr/bin/env python3
"""What `tiermem record --sites` costs a program that touches memory first: pairs of runs with and without it, side by side.

    experiments/observe/sites.py                 # 4 GiB in small pages, then in huge ones; seven pairs each
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
# Eight times half a GiB is touched, which the machine beneath a virtual one has given before the first of them.
PROGRAM = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
static double used(void) {
    struct rusage use;
    getrusage(RUSAGE_THREAD, &use);
    return use.ru_utime.tv_sec + use.ru_stime.tv_sec + (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}
int main(int count, char **words) {
    size_t bytes = 512UL << 20;
    double sum = 0;
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, bytes, words[1][0] == 'h' ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    for (int round = 0; round < 9; round++) {
        double begun = used();
        for (size_t at = 0; at < bytes; at += 4096)
            memory[at] = 1;
        sum += round ? used() - begun : 0;
        madvise(memory, bytes, MADV_DONTNEED);
    }
    printf("touched %.4f\n", sum);
    return count < 2;
}
"""


def touched_s(folder: pathlib.Path, tiermem: str, pages: str, *flags: str) -> float:
    command = [tiermem, "record", *flags, "-o", str(folder / "a.rec"), "--report", str(folder / "report"), "--", str(folder / "touch"), pages]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"touched ([\d.]+)", done.stdout)
    assert found is not None, done
    return float(found.group(1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--tiermem", default=os.environ.get("TIERMEM", str(ROOT / "target/release/tiermem")))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "touch.c").write_text(PROGRAM)
        subprocess.run(["cc", "-O2", "-o", str(folder / "touch"), str(folder / "touch.c")], check=True)
        for pages in ("small", "huge"):
            pairs = [
                (touched_s(folder, options.tiermem, pages), touched_s(folder, options.tiermem, pages, "--sites"))
                for _ in range(options.pairs)
            ]
            ratios = sorted(after / before for before, after in pairs)
            alone = statistics.median(before for before, _ in pairs)
            print(f"{pages}: {alone:.2f} s of processor time for 4 GiB; with --sites x {statistics.median(ratios):.3f} "
                  f"({ratios[0]:.3f} to {ratios[-1]:.3f}, {len(pairs)} pairs)")


if __name__ == "__main__":
    main()
