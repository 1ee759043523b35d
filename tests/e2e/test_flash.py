"""The flash tier as a user meets it: restarts, orderly or not, under clients that know what must, may and must not be there;
refusals; and keys that lie on flash asked for in every way."""

from __future__ import annotations

import os
import pathlib
import random
import threading
import time
from collections.abc import Callable

import pytest
import redis

from recorder import connect, fill, get_all, lives, scan
from store import MIB, PATIENCE_S, SHARDS, Store, eventually, tiermem

ROUNDS = int(os.environ.get("FLASH_ROUNDS", "5"))


def flags(path: pathlib.Path, flash: str = "256MiB", dram: str = "16MiB") -> list[str]:
    return ["--tier", f"dram={dram}", "--tier", f"flash:{path}={flash}"]


def flash_items(store: Store) -> int:
    return next(tier["items"] for tier in store.snapshot()["engine"]["tiers"] if tier["kind"] == "flash")


@pytest.mark.parametrize("quiet", [False, True], ids=["amid work", "after a quiet second"])
def test_kill_and_restart_again_and_again(serve: Callable[..., Store], tmp_path: pathlib.Path, quiet: bool) -> None:
    def start() -> Store:
        return serve(*flags(tmp_path / "flash", "64MiB", "4MiB"))

    for life in lives(start, lambda store, _: store.kill(), ROUNDS, flash_items if quiet else None):
        assert life.is_kept_found(), life


def test_an_orderly_stop_loses_nothing_on_flash(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    store = serve(*flags(tmp_path / "flash"))
    value = b"v" * 1000
    with connect(store) as client:
        for start in range(0, 60_000, 1000):
            client.mset({f"key:{key}": value for key in range(start, start + 1000)})
        items = flash_items(store)
        assert client.dbsize() == 60_000
    assert items > 30_000
    assert store.stop() == 0
    store = serve(*flags(tmp_path / "flash"))
    with connect(store) as client:
        assert client.dbsize() >= items
        keys = scan(client, 1000)
        assert len(keys) == client.dbsize()
        assert set(client.mget(list(keys)[:3000])) == {value}


def refused(path: pathlib.Path, *more: str, flash: str = "64MiB") -> str:
    done = tiermem("store", "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *flags(path, flash), *more)
    assert done.returncode == 1, done
    assert "panicked" not in done.stderr
    return done.stderr


def test_what_is_not_ours_is_refused_with_a_way_out(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "flash"
    store = serve(*flags(path, "64MiB"))
    assert "in use" in refused(path), "another store has it"
    assert store.stop() == 0
    assert "--reset" in refused(path, "--shards", str(3 - min(SHARDS, 2))), "another division"
    whole = path.read_bytes()

    def spoilt(change: Callable[[bytearray], None]) -> str:
        image = bytearray(whole)
        change(image)
        path.write_bytes(image)
        return refused(path)

    def version(image: bytearray) -> None:
        image[8] = image[4096 + 8] = 99

    def stranger(image: bytearray) -> None:
        image[:8192] = b"precious" * 1024

    assert "version 99" in spoilt(version)
    said = spoilt(stranger)
    assert "not tiermem's" in said and "--reset" in said
    assert path.read_bytes()[:8192] == b"precious" * 1024, "nobody's data are touched"
    path.write_bytes(whole[: 20 * MIB])
    assert "--reset" in refused(path), "a part is missing"
    # And the way out is one.
    with connect(serve(*flags(path, "64MiB"), "--reset")) as client:
        assert client.set("a", 1)


def test_a_place_that_cannot_be_written_is_refused(tmp_path: pathlib.Path) -> None:
    assert str(tmp_path) in refused(tmp_path / "no" / "such" / "flash")
    assert "directory" in refused(tmp_path) or "neither" in refused(tmp_path)
    free = os.statvfs(tmp_path)
    too_much = (free.f_bavail * free.f_frsize >> 30) + 64
    if too_much < 250:
        assert "free" in refused(tmp_path / "flash", flash=f"{too_much}GiB")
        assert not (tmp_path / "flash").exists() or (tmp_path / "flash").stat().st_size == 0


def test_values_around_and_beyond_a_segment(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    store = serve(*flags(tmp_path / "flash", f"{256 * SHARDS}MiB", f"{16 * SHARDS}MiB"))
    sizes = [100_000, 700_000, 1_000_000, 1_900_000, 2_097_000, 2_200_000, 5_000_000]
    with connect(store) as client:
        for number in range(60):
            size = sizes[number % len(sizes)]
            client.set(f"big:{number}", bytes([number]) * size)
        for number in range(60):
            size = sizes[number % len(sizes)]
            value = client.get(f"big:{number}")
            # What is larger than a segment is evicted when memory is full; all else has room.
            assert value == bytes([number]) * size or (value is None and size > 2_097_000), f"{number}: {size}"
        # More at once than may be read at once.
        names = [f"big:{number}" for number in range(60) if sizes[number % len(sizes)] == 700_000]
        values = client.mget(names * 8)
        assert len(values) == 8 * len(names)


def test_pipelines_keep_their_order_and_scans_see_all(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    store = serve(*flags(tmp_path / "flash", f"{256 * SHARDS}MiB", f"{16 * SHARDS}MiB"))
    count = 50_000
    fill(store, count)
    rng = random.Random(1)
    with connect(store) as client:
        for _ in range(30):
            pipe, expected = client.pipeline(transaction=False), []
            for number in range(200):
                key = rng.choice([rng.randrange(count), count - 1 - rng.randrange(2000)])
                choice = rng.random()
                if choice < 0.1:
                    pipe.incr("counter")
                    expected.append("counter")
                elif choice < 0.2:
                    pipe.append(f"key:{key}", b"")
                    expected.append(len(f"{key}:") + 1000)
                elif choice < 0.3:
                    pipe.echo(str(number))
                    expected.append(str(number).encode())
                else:
                    pipe.get(f"key:{key}")
                    expected.append(f"{key}:".encode() + b"v" * 1000)
            answers = pipe.execute()
            for answer, wanted in zip(answers, expected):
                assert isinstance(answer, int) if wanted == "counter" else answer == wanted
            counts = [answer for answer, wanted in zip(answers, expected) if wanted == "counter"]
            assert counts == sorted(counts)
        keys = scan(client, 500)
        assert len(keys) == count + 1 == client.dbsize()


def test_one_request_wants_thousands_of_cold_keys(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    store = serve(*flags(tmp_path / "flash", f"{256 * SHARDS}MiB", f"{16 * SHARDS}MiB"))
    count = 50_000
    fill(store, count)
    with connect(store) as client:
        values = client.mget([f"key:{key}" for key in range(count)])
        assert values == [f"{key}:".encode() + b"v" * 1000 for key in range(count)]
        assert client.exists(*(f"key:{key}" for key in range(count))) == count
        assert client.delete(*(f"key:{key}" for key in range(0, count, 2))) == count / 2
        assert client.dbsize() == count / 2


def test_many_clients_want_the_same_cold_keys(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    store = serve(*flags(tmp_path / "flash"))
    fill(store, 40_000)
    errors: list[BaseException] = []

    def hammer() -> None:
        try:
            with connect(store) as client:
                for _ in range(10):
                    values = client.mget([f"key:{key}" for key in range(300)])
                    assert values == [f"{key}:".encode() + b"v" * 1000 for key in range(300)]
                    client.incrby("sum", 1)
        except BaseException as error:  # noqa: BLE001 - Shown by the test itself.
            errors.append(error)

    threads = [threading.Thread(target=hammer) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not errors, errors[0]
    with connect(store) as client:
        assert client.get("sum") == b"160"
    eventually(lambda: store.snapshot()["engine"]["keys"] == 40_001, "keys are counted once")


DURABLE = """
[[tier]]
name = "dram"
kind = "dram"
capacity = "{dram}MiB"

[[tier]]
name = "flash"
kind = "flash"
path = "{path}"
capacity = "{flash}MiB"
durability = "power"
"""


def syncs(client: redis.Redis) -> int:
    return int(client.info("tiers")["flash_syncs"])


def test_replies_wait_for_the_device_where_power_loss_is_to_be_outlived(
    serve: Callable[..., Store], tmp_path: pathlib.Path
) -> None:
    config = tmp_path / "tiermem.toml"
    config.write_text(DURABLE.format(path=tmp_path / "flash", dram=16 * SHARDS, flash=256 * SHARDS))
    store = serve("--config", str(config))
    made = fill(store, 40_000)
    names = list(made)
    errors: list[BaseException] = []

    def remove(part: int) -> None:
        try:
            with connect(store) as client:
                # One by one, and many at once; the reads between them are answered as well.
                for name in names[part:2000:8]:
                    assert client.delete(name) == 1 and client.get(name) is None
                pipe = client.pipeline(transaction=False)
                for name in names[2000 + part : 10_000 : 8]:
                    pipe.set(name, "new")
                    pipe.get(name)
                assert pipe.execute() == [True, b"new"] * 1000
        except BaseException as error:  # noqa: BLE001 - Shown by the test itself.
            errors.append(error)

    with connect(store) as client:
        before = syncs(client)
        threads = [threading.Thread(target=remove, args=[part]) for part in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert not errors, errors[0]
        took = syncs(client) - before
        # Eight clients share syncs, and each of a client's 250 removals waits for one of its own.
        assert 250 <= took <= 8 * 252 * SHARDS + 100
    store.kill()
    with connect(serve("--config", str(config))) as client:
        assert get_all(client, names[:2000]) == [None] * 2000
        assert all(value in (b"new", None) for value in get_all(client, names[2000:10_000]))
        kept = get_all(client, names[10_000:])
        assert all(value in (made[name], None) for name, value in zip(names[10_000:], kept))
        assert sum(value is not None for value in kept) > 1000


def test_long_replies_and_a_removal_in_one_pipeline(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    """More than a pipe between shards holds is on its way when the replies have to wait for the device."""
    config = tmp_path / "tiermem.toml"
    config.write_text(DURABLE.format(path=tmp_path / "flash", dram=16 * SHARDS, flash=128 * SHARDS))
    store = serve("--config", str(config))
    tags = "abcd"
    large = b"z" * 30_000
    with connect(store) as client:
        pipe = client.pipeline(transaction=False)
        for number in range(40_000 * SHARDS):
            pipe.set(f"{{{tags[number % 4]}}}{number // 4}", b"v" * 1000)
            if number % 1000 == 999:
                pipe.execute()
        pipe.execute()
        for number in range(10):
            for tag in tags:
                client.mset({f"{{{tag}}}large{at}": large for at in range(10)})
                with connect(store) as other:
                    pipe = other.pipeline(transaction=False)
                    for at in range(10):
                        pipe.get(f"{{{tag}}}large{at}")
                    pipe.set(f"{{{tag}}}{number}", "new")
                    pipe.ping()
                    assert pipe.execute() == [large] * 10 + [True, True]
        assert syncs(client) > 10


def test_a_durability_that_there_is_not_is_refused(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "tiermem.toml"
    text = DURABLE.format(path=tmp_path / "flash", dram=16, flash=256).replace("power", "for ever")
    config.write_text(text)
    done = tiermem("store", "serve", "--config", str(config))
    assert done.returncode == 2 and "process, power" in done.stderr, done


def capacity(store: Store) -> int:
    with connect(store) as client:
        return int(client.config_get("flash-capacity")["flash-capacity"])


def test_a_flash_tier_grows_while_it_serves_and_keeps_what_it_has(
    serve: Callable[..., Store], tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "flash"
    store = serve(*flags(path, "64MiB", "4MiB"))
    assert capacity(store) == 64 * MIB
    value = b"v" * 10_000
    with connect(store) as client:
        refusals = {
            "1MiB": "never shrinks",
            "9000TiB": "no room|at most",
            "much": "CONFIG SET failed",
        }
        for bytes_, words in refusals.items():
            with pytest.raises(redis.ResponseError, match=words):
                client.config_set("flash-capacity", bytes_)
        assert path.stat().st_size == capacity(store) == 64 * MIB, "a refused growth changes nothing"
        for key in range(1000):
            client.set(f"first:{key}", value)
        # Less than a segment more for each shard is nothing more.
        client.config_set("flash-capacity", 65 * MIB)
        assert capacity(store) == 64 * MIB
        client.config_set("flash-capacity", 101 * MIB)
        client.config_set("flash-capacity", 101 * MIB)
        step = 2 * MIB * SHARDS
        grown = 64 * MIB + 37 * MIB // step * step
        assert capacity(store) == grown == path.stat().st_size
        for key in range(4000):
            client.set(f"second:{key}", value)
        assert client.dbsize() == 5000, "50 MB had no room before"
        assert int(client.info("tiers")["flash_lost_items"]) == 0
    eventually(lambda: flash_items(store) > 4000, "they move to flash")
    store.kill()
    # With the flags of the first start, and then with more than it has.
    store = serve(*flags(path, "64MiB", "4MiB"))
    assert "never shrinks" in store.log()
    assert capacity(store) == grown
    with connect(store) as client:
        assert client.dbsize() > 4000
        keys = scan(client, 1000)
        assert set(client.mget(list(keys)[:2000])) == {value}
    assert store.stop() == 0
    store = serve(*flags(path, "128MiB", "4MiB"))
    assert 126 * MIB <= capacity(store) == path.stat().st_size <= 128 * MIB
    with connect(store) as client:
        assert client.dbsize() > 4000


def test_a_kill_amid_growth_loses_nothing(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    sizes = iter(range(80, 400, 8))
    refusals: list[redis.ResponseError] = []

    def kill(store: Store, number: int) -> None:
        """While the growth is asked for: before it, amid it, or just behind it."""

        def grow() -> None:
            try:
                with connect(store) as client:
                    client.config_set("flash-capacity", next(sizes) * MIB)
            except redis.ResponseError as error:
                refusals.append(error)
            except redis.ConnectionError:
                pass  # It was killed before.

        growing = threading.Thread(target=grow)
        growing.start()
        time.sleep(random.Random(number).random() * 0.02)
        store.kill()
        growing.join()

    def start() -> Store:
        return serve(*flags(tmp_path / "flash", "64MiB", "4MiB"))

    for life in lives(start, kill, ROUNDS, flash_items):
        assert life.is_kept_found() and not refusals, (life, refusals)
