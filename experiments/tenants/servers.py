"""The servers that are compared, each on one core, and what drives them, on another."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE_S = 30


@dataclass(frozen=True)
class Setup:
    """Programs and cores."""

    tiermem: str
    redis: str
    server_core: int
    client_core: int
    # Below 0, both go before whatever else the machine does, which needs the right to.
    nice: int

    def on(self, core: int) -> list[str]:
        """The words before a command that runs on a core."""
        return ["nice", "-n", str(self.nice), "taskset", "-c", str(core)]


@dataclass(frozen=True)
class Variant:
    """A server: stock Redis, or tiermem with a configuration file of this text."""

    name: str
    config: str | None

    def command(self, setup: Setup, port: int, memory: int, folder: Path) -> list[str]:
        """What starts it with so many bytes of memory in all, metadata and all: Redis and tiermem both count that way."""
        pinned = setup.on(setup.server_core)
        if self.config is None:
            rules = ["--maxmemory", str(memory), "--maxmemory-policy", "allkeys-lru", "--maxmemory-samples", "5"]
            return [*pinned, setup.redis, "--port", str(port), "--save", "", "--appendonly", "no", *rules]
        path = folder / f"{self.name}.toml"
        path.write_text(self.config)
        places = ["--listen", f"127.0.0.1:{port}", "--http", "127.0.0.1:0"]
        return [*pinned, setup.tiermem, "store", "serve", *places, "--config", str(path), "--tier", f"dram={memory}"]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(setup: Setup, variant: Variant, memory: int, folder: Path) -> Iterator[int]:
    """Starts a server, gives its port, and ends it."""
    port = free_port()
    log_path = folder / f"{variant.name}.log"
    with log_path.open("wb") as log:
        server = subprocess.Popen(variant.command(setup, port, memory, folder), cwd=folder, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{variant.name} does not serve: {log_path.read_text(errors='replace')}") from None
                time.sleep(0.05)
        yield port
    finally:
        server.kill()
        server.wait()


def drive(setup: Setup, port: int, tenants: list[str], flags: list[str]) -> dict[str, Any]:
    """Lets all tenants at the server, and says what they saw."""
    words = [*setup.on(setup.client_core), setup.tiermem, "store", "replay-tenants", "--to", f"127.0.0.1:{port}"]
    words += [word for tenant in tenants for word in ("--tenant", tenant)]
    done = subprocess.run([*words, *flags, "--format", "json"], capture_output=True, text=True, check=False)
    # Where the server refused commands it ends with 1, and the figures say how many.
    if not done.stdout:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
