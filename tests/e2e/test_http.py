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

from browser import cut_words, visit
from programs import tool
from store import MIB, PATIENCE_S, Store, eventually

METRIC = re.compile(r'^(tiermem|process)_\w+(\{(\w+="[^"]*",?)+\})? ([-+0-9.e]+|NaN|\+Inf)$')


def sample(store: Store, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", store.get("/metrics"), re.MULTILINE)
    assert found, f"{name} is not among the metrics"
    return float(found[1])


def test_ready(store: Store) -> None:
    eventually(lambda: store.get("/ready"), "it is ready")


def test_metrics_are_well_formed_and_count(store: Store) -> None:
    for line in store.get("/metrics").splitlines():
        assert line.startswith(("# HELP ", "# TYPE ")) or METRIC.match(line), line
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


def test_commands_and_processes_are_counted_and_never_less(store: Store) -> None:
    with redis.Redis(port=store.port) as client:
        client.set("text", "x")

        def calls(what: str) -> float:
            found = re.search(rf'^tiermem_command_{what}_total{{command="hget"}} (\S+)$', store.get("/metrics"), re.MULTILINE)
            return float(found[1]) if found else 0.0

        before, failed = calls("calls"), calls("failures")
        errors = sample(store, 'tiermem_error_replies_total{code="WRONGTYPE"}') if failed else 0
        for _ in range(5):
            with pytest.raises(redis.ResponseError):
                client.hget("text", "field")
        eventually(lambda: calls("calls") == before + 5, "calls are counted")
        client.config_resetstat()
        client.get("text")
        store.snapshot()
        assert (calls("calls"), calls("failures")) == (before + 5, failed + 5)
        assert sample(store, 'tiermem_error_replies_total{code="WRONGTYPE"}') == errors + 5
        activity = store.snapshot()["activity"]
        assert activity["commands"]["hget"]["failed"] == failed + 5
    assert sample(store, "process_resident_memory_bytes") > MIB
    assert sample(store, "process_open_fds") < sample(store, "process_max_fds")


def test_slow_requests_and_clients_are_told_without_what_they_said(store: Store) -> None:
    with redis.Redis(port=store.port, client_name="somebody") as client:
        client.config_set("slowlog-log-slower-than", 0)
        client.set("secret key", "secret value")
        client.config_set("slowlog-log-slower-than", -1)
        snapshot = store.snapshot()
        activity = snapshot["activity"]
        assert any(slow["command"] == "set" and slow["address"].startswith("127.0.0.1:") for slow in activity["slow_requests"])
        assert [told["user"] for told in activity["clients"] if told["name"] == "somebody"] == ["default"]
        assert "secret" not in store.get("/api/snapshot") + store.get("/api/history") + store.get("/metrics")
        client.slowlog_reset()
    assert snapshot["resident_bytes"] > MIB and snapshot["snapshots"] is None


def test_the_history_reaches_back_and_the_page_asks_for_it(store: Store) -> None:
    store.snapshot()
    past = store.get("/api/history")
    assert '"samples":[{' in past and '"views":[{' in past


def test_the_state_of_a_snapshot_file_is_told(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    store = serve("--snapshot", str(tmp_path / "snapshot"))
    with redis.Redis(port=store.port) as client:
        client.set("a", 1)
        told = store.snapshot()["snapshots"]
        assert (told["written"], told["age_s"], told["failed"]) == (0, None, False)
        assert "tiermem_snapshot_age_seconds" not in store.get("/metrics")
        client.save()
        told = store.snapshot()["snapshots"]
    assert (told["written"], told["changes"], told["failed"]) == (1, 0, False) and told["age_s"] >= 0
    assert sample(store, "tiermem_snapshots_total") == 1


def test_the_live_page_in_a_browser(store: Store, tmp_path: pathlib.Path) -> None:
    browser = tool("chromium")
    # The page shows what has happened since some view that the server keeps.
    eventually(lambda: '"views":[{' in store.get("/api/history"), "there is a view to compare with")
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
    assert 'aria-pressed="true">1 min<' in page
    assert re.search(r'id="resident">\d+', page) and ">mset<" in page.partition('<tbody id="commands"')[2]


def test_every_label_of_the_page_is_whole_on_a_phone(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    browser = tool("chromium")
    store = serve("--tier", "dram=16MiB", "--tier", "emulated=16MiB", "--tier", f"flash:{tmp_path / 'flash'}=64MiB", "--snapshot", str(tmp_path / "snapshot"))
    with redis.Redis(port=store.port, client_name="a-client-with-a-rather-long-name") as client:
        client.config_set("slowlog-log-slower-than", 0)
        for first in range(0, 60_000, 100):
            pipe = client.pipeline(transaction=False)
            for n in range(first, first + 100):
                pipe.set(f"k{n}", "x" * 1000)
                pipe.get(f"k{n // 2}")
            pipe.execute()
        with pytest.raises(redis.ResponseError):
            client.hget("k1", "field")
        client.save()
        store.snapshot()
        assert cut_words(browser, store.page, tmp_path) == []
