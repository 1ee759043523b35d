#!/usr/bin/env python3
"""The queries of TPC-H in DuckDB. Prints one JSON object: seconds of each pass, and a checksum of all answers."""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from pathlib import Path

import duckdb
import duckdb_extension_tpch


def connected(args: argparse.Namespace) -> duckdb.DuckDBPyConnection:
    """A connection with the extension, which its package has as a file: nothing is fetched."""
    limits = {"threads": args.threads, "memory_limit": args.memory_limit, "temp_directory": str(args.temporary)}
    connection = duckdb.connect(str(args.database), config=limits)
    folder = Path(duckdb_extension_tpch.__file__).parent / "extensions" / f"v{duckdb.__version__}"
    connection.load_extension(str(folder / "tpch.duckdb_extension"))
    return connection


def make(connection: duckdb.DuckDBPyConnection, scale: float) -> None:
    """The tables, in ten steps, as all at once would take several times their size in memory."""
    for step in range(10):
        connection.execute(f"CALL dbgen(sf = {scale}, children = 10, step = {step})")
    connection.execute("CHECKPOINT")


def main() -> None:
    """Makes the tables, or asks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database", type=Path)
    parser.add_argument("--make", type=float, metavar="SCALE", help="make the tables, and ask nothing")
    parser.add_argument("--passes", type=int, default=1, help="how often all queries are asked")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory-limit", default="64GiB", help="of DuckDB; its own default would follow the control group's limit")
    parser.add_argument("--temporary", type=Path, required=True, help="where DuckDB spills to")
    args = parser.parse_args()
    connection = connected(args)
    if args.make:
        make(connection, args.make)
        return
    queries = connection.execute("SELECT query FROM tpch_queries() ORDER BY query_nr").fetchall()
    answers = hashlib.sha256()
    passes = []
    for _ in range(args.passes):
        started = time.monotonic()
        for (query,) in queries:
            # Sorted, as rows that a query ranks equal may come in any order.
            answers.update(repr(sorted(map(repr, connection.execute(query).fetchall()))).encode())
        passes.append(time.monotonic() - started)
    print(json.dumps({"seconds": passes, "queries": len(queries), "answers": answers.hexdigest()}))


if __name__ == "__main__":
    main()
