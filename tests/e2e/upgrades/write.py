"""Writes what the tests of upgrades open, with the program as it is now: `PYTHONPATH=tests/e2e:tests/e2e/block python
tests/e2e/upgrades/write.py DIRECTORY`. Do so before a format changes, name the files after the old version, and add them to the tests.
What is written compresses well: patterns in sparse files."""

from __future__ import annotations

import lzma
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

from recorder import connect
from programs import workload
from store import MIB, Store, binary, eventually

KIB = 1 << 10
BLOCK_FLAGS = ("--cache-memory", "0")
FLASH_TIERS = ["--shards", "1", "--tier", "dram=1MiB", "--tier", "flash:{}=64MiB"]
SNAPSHOT_TIERS = ["--shards", "1", "--tier", "dram=32MiB", "--snapshot", "{}"]
LATE_S = 4_000_000_000


def pattern(name: str, unit: int) -> bytes:
    """4 KiB that say where they belong and which write they are of."""
    return f"{name} {unit}.".ljust(32).encode() * 128


def block_writes() -> dict[str, dict[int, bytes]]:
    """What clients of the two exports have written and flushed, by unit."""
    disk = {unit: pattern("first", unit) for unit in range(64, 96)}
    disk |= {unit: pattern("second", unit) for unit in range(80, 90)}
    return {"disk": disk, "other": {unit: pattern("other", unit) for unit in range(0, 200, 7)}}


def write_cache(directory: pathlib.Path) -> None:
    """A cache in write-back mode in front of two images, dirty, whose server was killed: clean units, dirty ones, those
    that were written over, and some that were written and not flushed."""
    # Tests of the store, which read the rest of this file, do not know of these.
    from nbd_client import NbdClient  # noqa: PLC0415
    from volume_server import VolumeServer, image  # noqa: PLC0415

    disk, other = image(directory / "disk.img", MIB, seed=9), image(directory / "other.img", MIB)
    cache = f"{directory / 'cache'}:8MiB"
    exports = {"disk": f"{disk},delay=1ms", "other": other}
    server = VolumeServer(directory / "server", exports, cache=cache, flags=BLOCK_FLAGS)
    clients = {name: NbdClient(server.socket, name) for name in ("disk", "other")}
    clients["disk"].read(512 * KIB, 128 * KIB)
    for unit in range(64, 96):
        clients["disk"].write(unit * 4 * KIB, pattern("first", unit))
    clients["disk"].flush()
    for name, units in block_writes().items():
        for unit, data in units.items():
            clients[name].write(unit * 4 * KIB, data)
        clients[name].flush()
    for unit in range(100, 104):
        clients["disk"].write(unit * 4 * KIB, pattern("unflushed", unit))
    assert all(server.cached_bytes(name)[1] > 0 for name in clients)
    server.kill()
    for client in clients.values():
        client.close()
    packed = lzma.open(directory / "block-cache.tar.xz", "wb", preset=9)
    with packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for path in (directory / "cache", disk, other):
            tar.add(path, path.name)


def store_items() -> dict[str, bytes]:
    """The strings of a snapshot, by key."""
    items = {f"key:{number}": f"{number},".encode() * 50 for number in range(300)}
    return items | {"large": b"large " * 100_000, "empty": b"", "expires": b"late"}


def write_snapshot(directory: pathlib.Path) -> None:
    """That of a store that was stopped in order."""
    path = directory / "snapshot"
    store = Store(directory, *(flag.format(path) for flag in SNAPSHOT_TIERS))
    with connect(store) as client:
        client.mset(store_items())
        client.expireat("expires", LATE_S)
        client.hset("hash", mapping={f"field:{number}": f"{number}" for number in range(50)})
        client.hexpireat("hash", LATE_S, "field:7")
        client.select(3)
        client.set("elsewhere", "too")
    assert store.stop() == 0, store.log()
    (directory / "store-snapshot.xz").write_bytes(lzma.compress(path.read_bytes(), preset=9))


def flash_value(number: int) -> bytes:
    return f"{number},".encode() * 800


def write_flash(directory: pathlib.Path) -> None:
    """A flash tier with most of the items of a store that was killed after a quiet time."""
    path = directory / "flash"
    store = Store(directory, *(flag.format(path) for flag in FLASH_TIERS))
    with connect(store) as client:
        for number in range(1000):
            client.set(f"key:{number}", flash_value(number))
        for number in range(0, 1000, 10):
            client.expireat(f"key:{number}", LATE_S + number)
        client.delete(*(f"key:{number}" for number in range(5, 1000, 100)))
        client.hset("hash", mapping={"a": "1", "b": "2"})
        # What came last stays in memory: the hash and the deletions are pushed out, or written down, by these.
        for number in range(1000, 1400):
            client.set(f"key:{number}", flash_value(number))

    def items() -> int:
        return next(tier["items"] for tier in store.snapshot()["engine"]["tiers"] if tier["kind"] == "flash")

    seen: list[int] = []
    eventually(lambda: seen.append(items()) or seen[-8:] == seen[-1:] * 8, "the flash tier is quiet")
    store.kill()
    print("items on flash", seen[-1])
    (directory / "store-flash.xz").write_bytes(lzma.compress(path.read_bytes(), preset=9))


def write_recordings(directory: pathlib.Path) -> None:
    """A recording of a program, and the journal of one whose recorder was killed."""
    path, journal = directory / "recording", directory / "journal"
    # A recording has the place of its program, which here is one that says nothing.
    [program, *words] = workload("skewed", "--footprint 16MiB --granule 1MiB --seconds 4 --per-second 100000")
    shutil.copy(program, directory / "skewed")
    command = [binary(), "record", "--slice", "500ms", "--granule", "1MiB", "-o"]
    for out in (path, journal):
        begun = [*command, str(out), "--", "./skewed", *words]
        with subprocess.Popen(begun, cwd=directory, stdout=subprocess.DEVNULL) as recorder:
            if out == journal:
                eventually(lambda: journal.exists() and journal.stat().st_size > 10 * KIB, "some slices are recorded")
                recorder.kill()
    for made in (path, journal):
        made.with_suffix(".xz").write_bytes(lzma.compress(made.read_bytes(), preset=9))


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1])
    for write in (write_cache, write_snapshot, write_flash, write_recordings):
        with tempfile.TemporaryDirectory() as place:
            write(pathlib.Path(place))
            for made in pathlib.Path(place).glob("*.xz"):
                (target / made.name).write_bytes(made.read_bytes())
                print(made.name, len(made.read_bytes()))
