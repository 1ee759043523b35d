"""What one client does to another: transactions, channels, tracking, monitoring, kills and pauses.

Dialogues of several connections are held with the store and with a real Redis, and every reply must be the same."""

from __future__ import annotations

import contextlib
import pathlib
import re
import resource
import socket
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from conftest import tool
from store import MIB, PATIENCE_S, Store, eventually, tiermem
from test_limits import DRAM, SLOW, TIERS, stays_within

Reply = object


class Push(list):
    """A message that nobody asked for."""


class Wire:
    """A connection that shows replies as they are."""

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self.socket = connect()
        self.file = self.socket.makefile("rb")

    def send(self, *words: str | bytes) -> None:
        parts = [word.encode() if isinstance(word, str) else word for word in words]
        request = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)
        self.socket.sendall(request)

    def read(self) -> Reply:
        line = self.file.readline()
        assert line.endswith(b"\r\n"), f"closed after {line!r}"
        kind, rest = line[:1], line[1:-2]
        if kind in b"$=":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind in b"*~>":
            if rest == b"-1":
                return None
            parts = [self.read() for _ in range(int(rest))]
            return Push(parts) if kind == b">" else parts
        if kind == b"%":
            return {str(self.read()): self.read() for _ in range(int(rest))}
        if kind == b":":
            return int(rest)
        return line[:-2]

    def ask(self, *words: str | bytes) -> Reply:
        self.send(*words)
        return self.read()

    def is_closed(self) -> bool:
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.file.close()
        self.socket.close()


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The unix socket of a Redis."""
    program = tool("redis-server")
    directory = tmp_path_factory.mktemp("redis")
    path = str(directory / "s")
    arguments = ["--port", "0", "--save", "", "--unixsocket", path, "--dir", str(directory)]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen([program, *arguments], stdout=log)
    try:
        eventually(lambda: pathlib.Path(path).exists(), "redis-server listens")
        yield path
    finally:
        process.terminate()
        process.wait()


def connect_to(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE_S)
    connection.connect(path)
    return connection


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
        a SELECT 3
        a SET here 1
        a EXEC
        a GET here
        a SELECT 0
        a GET here
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
        a WATCH k other
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
        a SET a 12
        a RANDOMKEY
        a KEYS *
        a KEYS
        a OBJECT ENCODING a
        a OBJECT ENCODING nosuch
        a OBJECT FREQ a
        a OBJECT FREQ nosuch
        a OBJECT IDLETIME a
        a OBJECT IDLETIME nosuch
        a OBJECT HELP
        a OBJECT NOSUCH a
        a SET b some-text
        a OBJECT ENCODING b
        a OBJECT REFCOUNT b
        a RENAME nosuch a
        a RENAME a a
        a RENAMENX a a
        a RENAMENX nosuch b
        a RENAMENX a b
        a RENAME a c
        a GET c
        a EXISTS a
        a COPY c c
        a COPY c b
        a COPY c b REPLACE
        a COPY c c DB 1
        a COPY c b DB 99
        a COPY c b DB x
        a COPY c b DB
        a COPY c b FOO
        a COPY nosuch b
        a HSET h f v
        a COPY h h2
        a HGETALL h2
        a RENAME h2 h3
        a HGETALL h3
        a TYPE h3
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
    if "CONFIG GET" in request:
        return dict(zip(reply[::2], reply[1::2]))
    return reply


@pytest.mark.parametrize("name", DIALOGUES)
def test_a_dialogue_is_as_with_redis(store: Store, real: str, name: str) -> None:
    ours = hold(DIALOGUES[name], store.connect)
    theirs = hold(DIALOGUES[name], lambda: connect_to(real))
    for (request, our), (_, their) in zip(ours, theirs):
        assert comparable(request, our) == comparable(request, their), request
    assert len(ours) == len(theirs)
    with redis.Redis(port=store.port) as client:
        client.config_set("notify-keyspace-events", "")


EVENTS = """SET a 1|SET a 1|SET a 1 EX 100|SET a 1 PX 10000 GET|SETEX b 100 x|PSETEX b 100000 x|SETNX c 1|SETNX c 2
GETSET c 3|GETDEL c|MSET d 1 e 2|MSETNX d 1 f 1|MSETNX g 1 h 1|INCR i|DECR i|INCRBY i 4|DECRBY i 2|INCRBYFLOAT i 1.5
APPEND i 9|SETRANGE i 0 x|EXPIRE i 100|EXPIRE i 200 GT|EXPIRE i -1|PEXPIRE d 100000|PERSIST d|PERSIST d|GETEX d EX 100
GETEX d PERSIST|GETEX d PERSIST|GETEX d EXAT 1|DEL e g h|DEL nosuch|UNLINK a|GET nosuch|MGET x y|EXISTS nosuch
TTL nosuch|TYPE nosuch|STRLEN nosuch|GETRANGE nosuch 0 1|SET r 1|COPY r r5|COPY r r6|TOUCH nosuch|OBJECT ENCODING nosuch
HSET hh f 1 g 2|HSET hh f 3|HMSET hh f 1|HSETNX hh f 1|HSETNX hh i 1|HINCRBY hh n 1|HINCRBYFLOAT hh n 1|HDEL hh f nosuch
HDEL hh nosuch|HDEL hh g i n|HGET nosuch f|FLUSHALL|SET k v PX 20"""


def test_events_are_named_as_in_redis(store: Store, real: str) -> None:
    def events(connect: Callable[[], socket.socket]) -> list[tuple[str, list[Reply]]]:
        seen = []
        client, listener = Wire(connect), Wire(connect)
        client.ask("FLUSHALL")
        client.ask("CONFIG", "SET", "notify-keyspace-events", "KEAmn")
        for pattern in ("__key*__:*", "end"):
            listener.ask("PSUBSCRIBE", pattern)
        for request in re.split(r"[|\n]", EVENTS):
            client.ask(*request.split())
            if request.endswith("PX 20"):
                time.sleep(0.5)
            client.ask("PUBLISH", "end", "")
            heard = iter(listener.read, [b"pmessage", b"end", b"end", b""])
            seen.append((request, list(heard)))
        client.ask("CONFIG", "SET", "notify-keyspace-events", "")
        client.close()
        listener.close()
        return seen

    for ours, theirs in zip(events(store.connect), events(lambda: connect_to(real))):
        assert ours == theirs


def test_evicted_keys_are_told(serve: Callable[..., Store]) -> None:
    store = serve("--tier", "dram=32MiB")
    with redis.Redis(port=store.port) as client, client.pubsub() as listener:
        client.config_set("notify-keyspace-events", "Ee")
        listener.subscribe("__keyevent@0__:evicted")
        assert listener.get_message(timeout=PATIENCE_S)
        for number in range(600):
            client.set(f"k{number}", b"x" * 100_000)
        message = listener.get_message(timeout=PATIENCE_S)
        assert message and message["data"].startswith(b"k")
        assert client.exists(message["data"]) == 0


def test_a_monitor_log_is_a_trace(store: Store, tmp_path: pathlib.Path) -> None:
    log = tmp_path / "monitor.log"
    program = tool("redis-cli")
    with log.open("wb") as out:
        monitor = subprocess.Popen([program, "-p", str(store.port), "monitor"], stdout=out)
    try:
        with redis.Redis(port=store.port) as client:
            eventually(lambda: "monitor" in str(client.client_list()), "it monitors")
            for number in range(100):
                client.set(f"key:{number}", "x" * number)
                client.get(f"key:{number}")
            client.set(b"\x00\xff \"\\\r\n", b"any \x00 bytes\t")
            with client.pipeline(transaction=True) as pipeline:
                pipeline.set("in a transaction", 1).delete("key:0").execute()
            client.execute_command("AUTH", "default", "secret")
            client.select(3)
            client.mget("a", "b")
            eventually(lambda: b'"MGET" "a" "b"' in log.read_bytes(), "all is logged")
    finally:
        monitor.terminate()
        monitor.wait()
    assert b"secret" not in log.read_bytes()
    shown = tiermem("trace", "stat", str(log), "--format", "json")
    assert shown.returncode == 0, shown
    converted = tmp_path / "trace.csv"
    done = tiermem("trace", "convert", str(log), "-o", str(converted))
    assert done.returncode == 0, done
    rows = [line for line in converted.read_text().splitlines() if line and not line.startswith(("#", "time"))]
    # 100 SET and GET, one with any bytes, SET and DEL in the transaction, MGET of two.
    assert len(rows) == 100 * 2 + 1 + 2 + 2, rows[-10:]


def test_slow_monitors_and_subscribers_cost_only_themselves(serve: Callable[..., Store]) -> None:
    store = serve(*TIERS)
    deaf = [Wire(store.connect) for _ in range(20)]
    for wire in deaf[:10]:
        assert wire.ask("MONITOR") == b"+OK"
    for wire in deaf[10:]:
        wire.ask("SUBSCRIBE", "news")
    with redis.Redis(port=store.port) as client:
        for number in range(400):
            client.publish("news", b"x" * MIB)
            client.set(f"k{number}", number)
            assert client.get(f"k{number}") == str(number).encode()
        eventually(lambda: store.snapshot()["connections"] == 1, "those that do not read are dropped")
        assert client.info("memory")["mem_clients_normal"] < MIB
    stays_within(store, DRAM + SLOW)
    for wire in deaf:
        wire.close()


def test_a_transaction_that_never_ends(serve: Callable[..., Store]) -> None:
    store = serve(*TIERS)
    endless = [Wire(store.connect) for _ in range(8)]
    with redis.Redis(port=store.port, socket_timeout=PATIENCE_S) as client:
        for wire in endless:
            assert wire.ask("MULTI") == b"+OK"
        refused = 0
        for _ in range(40):
            for wire in endless:
                refused += bytes(wire.ask("SET", "k", b"x" * MIB)).startswith(b"-ERR the transaction does not fit")
        assert refused > 0
        client.set("a", b"y" * (4 * MIB))
        assert client.get("a") == b"y" * (4 * MIB)
        for wire in endless:
            assert wire.ask("EXEC") != b"+OK"
        stays_within(store, DRAM + SLOW)
    for wire in endless:
        wire.close()


def test_ten_thousand_clients_with_tracking(serve: Callable[..., Store]) -> None:
    count = 9_900
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 200
    if soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            pytest.skip(f"no more than {hard} files may be open here")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    store = serve(*TIERS)
    with contextlib.ExitStack() as stack, redis.Redis(port=store.port, socket_timeout=PATIENCE_S) as client:
        connections = []
        request = b"HELLO 3\r\nCLIENT TRACKING on\r\nGET shared\r\nGET own:%d\r\n"
        for number in range(count):
            connection = stack.enter_context(store.connect())
            connection.sendall(request % number)
            connections.append(connection)
        for connection in connections:
            answer = b""
            while not answer.endswith(b"+OK\r\n_\r\n_\r\n"):
                more = connection.recv(4096)
                assert more, answer
                answer += more
        client.set("shared", 1)
        client.set("own:77", 1)
        invalidation = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$6\r\nshared\r\n"
        for number, connection in enumerate(connections):
            told = connection.recv(len(invalidation), socket.MSG_WAITALL)
            assert told == invalidation, number
        assert connections[77].recv(4096) == b">2\r\n$10\r\ninvalidate\r\n*1\r\n$6\r\nown:77\r\n"
        listed = client.client_list()
        assert len(listed) == count + 1 and sum("t" in each["flags"] for each in listed) == count
        stays_within(store, DRAM + SLOW)
    eventually(lambda: store.snapshot()["connections"] == 0, "all have left")


def test_redis_py_uses_all_of_it(store: Store) -> None:
    options = {"port": store.port, "socket_timeout": PATIENCE_S}
    with redis.Redis(**options, protocol=3) as client, redis.Redis(**options) as other:
        client.set("a", 1)

        def double(pipeline: redis.client.Pipeline) -> None:
            value = int(pipeline.get("a"))
            if value == 1:
                other.set("a", 2)
            pipeline.multi()
            pipeline.set("a", value * 2)

        # The first try is void, for the other client came between.
        assert client.transaction(double, "a") == [True]
        assert client.get("a") == b"4"
        assert client.slowlog_len() >= 0
        assert client.client_info()["resp"] in ("3", 3)
        assert client.object("encoding", "a") in (b"int", "int")
        assert client.randomkey() == b"a"
        assert client.keys("*") == [b"a"]
        assert client.rename("a", "b") and client.copy("b", "c")
        assert client.client_pause(50, all=False) and client.set("a", 1)
        assert client.client_kill_filter(_id=other.client_id()) == 1
        with client.monitor() as monitor:
            other.set("seen", 1)
            while "SET seen" not in (seen := monitor.next_command()["command"]):
                assert "CLIENT" in seen, seen


def test_commands_describe_themselves_as_in_redis(store: Store, real: str) -> None:
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

    ours, theirs = described(store.connect), described(lambda: connect_to(real))
    both = ours.keys() & theirs.keys()
    assert len(both) > 100
    differing = {name: (ours[name], theirs[name]) for name in both if ours[name] != theirs[name]}
    assert differing == {}


def test_a_transaction_reads_what_lies_on_flash(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    config = tmp_path / "tiermem.toml"
    config.write_text(
        f"""
        [[tier]]
        name = "dram"
        kind = "dram"
        capacity = "32MiB"
        [[tier]]
        name = "flash"
        kind = "flash"
        path = "{tmp_path / "flash"}"
        capacity = "256MiB"
        admission = "all"
        """
    )
    store = serve("--config", str(config))
    value = {number: bytes([number % 251]) * 20_000 for number in range(4000)}
    with redis.Redis(port=store.port, socket_timeout=PATIENCE_S) as client, redis.Redis(port=store.port) as other:
        for number, text in value.items():
            client.set(f"k{number}", text)
        assert client.dbsize() == len(value), "nothing was lost on the way"
        with client.pipeline(transaction=True) as pipeline:
            numbers = range(0, 4000, 200)
            for number in numbers:
                pipeline.get(f"k{number}")
            pipeline.strlen("k1").append("k1", "!").strlen("k1").delete("k2").exists("k2")
            assert pipeline.execute() == [value[number] for number in numbers] + [20_000, 20_001, 20_001, 1, 0]
        # A watched key that lies on flash, and what others do to it there.
        for act, void in ((lambda: other.get("k3"), False), (lambda: other.delete("k3"), True)):
            with client.pipeline(transaction=True) as pipeline:
                pipeline.watch("k3")
                for number in range(1000, 3000):
                    other.get(f"k{number}")
                act()
                pipeline.multi()
                pipeline.strlen("k3")
                if void:
                    with pytest.raises(redis.WatchError):
                        pipeline.execute()
                else:
                    assert pipeline.execute() == [20_000]
        # Few keys can be read at once, many cannot.
        assert len(client.keys("*")) == client.dbsize()
        with client.pipeline(transaction=False) as pipeline:
            for number in range(20_000):
                pipeline.set(f"s{number}", bytes(4000))
            pipeline.execute()
        with pytest.raises(redis.ResponseError, match="use SCAN"):
            client.keys("*")
