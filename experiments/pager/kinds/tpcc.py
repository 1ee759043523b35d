"""TPC-C: MariaDB with go-tpc as its client; the seed's Figure 4.3 had MySQL and 1000 warehouses."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from kinds.contract import Outcome, Workload, drop_from_cache, succeed
from kinds.servers import free_port, wait_for_port
from paged import Failed, Paging

MODULE = "github.com/pingcap/go-tpc/cmd/go-tpc@v1.0.7"
# What InnoDB may take of the memory that it has; MariaDB's manual says 70 to 80%.
ENGINE_SHARE = 0.75
MIB = 1 << 20


class Tpcc(Workload):
    """New orders a minute. The client runs outside the limit; before and after it checks the database's consistency."""

    has_engine = True

    def prepare(self) -> None:
        """The warehouses are loaded once; each run has a copy."""
        self.program = self.place.programs.debian("mariadb", "mariadb-server-core")
        self.client = self.place.programs.go("go-tpc", MODULE)
        self.loaded = self.place.data / f"tpcc-{self.sizes['warehouses']}"
        if not self.loaded.exists():
            making = self.loaded.with_suffix(".making")
            shutil.rmtree(making, ignore_errors=True)
            making.mkdir(parents=True)
            self._bootstrap(making)
            port = free_port()
            with subprocess.Popen(self._server(making, port, self.sizes["pool_mib"]), stderr=subprocess.DEVNULL) as server:
                try:
                    wait_for_port(port, server)
                    self._client(port, "prepare")
                finally:
                    server.terminate()
            if server.returncode:
                raise Failed(f"mariadbd exited with {server.returncode} after loading")
            making.rename(self.loaded)

    def run(self, paging: Paging, engine_bytes: int | None = None) -> Outcome:
        """The check before the client's time also brings every table into the buffer pool, as far as there is room."""
        data = self.place.scratch / "mariadb"
        succeed(["cp", "-a", str(self.loaded), str(data)])
        drop_from_cache(data)
        pool_mib = int(engine_bytes * ENGINE_SHARE) // MIB if engine_bytes else self.sizes["pool_mib"]
        port = free_port()
        with paging.serving(self._server(data, port, pool_mib)) as server:
            wait_for_port(port, server)
            self._check(port)
            told = self._client(port, "run", "--time", f"{self.sizes['seconds']}s", "--interval", "1h")
            self._check(port)
        found = re.search(r"^tpmC: ([\d.]+)", told, re.MULTILINE)
        if not found:
            raise Failed(f"go-tpc told no tpmC: {told[-2000:]}")
        return Outcome(float(found[1]), f"consistent, {self.sizes['warehouses']} warehouses")

    def files(self) -> Iterable[Path]:
        """The server and its libraries; its data is a copy."""
        return [self.program.root]

    def _server(self, data: Path, port: int, pool_mib: int, *more: str) -> list[str]:
        """Defaults, but for where things are, and for the size of the buffer pool and of the log that goes with it."""
        share = self.program.root / "usr" / "share" / "mysql"
        return [
            *self.program.command("usr/sbin/mariadbd"),
            "--no-defaults", "--user=root", f"--basedir={self.program.root / 'usr'}", f"--datadir={data}",
            f"--lc-messages-dir={share}", f"--character-sets-dir={share / 'charsets'}", f"--plugin-dir={data}",
            f"--socket={data / 'socket'}", f"--pid-file={data / 'pid'}", f"--tmpdir={data}", f"--port={port}", "--bind-address=127.0.0.1",
            "--skip-grant-tables", f"--innodb-buffer-pool-size={pool_mib}M", f"--innodb-log-file-size={self.sizes['log_mib']}M",
            # What was loaded before the end is not loaded again at the start; the tables are read by the check.
            "--innodb-buffer-pool-load-at-startup=OFF", "--innodb-buffer-pool-dump-at-shutdown=OFF",
            *more,
        ]  # fmt: skip

    def _bootstrap(self, data: Path) -> None:
        """The system's tables, by the statements that the server's package has for it."""
        share = self.program.root / "usr" / "share" / "mysql"
        statements = "CREATE DATABASE mysql;\nCREATE DATABASE test;\nUSE mysql;\n"
        statements += "".join((share / f"{name}.sql").read_text() for name in ("mysql_system_tables", "mysql_performance_tables"))
        succeed(self._server(data, 0, self.sizes["pool_mib"], "--bootstrap"), input=statements)

    def _client(self, port: int, what: str, *more: str) -> str:
        """On one database, with the same number of warehouses and threads throughout."""
        words = ["-H", "127.0.0.1", "-P", str(port), "-U", "root", "-D", "test", "-T", str(self.sizes["threads"])]
        return succeed([str(self.client), "tpcc", "--warehouses", str(self.sizes["warehouses"]), *words, what, *more])

    def _check(self, port: int) -> None:
        """It says what is wrong, and may exit with 0 all the same."""
        told = self._client(port, "check")
        if re.search(r"error|fail|inconsisten|not equal", told, re.IGNORECASE):
            raise Failed(f"the database is not consistent: {told[-2000:]}")
