"""CONFIG: what changes while the store runs, and what of it survives a restart."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable

import pytest
import redis

from store import PATIENCE_S, Store, eventually, tiermem

FILE = """\
# Written by a person.
[server]
maxclients = 200        # plenty
requirepass = "first"

[config]
stall-timeout-ms = 2500

[[tier]]
name = "dram"
kind = "dram"
capacity = "32MiB"      # small
"""


def connect(store: Store, password: str | None = None) -> redis.Redis:
    return redis.Redis(port=store.port, password=password, socket_timeout=PATIENCE_S, decode_responses=True)


def test_what_is_set_holds_and_is_rewritten(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "store.toml"
    path.write_text(FILE)
    store = serve("--config", str(path))
    with connect(store, "first") as client:
        assert client.config_get("stall-timeout-ms") == {"stall-timeout-ms": "2500"}
        assert client.config_rewrite()
        assert path.read_text() == FILE
        assert client.config_set("requirepass", "second", "maxclients", 150, "maxmemory-policy", "noeviction")
        assert client.config_set("policy-low-watermark", "0.01")
        assert client.config_rewrite()
    text = path.read_text()
    for line in ("# Written by a person.", "maxclients = 150        # plenty", 'requirepass = "second"', "# small"):
        assert line in text
    with connect(store, "first") as client, pytest.raises(redis.AuthenticationError):
        client.ping()
    store.close()
    again = serve("--config", str(path))
    with connect(again, "second") as client:
        told = client.config_get("*")
        assert told["maxclients"] == "150"
        assert told["maxmemory-policy"] == "noeviction"
        assert told["policy-low-watermark"] == "0.01"


def test_the_limit_of_clients_moves(serve: Callable[..., Store]) -> None:
    store = serve()
    with connect(store) as client:
        assert client.config_set("maxclients", 1)
        with connect(store) as other, pytest.raises(redis.ConnectionError, match="max number of clients"):
            other.ping()
        assert client.config_set("maxclients", 2)
        with connect(store) as other:
            assert other.ping()
        with pytest.raises(redis.ResponseError, match="open files are needed"):
            client.config_set("maxclients", 4_000_000_000)
        assert client.config_get("maxclients") == {"maxclients": "2"}


def test_the_log_says_more_when_told_to(serve: Callable[..., Store]) -> None:
    store = serve()
    with connect(store) as client:
        assert client.config_set("loglevel", "debug", "request-buffer", 1 << 20, "stall-timeout-ms", 100)
        # Large requests that stop midway fill the buffer; one that stands in the way of the next is dropped, which is
        # told at debug level.
        half = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n" + bytes(500_000)
        with contextlib.ExitStack() as stack:

            def is_told() -> bool:
                # It may be dropped while it still sends, where this process does not get its turn.
                with contextlib.suppress(OSError):
                    stack.enter_context(store.connect()).sendall(half)
                return "its request stood still" in store.log()

            eventually(is_told, "a stalled request was told of")


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_nobody_outside_is_let_in_without_a_password(serve: Callable[..., Store], address: str) -> None:
    done = tiermem("store", "serve", "--listen", address, "--tier", "dram=16MiB")
    assert done.returncode == 2, done.stderr
    assert "--requirepass" in done.stderr and "--protected-mode no" in done.stderr


@pytest.mark.parametrize("flags", [("--protected-mode", "no"), ("--requirepass", "secret")])
def test_it_listens_outside_when_told_to(serve: Callable[..., Store], flags: tuple[str, str]) -> None:
    store = serve("--listen", "0.0.0.0:0", *flags)
    with connect(store, "secret" if flags[0] == "--requirepass" else None) as client:
        assert client.ping()
        assert client.config_get("bind") == {"bind": "0.0.0.0"}
