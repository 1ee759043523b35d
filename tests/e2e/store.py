"""A running `tiermem store serve`, as a user would start it, and small ways to talk to it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTDATA = ROOT / "crates" / "trace" / "testdata"
MIB = 1 << 20
# The whole suite may be run against a store of several shards: TIERMEM_SHARDS=2.
SHARDS = int(os.environ.get("TIERMEM_SHARDS") or 1)

# Nothing here is about speed: these only end what hangs, on however slow a machine.
PATIENCE_S = 120


def binary() -> str:
    """The program under test: the one that TIERMEM names, else the one that cargo has built."""
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
    path = pathlib.Path(os.environ.get("TIERMEM", f"{target}/debug/tiermem"))
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there: build it with `cargo build -p tiermem-cli`")
    return str(path)


def tiermem(*arguments: str, patience_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    """Runs the program until it ends."""
    return subprocess.run([binary(), *arguments], capture_output=True, text=True, timeout=patience_s, check=False)


def eventually(what: Callable[[], object], says: str) -> None:
    """Waits until `what` holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, f"it never came about that {says}"
        time.sleep(0.01)


def retried(attempt: Callable[[], Any]) -> Any:
    """What `attempt` yields, in three tries at most."""
    for _ in range(2):
        try:
            return attempt()
        except AssertionError as error:
            print(f"once more, since {error}")
    return attempt()


def shards(flags: tuple[str, ...]) -> list[str]:
    """The flag for as many shards as the suite is run with."""
    return ["--shards", str(SHARDS)] if SHARDS > 1 and "--shards" not in flags else []


class Store:
    """One server process with a log of its own. Both ports are chosen by the system."""

    def __init__(self, directory: pathlib.Path, *flags: str, env: dict[str, str] | None = None) -> None:
        self.log_path = directory / "log"
        ports = [] if "--listen" in flags else ["--listen", "127.0.0.1:0"]
        ports += ["--http", "127.0.0.1:0"]
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [binary(), "store", "serve", *ports, *shards(flags), *flags],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=env,
            )
        self.said = ""
        try:
            self._read_addresses()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def _read_addresses(self) -> None:
        """Reads what is printed for people: the redis-cli line and the page's address."""
        assert self.process.stdout is not None
        while "live page" not in self.said:
            ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
            line = os.read(self.process.stdout.fileno(), 4096).decode() if ready else ""
            assert line, f"the store did not start: {self.log()}"
            self.said += line
        port = re.search(r"^redis-cli -p (\d+)$", self.said, re.MULTILINE)
        page = re.search(r"^live page: (http://\S+/)$", self.said, re.MULTILINE)
        assert port and page, self.said
        self.port = int(port[1])
        self.page = page[1]

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def ask(self, request: bytes, until: bytes) -> bytes:
        """Sends bytes on a connection of its own and reads until the answer ends in `until`."""
        with self.connect() as connection:
            connection.sendall(request)
            answer = b""
            while not answer.endswith(until):
                more = connection.recv(1 << 16)
                assert more, f"closed after {answer!r}"
                answer += more
            return answer

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.page + path.lstrip("/"), timeout=PATIENCE_S) as answer:
            return answer.read().decode()

    def snapshot(self) -> dict:
        """What the page shows. The server publishes now and then, so this waits for a publication made after the call."""
        old = json.loads(self.get("/api/snapshot"))
        new = old

        def published() -> bool:
            nonlocal new
            new = json.loads(self.get("/api/snapshot"))
            return new["uptime_s"] != old["uptime_s"]

        eventually(published, "a new snapshot was published")
        return new

    def memory_bytes(self, field: str) -> int:
        """A field of the process's status, such as VmRSS."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"^{field}:\s+(\d+) kB$", status, re.MULTILINE)
        assert found, status
        return int(found[1]) * 1024

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Asks the process to end, as a service manager would; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        """Ends the process amid whatever it does."""
        self.stop(signal.SIGKILL)

    def close(self) -> None:
        """Ends the process and checks that it was well until then."""
        try:
            if self.process.poll() is None:
                assert self.stop() == 0, self.log()
            assert "panicked" not in self.log(), self.log()
        finally:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()
            if self.process.stdout:
                self.process.stdout.close()
