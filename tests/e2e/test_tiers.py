"""Tiers of other memory: a NUMA node, and a file or device that is mapped."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest
import redis

from sharding import one_shard
from store import MIB, Store, tiermem


def node_numbers() -> list[str]:
    path = pathlib.Path("/sys/devices/system/node/has_memory")
    return path.read_text().replace("-", ",").strip().split(",") if path.exists() else []


@pytest.fixture(params=[pytest.param("dax", marks=one_shard), "numa"])
def slow_tier(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> str:
    if request.param == "dax":
        return f"dax:{tmp_path / 'region'}=32MiB"
    nodes = node_numbers()
    if not nodes:
        pytest.skip("this kernel shows no NUMA nodes")
    return f"numa:{nodes[0]}=32MiB"


def test_items_live_there(serve: Callable[..., Store], slow_tier: str) -> None:
    store = serve("--tier", "dram=8MiB", "--tier", slow_tier)
    values = {f"key:{number}": f"{number}:".encode() * 300 for number in range(10_000)}
    with redis.Redis(port=store.port) as client:
        with client.pipeline(transaction=False) as pipeline:
            for key, value in values.items():
                pipeline.set(key, value)
            pipeline.execute()
        tiers = client.info("tiers")
        assert tiers["tier1"]["kind"] == slow_tier.split(":")[0]
        assert tiers["tier1"]["items"] > 1000
        assert tiers["tier1"]["used_bytes"] <= tiers["tier1"]["capacity_bytes"] == 32 * MIB
        found = client.mget(values)
    assert sum(value is not None for value in found) > 8000
    assert all(value in (None, wanted) for value, wanted in zip(found, values.values()))


@one_shard
def test_a_file_is_for_one_store(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "region"

    def refusal(size: str) -> str:
        done = tiermem("store", "serve", "--tier", "dram=8MiB", "--tier", f"dax:{path}={size}", "--listen", "127.0.0.1:0")
        assert done.returncode == 1, done
        return done.stderr

    store = serve("--tier", "dram=8MiB", "--tier", f"dax:{path}=16MiB")
    assert "in use by another process" in refusal("16MiB")
    store.close()
    assert "a tier of 16MiB, and this one is to have 32MiB" in refusal("32MiB")
    path.write_text("somebody's thesis")
    assert "--reset" in refusal("16MiB")
    assert path.read_text() == "somebody's thesis"
    serve("--tier", "dram=8MiB", "--tier", f"dax:{path}=16MiB", "--reset")
    assert path.stat().st_size == 16 * MIB


def test_nodes_that_are_not_there_are_told_of() -> None:
    if not node_numbers():
        pytest.skip("this kernel shows no NUMA nodes")
    done = tiermem("store", "serve", "--tier", "dram=8MiB", "--tier", "numa:999=8MiB", "--listen", "127.0.0.1:0")
    assert done.returncode == 1
    assert f"there are {node_numbers()[0]} (" in done.stderr
