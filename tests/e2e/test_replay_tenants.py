"""`tiermem store replay-tenants`: several applications at once against the store and against Redis."""

from __future__ import annotations

import json

import pytest
import redis

from peer import Redis
from store import PATIENCE_S, Store, tiermem

FIELDS = ["accesses", "hits", "hit_ratio", "hits_per_second", "mean_us", "tenants_mean_us"]
QUANTILES = ["p50_us", "p90_us", "p95_us", "p99_us", "p999_us"]
TENANT_FIELDS = ["name", "miss_us", "accesses", "hits", "hit_ratio", "hits_per_second", "mean_us", *QUANTILES, "errors", "seconds"]


def drive(port: int, tenants: list[str], *flags: str) -> dict:
    words = [word for tenant in tenants for word in ("--tenant", tenant)]
    done = tiermem("store", "replay-tenants", "--to", f"127.0.0.1:{port}", *words, *flags, "--format", "json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def by_name(result: dict) -> dict[str, dict]:
    return {tenant["name"]: tenant for tenant in result["tenants"]}


@pytest.fixture(params=["tiermem", "redis"])
def server(request: pytest.FixtureRequest) -> Store | Redis:
    """Either server, empty, with room for everything."""
    server = request.getfixturevalue("store" if request.param == "tiermem" else "peer")
    with redis.Redis(port=server.port) as client:
        client.flushall()
    return server


def keys_in(server: Store | Redis, pattern: str, db: int = 0) -> int:
    with redis.Redis(port=server.port, db=db, socket_timeout=PATIENCE_S) as client:
        return sum(1 for _ in client.scan_iter(pattern, count=1000))


@pytest.mark.parametrize("pace", [[], ["--charge"]], ids=["waiting", "charged"])
def test_hits_misses_and_waits_add_up(server: Store | Redis, pace: list[str]) -> None:
    """With room for everything, who goes round once misses each key once, and round again never."""
    tenants = ["near=loop:objects=100,requests=150,miss=500us", "far=loop:objects=60,requests=60,miss=3ms"]
    result = drive(server.port, tenants, "--requests", "300", *pace)
    assert list(result) == [*FIELDS, *QUANTILES, "errors", "seconds", "tenants"]
    assert all(list(tenant) == TENANT_FIELDS for tenant in result["tenants"])
    seen = by_name(result)
    assert (seen["near"]["accesses"], seen["near"]["hits"]) == (300, 200)
    assert (seen["far"]["accesses"], seen["far"]["hits"]) == (300, 240)
    assert (result["accesses"], result["hits"], result["errors"]) == (600, 440, 0)
    # Every miss was waited for or counted in full, and a mean has nothing but accesses in it.
    assert seen["near"]["mean_us"] * 300 >= 100 * 500 and seen["far"]["mean_us"] * 300 >= 60 * 3000
    # A third of `near`'s accesses miss, so its ninth decile has a miss's wait in it, whatever the machine adds.
    assert seen["near"]["p50_us"] <= seen["near"]["p90_us"] and seen["near"]["p90_us"] >= 500
    assert seen["far"]["p50_us"] <= seen["far"]["p90_us"] and seen["far"]["p90_us"] >= 3000
    assert result["tenants_mean_us"] == pytest.approx((seen["near"]["mean_us"] + seen["far"]["mean_us"]) / 2, abs=0.02)
    assert (keys_in(server, "near:*"), keys_in(server, "far:*")) == (100, 60)


def test_databases_tell_tenants_apart(server: Store | Redis) -> None:
    tenants = ["0=loop:objects=40", "3=loop:objects=70"]
    seen = by_name(drive(server.port, tenants, "--requests", "200", "--by", "database"))
    assert (seen["0"]["hits"], seen["3"]["hits"]) == (160, 130)
    assert (keys_in(server, "*", 0), keys_in(server, "*", 3)) == (40, 70)


def test_charged_runs_are_the_same_each_time(server: Store | Redis) -> None:
    """The pace of each is that of its waits, whatever this machine does meanwhile."""
    tenants = ["a=zipf:objects=5k,miss=100us", "b=zipf:objects=5k,miss=2ms", "c=scan:objects=1G,miss=990us"]
    runs = []
    for _ in range(2):
        with redis.Redis(port=server.port) as client:
            client.flushall()
        result = drive(server.port, tenants, "--seconds", "1", "--charge", "--round-trip", "5us", "--window", "0.25")
        runs.append([(tenant["accesses"], tenant["hits"]) for tenant in result["tenants"]])
        windows = [window for window in result["windows"] if window["name"] == "a"]
        assert [window["from_s"] for window in windows] == [0, 0.25, 0.5, 0.75]
        assert sum(window["accesses"] for window in windows) == by_name(result)["a"]["accesses"]
        # A second holds a thousand accesses that each take a millisecond.
        assert runs[-1][2] == (1000, 0)
    assert runs[0] == runs[1]
    assert runs[0][0][0] > 2 * runs[0][1][0]


def test_what_warms_up_is_not_measured(server: Store | Redis) -> None:
    result = drive(server.port, ["a=loop:objects=100,miss=200us"], "--requests", "400", "--warm-up", "0.25")
    assert (result["accesses"], result["hits"], result["hit_ratio"]) == (300, 300, 1)


def test_a_tenant_that_is_done_goes_on_for_the_others(store: Store) -> None:
    with redis.Redis(port=store.port) as client:
        before = client.info("stats")["keyspace_hits"]
        seen = by_name(drive(store.port, ["quick=loop:objects=10", "slow=scan:objects=1G,miss=20ms"], "--requests", "100"))
        assert seen["quick"]["accesses"] == seen["slow"]["accesses"] == 100
        # Of its own hundred 90 hit; how many more there are is a matter of how much of the machine it gets.
        assert client.info("stats")["keyspace_hits"] - before > 100


def test_refused_writes_are_told(peer: Redis) -> None:
    with redis.Redis(port=peer.port) as client:
        client.flushall()
        client.config_set("maxmemory", 1)
        try:
            flags = ["--tenant", "a=loop:objects=5", "--requests", "7", "--format", "json"]
            done = tiermem("store", "replay-tenants", "--to", f"127.0.0.1:{peer.port}", *flags)
        finally:
            client.config_set("maxmemory", 0)
    assert done.returncode == 1 and "7 commands with an error, the first: OOM" in done.stderr, done
    assert json.loads(done.stdout)["errors"] == 7


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (["--requests", "1"], 2, "--tenant"),
        (["--tenant", "a=loop:"], 2, "--seconds"),
        (["--tenant", "a=loop:", "--requests", "1", "--seconds", "1"], 2, "cannot be used with"),
        (["--tenant", "a=loop:", "--tenant", "a=scan:", "--requests", "1"], 2, "a name of its own"),
        (["--tenant", "a=loop:,miss=2", "--requests", "1"], 2, "a time such as"),
        (["--tenant", "web=loop:", "--requests", "1", "--by", "database"], 2, "not the number of a database"),
        (["--tenant", "999=loop:", "--requests", "1", "--by", "database"], 1, "databases that the server has"),
        (["--tenant", "a=scan:requests=0", "--requests", "1"], 1, "the trace of a is empty"),
        (["--tenant", "a=nowhere.csv", "--requests", "1"], 1, "nowhere.csv"),
    ],
)
def test_wrong_use_is_told(store: Store, flags: list[str], code: int, says: str) -> None:
    done = tiermem("store", "replay-tenants", "--to", f"127.0.0.1:{store.port}", *flags)
    assert done.returncode == code and says in done.stderr, done


def test_a_server_that_is_not_there_is_told() -> None:
    done = tiermem("store", "replay-tenants", "--to", "127.0.0.1:1", "--tenant", "a=loop:", "--requests", "1")
    assert done.returncode == 1 and "is the server running there" in done.stderr, done
