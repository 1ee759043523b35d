"""Holes and zeroes of images and of other servers' exports: told, so that copying them moves nothing."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

from nbd_client import NbdClient
from volume_server import KIB, MIB, Nbdkit, VolumeServer, image, run

Serve = Callable[..., VolumeServer]
VOLUME_BYTES = 64 * MIB
HOLE_AND_ZERO = 3


def sparse(path: pathlib.Path) -> pathlib.Path:
    """64 MiB with a megabyte of data in the midst."""
    image(path, VOLUME_BYTES)
    with path.open("r+b") as file:
        file.seek(8 * MIB)
        file.write(b"d" * MIB)
    return path


def test_an_empty_image_is_copied_without_being_read(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    server = serve_volumes({"disk": image(tmp_path / "disk.img", VOLUME_BYTES)})
    assert server.map("base:allocation") == [(0, VOLUME_BYTES, HOLE_AND_ZERO)]
    run("nbdcopy", server.uri(), "null:")
    run("qemu-img", "convert", "-f", "raw", "-O", "raw", server.uri(), tmp_path / "copy.img")
    assert (tmp_path / "copy.img").read_bytes() == bytes(VOLUME_BYTES)
    export = server.export()
    # A tool may look at a few bytes to see what the image is.
    assert export["read_bytes"] <= MIB and server.cached_bytes()[0] <= MIB, export


def test_data_between_holes_are_told_and_copied(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    disk = sparse(tmp_path / "disk.img")
    server = serve_volumes({"disk": disk})
    holes = [(0, 8 * MIB, HOLE_AND_ZERO), (8 * MIB, MIB, 0), (9 * MIB, VOLUME_BYTES - 9 * MIB, HOLE_AND_ZERO)]
    assert server.map("base:allocation") == holes
    run("nbdcopy", server.uri(), tmp_path / "copy.img")
    assert (tmp_path / "copy.img").read_bytes() == disk.read_bytes()
    assert server.export()["read_bytes"] <= 2 * MIB


def test_what_only_the_cache_has_is_no_hole(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    """Whether it is dirty, on its way, or written back."""
    disk = image(tmp_path / "disk.img", VOLUME_BYTES)
    server = serve_volumes({"disk": f"{disk},delay=5ms"})
    client = NbdClient(server.socket, "disk")
    for at in range(0, 32 * MIB, MIB):
        client.write(at, bytes([at // MIB + 1]) * (64 * KIB))
    for _ in range(3):
        rows = server.map("base:allocation")
        for at in range(0, 32 * MIB, MIB):
            assert any(start <= at and at + 64 * KIB <= start + length and flags == 0 for start, length, flags in rows), rows
        assert server.command_line("flush").returncode == 0
    client.close()
    run("nbdcopy", server.uri(), tmp_path / "copy.img")
    assert server.stop() == 0, server.log()
    assert (tmp_path / "copy.img").read_bytes() == disk.read_bytes()


def test_other_servers_holes_are_told_and_no_answer_is_data(
    serve_volumes: Serve, nbdkit: Callable[..., Nbdkit], tmp_path: pathlib.Path
) -> None:
    disk = sparse(tmp_path / "disk.img")
    knows, knows_not = nbdkit("file", str(disk)), nbdkit("--no-sr", "memory", "64M")
    server = serve_volumes({"knows": knows.uri, "knows-not": knows_not.uri})
    rows = server.map("base:allocation", "knows")
    assert rows == [(0, 8 * MIB, HOLE_AND_ZERO), (8 * MIB, MIB, 0), (9 * MIB, VOLUME_BYTES - 9 * MIB, HOLE_AND_ZERO)]
    assert server.map("base:allocation", "knows-not") == [(0, VOLUME_BYTES, 0)]
    run("nbdcopy", server.uri("knows"), tmp_path / "copy.img")
    assert (tmp_path / "copy.img").read_bytes() == disk.read_bytes()
    # What is cached is known without the store.
    knows.process.kill()
    knows.process.wait()
    assert server.map("tiermem:cache", "knows")
