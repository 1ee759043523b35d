"""Several shards and what a session remembers: transactions, watched keys, silence, tracking, subscriptions, pauses.

A dialogue's `$0`, `$1` ... stand for a tag in each shard, and its connection `a` is at home in each shard in turn; a real Redis
hears the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from peer import Redis
from sharding import Sharded
from wire import Push, Reply, Wire


# How many shards the stores of these tests have.
SHARD_COUNTS = (2, 3)

# Each line is a connection's name and its requests, one pipeline.
DIALOGUES = {
    "transactions": """
        a MULTI | SET $0 1 | INCR $0 | GET $0x | EXEC | GET $0
        a MULTI | SET $1 text | INCR $1 | EXPIRETIME $1 | EXEC | GET $1
        a MULTI | INCR | GET $0 | EXEC | GET $0
        a MULTI | GET $1 | NOSUCH | EXEC | EXEC | DISCARD
        a MULTI | SET $0 2 | DISCARD | GET $0
        a MULTI | SET $1 2 | RESET | EXEC | GET $1
        a MULTI | MULTI | GET $1 | EXEC
        a MULTI | EXEC
        a MULTI | PING | ECHO x | GET $0 | EXEC
        a MULTI | PING | GET $1 | EXEC
        a MULTI | MSET $1a 1 $1b 2 | MGET $1b $1a $1c | RENAME $1a $1c | EXEC | MGET $0 $1c $1b
        a GET $0 | GET $1 | MULTI | GET $1 | EXEC | GET $0 | MULTI | GET $0 | EXEC | MGET $0 $1
    """,
    "watching": """
        a SET $0 1 | SET $1 1 | WATCH $0
        b SET $0 2
        a MULTI | GET $0 | EXEC | MULTI | GET $0 | EXEC
        a WATCH $1
        b SET $1 2
        a MULTI | GET $1 | EXEC | MULTI | GET $1 | EXEC
        a WATCH $1
        b SET $1 3
        a MULTI | PING | EXEC
        a WATCH $0
        b SET $0 3
        a MULTI | PING | EXEC
        a WATCH $1 | UNWATCH
        b SET $1 4
        a MULTI | GET $1 | EXEC
        a WATCH $1
        b SET $1 5
        a UNWATCH | WATCH $1other | MULTI | GET $1 | EXEC
        a WATCH $0
        b SET $0 5
        a UNWATCH | WATCH $0other | MULTI | GET $0 | EXEC
        a WATCH $0 | WATCH $1
        b SET $1 6
        a MULTI | DISCARD | MULTI | GET $1 | EXEC
        a WATCH $1 | SET $1 7 | MULTI | GET $1 | EXEC
        a WATCH $1
        b EXPIRE $1 100
        a MULTI | EXEC
        a WATCH $1nosuch
        b FLUSHALL
        a MULTI | GET $1 | EXEC
        a SET $1 1 | WATCH $1
        b FLUSHALL
        a MULTI | GET $1 | EXEC
        a WATCH $1 | SELECT 1
        b SELECT 1 | SET $1 1 | SELECT 0
        a SELECT 0 | MULTI | GET $1 | EXEC
        a WATCH $1
        b SET $1 9
        a RESET | MULTI | GET $1 | EXEC
        a WATCH $0 $1 | UNWATCH | MULTI | SET $1 10 | EXEC
        a GET $0 | WATCH $1 | GET $0 | MULTI | GET $1 | EXEC
    """,
    "silence": """
        a CLIENT REPLY SKIP | GET $0 | GET $1
        a CLIENT REPLY SKIP | SET $1 1 | GET $0
        a CLIENT REPLY SKIP | MSET $0 2 $1 2 | GET $1
        a CLIENT REPLY SKIP | DBSIZE | MGET $1 $0
        a CLIENT REPLY SKIP | CLIENT REPLY ON | GET $1 | GET $0
        a CLIENT REPLY OFF | SET $0 3 | SET $1 3 | MSET $0 4 $1 5 | DBSIZE | GET $0 | CLIENT REPLY ON | MGET $0 $1
        a CLIENT REPLY OFF | MULTI | SET $1 6 | GET $1 | EXEC | CLIENT REPLY ON | MGET $0 $1
        a GET $1 | CLIENT REPLY OFF | GET $1 | CLIENT REPLY ON | GET $1
        a CLIENT REPLY OFF | NOSUCH | GET | GET $1 | CLIENT REPLY ON | PING
    """,
    "resets": """
        a SELECT 2 | SET $0 1 | SET $1 1 | RESET | MGET $0 $1 | SELECT 2 | MGET $1 $0 | RESET | RESET | GET $1
        a HELLO 3 | GET $0 | GET $1 | RESET | GET $0 | GET $1
        a CLIENT REPLY OFF | GET $1 | RESET | GET $1
        a WATCH $1 | MULTI | RESET | GET $1
    """,
    "versions": """
        a GET $0 | GET $1 | HELLO 3 | HSET $0h f 1 | HSET $1h f 1 | MGET $1 $0 $1
        a HELLO 3 | HGETALL $0h | HGETALL $1h | HELLO 2 | HGETALL $1h | HGETALL $0h | MGET $0 $1 | HELLO 3 | MGET $0 $1 | GET $1
    """,
}  # fmt: skip


def hold(dialogue: str, tags: list[str], a: Wire, b: Wire) -> list[tuple[str, list[Reply]]]:
    wires = {"a": a, "b": b}
    said = []
    for line in dialogue.strip().splitlines():
        name, _, pipeline = line.strip().partition(" ")
        for number, tag in enumerate(tags):
            pipeline = pipeline.replace(f"${number}", tag)
        requests = [request.split() for request in pipeline.split("|")]
        # Not all of them are answered.
        wires[name].send_all([*requests, ["ECHO", "the end"]])
        replies = list(iter(wires[name].read, b"the end"))
        said.append((line.strip(), [without_greeting(reply) for reply in replies]))
    return said


def without_greeting(reply: Reply) -> Reply:
    """Servers introduce themselves differently."""
    if isinstance(reply, (list, dict)) and "b'server'" in map(str, reply):
        return "greeting"
    return [without_greeting(each) for each in reply] if isinstance(reply, list) else reply


@pytest.mark.parametrize("name", DIALOGUES)
def test_sessions_are_as_in_redis(sharded: Sharded, peer: Redis, name: str) -> None:
    for home in sharded.homes():
        for tags in itertools.permutations(sharded.tags, 2):
            sharded.clear()
            other, their, their_other = (
                sharded.wire(),
                Wire(peer.connect),
                Wire(peer.connect),
            )
            their.ask("FLUSHALL")
            home.ask("RESET")
            ours = hold(DIALOGUES[name], list(tags), home, other)
            theirs = hold(DIALOGUES[name], list(tags), their, their_other)
            for our, their_line in zip(ours, theirs, strict=True):
                assert our == their_line
            for wire in (other, their, their_other):
                wire.close()


def test_transactions_over_shards_are_refused_and_change_nothing(
    sharded: Sharded,
) -> None:
    for home in sharded.homes():
        for first, second in itertools.permutations(sharded.tags, 2):
            home.ask_all([["MULTI"], ["SET", first, "1"], ["SET", second, "1"]])
            assert bytes(home.ask("EXEC")).startswith(b"-EXECABORT")
            home.ask_all([["WATCH", first], ["MULTI"], ["SET", second, "1"]])
            assert bytes(home.ask("EXEC")).startswith(b"-EXECABORT")
            home.ask_all([["WATCH", first, second], ["MULTI"]])
            home.ask_all([["SET", second, "1"]])
            assert bytes(home.ask("EXEC")).startswith(b"-EXECABORT")
            # And nothing is left of it.
            assert home.ask("EXEC") == b"-ERR EXEC without MULTI"
            assert home.ask("MGET", first, second) == [None, None]
            home.ask_all([["MULTI"], ["SET", first, "1"]])
            assert home.ask("EXEC") == [b"+OK"]
            home.ask("DEL", first)


def test_a_transaction_that_is_void_selects_no_database(sharded: Sharded) -> None:
    """A transaction elsewhere may be refused for its SELECT. It never leaves the client in two databases at once."""
    for _ in range(sharded.count):
        for key, other_key in itertools.permutations(sharded.spread(), 2):
            sharded.clear()
            wire, other = sharded.wire(), sharded.wire()
            for db in ("3", "0"):
                wire.ask_all([["SELECT", db], ["MSET", key, db, other_key, db]])
            for spoilt in (True, False):
                wire.ask("WATCH", key)
                if spoilt:
                    other.ask("SET", key, "0")
                done = wire.ask_all([["MULTI"], ["SELECT", "3"], ["GET", key], ["EXEC"]])[-1]
                refused = isinstance(done, bytes) and done.startswith(b"-EXECABORT")
                assert refused or done == (None if spoilt else [b"+OK", b"3"])
                db = b"3" if isinstance(done, list) else b"0"
                assert wire.ask_all([["GET", key], ["GET", other_key], ["MGET", key, other_key]]) == [db, db, [db, db]]
            wire.close()
            other.close()


@pytest.mark.parametrize(
    "request_",
    [
        "CLIENT SETNAME me",
        "CLIENT ID",
        "HELLO 3",
        "SUBSCRIBE c",
        "CLIENT REPLY OFF",
        "CLIENT NO-EVICT ON",
        "INFO server",
    ],
)
def test_a_transaction_elsewhere_does_not_speak_for_the_connection(sharded: Sharded, request_: str) -> None:
    for _ in range(sharded.count):
        for key in sharded.spread():
            wire = sharded.wire()
            wire.ask("SET", key, "1")
            wire.send_all(
                [
                    ["MULTI"],
                    request_.split(),
                    ["INCR", key],
                    ["EXEC"],
                    ["CLIENT", "REPLY", "ON"],
                    ["GET", key],
                ]
            )
            assert [wire.read() for _ in range(3)] == [b"+OK", b"+QUEUED", b"+QUEUED"]
            if "REPLY" in request_:
                # At home it is as in Redis: silence from then on.
                first = wire.read()
                refused = bytes(first).startswith(b"-EXECABORT")
                assert refused or first == b"+OK"
                if refused:
                    assert wire.read() == b"+OK"
            else:
                done = wire.read()
                refused = isinstance(done, bytes) and done.startswith(b"-EXECABORT")
                assert refused or (isinstance(done, list) and done[1] == 2)
                if "SUBSCRIBE" in request_ and not refused:
                    assert bytes(wire.read()).startswith(b"-ERR Can't execute 'client")
                    assert bytes(wire.read()).startswith(b"-ERR Can't execute 'get")
                    wire.close()
                    continue
                assert wire.read() == b"+OK"
            assert wire.read() == (b"1" if refused else b"2")
            wire.close()


def test_messages_do_not_overtake_replies(sharded: Sharded) -> None:
    setter = sharded.wire()
    for key in sharded.spread():
        setter.ask("SET", key, b"x" * 3_000_000)
    for number, keys in itertools.product(
        range(sharded.count), [*([key] for key in sharded.spread()), sharded.spread()]
    ):
        listener = sharded.wire()
        channel = f"c{number}{keys[0]}{len(keys)}"
        # More than buffers hold: replies wait for the client, which reads when the message was sent.
        listener.send_all([["GET", key] for key in keys] * 8 + [["SUBSCRIBE", channel]])
        for _ in range(20):
            setter.ask("PUBLISH", channel, "early")
        for _ in range(8 * len(keys)):
            assert listener.read() == b"x" * 3_000_000
        assert listener.read() == [b"subscribe", channel.encode(), 1]
        assert setter.ask("PUBLISH", channel, "late") == 1
        while (message := listener.read()) != [b"message", channel.encode(), b"late"]:
            assert message == [b"message", channel.encode(), b"early"]
        listener.close()


def test_invalidations_do_not_overtake_the_values_that_they_are_about(
    sharded: Sharded,
) -> None:
    """Else a client would keep a value for ever that is no more."""
    setter = sharded.wire()
    for key in sharded.spread():
        setter.ask("SET", key, b"x" * 2_000_000)
    pairs = list(itertools.product(sharded.spread(), sharded.spread("small")))
    for _ in range(sharded.count):
        for large, small in pairs:
            setter.ask("SET", small, "old")
            reader = sharded.wire()
            reader.ask("HELLO", "3")
            assert reader.ask("CLIENT", "TRACKING", "ON") == b"+OK"
            reader.send_all([["GET", large]] + [["GET", small], ["GET", large]] * 4)
            for _ in range(20):
                setter.ask("GET", small)
            setter.ask("SET", small, "new")
            kept = b""
            replies = 0
            while replies < 9:
                reply = reader.read()
                if reply == [b"invalidate", [small.encode()]]:
                    kept = b""
                    continue
                replies += 1
                if replies % 2 == 0:
                    kept = bytes(reply)
            if kept == b"old":
                assert reader.read() == [b"invalidate", [small.encode()]]
            reader.close()


def told(wire: Wire) -> list[list[Reply]]:
    """What was pushed until an answer comes. Every shard is asked, so that what it had to say has been said."""
    seen = []
    wire.send("CLIENT", "NO-TOUCH", "OFF")
    while isinstance(reply := wire.read(), Push):
        seen.append(list(reply))
    assert reply == b"+OK"
    return seen


def invalidated(wire: Wire) -> set[bytes]:
    keys: set[bytes] = set()
    for kind, names in told(wire):
        assert kind == b"invalidate"
        keys.update(names)
    return keys


TRACKING: dict[str, tuple[list[list[str]], Callable[[list[str]], list[list[str]]], bool]] = {
    "default": (["ON"], lambda keys: [["GET", key] for key in keys], True),
    "many at once": (["ON"], lambda keys: [["MGET", *keys]], True),
    "in transactions": (["ON"], lambda keys: [r for key in keys for r in (["MULTI"], ["GET", key], ["EXEC"])], True),
    "opt in, said nothing": (["ON", "OPTIN"], lambda keys: [["GET", key] for key in keys], False),
    "opt in": (["ON", "OPTIN"], lambda keys: [r for key in keys for r in (["CLIENT", "CACHING", "YES"], ["GET", key])], True),
    "opt in, many at once": (["ON", "OPTIN"], lambda keys: [["CLIENT", "CACHING", "YES"], ["MGET", *keys]], True),
    "opt in, in transactions": (
        ["ON", "OPTIN"],
        lambda keys: [r for key in keys for r in (["CLIENT", "CACHING", "YES"], ["MULTI"], ["GET", key], ["EXEC"])],
        True,
    ),
    "opt in, for one request": (
        ["ON", "OPTIN"],
        lambda keys: [r for key in keys for r in (["CLIENT", "CACHING", "YES"], ["PING"], ["GET", key])],
        False,
    ),
    "opt out, said nothing": (["ON", "OPTOUT"], lambda keys: [["GET", key] for key in keys], True),
    "opt out": (["ON", "OPTOUT"], lambda keys: [r for key in keys for r in (["CLIENT", "CACHING", "NO"], ["GET", key])], False),
    "opt out, many at once": (["ON", "OPTOUT"], lambda keys: [["CLIENT", "CACHING", "NO"], ["MGET", *keys]], False),
    "prefixes": (["ON", "BCAST", "PREFIX", "{"], lambda keys: [], True),
    "other prefixes": (["ON", "BCAST", "PREFIX", "x"], lambda keys: [], False),
    "own changes": (["ON"], lambda keys: [["GET", key] for key in keys], True),
    "no loop": (["ON", "NOLOOP"], lambda keys: [["GET", key] for key in keys], False),
}  # fmt: skip


@pytest.mark.parametrize("name", TRACKING)
def test_tracking_knows_keys_of_all_shards(sharded: Sharded, name: str) -> None:
    options, requests, wanted = TRACKING[name]
    keys = sharded.spread()
    for _ in range(sharded.count):
        reader, writer = sharded.wire(), sharded.wire()
        reader.ask("HELLO", "3")
        assert reader.ask("CLIENT", "TRACKING", *options) == b"+OK"
        reader.ask_all(requests(keys))
        if name in ("own changes", "no loop"):
            reader.send_all([["SET", key, "1"] for key in keys])
            replies = [reader.read() for _ in range((2 if wanted else 1) * len(keys))]
            pushed = {bytes(reply[1][0]) for reply in replies if isinstance(reply, Push)}
        else:
            writer.ask_all([["SET", key, "1"] for key in keys])
            pushed = invalidated(reader)
        assert pushed == ({key.encode() for key in keys} if wanted else set())
        # Each is told once.
        writer.ask_all([["SET", key, "1"] for key in keys])
        assert invalidated(reader) == ({key.encode() for key in keys} if name == "prefixes" else set())
        assert reader.ask("CLIENT", "TRACKING", "OFF") == b"+OK"
        writer.ask("FLUSHALL")
        assert invalidated(reader) == set()
        reader.close()
        writer.close()


def test_a_client_of_the_old_protocol_is_pushed_nothing(sharded: Sharded) -> None:
    writer = sharded.wire()
    for _ in range(sharded.count):
        reader = sharded.wire()
        reader.ask("HELLO", "3")
        assert reader.ask("CLIENT", "TRACKING", "ON", "BCAST") == b"+OK"
        assert isinstance(reader.ask("HELLO", "2"), list)
        writer.ask_all([["SET", key, "1"] for key in sharded.spread()])
        assert reader.ask("CLIENT", "NO-TOUCH", "OFF") == b"+OK"
        assert reader.ask_all([["GET", key] for key in sharded.spread()]) == [b"1"] * sharded.count
        reader.close()
