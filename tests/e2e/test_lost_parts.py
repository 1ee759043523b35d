"""The file of a tier is shortened while the store runs: that costs the items there, and neither the process nor a wrong value."""

from __future__ import annotations

import os
import pathlib
import random
import signal
import threading
from collections.abc import Callable

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from recorder import connect, scan
from store import MIB, PATIENCE_S, SHARDS, Store, eventually

KEYS = 3000
FILE_BYTES = 32 * MIB

pytestmark = pytest.mark.skipif(SHARDS > 1, reason="a tier of kind dax serves one shard")


def value(key: int, version: int) -> bytes:
    """Says which key and version it is at every place; one of a hundred is sent from where it lies."""
    said = f"{key}.{version};".encode()
    return said * (8000 if key % 100 == 7 else 1 + key % 3000)


def operator(store: Store) -> redis.Redis:
    """A client that asks again when it is disconnected: any may be whose request runs at the moment of a loss."""
    return redis.Redis(port=store.port, socket_timeout=PATIENCE_S, retry=Retry(NoBackoff(), 5))


class Worker(threading.Thread):
    """A client with keys of its own. What it reads must be what it wrote last, or nothing."""

    def __init__(self, store: Store, number: int, workers: int) -> None:
        super().__init__()
        self.store, self.keys = store, range(number, KEYS, workers)
        self.rng = random.Random(number)
        self.known: dict[int, set[int]] = {}
        self.stop = threading.Event()
        self.dropped = 0
        self.error: BaseException | None = None

    def check(self, key: int, found: bytes | None) -> None:
        assert found is None or found in {value(key, version) for version in self.known.get(key, set())}, (key, found[:40])
        if found is None:
            self.known.pop(key, None)

    def step(self, client: redis.Redis, version: int) -> None:
        key = self.rng.choice(self.keys)
        if self.rng.random() < 0.5:
            # Until the reply is here either of them may be it.
            self.known.setdefault(key, set()).add(version)
            client.set(f"key:{key}", value(key, version))
            self.known[key] = {version}
        else:
            for key, found in zip(keys := self.rng.sample(self.keys, 5), client.mget([f"key:{key}" for key in keys])):
                self.check(key, found)

    def run(self) -> None:
        try:
            client, version = connect(self.store), 0
            while not self.stop.is_set():
                version += 1
                try:
                    self.step(client, version)
                except (redis.ConnectionError, redis.ResponseError):
                    # Its replies may have been of what was lost.
                    self.dropped += 1
                    client = connect(self.store)
        except BaseException as error:
            self.error = error


@pytest.mark.parametrize("flash", [False, True], ids=["alone", "over flash"])
def test_a_shortened_file_costs_its_items_alone(serve: Callable[..., Store], tmp_path: pathlib.Path, flash: bool) -> None:
    path = tmp_path / "dax"
    flags = ["--tier", "dram=4MiB", "--tier", f"dax:{path}=32MiB", "--snapshot", str(tmp_path / "snapshot")]
    if flash:
        flags += ["--tier", f"flash:{tmp_path / 'flash'}=64MiB"]
    store = serve(*flags)
    workers = [Worker(store, number, 2) for number in range(2)]
    for worker in workers:
        worker.start()
    with operator(store) as client:

        def info(field: str) -> int:
            return int(client.info("persistence")[field])

        eventually(lambda: store.snapshot()["engine"]["tiers"][1]["used_bytes"] > 24 * MIB, "the tier has items")
        for bytes_left in (20 * MIB + 1234, 9 * MIB, 0, FILE_BYTES - 4096):
            before = info("lost_items")
            eventually(lambda: store.snapshot()["engine"]["tiers"][1]["used_bytes"] > 16 * MIB, "the tier has items again")
            eventually(lambda: not client.info("persistence")["rdb_bgsave_in_progress"], "the snapshot before is written")
            client.bgsave()
            os.truncate(path, bytes_left)
            if bytes_left < FILE_BYTES // 2:
                eventually(lambda: info("lost_items") > before, "items were lost")
            eventually(lambda: path.stat().st_size == FILE_BYTES, "the file is whole again")
        # No access shows this one.
        before = info("lost_items")
        os.truncate(path, 0)
        os.truncate(path, FILE_BYTES)
        eventually(lambda: info("lost_items") > before and path.stat().st_blocks * 512 >= FILE_BYTES, "it was found")
        for worker in workers:
            worker.stop.set()
        for worker in workers:
            worker.join()
            assert worker.error is None, worker.error
        assert store.process.poll() is None and info("missing_tier_bytes") == 0
        engine = store.snapshot()["engine"]
        assert engine["lost"] == info("lost_items")
        assert all(tier["used_bytes"] <= tier["capacity_bytes"] for tier in engine["tiers"])
        assert f"tiermem_lost_items_total {engine['lost']}" in store.get("/metrics")
        if not flash:
            # Losses that no access shows are looked for once a second.
            eventually(lambda: client.dbsize() == len(scan(client, 1000)), "no item is zeros")

            def items() -> int:
                return sum(tier["items"] for tier in store.snapshot()["engine"]["tiers"])

            # Between the two a step may evict one.
            eventually(lambda: client.dbsize() == items(), "what is counted is there")
        # Room for others is found as before.
        for key in range(KEYS):
            client.set(f"more:{key}", b"m" * 20_000)
        assert client.get(f"more:{KEYS - 1}") == b"m" * 20_000
        assert flash or client.info("stats")["evicted_keys"] > 0
        eventually(lambda: not client.info("persistence")["rdb_bgsave_in_progress"], "the snapshot is written")
        # A loss that nobody has seen before the stop would leave a file that the next start takes for another's.
        eventually(lambda: path.open("rb").read(8) != bytes(8), "the file has its header again")
    assert "a part of the tier's file or device was lost" in store.log() and "panicked" not in store.log()
    assert store.stop() == 0
    store = serve(*flags)
    found = 0
    with connect(store) as client:
        assert flash or int(client.info("persistence")["kept_in_place_items"]) > 0
        for worker in workers:
            for key in worker.keys:
                there = client.get(f"key:{key}")
                worker.check(key, there)
                found += there is not None
        for key in range(KEYS):
            there = client.get(f"more:{key}")
            assert there in (None, b"m" * 20_000)
            found += there is not None
    assert found > 300


def test_a_value_that_is_being_sent_from_a_lost_place_ends_its_client(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "dax"
    store = serve("--tier", "dram=4MiB", "--tier", f"dax:{path}=32MiB")
    with operator(store) as client:
        for key in range(24):
            client.set(f"key:{key}", bytes([key + 1]) * MIB)
        with store.connect() as reader:
            # More than the kernel takes at once.
            names = b"".join(b"$5\r\nkey:%d\r\n" % key if key < 10 else b"$6\r\nkey:%d\r\n" % key for key in range(24))
            reader.sendall(b"*25\r\n$4\r\nMGET\r\n" + names)
            eventually(lambda: int(client.info("memory")["pinned_bytes"]) > 0, "values are pinned")
            os.truncate(path, 0)
            got = b""
            while more := reader.recv(1 << 20):
                got += more
            bodies = got.split(b"\r\n", 1)[1]
            assert bodies.count(b"\0") == 0, "no zeros that nobody stored"
        assert client.ping() and int(client.info("persistence")["lost_items"]) > 0


@pytest.mark.parametrize("snapshot", [False, True], ids=["alone", "with a snapshot"])
@pytest.mark.parametrize("asked", ["signal", "client"])
def test_a_stop_looks_for_losses_first(serve: Callable[..., Store], tmp_path: pathlib.Path, snapshot: bool, asked: str) -> None:
    """The store is stopped before it can have looked: a restart takes up its file, without a value of zeros."""
    path = tmp_path / "dax"
    flags = ["--tier", "dram=4MiB", "--tier", f"dax:{path}=32MiB"]
    flags += ["--snapshot", str(tmp_path / "snapshot")] if snapshot else []
    store = serve(*flags)
    with connect(store) as client, store.connect() as last:
        for key in range(1000):
            client.set(f"key:{key}", value(key, 1))
        assert store.snapshot()["engine"]["tiers"][1]["items"] > 100
        store.process.send_signal(signal.SIGSTOP)
        os.truncate(path, 9 * MIB)
        os.truncate(path, FILE_BYTES)
        if asked == "client":
            last.sendall(b"SHUTDOWN\r\n")
        else:
            store.process.send_signal(signal.SIGTERM)
        store.process.send_signal(signal.SIGCONT)
        assert store.process.wait(PATIENCE_S) == 0
    assert "a part of the tier's file or device was lost" in store.log()
    store = serve(*flags)
    with connect(store) as client:
        assert int(client.info("persistence")["kept_in_place_items"]) == 0
        assert all(client.get(f"key:{key}") in (None, value(key, 1)) for key in range(1000))
        assert all(name.startswith(b"key:") for name in scan(client, 1000))
        assert client.set("new", "value")
