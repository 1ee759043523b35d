"""Backing stores that have no room: writes go on while the cache has some, then they wait, then they fail; nothing is lost."""

from __future__ import annotations

import json
import pathlib
import subprocess
import urllib.error
from collections.abc import Callable, Iterator

import pytest

from nbd_client import WRITE, NbdClient
from store import eventually
from volume_server import MIB, Nbdkit, VolumeServer, run

Serve = Callable[..., VolumeServer]
VOLUME_BYTES = 64 * MIB
CACHE_BYTES = 24 * MIB
ENOSPC = 28
CONFIG = """
    [cache]
    path = "{directory}/cache.tiermem"
    capacity = "24MiB"
    dirty_age = "10ms"
    store_full = "{wait}"
    [[export]]
    name = "disk"
    backing = "{backing}"
"""


class FullDisk:
    """A file system that a sparse image does not fit into."""

    def __init__(self, place: pathlib.Path) -> None:
        self.place = place
        self.backing = str(place / "disk.img")
        with (place / "disk.img").open("wb") as file:
            file.truncate(VOLUME_BYTES)

    def has_room(self) -> None:
        subprocess.run(["mount", "-o", "remount,size=128m", self.place], check=True)

    def content(self, directory: pathlib.Path) -> bytes:
        del directory
        return (self.place / "disk.img").read_bytes()


class FullServer:
    """An NBD server that says so."""

    def __init__(self, directory: pathlib.Path, nbdkit: Callable[..., Nbdkit]) -> None:
        self.failing = directory / "full"
        self.failing.touch()
        words = ["error-pwrite=ENOSPC", "error-pwrite-rate=100%", f"error-pwrite-file={self.failing}"]
        self.backing = nbdkit("--filter=error", "memory", "64M", *words).uri

    def has_room(self) -> None:
        self.failing.unlink()

    def content(self, directory: pathlib.Path) -> bytes:
        run("nbdcopy", self.backing, directory / "stored")
        return (directory / "stored").read_bytes()


@pytest.fixture(params=["file system", "server"])
def full(request: pytest.FixtureRequest, tmp_path: pathlib.Path, nbdkit: Callable[..., Nbdkit]) -> Iterator[FullDisk | FullServer]:
    if request.param == "server":
        yield FullServer(tmp_path, nbdkit)
        return
    place = tmp_path / "tmpfs"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", place], check=False, capture_output=True).returncode:
        pytest.skip("no small file system can be mounted here")
    try:
        yield FullDisk(place)
    finally:
        subprocess.run(["umount", "--lazy", place], check=False)


def start(serve_volumes: Serve, store: FullDisk | FullServer, directory: pathlib.Path, wait: str) -> VolumeServer:
    config = CONFIG.format(directory=directory, backing=store.backing, wait=wait)
    return serve_volumes({"disk": store.backing}, config=config)


def fill(client: NbdClient, written: bytearray) -> int:
    """Writes a megabyte after the other until one is not taken; its error."""
    for at in range(0, VOLUME_BYTES, MIB):
        data = bytes([at // MIB + 1]) * MIB
        answer = client.ask(WRITE, at, data=data)
        if answer.error:
            return answer.error
        written[at : at + MIB] = data
    return 0


def ready(server: VolumeServer) -> tuple[int, str]:
    try:
        return 200, server.get("/ready")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_writes_go_on_then_fail_until_the_store_has_room(
    serve_volumes: Serve, full: FullDisk | FullServer, tmp_path: pathlib.Path
) -> None:
    server = start(serve_volumes, full, tmp_path, "1s")
    client = NbdClient(server.socket, "disk")
    written = bytearray(VOLUME_BYTES)
    assert fill(client, written) == ENOSPC
    taken = sum(1 for at in range(0, VOLUME_BYTES, MIB) if written[at])
    # The log takes a part of the cache; a part of the last write may have been stored.
    assert taken * MIB > CACHE_BYTES * 6 // 10, taken
    for at in range(0, taken * MIB, MIB):
        assert client.read(at, MIB) == written[at : at + MIB]
    # A flush needs the log alone.
    client.flush()
    export = server.export()
    assert export["refuses_writes"] and export["store_full_s"] >= 1 and export["full_refusals"] >= 1, export
    eventually(lambda: ready(server) == (503, "the store of an export is full, and so is the cache: its writes fail\n"), "/ready")
    metrics = server.get("/metrics")
    assert 'tiermem_block_refuses_writes{export="disk"} 1' in metrics
    assert "of disk FULL" in server.command_line("status").stdout
    (row,) = json.loads(server.command_line("status", "--format", "json").stdout)["exports"]
    assert row["refuses_writes"] == 1 and row["store_full_s"] >= 1
    for words in ("the store is full: give it room", "writes that would have to wait fail"):
        assert server.log().count(words) == 1, server.log()
    full.has_room()
    at = taken * MIB
    eventually(lambda: client.ask(WRITE, at, data=b"x" * MIB).error == 0, "writes are taken again")
    written[at : at + MIB] = b"x" * MIB
    # What was refused is written again, as a client would.
    for at in range(taken * MIB, VOLUME_BYTES, MIB):
        client.write(at, b"y" * MIB)
        written[at : at + MIB] = b"y" * MIB
    client.close()
    assert server.command_line("flush").returncode == 0
    eventually(lambda: ready(server) == (200, "ready\n"), "/ready")
    assert server.export()["store_full_s"] is None
    assert server.stop() == 0, server.log()
    assert full.content(tmp_path) == written


def test_writes_that_are_to_wait_are_taken_when_the_store_has_room(
    serve_volumes: Serve, full: FullDisk | FullServer, tmp_path: pathlib.Path
) -> None:
    server = start(serve_volumes, full, tmp_path, "wait")
    client = NbdClient(server.socket, "disk")
    # More than the cache takes, and less than a client may have under way beside that.
    for at in range(0, 32 * MIB, MIB):
        client.send(WRITE, at, data=b"z" * MIB)
    eventually(lambda: server.export()["parked_now"] > 0 and server.export()["store_full_s"] is not None, "writes wait")
    assert not server.export()["refuses_writes"] and ready(server)[0] == 200
    full.has_room()
    while client.waiting:
        answer = client.receive()
        assert answer.error == 0, answer
    client.close()
    assert server.stop() == 0, server.log()
    assert full.content(tmp_path) == b"z" * 32 * MIB + bytes(VOLUME_BYTES - 32 * MIB)


def test_a_stop_before_the_store_has_room_says_so_and_keeps_all(
    serve_volumes: Serve, nbdkit: Callable[..., Nbdkit], tmp_path: pathlib.Path
) -> None:
    full = FullServer(tmp_path, nbdkit)
    server = start(serve_volumes, full, tmp_path, "0s")
    client = NbdClient(server.socket, "disk")
    written = bytearray(VOLUME_BYTES)
    assert fill(client, written) == ENOSPC
    client.flush()
    client.close()
    assert server.stop() == 1
    assert "did not take all that is dirty" in server.log()
    full.has_room()
    server.start()
    client = NbdClient(server.socket, "disk")
    for at in range(0, VOLUME_BYTES, MIB):
        if written[at]:
            assert client.read(at, MIB) == written[at : at + MIB]
    client.close()
    assert server.stop() == 0, server.log()
