"""Whole images go in and come out through nbdcopy and qemu-img."""

from __future__ import annotations

import filecmp
import pathlib
from collections.abc import Callable

import pytest

from volume_server import MIB, VolumeServer, image, run

Serve = Callable[..., VolumeServer]
VOLUME_BYTES = 64 * MIB


def same(one: pathlib.Path, other: pathlib.Path) -> bool:
    filecmp.clear_cache()
    return filecmp.cmp(one, other, shallow=False)


@pytest.mark.parametrize("mode", ["write-back", "write-through", "write-around"])
def test_nbdcopy_brings_an_image_in_and_out(serve_volumes: Serve, tmp_path: pathlib.Path, mode: str) -> None:
    source, disk = image(tmp_path / "source", VOLUME_BYTES, seed=1), image(tmp_path / "disk.img", VOLUME_BYTES)
    server = serve_volumes({"disk": disk}, mode=mode)
    run("nbdcopy", "--flush", source, server.uri())
    run("nbdcopy", server.uri(), tmp_path / "copy")
    assert same(source, tmp_path / "copy")
    assert server.stop() == 0, server.log()
    assert same(source, disk)


def test_requests_as_long_as_any(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    """32 MiB, the most that clients send: as much as the whole cache."""
    source, disk = image(tmp_path / "source", 2 * VOLUME_BYTES, seed=5), image(tmp_path / "disk.img", 2 * VOLUME_BYTES)
    server = serve_volumes({"disk": disk})
    longest = f"--request-size={32 * MIB}"
    run("nbdcopy", longest, "--flush", source, server.uri())
    run("nbdcopy", longest, server.uri(), tmp_path / "copy")
    assert same(source, tmp_path / "copy")
    assert server.stop() == 0, server.log()
    assert same(source, disk)


def test_nbdcopy_between_two_exports(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    """Both sides of the copy go through one cache that is smaller than either."""
    one, two = image(tmp_path / "one.img", VOLUME_BYTES, seed=2), image(tmp_path / "two.img", VOLUME_BYTES)
    server = serve_volumes({"one": one, "two": two})
    run("nbdcopy", "--flush", server.uri("one"), server.uri("two"))
    assert server.stop() == 0, server.log()
    assert same(one, two)


@pytest.mark.parametrize("form", ["raw", "qcow2"])
def test_qemu_img_converts_to_and_from_the_export(serve_volumes: Serve, tmp_path: pathlib.Path, form: str) -> None:
    source, disk = image(tmp_path / "source", VOLUME_BYTES, seed=3), image(tmp_path / "disk.img", VOLUME_BYTES)
    packed = tmp_path / f"packed.{form}"
    run("qemu-img", "convert", "-f", "raw", "-O", form, source, packed)
    server = serve_volumes({"disk": disk})
    # The image is there already, as it is for a block device: -n.
    run("qemu-img", "convert", "-n", "-f", form, "-O", "raw", packed, server.uri())
    back = tmp_path / f"back.{form}"
    run("qemu-img", "convert", "-f", "raw", "-O", form, server.uri(), back)
    assert "identical" in run("qemu-img", "compare", "-f", form, "-F", form, packed, back).stdout
    assert server.stop() == 0, server.log()
    assert same(source, disk)


def test_a_qcow2_image_lives_on_the_export(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    """Then qemu's own metadata are written and read through the cache as well."""
    source, disk = image(tmp_path / "source", VOLUME_BYTES // 2, seed=4), image(tmp_path / "disk.img", VOLUME_BYTES)
    server = serve_volumes({"disk": disk})
    run("qemu-img", "create", "-f", "qcow2", server.uri(), "32M")
    run("qemu-img", "convert", "-n", "-f", "raw", "-O", "qcow2", source, server.uri())
    assert "No errors" in run("qemu-img", "check", "-f", "qcow2", server.uri()).stdout
    assert "identical" in run("qemu-img", "compare", "-f", "raw", "-F", "qcow2", source, server.uri()).stdout
    server.restart()
    assert "identical" in run("qemu-img", "compare", "-f", "raw", "-F", "qcow2", source, server.uri()).stdout


def test_zeroes_of_an_image_arrive_over_old_bytes(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    """qemu-img sends holes as WRITE_ZEROES: what was there before must be gone."""
    hollow, disk = image(tmp_path / "hollow", VOLUME_BYTES), image(tmp_path / "disk.img", VOLUME_BYTES, seed=5)
    with hollow.open("r+b") as file:
        file.seek(5 * MIB)
        file.write(b"here" * 1000)
    server = serve_volumes({"disk": disk})
    run("nbdcopy", server.uri(), "null:")
    run("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", hollow, server.uri())
    assert "identical" in run("qemu-img", "compare", "-f", "raw", "-F", "raw", hollow, server.uri()).stdout
    assert server.stop() == 0, server.log()
    assert same(hollow, disk)
