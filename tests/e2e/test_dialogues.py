"""Dialogues of several connections, held with the store and with a real Redis: every reply, event and description must be the
same."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Callable

import pytest
import redis

from sharding import one_shard
from peer import Redis
from store import Store
from wire import Reply, Wire

# Each line is a connection's name and what it sends; behind `<` the names of those who are then read from once more.
# $A stands for the number of connection A.
DIALOGUES = {
    "transactions": """
        a MULTI
        a SET k 1
        a INCR k
        a GET k
        a EXEC
        a MULTI
        a INCR
        a GET k
        a EXEC
        a MULTI
        a NOSUCH
        a EXEC
        a EXEC
        a DISCARD
        a MULTI
        a MULTI
        a WATCH k
        a SUBSCRIBE c
        a PING
        a DISCARD
        a GET k
        a EXEC x
        a MULTI
        a SET k text
        a INCR k
        a EXEC
        a MULTI
        a SET k text
        a INCR k
        a EXPIRE k 100
        a EXEC
        a MULTI
        a RESET
        a EXEC
        a MULTI
        a EXEC
        a MULTI
        a QUIT
    """,
    "watching": """
        a SET k 1
        a WATCH k
        b SET k 2
        a MULTI
        a GET k
        a EXEC
        a MULTI
        a GET k
        a EXEC
        a WATCH k {k}other
        a UNWATCH
        b SET k 3
        a MULTI
        a PING
        a EXEC
        a WATCH k
        a SET k 4
        a MULTI
        a PING
        a EXEC
        a WATCH k
        b EXPIRE k 100
        a MULTI
        a EXEC
        a WATCH nosuch
        b FLUSHALL
        a MULTI
        a EXEC
        b SET k 1
        a WATCH k
        b FLUSHDB
        a MULTI
        a EXEC
        a WATCH nosuch
        b SELECT 1
        b SET nosuch 1
        a MULTI
        a EXEC
        a WATCH k
        b SELECT 0
        b SET k 1
        a DISCARD
        a MULTI
        a DISCARD
        a MULTI
        a EXEC
        b HSET h f 1
        a WATCH h
        b HDEL h nosuch
        a MULTI
        a EXEC
        a WATCH h
        b HSET h f 2
        a MULTI
        a EXEC
        a WATCH h
        b HDEL h f
        a MULTI
        a EXEC
    """,
    "channels": """
        a SUBSCRIBE x y < a
        a GET k
        a CLIENT ID
        a PING
        a PING hello
        a PSUBSCRIBE x* z?
        < a
        b PUBLISH x 1 < a a
        b PUBLISH y 2 < a
        b PUBLISH zz 3 < a
        b PUBLISH nobody 4
        b PUBSUB CHANNELS
        b PUBSUB CHANNELS x*
        b PUBSUB NUMSUB x nobody
        b PUBSUB NUMSUB
        b PUBSUB NUMPAT
        b PUBSUB NOSUCH
        a UNSUBSCRIBE x
        a UNSUBSCRIBE x
        b PUBLISH x 5 < a
        a PUNSUBSCRIBE nosuch
        a UNSUBSCRIBE y
        a PUNSUBSCRIBE x*
        a PUNSUBSCRIBE z?
        a PUNSUBSCRIBE
        a UNSUBSCRIBE
        a GET k
        a SUBSCRIBE
        a SUBSCRIBE x
        a RESET
        b PUBLISH x 1
        a HELLO 3
        a SUBSCRIBE x
        a GET k
        a PING
        b PUBLISH x 6 < a
        a RESET
        a SUBSCRIBE x
        a QUIT
    """,
    "tracking": """
        a CLIENT TRACKING on
        a CLIENT TRACKINGINFO
        a CLIENT GETREDIR
        a CLIENT CACHING yes
        a CLIENT TRACKING on BCAST
        a CLIENT TRACKING on OPTIN OPTOUT
        a CLIENT TRACKING on REDIRECT 999999
        a CLIENT TRACKING on REDIRECT 0
        a CLIENT TRACKING on REDIRECT x
        a CLIENT TRACKING on PREFIX a
        a CLIENT TRACKING on PREFIX
        a CLIENT TRACKING maybe
        a CLIENT TRACKING off
        a CLIENT GETREDIR
        a CLIENT TRACKINGINFO
        a CLIENT CACHING no
        a CLIENT TRACKING on BCAST PREFIX foo PREFIX foobar
        a CLIENT TRACKING on BCAST PREFIX foo PREFIX bar
        a CLIENT TRACKING on BCAST PREFIX food
        a CLIENT TRACKINGINFO
        a CLIENT TRACKING on BCAST OPTIN
        a CLIENT TRACKING off
        a HELLO 3
        a CLIENT TRACKING on
        a GET k
        b SET k 1 < a
        b SET k 2
        a GET k
        a GET l
        b DEL k < a
        b INCR l < a
        a GET l
        a SET l 5
        < a
        a MGET k l
        b FLUSHALL < a
        a CLIENT TRACKING on NOLOOP
        a GET l
        a SET l 6
        b SET l 7
        a GET l
        b SET l 8 < a
        a CLIENT TRACKING off
        a CLIENT TRACKING on OPTIN
        a GET l
        b SET l 9
        a CLIENT CACHING yes
        a GET l
        b SET l 10 < a
        a CLIENT CACHING yes
        a MULTI
        a GET l
        a EXEC
        b SET l 11 < a
        a CLIENT TRACKING off
        a CLIENT TRACKING on OPTOUT
        a CLIENT CACHING no
        a GET l
        b SET l 12
        a GET l
        b SET l 13 < a
        a CLIENT TRACKING off
        a CLIENT TRACKING on BCAST PREFIX user:
        b SET user:1 x < a
        b SET job:1 x
        a HGET user:h f
        b HSET user:h f 1 < a
        b HDEL user:h f < a
        a RESET
    """,
    "tracking by redirection": """
        r SUBSCRIBE __redis__:invalidate
        a CLIENT TRACKING on REDIRECT $r
        a GET k
        b SET k 1 < r
        b FLUSHALL < r
        r UNSUBSCRIBE
        a GET k
        b SET k 2
        r PING
    """,
    "clients": """
        b PING
        c PING
        a CLIENT SETNAME me
        a CLIENT GETNAME
        a CLIENT LIST FOO
        a CLIENT LIST TYPE foo
        a CLIENT LIST TYPE master
        a CLIENT LIST ID x
        a CLIENT LIST ID 999999
        a CLIENT KILL x
        a CLIENT KILL 1.2.3.4:5
        a CLIENT KILL ID x
        a CLIENT KILL ID 0
        a CLIENT KILL ID 999999
        a CLIENT KILL TYPE foo
        a CLIENT KILL TYPE replica
        a CLIENT KILL SKIPME maybe
        a CLIENT KILL USER nosuch
        a CLIENT KILL USER
        a CLIENT KILL FOO BAR
        a CLIENT KILL ADDR 1.2.3.4:1
        a CLIENT KILL ID $b
        a CLIENT KILL ID $c TYPE pubsub
        a CLIENT REPLY foo
        a CLIENT REPLY on
        a CLIENT PAUSE x
        a CLIENT PAUSE -1
        a CLIENT PAUSE 0 foo
        a CLIENT UNPAUSE
        a CLIENT UNBLOCK 3
        a CLIENT UNBLOCK x
        a CLIENT UNBLOCK 3 foo
        a CLIENT NO-EVICT on
        a CLIENT NO-EVICT x
        a CLIENT NOSUCH
        a CLIENT INFO x
        a WAIT 0 0
        a WAIT x 0
        a WAIT 0 x
        a WAIT 0 -1
        a CLIENT KILL ID $a SKIPME no
    """,
    "keys": """
        a RANDOMKEY
        a KEYS *
        a SET {t}a 12
        a RANDOMKEY
        a KEYS *
        a KEYS
        a OBJECT ENCODING {t}a
        a OBJECT ENCODING {t}nosuch
        a OBJECT FREQ {t}a
        a OBJECT FREQ {t}nosuch
        a OBJECT IDLETIME {t}a
        a OBJECT IDLETIME {t}nosuch
        a OBJECT HELP
        a OBJECT NOSUCH {t}a
        a SET {t}b some-text
        a OBJECT ENCODING {t}b
        a OBJECT REFCOUNT {t}b
        a RENAME {t}nosuch {t}a
        a RENAME {t}a {t}a
        a RENAMENX {t}a {t}a
        a RENAMENX {t}nosuch {t}b
        a RENAMENX {t}a {t}b
        a RENAME {t}a {t}c
        a GET {t}c
        a EXISTS {t}a
        a COPY {t}c {t}c
        a COPY {t}c {t}b
        a COPY {t}c {t}b REPLACE
        a COPY {t}c {t}c DB 1
        a COPY {t}c {t}b DB 99
        a COPY {t}c {t}b DB x
        a COPY {t}c {t}b DB
        a COPY {t}c {t}b FOO
        a COPY {t}nosuch {t}b
        a HSET {t}h f v
        a COPY {t}h {t}h2
        a HGETALL {t}h2
        a RENAME {t}h2 {t}h3
        a HGETALL {t}h3
        a TYPE {t}h3
        a OBJECT ENCODING {t}h3
        a HSET {t}h3 f 0123456789012345678901234567890123456789012345678901234567890123
        a OBJECT ENCODING {t}h3
        a HSET {t}h3 f 01234567890123456789012345678901234567890123456789012345678901234
        a OBJECT ENCODING {t}h3
        a MEMORY NOSUCH
        a PUBSUB CHANNELS a b
        a PUBSUB CHANNELS a
        a COMMAND LIST FILTERBY
        a COMMAND LIST FILTERBY PATTERN
        a COMMAND LIST FILTERBY MODULE nosuch
        a COMMAND LIST FILTERBY ACLCAT nosuch
        a COMMAND LIST FILTERBY ACLCAT @string
        a COMMAND LIST FILTERBY ACLCAT transaction x
        a COMMAND LIST FILTERBY PATTERN config|rew*
        a COMMAND LIST FILTERBY PATTERN LASTS*
        a COMMAND LIST FILTERBY NOSUCH x
        a COMMAND LIST x
        a SET {t}f 1.5
        a INCRBYFLOAT {t}f 0x10
        a INCRBYFLOAT {t}f 0X.8P+1
        a INCRBYFLOAT {t}f -0xFf.
        a INCRBYFLOAT {t}f 0x0p-99999
        a INCRBYFLOAT {t}f 0x1p-70
        a INCRBYFLOAT {t}f 0x1p-99999
        a INCRBYFLOAT {t}f 0x1p99999
        a INCRBYFLOAT {t}f 0x
        a INCRBYFLOAT {t}f 0x.p1
        a INCRBYFLOAT {t}f 0x1p
        a INCRBYFLOAT {t}f 0x1g
        a INCRBYFLOAT {t}f 0x123456789abcdef01234567
        a HINCRBYFLOAT {t}h g 0x1.8
        a CONFIG SET latency-tracking yes
        a GET {t}f
        a CONFIG RESETSTAT
        a LATENCY HISTOGRAM get
    """,
    "databases in transactions": """
        a MULTI
        a SELECT 3
        a SET here 1
        a EXEC
        a GET here
        a SELECT 0
        a GET here
    """,
    "scans": """
        a HSET h3 f v
        a SET a 1
        a SCAN 0 TYPE hash MATCH h3 COUNT 1000
    """,
    "slow log and latencies": """
        a SLOWLOG RESET
        a SLOWLOG GET
        a SLOWLOG GET x
        a SLOWLOG GET -2
        a SLOWLOG GET 0
        a SLOWLOG LEN
        a SLOWLOG NOSUCH
        a SLOWLOG HELP
        a LATENCY LATEST
        a LATENCY HISTORY command
        a LATENCY HISTORY
        a LATENCY RESET
        a LATENCY RESET a b
        a LATENCY NOSUCH
        a CONFIG SET slowlog-max-len x
        a CONFIG SET notify-keyspace-events KEAQ
        a CONFIG SET notify-keyspace-events Kg$xnm
        a CONFIG GET notify-keyspace-events
        a CONFIG SET notify-keyspace-events KEA
        a CONFIG GET notify-keyspace-events
        a CONFIG SET notify-keyspace-events nothing!
        a CONFIG GET slowlog*
        a CONFIG GET tracking*
        a CONFIG GET latency-monitor*
    """,
}


def hold(dialogue: str, connect: Callable[[], socket.socket]) -> list[tuple[str, Reply]]:
    """Holds a dialogue; what was said and what came back."""
    wires: dict[str, Wire] = {}
    names = sorted({line.split()[0] for line in dialogue.strip().splitlines()} - {"<"})
    said = []
    with contextlib.ExitStack() as stack:
        for name in names:
            wires[name] = Wire(connect)
            stack.callback(wires[name].close)
        wires["a"].ask("FLUSHALL")
        ids = {name: str(wire.ask("CLIENT", "ID")) for name, wire in wires.items()}
        for line in dialogue.strip().splitlines():
            request, _, readers = line.strip().partition("<")
            words = request.split()
            if words:
                arguments = [ids[word[1:]] if re.fullmatch(r"\$[a-z]", word) else word for word in words[1:]]
                said.append((request.strip(), wires[words[0]].ask(*arguments)))
            for reader in readers.split():
                said.append((f"< {reader}", wires[reader].read()))
    return said


def comparable(request: str, reply: Reply) -> Reply:
    if "HELLO" in request and isinstance(reply, dict):
        return {key: value for key, value in reply.items() if "id" not in key}
    if "PUBSUB CHANNELS" in request:
        return sorted(reply)
    if "OBJECT IDLETIME" in request and isinstance(reply, int):
        # Whole seconds by a clock that ticks: a second may begin in between, here or there.
        return "idle for hardly any time" if reply <= 1 else reply
    if "CONFIG GET" in request:
        return dict(zip(reply[::2], reply[1::2]))
    return reply


# Redirections are refused, and SELECT in a transaction elsewhere; a flush is told of by each shard; a scan goes from shard to shard.
IN_ONE_SHARD = {"tracking", "tracking by redirection", "databases in transactions", "scans"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[one_shard] * (name in IN_ONE_SHARD)) for name in DIALOGUES])
def test_a_dialogue_is_as_with_redis(store: Store, peer: Redis, name: str) -> None:
    ours = hold(DIALOGUES[name], store.connect)
    theirs = hold(DIALOGUES[name], peer.connect)
    for (request, our), (_, their) in zip(ours, theirs):
        assert comparable(request, our) == comparable(request, their), request
    assert len(ours) == len(theirs)
    with redis.Redis(port=store.port) as client:
        client.config_set("notify-keyspace-events", "")


EVENTS = """SET a 1|SET a 1|SET a 1 EX 100|SET a 1 PX 10000000 GET|SETEX b 100 x|PSETEX b 100000 x|SETNX c 1|SETNX c 2
GETSET c 3|GETDEL c|MSET d 1 e 2|MSETNX d 1 f 1|MSETNX g 1 h 1|INCR i|DECR i|INCRBY i 4|DECRBY i 2|INCRBYFLOAT i 1.5
APPEND i 9|SETRANGE i 0 x|EXPIRE i 100|EXPIRE i 200 GT|EXPIRE i -1|PEXPIRE d 100000|PERSIST d|PERSIST d|GETEX d EX 100
GETEX d PERSIST|GETEX d PERSIST|GETEX d EXAT 1|DEL e g h|DEL nosuch|UNLINK a|GET nosuch|MGET x y|EXISTS nosuch
TTL nosuch|TYPE nosuch|STRLEN nosuch|GETRANGE nosuch 0 1|SET r 1|COPY r r5|COPY r r6|TOUCH nosuch|OBJECT ENCODING nosuch
HSET hh f 1 g 2|HSET hh f 3|HMSET hh f 1|HSETNX hh f 1|HSETNX hh i 1|HINCRBY hh n 1|HINCRBYFLOAT hh n 1|HDEL hh f nosuch
HDEL hh nosuch|HDEL hh g i n|HGET nosuch f|FLUSHALL|SET k v PX 20"""


@one_shard
def test_events_are_named_as_in_redis(store: Store, peer: Redis) -> None:
    def events(connect: Callable[[], socket.socket]) -> list[tuple[str, list[Reply]]]:
        seen = []
        client, listener = Wire(connect), Wire(connect)
        client.ask("FLUSHALL")
        client.ask("CONFIG", "SET", "notify-keyspace-events", "KEAmn")
        for pattern in ("__key*__:*", "end"):
            listener.ask("PSUBSCRIBE", pattern)
        for request in re.split(r"[|\n]", EVENTS):
            client.ask(*request.split())
            early: list[Reply] = []
            # Either server may take long to notice that the key's time is over.
            while request.endswith("PX 20") and [b"__keyevent@0__:expired", b"k"] not in [each[2:] for each in early]:
                early.append(listener.read())
            client.ask("PUBLISH", "end", "")
            heard = iter(listener.read, [b"pmessage", b"end", b"end", b""])
            seen.append((request, early + list(heard)))
        client.ask("CONFIG", "SET", "notify-keyspace-events", "")
        client.close()
        listener.close()
        return seen

    for ours, theirs in zip(events(store.connect), events(peer.connect)):
        assert ours == theirs


def test_commands_describe_themselves_as_in_redis(store: Store, peer: Redis) -> None:
    def described(connect: Callable[[], socket.socket]) -> dict[bytes, list]:
        wire = Wire(connect)
        commands: dict[bytes, list] = {}

        def add(command: list) -> None:
            name, arity, flags, first, last, step, categories = command[:7]
            commands[name.lower()] = [arity, sorted(flags), first, last, step, sorted(categories)]
            for sub in command[9]:
                add(sub)

        for command in wire.ask("COMMAND"):
            add(command)
        wire.close()
        return commands

    ours, theirs = described(store.connect), described(peer.connect)
    both = ours.keys() & theirs.keys()
    assert len(both) > 100
    differing = {name: (ours[name], theirs[name]) for name in both if ours[name] != theirs[name]}
    assert differing == {}
