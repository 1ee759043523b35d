#!/usr/bin/env python3
"""Programs observed: recordings of a language model, a matrix product, page rank and Redis, drawn as the figures of Fisher 2025,
chapter 4, with the work's numbers beside ours, and what a plan would save each of them.

    experiments/observe/run.py all --tiermem target/release/tiermem
    experiments/observe/run.py decode redis --tiermem target/release/tiermem --out results
    experiments/observe/run.py all --short --out results                  # two minutes: small programs, figures mean little
    experiments/observe/run.py all --redraw                               # recordings that are there

Names: layers (figures 4.1, 4.3 to 4.6, 4.9: every load of decoding tokens under Valgrind, some ten minutes), vector (4.2), decode
(4.7, 4.11, 4.13), prompt, matvec, pagerank, redis, skewed (a program that counts its own reads), all. Recordings, and models with
random weights, are kept in --recordings. Writes pictures and results.md. What recording costs is measured by cost.py, and what a
plan does on two nodes by placed.py, whose tables are taken in. What needs two nodes that differ in time, or a processor's counters,
is named on the page. It needs what requirements.txt names, Valgrind, and redis-server; what is missing is named and left out,
unless it was asked for by name.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from figures import draw
from page import page
from recordings import MAKERS, Tools

NEEDS = {"layers": "valgrind", "vector": "valgrind", "redis": "redis-server"}
DECODED = {"layers", "decode", "prompt"}


def missing(name: str) -> str | None:
    """What this machine lacks for a recording."""
    if name in NEEDS and not shutil.which(NEEDS[name]):
        return NEEDS[name]
    if name in DECODED:
        try:
            import llama_cpp  # noqa: F401 - takes long, and only these programs need it
        except ImportError:
            return "llama-cpp-python"
    return None


def main() -> None:
    """Records, draws, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=[*MAKERS, "all"], metavar="NAME")
    parser.add_argument("--tiermem", type=Path, default=Path("target/release/tiermem"), help="its workloads lie beside it")
    parser.add_argument("--recordings", type=Path, default=Path("target/observe"))
    parser.add_argument("--out", type=Path, default=Path("docs/results/observe"))
    parser.add_argument("--short", action="store_true", help="small programs; wants another --recordings")
    parser.add_argument("--redraw", action="store_true", help="record nothing")
    args = parser.parse_args()
    for folder in (args.recordings, args.out):
        folder.mkdir(parents=True, exist_ok=True)
    tools = Tools(args.tiermem.resolve(), args.recordings.resolve(), args.short)
    names = list(MAKERS) if "all" in args.names else args.names
    costs_path = tools.folder / "costs.json"
    costs: dict[str, Any] = json.loads(costs_path.read_text()) if costs_path.exists() else {}
    for name in names:
        if not args.redraw:
            if lacks := missing(name):
                if name in args.names:
                    sys.exit(f"{name}: {lacks} is not installed")
                print(f"{name} is left out: {lacks} is not installed", flush=True)
                continue
            costs[name] = MAKERS[name](tools)
            costs_path.write_text(json.dumps(costs, indent=1) + "\n")
        if (tools.folder / f"{name}.rec").exists():
            draw(tools, name, args.out)
            print(f"{name}: recorded and drawn", flush=True)
    (args.out / "results.md").write_text(page(tools, args.out, costs))
    print(args.out / "results.md")


if __name__ == "__main__":
    main()
