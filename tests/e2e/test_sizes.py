"""Sizes that change: a store that is full of small values keeps large ones that are used, and gives their memory back."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest
import redis

from sharding import one_shard
from store import Store

SMALL, LARGE = 1000, 400_000
CONFIG = {
    "samples": '[policy]\norder = "klru:10"\n',
    # One tenant has all keys: its own sizes change.
    "tenants": '[tenants]\nby = "prefix"\n[[tenant]]\nname = "other"\n',
}


def fill(client: redis.Redis, count: int) -> None:
    for first in range(0, count, 1000):
        with client.pipeline(transaction=False) as pipeline:
            for number in range(first, first + 1000):
                pipeline.set(f"small:{number}", bytes(SMALL))
            pipeline.execute()


@one_shard
@pytest.mark.parametrize("kind", ["dram", "samples", "emulated", "flash", "tenants"])
def test_a_full_store_keeps_large_values(serve: Callable[..., Store], tmp_path: pathlib.Path, kind: str) -> None:
    tiers = {
        "emulated": ["--tier", "dram=8MiB", "--tier", "emulated=24MiB"],
        "flash": ["--tier", "dram=32MiB", "--tier", f"flash:{tmp_path / 'flash'}=64MiB"],
    }
    config = tmp_path / "store.toml"
    config.write_text(CONFIG.get(kind, ""))
    store = serve("--config", str(config), *tiers.get(kind, ["--tier", "dram=32MiB"]))
    with redis.Redis(port=store.port) as client:
        fill(client, 50_000)
        for _ in range(3):
            for number in range(30):
                client.set(f"large:{number}", bytes([number]) * LARGE)
            kept = [number for number in range(30) if client.get(f"large:{number}") == bytes([number]) * LARGE]
            assert len(kept) == 30, kept
        # The small ones come back when they are used, and the large ones make room.
        fill(client, 20_000)
        fill(client, 20_000)
        # Beside another tenant, which has its part, fewer fit.
        fewest = 15_000 if kind == "tenants" else 19_000
        assert sum(client.exists(f"small:{number}") for number in range(20_000)) > fewest
