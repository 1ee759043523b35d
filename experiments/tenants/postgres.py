#!/usr/bin/env python3
"""Several tenants with PostgreSQL behind them, half of them with a far one: what they wait for on Redis and on tiermem.

Wang 2024, section 4.2.3.3. Each tenant is a process: GET, and after a miss SELECT and SET. Far tenants reach PostgreSQL through a
relay that holds everything back for half of --delay in each direction, so that it needs no netem of the kernel's and no
namespace; it adds some of its own, which the printed times of a SELECT include. What a miss costs nobody declares: the store
measures it. A database, its data directory and all servers are made for the run and removed after it.

    pip install -r experiments/requirements.txt       # and PostgreSQL's initdb and postgres on PATH
    experiments/tenants/postgres.py                   # about ten minutes
    experiments/tenants/postgres.py --rounds 1 --seconds 20

Writes data (JSON), a table (Markdown) and a plot (SVG) next to each other.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import redis
from servers import Setup, Variant, free_port, running
from workloads import spec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from drawing import bar, keep, svg

# Name, workload, whether its database is far.
TENANTS = [
    ("web-near", "web", False),
    ("web-far", "web", True),
    ("src2-near", "src2", False),
    ("src2-far", "src2", True),
]
OVERHEAD_BYTES = 90
HERE = Path(__file__).parent
PERCENTILES = [50, 90, 95, 99, 99.9]


@contextmanager
def database(folder: Path) -> Iterator[int]:
    """A PostgreSQL of its own, which nobody else may use; its port."""
    data, port = folder / "data", free_port()
    data.mkdir()
    # It does not run as root.
    other = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if other:
        folder.chmod(0o755)
        shutil.chown(data, "postgres", "postgres")
    words = ["initdb", "-D", str(data), "-U", "tenants", "-A", "trust", "--no-sync"]
    subprocess.run([*other, *words], check=True, capture_output=True)
    settings = [f"port={port}", "listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "shared_buffers=256MB"]
    words = ["postgres", "-D", str(data), *(word for setting in settings for word in ("-c", setting))]
    with (folder / "postgres.log").open("wb") as log:
        server = subprocess.Popen([*other, *words], stdout=log, stderr=log)
    try:
        yield port
    finally:
        server.terminate()
        server.wait()


async def connected(port: int, patience_s: float = 30) -> asyncpg.Connection:
    """A connection, as soon as there is one to be had."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return await asyncpg.connect(host="127.0.0.1", port=port, user="tenants", database="postgres")
        except (OSError, asyncpg.PostgresError):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


def relay(port: int, to: int, delay_s: float) -> None:
    """Passes on what comes in either direction, `delay_s` later, in order."""

    async def one_way(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while data := await reader.read(1 << 16):
            loop.call_later(delay_s, writer.write, data)
        loop.call_later(delay_s, writer.close)

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", to)
        await asyncio.gather(one_way(reader, back), one_way(there, writer))

    async def serve() -> None:
        server = await asyncio.start_server(meet, "127.0.0.1", port)
        await server.serve_forever()

    asyncio.run(serve())


async def fill(port: int, traces: dict[str, list[tuple[int, int]]]) -> None:
    """A table for each workload, with a row for each key."""
    connection = await connected(port)
    for workload, trace in traces.items():
        await connection.execute(f"CREATE TABLE {workload} (key bigint PRIMARY KEY, value bytea NOT NULL)")
        rows = [(key, os.urandom(size)) for key, size in dict(trace).items()]
        await connection.copy_records_to_table(workload, records=rows)
    await connection.execute("ANALYZE")
    await connection.close()


def tenant(
    name: str, workload: str, trace: list[tuple[int, int]], ports: tuple[int, int], seconds: float, out: multiprocessing.Queue
) -> None:
    """One application, until the time is over; puts what it measured in the second half into `out`."""

    async def run() -> dict[str, Any]:
        cache = redis.Redis(port=ports[0], socket_timeout=30)
        connection = await connected(ports[1])
        select = await connection.prepare(f"SELECT value FROM {workload} WHERE key = $1")
        begun = time.perf_counter()
        waits, databases, refused, at = [], [], 0, 0
        while (start := time.perf_counter()) < begun + seconds:
            key = trace[at % len(trace)][0]
            at += 1
            missed = 0.0
            if cache.get(f"{name}:{key}") is None:
                asked = time.perf_counter()
                value = await select.fetchval(key)
                missed = time.perf_counter() - asked
                try:
                    cache.set(f"{name}:{key}", value)
                except redis.ResponseError:
                    refused += 1
            if start > begun + seconds / 2:
                waits.append(time.perf_counter() - start)
                if missed:
                    databases.append(missed)
        cuts = statistics.quantiles(waits, n=1000, method="inclusive")
        return {
            "name": name,
            "accesses": len(waits),
            "hit_ratio": 1 - len(databases) / len(waits),
            "mean_us": 1e6 * statistics.mean(waits),
            "select_us": 1e6 * statistics.median(databases) if databases else None,
            "refused": refused,
            **{f"p{percent}_us": 1e6 * cuts[round(10 * percent) - 1] for percent in PERCENTILES},
        }

    out.put(asyncio.run(run()))


def measure(args: argparse.Namespace, traces: dict[str, list[tuple[int, int]]], cache: int, near: int, far: int) -> dict[str, Any]:
    """All tenants at one server."""
    out: multiprocessing.Queue = multiprocessing.Queue()
    processes = [
        multiprocessing.Process(target=tenant, args=(name, workload, traces[workload], (cache, port), args.seconds, out))
        for name, workload, is_far in TENANTS
        for port in [far if is_far else near]
    ]
    for process in processes:
        process.start()
    seen = [out.get(timeout=args.seconds + 120) for _ in processes]
    for process in processes:
        process.join()
    seen.sort(key=lambda it: [name for name, *_ in TENANTS].index(it["name"]))
    return {"tenants_mean_us": statistics.mean(it["mean_us"] for it in seen), "tenants": seen}


def variants(memory: int) -> list[Variant]:
    """Redis, and tiermem with nobody told apart, with equal parts, and divided while it runs."""
    equal = "".join(f'\n[[tenant]]\nname = "{name}"\nshare = "{memory // len(TENANTS)}B"\n' for name, *_ in TENANTS)
    divided = (HERE / "mean.toml").read_text()
    return [
        Variant("redis", None),
        Variant("free", ""),
        Variant("equal", f'[tenants]\nby = "prefix"\n{equal}'),
        Variant("divided", divided),
    ]


def table(data: dict[str, Any]) -> str:
    """Means against Redis and each tenant, then the last rounds' tails."""
    names = [name for name, *_ in TENANTS]
    head = ["server", "tenants' mean, us", "against redis", *names]
    lines = [data["about"], "", f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    base = statistics.median(run["tenants_mean_us"] for run in data["runs"]["redis"])
    for server, runs in data["runs"].items():
        mean = statistics.median(run["tenants_mean_us"] for run in runs)
        each = [
            f"{statistics.median(run['tenants'][at]['mean_us'] for run in runs):.0f} us, "
            f"{statistics.median(run['tenants'][at]['hit_ratio'] for run in runs):.3f}"
            for at in range(len(names))
        ]
        lines.append(f"| {' | '.join([server, f'{mean:.1f}', f'{100 * (mean / base - 1):+.1f}%', *each])} |")
    lines += ["", f"| tenant | server | SELECT, median | {' | '.join(f'p{percent}' for percent in PERCENTILES)} | refused |"]
    lines += ["| --- " * (4 + len(PERCENTILES)) + "|"]
    for at, name in enumerate(names):
        for server, runs in data["runs"].items():
            seen = [run["tenants"][at] for run in runs]
            cuts = [f"{statistics.median(it[f'p{percent}_us'] for it in seen):.0f}" for percent in PERCENTILES]
            select = statistics.median(it["select_us"] or 0 for it in seen)
            lines.append(f"| {' | '.join([name, server, f'{select:.0f}', *cuts, str(sum(it['refused'] for it in seen))])} |")
    return "\n".join(lines) + "\n"


def draw(data: dict[str, Any]) -> str:
    """A bar for each server: the tenants' mean against Redis's, with the lowest and highest round."""
    base = statistics.median(run["tenants_mean_us"] for run in data["runs"]["redis"])
    parts = ['<text class="t" x="10" y="22">Mean access latency with PostgreSQL behind, mean over tenants; redis = 1</text>']
    y, scale = 46, 380
    for server, runs in data["runs"].items():
        rounds = [run["tenants_mean_us"] / base for run in runs]
        value = statistics.median(rounds)
        parts += bar(y, 90, scale, server, value, rounds)
        label = f"{value:.3f}: {value * base:.0f} us"
        parts.append(f'<text x="{100 + max(*rounds, 1) * scale:.1f}" y="{y + 12}">{label}</text>')
        y += 22
    return svg(700, y + 10, parts)


def trace_of(program: str, workload: str, keys: int, folder: Path) -> list[tuple[int, int]]:
    """Keys that are asked for, in order, and the sizes of their values."""
    path = folder / f"{workload}.csv"
    words = [program, "trace", "gen", spec(workload, keys, 1), "-o", str(path)]
    subprocess.run(words, check=True, capture_output=True)
    with path.open(newline="") as file:
        return [(int(row["key"]) % (1 << 63), int(row["size"])) for row in csv.DictReader(file)]


def working_set_bytes(traces: dict[str, list[tuple[int, int]]]) -> int:
    """What all tenants' keys take together."""
    return sum(OVERHEAD_BYTES + size for _, workload, _ in TENANTS for size in dict(traces[workload]).values())


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", default="target/release/tiermem")
    parser.add_argument("--redis", default="redis-server", help="stock Redis 7.0")
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--nice", type=int, default=0, help="of the servers")
    parser.add_argument("--memory", type=float, default=0.5, help="a share of the working set [default: 0.5]")
    parser.add_argument("--delay", type=float, default=2.0, metavar="MS", help="of a far database's answer [default: 2]")
    parser.add_argument("--keys", type=int, default=4000, help="of each stand-in [default: 4000]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=45, help="for each server, of which half is measured [default: 45]")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    args = parser.parse_args()
    args.tiermem = str(Path(args.tiermem).resolve())
    return args


def main() -> None:
    """Makes traces and a database, and runs servers in turn."""
    args = arguments()
    setup = Setup(args.tiermem, args.redis, args.server_core, 0, args.nice)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        workloads = dict.fromkeys(workload for _, workload, _ in TENANTS)
        traces = {workload: trace_of(args.tiermem, workload, args.keys, folder) for workload in workloads}
        memory = int(args.memory * working_set_bytes(traces))
        about = f"web- and src2-like, {memory / (1 << 20):.1f} MiB, {args.memory:.0%} of the working set"
        times = f"{args.seconds:g} s, half measured; {args.rounds} rounds; far: {args.delay:g} ms more"
        data: dict[str, Any] = {"about": f"{about}; {times}", "runs": {}}
        with database(folder) as near:
            asyncio.run(fill(near, traces))
            far = free_port()
            delayed = multiprocessing.Process(target=relay, args=(far, near, args.delay / 2000), daemon=True)
            delayed.start()
            for turn in range(args.rounds):
                for variant in variants(memory):
                    with running(setup, variant, memory, folder) as cache:
                        run = measure(args, traces, cache, near, far)
                    data["runs"].setdefault(variant.name, []).append(run)
                    print(f"round {turn + 1} {variant.name:8} {run['tenants_mean_us']:9.1f} us", flush=True)
                keep(args.out / "tenants-postgres", data, table(data), draw(data))
            delayed.terminate()
    print(table(data))


if __name__ == "__main__":
    main()
