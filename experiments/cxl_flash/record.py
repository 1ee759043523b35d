#!/usr/bin/env python3
"""Records the traces of these experiments: ten programs, each in up to five recordings (Yang 2023, sections 3.1, 3.2 and 5).

    experiments/cxl_flash/record.py --tiermem target/release/tiermem --out traces
    experiments/cxl_flash/record.py --tiermem target/release/tiermem --out traces --full --recordings 5 --only random stride

Writes NAME.parquet (virtual addresses, and the column `frame`), and NAME-2.parquet to NAME-5.parquet, as --recordings says.
Recordings 4 and 5 are made after this has touched half of the available memory and given one page of each two back, in no order,
so that frames come from wherever there are some, as on a machine that has run for long; it holds the other pages meanwhile. The
short form is 200,000 transactions of small programs behind small caches, about ten minutes for all ten, half of it the start of
Python before the transformer; the full one 20 million, three to sixty minutes each. One that takes longer than --minutes keeps
what it has by then.

These programs do the same with their memory each time, so that each is recorded once, and its further recordings are the
accesses of the first with the frames that another run got: that takes seconds. Accesses to pages that the other run has not
are left out, and counted; of a page that it had twice, its last frame counts.

The transformer runs in NumPy: what Valgrind knows of the processor is enough for it. It needs NumPy in the Python that runs
this; xz and redis-server are the installed ones. What is missing is said and passed over.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import json
import mmap
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from data import HERE, WORKLOADS, load

Array = npt.NDArray[Any]


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as at:
        at.bind(("127.0.0.1", 0))
        return int(at.getsockname()[1])


def available_bytes() -> int:
    """What the kernel thinks it could give without swapping."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) * 1024


@contextlib.contextmanager
def pressure(share: float) -> Iterator[None]:
    """Touches this share of the available memory and gives one page of each two back, in no order."""
    pairs = int(available_bytes() * share) // (2 * mmap.PAGESIZE)
    # Private: of a shared mapping no page goes back.
    with mmap.mmap(-1, pairs * 2 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        # Without huge pages: it is single pages that are wanted.
        held.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(2 * pairs):
            held[page * mmap.PAGESIZE] = 1
        # The kernel gives single pages before it breaks up longer runs of free ones, the last that it got first.
        rng = random.Random(1)
        order = array.array("q", range(pairs))
        rng.shuffle(order)
        for pair in order:
            held.madvise(mmap.MADV_DONTNEED, (2 * pair + rng.randrange(2)) * mmap.PAGESIZE, mmap.PAGESIZE)
        yield


def measurements(path: Path, megabytes: int) -> None:
    """A file of doubles that walk at random: a little to be found in what came before, as in tables of measurements."""
    np.cumsum(np.random.default_rng(1).standard_normal((megabytes << 20) // 8)).tofile(path)


class AnotherRunError(Exception):
    """A further run of a program had no frames for what the first accessed."""


class YcsbF(threading.Thread):
    """A client of Redis: reads, and for every other key writes what it read, changed; until nobody answers."""

    def __init__(self, port: int, records: int) -> None:
        super().__init__(daemon=True)
        self.port, self.records = port, records
        self.stopped = threading.Event()

    def run(self) -> None:
        """Once the server has its snapshot. An answer may be cut off."""
        with contextlib.suppress(OSError, ValueError), connected(self.port, self.stopped) as at:
            self.drive(at)

    def stop(self) -> None:
        """Once the server is gone."""
        self.stopped.set()
        self.join()

    def drive(self, at: socket.socket) -> None:
        """All that is asked."""
        rng = random.Random(2)
        answers = at.makefile("rb")
        ranks = [1 / rank**0.99 for rank in range(1, self.records + 1)]
        scattered = list(range(self.records))
        rng.shuffle(scattered)
        while True:
            # Many at once, as busy servers are asked: else half of what is recorded is system calls.
            keys = rng.choices(scattered, ranks, k=BATCH)
            at.sendall(b"".join(command(b"GET", b"user%d" % key) for key in keys))
            values = [answer(answers) for _ in keys]
            changed = [
                (key, value[100:] + rng.randbytes(100)) for key, value in zip(keys, values, strict=True) if rng.random() < 0.5
            ]
            at.sendall(b"".join(command(b"SET", b"user%d" % key, value) for key, value in changed))
            for _ in changed:
                answer(answers)


def command(*words: bytes) -> bytes:
    """As Redis reads it."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def answer(of: Any) -> bytes:
    """One reply; an error of the connection where there is none."""
    line = of.readline()
    if not line:
        raise ConnectionError("the server is gone")
    return of.read(int(line[1:]) + 2)[:-2] if line.startswith(b"$") and not line.startswith(b"$-") else line


def connected(port: int, stopped: threading.Event | None = None) -> socket.socket:
    """A connection to a Redis that answers: not before it has loaded what it starts with."""
    for _ in range(6000):
        if stopped and stopped.is_set():
            break
        with contextlib.suppress(OSError):
            at = socket.create_connection(("127.0.0.1", port))
            at.sendall(command(b"PING"))
            if at.makefile("rb").readline() == b"+PONG\r\n":
                return at
            at.close()
        time.sleep(0.1)
    raise ConnectionError("no Redis answers")


def filled(server: list[str], port: int, records: int) -> None:
    """Makes the snapshot that a Redis starts with: filling it while it is recorded would take longer than all the rest."""
    with subprocess.Popen(server, stdout=subprocess.DEVNULL) as redis, connected(port) as at:
        rng = random.Random(1)
        answers = at.makefile("rb")
        for first in range(0, records, 100):
            keys = range(first, min(first + 100, records))
            at.sendall(b"".join(command(b"SET", b"user%d" % key, rng.randbytes(1000)) for key in keys))
            for _ in keys:
                answer(answers)
        at.sendall(command(b"SAVE"))
        answer(answers)
        redis.terminate()


def prepare(workload: dict[str, Any], size: str, args: argparse.Namespace, folder: Path) -> tuple[list[str], YcsbF | None] | str:
    """The command to record, and who talks to it; or what is missing."""
    places = {"programs": str(args.programs), "python": sys.executable, "here": str(HERE), "folder": str(folder)}
    places |= {"weights": str(folder / "weights.bin"), "file": str(folder / "table"), "port": str(free_port())}
    for name, program in (("xz", args.xz), ("redis", args.redis)):
        found = shutil.which(program)
        if found is None and any(f"{{{name}}}" in word for word in workload["command"]):
            return f"{program} is not installed"
        places[name] = str(found)
    words = [word.format(**places) for word in workload["command"]] + workload[size]
    if not shutil.which(words[0]):
        return f"{words[0]} is not there: cargo build --release -p tiermem-workloads"
    client = None
    if workload["name"] == "transformer":
        made = subprocess.run([*words, "--make"], capture_output=True, text=True, check=False)
        if made.returncode:
            return made.stderr.strip().splitlines()[-1]
    elif workload["name"] == "xz":
        measurements(folder / "table", workload["megabytes"][size])
    elif workload["name"] == "ycsb-f":
        filled(words, int(places["port"]), workload["records"][size])
        client = YcsbF(int(places["port"]), workload["records"][size])
    return words, client


# Requests that the client of Redis sends before it reads the answers.
BATCH = 50
# Of the pages that a program touches; some are there for moments only.
KNOWN_SHARE = 0.999
# Between two looks at them, as page rank gives memory back soon; and how long they must have been the same.
POLL_S = 0.005
SETTLED_S = 1
# How long one may take to touch them.
PATIENCE_S = 180
# Puts the memory of a program where it is when it is recorded.
LIKE_RECORDED = ["valgrind", "--tool=none", "-q"]
# Threads of a library for linear algebra would take turns under Valgrind.
ONE_THREAD = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}


def runs_of(pages: Array) -> list[tuple[int, int]]:
    """Pages in ascending order as runs of neighbours: the first and how many."""
    breaks = np.flatnonzero(np.diff(pages) != 1) + 1
    return [(int(run[0]), len(run)) for run in np.split(pages, breaks)]


def frames_now(pid: int, runs: list[tuple[int, int]]) -> Array:
    """The frame of each page in this process; 0: it has none."""
    # Opened each time: a page map is that of what the process was executing then.
    page_map = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY)
    try:
        read = b"".join(os.pread(page_map, count * 8, first * 8).ljust(count * 8, b"\0") for first, count in runs)
    finally:
        os.close(page_map)
    entries = np.frombuffer(read, dtype=np.uint64)
    return np.where(entries >> np.uint64(63), entries & np.uint64((1 << 55) - 1), np.uint64(0))


def frames_of_another_run(words: list[str], client: YcsbF | None, pages: Array) -> Array:
    """The frames that a program has for these pages once it has touched all and they stay, or ends.

    What it gave back before has the last frame that it had.

    Raises:
        AnotherRunError: If it has not touched them within PATIENCE_S.
    """
    runs = runs_of(pages)
    until = time.monotonic() + PATIENCE_S
    settled_since = time.monotonic()
    with subprocess.Popen([*LIKE_RECORDED, *words], stdout=subprocess.DEVNULL, env=ONE_THREAD) as program:
        try:
            if client:
                client.start()
            known = frames_now(program.pid, runs)
            while program.poll() is None and time.monotonic() < until:
                time.sleep(POLL_S)
                # It may be gone by now.
                with contextlib.suppress(ProcessLookupError):
                    now = frames_now(program.pid, runs)
                    # A page that is not there any more was given back, as some are at the start: it had the frame that it had.
                    now = np.where(now, now, known)
                    if (now != known).any() or (now > 0).mean() <= KNOWN_SHARE:
                        settled_since = time.monotonic()
                    known = now
                    if time.monotonic() - settled_since > SETTLED_S:
                        break
        finally:
            program.kill()
            if client:
                client.stop()
    share = float((known > 0).mean())
    if share <= KNOWN_SHARE:
        raise AnotherRunError(f"another run had frames for {share:.2%} of the pages alone")
    return known


def record_frames(first: Path, words: list[str], client: YcsbF | None, path: Path) -> None:
    """The accesses of the first recording with the frames of another run of the same program."""
    keys = pq.read_table(first, columns=["key"])["key"].to_numpy()
    pages = np.unique(keys // mmap.PAGESIZE).astype(np.int64)
    del keys
    begun = time.monotonic()
    frames = frames_of_another_run(words, client, pages)
    source = pq.ParquetFile(first)
    left_out = 0
    with pq.ParquetWriter(path, source.schema_arrow, compression="zstd") as out:
        for batch in source.iter_batches():
            at = batch.schema.get_field_index("frame")
            mine = frames[np.searchsorted(pages, batch.column("key").to_numpy() // mmap.PAGESIZE)]
            table = pa.Table.from_batches([batch]).set_column(
                at, batch.schema.field(at), pa.array(mine, batch.schema.field(at).type)
            )
            left_out += int((mine == 0).sum())
            out.write_table(table.filter(pa.array(mine != 0)))
    print(
        f"{path.name}: frames of {len(pages)} pages, {left_out} transactions left out, {time.monotonic() - begun:.0f} s", flush=True
    )


def record(workload: dict[str, Any], number: int, args: argparse.Namespace) -> None:
    """One recording of one program."""
    size = "full" if args.full else "short"
    first = args.out / f"{workload['name']}.parquet"
    path = first if number == 1 else first.with_stem(f"{first.stem}-{number}")
    if path.exists() and not args.again:
        print(f"{path.name}: is there already", flush=True)
        return
    sizes = load(WORKLOADS)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        prepared = prepare(workload, size, args, folder)
        if isinstance(prepared, str):
            print(f"{path.name}: passed over, {prepared}", flush=True)
            return
        words, client = prepared
        if number >= 4:
            stack.enter_context(pressure(args.hold))
        begun, report = folder / path.name, folder / "report"
        if number > 1:
            try:
                record_frames(first, words, client, begun)
            except AnotherRunError as error:
                print(f"{path.name}: passed over, {error}", flush=True)
            else:
                shutil.move(begun, path)
            return
        flags = ["--transactions", str(args.transactions or sizes["transactions"][size]), *sizes["caches"][size]]
        flags += ["--skip-instructions", str(workload.get("skip", {}).get(size, 0)), "-o", str(begun)]
        if client:
            client.start()
        run = [args.tiermem, "record", "--physical", "--format", "json", "--report", str(report), *flags, "--", *words]
        with subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ONE_THREAD) as recorder:
            try:
                _, complaints = recorder.communicate(timeout=60 * args.minutes)
            except subprocess.TimeoutExpired:
                # It keeps what it has, and says that it was stopped.
                recorder.send_signal(signal.SIGINT)
                _, complaints = recorder.communicate()
        if recorder.returncode not in (0, 128 + signal.SIGINT):
            raise SystemExit(f"{path.name}: {' '.join(run)}: {complaints.strip()[-2000:]}")
        summary = json.loads(report.read_text())[0]
        if summary["ended"].startswith("exit status") and not summary["ended"].endswith(" 0"):
            raise SystemExit(f"{path.name}: {' '.join(words)}: {summary['ended']}: {complaints.strip()[-2000:]}")
        shutil.move(begun, path)
    about = f"{summary['transactions']} transactions, {summary['pages']} pages, {summary['unresolved']} unresolved"
    print(f"{path.name}: {about}, {summary['seconds']:.0f} s, ended by {summary['ended']}", flush=True)


def main() -> None:
    """Records what is wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [workload["name"] for workload in load(WORKLOADS)["workload"]]
    parser.add_argument("--tiermem", default="target/release/tiermem")
    parser.add_argument("--programs", type=Path, default=Path("target/release"), help="where the programs of tiermem-workloads are")
    parser.add_argument("--out", type=Path, default=Path("traces"))
    parser.add_argument("--full", action="store_true", help="the sizes of Yang 2023")
    parser.add_argument("--transactions", type=int, help="of each recording, instead of the form's")
    parser.add_argument("--recordings", type=int, default=1, choices=range(1, 6), help="of each program")
    parser.add_argument("--minutes", type=float, default=60, help="after which a recording ends with what it has")
    parser.add_argument("--hold", type=float, default=0.5, help="share of the available memory touched for recordings 4 and 5")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--again", action="store_true", help="record what is there already as well")
    parser.add_argument("--xz", default="xz")
    parser.add_argument("--redis", default="redis-server")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for number in range(1, args.recordings + 1):
        for workload in load(WORKLOADS)["workload"]:
            if workload["name"] in args.only:
                record(workload, number, args)


if __name__ == "__main__":
    main()
