"""Several shards keep the promises of one: replies, their order, and transactions are as in a real Redis, wherever keys lie and
clients are at home."""

from __future__ import annotations

import random
import re
import socket
from collections.abc import Callable

import pytest

from peer import Redis
from sharding import Sharded
from store import MIB, Store, eventually
from wire import Reply, Wire, encode

Request = list[str]


# How many shards the stores of these tests have.
SHARD_COUNTS = (2, 3, 5)

@pytest.fixture
def two(serve: Callable[..., Store]) -> Sharded:
    """A store of its own, for a test that leaves traces."""
    return Sharded(serve("--shards", "2"), 2)


# Random dialogues.

NAMES = [f"k{number}" for number in range(10)] + [f"{{t}}{number}" for number in range(3)]
HASHES = [f"h{number}" for number in range(4)]
# Far enough that no test comes near.
LATER_MS = 4_000_000_000_000


def random_request(rng: random.Random) -> Request:
    name, other = rng.choice(NAMES), rng.choice(NAMES)
    any_key = rng.choice(NAMES + HASHES)
    several = rng.choices(NAMES + HASHES, k=rng.randint(1, 7))
    number = str(rng.randint(-20, 20))
    field = f"f{rng.randint(0, 3)}"
    words = [
        ["GET", any_key], ["SET", any_key, number], ["SET", name, number, rng.choice(["NX", "XX"])],
        ["SET", name, "x" * rng.randint(0, 2000)], ["SET", name, number, "GET"], ["GETSET", name, number], ["GETDEL", name],
        ["INCR", name], ["INCRBY", name, number], ["DECR", name], ["APPEND", name, number], ["STRLEN", any_key],
        ["SETRANGE", name, str(rng.randint(0, 40)), "range"], ["GETRANGE", name, "-5", "-1"],
        ["MGET", *several], ["MGET", *several], ["DEL", *several[:3]], ["UNLINK", *several[:2]], ["EXISTS", *several],
        ["TOUCH", *several], ["MSET", *(word for key in several for word in (key, number))], ["MSET", name, "1", other],
        ["MSETNX", "{t}0", number, "{t}1", number], ["RENAME", "{t}0", "{t}2"], ["COPY", "{t}1", "{t}0", "REPLACE"],
        ["HSET", rng.choice(HASHES), field, number], ["HSET", any_key, field, number], ["HGET", rng.choice(HASHES), field],
        ["HDEL", rng.choice(HASHES), field], ["HINCRBY", rng.choice(HASHES), field, number], ["HGETALL", rng.choice(HASHES)],
        ["HLEN", any_key], ["TYPE", any_key], ["PEXPIREAT", any_key, str(LATER_MS + rng.randint(0, 9))],
        ["PEXPIRETIME", any_key], ["PERSIST", any_key], ["PEXPIRE", any_key, "-1"],
        ["DBSIZE"], ["DBSIZE"], ["KEYS", "*"], ["KEYS", "k[1-5]"], ["PING"], ["ECHO", number], ["GET"], ["NOSUCH", name],
        ["SELECT", str(rng.randint(0, 2))], ["SCAN", "x"],
    ]  # fmt: skip
    if rng.random() < 0.01:
        return rng.choice([["FLUSHDB"], ["FLUSHALL"]])
    return rng.choice(words)


def comparable(request: Request, reply: Reply) -> Reply:
    """The reply, without an order that means nothing."""
    if request[0] == "KEYS" and isinstance(reply, list):
        return sorted(reply)
    if request[0] == "HGETALL" and isinstance(reply, list):
        return sorted(zip(reply[::2], reply[1::2], strict=True))
    return reply


def all_by_scan(wire: Wire, count: str) -> set[bytes]:
    found: set[bytes] = set()
    cursor = b"0"
    while True:
        cursor, some = wire.ask("SCAN", cursor, "COUNT", count)
        found.update(some)
        if cursor == b"0":
            return found


@pytest.mark.parametrize("seed", range(4))
def test_random_pipelines_are_answered_as_by_redis(sharded: Sharded, peer: Redis, seed: int) -> None:
    rng = random.Random(seed)
    ours = [sharded.wire() for _ in range(2 * sharded.count)]
    theirs = [Wire(peer.connect) for _ in ours]
    theirs[0].ask("FLUSHALL")
    for wires in zip(ours, theirs, strict=True):
        version = rng.choice("23")
        assert all(wire.ask("HELLO", version) for wire in wires)
    for _ in range(60):
        which = rng.randrange(len(ours))
        pipeline = [random_request(rng) for _ in range(rng.choice([1, 1, 3, 30, 200]))]
        got, wanted = ours[which].ask_all(pipeline), theirs[which].ask_all(pipeline)
        for number, (request, our, their) in enumerate(zip(pipeline, got, wanted, strict=True)):
            assert comparable(request, our) == comparable(request, their), (
                seed,
                number,
                pipeline[: number + 1],
            )
    for our, their in zip(ours, theirs, strict=True):
        keys = their.ask("KEYS", "*")
        assert isinstance(keys, list)
        assert all_by_scan(our, rng.choice(["1", "10", "1000"])) == set(keys)
        assert our.ask("DBSIZE") == len(keys)
        found = our.ask("RANDOMKEY")
        assert found in (keys or [None, b"_"])
    for wire in ours + theirs:
        wire.close()


def test_a_random_key_may_be_any(sharded: Sharded) -> None:
    keys = sharded.spread()
    for home in sharded.homes():
        home.ask_all([["SET", key, "1"] for key in keys])
        # That one of 5 is missed in 400 tries has a chance of 1e-38.
        assert set(home.ask_all([["RANDOMKEY"]] * 400)) == {key.encode() for key in keys}


# Order.


def test_deep_pipelines_with_large_values_keep_their_order(sharded: Sharded) -> None:
    sizes = [0, 10, 100_000, 1_000_000, 6_000_000]
    keys = {f"{tag}:{size}": b"%d" % (number + 10 * size) for number, tag in enumerate(sharded.tags) for size in sizes}
    values = {key: word.ljust(int(key.split(":")[1]), b".") for key, word in keys.items()}
    setter = sharded.wire()
    for key, value in values.items():
        assert setter.ask("SET", key, value) == b"+OK"
    for seed, home in enumerate(sharded.homes()):
        rng = random.Random(seed)
        large = rng.sample(list(keys), 8)
        small = [key for key in keys if key.endswith((":0", ":10"))]
        pipeline: list[Request] = []
        for number in range(3000):
            pipeline.append(
                rng.choice(
                    [
                        ["GET", rng.choice(small)],
                        ["ECHO", str(number)],
                        ["MGET", *rng.sample(small, 3)],
                    ]
                )
            )
        for key in large:
            pipeline.insert(rng.randrange(len(pipeline)), ["GET", key])
        pipeline.insert(rng.randrange(len(pipeline)), ["MGET", *large[:4]])
        home.send_all(pipeline)
        for number, (name, *words) in enumerate(pipeline):
            expected: Reply = words[0].encode() if name == "ECHO" else [values[key] for key in words]
            assert home.read() == (expected[0] if name == "GET" else expected), (
                seed,
                number,
            )
        assert home.ask("PING") == b"+PONG"


@pytest.mark.parametrize("size", [10_000, 100_000, 8_000_000])
def test_replies_larger_than_the_output_buffer_all_come(sharded: Sharded, size: int) -> None:
    """Whoever stops taking replies because the client is to take some first must go on behind that."""
    setter = sharded.wire()
    value = b"v" * size
    for key in sharded.spread():
        assert setter.ask("SET", key, value) == b"+OK"
    for buffer in ("16384", "1048576"):
        assert setter.ask("CONFIG", "SET", "output-buffer", buffer) == b"+OK"
        for home in sharded.homes():
            for keys in [[key] for key in sharded.spread()] + [sharded.spread()]:
                times = 4 if size > MIB else 40
                assert home.ask_all([["GET", key] for key in keys] * times) == [value] * times * len(keys)
            home.close()


def test_large_values_go_to_every_shard(sharded: Sharded) -> None:
    for home in sharded.homes():
        for key in sharded.spread():
            value = random.Random(key).randbytes(5_000_000)
            assert home.ask_all([["SET", key, value], ["STRLEN", key], ["GET", key]]) == [b"+OK", len(value), value]


def test_clients_that_ask_for_figures_at_once_are_all_answered(
    sharded: Sharded,
) -> None:
    wires = [sharded.wire() for _ in range(6)]
    for _ in range(200):
        for wire in wires:
            wire.send_all(
                [
                    ["INFO", "clients"],
                    ["GET", sharded.tags[0]],
                    ["GET", sharded.tags[1]],
                    ["RESET"],
                ]
            )
        for wire in wires:
            replies = [wire.read() for _ in range(4)]
            assert b"# Clients" in bytes(replies[0]) and replies[1:] == [
                None,
                None,
                b"+RESET",
            ]


def test_an_error_of_the_protocol_comes_behind_earlier_replies(
    sharded: Sharded,
) -> None:
    for home in sharded.homes():
        for key in sharded.spread():
            other = sharded.wire()
            other.socket.sendall(encode("SET", key, "1") + encode("GET", key) + b"*1\r\n$abc\r\n")
            assert (other.read(), other.read()) == (b"+OK", b"1")
            assert bytes(other.read()).startswith(b"-ERR Protocol error")
            assert other.is_closed()
        home.close()


@pytest.mark.parametrize("depth", [1, 20, 2000])
def test_a_client_that_ends_its_side_gets_all_replies(sharded: Sharded, peer: Redis, depth: int) -> None:
    def replies(connect: Callable[[], socket.socket]) -> bytes:
        with connect() as connection:
            pipeline = [request for n in range(depth) for request in (("SET", f"k{n}", f"v{n}"), ("GET", f"k{n}"))]
            connection.sendall(b"".join(encode(*request) for request in [*pipeline, ("MGET", "k0", "k1", "k2")]))
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))

    with peer.client() as client:
        client.flushall()
    for _ in range(sharded.count):
        assert replies(sharded.connect) == replies(peer.connect)
        sharded.clear()
        with peer.client() as client:
            client.flushall()


def test_quit_comes_behind_what_was_asked(sharded: Sharded) -> None:
    for _ in range(sharded.count):
        wire = sharded.wire()
        keys = sharded.spread()
        wire.send_all(
            [
                ["MSET", *(word for key in keys for word in (key, key))],
                ["MGET", *keys],
                ["QUIT"],
                ["PING"],
            ]
        )
        assert [wire.read() for _ in range(3)] == [
            b"+OK",
            [key.encode() for key in keys],
            b"+OK",
        ]
        assert wire.is_closed()


def test_clients_that_leave_amid_a_pipeline_leave_nothing_behind(
    sharded: Sharded,
) -> None:
    setter = sharded.wire()

    def listed() -> int:
        """Clients by CLIENT LIST; INFO, asked next while nobody comes any more, knows of no other."""
        count = bytes(setter.ask("CLIENT", "LIST")).count(b"\n")
        found = re.search(rb"connected_clients:(\d+)\r\n", bytes(setter.ask("INFO", "clients")))
        assert found and 1 <= int(found[1]) <= count, (found, count)
        return int(found[1])

    # Whoever was here before may still be on the way out.
    eventually(lambda: listed() == 1, "there is nobody else")
    for key in sharded.spread():
        setter.ask("SET", key, b"x" * 1_000_000)
    for number in range(20 * sharded.count):
        leaver = sharded.wire()
        leaver.send_all([["GET", key] for key in sharded.spread()] * (number % 7 + 1) + [["WATCH", *sharded.spread()]])
        if number % 2:
            # So the last one, and with it all before, has been accepted when it leaves.
            leaver.file.read(100)
        leaver.close()
    eventually(lambda: listed() == 1, "all have left")
    assert bytes(setter.ask("CLIENT", "LIST")).count(b"\n") == 1
    assert setter.ask("MGET", *sharded.spread("none")) == [None] * sharded.count


def test_a_client_that_does_not_read_costs_little(two: Sharded) -> None:
    setter = two.wire()
    for key in two.spread():
        setter.ask("SET", key, b"x" * MIB)
    before = two.store.memory_bytes("VmRSS")
    first, second = two.spread()
    for order in ((first, second), (second, first)):
        for home in two.homes():
            pipeline = [["GET", order[0]]] * 3 + [["GET", order[1]]] * 700 + [["MGET", *order]] * 300
            home.send_all(pipeline)
            # It is there, and others are served; but its replies are made as it takes them.
            for _ in range(50):
                assert setter.ask("MGET", *two.spread("none")) == [None, None]
            grown = two.store.memory_bytes("VmHWM") - before
            assert grown < 128 * MIB, f"{grown / MIB:.0f} MiB"
            for request in pipeline:
                expected: Reply = b"x" * MIB
                assert home.read() == ([expected, expected] if request[0] == "MGET" else expected)
    grown = two.store.memory_bytes("VmHWM") - before
    assert grown < 128 * MIB, f"{grown / MIB:.0f} MiB"


def test_requests_that_are_held_up_elsewhere_cost_little(two: Sharded) -> None:
    setter = two.wire()
    before = two.store.memory_bytes("VmRSS")
    assert setter.ask("CLIENT", "PAUSE", "100000", "WRITE") == b"+OK"
    senders = [two.wire() for _ in range(60)]
    for number, sender in enumerate(senders):
        sender.socket.setblocking(False)
        request = memoryview(encode("SET", two.tags[number % 2], b"x" * 8_000_000))
        while request:
            try:
                request = request[sender.socket.send(request) :]
            except BlockingIOError:
                break
    for _ in range(200):
        assert setter.ask("GET", "none") is None
    grown = two.store.memory_bytes("VmRSS") - before
    # 64 MiB for unfinished requests, and one of the largest in each shard.
    assert grown < 64 * MIB + 2 * 16 * MIB + 64 * MIB, f"{grown / MIB:.0f} MiB"
    for sender in senders:
        sender.close()
    assert setter.ask("CLIENT", "UNPAUSE") == b"+OK"
    assert setter.ask("PING") == b"+PONG"
