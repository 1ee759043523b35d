"""Trims behind dirty data: the room of a sparse image is given back once the data before them are in it."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

from nbd_client import TRIM, NbdClient
from store import eventually
from volume_server import MIB, VolumeServer, image

Serve = Callable[..., VolumeServer]
VOLUME_BYTES = 64 * MIB


def taken_bytes(disk: pathlib.Path) -> int:
    """What the image takes of its file system."""
    return disk.stat().st_blocks * 512


def test_trimmed_dirty_data_give_the_image_its_room_back_after_a_flush(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    disk = image(tmp_path / "disk.img", VOLUME_BYTES)
    server = serve_volumes({"disk": disk})
    client = NbdClient(server.socket, "disk")
    for at in range(0, 8 * MIB, MIB):
        client.write(at, b"d" * MIB)
    client.flush()
    assert server.command_line("flush").returncode == 0
    assert taken_bytes(disk) >= 8 * MIB
    # Now there is something dirty in the midst of what is trimmed, behind it, and before it.
    for at in (2 * MIB, 6 * MIB, 12 * MIB):
        client.write(at, b"e" * MIB)
    assert client.ask(TRIM, 0, 8 * MIB).error == 0
    client.write(4 * MIB, b"f" * MIB)
    client.flush()
    assert taken_bytes(disk) >= 8 * MIB, "the image as of the flush before has all of it"
    assert server.command_line("flush").returncode == 0
    eventually(lambda: taken_bytes(disk) < 3 * MIB, "the image has its room back")
    assert client.read(4 * MIB, MIB) == b"f" * MIB
    assert client.read(12 * MIB, MIB) == b"e" * MIB
    client.close()
    assert server.stop() == 0, server.log()
    content = disk.read_bytes()
    assert content[4 * MIB : 5 * MIB] == b"f" * MIB and content[12 * MIB : 13 * MIB] == b"e" * MIB
    assert content[: 4 * MIB] == bytes(4 * MIB) and content[5 * MIB : 12 * MIB] == bytes(7 * MIB)


def test_a_trim_before_a_stop_reaches_the_image(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    disk = image(tmp_path / "disk.img", VOLUME_BYTES)
    server = serve_volumes({"disk": disk})
    client = NbdClient(server.socket, "disk")
    client.write(0, b"d" * (4 * MIB))
    assert client.ask(TRIM, 0, 4 * MIB).error == 0
    client.close()
    assert server.stop() == 0, server.log()
    assert taken_bytes(disk) < MIB and disk.read_bytes() == bytes(VOLUME_BYTES)
