"""What is back after a restart of the memory tiers: those in a file, in place, after any death; the others through a
snapshot, after an orderly stop or where the user asks for more."""

from __future__ import annotations

import contextlib
import lzma
import os
import pathlib
import random
import subprocess
from collections.abc import Callable, Iterator

import pytest
import redis

from programs import tool
from recorder import connect, fill, get_all, lives, scan
from store import MIB, PATIENCE_S, Store, eventually, tiermem

ROUNDS = int(os.environ.get("WARM_ROUNDS", "5"))


def dax(path: pathlib.Path, capacity: str = "32MiB", dram: str = "4MiB") -> list[str]:
    return ["--tier", f"dram={dram}", "--tier", f"dax:{path}={capacity}"]


def items(store: Store, kind: str) -> int:
    return sum(tier["items"] for tier in store.snapshot()["engine"]["tiers"] if tier["kind"] == kind)


@pytest.mark.parametrize("flash", [False, True], ids=["alone", "over flash"])
@pytest.mark.parametrize("quiet", [False, True], ids=["amid work", "quiet"])
def test_kill_and_take_up_again_and_again(
    serve: Callable[..., Store], tmp_path: pathlib.Path, quiet: bool, flash: bool
) -> None:
    flags = dax(tmp_path / "dax", "16MiB" if flash else "32MiB")
    if flash:
        flags += ["--tier", f"flash:{tmp_path / 'flash'}=64MiB"]

    def in_order(number: int) -> bool:
        return number % 5 == 4

    def end(store: Store, number: int) -> None:
        # SIGTERM takes the same way back.
        if in_order(number):
            assert store.stop() == 0
        else:
            store.kill()

    def kept(store: Store) -> int:
        return items(store, "dax") + items(store, "flash")

    for life in lives(lambda: serve(*flags), end, ROUNDS, kept if quiet else None):
        # Only a kill is held to the count, and only where no item can lie in two tiers.
        assert flash or in_order(life.number) or life.is_kept_found(), life


def test_hashes_and_expiries_are_kept_in_place(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    flags = dax(tmp_path / "dax", "64MiB", "4MiB")
    store = serve(*flags)
    with connect(store) as client:
        for key in range(200):
            client.hset(f"hash:{key}", mapping={f"field:{field}": f"{key}.{field}" for field in range(100)})
        fill(store, 20_000)
        for key in range(0, 20_000, 2):
            client.pexpireat(f"key:{key}", 4_000_000_000_000 + key)
        # Changed where they lie, now that they are in the file.
        for key in range(200):
            client.hset(f"hash:{key}", "field:7", "seven")
            client.hdel(f"hash:{key}", "field:8")
    store.kill()
    store = serve(*flags)
    assert "taken up" in store.log()
    hashes = keys = 0
    with connect(store) as client:
        for key in range(200):
            found = client.hgetall(f"hash:{key}")
            wanted = {f"field:{field}".encode(): f"{key}.{field}".encode() for field in range(100) if field != 8}
            wanted[b"field:7"] = b"seven"
            assert found in ({}, wanted)
            hashes += bool(found)
        for key in range(20_000):
            at = client.pexpiretime(f"key:{key}") if key % 100 < 2 else None
            assert at in (None, -2, 4_000_000_000_000 + key if key % 2 == 0 else -1)
            keys += at is not None and at != -2
        assert keys > 100, "most of them lay in the file"


def test_a_file_of_another_kind_or_size_is_refused(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "dax"
    store = serve(*dax(path))
    fill(store, 10_000)

    def refused(capacity: str = "32MiB") -> str:
        at = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        done = tiermem("store", "serve", *at, *dax(path, capacity))
        assert done.returncode == 1 and "panicked" not in done.stderr, done
        assert "--reset" in done.stderr or "in use" in done.stderr
        return done.stderr

    assert "in use" in refused()
    assert store.stop() == 0
    assert "32MiB" in refused("64MiB")
    whole = path.read_bytes()
    path.write_bytes(whole[: 20 * MIB])
    assert "a part of a tier" in refused()
    path.write_bytes(b"precious" * 1000)
    assert "something else" in refused()
    assert path.read_bytes() == b"precious" * 1000
    path.write_bytes(bytes([*whole[:8], 99, *whole[9:]]))
    assert "version 99" in refused()
    # Damage where pages are described costs those pages, and never ends the store.
    image = bytearray(whole)
    image[64 << 10 : 65 << 10] = random.Random(1).randbytes(1 << 10)
    path.write_bytes(image)
    store = serve(*dax(path))
    with connect(store) as client:
        keys = scan(client, 1000)
        assert 0 < len(keys) < 10_000
        assert all(value.startswith(key[4:] + b":v") for key, value in zip(keys, client.mget(list(keys))))
    assert store.stop() == 0
    with connect(serve(*dax(path), "--reset")) as client:
        assert client.dbsize() == 0


def snapshot_flags(path: pathlib.Path, *more: str) -> list[str]:
    return ["--tier", "dram=64MiB", "--tier", "emulated=64MiB", "--snapshot", str(path), *more]


def everything(store: Store, made: dict[str, bytes]) -> dict[str, bytes]:
    with connect(store) as client:
        values = get_all(client, list(made))
    return {key: value for key, value in zip(made, values) if value is not None}


def test_an_orderly_stop_and_a_snapshot_lose_nothing(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "snapshot"
    store = serve(*snapshot_flags(path))
    made = fill(store, 20_000)
    big = {f"big:{number}": bytes([number]) * 3_000_000 for number in range(5)}
    with connect(store) as client:
        client.mset(big)
        client.hset("hash", mapping={"a": "1", "b": "2"})
        client.hexpire("hash", 10_000, "a")
        client.set("lapses", "soon", px=1)
        client.set("lasts", "long", exat=4_000_000_000)
        client.select(3)
        client.set("elsewhere", "too")
    assert store.stop() == 0
    assert "snapshot written" in store.log() and "ERROR" not in store.log()
    store = serve(*snapshot_flags(path))
    assert "snapshot loaded" in store.log()
    assert everything(store, made | big) == made | big
    with connect(store) as client:
        assert client.hgetall("hash") == {b"a": b"1", b"b": b"2"}
        assert client.httl("hash", "a")[0] > 9000 and client.httl("hash", "b") == [-1]
        assert client.get("lapses") is None
        assert client.expiretime("lasts") == 4_000_000_000
        assert client.info("keyspace")["db3"]["keys"] == 1
        client.flushall()
    # It was loaded once; what came behind it is not in it.
    store.kill()
    store = serve(*snapshot_flags(path))
    assert "loaded before" in store.log()
    with connect(store) as client:
        assert client.dbsize() == 0


def test_one_taken_amid_work_is_loaded_only_when_asked(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "snapshot"
    store = serve(*snapshot_flags(path))
    made = fill(store, 30_000)
    with connect(store) as client:
        before = client.lastsave()
        # At once, lest the first is done before the second is asked for.
        with client.pipeline(transaction=False) as pipe:
            first, second = pipe.bgsave().bgsave().execute(raise_on_error=False)
        assert first is True and isinstance(second, redis.ResponseError) and "already in progress" in str(second)
        # Other clients go on meanwhile.
        while client.info("persistence")["rdb_bgsave_in_progress"]:
            client.set("key:7", "amid")
        told = client.info("persistence")
        assert (told["rdb_saves"], told["rdb_last_bgsave_status"]) == (1, "ok")
        assert client.lastsave() >= before and told["rdb_last_save_time"] >= before.timestamp()
        client.set("key:8", "behind")
        client.delete("key:9")
    store.kill()
    store = serve(*snapshot_flags(path))
    assert "taken while the store ran" in store.log()
    with connect(store) as client:
        assert client.dbsize() == 0
    store.kill()
    store = serve(*snapshot_flags(path, "--snapshot-load", "always"))
    found = everything(store, made)
    assert found.keys() == made.keys()
    assert found["key:8"] == made["key:8"], "as it was then"
    assert {key for key in made if found[key] != made[key]} <= {"key:7"}
    with connect(store) as client:
        assert client.save() is True
        client.shutdown(nosave=True)
    assert store.process.wait(PATIENCE_S) == 0
    store = serve(*snapshot_flags(path))
    with connect(store) as client:
        assert client.dbsize() == 0
        client.set("a", 1)
        client.shutdown(save=True)
    # Its connections end before the snapshot is in its place.
    assert store.process.wait(PATIENCE_S) == 0
    assert not list(tmp_path.glob("snapshot.new*"))
    with connect(serve(*snapshot_flags(path))) as client:
        assert client.get("a") == b"1"


def test_a_snapshot_beside_tiers_that_remember(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    flags = [*dax(tmp_path / "dax", "16MiB"), "--tier", f"flash:{tmp_path / 'flash'}=64MiB"]
    flags += ["--snapshot", str(tmp_path / "snapshot")]
    store = serve(*flags)
    made = fill(store, 40_000)
    there = everything(store, made)
    assert len(there) > 30_000
    for number in range(3):
        assert store.stop() == 0
        store = serve(*flags)
        found = everything(store, made)
        # Moving about for room, some may go; none changes.
        assert len(found) > 0.95 * len(there), f"round {number}: {len(found)} of {len(there)}: {store.log()}"
        assert all(made[key] == value for key, value in found.items())
        with connect(store) as client:
            assert client.dbsize() == len(scan(client, 1000))
            changed = {key: f"{number}".encode() * 900 for key in random.sample(list(made), 2000)}
            gone = random.sample(list(made), 500)
            client.mset(changed)
            client.delete(*gone)
        made.update(changed)
        for key in gone:
            made.pop(key, None)
        there = everything(store, made)


def test_no_strangers_file_is_overwritten(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "snapshot"
    at = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]

    def refused(*more: str) -> str:
        done = tiermem("store", "serve", *at, *snapshot_flags(path, *more))
        assert done.returncode in (1, 2) and "panicked" not in done.stderr, done
        return done.stderr

    path.write_bytes(b"precious" * 100)
    assert "something else" in refused() and "something else" in refused("--snapshot-load", "never")
    assert path.read_bytes() == b"precious" * 100
    path.unlink()
    assert "clean, always, never" in refused("--snapshot-load", "often")
    store = serve(*snapshot_flags(path))
    made = fill(store, 10_000)
    assert store.stop() == 0
    whole = path.read_bytes()
    path.write_bytes(whole[:8] + b"\x63" + whole[9:])
    assert "version 99" in refused()
    # Damage costs a block; a missing end what stood there.
    for image in (whole[: len(whole) // 2] + b"\0" + whole[len(whole) // 2 + 1 :], whole[: len(whole) * 2 // 3]):
        path.write_bytes(image)
        store = serve(*snapshot_flags(path))
        assert "damaged" in store.log()
        found = everything(store, made)
        assert 5000 < len(found) < 10_000
        assert all(made[key] == value for key, value in found.items())
        store.kill()


# Written by the program before runs were counted in granules of 4 KiB.
OLDER_REGION = pathlib.Path(__file__).parent / "upgrades" / "dax-region-version-2.xz"


def test_a_region_of_the_version_before_is_taken_up(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "dax"
    path.write_bytes(lzma.decompress(OLDER_REGION.read_bytes()))
    flags = dax(path, "2MiB", "1MiB")
    store = serve(*flags)
    with connect(store) as client:
        keys = {key.decode() for key in client.scan_iter(count=1000)}
        assert len(keys) == 729
        for key in keys:
            number = key.split(":")[1]
            assert client.get(key) == (b"five pages " * 27000 if key == "large:5" else f"{number},".encode() * 500), key
        # Where it begins was given as pages; others take granules beside it.
        for number in range(6):
            client.set(f"larger:{number}", bytes([number]) * 150_000)
    assert store.stop() == 0
    assert path.read_bytes()[8] == 3
    with connect(serve(*flags)) as client:
        found = {key: client.get(key) for key in client.scan_iter(count=1000)}
        assert found
        for key, value in found.items():
            name, number = key.decode().split(":")
            piece, count = {"page": (f"{number},", 500), "large": ("five pages ", 27_000), "larger": (chr(int(number)), 150_000)}[name]
            assert value == piece.encode() * count, key


@contextlib.contextmanager
def failing_syncs(store: Store, log: pathlib.Path) -> Iterator[None]:
    """While this lasts nothing that the store wants written back to a file is."""
    calls = "msync,fsync,fdatasync"
    command = [tool("strace"), "-f", "-qq", "-o", str(log), "-e", f"trace={calls}", "-e", f"inject={calls}:error=EIO"]
    tracer = subprocess.Popen([*command, "-p", str(store.process.pid)], stderr=subprocess.PIPE, text=True)

    def traced() -> bool:
        if tracer.poll() is not None:
            assert tracer.stderr is not None
            pytest.skip(f"processes cannot be traced here: {tracer.stderr.read()}")
        tasks = pathlib.Path(f"/proc/{store.process.pid}/task").iterdir()
        return all("TracerPid:\t0" not in (task / "status").read_text() for task in tasks)

    try:
        eventually(traced, "all threads are traced")
        yield
    finally:
        tracer.terminate()
        tracer.wait()


def test_a_stop_whose_region_cannot_be_written_back(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    """SHUTDOWN answers why, and the store serves on; a signal ends it with exit code 1. The items outlive the process either way."""
    store = serve(*dax(tmp_path / "dax"))
    with connect(store) as client:
        client.mset({f"key:{key}": b"v" * 500 for key in range(20_000)})
        kept = items(store, "dax")
        assert kept > 0
        with failing_syncs(store, tmp_path / "trace"):
            for words in (["SHUTDOWN"], ["SHUTDOWN", "NOSAVE"]):
                with pytest.raises(redis.ResponseError, match="serves on.*kind dax was not written back"):
                    client.execute_command(*words)
            assert client.get("key:19999") == b"v" * 500 and client.set("later", "1")
            assert store.stop() == 1
    assert "INJECTED" in (tmp_path / "trace").read_text()
    assert "not all is kept: a tier of kind dax was not written back" in store.log().splitlines()[-1]
    store = serve(*dax(tmp_path / "dax"))
    assert items(store, "dax") >= kept - 1
    assert store.stop() == 0
