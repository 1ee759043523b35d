"""What experiments/block says of rows: that a claim of Yang 2024 holds, that it does not, or that nothing can be said."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import pytest

tomllib = pytest.importorskip("tomllib", reason="the experiments need Python 3.11")

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "experiments" / "block"
sys.path.insert(0, str(FOLDER))
try:
    import judge
    import judge_counts  # noqa: F401
    import judge_time  # noqa: F401
finally:
    sys.path.remove(str(FOLDER))

Row = dict[str, Any]
PUBLISHED = tomllib.loads((FOLDER / "published.toml").read_text())["claim"]
JUDGED: set[str] = set()
KIB = 1 << 10


def claim_of(claim: str) -> dict[str, Any]:
    (found,) = (it for it in PUBLISHED if it["id"] == claim)
    return found


def of(contender: str, workload: str = "a", family: str = "cloud", volume: str = "all", **fields: Any) -> Row:
    moved = dict.fromkeys(("core_read_bytes", "core_written_bytes", "cache_read_bytes", "cache_written_bytes"), 1)
    return {"workload": workload, "family": family, "volume": volume, "contender": contender, **moved, **fields}


def verdicts(claim: str, rows: list[Row], **instead: Any) -> list[judge.Line]:
    """The lines of a claim, each of which says something."""
    described = {**claim_of(claim), **instead}
    lines = judge.CHECKS[described["check"]](judge.summary(rows) if "at_most" not in rows[0] else rows, described)
    assert all(line.of and line.ours and "nan" not in line.ours for line in lines)
    if any(line.holds is not None for line in lines):
        JUDGED.add(described["check"])
    return lines


def judged(claim: str, rows: list[Row], **instead: Any) -> list[bool | None]:
    return [line.holds for line in verdicts(claim, rows, **instead)]


def reads(**latencies: float) -> list[Row]:
    """Of contenders, with underscores for spaces."""
    return [of(name.strip("_").replace("_", " "), read_mean_us=value) for name, value in latencies.items()]


@pytest.mark.parametrize(("seed", "holds"), [(80.0, True), (81.9, True), (83.0, False), (120.0, False)])
def test_a_gain_is_held_against_the_published_one(seed: float, holds: bool) -> None:
    rows = reads(_32K_whole=100.0, _256K_whole=300.0, seed=seed)
    found = verdicts("000-01, 000-21", rows)
    assert [line.holds for line in found] == [holds, 300.0 * (1 - 0.62) >= seed]
    assert found[0].ours == (f"{100 - seed:.1f}% less (a)" if seed < 100 else f"{seed - 100:.1f}% more (a)")


def test_the_best_workload_counts_and_sub_block_rivals_are_beside() -> None:
    rows = reads(_32K_whole=100.0, _32K_units=100.0, ours=95.0)
    rows += [{**row, "workload": "b", "read_mean_us": row["read_mean_us"] / (2 if row["contender"] == "ours" else 1)} for row in rows]
    whole, units = verdicts("000-01, 000-21", rows, against=["32K"], paper=[19])
    assert (whole.holds, whole.ours, whole.seed) == (True, "52.5% less (b)", "19% less")
    assert (units.holds, units.ours, units.seed) == (None, "52.5% less (b)", "")
    # Other families are none of its business.
    assert verdicts("000-01, 000-21", [{**row, "family": "msr"} for row in rows]) == []


def test_the_seeds_own_volume_is_judged_by_itself() -> None:
    def rows(volume: str, seed: float) -> list[Row]:
        return [of(name, "alibaba", volume=volume, read_mean_us=value) for name, value in (("32K whole", 100.0), ("seed", seed))]

    found = verdicts("000-01, 000-21", [*rows("all", 70.0), *rows("vd740", 90.0), *rows("vd2", 60.0)], against=["32K"], paper=[19])
    assert [(line.ours, line.holds) for line in found] == [("10.0% less (vd740)", False), ("40.0% less (vd2)", True)]


@pytest.mark.parametrize(("ours", "no_worse", "better"), [(99.0, True, True), (102.0, True, False), (104.0, False, False)])
def test_the_best_fixed_size_is_the_rival(ours: float, no_worse: bool, better: bool) -> None:
    rows = reads(_32K_whole=100.0, _64K_whole=130.0, _32K_units=10.0, ours=ours, seed=ours)
    assert judged("no worse, live (a)", rows) == [no_worse]
    assert judged("000-26a", rows) == [better]
    # The other kind of fill has a best of its own.
    assert judged("no worse, live (b)", rows) == [False]


def test_what_is_reckoned_may_differ_by_less() -> None:
    rows = [of("32K whole", read_latency_us=100.0), of("ours", read_latency_us=102.0)]
    assert judged("no worse, simulated (a)", rows) == [False]
    assert judged("no worse, simulated (a)", [rows[0], of("ours", read_latency_us=100.9)]) == [True]


def test_rounds_become_their_median() -> None:
    rows = [*reads(_32K_whole=100.0, ours=90.0), *reads(_32K_whole=100.0, ours=300.0), *reads(_32K_whole=100.0, ours=95.0)]
    (line,) = verdicts("no worse, live (a)", [{**row, "round": at // 2} for at, row in enumerate(rows)])
    assert line.holds and line.ours.startswith("95 us (90 to 300), 0.950 of 32K whole's 100")


def test_nothing_is_said_of_what_did_not_happen() -> None:
    # No reads in the trace; a contender that was not run.
    rows = [of("32K whole", read_mean_us=None, write_mean_us=10.0), of("ours", read_mean_us=None, write_mean_us=9.0)]
    assert [line.of for line in verdicts("no worse, live (a)", rows)] == ["a, writes"]
    assert verdicts("no worse, live (a)", reads(_32K_whole=1.0)) == []


@pytest.mark.parametrize(("ours", "holds"), [(321.0, True), (322.0, True), (330.0, False), (352.0, False)])
def test_never_worse_than_the_seeds_rule(ours: float, holds: bool) -> None:
    rows = [of("seed units", write_latency_us=320.0), of("ours", write_latency_us=ours)]
    assert judged("no worse than the seed's rule", rows) == [holds]


def test_most_means_more_than_half() -> None:
    rows = [row for workload, ours in (("a", 9.0), ("b", 9.0), ("c", 11.0), ("d", 11.0))
            for row in (of("64K whole", workload, read_mean_us=10.0), of("ours", workload, read_mean_us=ours))]  # fmt: skip
    (line,) = verdicts("better than most, live", rows)
    assert (line.ours, line.holds) == ("reads 2 of 4, writes 0 of 0", False)
    assert judged("better than most, live", rows[:6]) == [True]


def test_which_size_is_best() -> None:
    def rows(workload: str, best: str) -> list[Row]:
        return [of(f"{size} whole", workload, read_mean_us=1.0 if size == best else 2.0) for size in ("32K", "64K", "128K")]

    assert judged("000-25a", [*rows("a", "64K"), *rows("b", "64K")]) == [None, None, False]
    assert judged("000-25a", [*rows("a", "64K"), *rows("b", "32K")]) == [None, None, True]


@pytest.mark.parametrize(("claim", "family", "seed", "holds"), [
    ("000-27", "cloud", 75.5, True), ("000-27", "cloud", 80.0, False),
    ("000-06, 000-29", "systor", 129.0, True), ("000-06, 000-29", "systor", 131.0, False),
])  # fmt: skip
def test_processing(claim: str, family: str, seed: float, holds: bool) -> None:
    rows = [of("32K whole", family=family, processing_mean_ns=100.0), of("seed", family=family, processing_mean_ns=seed)]
    assert judged(claim, rows) == [holds]


def test_a_microsecond() -> None:
    assert judged("processing", [of("ours", processing_p50_ns=1000.0)]) == [True]
    assert judged("processing", [of("ours", processing_p50_ns=1001.0)]) == [False]


def test_fewer_hits() -> None:
    def rows(ours: float) -> list[Row]:
        return [of("256K whole", read_hit_ratio=0.5, write_hit_ratio=0.0), of("ours", read_hit_ratio=ours, write_hit_ratio=0.0)]

    # Where the rival hits nothing there is nothing to lose.
    assert judged("hits, simulated", rows(0.45)) == [True]
    (line,) = verdicts("hits, simulated", rows(0.40))
    assert (line.holds, line.ours) == (False, "40.0% against 50.0%: 20% fewer")
    assert verdicts("hits, simulated", rows(0.0))[0].ours.endswith("100% fewer")


def test_hits_stand_beside_the_published_ones() -> None:
    (line,) = verdicts("000-28", [of("seed", read_hit_ratio=0.7, write_hit_ratio=None)])
    assert (line.ours, line.holds) == ("70% -", None)


@pytest.mark.parametrize(("moved", "holds"), [(100, True), (109, True), (10, True), (111, False)])
def test_similar_volumes(moved: int, holds: bool) -> None:
    rows = [of("32K whole", core_read_bytes=99), of("seed", core_read_bytes=moved - 1)]
    assert judged("000-30", rows) == [holds]


def test_blocks_follow_requests() -> None:
    rows = [of("seed", mean_missed_request_bytes=60 * KIB, mean_block_bytes=64 * KIB),
            of("seed", "b", mean_missed_request_bytes=4 * KIB, mean_block_bytes=32 * KIB)]  # fmt: skip
    found = verdicts("000-36", rows)
    assert [line.holds for line in found] == [None, None, False] and found[-1].ours == "7% apart (a)"
    assert judged("000-36", [{**rows[0], "mean_block_bytes": 61 * KIB}])[-1] is True


def test_metadata_of_a_block() -> None:
    def cache(contender: str, blocks: int, end: int) -> Row:
        return of(contender, metadata_end_bytes=end, metadata_empty_bytes=1024, blocks_end=blocks, capacity_bytes=1 << 20)

    few, own = cache("256K whole", 200, 10_000), cache("ours", 200, 2048)
    found = verdicts("metadata", [few, cache("32K whole", 1200, 50_000), own])
    assert [line.holds for line in found] == [True, None] and found[0].ours == "40.0 B"
    assert found[1].ours == "1 KiB empty, 2 KiB at the end, 1.0 MiB with 200 blocks"
    assert judged("metadata", [few, cache("32K whole", 1200, 50_100), own])[0] is False
    # Too few to tell; and volumes share one cache, which is told once.
    assert judged("metadata", [few, cache("32K whole", 1199, 99_000), own, {**own, "volume": "vd2"}]) == [None]


def test_sizes_of_requests() -> None:
    row = {"workload": "a", "family": "cloud", "at_most": {"4096": 0.51, "32768": 0.6}}
    assert judged("000-14", [row]) == [True]
    assert judged("000-14", [{**row, "at_most": {"4096": 0.5}}]) == [False]
    assert judged("000-15", [{**row, "family": "msr"}]) == [False]


def test_sentences() -> None:
    def line(holds: bool | None) -> judge.Line:
        return judge.Line("of", "seed", "ours", holds)

    plain, with_one = {"id": "a"}, {"id": "b", "differs": "Traces are shorter."}
    assert judge.without_sentence([(plain, [line(True), line(False)]), (with_one, [line(False)])]) == (["a"], [])
    assert judge.without_sentence([(plain, [line(None)]), (with_one, [line(True), line(None)])]) == ([], ["b"])
    assert judge.without_sentence([(with_one, []), (with_one, [line(None)])]) == ([], [])


def test_every_claim_has_its_check_and_its_figure() -> None:
    figures = {it["name"] for it in tomllib.loads((FOLDER / "published.toml").read_text())["figure"]}
    assert len({it["id"] for it in PUBLISHED}) == len(PUBLISHED)
    assert {it["check"] for it in PUBLISHED} <= set(judge.CHECKS) and {it["figure"] for it in PUBLISHED} <= figures


def test_every_check_that_judges_was_asked(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("keyword") or "::" in " ".join(request.config.args):
        pytest.skip("only a part of this file runs")
    assert {it["check"] for it in PUBLISHED} - JUDGED == {"hit_ratios"}
