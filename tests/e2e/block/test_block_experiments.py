"""experiments/block from end to end: on slices of traces, and on made-up files that have the form of the seed's originals.

Nothing is asserted of latencies: servers and client share the cores with whatever else runs.
"""

from __future__ import annotations

import gzip
import json
import pathlib
import random
import subprocess
import sys
from typing import Any

import pytest

from store import binary

pytest.importorskip("tomllib", reason="the experiments need Python 3.11")

ROOT = pathlib.Path(__file__).resolve().parents[3]
FIGURES = ["fig2.3", "fig2.7", "fig2.8", "fig2.9", "fig2.10", "fig2.11", "fig2.12", "fig2.13", "latencies"]
CONTENDERS = 11
# Beyond 1 TiB, as some of Alibaba's disks are.
FAR = (1 << 40) + (1 << 20)


def run(*words: object) -> str:
    """What the experiment says."""
    command = [sys.executable, str(ROOT / "experiments" / "block" / "run.py"), "--tiermem", binary(), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_writes_that_are_flushed_one_by_one_are_measured_over_a_slow_store(tmp_path: pathlib.Path) -> None:
    script = ROOT / "experiments" / "block" / "flushing.py"
    small = ["--pairs", "1", "--seconds", "1", "--volume-mib", "64", "--scratch", str(tmp_path)]
    command = [sys.executable, str(script), "--tiermem", binary(), *small]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["undisturbed", "aged", "full"]


def rows(path: pathlib.Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["rows"]


def test_slices_give_every_figure(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "out"
    run("--short", "--only", ",".join(FIGURES), "--out", out, "--scratch", tmp_path)
    page = (out / "results.md").read_text()
    for figure in FIGURES:
        assert (out / f"{figure}.svg").read_text().startswith("<svg") and f"({figure}.svg)" in page
    live = rows(out / "live.json")
    workloads = {row["workload"] for row in live}
    assert len(workloads) >= 6 and len(live) == len(workloads) * CONTENDERS
    assert all(row["errors"] == row["mismatches"] == 0 for row in live)
    # All contenders are asked the same, with caches of the same size.
    for name in workloads:
        own = [row for row in live if row["workload"] == name]
        assert len({(row["reads"], row["writes"], row["capacity_bytes"]) for row in own}) == 1
    assert len(rows(out / "simulated.json")) == len(workloads) * CONTENDERS
    # The page comes again from the rows.
    run("--redraw", "--out", out)
    assert (out / "results.md").read_text() == page


def alibaba(random_: random.Random) -> str:
    lines = []
    for at in range(900):
        device, op = random_.choice([2, 10, 11, 740]), random_.choice("RW")
        lines.append(f"{device},{op},{random_.randrange(2000) * 4096 + FAR * (device == 2)},{random_.choice([4096, 65536])},{1577808000000000 + at}")
    return "\n".join(lines) + "\n"


def msr(random_: random.Random, host: str, disk: int) -> str:
    lines = []
    for at in range(300):
        op, offset = random_.choice(["Read", "Write"]), random_.randrange(2000) * 4096
        lines.append(f"{128166372003061629 + at},{host},{disk},{op},{offset},{random_.choice([512, 32768])},1331")
    return "\n".join(lines) + "\n"


def systor(random_: random.Random, lun: int, size: int) -> str:
    lines = ["Timestamp,Response,IOType,LUN,Offset,Size"]
    for at in range(150):
        # The response time may be missing.
        response = random_.choice(["", "0.000134"])
        lines.append(f"{1456120800 + at}.013118000,{response},{random_.choice('RW')},{lun},{random_.randrange(2000) * 4096},{size}")
    return "\n".join(lines) + "\n"


def test_the_seeds_own_volumes_are_found_by_their_published_names(tmp_path: pathlib.Path) -> None:
    originals, out = tmp_path / "originals", tmp_path / "out"
    random_ = random.Random(1)
    for folder in ("alibaba_block_traces_2020", "MSR-Cambridge", "systor17"):
        (originals / folder).mkdir(parents=True)
    (originals / "alibaba_block_traces_2020" / "io_traces.csv").write_text(alibaba(random_))
    for host, disk in (("prn", 1), ("usr", 1)):
        with gzip.open(originals / "MSR-Cambridge" / f"{host}_{disk}.csv.gz", "wt") as file:
            file.write(msr(random_, host, disk))
    # Two hours of a volume, written in the wrong order.
    for hour, size in (("2016022208", 8192), ("2016022207", 4096)):
        with gzip.open(originals / "systor17" / f"{hour}-LUN1.csv.gz", "wt") as file:
            file.write(systor(random_, 1, size))
    said = run(
        "--trace-dir", originals, "--requests", 200, "--rounds", 1, "--only", "fig2.3,fig2.7,fig2.11", "--out", out, "--scratch", tmp_path
    )  # fmt: skip
    assert "alibaba: vd49, vd124 left out" in said and "msr: proj_1, proj_2" in said and "LUN0, LUN2" in said
    volumes = {"alibaba": ["vd2", "vd10", "vd740"], "msr": ["prn_1", "usr_1"], "systor": ["LUN1"]}
    for table in ("live", "simulated"):
        found = rows(out / f"{table}.json")
        for workload, names in volumes.items():
            own = [row for row in found if row["workload"] == workload]
            assert {row["volume"] for row in own} == {"all", *names} and len(own) == CONTENDERS * (1 + len(names))
            for row in own:
                assert row["reads"] + row["writes"] == 200 * (len(names) if row["volume"] == "all" else 1)
    # 150 requests of 4 KiB in the first hour, then those of the second.
    (sizes,) = (row for row in rows(out / "sizes.json") if row["workload"] == "systor")
    assert sizes["requests"] == 200 and sizes["at_most"]["4096"] == 0.75
    assert "vd740" in (out / "fig2.7.svg").read_text()


def test_wrong_use_is_told(tmp_path: pathlib.Path) -> None:
    def refused(*words: object) -> str:
        command = [sys.executable, str(ROOT / "experiments" / "block" / "run.py"), "--tiermem", binary(), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2, done
        return done.stderr

    assert "--traces" in refused("--out", tmp_path)
    assert "--out" in refused("--short")
    assert "fig9" in refused("--short", "--out", tmp_path, "--only", "fig9")
