"""Stopping and starting: nothing is lost, what was cached still is, and nobody's bytes are taken for another's."""

from __future__ import annotations

import filecmp
import os
import pathlib
from collections.abc import Callable

import pytest

from nbd_client import NbdClient
from volume_server import KIB, MIB, VolumeServer, image, refused, run

Serve = Callable[..., VolumeServer]
VOLUME_BYTES = 16 * MIB


def test_a_stop_brings_everything_to_the_image(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    source, disk = image(tmp_path / "source", VOLUME_BYTES, seed=1), image(tmp_path / "disk.img", VOLUME_BYTES)
    server = serve_volumes({"disk": disk})
    run("nbdcopy", source, server.uri())
    assert server.stop() == 0, server.log()
    assert filecmp.cmp(source, disk, shallow=False)
    # It must not cry wolf: those who read this would look for bytes that are not lost.
    assert " ERROR " not in server.log() and " WARN " not in server.log(), server.log()


def test_it_starts_warm(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    disk = image(tmp_path / "disk.img", VOLUME_BYTES, seed=2)
    server = serve_volumes({"disk": disk})
    run("nbdcopy", server.uri(), "null:")
    client = NbdClient(server.socket, "disk")
    client.write(MIB, b"w" * MIB)
    client.close()
    cached, dirty = server.cached_bytes()
    assert cached == VOLUME_BYTES and dirty == MIB
    server.restart()
    assert server.cached_bytes() == (VOLUME_BYTES, 0)
    run("nbdcopy", server.uri(), tmp_path / "copy")
    assert filecmp.cmp(disk, tmp_path / "copy", shallow=False)
    # A third life on what the second has left.
    server.restart()
    assert server.cached_bytes() == (VOLUME_BYTES, 0)


def test_a_second_server_on_the_same_cache_is_refused(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    one, two = image(tmp_path / "one.img", VOLUME_BYTES), image(tmp_path / "two.img", VOLUME_BYTES)
    server = serve_volumes({"disk": one})
    for flags in [(), ("--reset",)]:
        said = refused(tmp_path, {"disk": two}, f"{server.cache_path}:32MiB", *flags)
        assert str(server.cache_path) in said and "in use" in said, said
    # The same holds for an image: two caches of one would each serve what the other does not know.
    said = refused(tmp_path, {"disk": one}, f"{tmp_path}/other:32MiB")
    assert str(one) in said and "in use" in said, said
    client = NbdClient(server.socket, "disk")
    client.write(0, b"well")
    client.close()


@pytest.mark.parametrize("what", ["text", "noise", "qcow2"])
def test_somebody_elses_file_is_not_overwritten(tmp_path: pathlib.Path, what: str) -> None:
    disk, cache = image(tmp_path / "disk.img", VOLUME_BYTES), tmp_path / "precious"
    if what == "qcow2":
        run("qemu-img", "create", "-f", "qcow2", cache, "64M")
    else:
        cache.write_bytes(b"precious words\n" * 1000 if what == "text" else os.urandom(40 * MIB))
    before = cache.read_bytes()
    said = refused(tmp_path, {"disk": disk}, f"{cache}:32MiB")
    assert "give another device" in said or "--reset" in said, said
    assert cache.read_bytes() == before


def test_an_image_that_was_changed_meanwhile_is_read_anew(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    disk = image(tmp_path / "disk.img", VOLUME_BYTES, seed=3)
    server = serve_volumes({"disk": disk})
    run("nbdcopy", server.uri(), "null:")
    assert server.stop() == 0, server.log()
    image(disk, VOLUME_BYTES, seed=4)
    server.start()
    assert "changed by somebody else" in server.log(), server.log()
    assert server.cached_bytes() == (0, 0)
    run("nbdcopy", server.uri(), tmp_path / "copy")
    assert filecmp.cmp(disk, tmp_path / "copy", shallow=False)


def test_another_image_in_the_place_of_the_first(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    """It has the same name, size and time: that it is another file must be enough."""
    disk, other = image(tmp_path / "disk.img", VOLUME_BYTES, seed=5), image(tmp_path / "other.img", VOLUME_BYTES, seed=6)
    server = serve_volumes({"disk": disk})
    run("nbdcopy", server.uri(), "null:")
    assert server.stop() == 0, server.log()
    times = disk.stat()
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.rename(disk)
    server.start()
    run("nbdcopy", server.uri(), tmp_path / "copy")
    assert filecmp.cmp(disk, tmp_path / "copy", shallow=False)


def test_dirty_bytes_are_not_forgotten_nor_given_to_another(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    """A server that was killed leaves dirty bytes: it does not start without their volume, and goes on with it."""
    disk, other = image(tmp_path / "disk.img", VOLUME_BYTES), image(tmp_path / "other.img", VOLUME_BYTES)
    server = serve_volumes({"disk": disk})
    client = NbdClient(server.socket, "disk")
    client.write(64 * KIB, b"d" * 4096, fua=True)
    server.kill()
    client.close()
    said = refused(tmp_path, {"other": other}, f"{server.cache_path}:32MiB")
    assert "disk" in said and "--reset" in said, said
    server.start()
    client = NbdClient(server.socket, "disk")
    assert client.read(64 * KIB, 4096) == b"d" * 4096
    client.close()
    assert server.stop() == 0
    assert disk.read_bytes()[64 * KIB :][:4096] == b"d" * 4096


def test_sizes_that_are_not_those_of_the_cache_are_refused(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    disk = image(tmp_path / "disk.img", VOLUME_BYTES)
    server = serve_volumes({"disk": disk})
    assert server.stop() == 0
    with server.cache_path.open("r+b") as file:
        file.truncate(16 * MIB)
    said = refused(tmp_path, {"disk": disk}, f"{server.cache_path}:16MiB")
    assert "needs" in said, said


def test_reset_begins_anew(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    disk = image(tmp_path / "disk.img", VOLUME_BYTES, seed=7)
    server = serve_volumes({"disk": disk})
    run("nbdcopy", server.uri(), "null:")
    assert server.stop() == 0
    server.start("--reset")
    assert server.cached_bytes() == (0, 0)
