"""redis-py with both protocols."""

from __future__ import annotations

import pathlib
import random
from collections.abc import Callable, Iterator

import pytest
import redis

from store import MIB, PATIENCE_S, Store, eventually


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def client(store: Store, request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    with redis.Redis(port=store.port, protocol=request.param, socket_timeout=PATIENCE_S) as client:
        yield client


def test_strings(client: redis.Redis) -> None:
    assert client.set("a", "1") is True
    assert client.set("a", "2", nx=True) is None
    assert client.set("a", "3", xx=True, get=True) == b"1"
    assert client.get("a") == b"3"
    assert client.incrby("a", 39) == 42
    assert client.incrbyfloat("a", 0.5) == 42.5
    assert client.append("a", "!") == 5
    assert client.strlen("a") == 5
    assert client.getrange("a", 0, 1) == b"42"
    assert client.setrange("a", 0, "24") == 5
    assert client.getset("a", "x") == b"24.5!"
    assert client.getdel("a") == b"x"
    assert client.get("a") is None
    assert client.mset({"b": 1, "c": 2}) is True
    assert client.msetnx({"c": 3, "d": 4}) is False
    assert client.mget("b", "c", "d") == [b"1", b"2", None]
    assert client.exists("b", "c", "d") == 2
    assert client.touch("b", "d") == 1
    assert client.type("b") == b"string"
    assert client.unlink("b", "c") == 2
    assert client.dbsize() == 0


def test_any_bytes(client: redis.Redis) -> None:
    noise = random.Random(1)
    pairs = {noise.randbytes(noise.randint(1, 64)): noise.randbytes(noise.randint(0, 3000)) for _ in range(500)}
    client.mset(pairs)
    assert dict(zip(pairs, client.mget(pairs))) == pairs
    assert set(client.scan_iter()) == set(pairs)


def test_expiry(client: redis.Redis) -> None:
    client.set("a", 1, px=20)
    eventually(lambda: client.get("a") is None, "a key expires")
    client.set("b", 1, ex=1000)
    assert 900 < client.ttl("b") <= 1000
    assert client.expire("b", 2000, gt=True)
    assert not client.expire("b", 1000, gt=True)
    assert client.getex("b", persist=True) == b"1"
    assert client.ttl("b") == -1
    client.setex("c", 1000, "x")
    client.set("c", "y", keepttl=True)
    assert client.pttl("c") > 900_000
    assert client.pexpireat("c", 1)
    assert client.dbsize() == 1


def test_keys_expire_without_being_looked_at(client: redis.Redis) -> None:
    with client.pipeline(transaction=False) as pipeline:
        for n in range(1000):
            pipeline.set(f"k{n}", n, px=30)
        pipeline.execute()
    eventually(lambda: client.dbsize() == 0, "all keys expire")


def test_pipelines(client: redis.Redis) -> None:
    with client.pipeline(transaction=False) as pipeline:
        for n in range(5000):
            pipeline.set(f"k{n}", n).get(f"k{n}")
        pipeline.incr("k1").execute_command("NOSUCH")
        answers = pipeline.execute(raise_on_error=False)
    assert answers[:-2] == [answer for n in range(5000) for answer in (True, str(n).encode())]
    assert answers[-2] == 2
    assert isinstance(answers[-1], redis.ResponseError)
    assert client.dbsize() == 5000


def test_scan(client: redis.Redis) -> None:
    names = {f"item:{n}".encode() for n in range(3000)}
    client.mset(dict.fromkeys(names, "x"))
    client.mset({f"other:{n}": "y" for n in range(3000)})
    assert set(client.scan_iter(match="item:*", count=50)) == names
    # What stays from beginning to end is seen, whatever comes and goes meanwhile.
    seen = set()
    for number, name in enumerate(client.scan_iter(match="item:*", count=10)):
        seen.add(name)
        if number % 10 == 0:
            client.delete(f"other:{number}")
            client.set(f"new:{number}", "z" * number)
    assert seen == names
    assert set(client.scan_iter(_type="string")) >= names
    assert list(client.scan_iter(_type="list")) == []


@pytest.mark.parametrize("protocol", [2, 3])
def test_large_values(store: Store, protocol: int) -> None:
    with redis.Redis(port=store.port, protocol=protocol, socket_timeout=PATIENCE_S) as client:
        value = random.Random(2).randbytes(16 * MIB)
        assert client.set("large", value)
        assert client.get("large") == value
        with pytest.raises(redis.ResponseError, match="longer than the limit of 16777216 bytes"):
            client.set("larger", value + b"!")
        # The connection and what was there before are as they were.
        assert client.strlen("large") == len(value)
        assert client.get("larger") is None
        with pytest.raises(redis.ResponseError):
            client.set("k" * (16 * MIB), "x")
        with pytest.raises(redis.ResponseError):
            client.append("large", "!")
        assert client.ping()


def test_what_blocks_or_scripts_is_refused(client: redis.Redis) -> None:
    for refused in (
        lambda: client.blpop("a", timeout=1),
        lambda: client.eval("return 1", 0),
        lambda: client.lpush("a", 1),
        lambda: client.sadd("a", "b"),
    ):
        with pytest.raises(redis.ResponseError, match="unknown command"):
            refused()
    assert client.ping()


def test_client_and_config(client: redis.Redis) -> None:
    assert client.client_setname("tester")
    assert client.client_getname() in ("tester", b"tester")
    assert client.client_id() > 0
    assert client.config_get("maxmemory-policy")
    assert client.echo("x") == b"x"
    assert client.info("server")["redis_version"]
    assert client.select(0)
    assert client.memory_usage("nothing") is None
    client.set("a", "x" * 1000)
    assert 1000 < client.memory_usage("a") < 2000


def test_a_password(serve: Callable[..., Store]) -> None:
    port = serve("--requirepass", "secret").port
    with redis.Redis(port=port) as nobody, pytest.raises(redis.AuthenticationError):
        nobody.set("a", 1)
    with redis.Redis(port=port, password="wrong") as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    for protocol in (2, 3):
        with redis.Redis(port=port, password="secret", protocol=protocol) as friend:
            assert friend.set("a", 1)
    with redis.Redis(port=port, username="default", password="secret") as friend:
        assert friend.get("a") == b"1"


def test_a_unix_socket(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "socket"
    store = serve("--unix-socket", str(path))
    assert f"redis-cli -s {path}" in store.said
    with redis.Redis(unix_socket_path=str(path)) as local, redis.Redis(port=store.port) as remote:
        local.set("a", "through the socket")
        assert remote.get("a") == b"through the socket"
