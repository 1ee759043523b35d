"""What a client that reconnects after a crash of the server may find gone, and a mode in which that is nothing."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest

from nbd_client import READ, WRITE, NbdClient
from volume_server import KIB, MIB, VolumeServer, image

Serve = Callable[..., VolumeServer]
CONFIG = """
    [cache]
    path = "{directory}/cache.tiermem"
    capacity = "32MiB"
    [[export]]
    name = "disk"
    backing = "{backing}"
    mode = "{mode}"
    acknowledge = "{acknowledge}"
"""


def start(serve_volumes: Serve, tmp_path: pathlib.Path, mode: str, acknowledge: str) -> VolumeServer:
    disk = image(tmp_path / "disk.img", 64 * MIB)
    config = CONFIG.format(directory=tmp_path, backing=disk, mode=mode, acknowledge=acknowledge)
    return serve_volumes({"disk": disk}, config=config)


@pytest.mark.parametrize("mode", ["write-back", "write-through"])
def test_what_was_acknowledged_durably_outlives_the_process_without_a_flush(
    serve_volumes: Serve, tmp_path: pathlib.Path, mode: str
) -> None:
    server = start(serve_volumes, tmp_path, mode, "durable")
    acknowledged: dict[int, int] = {}
    for round_ in range(5):
        client = NbdClient(server.socket, "disk")
        cookies = {}
        for at in range(64):
            value = (round_ * 64 + at) % 255 + 1
            cookies[client.send(WRITE, at * 64 * KIB, data=bytes([value]) * (4 * KIB))] = (at, value)
        for _ in range(40):
            answer = client.receive()
            assert not answer.error, answer
            at, value = cookies.pop(answer.cookie)
            acknowledged[at] = value
        server.kill()
        client.close()
        server.start()
        client = NbdClient(server.socket, "disk")
        maybe = dict(cookies.values())
        for at, value in acknowledged.items():
            found = client.ask(READ, at * 64 * KIB, 4 * KIB)
            whole = [bytes([it]) * (4 * KIB) for it in (value, maybe.get(at, value))]
            assert not found.error and found.data in whole, (round_, at, value, found.data[:4])
            acknowledged[at] = found.data[0]
        client.close()
    assert server.stop() == 0, server.log()
