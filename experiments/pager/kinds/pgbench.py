"""pgbench: PostgreSQL and its own client, of which it is told how many transactions to make; for what paging costs where all fits."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from arms import end_with_this
from kinds.contract import Outcome, Workload, drop_from_cache, succeed
from kinds.servers import free_port, wait_for_port
from paged import Failed, Paging
from programs import LIBRARIES, Unavailable

PROGRAMS = "usr/lib/postgresql/15/bin"
# PostgreSQL refuses to be root, and initdb to be a number without a name.
USER = pwd.getpwnam("nobody").pw_uid
AS_USER = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
# Inside the database.
USER_NAME = "bench"
BALANCES = (
    "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers), "
    "(SELECT sum(bbalance) FROM pgbench_branches), (SELECT count(*) FROM pgbench_history)"
)


class PgBench(Workload):
    """Transactions a second, of a fixed number. Afterwards the balances of accounts, tellers and branches must be equal."""

    def prepare(self) -> None:
        """The accounts are made once; each run has a copy."""
        self.program = self.place.programs.debian("postgresql", "postgresql-15")
        self.loaded = self.place.data / f"pgbench-{self.sizes['scale']}"
        if not shutil.which("setpriv"):
            raise Unavailable("there is no setpriv here: install util-linux")
        if not self.loaded.exists():
            making = self.loaded.with_suffix(".making")
            shutil.rmtree(making, ignore_errors=True)
            making.mkdir(parents=True)
            os.chown(making, USER, USER)
            share = ["-L", str(self.program.root / "usr" / "share" / "postgresql" / "15")]
            # It starts programs of its own, by their paths.
            libraries = {"LD_LIBRARY_PATH": str(self.program.root / LIBRARIES)}
            initdb = [str(self.program.path(f"{PROGRAMS}/initdb")), "-D", str(making), "-U", USER_NAME, "-A", "trust", "--no-sync", *share]
            succeed([*AS_USER, *initdb], libraries)
            port = free_port()
            nowhere = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            with subprocess.Popen(self._server(making, port), **nowhere, preexec_fn=end_with_this) as server:
                try:
                    self._wait(port, server)
                    self._client("pgbench", port, "-i", "-q", "-s", str(self.sizes["scale"]))
                finally:
                    server.terminate()
            making.rename(self.loaded)

    def run(self, paging: Paging, engine_bytes: int | None = None) -> Outcome:
        """The client runs outside the limit."""
        data = self.place.scratch / "postgresql"
        succeed(["cp", "-a", str(self.loaded), str(data)])
        drop_from_cache(data)
        port = free_port()
        clients, transactions = self.sizes["clients"], self.sizes["transactions"]
        with paging.serving(self._server(data, port)) as server:
            self._wait(port, server)
            told = self._client("pgbench", port, "-n", "-c", str(clients), "-t", str(transactions))
            sums = self._client("psql", port, "-A", "-t", "-c", BALANCES).strip().split("|")
        if len(set(sums[:3])) != 1 or sums[3] != str(clients * transactions):
            raise Failed(f"the balances of accounts, tellers and branches, and the number of transactions, are {sums}")
        found = re.search(r"^tps = ([\d.]+)", told, re.MULTILINE)
        if not found:
            raise Failed(f"pgbench told no transactions a second: {told[-2000:]}")
        return Outcome(float(found[1]), f"balanced, {sums[3]} transactions")

    def files(self) -> Iterable[Path]:
        """The server and its libraries; its data is a copy."""
        return [self.program.root]

    def _server(self, data: Path, port: int) -> list[str]:
        """Defaults, but for where things are; no other socket, and no wait for the disk at each commit, of which nothing is to be learnt."""
        settings = [f"port={port}", "listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off"]
        words = [word for setting in settings for word in ("-c", setting)]
        return [*AS_USER, *self.program.command(f"{PROGRAMS}/postgres"), "-D", str(data), *words]

    def _wait(self, port: int, server: subprocess.Popen[bytes]) -> None:
        """It answers before it is ready, and in little memory long before."""
        wait_for_port(port, server)
        ready = [*self.program.command(f"{PROGRAMS}/pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port), "-t", "60"]
        while subprocess.run(ready, check=False).returncode:
            if server.poll() is not None:
                raise Failed(f"the server exited with {server.returncode} at its start")
            time.sleep(0.05)

    def _client(self, name: str, port: int, *words: str) -> str:
        to = ["-h", "127.0.0.1", "-p", str(port), "-U", USER_NAME]
        return succeed([*self.program.command(f"{PROGRAMS}/{name}"), *to, *words, "postgres"])
