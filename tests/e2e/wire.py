"""A connection that shows replies as they are, for tests that compare every byte of two servers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence

Reply = object


class Push(list):
    """A message that nobody asked for."""


def encode(*words: str | bytes) -> bytes:
    """A request as clients send it."""
    parts = [word.encode() if isinstance(word, str) else word for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


class Wire:
    """A connection that shows replies as they are."""

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self.socket = connect()
        self.file = self.socket.makefile("rb")

    def send(self, *words: str | bytes) -> None:
        self.socket.sendall(encode(*words))

    def send_all(self, requests: Iterable[Sequence[str | bytes]]) -> None:
        """Sends a pipeline."""
        self.socket.sendall(b"".join(encode(*request) for request in requests))

    def read(self) -> Reply:
        line = self.file.readline()
        assert line.endswith(b"\r\n"), f"closed after {line!r}"
        kind, rest = line[:1], line[1:-2]
        if kind in b"$=":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind in b"*~>":
            if rest == b"-1":
                return None
            parts = [self.read() for _ in range(int(rest))]
            return Push(parts) if kind == b">" else parts
        if kind == b"%":
            return {str(self.read()): self.read() for _ in range(int(rest))}
        if kind == b":":
            return int(rest)
        return line[:-2]

    def ask(self, *words: str | bytes) -> Reply:
        self.send(*words)
        return self.read()

    def ask_all(self, requests: Sequence[Sequence[str | bytes]]) -> list[Reply]:
        """Sends a pipeline and reads its replies. It must not be so long that neither side reads."""
        self.send_all(requests)
        return [self.read() for _ in requests]

    def is_closed(self) -> bool:
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.file.close()
        self.socket.close()
