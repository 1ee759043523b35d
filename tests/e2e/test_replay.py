"""`tiermem store replay` against a live store, and the simulator's word on the same trace."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable

import pytest
import redis

from sharding import one_shard
from store import TESTDATA, Store, tiermem

TWITTER = str(TESTDATA / "twitter_cluster52-20k.csv.zst")
CLOUDPHYSICS = str(TESTDATA / "cloudPhysicsIO-20k.oracleGeneral.bin.zst")
FIELDS = ["requests", "hits", "hit_ratio", "requests_per_second", "p50_us", "p99_us", "p999_us", "p9999_us", "max_us"]
TIER_FIELDS = ["name", "hits", "hit_share", "promotions", "demotions", "evictions"]


def replay(store: Store, trace: str, *flags: str) -> str:
    done = tiermem("store", "replay", trace, "--to", f"127.0.0.1:{store.port}", *flags)
    assert done.returncode == 0, done
    return done.stdout


def simulate(trace: str, *flags: str) -> list[dict] | dict:
    done = tiermem("sim", "cache", trace, *flags, "--format", "json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)


@pytest.mark.parametrize("trace", [TWITTER, CLOUDPHYSICS], ids=["twitter", "cloudphysics"])
def test_hits_are_those_of_an_unbounded_cache(serve: Callable[..., Store], trace: str) -> None:
    """With room for everything, the store and the simulator must find the same."""
    # The simulated cache's size is that of the store, beyond what the traces touch.
    [unbounded] = simulate(trace, "--size", "1000000")
    store = serve("--tier", "dram=512MiB", "--tier", "emulated=1GiB")
    result = json.loads(replay(store, trace, "--format", "json"))
    assert list(result) == [*FIELDS, "tiers"]
    assert result["requests"] == unbounded["requests"] == 20_000
    assert result["hits"] == unbounded["requests"] - unbounded["misses"]
    assert result["hit_ratio"] == pytest.approx(1 - unbounded["miss_ratio"], abs=1e-6)
    assert sum(tier["hits"] for tier in result["tiers"]) == result["hits"]
    assert 0 < result["p50_us"] <= result["p99_us"] <= result["p999_us"] <= result["p9999_us"] <= result["max_us"]
    with redis.Redis(port=store.port) as client:
        assert client.dbsize() == unbounded["misses"]


def test_the_three_formats_have_the_same_fields(serve: Callable[..., Store]) -> None:
    store = serve()
    first = replay(store, TWITTER)
    table = [line.split() for line in first.splitlines()]
    assert table[0] == FIELDS and table[2] == [] and table[3] == TIER_FIELDS, first
    assert [line[0] for line in table[4:]] == ["dram", "cxl"]
    assert table[1][:2] == ["20000", "13884"]

    # The keys are there now: every look-up finds its key.
    text = replay(store, TWITTER, "--format", "csv", "--connections", "3", "--pipeline", "1")
    record, tiers = (list(csv.DictReader(io.StringIO(part))) for part in text.split("\n\n"))
    assert list(record[0]) == FIELDS and list(tiers[0]) == TIER_FIELDS
    assert record[0]["hits"] == "20000" and float(record[0]["hit_ratio"]) == 1
    assert [tier["name"] for tier in tiers] == ["dram", "cxl"]

    result = json.loads(replay(store, TWITTER, "--format", "json", "--requests", "5000"))
    assert list(result) == [*FIELDS, "tiers"] and list(result["tiers"][0]) == TIER_FIELDS
    assert result["requests"] == result["hits"] == 5000


@pytest.mark.parametrize("workload", "abcdef")
def test_ycsb_in_an_open_loop(store: Store, workload: str) -> None:
    """Whatever the pace, the hits are those of the same requests one after the other."""
    trace = f"ycsb-{workload}:objects=500,requests=4000"
    [unbounded] = simulate(trace, "--size", "1000000")
    result = json.loads(replay(store, trace, "--rate", "20000", "--format", "json"))
    assert result["requests"] == unbounded["requests"]
    # Even steps: the last request was due after all the others.
    assert result["requests_per_second"] <= 20_000 * result["requests"] / (result["requests"] - 1)


def test_paces_that_cannot_be(store: Store) -> None:
    for flags in (["--rate", "0"], ["--rate", "fast"], ["--speed", "-1"], ["--rate", "1", "--speed", "1"]):
        done = tiermem("store", "replay", TWITTER, "--to", f"127.0.0.1:{store.port}", *flags)
        assert done.returncode == 2, done


@one_shard
def test_a_small_store_moves_and_evicts(serve: Callable[..., Store]) -> None:
    """The small trace with larger values overflows both tiers; nothing is lost count of."""
    store = serve("--tier", "dram=16MiB", "--tier", "emulated=16MiB")
    result = json.loads(replay(store, TWITTER, "--value-scale", "100", "--format", "json"))
    [dram, cxl] = result["tiers"]
    assert result["requests"] == 20_000 and 0 < result["hits"] < 13_884
    assert dram["demotions"] > 0 and cxl["evictions"] > 0 and cxl["hits"] > 0
    assert dram["hits"] + cxl["hits"] == result["hits"]
    assert result["hits"] / result["requests"] == pytest.approx(result["hit_ratio"], abs=1e-6)


def test_a_generated_trace_through_a_unix_socket_and_a_password(serve: Callable[..., Store], tmp_path) -> None:
    path = tmp_path / "socket"
    serve("--unix-socket", str(path), "--requirepass", "secret")
    trace = "zipf:alpha=0.99,objects=1000,requests=20k,size=100-2000,seed=5"
    done = tiermem("store", "replay", trace, "--to", f"unix:{path}", "--auth", "secret", "--format", "json")
    assert done.returncode == 0, done
    [unbounded] = simulate(trace, "--size", "1000")
    assert json.loads(done.stdout)["hits"] == unbounded["requests"] - unbounded["misses"]
    refused = tiermem("store", "replay", trace, "--to", f"unix:{path}")
    assert refused.returncode == 1
    assert "--auth" in refused.stderr, refused.stderr


def test_a_server_that_stops_amid_a_replay_is_told(serve: Callable[..., Store]) -> None:
    store = serve()
    assert store.stop() == 0
    done = tiermem("store", "replay", TWITTER, "--to", f"127.0.0.1:{store.port}")
    assert done.returncode == 1
    assert f"cannot connect to 127.0.0.1:{store.port}" in done.stderr and "is the server running" in done.stderr


def test_the_simulator_prints_tiers(serve: Callable[..., Store]) -> None:
    result = simulate(TWITTER, "--tier", "1MiB", "--tier", "4MiB")
    assert list(result)[:5] == ["policy", "size", "requests", "misses", "miss_ratio"]
    assert {"fast_hit_share", "charged_ns_per_request", "promotions", "clairvoyant_fast_share", "tiers"} <= set(result)
    assert [tier["capacity_bytes"] for tier in result["tiers"]] == [1 << 20, 4 << 20]
    assert result["tiers"][0]["hits"] + result["tiers"][1]["hits"] == result["requests"] - result["misses"]
