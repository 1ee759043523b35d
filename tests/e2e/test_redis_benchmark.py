"""redis-benchmark runs to its end without an error reply."""

from __future__ import annotations

import pathlib
import re
import subprocess
from collections.abc import Callable

import redis

from programs import tool
from store import PATIENCE_S, Store


def benchmark(*arguments: str) -> str:
    program = tool("redis-benchmark")
    done = subprocess.run(
        [program, "-q", *arguments], capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False
    )
    assert done.returncode == 0, done
    # It prints error replies and goes on; and it overwrites its own lines.
    said = (done.stdout + done.stderr).replace("\r", "\n")
    assert "rror" not in said, said
    return said


def finished(said: str) -> set[str]:
    return set(re.findall(r"^(\w+).*: [0-9.]+ requests per second", said, re.MULTILINE))


def test_pipelined(store: Store) -> None:
    said = benchmark("-p", str(store.port), "-t", "set,get,incr,mset", "-P", "16", "-n", "40000", "-r", "5000")
    assert finished(said) == {"SET", "GET", "INCR", "MSET"}, said
    with redis.Redis(port=store.port) as client:
        assert 1000 < client.dbsize() <= 10_001


def test_one_request_at_a_time(store: Store) -> None:
    said = benchmark("-p", str(store.port), "-t", "ping,set,get", "-n", "10000", "-c", "20", "-d", "4000")
    assert finished(said) == {"PING_INLINE", "PING_MBULK", "SET", "GET"}, said


# The default set's tests by the command that each needs, and under the names that it prints.
DEFAULT_SET = {
    "ping": {"PING_INLINE", "PING_MBULK"},
    "set": {"SET"},
    "get": {"GET"},
    "incr": {"INCR"},
    "hset": {"HSET"},
    "mset": {"MSET"},
}


def test_the_default_set_as_far_as_it_goes(store: Store) -> None:
    with redis.Redis(port=store.port, decode_responses=True) as client:
        commands = set(client.command_list())
    supported = {name: prints for name, prints in DEFAULT_SET.items() if name in commands}
    assert supported.keys() >= {"ping", "set", "get", "incr", "mset"}
    for flags in ((), ("-P", "16"), ("-3",)):
        said = benchmark("-p", str(store.port), "-t", ",".join(supported), "-n", "5000", "-r", "1000", *flags)
        assert finished(said) == set().union(*supported.values()), said


def test_over_a_unix_socket(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "socket")
    serve("--unix-socket", path, "--requirepass", "secret")
    said = benchmark("-s", path, "-a", "secret", "-t", "set,get", "-P", "16", "-n", "20000")
    assert finished(said) == {"SET", "GET"}, said
