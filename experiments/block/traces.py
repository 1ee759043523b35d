"""Finds the traces: those that are named in workloads.toml, and the seed's own volumes where somebody has them."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from setting import SLICES, WORKLOADS, Workload, load

# Of groups, to which sizes of caches are rounded.
GROUP_BYTES = 256 << 10
Tiermem = Callable[..., str]


def runner(tiermem: Path) -> Tiermem:
    """Runs the program and gives what it says."""

    def run(*words: object, cwd: Path | None = None) -> str:
        command = [str(tiermem), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
        if done.returncode:
            raise SystemExit(f"tiermem {' '.join(command[1:])}: {done.stderr.strip()}")
        return done.stdout

    return run


def bytes_of(text: str) -> int:
    """A size such as 2MiB."""
    units = {"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}
    return int(text[:-3]) << units[text[-3:]]


def named(folder: Path, short: bool) -> tuple[list[Workload], list[str]]:
    """The workloads whose traces are in a folder, and a sentence about each that is not."""
    found, missing = [], []
    for it in load(WORKLOADS)["workload"]:
        if short and "short" not in it:
            continue
        file = it["short"]["file"] if short else it["file"]
        path = (SLICES if short else folder) / file
        if not path.exists():
            missing.append(f"{it['name']} is left out: there is no {file}")
            continue
        requests = it["short"]["requests"] if short else None
        replay = requests or it.get("replay")
        window = bytes_of(it["window"]) if "window" in it else None
        found.append(Workload(it["name"], it["family"], it["about"], path, requests, replay, window=window))
    return found, missing


def text_of(path: Path) -> TextIO:
    """A text file, however it is compressed."""
    openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    opener = openers.get(path.suffix)
    return io.TextIOWrapper(opener(path)) if opener else path.open()


def one_behind_the_other(files: list[Path], most: int) -> Iterator[str]:
    """The first requests of several files in the order of their names, under one header if they have one."""
    left = most
    for at, path in enumerate(files):
        with text_of(path) as lines:
            for number, line in enumerate(lines):
                if number == 0 and line.split(",")[0].strip().lower() == "timestamp":
                    if at == 0:
                        yield line
                    continue
                if left == 0:
                    return
                left -= 1
                yield line


def volume(run: Tiermem, source: Path, it: dict[str, Any], most: int, out: Path) -> Path | None:
    """The first requests of a volume, in a file of its own; None if it is not there."""
    files = sorted(path for pattern in it["files"] for path in source.rglob(pattern))
    if not files:
        return None
    trace = files[0]
    if len(files) > 1:
        trace = out / f"{it['name']}.csv"
        with trace.open("w") as joined:
            joined.writelines(one_behind_the_other(files, most))
    cut = out / f"{it['name']}.parquet"
    tenant = ["--tenant", it["tenant"]] if "tenant" in it else []
    run("trace", "filter", trace, *tenant, "--first", most, "--output", cut)
    # A file of many volumes may lack this one.
    return cut if rows_of(run("trace", "head", cut, "--requests", 1, "--format", "csv")) else None


def originals(run: Tiermem, source: Path, most: int | None, out: Path) -> tuple[list[Workload], list[str]]:
    """The seed's workloads, of as many of their volumes as there are, and a sentence about each volume that is not there."""
    described = load(WORKLOADS)
    most = most or described["originals"]["requests"]
    found, missing = [], []
    for it in described["original"]:
        volumes = {volume_["name"]: volume(run, source, volume_, most, out) for volume_ in it["volumes"]}
        there = {name: path for name, path in volumes.items() if path}
        if lacking := [name for name in volumes if name not in there]:
            missing.append(f"{it['name']}: {', '.join(lacking)} left out, as not there ({it['source']})")
        if there:
            together = out / f"{it['name']}.parquet"
            run("trace", "merge", *there.values(), "--output", together)
            about = f"the first {most:,} requests of {', '.join(there)} (original)"
            found.append(Workload(it["name"], it["family"], about, together, None, None, list(there)))
    return found, missing


def packed(run: Tiermem, workload: Workload, window: int, out: Path) -> Workload:
    """The same requests with all volumes in one, a window for each, into which offsets are brought by their remainder.

    Where there are hundreds of volumes of terabytes, no file has room for all of them as they are. Windows are multiples of all
    block sizes, so that what lies in one block does so as before.
    """
    plain, path = out / f"{workload.name}.csv", out / f"{workload.name}-packed.csv"
    limit = ["--requests", workload.replay] if workload.replay else []
    run("trace", "convert", workload.path, *limit, "--output", plain)
    numbers: dict[str, int] = {}
    with plain.open(newline="") as source, path.open("w", newline="") as target:
        rows = csv.DictReader(source)
        writer = csv.DictWriter(target, rows.fieldnames or [])
        writer.writeheader()
        for row in rows:
            number = numbers.setdefault(row["tenant"], len(numbers))
            offset = min(int(row["key"]) % window, window - int(row["size"]))
            writer.writerow({**row, "key": number * window + offset, "tenant": 0})
    return replace(workload, path=path)


def rows_of(text: str) -> list[dict[str, Any]]:
    """What a command prints as csv, with numbers where there are numbers."""

    def value(word: str) -> Any:
        if not word:
            return None
        for kind in (int, float):
            try:
                return kind(word)
            except ValueError:
                continue
        return word

    return [{key: value(word) for key, word in row.items()} for row in csv.DictReader(io.StringIO(text))]


def capacity(run: Tiermem, workload: Workload, requests: int | None) -> int:
    """The size of the cache for so much of a trace."""
    described = load(WORKLOADS)
    least = bytes_of(described["cache_least"])
    words = ["sim", "block", workload.path, "--blocks", "256KiB", "--cache", "1000%", "--format", "csv"]
    row = rows_of(run(*words, *(["--requests", requests] if requests else [])))[0]
    # Ten times the working set is large enough for the simulator to take, however short the trace is.
    share = row["capacity_bytes"] / 10 * described["cache_share"]
    return int(max(round(share / GROUP_BYTES) * GROUP_BYTES, least))
