"""redis-cli, as it is installed on most machines."""

from __future__ import annotations

import pytest

from programs import RedisCli
from store import Store


def test_set_and_get(cli: RedisCli) -> None:
    assert cli("set", "greeting", "hello").stdout == "OK\n"
    assert cli("get", "greeting").stdout == "hello\n"
    assert cli("get", "nothing").stdout == "\n"
    assert cli("del", "greeting").stdout == "1\n"


def test_a_value_from_standard_input(cli: RedisCli) -> None:
    value = bytes(range(256)) * 300
    assert cli("-x", "set", "binary", input=value, text=False).stdout == b"OK\n"
    assert cli("--raw", "get", "binary", text=False).stdout == value + b"\n"


def test_resp3(cli: RedisCli) -> None:
    cli("set", "number", "3.5")
    assert cli("-3", "get", "number").stdout == "3.5\n"
    hello = cli("-3", "--json", "hello")
    assert '"proto":3' in hello.stdout, hello.stdout


def test_mass_insertion(cli: RedisCli) -> None:
    requests = "".join(
        f"*3\r\n$3\r\nSET\r\n${len(f'key:{n}')}\r\nkey:{n}\r\n${len(str(n))}\r\n{n}\r\n" for n in range(20_000)
    )
    piped = cli("--pipe", input=requests)
    assert "errors: 0, replies: 20000" in piped.stdout, piped
    assert cli("dbsize").stdout == "20000\n"
    assert cli("get", "key:19999").stdout == "19999\n"
    inline = cli("--pipe", input="SET inline 1\r\nINCR inline\r\n")
    assert "errors: 0, replies: 2" in inline.stdout, inline
    assert cli("get", "inline").stdout == "2\n"


def test_scan(cli: RedisCli) -> None:
    names = {f"user:{n}" for n in range(2000)}
    cli("--pipe", input="".join(f"SET {name} x\r\nSET other:{name} y\r\n" for name in names))
    assert set(cli("--scan", "--pattern", "user:*").stdout.split()) == names
    assert len(set(cli("--scan").stdout.split())) == 4000


def test_the_biggest_keys_are_found(cli: RedisCli) -> None:
    cli("--pipe", input="".join(f"SET small:{n} {n}\r\n" for n in range(500)))
    cli("-x", "set", "large", input="x" * 100_000)
    for flag in ("--bigkeys", "--memkeys"):
        found = cli(flag)
        assert found.returncode == 0, found
        assert "Sampled 501 keys in the keyspace" in found.stdout, found.stdout
        assert "Biggest string found '\"large\"'" in found.stdout, found.stdout


def test_expiry(cli: RedisCli) -> None:
    assert cli("set", "soon", "x", "ex", "1000").stdout == "OK\n"
    assert 900 < int(cli("ttl", "soon").stdout) <= 1000
    assert cli("persist", "soon").stdout == "1\n"
    assert cli("ttl", "soon").stdout == "-1\n"
    assert cli("ttl", "nothing").stdout == "-2\n"


@pytest.mark.parametrize(
    ("request_line", "error"),
    [
        (["lpush", "a", "b"], "ERR unknown command 'lpush', with args beginning with: 'a' 'b'"),
        (["get"], "ERR wrong number of arguments for 'get' command"),
        (["set", "a", "b", "ex", "0"], "ERR invalid expire time in 'set' command"),
        (["incr", "word"], "ERR value is not an integer or out of range"),
        (["select", "99"], "ERR DB index is out of range"),
    ],
)
def test_errors_are_those_of_redis(cli: RedisCli, request_line: list[str], error: str) -> None:
    cli("set", "word", "seven")
    assert cli(*request_line).stdout.strip() == error


def test_the_server_describes_itself(cli: RedisCli) -> None:
    info = cli("info").stdout
    for line in ("redis_version:", "tcp_port:", "used_memory:", "connected_clients:", "keyspace_hits:"):
        assert f"\n{line}" in info.replace("\r", ""), info
    assert cli("config", "get", "maxmemory-policy").stdout.split()[0] == "maxmemory-policy"
    assert int(cli("command", "count").stdout) > 50


def test_an_interactive_session(cli: RedisCli) -> None:
    session = cli(input="set a 1\nincr a\nappend a 0\nget a\n")
    assert session.stdout == "OK\n2\n2\n20\n", session


def test_inline_requests_by_hand(store: Store) -> None:
    assert store.ask(b"PING\r\n", b"\r\n") == b"+PONG\r\n"
    assert store.ask(b'SET "two words" \'and a value\'\nGET "two words"\nQUIT\n', b"+OK\r\n$11\r\nand a value\r\n+OK\r\n")
    assert store.ask(b"GET 'open\r\n", b"\r\n") == b"-ERR Protocol error: unbalanced quotes in request\r\n"
