"""Single requests of every kind: through qemu-io, nbdinfo and a plain client."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest

from nbd_client import FLUSH, READ, TRIM, WRITE, ZERO, Gone, NbdClient
from volume_server import KIB, MIB, VolumeServer, image, run

Serve = Callable[..., VolumeServer]
VOLUME_BYTES = 16 * MIB
MODES = ["write-back", "write-through", "write-around"]
EPERM = 1


def qemu_io(server: VolumeServer, *commands: str, cache: str = "writeback") -> str:
    """Runs commands; the exit code tells of those that fail and of patterns that do not match."""
    words = [word for command in commands for word in ("-c", command)]
    done = run("qemu-io", "-f", "raw", "-t", cache, *words, server.uri())
    assert "verification failed" not in done.stdout and "rror" not in done.stdout, done.stdout
    return done.stdout


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cache", ["writeback", "writethrough"])
def test_qemu_io_patterns(serve_volumes: Serve, tmp_path: pathlib.Path, mode: str, cache: str) -> None:
    """With `writethrough` every write of qemu-io carries FUA."""
    disk = image(tmp_path / "disk.img", VOLUME_BYTES)
    server = serve_volumes({"disk": disk}, mode=mode)
    qemu_io(
        server,
        # Across units and blocks, beginning and ending anywhere.
        "write -P 0x11 0 1M",
        "write -P 0x22 511 1",
        "write -P 0x33 4095 2",
        "write -P 0x44 262143 4097",
        "flush",
        "read -P 0x11 0 511",
        "read -P 0x22 511 1",
        "read -P 0x11 512 3583",
        "read -P 0x33 4095 2",
        "read -P 0x11 4097 258046",
        "read -P 0x44 262143 4097",
        "read -P 0x11 266240 782336",
        # Zeroes over a part of it, with and without permission to make a hole.
        "write -z 8192 12345",
        "write -z -u 65536 65536",
        "read -P 0 8192 12345",
        "read -P 0x11 20537 44999",
        "read -P 0 65536 65536",
        "discard 131072 65536",
        # The server need not make zeroes of it, but what lies beside it stays.
        "read -P 0x11 196608 65535",
        # FUA by itself, and several under way together.
        "write -f -P 0x55 2M 4k",
        "read -P 0x55 2M 4k",
        "aio_write -P 0x66 3M 1M",
        "aio_write -P 0x77 4M 1M",
        "aio_write -P 0x88 5M 64k",
        "aio_flush",
        "read -P 0x66 3M 1M",
        "read -P 0x77 4M 1M",
        "read -P 0x88 5M 64k",
        # The last bytes.
        f"write -P 0x99 {VOLUME_BYTES - 3} 3",
        f"read -P 0x99 {VOLUME_BYTES - 3} 3",
        cache=cache,
    )
    assert server.stop() == 0, server.log()
    data = disk.read_bytes()
    assert data[511] == 0x22 and data[4095:4097] == b"\x33\x33" and data[262143:266240] == b"\x44" * 4097
    assert data[8192:20537] == bytes(12345) and data[-3:] == b"\x99" * 3


def test_an_image_of_no_whole_number_of_units(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    disk = image(tmp_path / "disk.img", MIB + 512)
    server = serve_volumes({"disk": disk})
    client = NbdClient(server.socket, "disk")
    client.write(MIB - 100, b"e" * 612)
    assert client.read(MIB - 200, 712) == bytes(100) + b"e" * 612
    assert client.ask(READ, MIB, 513).error and client.ask(WRITE, MIB + 511, data=b"xx").error
    client.close()
    server.restart()
    assert disk.stat().st_size == MIB + 512 and disk.read_bytes()[-612:] == b"e" * 612


def test_nbdinfo_tells_what_is_cached(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    disk = image(tmp_path / "disk.img", VOLUME_BYTES, seed=1)
    server = serve_volumes({"disk": disk})
    assert server.map("tiermem:cache") == [(0, VOLUME_BYTES, 0)]
    assert sum(row[1] for row in server.map("base:allocation")) == VOLUME_BYTES
    client = NbdClient(server.socket, "disk")
    client.read(MIB, 64 * KIB)
    client.write(4 * MIB, b"w" * (64 * KIB))
    client.close()
    rows = server.map("tiermem:cache")
    assert (MIB, 64 * KIB, 1) in rows, rows
    # Dirty ones are cached, too.
    assert (4 * MIB, 64 * KIB, 3) in rows, rows
    assert server.cached_bytes() == (128 * KIB, 64 * KIB)


def test_a_read_only_export_refuses_writes(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    disk = image(tmp_path / "disk.img", VOLUME_BYTES, seed=1)
    before = disk.read_bytes()
    # By its mode, and by an option of its store.
    for server in [
        serve_volumes({"disk": disk}, mode="read-only"),
        serve_volumes({"disk": f"{disk},read-only"}),
    ]:
        assert "is_read_only: true" in run("nbdinfo", server.uri()).stdout
        done = run("nbdcopy", "--flush", disk, server.uri(), expect=None)
        assert done.returncode != 0
        client = NbdClient(server.socket, "disk")
        # Those who do not heed the export's flags are refused as well.
        assert client.ask(WRITE, 0, data=b"x" * 512).error == EPERM
        assert client.ask(ZERO, 0, 512).error == EPERM
        assert client.ask(TRIM, 0, 4096).error == EPERM
        assert client.ask(FLUSH).error == 0
        assert client.read(0, 4096) == before[:4096]
        client.close()
        assert server.stop() == 0, server.log()
    assert disk.read_bytes() == before


def test_a_write_that_is_too_long_is_answered_when_it_was_read_away(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    """Beyond the 32 MiB that the server announces; beyond 64 MiB nobody waits for its end."""
    server = serve_volumes({"disk": image(tmp_path / "disk.img", 128 * MIB)})
    client = NbdClient(server.socket, "disk")
    for length, error in [(32 * MIB, 0), (32 * MIB + 4096, 22), (64 * MIB, 22)]:
        assert client.ask(WRITE, 0, data=bytes([length >> 20]) * length).error == error, length
        assert client.read(4096, 4096) == bytes([32]) * 4096, "it goes on, and nothing of it was written"
    with pytest.raises(Gone):
        client.ask(WRITE, 0, data=bytes(64 * MIB + 4096))
    client.close()
