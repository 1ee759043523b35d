"""A wall clock that steps: what the store remembers as a moment stays where it was."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import struct
import subprocess
import time
from collections.abc import Callable

import pytest
import redis

from store import SHARDS, Store, eventually

SOURCE = pathlib.Path(__file__).with_name("wall_clock.c")
FAR_S = 600
TTL_S = 300


class WallClock:
    """The wall clock of programs that are started with its environment."""

    def __init__(self, directory: pathlib.Path, compiler: str) -> None:
        library = directory / "wall_clock.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, SOURCE, "-ldl"], check=True)
        self.file = directory / "step"
        self.file.write_bytes(bytes(8))
        self.env = {**os.environ, "LD_PRELOAD": str(library), "WALL_CLOCK_STEP": str(self.file)}

    def step(self, seconds: int) -> None:
        """Sets it as many seconds off the machine's. In place, since programs have the file mapped."""
        with self.file.open("r+b", buffering=0) as file:
            file.write(struct.pack("<q", seconds))


@pytest.fixture
def wall_clock(tmp_path: pathlib.Path) -> WallClock:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs cc")
    return WallClock(tmp_path, compiler)


def client_of(store: Store) -> redis.Redis:
    return redis.Redis(port=store.port, decode_responses=True)


@pytest.mark.parametrize("step_s", [-FAR_S, FAR_S])
def test_a_step_moves_no_deadline(serve: Callable[..., Store], wall_clock: WallClock, step_s: int) -> None:
    client = client_of(serve("--tier", "dram=64MiB", env=wall_clock.env))
    client.set("short", "x", px=500)
    client.hset("h", mapping={"short": "x", "long": "x", "ever": "x"})
    client.execute_command("HPEXPIRE", "h", 500, "FIELDS", 1, "short")
    client.execute_command("HEXPIRE", "h", TTL_S, "FIELDS", 1, "long")
    client.set("long", "x", ex=TTL_S)
    wall_clock.step(step_s)
    eventually(lambda: client.get("short") is None, "a deadline came after the wall clock had been set back")
    eventually(lambda: client.hget("h", "short") is None, "a field's deadline came")
    assert 0 < client.ttl("long") <= TTL_S
    assert 0 < client.execute_command("HTTL", "h", "FIELDS", 1, "long")[0] <= TTL_S
    # What clients give and get is of the wall clock, as it is now.
    now_s = client.time()[0]
    assert abs(now_s - (time.time() + step_s)) < TTL_S
    for left_s in [
        client.execute_command("EXPIRETIME", "long") - now_s,
        client.execute_command("HEXPIRETIME", "h", "FIELDS", 1, "long")[0] - now_s,
    ]:
        assert 0 < left_s <= TTL_S + 1
    at_s = now_s + TTL_S
    client.set("at", "x", exat=at_s)
    client.getex("long", exat=at_s)
    client.set("other", "x")
    client.pexpireat("other", at_s * 1000)
    client.execute_command("HEXPIREAT", "h", at_s, "FIELDS", 1, "ever")
    for key in ["at", "long", "other"]:
        assert (0 < client.ttl(key) <= TTL_S, client.execute_command("PEXPIRETIME", key)) == (True, at_s * 1000)
    assert 0 < client.execute_command("HTTL", "h", "FIELDS", 1, "ever")[0] <= TTL_S
    assert client.execute_command("HEXPIRETIME", "h", "FIELDS", 1, "ever") == [at_s]
    # What is over by the wall clock is over.
    client.expireat("other", now_s - 1)
    client.execute_command("SET", "over", "x", "EXAT", now_s - 1)
    assert client.exists("other", "over") == 0


@pytest.mark.parametrize("step_s", [-FAR_S, FAR_S])
def test_a_step_changes_no_duration(serve: Callable[..., Store], wall_clock: WallClock, step_s: int) -> None:
    store = serve("--tier", "dram=64MiB", "--snapshot", str(wall_clock.file.with_name("snapshot")), env=wall_clock.env)
    client = client_of(store)
    client.set("key", "x")
    client.config_set("slowlog-log-slower-than", 0)
    wall_clock.step(step_s)
    eventually(lambda: client.info("server")["uptime_in_seconds"] >= 2, "the uptime went on")
    ages = [client.info("server")["uptime_in_seconds"], client.object("idletime", "key")]
    line = client.execute_command("CLIENT", "INFO")
    ages += [int(re.search(rf" {name}=(\d+)", str(line))[1]) for name in ["age", "idle"]]
    now_s = client.time()[0]
    ages += [now_s - client.info("persistence")["rdb_last_save_time"], now_s - client.slowlog_get(1)[0]["start_time"]]
    ages += [now_s - client.lastsave().timestamp(), store.snapshot()["uptime_s"]]
    assert all(-1 <= age < TTL_S for age in ages), ages
    client.save()
    assert -1 <= client.time()[0] - client.lastsave().timestamp() < TTL_S
    # A pause ends, though the wall clock is set back amid it.
    client.client_pause(300, all=False)
    wall_clock.step(step_s - FAR_S)
    client.set("key", "y")


@pytest.mark.parametrize("tier", ["dram", "flash", "dax"])
def test_a_restart_knows_deadlines_by_the_wall_clock_of_the_start(
    serve: Callable[..., Store], wall_clock: WallClock, tmp_path: pathlib.Path, tier: str
) -> None:
    if tier == "dax" and SHARDS > 1:
        pytest.skip("tiers of kind dax serve one shard")
    kept = tmp_path / "kept"
    flags = {
        "dram": ["--tier", "dram=64MiB", "--snapshot", str(kept)],
        "flash": ["--tier", "dram=64MiB", "--tier", f"flash:{kept}=256MiB", "--snapshot", str(tmp_path / "snapshot")],
        "dax": ["--tier", "dram=64MiB", "--tier", f"dax:{kept}=64MiB", "--snapshot", str(tmp_path / "snapshot")],
    }[tier]
    store = serve(*flags, env=wall_clock.env)
    client = client_of(store)
    wall_clock.step(FAR_S)
    keys = [f"key:{number}" for number in range(2000)]
    # More than memory holds, where there is another tier.
    value = "x" * (60_000 if tier != "dram" else 10)
    for key in keys:
        client.set(key, value, ex=TTL_S if key.endswith("0") else 2)
    client.close()
    assert store.stop() == 0, store.log()
    wall_clock.step(0)
    client = client_of(serve(*flags, env=wall_clock.env))
    left = [client.ttl(key) for key in keys if key.endswith("0")]
    assert all(0 < ttl_s <= TTL_S for ttl_s in left if ttl_s != -2), left
    assert sum(ttl_s != -2 for ttl_s in left) > (190 if tier == "dram" else 50), left
    eventually(lambda: not any(client.exists(key) for key in keys if not key.endswith("0")), "the others' time came")
