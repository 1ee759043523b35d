"""Memory goes to the shard whose items leave youngest, and all shards together never have more than the tiers."""

from __future__ import annotations

from collections.abc import Callable

import redis

from store import Store, eventually

MIB = 1 << 20
VALUE = b"v" * 1000


def shard_figures(client: redis.Redis) -> list[dict]:
    figures = client.info("shards")
    return [figures[f"shard{number}"] for number in range(figures["shards"])]


def capacities(client: redis.Redis, tier: int) -> list[int]:
    return [figures[f"tier{tier}_capacity_bytes"] for figures in shard_figures(client)]


def settled_capacities(client: redis.Redis) -> list[list[int]]:
    """Of each tier. Shards tell one after the other, and what moves meanwhile would be told twice: so nothing may have moved."""
    before = None
    while before != (now := [capacities(client, tier) for tier in (0, 1)]):
        before = now
    return now


def test_memory_goes_where_it_is_needed(serve: Callable[..., Store]) -> None:
    store = serve("--shards", "2", "--tier", "dram=16MiB", "--tier", "emulated=16MiB")
    with redis.Redis(port=store.port) as client:
        equal = [8 * MIB, 8 * MIB]
        assert capacities(client, 0) == capacities(client, 1) == equal

        def ask(tag: str, keys: range) -> None:
            """Look-aside, so that what was thrown out comes again."""
            names = [f"{{{tag}}}{number}" for number in keys]
            found = client.mget(names)
            pipe = client.pipeline(transaction=False)
            for name, value in zip(names, found):
                if value is None:
                    pipe.set(name, VALUE)
            pipe.execute()

        def keys_of(number: int) -> int:
            return shard_figures(client)[number]["keys"]

        # A tag whose keys lie in the second shard, and one for the first.
        tags = {}
        for number in range(64):
            client.set(f"{{{number}}}", b"")
            eventually(
                lambda: sum(keys_of(shard) for shard in (0, 1)) == 1,
                "the key is counted",
            )
            tags.setdefault(keys_of(1), str(number))
            client.flushall()
            eventually(
                lambda: sum(keys_of(shard) for shard in (0, 1)) == 0,
                "nothing is counted",
            )
            if len(tags) == 2:
                break

        def grown() -> bool:
            # 30 MB go round in the second shard, which has 16 of 32.
            for start in range(0, 30_000, 1000):
                ask(tags[1], range(start, start + 1000))
                ask(tags[0], range(10))
            both = settled_capacities(client)
            assert all(sum(tier) <= 16 * MIB for tier in both), both
            return all(tier[1] >= 9 * MIB for tier in both)

        eventually(grown, "the second shard gets memory")
        for tier in (0, 1):
            assert (
                sum(
                    figures[f"tier{tier}_used_bytes"]
                    for figures in shard_figures(client)
                )
                <= 16 * MIB
            )
