"""Tenants: keys told apart by prefix or database, each with its part of memory, seen with TENANTS and /metrics."""

from __future__ import annotations

import json
import pathlib
import random
import time
import urllib.request
from collections.abc import Callable

import pytest
import redis

from store import PATIENCE_S, Store, eventually, tiermem

FILE = """\
[tenants]
by = "{by}"

[[tenant]]
name = "{name}"
share = "40MiB"
k = 10

[[tenant]]
name = "{other}"
share = "8MiB"

[[tier]]
name = "dram"
kind = "dram"
capacity = "64MiB"
"""


def connect(store: Store, db: int = 0) -> redis.Redis:
    return redis.Redis(port=store.port, db=db, socket_timeout=PATIENCE_S, decode_responses=True)


def start(serve: Callable[..., Store], tmp_path: pathlib.Path, **words: str) -> Store:
    path = tmp_path / "tenants.toml"
    path.write_text(FILE.format(**words))
    return serve("--config", str(path))


def fill(client: redis.Redis, keys: list[str]) -> None:
    for at in range(0, len(keys), 1000):
        with client.pipeline(transaction=False) as pipe:
            for key in keys[at : at + 1000]:
                pipe.set(key, "x" * 900)
            pipe.execute()


def figures(client: redis.Redis) -> dict[str, dict]:
    return {tenant["name"]: tenant for tenant in json.loads(client.execute_command("TENANTS", "JSON"))["tenants"]}


def test_a_flood_leaves_another_tenants_part_alone(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    store = start(serve, tmp_path, by="prefix", name="web", other="batch")
    with connect(store) as client:
        web = [f"web:{number}" for number in range(25_000)]
        fill(client, web)
        fill(client, [f"crawler:{number}" for number in range(100_000)])
        assert client.exists(*web) == len(web), "the flood has taken nothing of it"
        seen = figures(client)
        assert seen["web"]["sets"] == 25_000
        assert seen["web"]["tiers"][0]["k"] == 10
        assert seen["web"]["tiers"][0]["evictions"] == 0
        assert seen["crawler"]["tiers"][0]["evictions"] > 50_000
        # Its own flood takes what is above its part, and the crawler gives first.
        fill(client, [f"web:more:{number}" for number in range(50_000)])
        seen = figures(client)
        assert seen["web"]["tiers"][0]["evictions"] > 10_000
        assert seen["web"]["tiers"][0]["bytes"] > 35 << 20


def test_databases_can_be_tenants(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    store = start(serve, tmp_path, by="database", name="1", other="2")
    with connect(store, 1) as one, connect(store, 5) as five:
        fill(one, [f"k{number}" for number in range(20_000)])
        fill(five, [f"k{number}" for number in range(100_000)])
        assert one.dbsize() == 20_000
        assert one.get("k1") and not one.get("nothing")
        assert (figures(one)["1"]["gets"], figures(one)["1"]["hits"]) == (2, 1)


def test_tenants_are_told_as_lines_and_as_metrics(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    store = start(serve, tmp_path, by="prefix", name="web", other="batch")
    with connect(store) as client:
        client.set("web:1", "x")
        client.set("alone", "x")
        client.get("web:1")
        text = str(client.execute_command("TENANTS"))
        assert "name=web,gets=1,hits=1,hit_ratio=1.0000,sets=1" in text
        assert "name=(others),gets=0" in text
        with pytest.raises(redis.ResponseError, match="syntax error"):
            client.execute_command("TENANTS", "nonsense")

    def metrics() -> str:
        return urllib.request.urlopen(f"{store.page}metrics", timeout=PATIENCE_S).read().decode()

    eventually(lambda: 'tiermem_tenant_sets_total{tenant="web"} 1' in metrics(), "the tenant's writes are counted")
    assert 'tiermem_tenant_tier_share_bytes{tenant="batch",tier="dram"}' in metrics()


def test_without_tenants_there_are_none(serve: Callable[..., Store]) -> None:
    store = serve()
    with connect(store) as client:
        client.set("web:1", "x")
        assert figures(client) == {}


def test_what_partition_writes_the_store_reads(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "tenants.toml"
    mix = "mix:0.5*zipf(alpha=0.8,objects=20k,size=500)+0.5*zipf(alpha=1.2,objects=20k,size=500),requests=100k"
    done = tiermem("partition", mix, "--memory", "4MiB", "-o", str(path))
    assert done.returncode == 0, done.stderr
    path.write_text('[tenants]\nby = "database"\n' + path.read_text())
    store = serve("--config", str(path))
    with connect(store) as client:
        shares = [figures(client)[name]["tiers"][0]["share_bytes"] for name in ("0", "1")]
        assert all(share > 0 for share in shares)


def test_shares_beyond_the_memory_are_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(FILE.format(by="prefix", name="web", other="batch").replace("64MiB", "32MiB"))
    refused = tiermem("store", "serve", "--config", str(path))
    assert refused.returncode != 0
    assert "shares of 48MiB are more than the 32MiB of memory" in refused.stderr


ONLINE = """\
[tenants]
by = "prefix"
divide = "{divide}"
window = 30000
sample_rate = 0.5

[[tier]]
name = "dram"
kind = "dram"
capacity = "16MiB"
"""


def start_online(serve: Callable[..., Store], tmp_path: pathlib.Path, divide: str) -> Store:
    path = tmp_path / "online.toml"
    path.write_text(ONLINE.format(divide=divide))
    return serve("--config", str(path))


def ask(client: redis.Redis, keys: list[str], miss_s: float) -> None:
    """Asks for keys and sets back what is missing, as an application with a database behind it does."""
    with client.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.get(key)
        missed = [key for key, value in zip(keys, pipe.execute(), strict=True) if value is None]
    time.sleep(miss_s if missed else 0)
    with client.pipeline(transaction=False) as pipe:
        for key in missed:
            pipe.set(key, "x" * 400)
        pipe.execute()


def division(client: redis.Redis) -> dict:
    return json.loads(client.execute_command("TENANTS", "JSON"))["division"]


def work(client: redis.Redis, rounds: int) -> None:
    """Two tenants that ask for skewed keys, one with misses that cost so much more that no busy machine makes up for it, and one
    that goes in circles."""
    rng = random.Random(7)
    for turn in range(rounds):
        for name, miss_s in (("near", 0.0005), ("far", 0.03)):
            ask(client, [f"{name}:{int(rng.random() ** 2 * 20_000)}" for _ in range(200)], miss_s)
        ask(client, [f"round:{(turn * 200 + at) % 15_000}" for at in range(200)], 0.0005)


def test_memory_is_divided_by_what_misses_cost(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    store = start_online(serve, tmp_path, "latency")
    with connect(store) as client:
        work(client, 400)
        eventually(lambda: division(client)["divided_after"] is not None, "memory is divided")
        work(client, 200)
        seen = figures(client)
        near, far, circle = (seen[name] for name in ("near", "far", "round"))
        assert far["advice"]["is_miss_known"]
        assert far["advice"]["miss_ns"] > 2 * near["advice"]["miss_ns"] > 500_000
        assert far["tiers"][0]["share_bytes"] > 1.3 * near["tiers"][0]["share_bytes"]
        assert far["tiers"][0]["bytes"] > near["tiers"][0]["bytes"]
        assert circle["tiers"][0]["k"] == 1, "a loop is kept best by those that throw out at random"
        assert far["advice"]["curve"][-1][1] < far["advice"]["curve"][0][1]
        said = str(client.execute_command("TENANTS"))
        metrics = urllib.request.urlopen(f"{store.page}metrics", timeout=PATIENCE_S).read().decode()
        assert "\ntiermem_division_windows_total " in metrics and 'tiermem_tenant_miss_cost_seconds{tenant="far"}' in metrics
        assert 'tiermem_division_predicted_miss_seconds{when="after"}' in metrics
        assert "objective:latency" in said and "predicted_after_us:" in said and "miss_cost_known=yes" in said
        # What was promised comes first, and what cannot be promised is refused with the sums.
        with pytest.raises(redis.ResponseError, match="promised 17MiB at least, more than the 16MiB"):
            client.config_set("tenants-terms", "near:min=9MiB far:min=8MiB")
        client.config_set("tenants-terms", "near:min=9MiB")
        assert client.config_get("tenants-terms") == {"tenants-terms": "near:min=9437184"}

        # What it had last is a local variable, so that a failure tells it.
        last: dict[str, object] = {}

        def is_kept() -> bool:
            # Memory is divided at the end of a window, which is so many requests.
            work(client, 20)
            last.update(share=figures(client)["near"]["tiers"][0]["share_bytes"], division=division(client)["verdict"])
            return last["share"] >= 9 << 20

        eventually(is_kept, "near has what it was promised")
        client.config_set("tenants-divide", "off")
        shares = {tenant["tiers"][0]["share_bytes"] for tenant in figures(client).values()}
        assert len(shares) == 1, "without a division all have the same"
        assert division(client) is None


def test_k_alone_can_be_chosen(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    store = start_online(serve, tmp_path, "k")
    with connect(store) as client:
        for start_at in range(0, 120_000, 400):
            ask(client, [f"loop:{at % 40_000}" for at in range(start_at, start_at + 400)], 0)
        eventually(lambda: figures(client)["loop"]["tiers"][0]["k"] == 1, "the loop's K is 1")
        assert division(client)["divided_after"] is None


def test_too_few_keys_divide_nothing(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    store = start_online(serve, tmp_path, "hits")
    with connect(store) as client:
        for _ in range(160):
            ask(client, [f"few:{at}" for at in range(200)], 0)
        eventually(lambda: "too few samples" in division(client)["verdict"], "it says so")


def test_flushing_forgets_what_was_sampled(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    store = start_online(serve, tmp_path, "hits")
    with connect(store) as client:
        work(client, 80)
        before = division(client)["metadata_bytes"]
        client.flushall()
        eventually(lambda: division(client)["metadata_bytes"] < before / 4, "samples are forgotten")
        work(client, 80)
        assert figures(client)["near"]["hits"] > 0


def test_bad_neighbours_do_not_take_what_was_promised(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    store = start_online(serve, tmp_path, "latency")
    with connect(store) as client:
        client.config_set("tenants-terms", "good:min=6MiB")
        rng = random.Random(3)
        for start_at in range(0, 8000, 400):
            ask(client, [f"good:{at}" for at in range(start_at, start_at + 400)], 0)
        for turn in range(220):
            ask(client, [f"good:{int(rng.random() * 8000)}" for _ in range(100)], 0.0002)
            with client.pipeline(transaction=False) as pipe:
                for at in range(100):
                    pipe.set(f"flood:{turn * 100 + at}", "x" * 700)
                    pipe.get(f"never:{rng.random()}")
                    pipe.get(f"scan:{turn * 100 + at}")
                    pipe.set(f"scan:{turn * 100 + at}", "y" * 300)
                pipe.set(f"huge:{turn % 5}", "z" * 1_000_000)
                # Who floods or is huge may be refused; that is its own affair.
                pipe.execute(raise_on_error=False)
        seen = figures(client)
        # Metadata that grows and values of a megabyte empty whole pages, whoever is on them.
        assert seen["good"]["tiers"][0]["trespasses"] < 8000 / 10
        before = seen["good"]["hits"]
        keys = [f"good:{int(rng.random() * 8000)}" for _ in range(1000)]
        ask(client, keys, 0)
        # 8000 of 400 bytes fill half of what it was promised.
        assert figures(client)["good"]["hits"] - before > 900


def test_thousands_of_tenants_at_once(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    store = start_online(serve, tmp_path, "latency")
    with connect(store) as client:
        for start_at in range(0, 5000, 50):
            for _ in range(2):
                ask(client, [f"t{tenant}:{key}" for tenant in range(start_at, start_at + 50) for key in range(5)], 0)
        seen = figures(client)
        # Each shard tells 4096 apart, those that it saw first.
        assert 4096 <= len(seen) < 5000
        assert seen["(others)"]["sets"] > 0
        eventually(lambda: division(client)["windows"] >= 1, "a window has ended")
        assert division(client)["verdict"].startswith("left as it was"), "hardly anything is known of each"
        assert client.ping()


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ('[tenants]\ndivide = "evenly"\n', "none of off, k, latency, mean, hits, fair, slo"),
        ('[tenants]\ndivide = "hits"\ncandidates = [0]\n', "between 1 and 64"),
        ('[tenants]\ndivide = "hits"\ncurves = "lru"\n', "say `candidates = [5]` as well"),
        ('[tenants]\ndivide = "hits"\nsample_rate = 2.0\n', "tenants.sample_rate"),
        ('[tenants]\nby = "prefix"\n[[tenant]]\nname = "a"\nmin = "9GiB"\n', "promised 9GiB at least"),
        ('[tenants]\nby = "prefix"\n[[tenant]]\nname = "a"\nmin = "2MiB"\nmax = "1MiB"\n', "at least more than at most"),
    ],
)
def test_divisions_that_make_no_sense_are_refused(tmp_path: pathlib.Path, file: str, said: str) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(file)
    refused = tiermem("store", "serve", "--config", str(path))
    assert refused.returncode != 0
    assert said in refused.stderr
