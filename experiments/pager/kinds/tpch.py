"""TPC-H: DuckDB with its tpch extension; the seed's Figure 4.4 had Greenplum."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from kinds.contract import INSIDE, Outcome, TooSmall, Workload, succeed
from paged import Failed, Paging

VERSION = "1.5.5"
QUERIES = 22
# DuckDB's own default: this part of the memory that it finds.
ENGINE_SHARE = 0.8


class Tpch(Workload):
    """Seconds of all queries, asked one after the other, in a database file. The tables are made once."""

    has_engine = True

    def prepare(self) -> None:
        """The extension's package fits one version of DuckDB."""
        self.environment = self.place.programs.pip("duckdb", f"duckdb=={VERSION}", f"duckdb-extension-tpch=={VERSION}")
        self.database = self.place.data / f"tpch-{self.sizes['scale']:g}.duckdb"
        if not self.database.exists():
            self.place.data.mkdir(parents=True, exist_ok=True)
            making = self.database.with_suffix(".making")
            for left in (making, Path(f"{making}.wal")):
                left.unlink(missing_ok=True)
            succeed([*self._program(making), "--make", str(self.sizes["scale"])], self.environment)
            making.rename(self.database)

    def run(self, paging: Paging, engine_bytes: int | None = None) -> Outcome:
        """Without a limit of its own, DuckDB takes what it wants: swap has to serve it."""
        limit = ["--memory-limit", f"{int(engine_bytes * ENGINE_SHARE) >> 20}MiB"] if engine_bytes else []
        command = [*self._program(self.database), "--passes", str(self.sizes["passes"]), *limit]
        try:
            told = json.loads(paging.run(command, self.environment))
        except Failed as failure:
            if engine_bytes and "OutOfMemoryException" in str(failure):
                raise TooSmall(f"DuckDB cannot work within {limit[1]}") from failure
            raise
        if told["queries"] != QUERIES or len(told["seconds"]) != self.sizes["passes"]:
            raise Failed(f"{told['queries']} queries and {len(told['seconds'])} passes instead of {QUERIES} and {self.sizes['passes']}")
        return Outcome(sum(told["seconds"]), told["answers"])

    def files(self) -> Iterable[Path]:
        """The database, and DuckDB itself."""
        return [self.database, Path(self.environment["PYTHONPATH"])]

    def _program(self, database: Path) -> list[str]:
        return [sys.executable, str(INSIDE / "tpch.py"), str(database), "--temporary", str(self.place.scratch / "spilled")]
