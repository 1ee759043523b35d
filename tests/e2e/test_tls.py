"""TLS: clients with and without certificates, a certificate exchanged while the store runs, and what breaks."""

from __future__ import annotations

import pathlib
import re
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable

import pytest
import redis

from authority import Authority
from programs import tool
from store import PATIENCE_S, Store, eventually, tiermem


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def start(serve: Callable[..., Store], cert: pathlib.Path, key: pathlib.Path, *flags: str) -> tuple[Store, int]:
    """A store that speaks TLS, and the port where it does."""
    store = serve("--tls-listen", "127.0.0.1:0", "--tls-cert", str(cert), "--tls-key", str(key), *flags)
    port = re.search(r"^redis-cli --tls -p (\d+)$", store.said, re.MULTILINE)
    assert port, store.said
    return store, int(port[1])


def connect(port: int, authority: Authority, **more: object) -> redis.Redis:
    return redis.Redis(port=port, ssl=True, ssl_ca_certs=str(authority.ca), socket_timeout=PATIENCE_S, **more)


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py(serve: Callable[..., Store], authority: Authority, protocol: int) -> None:
    store, port = start(serve, *authority.issue("first"))
    with connect(port, authority, protocol=protocol) as client, redis.Redis(port=store.port) as plain:
        assert client.set("greeting", "hello")
        assert plain.get("greeting") == b"hello"
        long = bytes(range(256)) * 40_000
        assert client.set("long", long) and client.get("long") == long
        with client.pipeline(transaction=False) as pipeline:
            for number in range(3000):
                pipeline.set(f"key:{number}", number)
            for number in range(3000):
                pipeline.get(f"key:{number}")
            assert pipeline.execute()[3000:] == [str(number).encode() for number in range(3000)]
        assert str(port) in str(client.config_get("tls-port"))


def test_redis_tools(serve: Callable[..., Store], authority: Authority) -> None:
    _, port = start(serve, *authority.issue("first"))
    flags = ["--tls", "--cacert", str(authority.ca), "-p", str(port)]
    done = subprocess.run([tool("redis-cli"), *flags, "set", "a", "1"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout.strip() == "OK", done
    arguments = [tool("redis-benchmark"), *flags, "-q", "-t", "set,get", "-n", "5000", "-P", "16", "-d", "2000"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0 and "rror" not in done.stdout + done.stderr, done


def test_all_replies_come_before_the_end(serve: Callable[..., Store], authority: Authority) -> None:
    """A client that asks for more than the buffers hold, takes leave, and only then reads."""
    _, port = start(serve, *authority.issue("first"), "--tier", "dram=64MiB")
    value = b"v" * 100_000
    with connect(port, authority) as client:
        client.set("k", value)
    context = ssl.create_default_context(cafile=str(authority.ca))
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as raw:
        with context.wrap_socket(raw, server_hostname="127.0.0.1") as client:
            client.sendall(b"GET k\r\n" * 100 + b"QUIT\r\n")
            answer = bytearray()
            # The end is told, so that it cannot be taken for a cut: no error here.
            while more := client.recv(1 << 16):
                answer += more
    assert bytes(answer) == (b"$100000\r\n" + value + b"\r\n") * 100 + b"+OK\r\n"


def test_clients_show_certificates_where_they_must(serve: Callable[..., Store], authority: Authority) -> None:
    # A certificate that was asked for is as good as a password: listening beyond this machine is allowed.
    cert, key = authority.issue("first")
    store = serve("--tls-listen", "0.0.0.0:0", "--tls-cert", str(cert), "--tls-key", str(key),
                  "--tls-client-ca", str(authority.ca))
    port = int(re.search(r"--tls -p (\d+)$", store.said, re.MULTILINE)[1])
    with connect(port, authority) as client, pytest.raises(redis.ConnectionError):
        client.ping()
    cert, key = authority.issue("client")
    with connect(port, authority, ssl_certfile=str(cert), ssl_keyfile=str(key)) as client:
        assert client.ping()


def test_a_new_certificate_is_taken_up(serve: Callable[..., Store], authority: Authority) -> None:
    cert, key = authority.issue("first")
    own_cert, own_key = authority.directory / "own.pem", authority.directory / "own.key"
    own_cert.write_bytes(cert.read_bytes())
    own_key.write_bytes(key.read_bytes())
    store, port = start(serve, own_cert, own_key)

    def shown() -> str:
        return ssl.get_server_certificate(("127.0.0.1", port), timeout=PATIENCE_S)

    with connect(port, authority) as open_before:
        assert open_before.ping()
        before = shown()
        own_cert.write_text("nonsense")
        store.process.send_signal(signal.SIGHUP)
        eventually(lambda: "kept as it was" in store.log(), "the broken certificate was told of")
        assert shown() == before
        cert, key = authority.issue("second")
        own_cert.write_bytes(cert.read_bytes())
        own_key.write_bytes(key.read_bytes())
        store.process.send_signal(signal.SIGHUP)
        eventually(lambda: shown() != before, "the new certificate was shown")
        assert open_before.ping()


def test_who_does_not_speak_it_is_dropped(serve: Callable[..., Store], authority: Authority) -> None:
    _, port = start(serve, *authority.issue("first"))
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
        client.sendall(b"PING\r\n" * 100)
        answer = b""
        while True:
            try:
                more = client.recv(1 << 16)
            except ConnectionResetError:
                break
            if not more:
                break
            answer += more
        assert b"PONG" not in answer
    with connect(port, authority) as client:
        assert client.ping()


def test_mistakes_are_told(authority: Authority) -> None:
    cert, key = authority.issue("first")
    _, other_key = authority.issue("other")
    listen = ["store", "serve", "--tier", "dram=16MiB", "--listen", "127.0.0.1:0", "--tls-listen"]
    for flags, says in [
        (["127.0.0.1:0"], "--tls-cert"),
        (["127.0.0.1:0", "--tls-cert", str(cert), "--tls-key", str(other_key)], "is it the key of"),
        (["127.0.0.1:0", "--tls-cert", "/nowhere", "--tls-key", str(key)], "/nowhere"),
        (["127.0.0.1:0", "--tls-cert", str(key), "--tls-key", str(key)], "no certificate"),
        (["0.0.0.0:0", "--tls-cert", str(cert), "--tls-key", str(key)], "--requirepass"),
    ]:
        done = tiermem(*listen, *flags)
        assert done.returncode in (1, 2) and says in done.stderr, (flags, done)
