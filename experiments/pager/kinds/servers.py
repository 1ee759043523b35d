"""What workloads with a server have in common."""

from __future__ import annotations

import socket
import subprocess
import time

from paged import Failed

# This only ends what hangs.
PATIENCE_S = 300


def free_port() -> int:
    """One that nobody has now."""
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


def wait_for_port(port: int, server: subprocess.Popen[bytes]) -> None:
    """Until the server answers."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise Failed(f"the server exited with {server.returncode} at its start")
        with socket.socket() as it:
            if it.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise Failed(f"the server did not answer in {PATIENCE_S} s")
