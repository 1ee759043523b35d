"""A small NBD client. It sends what it is told without waiting for answers, as the tests of crashes need it."""

from __future__ import annotations

import dataclasses
import pathlib
import socket
import struct

from store import PATIENCE_S

READ, WRITE, FLUSH, TRIM, ZERO = 0, 1, 3, 4, 6
FUA = 1
_OPTION_MAGIC = 0x49484156454F5054
_REPLY_MAGIC = 0x0003E889045565A9


class Gone(Exception):
    """The server has closed the connection, or is dead."""


@dataclasses.dataclass
class Request:
    """A request under way."""

    kind: int
    offset: int
    length: int
    fua: bool


@dataclasses.dataclass
class Answer:
    """What the server says to a request: `error` is an errno, 0 if all is well."""

    cookie: int
    request: Request
    error: int
    data: bytes


class NbdClient:
    """A connection to one export. Replies are simple ones: each is of one request, in whatever order the server likes."""

    def __init__(self, path: pathlib.Path, export: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        self.waiting: dict[int, Request] = {}
        self._next = 1
        self.socket.connect(str(path))
        self._negotiate(export.encode())

    def _receive(self, count: int) -> bytes:
        parts = []
        try:
            while count:
                part = self.socket.recv(min(count, 1 << 20))
                if not part:
                    raise Gone
                parts.append(part)
                count -= len(part)
        except ConnectionError as error:
            raise Gone from error
        return b"".join(parts)

    def _negotiate(self, export: bytes) -> None:
        magic, style, _ = struct.unpack(">8sQH", self._receive(18))
        assert (magic, style) == (b"NBDMAGIC", _OPTION_MAGIC)
        wish = struct.pack(">I", len(export)) + export + struct.pack(">H", 0)
        self.socket.sendall(struct.pack(">I", 3) + struct.pack(">QII", _OPTION_MAGIC, 7, len(wish)) + wish)
        kind = 0
        while kind != 1:
            magic, _, kind, length = struct.unpack(">QIII", self._receive(20))
            data = self._receive(length)
            assert magic == _REPLY_MAGIC and kind < 1 << 31, f"refused: {data!r}"
            if kind == 3 and data[:2] == b"\0\0":
                self.size_bytes, self.flags = struct.unpack(">QH", data[2:])

    def send(self, kind: int, offset: int = 0, length: int = 0, *, data: bytes = b"", fua: bool = False) -> int:
        """Sends a request; its cookie."""
        cookie, self._next = self._next, self._next + 1
        length = len(data) or length
        self.waiting[cookie] = Request(kind, offset, length, fua)
        try:
            self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, FUA * fua, kind, cookie, offset, length) + data)
        except ConnectionError as error:
            raise Gone from error
        return cookie

    def receive(self) -> Answer:
        """Waits for the next answer, to whichever request."""
        magic, error, cookie = struct.unpack(">IIQ", self._receive(16))
        assert magic == 0x67446698
        request = self.waiting.pop(cookie)
        data = self._receive(request.length) if request.kind == READ and not error else b""
        return Answer(cookie, request, error, data)

    def ask(self, kind: int, offset: int = 0, length: int = 0, *, data: bytes = b"", fua: bool = False) -> Answer:
        """Sends a request and waits for its answer, with nothing else under way."""
        assert not self.waiting
        self.send(kind, offset, length, data=data, fua=fua)
        return self.receive()

    def read(self, offset: int, length: int) -> bytes:
        answer = self.ask(READ, offset, length)
        assert not answer.error, f"reading {length} bytes at {offset} fails with {answer.error}"
        return answer.data

    def write(self, offset: int, data: bytes, *, fua: bool = False) -> None:
        answer = self.ask(WRITE, offset, data=data, fua=fua)
        assert not answer.error, f"writing {len(data)} bytes at {offset} fails with {answer.error}"

    def flush(self) -> None:
        answer = self.ask(FLUSH)
        assert not answer.error, f"flush fails with {answer.error}"

    def close(self) -> None:
        self.socket.close()
