"""A running `tiermem block serve`, as an operator would start it, and the tools that talk to it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

import pytest

from store import PATIENCE_S, binary, eventually, tiermem

# A live page of its own for each server, wherever there is a free port.
ANY_PORT = "127.0.0.1:0"
KIB = 1 << 10
MIB = 1 << 20


def tool(name: str) -> str:
    """The path of a program that the tests need; on a builder it must be there, elsewhere the test is skipped without it."""
    path = shutil.which(name)
    if path is None:
        says = f"there is no {name} here: `scripts/bootstrap.sh test` installs it"
        if os.environ.get("CI"):
            pytest.fail(says)
        pytest.skip(says)
    return path


def run(program: str, *arguments: object, expect: int | None = 0, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs a program until it ends, and checks its exit code unless that does not matter."""
    command = [tool(program), *map(str, arguments)]
    options = {"capture_output": True, "text": True, "timeout": 2 * PATIENCE_S, "check": False, **options}
    done = subprocess.run(command, **options)
    if expect is not None:
        assert done.returncode == expect, f"{command} exits with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def image(path: pathlib.Path, size_bytes: int, *, seed: int | None = None) -> pathlib.Path:
    """A disk image: of bytes that differ everywhere and come again for the same seed, or of zeroes."""
    with path.open("wb") as file:
        if seed is not None:
            # Every KiB has its own number, so a piece in the wrong place does not go unseen.
            for at in range(0, size_bytes, MIB):
                words = (b"%08x%024x" % (seed, (at >> 10) + kib) * 32 for kib in range(min(MIB, size_bytes - at) >> 10))
                file.write(b"".join(words))
        file.truncate(size_bytes)
    return path


def serve_arguments(
    listen: pathlib.Path, cache: str | None, exports: Mapping[str, object], mode: str | None, flags: tuple[str, ...]
) -> list[str]:
    """The command line of a server."""
    words = [binary(), "block", "serve", "--listen", f"unix:{listen}", "--http", ANY_PORT] + (["--cache", cache] if cache else [])
    for name, backing in exports.items():
        words += ["--export", f"{name}={backing}"]
    return words + (["--mode", mode] if mode else []) + list(flags)


def refused(tmp_path: pathlib.Path, exports: dict[str, object], cache: str, *flags: str) -> str:
    """What a server says that does not start."""
    command = serve_arguments(tmp_path / "nowhere", cache, exports, None, flags)
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1, done
    assert "panicked" not in done.stderr and done.stdout == "", done
    return done.stderr


class VolumeServer:
    """One server process. What it was started with stays, so that it can be started again."""

    def __init__(
        self,
        directory: pathlib.Path,
        exports: Mapping[str, object],
        *,
        cache: str | None = None,
        mode: str | None = None,
        flags: tuple[str, ...] = (),
        config: str | None = None,
        order: str | None = None,
    ) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.socket = directory / "nbd"
        self.log_path = directory / "log"
        self.cache_path = directory / "cache"
        self.said = ""
        if order is not None:
            # In the default order a start writes back at once what a crash has left dirty.
            path = directory / "config.toml"
            path.write_text(f'[cache]\npath = "{self.cache_path}"\ncapacity = "32MiB"\norder = "{order}"\n')
            self.command = serve_arguments(self.socket, None, exports, mode, ("--config", str(path), *flags))
        elif config is None:
            self.command = serve_arguments(self.socket, cache or f"{self.cache_path}:32MiB", exports, mode, flags)
        else:
            (directory / "config.toml").write_text(config)
            self.command = [binary(), "block", "serve", "--listen", f"unix:{self.socket}", "--http", ANY_PORT]
            self.command += ["--config", str(directory / "config.toml"), *flags]
        self.name = next(iter(exports), "disk")
        self.start()

    def start(self, *flags: str) -> None:
        """Starts the process and waits until it says that it serves."""
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen([*self.command, *flags], stdout=subprocess.PIPE, stderr=log)
        self.said = ""
        try:
            assert self.process.stdout is not None
            while "live page: " not in self.said:
                ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
                text = os.read(self.process.stdout.fileno(), 4096).decode() if ready else ""
                assert text, f"the server did not start: {self.log()}"
                self.said += text
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    @property
    def page(self) -> str:
        """The address of its live page."""
        return self.said.split("live page: ")[1].splitlines()[0]

    def get(self, path: str) -> str:
        """What its HTTP port says."""
        with urllib.request.urlopen(self.page + path.lstrip("/"), timeout=PATIENCE_S) as answer:
            return answer.read().decode()

    def export(self, name: str | None = None) -> dict[str, Any]:
        """What it says of an export at this moment."""
        exports = json.loads(self.get("/api/status"))["exports"]
        return next(export for export in exports if export["name"] == (name or self.name))

    def command_line(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs one of `tiermem block`'s commands against it."""
        address = urllib.parse.urlsplit(self.page).netloc
        return tiermem("block", command, *arguments, "--http", address)

    def uri(self, export: str | None = None) -> str:
        """How clients name an export."""
        return f"nbd+unix:///{export or self.name}?socket={self.socket}"

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def map(self, context: str, export: str | None = None) -> list[tuple[int, int, int]]:
        """What nbdinfo says of an export: offset, length and flags of each of its parts."""
        done = run("nbdinfo", f"--map={context}", self.uri(export))
        rows = (re.match(r"\s*(\d+)\s+(\d+)\s+(\d+)", line) for line in done.stdout.splitlines())
        return [(int(row[1]), int(row[2]), int(row[3])) for row in rows if row]

    def cached_bytes(self, export: str | None = None) -> tuple[int, int]:
        """How much of an export the cache has, and how much of that its store lacks."""
        rows = self.map("tiermem:cache", export)
        return sum(row[1] for row in rows if row[2] & 1), sum(row[1] for row in rows if row[2] & 2)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Asks the process to end, as a service manager would; its exit code."""
        self.process.send_signal(number)
        code = self.process.wait(2 * PATIENCE_S)
        if self.process.stdout:
            self.process.stdout.close()
        return code

    def kill(self) -> None:
        """Ends the process amid whatever it does."""
        self.stop(signal.SIGKILL)

    def restart(self) -> None:
        """Stops it well and starts it again."""
        assert self.stop() == 0, self.log()
        self.start()

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


class Nbdkit:
    """Another NBD server, as a backing store."""

    def __init__(self, directory: pathlib.Path, *arguments: str) -> None:
        directory.mkdir(exist_ok=True)
        self.socket = directory / "nbdkit"
        pid_file = directory / "nbdkit.pid"
        command = [tool("nbdkit"), "-f", "-U", str(self.socket), "-P", str(pid_file), *arguments]
        with (directory / "nbdkit.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        # It writes its number once it listens.
        eventually(lambda: pid_file.exists() or self.process.poll() is not None, "nbdkit listens")
        assert self.process.poll() is None, (directory / "nbdkit.log").read_text()

    @property
    def uri(self) -> str:
        return f"nbd+unix:///?socket={self.socket}"

    def close(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
