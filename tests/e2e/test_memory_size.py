"""Memory that changes while the store runs: CONFIG SET maxmemory, and the control group's limit."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator

import pytest
import redis

from store import MIB, PATIENCE_S, SHARDS, Store, eventually

GROUPS = pathlib.Path("/sys/fs/cgroup/memory")
TIERS = ("--tier", f"dram={64 * SHARDS}MiB", "--tier", f"emulated={32 * SHARDS}MiB")


def fill(client: redis.Redis, total: int) -> None:
    value = os.urandom(4000)
    pipe = client.pipeline(transaction=False)
    for number in range(total // 4000):
        pipe.set(f"k{number}", value)
        if number % 500 == 499:
            pipe.execute()
    pipe.execute()


def is_within(store: Store, mib: list[int]) -> bool:
    """Each tier has this capacity, to what is on its way from one shard to the other, and holds no more."""
    tiers = store.snapshot()["engine"]["tiers"]
    off = [abs(tier["capacity_bytes"] - size * SHARDS * MIB) for tier, size in zip(tiers, mib, strict=True)]
    sizes = [bytes_off <= (MIB if SHARDS == 1 else size * MIB // 8) for bytes_off, size in zip(off, mib, strict=True)]
    return all(sizes) and all(tier["used_bytes"] <= tier["capacity_bytes"] for tier in tiers)


def test_maxmemory_moves_the_memory_tiers_in_proportion(serve: Callable[..., Store]) -> None:
    store = serve(*TIERS)
    with redis.Redis(port=store.port, socket_timeout=PATIENCE_S, decode_responses=True) as client:
        assert client.config_get("maxmemory") == {"maxmemory": str(96 * SHARDS * MIB)}
        fill(client, 100 * SHARDS * MIB)
        before = store.memory_bytes("VmRSS")
        assert client.config_set("maxmemory", 48 * SHARDS * MIB)
        # No request is needed for it.
        eventually(lambda: is_within(store, [32, 16]), "the tiers have shrunk")
        eventually(lambda: before - store.memory_bytes("VmRSS") > 30 * SHARDS * MIB, "their memory went back to the system")
        assert client.config_get("maxmemory") == {"maxmemory": str(48 * SHARDS * MIB)}
        fill(client, 100 * SHARDS * MIB)
        assert is_within(store, [32, 16]) and client.dbsize() > 5000 * SHARDS
        for wrong in ("1", str(97 * SHARDS * MIB)):
            with pytest.raises(redis.ResponseError, match="what they were given at the start"):
                client.config_set("maxmemory", wrong)
        assert client.config_set("maxmemory", "0"), "that is all there is"
        eventually(lambda: is_within(store, [64, 32]), "the tiers have grown")
        fill(client, 100 * SHARDS * MIB)
        assert client.dbsize() > 15_000 * SHARDS


def test_maxmemory_of_the_file_holds_at_the_start(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "store.toml"
    tier = f'[[tier]]\nname = "dram"\nkind = "dram"\ncapacity = "{64 * SHARDS}MiB"\n'
    path.write_text(f'[config]\nmaxmemory = "{32 * SHARDS}MiB"\n{tier}')
    store = serve("--config", str(path))
    eventually(lambda: is_within(store, [32]), "the tier has shrunk")


@pytest.mark.skipif(SHARDS > 1, reason="a dax tier serves one shard")
def test_a_dax_tier_says_why_its_size_stays(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    store = serve("--tier", "dram=64MiB", "--tier", f"dax:{tmp_path / 'region'}=64MiB")
    with redis.Redis(port=store.port) as client:
        with pytest.raises(redis.ResponseError, match="a tier of kind dax keeps the size of its file"):
            client.config_set("maxmemory", 48 * MIB)


@pytest.fixture
def group() -> Iterator[pathlib.Path]:
    """A control group of version 1 for memory, where one can be made."""
    path = GROUPS / f"tiermem-test-{os.getpid()}"
    try:
        path.mkdir()
        (path / "memory.limit_in_bytes").write_text(str(1024 * MIB))
    except OSError as error:
        pytest.skip(f"no control group for memory can be made here: {error}")
    yield path
    with contextlib.suppress(OSError):
        for process in (path / "cgroup.procs").read_text().split():
            (GROUPS / "cgroup.procs").write_text(process)
        path.rmdir()


def test_a_limit_that_is_lowered_shrinks_the_tiers(serve: Callable[..., Store], group: pathlib.Path) -> None:
    store = serve("--tier", f"dram={160 * SHARDS}MiB", "--tier", f"emulated={160 * SHARDS}MiB")
    (group / "cgroup.procs").write_text(str(store.process.pid))
    beside = 192 * SHARDS
    with redis.Redis(port=store.port, socket_timeout=PATIENCE_S) as client:
        fill(client, 330 * SHARDS * MIB)
        (group / "memory.limit_in_bytes").write_text(str((beside + 160 * SHARDS) * MIB))
        eventually(lambda: is_within(store, [80, 80]), "the tiers have shrunk")
        fill(client, 330 * SHARDS * MIB)
        assert store.process.poll() is None and client.dbsize() > 10_000 * SHARDS
        assert "the memory limit was lowered: the memory tiers shrink" in store.log()
        (group / "memory.limit_in_bytes").write_text(str(1024 * MIB))
        eventually(lambda: is_within(store, [160, 160]), "the tiers have grown again")
    store.close()
