"""Hashes through redis-py, reply by reply beside a real redis-server."""

from __future__ import annotations

import pathlib
import random
import time
from collections.abc import Iterator

import pytest
import redis

from peer import Redis
from store import PATIENCE_S, Store, eventually


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def client(store: Store, request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    with redis.Redis(port=store.port, protocol=request.param, socket_timeout=PATIENCE_S) as client:
        yield client


def step(noise: random.Random) -> tuple:
    """A command of the family, with arguments that are sometimes wrong."""
    key = noise.choice([b"h", b"h", b"g", b"string", b"nothing"])

    def field() -> bytes:
        return b"f%d" % noise.randrange(noise.choice([8, 300]))

    value = noise.choice([b"1", b"-7", b"2.5", b"", b"text", noise.randbytes(noise.randrange(90))])
    number = noise.choice([b"1", b"-3", b"9223372036854775807", b"1.5", b"x", b"1e3"])
    return noise.choice([
        ("HSET", key, field(), value),
        ("HSET", key, field(), value, field(), value, field(), b"3"),
        ("HSETNX", key, field(), value),
        ("HMSET", key, field(), value, field(), b"4"),
        ("HGET", key, field()),
        ("HMGET", key, field(), field(), field()),
        ("HGETALL", key),
        ("HKEYS", key),
        ("HVALS", key),
        ("HDEL", key, field()),
        ("HDEL", key, field(), field(), field()),
        ("HLEN", key),
        ("HEXISTS", key, field()),
        ("HSTRLEN", key, field()),
        ("HINCRBY", key, field(), number),
        ("HINCRBYFLOAT", key, field(), number),
        ("HRANDFIELD", key, 100_000, "WITHVALUES"),
        ("HSCAN", key, 0, "COUNT", 100_000),
        ("HSCAN", key, 0, "MATCH", "*1*", "COUNT", 100_000),
        ("TYPE", key),
        ("SET", b"string", value),
        ("GET", key),
        ("DEL", noise.choice([b"g", b"nothing"])),
    ])


def ordered(reply: object) -> object:
    """Large hashes have an order of their own on each server."""
    is_page = isinstance(reply, (list, tuple)) and len(reply) == 2 and isinstance(reply[1], (list, dict))
    if is_page and not isinstance(reply[0], list):
        return [reply[0], ordered(reply[1])]
    if isinstance(reply, list):
        return sorted(map(str, reply))
    return reply


@pytest.mark.parametrize("seed", range(3))
def test_replies_are_those_of_redis(client: redis.Redis, peer: Redis, seed: int) -> None:
    protocol = client.connection_pool.connection_kwargs["protocol"]
    noise = random.Random(seed)
    with peer.client(protocol=protocol) as other:
        other.flushall()
        for number in range(3000):
            command = step(noise)
            answers = []
            for server in (client, other):
                try:
                    answers.append(ordered(server.execute_command(*command)))
                except redis.ResponseError as error:
                    answers.append(str(error))
            assert answers[0] == answers[1], (seed, number, command)


def test_a_scan_of_a_large_hash_sees_what_stays(client: redis.Redis) -> None:
    stays = {f"stay:{n}": "x" for n in range(3000)}
    client.hset("h", mapping=stays)
    seen = set()
    for number, (field, _) in enumerate(client.hscan_iter("h", count=50)):
        seen.add(field.decode())
        if number % 5 == 0:
            client.hset("h", mapping={f"new:{number}:{n}": "y" * 30 for n in range(20)})
            client.hdel("h", *[f"new:{number - 50}:{n}" for n in range(20)])
    assert seen >= set(stays)
    assert client.hscan("h", 0, match="stay:1", count=100_000)[1] == {b"stay:1": b"x"}
    # The next cursor and names alone.
    assert all(isinstance(field, bytes) for field in client.hscan_iter("h", no_values=True))


def test_random_fields(client: redis.Redis) -> None:
    fields = {f"f{n}": str(n) for n in range(1000)}
    client.hset("h", mapping=fields)
    few = client.hrandfield("h", 20)
    assert len(set(few)) == 20 and {field.decode() for field in few} <= set(fields)
    assert len(set(client.hrandfield("h", 900))) == 900
    assert len(client.hrandfield("h", -2000)) == 2000
    assert client.hrandfield("h").decode() in fields
    assert client.hrandfield("nothing") is None


def test_fields_expire(client: redis.Redis) -> None:
    client.hset("h", mapping={"a": 1, "b": 2, "c": 3})
    assert client.hpexpire("h", 30, "a") == [1]
    assert client.hexpire("h", 1000, "b", "nothing") == [1, -2]
    assert client.hexpire("h", 500, "b", gt=True) == [0]
    assert 900 < client.httl("h", "b")[0] <= 1000
    assert client.hpttl("h", "c", "nothing") == [-1, -2]
    assert abs(client.hexpiretime("h", "b")[0] - time.time() - 1000) < 100
    eventually(lambda: client.hget("h", "a") is None, "a field expires")
    assert client.hlen("h") == 2
    assert client.hgetall("h") == {b"b": b"2", b"c": b"3"}
    assert client.hpersist("h", "b", "c", "a") == [1, -1, -2]
    assert client.hexpireat("h", 1, "b", "c") == [2, 2]
    assert client.exists("h") == 0
    client.hset("h", "a", 1)
    client.hpexpire("h", 20, "a")
    eventually(lambda: client.hlen("h") == 0, "the last field expires")
    assert client.exists("h") == 0


def test_fields_expire_without_being_touched(serve) -> None:
    store = serve("--tier", "dram=64MiB")
    with redis.Redis(port=store.port) as client, redis.Redis(port=store.port).pubsub() as events:
        client.config_set("notify-keyspace-events", "KEA")
        events.psubscribe("__keyspace@0__:h7")
        client.hset("stays", mapping={"a": 1, "b": 2})
        client.hpexpire("stays", 100, "a")
        pipeline = client.pipeline(transaction=False)
        for number in range(5000):
            pipeline.hset(f"h{number}", "f", "v")
            pipeline.hpexpire(f"h{number}", 100, "f")
        pipeline.execute()
        eventually(lambda: client.dbsize() == 1, "hashes go with their last field")
        assert client.hgetall("stays") == {b"b": b"2"}
        heard = []
        eventually(lambda: b"del" in heard or heard.append((events.get_message(timeout=1) or {}).get("data")), "the hash is gone")
        assert [event for event in heard if isinstance(event, bytes)] == [b"hset", b"hexpire", b"hexpired", b"del"]


def test_a_hash_moves_between_tiers_as_it_is(serve) -> None:
    """More than fits the fast tier: hashes go down, are changed there, and come up again."""
    store = serve("--tier", "dram=6MiB", "--tier", "emulated=96MiB")
    noise = random.Random(3)
    hashes: dict[str, dict[bytes, bytes]] = {}
    with redis.Redis(port=store.port, socket_timeout=PATIENCE_S) as client:
        for _ in range(12_000):
            key = f"h{noise.randrange(1500)}"
            fields = {b"f%d" % noise.randrange(40): noise.randbytes(noise.randrange(600)) for _ in range(3)}
            client.hset(key, mapping=fields)
            hashes.setdefault(key, {}).update(fields)
        for key, fields in hashes.items():
            assert client.hgetall(key) == fields
        tiers = store.snapshot()["engine"]["tiers"]
        assert tiers[1]["items"] > 100 and tiers[0]["demotions"] > 0, tiers


def test_a_pipeline_of_hashes(client: redis.Redis, tmp_path: pathlib.Path) -> None:
    with client.pipeline(transaction=False) as pipeline:
        for n in range(4000):
            pipeline.hset(f"k{n % 50}", f"f{n}", n).hincrby(f"k{n % 50}", "count", 1)
        pipeline.execute()
    assert client.dbsize() == 50
    assert all(client.hlen(f"k{n}") == 81 and client.hget(f"k{n}", "count") == b"80" for n in range(50))
