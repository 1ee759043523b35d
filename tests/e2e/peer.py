"""A real redis-server beside the store."""

from __future__ import annotations

import pathlib
import socket
import subprocess

import redis

from store import PATIENCE_S, eventually


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Redis:
    """One redis-server process that keeps nothing."""

    def __init__(self, directory: pathlib.Path, *flags: str, port: int | None = None) -> None:
        self.port = port or free_port()
        self.flags = flags
        self.directory = directory
        self.start()

    def start(self) -> None:
        command = ["redis-server", "--port", str(self.port), "--save", "", "--appendonly", "no", *self.flags]
        self.process = subprocess.Popen(command, cwd=self.directory, stdout=subprocess.DEVNULL)
        eventually(self._answers, "redis-server answers")

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def client(self, **options: object) -> redis.Redis:
        return redis.Redis(port=self.port, socket_timeout=PATIENCE_S, **options)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
