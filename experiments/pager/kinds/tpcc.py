"""TPC-C: MariaDB with go-tpc as its client; the seed's Figure 4.3 had MySQL and 1000 warehouses."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from arms import end_with_this
from kinds.contract import Outcome, Workload, drop_from_cache, succeed
from kinds.servers import free_port, wait_for_port
from paged import Failed, Paging

MODULE = "github.com/pingcap/go-tpc/cmd/go-tpc@v1.0.7"
# What InnoDB may take of the memory that it has; MariaDB's manual says 70 to 80%.
ENGINE_SHARE = 0.75
MIB = 1 << 20
# Without statistics plans differ from run to run, and some are ten times slower.
ANALYZE = "ANALYZE TABLE warehouse, district, customer, history, new_order, orders, order_line, stock, item;"
# Conditions 1 to 4 of the benchmark's clause 3.3.2, each with the number of rows that violate it. Stock and customers are read for the same
# reason as an operator would: that a database which has just been started has them in its buffer pool.
CONDITIONS = """
SELECT 1, count(*) FROM warehouse
  JOIN (SELECT d_w_id, sum(d_ytd) AS ytd FROM district GROUP BY d_w_id) AS d ON d_w_id = w_id WHERE w_ytd <> ytd;
SELECT 2, count(*) FROM district
  JOIN (SELECT o_w_id, o_d_id, max(o_id) AS most FROM orders GROUP BY o_w_id, o_d_id) AS o ON o_w_id = d_w_id AND o_d_id = d_id
  WHERE d_next_o_id - 1 <> most;
SELECT 3, count(*) FROM
  (SELECT max(no_o_id) - min(no_o_id) + 1 AS ids, count(*) AS found FROM new_order GROUP BY no_w_id, no_d_id) AS n WHERE ids <> found;
SELECT 4, count(*) FROM (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS lines_told FROM orders GROUP BY o_w_id, o_d_id) AS o
  JOIN (SELECT ol_w_id, ol_d_id, count(*) AS found FROM order_line GROUP BY ol_w_id, ol_d_id) AS l ON ol_w_id = o_w_id AND ol_d_id = o_d_id
  WHERE lines_told <> found;
SELECT 'stock', sum(s_quantity) IS NULL FROM stock;
SELECT 'customers', sum(c_balance) IS NULL FROM customer;
"""


class Tpcc(Workload):
    """New orders a minute. The client runs outside the limit; before and after it checks the database's consistency."""

    has_engine = True

    def prepare(self) -> None:
        """The warehouses are loaded once; each run has a copy."""
        self.program = self.place.programs.debian("mariadb", "mariadb-server-core", "mariadb-client-core")
        self.client = self.place.programs.go("go-tpc", MODULE)
        self.loaded = self.place.data / f"tpcc-{self.sizes['warehouses']}"
        if not self.loaded.exists():
            making = self.loaded.with_suffix(".making")
            shutil.rmtree(making, ignore_errors=True)
            making.mkdir(parents=True)
            self._bootstrap(making)
            port = free_port()
            server_words = self._server(making, port, self.sizes["pool_mib"])
            with subprocess.Popen(server_words, stderr=subprocess.DEVNULL, preexec_fn=end_with_this) as server:
                try:
                    wait_for_port(port, server)
                    # Its own check may take for ever: the tables have no statistics yet. Ours comes before each run.
                    self._client(port, "prepare", "--no-check")
                    self._told(port, ANALYZE)
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
        """Each condition names what violates it. These statements also read the tables from end to end."""
        told = self._told(port, CONDITIONS)
        if wrong := [line for line in told.splitlines() if not line.endswith("\t0")]:
            raise Failed(f"the database is not consistent: violated are {', '.join(wrong)}")
        if len(told.splitlines()) != CONDITIONS.count(";"):
            raise Failed(f"the consistency could not be seen: {told}")

    def _told(self, port: int, statements: str) -> str:
        words = ["--no-defaults", "-h", "127.0.0.1", "-P", str(port), "-u", "root", "-N", "-B", "test"]
        return succeed([*self.program.command("usr/bin/mariadb"), *words], input=statements)
