"""What `tiermem heatmap` prints and writes."""

from __future__ import annotations

import csv
import json
import pathlib

from store import tiermem

# Of the recording that tests look at.
GRANULE_BYTES = 4 << 20


def rows(path: pathlib.Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def table(*arguments: str) -> list[dict]:
    done = tiermem("heatmap", *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def drawn(recording: pathlib.Path, path: pathlib.Path, *arguments: str) -> str:
    done = tiermem("heatmap", str(recording), "-o", str(path), *arguments)
    assert (done.returncode, done.stdout) == (0, f"{path}\n"), done.stderr
    return done.stderr
