"""The wrong, changed or missing cache or store: a start that would lose what was promised, or write it into another store, is refused,
names both and the way out; the operator's word is heard once; and what is right starts by itself."""

from __future__ import annotations

import errno
import os
import pathlib
import shutil
import subprocess
from collections.abc import Callable

import pytest

from nbd_client import NbdClient
from store import PATIENCE_S
from volume_server import KIB, MIB, Nbdkit, VolumeServer, image, refused, run, serve_arguments

Serve = Callable[..., VolumeServer]
VOLUME_BYTES = 4 * MIB
NEW = b"n" * 4096
ATTRIBUTE = "user.tiermem"


def write(server: VolumeServer, data: bytes = NEW, offset: int = 64 * KIB) -> None:
    client = NbdClient(server.socket, "disk")
    client.write(offset, data)
    client.flush()
    client.close()


def read(server: VolumeServer, offset: int = 64 * KIB) -> bytes:
    client = NbdClient(server.socket, "disk")
    data = client.read(offset, 4096)
    client.close()
    return data


def stored(disk: pathlib.Path, offset: int = 64 * KIB) -> bytes:
    return disk.read_bytes()[offset : offset + 4096]


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> pathlib.Path:
    return image(tmp_path / "disk.img", VOLUME_BYTES, seed=1)


@pytest.fixture
def killed(serve_volumes: Serve, disk: pathlib.Path) -> VolumeServer:
    """A server that was killed with 4 KiB that only its cache has."""
    server = serve_volumes({"disk": disk}, order="flush")
    write(server)
    server.kill()
    return server


def says(server: VolumeServer, *flags: str, cache: pathlib.Path | None = None) -> str:
    """What a start says that is refused. It changes neither side."""
    disk = pathlib.Path(server.command[server.command.index("--export") + 1].split("=", 1)[1])
    before = disk.read_bytes() if disk.exists() else b""
    said = refused(server.directory, {"disk": disk}, f"{cache or server.cache_path}:32MiB", *flags)
    assert (disk.read_bytes() if disk.exists() else b"") == before
    assert str(server.cache_path.name) in said and "disk" in said and "bytes" in said, said
    return said


def replace(disk: pathlib.Path, by: pathlib.Path) -> None:
    """Another file takes the place of a disk, as a copy from a backup does."""
    by.rename(disk)


@pytest.mark.parametrize("flag", ["--accept-store", "--accept-loss"])
def test_another_file_in_its_place(killed: VolumeServer, disk: pathlib.Path, tmp_path: pathlib.Path, flag: str) -> None:
    replace(disk, image(tmp_path / "other.img", VOLUME_BYTES, seed=2))
    said = says(killed)
    assert "--accept-store disk" in said and "--accept-loss disk" in said and "generation" in said, said
    assert "no record of a cache" in said, said
    killed.start(flag, "disk")
    expected = NEW if flag == "--accept-store" else stored(disk)
    assert read(killed) == expected
    assert killed.stop() == 0, killed.log()
    assert stored(disk) == expected
    # Once was enough.
    killed.start()
    assert read(killed) == expected


def test_a_copy_from_a_backup_with_all_its_attributes(killed: VolumeServer, disk: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """It may be of any moment of the same generation: the cache has overwritten what it thinks is there."""
    run("cp", "-a", disk, tmp_path / "copy.img")
    replace(disk, tmp_path / "copy.img")
    assert "--accept-store disk" in says(killed)
    killed.start("--accept-store", "disk")
    assert read(killed) == NEW


def test_an_older_state_from_a_backup(serve_volumes: Serve, disk: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The same file, written over by an earlier state of itself, with that state's record."""
    server = serve_volumes({"disk": disk})
    server.restart()
    assert server.stop() == 0
    run("cp", "-a", disk, tmp_path / "backup.img")
    server.start()
    write(server)
    server.kill()
    with disk.open("r+b") as file:
        file.write((tmp_path / "backup.img").read_bytes())
    os.setxattr(disk, ATTRIBUTE, os.getxattr(tmp_path / "backup.img", ATTRIBUTE))
    assert "--accept-store disk" in says(server)


def test_both_from_one_backup(serve_volumes: Serve, disk: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Stopped in order, they need nothing. After a crash it cannot be told whether they are of one moment."""
    server = serve_volumes({"disk": disk})
    write(server)
    for dies in (False, True):
        if dies:
            write(server, b"d" * 4096)
            server.kill()
        else:
            assert server.stop() == 0
        for path in (disk, server.cache_path):
            run("cp", "-a", path, f"{path}.copy")
            pathlib.Path(f"{path}.copy").rename(path)
        if dies:
            assert "--accept-store disk" in says(server)
            server.start("--accept-store", "disk")
            assert read(server) == b"d" * 4096
        else:
            server.start()
            assert read(server) == NEW


def test_a_store_that_shrank(killed: VolumeServer, disk: pathlib.Path) -> None:
    whole = disk.read_bytes()
    os.truncate(disk, VOLUME_BYTES // 2)
    assert "--accept-store disk" in says(killed), "what is dirty has room"
    os.truncate(disk, 32 * KIB)
    for flags in [(), ("--accept-store", "disk")]:
        said = says(killed, *flags)
        assert "size back" in said and "--accept-loss disk" in said and "--accept-store" not in said, said
    with disk.open("r+b") as file:
        file.write(whole)
    killed.start()
    assert read(killed) == NEW, "nothing was lost"


def test_a_cache_that_is_absent(killed: VolumeServer, disk: pathlib.Path, tmp_path: pathlib.Path) -> None:
    killed.cache_path.rename(tmp_path / "away")
    for flags in [(), ("--accept-store", "disk")]:
        said = says(killed, *flags)
        assert "may lack" in said and "--accept-loss disk" in said and "--accept-store" not in said, said
        assert not killed.cache_path.exists(), "a start that is refused leaves no file"
    # Nor does a cache in memory serve what is stale, or another one that was there before.
    assert "--accept-loss disk" in refused(tmp_path, {"disk": disk}, "dram:32MiB")
    (tmp_path / "away").rename(killed.cache_path)
    killed.start()
    assert read(killed) == NEW
    killed.kill()
    killed.cache_path.rename(tmp_path / "away")
    killed.start("--accept-loss", "disk")
    old = stored(image(tmp_path / "same.img", VOLUME_BYTES, seed=1))
    assert read(killed) == old
    write(killed, b"l" * 4096)
    assert killed.stop() == 0
    # The old cache returns, with dirty data that are older than what the store has.
    killed.cache_path.unlink()
    (tmp_path / "away").rename(killed.cache_path)
    assert "--accept-store disk" in says(killed)
    killed.start("--accept-loss", "disk")
    assert read(killed) == b"l" * 4096


def test_an_old_copy_of_the_cache_returns(serve_volumes: Serve, disk: pathlib.Path, tmp_path: pathlib.Path) -> None:
    server = serve_volumes({"disk": disk})
    write(server)
    assert server.stop() == 0
    shutil.copy(server.cache_path, tmp_path / "copy")
    server.start()
    write(server, b"l" * 4096)
    server.kill()
    shutil.copy(server.cache_path, tmp_path / "newest")
    shutil.copy(tmp_path / "copy", server.cache_path)
    said = says(server)
    assert "--accept-loss disk" in said and "later state" in said, said
    shutil.copy(tmp_path / "newest", server.cache_path)
    server.start()
    assert read(server) == b"l" * 4096


@pytest.mark.parametrize("mode", ["write-through", "write-around"])
def test_a_cache_that_never_had_more_than_its_store(
    serve_volumes: Serve, disk: pathlib.Path, tmp_path: pathlib.Path, mode: str
) -> None:
    """It may be lost at any moment; but what it has is stale when its store was written without it."""
    server = serve_volumes({"disk": disk}, mode=mode)
    write(server)
    read(server)
    server.kill()
    server.cache_path.rename(tmp_path / "away")
    server.start()
    write(server, b"l" * 4096)
    server.kill()
    (tmp_path / "away").rename(server.cache_path)
    server.start()
    assert "changed by somebody else" in server.log()
    assert read(server) == b"l" * 4096


def test_exports_come_and_go(serve_volumes: Serve, disk: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """One that is added or taken away concerns no other, killed as the server may be in between."""
    other = image(tmp_path / "other.img", VOLUME_BYTES, seed=2)
    both = {"disk": disk, "other": other}
    server = serve_volumes({"disk": disk})
    write(server)
    server.kill()
    with_both = serve_volumes(both, cache=f"{server.cache_path}:32MiB")
    assert read(with_both) == NEW
    with_both.kill()
    with_both.start()
    assert with_both.command_line("flush", "other").returncode == 0
    assert with_both.stop() == 0
    # Without it, and back again under another name.
    server.start()
    write(server)
    server.kill()
    renamed = serve_volumes({"disk": disk, "renamed": other}, cache=f"{server.cache_path}:32MiB")
    assert read(renamed) == NEW
    renamed.kill()
    renamed.start()


def test_a_store_that_is_only_read(serve_volumes: Serve, disk: pathlib.Path) -> None:
    server = serve_volumes({"disk": f"{disk},read-only"})
    read(server)
    server.kill()
    server.start()
    with pytest.raises(OSError) as none:
        os.getxattr(disk, ATTRIBUTE)
    assert none.value.errno == errno.ENODATA, "nothing was written to it"
    server.kill()
    # Another cache writes it meanwhile: nothing stale is served, and what that one has more than the store stays its own.
    writer = serve_volumes({"disk": disk})
    write(writer)
    writer.kill()
    server.start()
    assert read(server) == stored(disk) != NEW
    server.kill()
    writer.start()
    assert read(writer) == NEW
    assert writer.stop() == 0
    server.start()
    assert read(server) == NEW


def test_a_reset_is_a_word_for_the_cache_that_is_there(killed: VolumeServer, disk: pathlib.Path) -> None:
    killed.start("--reset")
    assert read(killed) == stored(disk)


def test_a_file_system_without_attributes(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    """The record is a file beside the image."""
    place = tmp_path / "ramfs"
    place.mkdir()
    if subprocess.run(["mount", "-t", "ramfs", "none", place], check=False, capture_output=True).returncode:
        pytest.skip("no file system without attributes can be mounted here")
    try:
        disk = image(place / "disk.img", VOLUME_BYTES, seed=1)
        server = serve_volumes({"disk": disk})
        write(server)
        server.kill()
        assert "may-lack" in (place / "disk.img.tiermem").read_text()
        server.cache_path.rename(tmp_path / "away")
        assert "--accept-loss disk" in says(server)
        (tmp_path / "away").rename(server.cache_path)
        server.start()
        assert read(server) == NEW
        assert server.stop() == 0
        assert "whole" in (place / "disk.img.tiermem").read_text()
    finally:
        subprocess.run(["umount", "--lazy", place], check=False)


def test_a_store_that_keeps_nothing(
    serve_volumes: Serve, nbdkit: Callable[..., Nbdkit], tmp_path: pathlib.Path, state_directory: pathlib.Path
) -> None:
    """Of another server's export a record lies in the state directory."""
    backing = image(tmp_path / "backing.img", VOLUME_BYTES, seed=1)
    store = nbdkit("file", str(backing))
    server = serve_volumes({"disk": store.uri})
    write(server)
    server.kill()
    (record,) = state_directory.glob("*.label")
    assert "may-lack" in record.read_text()
    server.cache_path.rename(tmp_path / "away")
    assert "--accept-loss disk" in refused(tmp_path, {"disk": store.uri}, f"{server.cache_path}:32MiB")
    (tmp_path / "away").rename(server.cache_path)
    # Without the record nothing is known, and the pair is taken.
    record.unlink()
    server.start()
    assert read(server) == NEW
    assert server.stop() == 0
    assert "whole" in record.read_text()


def test_a_volume_of_objects(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    place = tmp_path / "objects"
    server = serve_volumes({"disk": f"objects:{place},size=4MiB,chunk=64KiB"})
    write(server)
    server.kill()
    assert "may-lack" in (place / "tiermem-label").read_text()
    server.cache_path.rename(tmp_path / "away")
    assert "--accept-loss disk" in refused(tmp_path, {"disk": f"objects:{place}"}, f"{server.cache_path}:32MiB")
    (tmp_path / "away").rename(server.cache_path)
    server.start()
    assert read(server) == NEW
    assert server.stop() == 0
    assert "whole" in (place / "tiermem-label").read_text()


def test_words_that_cannot_be_heard_are_refused(disk: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for flags in [("--accept-loss", "other"), ("--accept-loss", "disk", "--accept-store", "disk")]:
        command = serve_arguments(tmp_path / "nowhere", f"{tmp_path}/cache:32MiB", {"disk": disk}, None, flags)
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 2 and "export" in done.stderr and "panicked" not in done.stderr, done
    assert not (tmp_path / "cache").exists()
