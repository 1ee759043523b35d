"""`tiermem sim cxl-flash`: one device, a grid of them, the published simulator's arithmetic, and what cannot be."""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import subprocess

import pytest

from store import PATIENCE_S, binary, eventually, tiermem

# What machines may rely on.
PROMISED = (
    "requests,sub_us_percent,repeated_reads,prefetch_accuracy,prefetch_coverage,prefetch_lateness,prefetch_pollution,"
    "mean_latency_ns,p50_ns,p99_ns,p9999_ns,hits,hits_under_miss,misses,flash_reads,flash_writes,gc_moves,"
    "write_amplification,lifetime_years,simulated_requests_per_second"
).split(",")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Runs of lines in pages of which few are popular, 30% writes, as MQSim_CXL has them."""
    draw = random.Random(7)
    lines, now_ns = [], 0
    for _ in range(20_000):
        page = int(8192 * draw.random() ** 4)
        for line in range(3):
            now_ns += draw.randrange(100, 300)
            lines.append(f"{now_ns} 0 {page * 4096 + line * 64} 8 {int(draw.random() > 0.3)}")
    path = tmp_path_factory.mktemp("cxl") / "popular.mqsim_cxl"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def simulate(trace: str, *flags: str) -> list[dict]:
    done = tiermem("sim", "cxl-flash", trace, *flags, "--format", "json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def test_one_device_tells_all_that_was_promised_and_the_parts_add_up(trace: str) -> None:
    [row] = simulate(trace)
    assert set(PROMISED) <= set(row)
    assert row["requests"] == 60_000 == row["hits"] + row["hits_under_miss"] + row["misses"]
    parts = row["queue_ns"] + row["link_ns"] + row["dram_ns"] + row["flash_ns"]
    assert parts == pytest.approx(row["mean_latency_ns"], abs=0.5)
    assert row["p50_ns"] <= row["p99_ns"] <= row["p9999_ns"] <= row["max_ns"]
    assert row["write_amplification"] == 1 and row["lifetime_years"] == row["lifetime_years_unamplified"]
    # The same seed gives the same, but for how fast it was.
    [again] = simulate(trace)
    assert {**again, "simulated_requests_per_second": 0} == {**row, "simulated_requests_per_second": 0}


def test_a_grid_is_what_each_point_gives_alone_and_lands_in_parquet(trace: str, tmp_path: pathlib.Path) -> None:
    table = tmp_path / "grid.parquet"
    flags = ["--preset", "table6", "--sweep", "cache=0,1MiB,4MiB", "--sweep", "prefetch=none,next-n"]
    done = tiermem("sim", "cxl-flash", trace, *flags, "-o", str(table))
    assert done.returncode == 0 and table.read_bytes()[:4] == b"PAR1", done
    rows = simulate(trace, *flags)
    assert [(row["cache_bytes"], row["prefetch"]) for row in rows] == [
        (size, kind) for size in (0, 1 << 20, 4 << 20) for kind in ("none", "next-n")
    ]
    shares = [row["sub_us_percent"] for row in rows if row["prefetch"] == "none"]
    # Without a cache only what is still in the write log is fast.
    assert shares == sorted(shares) and shares[0] < shares[1]
    [alone] = simulate(trace, "--preset", "table6", "--set", "cache=1MiB", "--set", "prefetch=next-n")
    same = ["sub_us_percent", "hits", "flash_reads", "flash_writes", "p9999_ns"]
    assert [alone[name] for name in same] == [rows[3][name] for name in same]


def test_people_are_told_the_main_figures(trace: str, tmp_path: pathlib.Path) -> None:
    [row] = simulate(trace, "--preset", "table6")
    printed = tiermem("sim", "cxl-flash", trace, "--preset", "table6").stdout.splitlines()
    told = {line[:19].strip(): line[19:].split() for line in printed}
    assert told["requests"] == ["60,000"] and told["hits"][0] == f"{row['hits']:,}"
    assert told["below 1us"][0] == f"{row['sub_us_percent']:.2f}%"
    assert (told["lifetime"][0] == "-") == (row["flash_writes"] == 0)
    assert "prefetches" not in told
    # A grid is a table, also where its rows go to a file; what machines read is in one place.
    grid = ["--preset", "table6", "--sweep", "cache=1MiB,4MiB", "-o", str(tmp_path / "grid.parquet")]
    table = tiermem("sim", "cxl-flash", trace, *grid).stdout.splitlines()
    assert [line.split()[0] for line in table] == ["setting", "cache=1MiB", "cache=4MiB"] and "sub_us_percent" in table[0]
    assert tiermem("sim", "cxl-flash", trace, *grid, "--format", "csv").stdout == ""
    # Windows that are in the file are not told as well.
    assert tiermem("sim", "cxl-flash", trace, *grid, "--window", "5000").stdout.splitlines() == table
    windows = tiermem("sim", "cxl-flash", trace, *grid[:4], "--window", "20000").stdout.splitlines()
    assert [line.split()[0] for line in windows] == ["window", *(["0", "1", "2", "all"] * 2)]


def test_windows_have_rows_of_their_own(trace: str) -> None:
    rows = simulate(trace, "--window", "25000")
    assert [row["window"] for row in rows] == ["0", "1", "2", "all"]
    assert [row["requests"] for row in rows] == [25_000, 25_000, 10_000, 60_000]
    assert sum(row["hits"] for row in rows[:3]) == rows[3]["hits"]


def test_hints_and_a_configuration_file(trace: str, tmp_path: pathlib.Path) -> None:
    config = tmp_path / "device.toml"
    config.write_text('[cache]\nsize = "2MiB"\nways = "full"\n[hints]\ntop_percent = 20.0\nprobability = 0.5\n')
    [hinted] = simulate(trace, "--config", str(config))
    [plain] = simulate(trace, "--config", str(config), "--set", "hints.top_percent=0")
    assert hinted["hints"] > 0 and hinted["hits"] > plain["hits"]
    # In a grid each device is told of its own lines.
    sweep = ["--config", str(config), "--sweep", "line=8KiB,4KiB"]
    [_, of_grid] = simulate(trace, *sweep)
    assert (of_grid["hints"], of_grid["hits"]) == (hinted["hints"], hinted["hits"])
    # A whole number is a number.
    config.write_text(config.read_text() + "[dram]\ngb_per_s = 25\n")
    simulate(trace, "--config", str(config), "--sweep", "dram.gb_per_s=12.8,25.6")
    # What is printed is a file that gives the same device.
    printed = tiermem("sim", "cxl-flash", trace, "--config", str(config), "--print-config")
    again = tmp_path / "again.toml"
    again.write_text(printed.stdout)
    [same] = simulate(trace, "--config", str(again))
    assert same["hits"] == hinted["hits"] and same["p9999_ns"] == hinted["p9999_ns"]


def test_the_published_arithmetic_counts_from_when_the_device_takes_a_request(trace: str) -> None:
    [ours] = simulate(trace, "--preset", "table6")
    [theirs] = simulate(trace, "--preset", "table6", "--compat", "atc23")
    assert theirs["requests"] == ours["requests"]
    # An isolated miss takes 3356 ns there.
    assert theirs["p99_ns"] > 3000
    assert abs(theirs["misses"] - ours["misses"]) < 0.05 * ours["misses"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--set", "ways=3"], "cache.ways: 16384 lines cannot be divided into sets of 3"),
        (["--set", "ways=0"], "cache.ways"),
        (["--set", "cache=2TiB"], "more than flash.capacity"),
        (["--set", "cache=5000"], "cache.size"),
        (["--set", "line=100"], "cache.line"),
        (["--set", "flash.channels=0"], "flash.channels: 0 is not 1 to"),
        (["--set", "flash.over_provisioning=0"], "spare blocks"),
        (["--set", "capacity=100PiB"], "flash.capacity"),
        (["--set", "capacity=64TiB"], "flash.capacity"),
        (["--set", "prefetch=magic"], "there is no prefetcher"),
        (["--set", "policy=magic"], "there is no policy"),
        (["--set", "no.such=1"], "there is no such key"),
        (["--set", "cache"], "is not a key"),
        (["--sweep", "cache=0,nonsense"], "cache.size"),
        (["--preset", "table5"], "the presets are"),
        (["--compat", "atc23", "--set", "line=8KiB"], "cache.line"),
        (["--compat", "atc23", "--window", "1000"], "has no windows"),
        (["--compat", "atc23", "--set", "prefetch=next-n", "--set", "prefetch.next_n.degree=8"], "prefetch.next_n: the degree is 4"),
        (["--set", "prefetch.next_n.degree=4000000000"], "prefetch.next_n.degree: 4000000000 is not 0 to"),
        (["--set", "prefetch.best_offset.recent_entries=4294967295"], "prefetch.best_offset.recent_entries"),
        (["--set", "prefetch.feedback_directed.lateness=nan"], "prefetch.feedback_directed.lateness"),
        # A page that is moved is a whole one, so that small blocks need more spare ones.
        (["--set", "flash.pages_per_block=2", "--set", "flash.over_provisioning=0.1"], "spare blocks"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(trace: str, flags: list[str], said: str) -> None:
    done = tiermem("sim", "cxl-flash", trace, *flags)
    assert done.returncode == 2 and said in done.stderr, done
    if not flags[-1] == "cache":
        assert len(done.stderr.splitlines()) == 1, done


def test_broken_files_are_told_by_line(trace: str, tmp_path: pathlib.Path) -> None:
    done = tiermem("sim", "cxl-flash", "no-such-file")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done
    broken = tmp_path / "broken.mqsim_cxl"
    broken.write_text("100 0 4096 8 1\n200 0 here 8 1\n")
    done = tiermem("sim", "cxl-flash", str(broken))
    assert done.returncode == 2 and "line 2" in done.stderr, done
    config = tmp_path / "device.toml"
    config.write_text("[cache]\n\nsise = 1\n")
    done = tiermem("sim", "cxl-flash", trace, "--config", str(config))
    assert done.returncode == 2 and "line 3" in done.stderr and "sise" in done.stderr, done


def test_a_trace_without_times_is_pointed_out(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "loads.lackey"
    path.write_text("".join(f" L {page * 4096:08x},8\n" for page in range(100)))
    flags = ["sim", "cxl-flash", str(path), "--trace-format", "lackey"]
    done = tiermem(*flags, "--set", "host.mode=open")
    assert done.returncode == 0 and "host.mode=closed" in done.stderr, done
    # A host that waits needs no times.
    for mode in ("paced", "closed"):
        done = tiermem(*flags, "--set", f"host.mode={mode}")
        assert done.returncode == 0 and not done.stderr, done


def works(process: subprocess.Popen, seconds: float) -> None:
    """Waits until a process has worked for so long, however long a busy machine takes for that."""

    def spent_s() -> float:
        user, system = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    eventually(lambda: spent_s() >= seconds, "it has worked for a while")


def test_an_interrupted_grid_keeps_what_it_has_and_says_what_is_missing(trace: str, tmp_path: pathlib.Path) -> None:
    table = tmp_path / "grid.parquet"
    seeds = ",".join(str(seed) for seed in range(4000))
    command = [binary(), "sim", "cxl-flash", trace, "--sweep", f"seed={seeds}", "--threads", "1", "-o", str(table)]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    works(running, 1.5)
    running.send_signal(signal.SIGINT)
    _, told = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 1 and "are missing: seed=" in told, told[:500]
    assert table.read_bytes()[:4] == b"PAR1"


def test_an_interrupted_device_tells_of_the_requests_before() -> None:
    command = [binary(), "sim", "cxl-flash", "uniform:objects=1M,requests=1G", "--format", "json"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    works(running, 1.5)
    running.send_signal(signal.SIGINT)
    found, told = running.communicate(timeout=PATIENCE_S)
    [row] = json.loads(found)
    assert running.returncode == 1 and f"the first {row['requests']} requests" in told, told
    assert row["hits"] + row["hits_under_miss"] + row["misses"] == row["requests"] > 0
