"""More machines: several stores behind twemproxy, and shared out by the client."""

from __future__ import annotations

import pathlib
import socket
import subprocess
from collections.abc import Callable, Iterator

import pytest
import redis

from programs import tool
from store import PATIENCE_S, Store, eventually

KEYS = 2000


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture
def stores(serve: Callable[..., Store]) -> list[Store]:
    return [serve("--tier", "dram=32MiB") for _ in range(2)]


@pytest.fixture
def proxy(stores: list[Store], tmp_path: pathlib.Path) -> Iterator[redis.Redis]:
    program = tool("nutcracker")
    port = free_port()
    servers = "".join(f"    - 127.0.0.1:{store.port}:1 store{number}\n" for number, store in enumerate(stores))
    configuration = tmp_path / "nutcracker.yml"
    # As in docs/store.md, but for the addresses, and more patient: a busy machine may keep a store from answering for seconds.
    configuration.write_text(
        "tiermem:\n"
        f"  listen: 127.0.0.1:{port}\n"
        "  redis: true\n"
        "  hash: fnv1a_64\n"
        "  distribution: ketama\n"
        "  auto_eject_hosts: false\n"
        "  timeout: 60000\n"
        f"  servers:\n{servers}"
    )
    log = (tmp_path / "nutcracker.log").open("wb")
    stats = str(free_port())
    with log, subprocess.Popen([program, "-c", str(configuration), "-s", stats], stderr=log) as process:
        # It closes connections that say what it does not know, such as who they are.
        client = redis.Redis(port=port, socket_timeout=PATIENCE_S, lib_name=None, lib_version=None)
        try:

            def listens() -> bool:
                assert process.poll() is None, (tmp_path / "nutcracker.log").read_text()
                with socket.socket() as probe:
                    return probe.connect_ex(("127.0.0.1", port)) == 0

            eventually(listens, "twemproxy listens")
            yield client
        finally:
            client.close()
            process.terminate()
            process.wait(PATIENCE_S)


def test_behind_twemproxy(proxy: redis.Redis, stores: list[Store]) -> None:
    keys = [f"key:{number}" for number in range(KEYS)]
    for key in keys:
        proxy.set(key, f"value of {key}")
    assert proxy.mget(keys) == [f"value of {key}".encode() for key in keys]
    assert proxy.delete(*keys[:10]) == 10
    assert proxy.incrby("count", 5) == 5
    assert proxy.expire("count", 100) and 0 < proxy.ttl("count") <= 100
    with proxy.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.get(key)
        assert sum(value is not None for value in pipeline.execute()) == KEYS - 10
    sizes = [redis.Redis(port=store.port).dbsize() for store in stores]
    # Its ring is not even, but no store is left out.
    assert sum(sizes) == KEYS - 10 + 1 and min(sizes) > KEYS // 5, sizes


def test_shared_out_by_the_client(stores: list[Store]) -> None:
    """What docs/store.md shows: the client chooses the store by the key."""
    clients = [redis.Redis(port=store.port, decode_responses=True) for store in stores]

    def store_of(key: str) -> redis.Redis:
        return clients[redis.crc.key_slot(key.encode()) * len(clients) // redis.crc.REDIS_CLUSTER_HASH_SLOTS]

    for number in range(KEYS):
        store_of(f"key:{number}").set(f"key:{number}", number)
    for number in range(KEYS):
        assert store_of(f"key:{number}").get(f"key:{number}") == str(number)
    sizes = [client.dbsize() for client in clients]
    assert sum(sizes) == KEYS and min(sizes) > KEYS // 3, sizes
    for client in clients:
        client.close()
