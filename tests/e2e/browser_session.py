"""A page in a real browser in real time, through the browser's debugging protocol: for pages that wait for their server."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
import re
import socket
import struct
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator

from browser import QUIET_CHROMIUM
from store import PATIENCE_S, eventually


class Session:
    """One page. What it writes to its console is kept."""

    def __init__(self, address: str) -> None:
        url = urllib.parse.urlsplit(address)
        self.socket = socket.create_connection((url.hostname, url.port), timeout=PATIENCE_S)
        key = base64.b64encode(os.urandom(16)).decode()
        head = ["GET " + url.path + " HTTP/1.1", "Host: " + url.netloc, "Upgrade: websocket", "Connection: Upgrade"]
        head += ["Sec-WebSocket-Key: " + key, "Sec-WebSocket-Version: 13", "", ""]
        self.socket.sendall("\r\n".join(head).encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += self.read(1)
        self.calls = 0
        self.console: list[dict] = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def read(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            more = self.socket.recv(count - len(found))
            assert more, "the browser has gone"
            found += more
        return found

    def receive(self) -> dict:
        """The next message: its frames in one."""
        message, is_last = b"", False
        while not is_last:
            first, length = self.read(2)
            if length == 126:
                (length,) = struct.unpack(">H", self.read(2))
            elif length == 127:
                (length,) = struct.unpack(">Q", self.read(8))
            message += self.read(length)
            is_last = bool(first & 0x80)
        return json.loads(message)

    def call(self, method: str, **parameters: object) -> dict:
        self.calls += 1
        body = json.dumps({"id": self.calls, "method": method, "params": parameters}).encode()
        mask = os.urandom(4)
        # The lengths that fit into two bytes are all that is needed.
        self.socket.sendall(struct.pack(">BBH", 0x81, 0xFE, len(body)) + mask + bytes(it ^ mask[at % 4] for at, it in enumerate(body)))
        while True:
            message = self.receive()
            if message.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
                self.console.append(message["params"])
            if message.get("id") == self.calls:
                assert "error" not in message, message
                return message["result"]

    def show(self, page: str, width: int = 1280, height: int = 720) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=page)
        self.wait_for(f"location.href === {json.dumps(page)} && document.readyState === 'complete'", "the page is loaded")

    def ask(self, expression: str) -> object:
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, expression: str, says: str) -> None:
        eventually(lambda: self.ask(expression), says)


@contextlib.contextmanager
def session(browser: str, tmp_path: pathlib.Path) -> Iterator[Session]:
    log = tmp_path / "browser.log"
    flags = [*QUIET_CHROMIUM, f"--user-data-dir={tmp_path / 'session'}", "--remote-debugging-port=0", "about:blank"]
    with log.open("wb") as said, subprocess.Popen([browser, *flags], stdout=subprocess.DEVNULL, stderr=said) as process:
        try:
            found: list[str] = []
            pattern = r"DevTools listening on ws://([^/]+)/"
            eventually(lambda: found.extend(re.findall(pattern, log.read_text())) or found, "the browser is there")
            targets = json.loads(_get(f"http://{found[0]}/json"))
            yield Session(next(it["webSocketDebuggerUrl"] for it in targets if it["type"] == "page"))
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return answer.read()
