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
        self.flags = flags
        self.directory = directory
        for _ in range(5):
            self.port = port or free_port()
            if self.start() or port:
                break
        assert self.process.poll() is None, f"redis-server does not start on port {self.port}"

    def start(self) -> bool:
        """Whether it runs: somebody else may have taken the port meanwhile, and then it ends."""
        command = ["redis-server", "--port", str(self.port), "--save", "", "--appendonly", "no", *self.flags]
        self.process = subprocess.Popen(command, cwd=self.directory, stdout=subprocess.DEVNULL)
        eventually(lambda: self.process.poll() is not None or self._answers(), "redis-server answers")
        return self.process.poll() is None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as connection:
                connection.sendall(b"INFO server\r\n")
                answer = connection.recv(1 << 16)
        except OSError:
            return False
        # With a password it does not say which process it is.
        return f"process_id:{self.process.pid}\r\n".encode() in answer or answer.startswith(b"-NOAUTH")

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def client(self, **options: object) -> redis.Redis:
        return redis.Redis(port=self.port, socket_timeout=PATIENCE_S, **options)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
