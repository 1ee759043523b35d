"""The data of experiments/cxl_flash: every claim has its place, and every place its data."""

from __future__ import annotations

import ctypes
import importlib
import mmap
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

tomllib = pytest.importorskip("tomllib")

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "experiments" / "cxl_flash"
CLAIMS = {f"002-{number:02}" for number in range(1, 50)}


def load(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / name).read_text())


def module(name: str) -> Any:
    """One of the experiment's."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def checks() -> dict[str, Any]:
    found: dict[str, Any] = module("verdicts").CHECKS
    return found


def test_every_claim_is_compared_or_said_not_to_be() -> None:
    data = load("published.toml")
    compared = [claim["id"] for claim in data["claim"]]
    left_out = [claim["id"] for claim in data["not_covered"]]
    assert len(set(compared + left_out)) == len(compared + left_out)
    assert set(compared + left_out) == CLAIMS
    assert all(claim["why"] for claim in data["not_covered"])


def test_what_a_claim_names_is_there(checks: dict[str, Any]) -> None:
    data, sweeps = load("published.toml"), load("sweeps.toml")
    workloads = {workload["name"] for workload in load("workloads.toml")["workload"]}
    tables = {figure["name"] for figure in sweeps["figure"]} | {"traces"}
    for claim in data["claim"]:
        assert claim["of"] in tables, claim["id"]
        assert claim["check"] in checks, claim["id"]
        assert set(claim.get("workloads", [])) <= workloads, claim["id"]
    assert {claim["check"] for claim in data["claim"]} == set(checks)
    # Each table of rows is there for some claim.
    assert {claim["of"] for claim in data["claim"]} == tables
    for figure in sweeps["figure"]:
        assert set(figure.get("workloads", [])) <= workloads
        assert figure.get("kind", "synthetic") in ("synthetic", "application")
        assert figure["preset"] in sweeps["presets"]
        assert set(figure.get("notes", {})) <= set(figure["draws"])


def test_workloads_have_both_forms() -> None:
    data = load("workloads.toml")
    kinds = [workload["kind"] for workload in data["workload"]]
    assert (kinds.count("synthetic"), kinds.count("application")) == (5, 5)
    for workload in data["workload"]:
        assert {"short", "full"} <= set(workload), workload["name"]
        assert {"interarrival_ns", "reads_percent"} <= set(workload["paper"]), workload["name"]


def test_a_verdict_is_computed(checks: dict[str, Any]) -> None:
    def row(offset: float | None, share: float) -> dict[str, Any]:
        prefetch = {"prefetch": "next-n", "degree": 4.0} if offset else {"prefetch": "none", "degree": None}
        return {"workload": "hash-map", "offset": offset, "sub_us_percent": share, **prefetch}

    (claim,) = (claim for claim in load("published.toml")["claim"] if claim["id"] == "002-19")
    check = checks[claim["check"]]
    found = check([row(None, 50), row(4.0, 60), row(16.0, 70), row(64.0, 55)], claim)
    assert [line.holds for line in found] == [True, True] and found[0].ours == "60.0 70.0 55.0%"
    found = check([row(4.0, 60), row(16.0, 50), row(64.0, 55)], claim)
    assert [line.holds for line in found] == [False, False]
    # A sweep without one of them says nothing.
    assert check([row(4.0, 60), row(16.0, 50)], claim) == []


def test_phases_end_where_the_edges_have_been_read() -> None:
    pytest.importorskip("pyarrow")
    ends_of = module("phases").ends_of
    rng = np.random.default_rng(1)

    def mixed() -> np.ndarray:
        """Four edges of each of 100 pages in order, among accesses in any order to an array of 50 pages right behind these."""
        return np.stack([edges, rng.integers(1100, 1150, len(edges))], axis=1).ravel()

    edges = 1000 + np.repeat(np.arange(100), 4)
    counting, placing = mixed(), mixed()
    # What is touched first behind the edges seems to be one more page of them.
    counting[1] = 1100
    page = np.concatenate([[7, 9], edges, counting, np.arange(1100, 1150), placing, np.repeat(np.arange(400, 440), 9)])
    load = np.ones(len(page), bool)
    loaded = 2 + len(edges)
    built = loaded + len(counting) + 50 + len(placing)
    loading, building = ends_of(page, load)
    # Early by the last pages, of which each has four edges and what is between them.
    assert loading == loaded and built - 4 * 8 <= building <= built
    # Lines that are written back are no passes.
    again = np.concatenate([page[:loaded], edges[::-1], page[loaded:]])
    stores = np.concatenate([load[:loaded], np.zeros(len(edges), bool), load[loaded:]])
    assert ends_of(again, stores) == (loading + len(edges), building + len(edges))
    # A trace that ends before.
    assert ends_of(page[: built - 300], load[: built - 300]) == (loading, None)
    assert ends_of(page[:loaded], load[:loaded]) == (None, None) == ends_of(page[:0], load[:0])


def made_trace(path: pathlib.Path, seed: int) -> None:
    """A run through memory with jumps, whose pages lie in frames of any order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(seed)
    count, pages = 3000, 2048
    line = np.where(rng.random(count) < 0.3, rng.integers(0, pages * 64, count), np.arange(count) * 3) % (pages * 64)
    frames = rng.permutation(1 << 20)[:pages]
    columns = {
        "time_ns": pa.array(np.arange(count) * 100, pa.uint64()),
        "op": pa.array(np.where(rng.random(count) < 0.3, "store", "load")).dictionary_encode(),
        "key": pa.array(line * 64 + (1 << 32), pa.uint64()),
        "size": pa.array(np.full(count, 64), pa.uint32()),
        "frame": pa.array(frames[line // 64], pa.uint64()),
    }
    schema = pa.schema([pa.field(name, column.type, nullable=False) for name, column in columns.items()])
    pq.write_table(pa.table(columns, schema=schema), path)


@pytest.mark.slow
def test_the_whole_experiment_in_short(tmp_path: pathlib.Path, program: str) -> None:
    for module in ("pyarrow", "matplotlib"):
        pytest.importorskip(module)
    said = subprocess.run([program, "sim", "cxl-flash", "--help"], capture_output=True, text=True, check=False).stdout
    if "--addresses <" not in said:
        pytest.skip("this tiermem does not tell virtual from physical addresses")
    traces, out = tmp_path / "traces", tmp_path / "out"
    traces.mkdir()
    for seed, workload in enumerate(load("workloads.toml")["workload"]):
        # One is not recorded.
        if workload["name"] != "ycsb-f":
            made_trace(traces / f"{workload['name']}.parquet", seed)
    for seed, workload in enumerate(("random", "pagerank", "xz"), 99):
        made_trace(traces / f"{workload}-2.parquet", seed)
    command = [sys.executable, str(FOLDER / "run.py"), "all", "--short", "--requests", "2000", "--tiermem", program]
    done = subprocess.run(
        [*command, "--traces", str(traces), "--out", str(out)], capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr
    assert "ycsb-f is left out" in done.stdout
    # Such traces are like no program's, and nobody has said so.
    assert "do not hold everywhere and do not say why" in done.stdout
    figures = [f"fig{number}" for number in range(5, 19)] + ["fig3", "fig16a"]
    for name in figures:
        assert (out / f"{name}.svg").stat().st_size > 5000 and (out / f"{name}.png").exists(), name
    page = (out / "results.md").read_text()
    # Each recording is judged for itself.
    assert re.search(r"pagerank: accuracy, virtual and physical \|.*\| 1: .*; 2: ", page)
    assert "random: virtual / physical" in page and "Not compared: no recording of ycsb-f." in page
    for claim in load("published.toml")["claim"]:
        assert f"**{claim['id']}**" in page
    assert str(tmp_path) not in page and not re.search(r"\bnan\b", page)
    # Drawn again, it is the same.
    before = (out / "fig13.svg").read_bytes()
    subprocess.run(
        [sys.executable, str(FOLDER / "run.py"), "fig13", "--redraw", "--out", str(out)],
        capture_output=True,
        check=True,
        timeout=300,
    )
    assert (out / "fig13.svg").read_bytes() == before
    assert (out / "results.md").read_text() == page and "Not the device described here" not in page
    # Another device is said to be one, and does not come to lie among the full results.
    other = [*command[:2], "fig8", *command[3:], "--traces", str(traces), "--set", "mshr=off"]
    refused = subprocess.run(other, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert refused.returncode == 2 and "needs --out" in refused.stderr and not (tmp_path / "docs").exists()
    subprocess.run([*other, "--out", str(out)], capture_output=True, check=True, timeout=300)
    assert "Not the device described here: fig8 with `--set mshr=off`." in (out / "results.md").read_text()


def test_another_recording_has_the_accesses_of_the_first_and_frames_of_its_own(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, pa, pq = module("record"), pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    keys = [0x5000, 0x9010, 0x5040, 0x6000]
    first = pa.table({"time_ns": [1, 2, 3, 4], "key": pa.array(keys, pa.uint64()), "frame": pa.array([7, 8, 7, 9], pa.uint64())})
    pq.write_table(first, tmp_path / "first.parquet")
    asked = []

    def other_frames(words: list[str], client: Any, pages: Any) -> Any:
        asked.append((words, pages.tolist()))
        return np.array([70, 0, 90], dtype=np.uint64)

    monkeypatch.setattr(record, "frames_of_another_run", other_frames)
    record.record_frames(tmp_path / "first.parquet", ["program"], None, tmp_path / "second.parquet")
    assert asked == [(["program"], [5, 6, 9])]
    # The page that had no frame is left out.
    second = pq.read_table(tmp_path / "second.parquet").to_pydict()
    assert second == {"time_ns": [1, 2, 3], "key": keys[:3], "frame": [70, 90, 70]}


def test_frames_are_those_of_the_page_map() -> None:
    record = module("record")
    assert record.runs_of(np.array([3, 4, 5, 9, 11, 12])) == [(3, 3), (9, 1), (11, 2)]
    if os.geteuid() != 0:
        pytest.skip("only root may see frames")
    with mmap.mmap(-1, 8 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        for page in (0, 1, 5):
            memory[page * mmap.PAGESIZE] = 1
        first = ctypes.addressof(ctypes.c_char.from_buffer(memory)) // mmap.PAGESIZE
        frames = record.frames_now(os.getpid(), [(first, 3), (first + 5, 1)])
        assert [int(frame > 0) for frame in frames] == [1, 1, 0, 1]
        assert len(set(frames.tolist())) == 4


# Two pages where nobody else is, touched, and then nothing.
TWO_PAGES = """
import ctypes, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
at = libc.mmap(0x10_0000_0000, 8192, 3, 0x22 | 0x100000, -1, 0)
ctypes.memset(at, 1, 8192)
time.sleep(60)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="frames are for root's eyes")
def test_frames_of_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    record = module("record")
    monkeypatch.setattr(record, "LIKE_RECORDED", [])
    words, page = [sys.executable, "-c", TWO_PAGES], 0x10_0000_0000 // 4096
    frames = record.frames_of_another_run(words, None, np.array([page, page + 1]))
    assert frames.all() and frames[0] != frames[1]
    # One that is never touched: this run is another one, which is told, and nothing is kept of it.
    monkeypatch.setattr(record, "PATIENCE_S", 0.5)
    with pytest.raises(record.AnotherRunError, match=r"another run had frames for .*% of the pages alone"):
        record.frames_of_another_run(words, None, np.array([page, page + 100]))
    with pytest.raises(record.AnotherRunError, match=r"frames for 0\.00% of the pages"):
        record.frames_of_another_run([sys.executable, "-c", ""], None, np.array([page]))


def test_the_typical_recording_is_the_median_of_a_program() -> None:
    figures = module("figures")

    def row(recording: int, setting: str, percent: float, addresses: str = "physical") -> dict[str, Any]:
        return {"workload": "xz", "recording": recording, "addresses": addresses, "setting": setting, "window": "all",
                "sub_us_percent": percent}  # fmt: skip

    rows = [row(at, setting, percent) for setting, percents in (("a", (9, 4, 1)), ("b", (2, 3, 4))) for at, percent in
            enumerate(percents, 1)]  # fmt: skip
    assert figures.typical(rows) == [{**row(2, setting, percent), "trace": "xz"} for setting, percent in (("a", 4), ("b", 3))]


def test_some_recordings_of_several_are_counted() -> None:
    comparison, page = module("comparison"), module("page")
    assert page.cell(comparison.Line("of", "paper", "ours", False, (True, False, True))).endswith("| **2 of 3** |")
    assert page.cell(comparison.Line("of", "paper", "ours", False, (False, False))).endswith("| **no** |")
    assert page.cell(comparison.Line("of", "paper", "ours", True, (True, True))).endswith("| yes |")
    found = [comparison.Line("of", "paper", "ours", False, (True, False, True)), comparison.Line("of", "paper", "ours", True)]
    assert "The shape holds in 3 of 4." in page.comparison({"id": "1", "says": "so", "where": "here"}, found)
