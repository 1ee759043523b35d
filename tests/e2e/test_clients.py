"""What one client does to another: transactions, channels, tracking, monitoring, kills and pauses.

What both servers can be asked is compared in test_dialogues.py."""

from __future__ import annotations

import contextlib
import pathlib
import resource
import socket
import subprocess
from collections.abc import Callable

import pytest
import redis

from programs import tool
from sharding import one_shard
from store import MIB, PATIENCE_S, SHARDS, Store, eventually, tiermem
from test_limits import DRAM, SLOW, TIERS, stays_within
from wire import Wire


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


@one_shard
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
        assert client.rename("a", "{a}b") and client.copy("{a}b", "{a}c")
        assert client.client_pause(50, all=False) and client.set("a", 1)
        assert client.client_kill_filter(_id=other.client_id()) == 1
        with client.monitor() as monitor:
            other.set("seen", 1)
            while "SET seen" not in (seen := monitor.next_command()["command"]):
                assert "CLIENT" in seen, seen


def test_a_transaction_reads_what_lies_on_flash(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    config = tmp_path / "tiermem.toml"
    config.write_text(
        f"""
        [[tier]]
        name = "dram"
        kind = "dram"
        capacity = "{32 * SHARDS}MiB"
        [[tier]]
        name = "flash"
        kind = "flash"
        path = "{tmp_path / "flash"}"
        capacity = "{256 * SHARDS}MiB"
        admission = "all"
        """
    )
    store = serve("--config", str(config))
    value = {number: bytes([number % 251]) * 20_000 for number in range(4000)}
    with redis.Redis(port=store.port, socket_timeout=PATIENCE_S) as client, redis.Redis(port=store.port) as other:
        for number, text in value.items():
            client.set(f"{{k}}{number}", text)
        assert client.dbsize() == len(value), "nothing was lost on the way"
        with client.pipeline(transaction=True) as pipeline:
            numbers = range(0, 4000, 200)
            for number in numbers:
                pipeline.get(f"{{k}}{number}")
            pipeline.strlen("{k}1").append("{k}1", "!").strlen("{k}1").delete("{k}2").exists("{k}2")
            assert pipeline.execute() == [value[number] for number in numbers] + [20_000, 20_001, 20_001, 1, 0]
        # A watched key that lies on flash, and what others do to it there.
        for act, void in ((lambda: other.get("{k}3"), False), (lambda: other.delete("{k}3"), True)):
            with client.pipeline(transaction=True) as pipeline:
                pipeline.watch("{k}3")
                for number in range(1000, 3000):
                    other.get(f"{{k}}{number}")
                act()
                pipeline.multi()
                pipeline.strlen("{k}3")
                if void:
                    with pytest.raises(redis.WatchError):
                        pipeline.execute()
                else:
                    assert pipeline.execute() == [20_000]
        # Few keys can be read at once, many cannot.
        assert len(client.keys("*")) == client.dbsize()
        with client.pipeline(transaction=False) as pipeline:
            for number in range(20_000 * SHARDS):
                pipeline.set(f"s{number}", bytes(4000))
            pipeline.execute()
        with pytest.raises(redis.ResponseError, match="use SCAN"):
            client.keys("*")
