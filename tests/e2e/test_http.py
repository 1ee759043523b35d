"""The HTTP port: metrics, readiness, and the live page in a real browser."""

from __future__ import annotations

import pathlib
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
import redis

from browser import visit
from programs import tool
from store import PATIENCE_S, Store, eventually

METRIC = re.compile(r'^tiermem_\w+(\{(\w+="[^"]*",?)+\})? ([-+0-9.e]+|NaN|\+Inf)$')


def sample(store: Store, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", store.get("/metrics"), re.MULTILINE)
    assert found, f"{name} is not among the metrics"
    return float(found[1])


def test_ready(store: Store) -> None:
    eventually(lambda: store.get("/ready"), "it is ready")


def test_metrics_are_well_formed_and_count(store: Store) -> None:
    for line in store.get("/metrics").splitlines():
        assert line.startswith(("# HELP tiermem_", "# TYPE tiermem_")) or METRIC.match(line), line
    gets, hits = sample(store, "tiermem_gets_total"), sample(store, "tiermem_hits_total")
    with redis.Redis(port=store.port) as client:
        client.set("a", 1)
        for _ in range(10):
            client.get("a")
        client.get("nothing")
    eventually(lambda: sample(store, "tiermem_gets_total") == gets + 11, "look-ups are counted")
    assert sample(store, "tiermem_hits_total") == hits + 10
    assert sample(store, 'tiermem_tier_items{tier="dram",kind="dram"}') == 1
    assert sample(store, 'tiermem_tier_capacity_bytes{tier="cxl",kind="emulated"}') == 2 << 30
    assert sample(store, 'tiermem_request_duration_seconds_bucket{le="+Inf"}') > 0


def test_the_snapshot_agrees_with_info(store: Store) -> None:
    with redis.Redis(port=store.port) as client:
        client.mset({f"k{n}": "x" * 100 for n in range(100)})
        assert client.info("keyspace")["db0"]["keys"] == 100
    eventually(lambda: store.snapshot()["engine"]["keys"] == 100, "the snapshot has the keys")


@pytest.mark.parametrize(("path", "code"), [("/nothing", 404), ("/page/../../secret", 404)])
def test_what_is_not_there(store: Store, path: str, code: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        store.get(path)
    assert caught.value.code == code


def test_nothing_can_be_written(store: Store) -> None:
    request = urllib.request.Request(store.page + "metrics", data=b"x", method="POST")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=PATIENCE_S)
    assert caught.value.code == 405


def test_slow_clients_keep_nobody_out(store: Store) -> None:
    """More of them than the port takes; each sends a bit of a request again and again, and comes back when it is dropped."""
    address = (urlsplit(store.page).hostname, urlsplit(store.page).port)
    slow: list[socket.socket] = []

    def trickle() -> None:
        for at in range(70):
            if at == len(slow):
                slow.append(socket.create_connection(address, timeout=PATIENCE_S))
            try:
                slow[at].sendall(b"GET / HTTP/1.1\r\n" if at == len(slow) - 1 else b"X-Slow: 1\r\n")
            except OSError:
                slow[at].close()
                slow[at] = socket.create_connection(address, timeout=PATIENCE_S)

    for _ in range(5):
        trickle()
        assert store.get("/ready") == "ready\n"
        assert "tiermem_ready 1" in store.get("/metrics")
    for stream in slow:
        stream.close()


def test_a_page_of_another_name_reads_nothing(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[server]\nhttp_hosts = ["store.example"]\n')
    store = serve("--config", str(config))

    def status(path: str, host: str) -> int:
        request = urllib.request.Request(store.page + path, headers={"Host": host})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            assert host in error.read().decode()
            return error.code

    for path in ("", "api/snapshot", "api/history", "page/live.js", "nothing"):
        assert status(path, "evil.example") == 421
    for path in ("", "api/snapshot"):
        assert [status(path, host) for host in ("localhost:1", "127.0.0.1", "store.example:80")] == [200] * 3
    assert [status(path, "evil.example") for path in ("metrics", "ready")] == [200] * 2


def test_the_live_page_in_a_browser(store: Store, tmp_path: pathlib.Path) -> None:
    browser = tool("chromium")
    with redis.Redis(port=store.port) as client:
        client.mset({f"k{n}": "x" * 1000 for n in range(300)})
        for n in range(400):
            client.get(f"k{n}")
    # The page's seconds are shorter than the machine's.
    eventually(lambda: store.snapshot()["engine"]["keys"] == 300, "the keys are published")
    page = visit(browser, store.page, tmp_path)
    assert 'data-ready="true"' in page
    # Two tiers with what they hold, and three plots drawn.
    tiers = page.partition('<tbody id="tiers"')[2].partition("</tbody>")[0]
    assert tiers.count("<tr") == 2 and ">dram<" in tiers and ">cxl<" in tiers and "emulated" in tiers
    assert re.search(r'id="keys">300<', page), page
    assert page.count("<canvas") == 3
