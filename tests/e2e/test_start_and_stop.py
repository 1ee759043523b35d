"""Starting well and badly, and stopping."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import subprocess
from collections.abc import Callable

import pytest
import redis

from store import PATIENCE_S, Store, binary, eventually, tiermem


def test_help_has_an_example_for_every_command() -> None:
    """Walks the whole tree of commands as `--help` shows it."""
    found = []

    def visit(command: list[str]) -> None:
        done = tiermem(*command, "--help")
        assert done.returncode == 0, done
        _, has_examples, examples = done.stdout.partition("\nExample")
        assert has_examples, f"{command}: {done.stdout}"
        assert " ".join(["tiermem", *command]) in examples, f"{command}: {examples}"
        found.append(" ".join(command))
        _, _, listed = done.stdout.partition("\nCommands:\n")
        for line in listed.partition("\n\n")[0].splitlines():
            # Longer explanations go on in lines that stand further in.
            if line.startswith("  ") and line[2] != " " and (name := line.split()[0]) != "help":
                visit([*command, name])

    visit([])
    assert {"store serve", "store replay", "store bench", "sim cache"} <= set(found)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["serve"], "unrecognized subcommand"),
        (["store", "serve", "--port", "1"], "unexpected argument '--port'"),
        (["store", "serve", "--listen", "nowhere"], "invalid value 'nowhere' for '--listen"),
        (["store", "serve", "--shards", "0"], "shards: must be between 1 and 256"),
        (["store", "serve", "--shards", "257"], "shards: must be between 1 and 256"),
        (["store", "serve", "--shards", "2", "--tier", "dram=8MiB", "--tier", "dax:x=8MiB"], "kind dax serves one shard"),
        (["store", "serve", "--requirepass", ""], "server.requirepass: is empty"),
        (["store", "serve", "--tier", "tape=1GiB"], '"tape" is not a kind of tier; there are dram'),
        (["store", "serve", "--tier", "dram"], "write it as kind=size"),
        (["store", "serve", "--tier", "dram=much"], "is not a size"),
        (["store", "serve", "--tier", "dram=0"], "its capacity is zero"),
        (["store", "serve", "--tier", "emulated=1GiB"], "tier 0 must be of kind dram"),
        (["store", "serve", "--tier", "dram=1GiB", "--tier", "numa=1GiB"], "has a node"),
        (["store", "serve", "--tier", "dram=1GiB", "--tier", "dram=1GiB"], "another tier has that name"),
        (["store", "serve", "--tier", "dram=4KiB"], "too small"),
        (["store", "serve", "--config", "/nonexistent"], "cannot read the configuration /nonexistent"),
        (["store", "replay", "zipf", "--to", "nowhere"], "an address is HOST:PORT"),
        (["sim", "cache", "zipf"], "--size <N>"),
    ],
    ids=lambda it: " ".join(it) if isinstance(it, list) else "",
)
def test_wrong_use_exits_with_2(arguments: list[str], says: str) -> None:
    done = tiermem(*arguments)
    assert done.returncode == 2, done
    assert says in done.stderr, done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("colour = 1\n", "unknown field `colour`"),
        ("[server]\nport = 1\n", "unknown field `port`"),
        ("[[tier]]\nname = 'a'\nkind = 'dram'\ncapacity = '1GiB'\nspeed = 1\n", "unknown field `speed`"),
        ("[[tier]]\nname = 'a'\nkind = 'dram'\n", "capacity: is missing"),
        ("max_value = '1TiB'\n", "max_value: must lie between"),
        ("[server\n", "line 1"),
        ("\x00\x01", "is not valid"),
    ],
)
def test_a_bad_configuration_exits_with_2(tmp_path: pathlib.Path, text: str, says: str) -> None:
    path = tmp_path / "tiermem.toml"
    path.write_text(text)
    done = tiermem("store", "serve", "--config", str(path))
    assert done.returncode == 2, done
    assert says in done.stderr and ("max_value" in text or str(path) in done.stderr), done.stderr


def test_tiers_beyond_memory_are_refused() -> None:
    total_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 30
    half_gib = total_gib // 2 + 1
    if half_gib >= 64:
        pytest.skip("one shard cannot address more than this machine has")
    done = tiermem("store", "serve", "--tier", f"dram={half_gib}GiB", "--tier", f"emulated={half_gib}GiB")
    assert done.returncode == 2, done
    assert f"the tiers need {2 * half_gib}" in done.stderr or "the tiers need" in done.stderr
    assert "make the tiers smaller, or raise the limit" in done.stderr, done.stderr


def test_a_configuration_file_is_followed(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "tiermem.toml"
    path.write_text(
        """
        max_value = "1KiB"
        [server]
        requirepass = "secret"
        maxclients = 2
        [[tier]]
        name = "near"
        kind = "dram"
        capacity = "16MiB"
        [[tier]]
        name = "far"
        kind = "emulated"
        capacity = "32MiB"
        read_latency = "400ns"
        write_latency = "500ns"
        bandwidth = "10GB/s"
        """
    )
    store = serve("--config", str(path))
    with redis.Redis(port=store.port, password="secret") as client:
        assert client.set("a", "x" * 1024)
        with pytest.raises(redis.ResponseError, match="limit of 1024 bytes"):
            client.set("a", "x" * 1025)
        with store.connect(), redis.Redis(port=store.port, password="secret") as third:
            with pytest.raises(redis.ConnectionError, match="max number of clients"):
                third.ping()
    tiers = store.snapshot()["engine"]["tiers"]
    assert [(tier["name"], tier["capacity_bytes"] >> 20) for tier in tiers] == [("near", 16), ("far", 32)]


@pytest.mark.parametrize("flag", ["--listen", "--http"])
def test_a_port_in_use_exits_with_1(flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ports = {"--listen": "127.0.0.1:0", "--http": "127.0.0.1:0", flag: address}
        done = tiermem("store", "serve", *(word for pair in ports.items() for word in pair))
    assert done.returncode == 1, done
    assert f"{address} is in use: stop what listens there, or choose another" in done.stderr


def test_a_unix_socket_in_use_exits_with_1(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "socket"
    first = serve("--unix-socket", str(path))
    done = tiermem("store", "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--unix-socket", str(path))
    assert done.returncode == 1, done
    assert "is in use by another process" in done.stderr
    # The first one is not disturbed; and what a killed one leaves behind stands in nobody's way.
    with redis.Redis(unix_socket_path=str(path)) as client:
        assert client.ping()
    first.process.kill()
    first.process.wait()
    assert path.exists()
    serve("--unix-socket", str(path))
    with redis.Redis(unix_socket_path=str(path)) as client:
        assert client.ping()
    plain = tmp_path / "file"
    plain.write_text("precious")
    done = tiermem("store", "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--unix-socket", str(plain))
    assert done.returncode == 1, done
    assert "exists and is not a socket" in done.stderr
    assert plain.read_text() == "precious"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(serve: Callable[..., Store], tmp_path: pathlib.Path, number: int) -> None:
    path = tmp_path / "socket"
    store = serve("--unix-socket", str(path))
    with redis.Redis(port=store.port) as client, store.connect() as idle:
        client.set("a", 1)
        half = store.connect()
        half.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$100\r\nunfinished")
        assert store.stop(number) == 0
        assert idle.recv(1) == b""
        half.close()
    assert "stopping" in store.log() and "stopped" in store.log()
    assert not path.exists()
    with pytest.raises(ConnectionRefusedError):
        store.connect()


@pytest.mark.parametrize("numbers", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM)])
def test_a_second_signal_ends_it_at_once(numbers: tuple[int, int]) -> None:
    """Whatever holds it up: here nobody reads its log, so it waits before it has stopped."""
    reader, writer = os.pipe()
    ports = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    process = subprocess.Popen([binary(), "store", "serve", *ports], stdout=subprocess.PIPE, stderr=writer)
    try:
        assert process.stdout is not None
        while b"live page" not in process.stdout.readline():
            assert process.poll() is None
        os.set_blocking(writer, False)
        with pytest.raises(BlockingIOError):
            while True:
                os.write(writer, b"x")
        os.set_blocking(writer, True)
        process.send_signal(numbers[0])

        def ends() -> bool:
            process.send_signal(numbers[1])
            return process.poll() is not None

        eventually(ends, "it has ended")
        assert process.returncode == 1
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        os.close(reader)
        os.close(writer)


def test_it_stops_while_it_is_busy(serve: Callable[..., Store]) -> None:
    store = serve()
    with store.connect() as writer:
        writer.sendall(b"SET a 1\r\n" * 100_000)
        assert store.stop() == 0


def test_it_starts_again_on_the_same_ports(serve: Callable[..., Store]) -> None:
    """Connections that linger after a stop must not keep the next process from the port."""
    first = serve()
    with redis.Redis(port=first.port) as client:
        client.set("a", 1)
        assert first.stop() == 0
        second = subprocess.Popen(
            [binary(), "store", "serve", "--listen", f"127.0.0.1:{first.port}", "--http", "127.0.0.1:0"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            def answers() -> bool:
                try:
                    return client.ping()
                except redis.ConnectionError:
                    assert second.poll() is None, "the second one does not start"
                    return False

            eventually(answers, "the second process answers")
            assert client.get("a") is None, "memory promises nothing over a restart"
        finally:
            second.terminate()
            assert second.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_nobody_needs_to_read_what_it_prints(stream: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    reader, writer = os.pipe()
    os.close(reader)
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: writer}
    process = subprocess.Popen(
        [binary(), "store", "serve", "--listen", f"127.0.0.1:{port}", "--http", "127.0.0.1:0"], **streams
    )
    os.close(writer)
    try:
        def answers() -> bool:
            assert process.poll() is None, f"ended with {process.returncode}"
            try:
                with redis.Redis(port=port) as client:
                    return client.ping()
            except redis.ConnectionError:
                return False

        eventually(answers, "it answers")
    finally:
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
