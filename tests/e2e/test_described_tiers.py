"""Tiers are described once: one file for every command, and what each refuses of it."""

from __future__ import annotations

import json
import pathlib
import subprocess
from collections.abc import Callable

import pytest
import redis

from store import PATIENCE_S, Store, binary, tiermem

TRACE = "zipf:objects=2k,requests=20k,size=1000"
SMALL = "zipf:objects=200,requests=2k,size=100"
MIB = 1 << 20


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    """A file for all commands: tiers, and sections of both servers."""
    path = tmp_path / "tiermem.toml"
    (tmp_path / "disk.img").write_bytes(bytes(8 * MIB))
    path.write_text(f"""\
max_value = "1MiB"
[policy]
promote_batch = 1
[cache]
tiers = ["nvme"]
memory = "1MiB"
[[export]]
name = "disk"
backing = "{tmp_path}/disk.img"
[[tier]]
kind = "dram"
capacity = "16MiB"
price_per_gb = 5
[[tier]]
name = "expander"
kind = "emulated"
capacity = "32MiB"
curve = "numa-2018"
price_each = 0.2
per = "month"
date = "2025-11"
source = "an <offer>"
[[tier]]
name = "nvme"
kind = "flash"
path = "{tmp_path}/flash"
capacity = "64MiB"
segment = "128KiB"
endurance = "600TB"
read_latency = "90us"
write_latency = "20us"
bandwidth = "2GB/s"
""")
    return path


def test_the_store_serves_them(serve: Callable[..., Store], file: pathlib.Path) -> None:
    store = serve("--config", str(file))
    tiers = store.snapshot()["engine"]["tiers"]
    assert [(tier["name"], tier["kind"], tier["capacity_bytes"] // MIB) for tier in tiers[:2]] == [
        ("dram", "dram", 16),
        ("expander", "emulated", 32),
    ]
    assert [tier["name"] for tier in tiers[2:]] == ["nvme"]
    with redis.Redis(port=store.port, socket_timeout=PATIENCE_S) as client:
        assert client.set("a", "1")


def test_the_block_cache_lies_on_one_that_it_names(file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    words = [binary(), "block", "serve", "--config", str(file), "--listen", f"unix:{tmp_path}/nbd", "--http", "none"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        assert "disk" in server.stdout.readline()
        assert (tmp_path / "flash").stat().st_size == 64 * MIB
    finally:
        server.terminate()
        assert server.wait(PATIENCE_S) == 0


def test_the_simulator_takes_capacities_curves_and_flash(file: pathlib.Path) -> None:
    def simulate(*flags: str) -> dict:
        done = tiermem("sim", "cache", TRACE, *flags, "--format", "json")
        assert done.returncode == 0, done
        return json.loads(done.stdout)

    described = simulate("--config", str(file))
    assert [tier["capacity_bytes"] // MIB for tier in described["tiers"]] == [16, 32]
    assert described["flash"][0]["lifetime_years"] is not None or described["flash_written_bytes"] == 0
    flags = ["--tier", "dram=16MiB", "--tier", "emulated:numa-2018=32MiB", "--tier", "flash=64MiB", "--flash-segment", "128KiB"]
    assert simulate(*flags, "--flash-endurance", "600TB") == described
    # Flags win over the file.
    [tier] = simulate("--config", str(file), "--tier", "4MiB")["tiers"]
    assert tier["capacity_bytes"] == 4 * MIB


def test_the_simulator_takes_the_stores_policy_and_flags_win(tmp_path: pathlib.Path) -> None:
    def simulate(*flags: str) -> dict:
        done = tiermem("sim", "cache", TRACE, *flags, "--format", "json")
        assert done.returncode == 0, done
        return json.loads(done.stdout)

    tiers = ["--tier", "dram=512KiB", "--tier", "emulated=1MiB"]
    path = tmp_path / "store.toml"
    path.write_text("""\
[policy]
order = "klru:2"
order_slow = "klru:7"
promotion = "naive"
watermarks = false
[[tier]]
kind = "dram"
capacity = "512KiB"
[[tier]]
kind = "emulated"
capacity = "1MiB"
""")
    described = simulate("--config", str(path))
    of_flags = ["--order", "klru:2", "--order-slow", "klru:7", "--promotion", "naive", "--no-watermarks"]
    assert described["promotions"] > 0
    assert described == simulate(*tiers, *of_flags) != simulate(*tiers)
    # Flags win over the file.
    assert simulate("--config", str(path), "--promotion", "none")["promotions"] == 0
    path.write_text('[policy]\norder = "mru"\n[[tier]]\nkind = "dram"\ncapacity = "512KiB"\n')
    refused = tiermem("sim", "cache", TRACE, "--config", str(path))
    assert refused.returncode == 2 and "policy.order" in refused.stderr, refused


def test_the_report_takes_names_and_prices(file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    def page(*flags: str) -> str:
        path = tmp_path / "page.html"
        done = tiermem("report", SMALL, "-o", str(path), "--sizes", "4", "--policy", "lru", "--k", "5", *flags)
        assert done.returncode == 0, done
        return path.read_text()

    text = page("--config", str(file))
    # 0.2 for 32 MiB are 5.96 for a GB.
    assert "dram at $5 a GB" in text and "expander at $5.96" in text and "a GB a month (an &lt;offer&gt;, 2025-11)" in text
    assert "expander at $7 a GB" in page("--config", str(file), "--price-cxl", "7")
    assert "DRAM at $4.875 a GB" in page()


def test_the_division_takes_memory_and_the_cost_of_a_miss(file: pathlib.Path) -> None:
    def divide(*flags: str) -> list[dict]:
        done = tiermem("partition", SMALL, "--format", "json", *flags)
        assert done.returncode == 0, done
        return json.loads(done.stdout)

    rows = divide("--config", str(file))
    assert rows == divide("--memory", "48MiB", "--miss", "90us")
    assert divide("--config", str(file), "--miss", "3ms")[0]["miss_ns"] == 3_000_000


@pytest.mark.parametrize(
    ("tiers", "commands", "says"),
    [
        ("", ["sim", "report", "partition", "plan"], "describes no tier: give at least one"),
        ("[[tier]]\nkind = 'tape'", ["store", "block", "sim", "report", "partition", "plan"], "unknown variant `tape`"),
        (
            "[[tier]]\nname = 'x'\nkind = 'dram'\ncurve = 'local-dram'\nread_latency = '1us'",
            ["store", "block", "sim", "report", "partition", "plan"],
            'tier "x": curve: contradicts read_latency',
        ),
        ("[[tiers]]\nkind = 'dram'", ["store", "block", "sim", "report", "partition", "plan"], "unknown field `tiers`"),
        (
            "[[tier]]\nkind = 'dram'\ncapacity = '64MiB'\n[[tier]]\nname = 'far'\nkind = 'remote'\ncapacity = '1GiB'",
            ["store", "sim"],
            'tier "far": kind: ',
        ),
        (
            "[[tier]]\nkind = 'dram'\ncapacity = '64MiB'\n[[tier]]\nkind = 'compressed'\ncapacity = '1GiB'",
            ["store", "sim"],
            "emulated and flash, and not compressed yet",
        ),
        ("[[tier]]\nkind = 'dram'", ["store", "sim", "partition"], "capacity: is missing: give bytes"),
        ("[[tier]]\nkind = 'dram'\ncapacity = '64MiB'", ["report", "plan"], "describe a fast and a slow one"),
        (
            "[[tier]]\nkind = 'dram'\nprice_per_gb = 5\ncurrency = 'EUR'\n[[tier]]\nkind = 'numa'",
            ["report"],
            "currency: a report counts dollars",
        ),
    ],
)
def test_what_is_wrong_is_told_with_the_file(tmp_path: pathlib.Path, tiers: str, commands: list[str], says: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(tiers)
    lines = {
        "store": ["store", "serve"],
        "block": ["block", "serve", "--export", "a=b"],
        "sim": ["sim", "cache", TRACE],
        "report": ["report", SMALL, "-o", str(tmp_path / "page.html")],
        "partition": ["partition", SMALL],
        "plan": ["plan", "nothing.rec"],
    }
    for command in commands:
        done = tiermem(*lines[command], "--config", str(path))
        assert done.returncode == 2 and says in done.stderr and str(path) in done.stderr, (command, done)


def test_what_a_cache_cannot_lie_on_is_told(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "block.toml"
    tier = "[[tier]]\nname = 'far'\nkind = 'numa'\nnode = 1\ncapacity = '1GiB'\n"
    for section, says in [
        ("tiers = ['far']", "the block cache serves tiers of kind dram and flash, and not numa yet"),
        ("tiers = ['near']", "there is no tier \"near\": there are \"far\""),
        ("tiers = ['far']\npath = 'x'", "contradicts tiers"),
        ("", "cache.tiers: is missing"),
    ]:
        path.write_text(f"[cache]\n{section}\n{tier}[[export]]\nname = 'a'\nbacking = 'b'\n")
        done = tiermem("block", "serve", "--config", str(path))
        assert done.returncode == 2 and says in done.stderr, done
