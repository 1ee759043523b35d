"""`tiermem partition`: memory divided among tenants, as an operator would ask for it."""

from __future__ import annotations

import json
import pathlib
import tomllib

from store import tiermem

TWO = "mix:0.5*zipf(alpha=0.8,objects=20k,size=500)+0.5*zipf(alpha=1.2,objects=20k,size=500),requests=200k"


def divided(*arguments: object) -> list[dict]:
    result = tiermem("partition", *map(str, arguments), "--format", "json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_a_dearer_miss_gets_more_memory() -> None:
    same = {row["tenant"]: row for row in divided(TWO, "--memory", "30%")}
    dear = {row["tenant"]: row for row in divided(TWO, "--memory", "30%", "--tenant", "1:miss=20ms", "--tenant", "0:miss=100us")}
    assert dear["1"]["share_bytes"] > same["1"]["share_bytes"]
    assert dear["all"]["share_bytes"] == dear["0"]["share_bytes"] + dear["1"]["share_bytes"]
    assert dear["all"]["loss_ns"] <= dear["all"]["equal_loss_ns"]


def test_terms_are_kept_and_written_down(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "tenants.toml"
    rows = divided(TWO, "--memory", "4MiB", "--tenant", "1:min=3MiB", "-o", out)
    assert rows[1]["share_bytes"] >= 3 << 20
    tenants = tomllib.loads(out.read_text())["tenant"]
    assert [tenant["name"] for tenant in tenants] == ["0", "1"]
    assert all(tenant["k"] in (1, 5, 8, 16) for tenant in tenants)


def test_promises_beyond_the_memory_are_refused_with_the_sums() -> None:
    refused = tiermem("partition", TWO, "--memory", "4MiB", "--tenant", "0:min=3MiB", "--tenant", "1:min=3MiB")
    assert refused.returncode == 2
    assert "promised 384 granules" in refused.stderr
    assert "there are 256" in refused.stderr


def test_several_traces_are_several_tenants(tmp_path: pathlib.Path) -> None:
    for name, keys in (("web", 1000), ("src", 3000)):
        lines = [f"{time},{time * 7919 % keys},400" for time in range(20000)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    traces = [tmp_path / "web.csv", tmp_path / "src.csv"]
    rows = divided(*traces, "--memory", "1MiB", "--columns", "time=1,key=2,size=3")
    assert [row["tenant"] for row in rows] == ["src", "web", "all"]
    # Both go round in a loop: the one that fits is held whole.
    assert rows[1]["miss_ratio"] < 0.1 < rows[0]["miss_ratio"]


def test_an_unknown_tenant_is_named() -> None:
    refused = tiermem("partition", TWO, "--memory", "4MiB", "--tenant", "web:min=1MiB")
    assert refused.returncode == 2
    assert "no tenant" in refused.stderr
    assert "0, 1" in refused.stderr
