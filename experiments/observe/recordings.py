"""The recordings that the figures are drawn from, and how each is made."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PATIENCE_S = 60
# Blocked reads of LLaMA's proportions; attention in more bits than the rest, so that layers have hot parts to be told by.
LAYERED = ["--layers", "16", "--embedding", "256", "--feed-forward", "1024"]
LAYERED_SHORT = ["--layers", "8", "--embedding", "128", "--feed-forward", "512"]


@dataclass(frozen=True)
class Tools:
    """What recordings are made with."""

    tiermem: Path
    folder: Path
    short: bool

    def workload(self, name: str) -> str:
        """A workload of our own, which lies beside the program."""
        return str(self.tiermem.parent / name)

    def call(self, *words: str) -> str:
        """Runs the program and tells what it prints."""
        return self.run(*words).stdout

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """The same, and what it says besides; with more variables in the environment."""
        done = subprocess.run([str(self.tiermem), *words], capture_output=True, text=True, check=False, env=os.environ | variables)
        if done.returncode:
            raise RuntimeError(f"tiermem {' '.join(words)}: {done.stderr.strip()}")
        return done

    def model(self, name: str, *arguments: str) -> Path:
        """A model with random weights, made if it is not there."""
        path = self.folder / f"{name}.gguf"
        if not path.exists():
            part = path.with_suffix(".part")
            command = [sys.executable, str(HERE / "make_gguf.py"), str(part), *arguments]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            part.rename(path)
        return path


def python(program: str, *arguments: str) -> list[str]:
    """A program of this folder."""
    return [sys.executable, str(HERE / "programs" / program), *arguments]


def record(tools: Tools, name: str, flags: list[str], command: list[str], **variables: str) -> dict[str, Any]:
    """Records a command, and keeps what it printed."""
    path, report = tools.folder / f"{name}.rec", tools.folder / f"{name}.report"
    done = tools.run("record", *flags, "--format", "json", "--report", str(report), "-o", str(path), "--", *command, **variables)
    (tools.folder / f"{name}.out").write_text(done.stdout)
    cost: dict[str, Any] = json.loads(report.read_text())[0]
    return cost


def said(tools: Tools, name: str) -> dict[str, Any]:
    """The JSON that a recorded program printed."""
    lines = (tools.folder / f"{name}.out").read_text().splitlines()
    found: dict[str, Any] = json.loads(next(line for line in lines if line.startswith("{")))
    return found


def layers(tools: Tools) -> dict[str, Any]:
    """Every load of decoding a token: what the stride is seen in. A hundred times slower than alone."""
    model = tools.model("layers", *(LAYERED_SHORT if tools.short else LAYERED))
    flags = ["--source", "lackey", "--granule", "4KiB", "--slice", "100s"]
    return record(tools, "layers", flags, python("decode.py", str(model), "--decode", "1" if tools.short else "2"))


def weights(tools: Tools) -> Path:
    """The model that is decoded at its own speed."""
    return tools.model("weights", "--size", "64MiB" if tools.short else "1GiB")


def decode_slice_ms(tools: Tools) -> int:
    """Of the full form, a tenth of a token."""
    return 20 if tools.short else 15


def decode(tools: Tools) -> dict[str, Any]:
    """Weights are read into huge pages of memory, which takes a hundredth of the time to look at that small ones take."""
    flags = ["--slice", f"{decode_slice_ms(tools)}ms", "--granule", "1MiB" if tools.short else "8MiB"]
    command = python("decode.py", str(weights(tools)), "--decode", "32", "--no-mmap")
    return record(tools, "decode", flags, command, GLIBC_TUNABLES="glibc.malloc.hugetlb=1")


def prompt(tools: Tools) -> dict[str, Any]:
    """A prompt is filled in batches: each goes through the file once."""
    tokens, batch = ("64", "32") if tools.short else ("256", "64")
    flags = ["--slice", "20ms", "--granule", "1MiB"] if tools.short else ["--slice", "250ms", "--granule", "8MiB"]
    command = python("decode.py", str(weights(tools)), "--prompt", tokens, "--batch", batch, "--decode", "0")
    return record(tools, "prompt", flags, command)


def vector(tools: Tools) -> dict[str, Any]:
    """Every access of a product of matrix and vector, in granules of 1 KiB. OpenBLAS is told of a processor that Valgrind knows."""
    rows = "500" if tools.short else "2000"
    flags = ["--source", "lackey", "--granule", "1KiB", "--slice", "100s"]
    # Not by `env`, which would be the program that Valgrind sees.
    command = python("matvec.py", "--size", rows, "--repeat", "4")
    return record(tools, "vector", flags, command, OPENBLAS_CORETYPE="Haswell")


def matvec(tools: Tools) -> dict[str, Any]:
    """The same at its own speed, as large as in the work."""
    rows, repeat = ("2000", "200") if tools.short else ("10000", "100")
    # A product takes 50 ms: slices that are longer than a pass would show a hotspot that stands, or goes backward.
    flags = ["--slice", "20ms", "--granule", "1MiB"] if tools.short else ["--slice", "8ms", "--granule", "8MiB"]
    return record(tools, "matvec", flags, python("matvec.py", "--size", rows, "--repeat", repeat))


def pagerank(tools: Tools) -> dict[str, Any]:
    """Scores of a Kronecker graph."""
    scale = "18" if tools.short else "21"
    flags = ["--slice", "20ms" if tools.short else "500ms", "--granule", "1MiB"]
    return record(tools, "pagerank", flags, [tools.workload("pagerank"), "--scale", scale])


def redis(tools: Tools) -> dict[str, Any]:
    """A Redis server that answers YCSB's workload B: reads of which few keys get most."""
    objects, requests = ("5k", "50k") if tools.short else ("300k", "1500k")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no"]
    flags = ["--slice", "100ms" if tools.short else "1s", "--granule", "256KiB" if tools.short else "1MiB"]
    path, report = tools.folder / "redis.rec", tools.folder / "redis.report"
    command = [str(tools.tiermem), "record", *flags, "--format", "json", "--report", str(report), "-o", str(path), "--", *server]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as recorder:
        with ended(recorder, port):
            answered(port)
            workload = f"ycsb-b:objects={objects},requests={requests}"
            tools.call("store", "replay", workload, "--to", f"127.0.0.1:{port}")
        _, complaint = recorder.communicate(timeout=PATIENCE_S)
    if recorder.returncode:
        raise RuntimeError(complaint.strip())
    cost: dict[str, Any] = json.loads(report.read_text())[0]
    return cost


@contextlib.contextmanager
def ended(recorder: subprocess.Popen[str], port: int) -> Iterator[None]:
    """Has the server end, whatever happens to its client."""
    try:
        yield
    finally:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
                connection.sendall(b"SHUTDOWN NOSAVE\r\n")
        except OSError:
            recorder.terminate()


def answered(port: int) -> None:
    """Waits until something answers there."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def skewed(tools: Tools) -> dict[str, Any]:
    """Granules whose reads are counted by the program itself."""
    footprint, seconds = (64 << 20, 3) if tools.short else (1 << 30, 10)
    granule = 1 << 20 if tools.short else 4 << 20
    command = [tools.workload("skewed"), "--footprint", str(footprint), "--granule", str(granule), "--seconds", str(seconds)]
    return record(tools, "skewed", ["--granule", f"{granule >> 20}MiB"], [*command, "--per-second", "2000000"])


MAKERS: dict[str, Callable[[Tools], dict[str, Any]]] = {
    maker.__name__: maker for maker in (layers, vector, decode, prompt, matvec, pagerank, redis, skewed)
}
