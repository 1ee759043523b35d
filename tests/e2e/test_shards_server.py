"""A store with several shards as one server: settings, figures, limits, channels, clients, flash, and its end."""

from __future__ import annotations

import contextlib
import pathlib
import re
import signal
import threading
from collections.abc import Callable

import pytest
import redis

from sharding import Sharded
from store import PATIENCE_S, Store, eventually, tiermem
from test_http import sample
from test_redis_benchmark import DEFAULT_SET, benchmark, finished
from wire import Wire


# How many shards the stores of these tests have.
SHARD_COUNTS = (2, 3)

def connected(wire: Wire, count: int) -> None:
    eventually(lambda: info(wire, "clients")["connected_clients"] == str(count), f"{count} are connected")


def info(wire: Wire, section: str) -> dict[str, str]:
    lines = bytes(wire.ask("INFO", section)).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def test_settings_are_the_same_in_every_shard(sharded: Sharded) -> None:
    homes = sharded.homes()
    for number, home in enumerate(homes):
        assert home.ask("CONFIG", "SET", "slowlog-max-len", str(100 + number)) == b"+OK"
        assert bytes(home.ask("CONFIG", "SET", "slowlog-max-len", "x")).startswith(b"-ERR")
        for other in homes:
            assert other.ask("CONFIG", "GET", "slowlog-max-len") == [
                b"slowlog-max-len",
                str(100 + number).encode(),
            ]


def test_settings_that_several_clients_change_at_once_end_up_the_same(
    sharded: Sharded,
) -> None:
    homes = sharded.homes()
    for _ in range(300):
        for number, home in enumerate(homes):
            home.send("CONFIG", "SET", "slowlog-max-len", str(100 + number))
        assert [home.read() for home in homes] == [b"+OK"] * len(homes)
        values = [home.ask("CONFIG", "GET", "slowlog-max-len") for home in homes]
        assert values == values[:1] * len(values)


def test_there_are_exactly_as_many_clients_as_there_may_be(
    serve: Callable[..., Store],
) -> None:
    sharded = Sharded(serve("--shards", "3"), 3)
    first = sharded.wire()
    connected(first, 1)
    assert first.ask("CONFIG", "SET", "maxclients", "7") == b"+OK"
    for _ in range(3):
        others = [sharded.wire() for _ in range(6)]
        assert [other.ask("PING") for other in others] == [b"+PONG"] * 6
        for _ in range(4):
            refused = sharded.wire()
            assert refused.read() == b"-ERR max number of clients reached"
            assert refused.is_closed()
        assert info(first, "clients")["connected_clients"] == "7"
        others.pop().close()
        connected(first, 6)
        others.append(sharded.wire())
        assert others[-1].ask("PING") == b"+PONG"
        for other in others:
            other.close()
        connected(first, 1)
    assert info(first, "stats")["rejected_connections"] == "12"


def figures(home: Wire, tags: list[str]) -> dict[str, dict[str, str]]:
    """What the store says of requests over keys with such tags."""
    home.ask_all([["FLUSHALL"], ["CONFIG", "RESETSTAT"]])
    for number in range(40):
        home.ask("SET", f"k{number}", "x")
    home.ask("EXPIRE", "k1", "100")
    home.ask_all([["SELECT", "2"], *(["HSET", tag, "f", "1"] for tag in tags), ["SELECT", "0"]])
    home.ask("MGET", *(f"k{number}" for number in range(50)))
    home.ask("MSET", *(word for tag in tags for word in (tag, "1")))
    home.ask("DEL", *tags)
    home.ask("NOSUCH")
    for tag in tags:
        home.ask_all([["MULTI"], ["STRLEN", tag], ["EXEC"], ["GET", tag], ["RENAME", tag, tag]])
    home.ask("HINCRBY", "k1", "f", "1")
    home.ask_all([["DBSIZE"], ["CLIENT", "LIST"], ["KEYS", "none"]])
    keyspace = {name: text.partition(",avg_ttl")[0] for name, text in info(home, "keyspace").items()}
    stats = info(home, "stats")
    counted = (
        "keyspace_hits",
        "keyspace_misses",
        "total_commands_processed",
        "total_error_replies",
        "total_connections_received",
    )
    commands = {
        name: re.sub(r",usec.*?,rejected", ",rejected", text) for name, text in info(home, "commandstats").items()
    }
    return {
        "keyspace": keyspace, "stats": {name: stats[name] for name in counted if name in stats}, "commands": commands,
        "errors": info(home, "errorstats"), "clients": {"connected_clients": info(home, "clients")["connected_clients"]},
    }  # fmt: skip


def test_figures_add_up_at_once(serve: Callable[..., Store], sharded: Sharded) -> None:
    one = serve("--shards", "1")
    alone = Wire(one.connect)
    wanted = figures(alone, sharded.tags)
    assert wanted["keyspace"]["db0"] == "keys=40,expires=1"
    wanted["clients"] = {"connected_clients": str(sharded.count + 1)}
    for _ in range(sharded.count):
        watcher = sharded.wire()
        connected(watcher, 1)
        others = [sharded.wire() for _ in range(sharded.count)]
        for other in others:
            assert other.ask("PING") == b"+PONG"
        assert figures(watcher, sharded.tags) == wanted
        for wire in (*others, watcher):
            wire.close()


def test_the_page_and_metrics_show_sums(serve: Callable[..., Store]) -> None:
    store = serve("--shards", "3", "--tier", "dram=192MiB", "--tier", "emulated=96MiB")
    with redis.Redis(port=store.port) as client:
        client.mset({f"k{number}": "x" * 100 for number in range(300)})
        for number in range(350):
            client.get(f"k{number}")
        eventually(
            lambda: store.snapshot()["engine"]["keys"] == 300,
            "the snapshot has all keys",
        )
        tiers = {tier["name"]: tier for tier in store.snapshot()["engine"]["tiers"]}
        assert [tier["capacity_bytes"] >> 20 for tier in tiers.values()] == [192, 96]
        assert sum(tier["items"] for tier in tiers.values()) == 300
        eventually(
            lambda: sample(store, "tiermem_gets_total") == 350,
            "all look-ups are counted",
        )
        assert sample(store, "tiermem_hits_total") == 300
        assert store.snapshot()["connections"] == 1
        client.flushall()
        eventually(lambda: store.snapshot()["engine"]["keys"] == 0, "nothing is left")


def test_slow_requests_of_all_shards_are_listed_the_newest_first(
    sharded: Sharded,
) -> None:
    for home in sharded.homes():
        home.ask("CLIENT", "SETNAME", "somebody")
        home.ask_all([["CONFIG", "SET", "slowlog-log-slower-than", "0"], ["SLOWLOG", "RESET"]])
        for _ in range(3):
            for key in sharded.spread():
                home.ask("GET", key)
        home.ask("CONFIG", "SET", "slowlog-log-slower-than", "-1")
        length = home.ask("SLOWLOG", "LEN")
        entries = home.ask("SLOWLOG", "GET", "-1")
        assert isinstance(entries, list) and len(entries) == length
        gets = [entry for entry in entries if entry[3][0] == b"GET"]
        assert sorted(entry[3][1] for entry in gets) == sorted([key.encode() for key in sharded.spread()] * 3)
        assert {entry[5] for entry in gets} == {b"somebody"}
        assert len({entry[0] for entry in entries}) == len(entries), "each has a number of its own"
        times = [entry[1] for entry in entries]
        assert times == sorted(times, reverse=True)
        assert len(home.ask("SLOWLOG", "GET", "2")) == 2
        assert home.ask("SLOWLOG", "RESET") == b"+OK" and home.ask("SLOWLOG", "LEN") == 0


def test_redis_benchmark_runs_its_default_set(sharded: Sharded) -> None:
    for flags in ((), ("-P", "16"), ("-3",)):
        said = benchmark(
            "-p",
            str(sharded.store.port),
            "-t",
            ",".join(DEFAULT_SET),
            "-n",
            "5000",
            "-r",
            "1000",
            *flags,
        )
        assert finished(said) == set().union(*DEFAULT_SET.values()), said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_in_order_under_load(serve: Callable[..., Store], number: int) -> None:
    store = serve("--shards", "3")
    began = threading.Event()

    def load() -> None:
        pipeline = b"".join(
            b"SET k%d %d\r\nMGET k%d k%d k%d\r\nINFO\r\n" % (n, n, n, n + 1, n + 2) for n in range(50)
        )
        # The server may be gone before the last of the threads connects.
        with contextlib.suppress(OSError), store.connect() as connection:
            while True:
                connection.sendall(pipeline)
                if not connection.recv(1 << 16):
                    return
                began.set()

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert began.wait(PATIENCE_S)
    assert store.stop(number) == 0, store.log()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_channels_and_events_reach_every_home(sharded: Sharded) -> None:
    setter = sharded.wire()
    assert setter.ask("CONFIG", "SET", "notify-keyspace-events", "KEA") == b"+OK"
    listeners = sharded.homes()
    for listener in listeners:
        assert listener.ask("PSUBSCRIBE", "__keyevent@*__:*") == [
            b"psubscribe",
            b"__keyevent@*__:*",
            1,
        ]
        assert listener.ask("SUBSCRIBE", "news") == [b"subscribe", b"news", 2]
    for speaker in sharded.homes():
        assert speaker.ask("PUBLISH", "news", "x") == sharded.count
        speaker.ask_all([["SET", key, "1"] for key in sharded.spread()] + [["DEL", *sharded.spread()]])
        expected = {(event, key.encode()) for event in (b"set", b"del") for key in sharded.spread()}
        for listener in listeners:
            seen = [listener.read() for _ in range(1 + 2 * sharded.count)]
            assert [b"message", b"news", b"x"] in seen
            events = {(reply[2].partition(b":")[2], reply[3]) for reply in seen if reply[0] == b"pmessage"}
            assert events == expected
        assert speaker.ask("PUBSUB", "CHANNELS") == [b"news"]
        assert speaker.ask("PUBSUB", "NUMSUB", "news", "none") == [
            b"news",
            sharded.count,
            b"none",
            0,
        ]
        assert speaker.ask("PUBSUB", "NUMPAT") in (1, sharded.count)
        speaker.close()
    setter.ask("PEXPIRE", sharded.tags[0], "1")
    setter.ask("SET", sharded.tags[1], "1", "PX", "20")
    for listener in listeners:
        while (event := listener.read())[2:] != [
            b"__keyevent@0__:expired",
            sharded.tags[1].encode(),
        ]:
            assert event[0] == b"pmessage"
        listener.close()
    assert setter.ask("CONFIG", "SET", "notify-keyspace-events", "") == b"+OK"


def test_a_monitor_sees_each_request_once(sharded: Sharded) -> None:
    homes = sharded.homes()
    for home in homes:
        monitor = sharded.wire()
        assert monitor.ask("MONITOR") == b"+OK"
        # It monitors its own shard at once, and every shard when it has seen a request in each.
        unseen = {key.encode() for key in sharded.spread("probe")}
        while unseen:
            home.ask_all([["GET", key] for key in sharded.spread("probe")])
            for at_home in homes:
                at_home.ask("ECHO", "probed")
            while b'"ECHO" "probed"' not in (line := bytes(monitor.read())):
                unseen -= {key for key in unseen if key in line}
        requests = [["SET", key, "1"] for key in sharded.spread()] + [
            ["MGET", *sharded.spread()], ["DBSIZE"], ["SELECT", "1"], *(["GET", key] for key in sharded.spread()), ["SELECT", "0"],
            *(request for key in sharded.spread() for request in (["MULTI"], ["STRLEN", key], ["EXEC"])),
        ]  # fmt: skip
        home.ask_all(requests)
        # What guests see comes by other ways than what the home sees: the last request of each shard ends it.
        home.ask_all([["GETRANGE", key, "0", "0"] for key in sharded.spread("end")])
        lines: list[bytes] = []
        while sum(b"GETRANGE" in line for line in lines) < sharded.count:
            lines.append(bytes(monitor.read()))
        seen = sorted(line.partition(b"] ")[2] for line in lines if b"probe" not in line and b"GETRANGE" not in line)
        wanted = sorted(" ".join(f'"{word}"' for word in request).encode() for request in requests)
        assert seen == wanted
        monitor.close()


def test_clients_are_listed_and_killed_wherever_they_are(sharded: Sharded) -> None:
    for _ in range(sharded.count):
        home = sharded.wire()
        others = [sharded.wire() for _ in range(2 * sharded.count)]
        for other in others:
            other.ask_all([["MGET", *sharded.spread()], ["CLIENT", "SETNAME", "other"]])
        numbers = {str(other.ask("CLIENT", "ID")) for other in others}
        assert len(numbers) == len(others)
        listed = [line for line in bytes(home.ask("CLIENT", "LIST")).decode().splitlines() if "name=other" in line]
        assert {line.split()[0].removeprefix("id=") for line in listed} == numbers
        assert home.ask("CLIENT", "KILL", "ID", str(others[0].ask("CLIENT", "ID"))) == 1
        address = "{}:{}".format(*others[1].socket.getsockname())
        assert home.ask("CLIENT", "KILL", address) == b"+OK"
        assert home.ask("CLIENT", "KILL", address) == b"-ERR No such client"
        assert others[0].is_closed() and others[1].is_closed()
        assert int(str(home.ask("CLIENT", "KILL", "TYPE", "normal"))) >= len(others) - 2
        assert all(other.is_closed() for other in others[2:])
        connected(home, 1)
        assert bytes(home.ask("CLIENT", "LIST")).count(b"\n") == 1
        assert home.ask("CLIENT", "KILL", "ID", str(home.ask("CLIENT", "ID")), "SKIPME", "NO") == 1
        assert home.is_closed()


def test_pauses_hold_up_every_shard(sharded: Sharded) -> None:
    for home in sharded.homes():
        others = [sharded.wire() for _ in range(sharded.count)]
        assert home.ask("CLIENT", "PAUSE", "100000", "WRITE") == b"+OK"
        for number, other in enumerate(others):
            for key in sharded.spread():
                assert other.ask("GET", key) is None
            other.send_all([["SET", key, str(number)] for key in sharded.spread(f"w{number}")])
        assert home.ask("MGET", *sharded.spread("w0"), *sharded.spread("w1")) == [None] * 2 * sharded.count
        assert home.ask("CLIENT", "UNPAUSE") == b"+OK"
        for number, other in enumerate(others):
            assert [other.read() for _ in sharded.tags] == [b"+OK"] * sharded.count
            assert home.ask("MGET", *sharded.spread(f"w{number}")) == [str(number).encode()] * sharded.count
        home.ask("FLUSHALL")
        home.close()


def test_a_password_is_asked_for_once(serve: Callable[..., Store]) -> None:
    store = serve("--shards", "2", "--requirepass", "secret")
    for _ in range(2):
        wire = Wire(store.connect)
        for number in range(10):
            assert bytes(wire.ask("GET", f"k{number}")).startswith(b"-NOAUTH")
        assert bytes(wire.ask("DBSIZE")).startswith(b"-NOAUTH")
        assert bytes(wire.ask("MGET", *(f"k{number}" for number in range(9)))).startswith(b"-NOAUTH")
        assert wire.ask("AUTH", "secret") == b"+OK"
        assert wire.ask("MGET", *(f"k{number}" for number in range(10))) == [None] * 10
        wire.ask("RESET")
        assert bytes(wire.ask("DBSIZE")).startswith(b"-NOAUTH")
        wire.close()


def test_who_does_not_read_keeps_nobody_from_telling_all_shards(serve: Callable[..., Store]) -> None:
    sharded = Sharded(serve("--shards", "2", "--tier", "dram=400MiB"), 2)
    idle = []
    for key in sharded.spread("large"):
        with redis.Redis(port=sharded.store.port, socket_timeout=PATIENCE_S) as client:
            for at in range(4):
                client.set(f"{key}{at}", b"x" * 6_000_000)
        for _ in range(4):
            # Wherever it is at home, the replies that nobody reads stand before that of CONFIG SET.
            wire = sharded.wire()
            wire.send_all([*(["GET", f"{key}{at}"] for at in range(4)), ["CONFIG", "SET", "slowlog-max-len", "100"]])
            idle.append(wire)
    other = sharded.wire()
    for _ in range(5):
        assert other.ask("CONFIG", "SET", "slowlog-max-len", "90") == b"+OK"
        assert other.ask("CLIENT", "PAUSE", "1") == b"+OK"
    assert other.ask("FLUSHALL") == b"+OK"
    for wire in idle:
        wire.close()
    other.close()


# Flash.


def on_flash(path: pathlib.Path, count: int) -> list[str]:
    return [
        "--shards",
        str(count),
        "--tier",
        "dram=64MiB",
        "--tier",
        f"flash:{path}=256MiB",
    ]


VALUES = {f"k{number}": bytes([number % 251]) * 4000 for number in range(20_000)}


def fill(store: Store) -> None:
    with redis.Redis(port=store.port, socket_timeout=PATIENCE_S) as client:
        for start in range(0, len(VALUES), 1000):
            with client.pipeline(transaction=False) as pipeline:
                for key in list(VALUES)[start : start + 1000]:
                    pipeline.set(key, VALUES[key])
                pipeline.execute()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_items_on_flash_survive(serve: Callable[..., Store], tmp_path: pathlib.Path, end: int) -> None:
    flags = on_flash(tmp_path / "flash", 3)
    store = serve(*flags)
    fill(store)
    sharded = Sharded(store, 3)
    for home in sharded.homes():
        found = {}
        cursor = b"0"
        while True:
            cursor, keys = home.ask("SCAN", cursor, "COUNT", "1000")
            found.update(dict.fromkeys(keys))
            if cursor == b"0":
                break
        size = home.ask("DBSIZE")
        assert len(found) == size, "whoever scans sees what lies on flash, wherever it is at home"
        names = [key.decode() for key in list(found)[::97]]
        assert home.ask("MGET", *names) == [VALUES[name] for name in names]
    flash = next(tier["items"] for tier in store.snapshot()["engine"]["tiers"] if tier["kind"] == "flash")
    assert flash > 1000
    # However slow the device is, it is given the time to take what it was given, but for an open segment of each shard.
    wire = sharded.wire()
    eventually(lambda: int(info(wire, "tiers")["flash_recoverable_items"]) > flash // 2, "half of it is on the device")
    store.process.send_signal(end)
    store.process.wait(PATIENCE_S)
    again = Sharded(serve(*flags), 3)
    recovered = again.wire().ask("DBSIZE")
    # What lay in DRAM is gone.
    assert isinstance(recovered, int) and recovered > (flash * 9 // 10 if end == signal.SIGTERM else flash // 2)
    for home in again.homes():
        names = list(VALUES)[::53]
        for name, value in zip(names, home.ask("MGET", *names), strict=True):
            assert value in (VALUES[name], None)
        assert sum(value is not None for value in home.ask("MGET", *names)) > 10


def test_another_number_of_shards_is_refused(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "flash"
    store = serve(*on_flash(path, 2))
    fill(store)
    assert store.stop() == 0
    for count in (1, 3):
        refused = tiermem(
            "store",
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
            *on_flash(path, count),
        )
        assert refused.returncode == 1
        # It says what to do: how many shards it was, and how to begin anew.
        assert "shards" in refused.stderr and "--reset" in refused.stderr, refused.stderr
    with redis.Redis(port=serve(*on_flash(path, 2)).port) as client:
        assert client.dbsize() > 1000
