"""Bits of the cache's file flip while the server is stopped: nobody ever reads wrong bytes."""

from __future__ import annotations

import json
import pathlib
import random
import time
import urllib.error
from collections.abc import Callable

import pytest

from nbd_client import READ, NbdClient
from store import eventually
from volume_server import KIB, MIB, VolumeServer, image, refused, run

Serve = Callable[..., VolumeServer]
VOLUME_BYTES = 16 * MIB
EIO = 5
PAGE_BYTES = 4 * KIB


def flip(path: pathlib.Path, at: int) -> None:
    """Flips a bit of a byte."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


def places(path: pathlib.Path, needle: bytes) -> list[int]:
    """Where in a file these bytes are."""
    data, found, at = path.read_bytes(), [], -1
    while (at := data.find(needle, at + 1)) >= 0:
        found.append(at)
    return found


def test_clean_units_that_are_damaged_are_fetched_again(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    disk = image(tmp_path / "disk.img", VOLUME_BYTES, seed=1)
    server = serve_volumes({"disk": disk})
    run("nbdcopy", server.uri(), "null:")
    assert server.stop() == 0
    whole = disk.read_bytes()
    for unit in (0, 100, 101, 2000):
        (at,) = places(server.cache_path, whole[unit * PAGE_BYTES :][:PAGE_BYTES])
        flip(server.cache_path, at + 1234)
    server.start()
    assert server.cached_bytes()[0] == VOLUME_BYTES
    client = NbdClient(server.socket, "disk")
    for _ in range(2):
        assert b"".join(client.read(at, MIB) for at in range(0, VOLUME_BYTES, MIB)) == whole
    client.close()


def test_dirty_units_that_are_damaged_are_errors(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    """For just these bytes, and until they are written anew: the store has something older, which nobody must take for the last word."""
    disk = image(tmp_path / "disk.img", VOLUME_BYTES, seed=2)
    server = serve_volumes({"disk": disk}, order="flush")
    client = NbdClient(server.socket, "disk")
    data = b"".join(b"%016d" % word for word in range(256 * KIB // 16))
    client.write(MIB, data)
    client.write(MIB + 512 * KIB, data, fua=True)
    # Records of a life are sealed when it ends well, and when the next one begins.
    server.kill()
    client.close()
    server.start()
    server.kill()
    unit = data[5 * PAGE_BYTES : 6 * PAGE_BYTES]
    one, two = places(server.cache_path, unit)
    flip(server.cache_path, one + 100)
    server.start()
    client = NbdClient(server.socket, "disk")
    bad = [start for start in (MIB, MIB + 512 * KIB) if client.ask(READ, start + 5 * PAGE_BYTES, PAGE_BYTES).error == EIO]
    assert len(bad) == 1, f"{one} was damaged, {two} was not; errors at {bad}"
    for start in (MIB, MIB + 512 * KIB):
        for at in range(0, 256 * KIB, PAGE_BYTES):
            answer = client.ask(READ, start + at, PAGE_BYTES)
            is_bad = start in bad and at == 5 * PAGE_BYTES
            assert answer.error == (EIO if is_bad else 0), (start, at)
            assert is_bad or answer.data == data[at : at + PAGE_BYTES], (start, at)
    # A request that touches it fails as a whole, before and after a restart.
    assert client.ask(READ, bad[0], 256 * KIB).error == EIO
    client.close()
    # What is lost is dirty still.
    assert server.stop() == 1, server.log()
    server.start()
    client = NbdClient(server.socket, "disk")
    assert client.ask(READ, bad[0] + 5 * PAGE_BYTES, PAGE_BYTES).error == EIO
    client.write(bad[0] + 5 * PAGE_BYTES, unit)
    assert client.read(bad[0], 256 * KIB) == data
    client.close()
    assert server.stop() == 0, server.log()
    assert disk.read_bytes()[bad[0] :][: 256 * KIB] == data


def test_what_was_overwritten_is_checked_two_seconds_later(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    """A hundred damages, from a bit to a whole unit: each is an error, none is data, and the store gets none of them."""
    disk, choice = image(tmp_path / "disk.img", VOLUME_BYTES), random.Random(5)
    server = serve_volumes({"disk": disk})
    client = NbdClient(server.socket, "disk")
    units = {unit: b"unit %016d, " % unit * 128 + b"end " * 288 for unit in range(400)}
    for version in (b"first", b"last"):
        for unit, data in units.items():
            client.write(unit * PAGE_BYTES, version.ljust(64) + data[64:])
        client.flush()
    client.close()
    time.sleep(2)
    server.kill()
    cache = bytearray(server.cache_path.read_bytes())
    damaged = set(choice.sample(list(units), 100))
    for unit in damaged:
        at = cache.index(b"last".ljust(64) + units[unit][64:])
        kind = choice.randrange(3)
        length = (1, 512, PAGE_BYTES)[kind]
        at += choice.randrange(PAGE_BYTES // length) * length
        cache[at : at + length] = bytes([cache[at] ^ 0x10]) if kind == 0 else bytes(length)
    server.cache_path.write_bytes(cache)
    server.start()
    assert json.loads(server.get("/api/status"))["cache"]["unchecked_bytes"] == 0, server.log()
    client = NbdClient(server.socket, "disk")
    for unit, data in units.items():
        answer = client.ask(READ, unit * PAGE_BYTES, PAGE_BYTES)
        assert answer.error == (EIO if unit in damaged else 0), unit
        assert unit in damaged or answer.data == b"last".ljust(64) + data[64:], unit
    client.close()
    assert server.stop() == 1, "what is lost is dirty still"
    stored = disk.read_bytes()
    for unit, data in units.items():
        older = (bytes(PAGE_BYTES), b"first".ljust(64) + data[64:])
        expected = older if unit in damaged else (b"last".ljust(64) + data[64:],)
        assert stored[unit * PAGE_BYTES :][:PAGE_BYTES] in expected, unit


def test_damaged_metadata_are_refused_with_advice(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    """Each byte of the front is flipped in turn, in both copies at once: superblocks, and the log behind its beginning."""
    disk = image(tmp_path / "disk.img", VOLUME_BYTES, seed=3)
    server = serve_volumes({"disk": disk})
    client = NbdClient(server.socket, "disk")
    client.write(0, b"h" * MIB, fua=True)
    server.kill()
    client.close()
    cache = f"{server.cache_path}:32MiB"
    for at in (0, 5, 13, 30, 45, 70, 90, 3000):
        flip(server.cache_path, at)
        flip(server.cache_path, at + PAGE_BYTES)
        said = refused(tmp_path, {"disk": disk}, cache)
        assert str(server.cache_path) in said and "--reset" in said, (at, said)
        flip(server.cache_path, at)
        flip(server.cache_path, at + PAGE_BYTES)
    # One copy is enough.
    flip(server.cache_path, 70)
    server.start()
    client = NbdClient(server.socket, "disk")
    assert client.read(0, MIB) == b"h" * MIB
    client.close()


def test_a_shortened_cache_is_refused(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    disk = image(tmp_path / "disk.img", VOLUME_BYTES, seed=4)
    server = serve_volumes({"disk": disk})
    client = NbdClient(server.socket, "disk")
    client.write(0, b"i" * MIB, fua=True)
    server.kill()
    client.close()
    with server.cache_path.open("r+b") as file:
        file.truncate(16 * MIB)
    for size in ("16MiB", "32MiB"):
        said = refused(tmp_path, {"disk": disk}, f"{server.cache_path}:{size}")
        assert "give the device its length back" in said and "--reset" in said, said
        assert server.cache_path.stat().st_size == 16 * MIB, "it is as it was"


@pytest.mark.parametrize("mode", ["write-back", "write-through", "write-around"])
def test_a_cache_that_cannot_be_read_any_more_costs_no_client_anything(
    serve_volumes: Serve, tmp_path: pathlib.Path, mode: str
) -> None:
    """What lies behind the end of a file that was shortened cannot be read."""
    disk = image(tmp_path / "disk.img", VOLUME_BYTES, seed=5)
    server = serve_volumes({"disk": disk}, mode=mode, flags=("--cache-memory", "0B"))
    run("nbdcopy", server.uri(), "null:")
    whole = bytearray(disk.read_bytes())
    # Not so late that it would be hidden by what is being written.
    eventually(lambda: server.cached_bytes()[0] == VOLUME_BYTES, "all is cached")
    assert server.get("/ready") == "ready\n"

    def shorten() -> None:
        with server.cache_path.open("r+b") as file:
            file.truncate(12 * MIB)

    shorten()
    client = NbdClient(server.socket, "disk")
    # Two units are overwritten in part: what lies beside it stays.
    at = 12 * MIB + 2 * KIB
    client.write(at, b"w" * 4 * KIB)
    whole[at : at + 4 * KIB] = b"w" * 4 * KIB
    assert client.read(12 * MIB, 64 * KIB) == whole[12 * MIB :][: 64 * KIB]
    for size in (MIB, 64 * KIB, 4 * KIB):
        for at in range(0, VOLUME_BYTES, MIB):
            assert client.read(at, size) == whole[at : at + size], (at, size)
    assert server.command_line("flush").returncode == 0

    def is_out_of_use() -> bool:
        # What is cached anew makes the file longer.
        shorten()
        assert b"".join(client.read(at, MIB) for at in range(0, VOLUME_BYTES, MIB)) == whole
        cache = json.loads(server.get("/api/status"))["cache"]
        return cache["out_of_use"] and cache["retired_bytes"] > 0

    eventually(is_out_of_use, "the cache is out of use")

    def refuses() -> bool:
        try:
            server.get("/ready")
        except urllib.error.HTTPError as error:
            return error.code == 503 and "out of use" in error.read().decode()
        return False

    eventually(refuses, "/ready refuses")
    assert "tiermem_block_cache_out_of_use 1" in server.get("/metrics")
    client.write(MIB, b"n" * 64 * KIB, fua=True)
    whole[MIB : MIB + 64 * KIB] = b"n" * 64 * KIB
    assert client.read(MIB, 64 * KIB) == whole[MIB:][: 64 * KIB]
    client.close()
    assert server.stop() == 0, server.log()
    assert disk.read_bytes() == whole


def test_a_start_that_is_refused_leaves_no_cache_file(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    disk = image(tmp_path / "disk.img", VOLUME_BYTES, seed=6)
    said = refused(tmp_path, {"disk": disk}, f"{tmp_path / 'new'}:3TiB")
    assert "no room" in said, said
    assert not (tmp_path / "new").exists()
