"""One block server on a core, the trace that is sent to it from another, and what it says of itself."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from setting import Contender, Live, Workload

PATIENCE_S = 30
# Backing files are sparse, and larger than any volume that is replayed.
EXPORT_BYTES = 8 << 40
# Between two looks at what the server's metadata take.
LOOK_S = 0.25
# What a cache's file has beside its blocks, to begin with; `fitted` finds out how much it is.
LOG_BYTES = 3 << 20
Status = dict[str, Any]


@dataclass(frozen=True)
class Machine:
    """The program and the cores."""

    tiermem: Path
    server_core: int
    client_core: int
    # Below 0, both go before whatever else the machine does, which needs the right to.
    nice: int

    def on(self, core: int) -> list[str]:
        """The words before a command that runs on a core."""
        return ["nice", "-n", str(self.nice), *(["taskset", "-c", str(core)] if shutil.which("taskset") else [])]


def status_of(port: int) -> Status:
    """The figures of the server whose page is at this port."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/status", timeout=PATIENCE_S) as reply:
        found: Status = json.load(reply)
        return found


class Server:
    """A server that runs."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, port: int) -> None:
        self.process, self.folder, self.port = process, folder, port

    def log(self) -> str:
        """What it has said."""
        return (self.folder / "log").read_text(errors="replace")

    def status(self) -> Status:
        """Its figures."""
        return status_of(self.port)

    def uri(self, each: bool) -> str:
        """Where its exports are."""
        return f"nbd+unix:///{'v{volume}' if each else 'v0'}?socket={self.folder / 'nbd'}"


def free_port() -> int:
    """One that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def configuration(contender: Contender, live: Live, folder: Path, exports: int, device_bytes: int, port: int) -> str:
    """The server's, in TOML. All contenders have the same but for their blocks."""
    blocks = ", ".join(f'"{size}"' for size in contender.blocks)
    lines = [
        f'listen = ["unix:{folder / "nbd"}"]',
        f'http = "127.0.0.1:{port}"',
        "[cache]",
        f'path = "{folder / "cache"}"',
        f'capacity = "{device_bytes}B"',
        f"blocks = [{blocks}]",
        f'fill = "{contender.fill}"',
        f'sizing = "{contender.sizing}"',
        f'memory = "{live.memory}"',
        f'dirty_age = "{live.dirty_age}"',
        f"dirty_percent = {live.dirty_percent}",
    ]
    for number in range(exports):
        backing = f"{folder / f'v{number}.img'},{live.backing}"
        lines += ["[[export]]", f'name = "v{number}"', f'backing = "{backing}"', 'mode = "write-back"']
    return "\n".join(lines) + "\n"


@contextmanager
def running(machine: Machine, contender: Contender, live: Live, exports: int, device_bytes: int, folder: Path) -> Iterator[Server]:
    """A server with an empty cache in front of empty volumes."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for number in range(exports):
        with (folder / f"v{number}.img").open("wb") as file:
            file.truncate(EXPORT_BYTES)
    port = free_port()
    (folder / "config.toml").write_text(configuration(contender, live, folder, exports, device_bytes, port))
    command = [*machine.on(machine.server_core), str(machine.tiermem), "block", "serve", "--config", str(folder / "config.toml")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
    server = Server(process, folder, port)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                server.status()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{contender.name} does not serve: {server.log()}") from None
                time.sleep(0.02)
        yield server
    finally:
        # What is dirty has been counted; nobody needs it written back.
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def fitted(machine: Machine, contender: Contender, live: Live, capacity_bytes: int, folder: Path) -> int:
    """How large a cache's file must be for its blocks to have so many bytes, log and table aside."""
    device_bytes = capacity_bytes + LOG_BYTES
    for _ in range(4):
        with running(machine, contender, live, 1, device_bytes, folder) as server:
            there = server.status()["cache"]["capacity_bytes"]
        if there == capacity_bytes:
            break
        device_bytes += capacity_bytes - there
    return device_bytes


class Looks:
    """What the server's metadata take, looked at again and again while it works."""

    def __init__(self, server: Server) -> None:
        self.server, self.statuses = server, [server.status()]
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look(self) -> None:
        """Until the end."""
        while not self.ended.wait(LOOK_S):
            self.statuses.append(self.server.status())

    def __enter__(self) -> Looks:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()
        self.statuses.append(self.server.status())

    def mean(self, *names: str) -> float:
        """The mean of a figure of the cache, over the looks behind the first."""
        values = [status["cache"][name] for status in self.statuses[1:] for name in names]
        return float(sum(values)) / (len(self.statuses) - 1)


def replay(machine: Machine, server: Server, live: Live, workload: Workload) -> dict[str, Any]:
    """Sends the trace, and gives what the client saw."""
    workers = live.workers * max(len(workload.volumes), 1)
    words = [*machine.on(machine.client_core), str(machine.tiermem), "block", "replay", str(workload.path)]
    words += ["--to", server.uri(bool(workload.volumes)), "--workers", str(workers), "--verify", "--seed", "1"]
    words += ["--requests", str(workload.replay)] if workload.replay else []
    done = subprocess.run([*words, "--format", "json"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.strip()}\n{server.log()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
