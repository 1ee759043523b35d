"""What experiments/cxl_flash says of rows: that a claim of Yang 2023 holds, that it does not, or that nothing can be said."""

from __future__ import annotations

import itertools
import pathlib
import sys
from typing import Any

import pytest

tomllib = pytest.importorskip("tomllib", reason="the experiments need Python 3.11")

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "experiments" / "cxl_flash"
sys.path.insert(0, str(FOLDER))
try:
    import verdicts
    from comparison import MATTERS_POINTS, NO_DIFFERENCE_POINTS, PAPER_YEAR_HOURS, YEAR_HOURS
finally:
    sys.path.remove(str(FOLDER))

Row = dict[str, Any]
PUBLISHED = tomllib.loads((FOLDER / "published.toml").read_text())["claim"]
JUDGED: set[str] = set()
LITTLE = NO_DIFFERENCE_POINTS / 2
GIB = 1 << 30


def claim_of(claim: str) -> dict[str, Any]:
    (found,) = (it for it in PUBLISHED if it["id"] == claim)
    return found


def judge(claim: str, rows: list[Row]) -> list[bool | None]:
    """Whether each line of a claim holds, and that a line says something."""
    found = claim_of(claim)
    lines = verdicts.CHECKS[found["check"]](rows, found)
    assert all(line.of and line.ours and "nan" not in line.ours for line in lines)
    if any(line.holds is not None for line in lines):
        JUDGED.add(found["check"])
    return [line.holds for line in lines]


def of(workload: str, **fields: Any) -> Row:
    return {"workload": workload, **fields}


def below(workload: str, percent: float, **fields: Any) -> Row:
    return of(workload, sub_us_percent=percent, **fields)


def lasting(workload: str, years: float | None, **fields: Any) -> Row:
    """Years of the paper."""
    own = None if years is None else years * PAPER_YEAR_HOURS / YEAR_HOURS
    return of(workload, lifetime_years_unamplified=own, **fields)


def prefetched(workload: str, **shares: float) -> list[Row]:
    return [below(workload, percent, prefetch=name.replace("_", "-")) for name, percent in shares.items()]


@pytest.mark.parametrize(("lowest", "holds"), [(70, True), (68 - LITTLE, True), (66.9, False)])
def test_the_least_application_is_judged_by_its_best_prefetcher(lowest: float, holds: bool) -> None:
    rows = [*prefetched("xz", none=95.0, leap=20.0), *prefetched("pagerank", none=10.0, leap=lowest)]
    assert judge("002-02", rows) == [holds]


@pytest.mark.parametrize(("years", "holds"), [((3.2, 50), True), ((3.0, 50), False), ((None, 3.0), False), ((None, None), None)])
def test_the_shortest_lifetime(years: tuple[float | None, float | None], holds: bool | None) -> None:
    assert judge("002-03", [lasting("xz", value, prefetch="none") for value in years]) == [holds]


def test_years_are_the_papers() -> None:
    # One year of 365 days is 4.2 of the paper's.
    row = of("xz", prefetch="none", lifetime_years_unamplified=1.0)
    (line,) = verdicts.CHECKS["lifetime_least"]([row], claim_of("002-03"))
    assert line.holds and line.ours == "4.21 years of 2080 hours (1 of 365 days), xz with none"
    # The simulator gives a lifetime without end where nothing is written.
    assert judge("002-03", [{**row, "lifetime_years_unamplified": float("inf")}]) == [None]


@pytest.mark.parametrize(
    ("recordings", "holds"),
    [
        ([[0, 500, 900], [0, 700, 2000]], [True, True]),
        ([[0, 19, 900], [0, 700, 2000]], [False, True]),
        # The same frames twice.
        ([[0, 500, 900], [0, 500, 900]], [True, False]),
        ([[0, 500, 900], [0, 510, 910]], [True, False]),
        # One recording overlaps with nothing; where all accesses stay in a page there is nothing to overlap.
        ([[0, 500, 900]], [True]),
        ([[0, 0, 0], [0, 0, 0]], [False]),
    ],
)
def test_distances(recordings: list[list[int]], holds: list[bool]) -> None:
    assert judge("002-06", [of("stride", virtual_distances=[0, 10, 20], physical_distances=recordings)]) == holds


def addressed(workload: str, virtual: float, *physical: float) -> list[Row]:
    rows = [below(workload, percent, addresses="physical", recording=number) for number, percent in enumerate(physical, 1)]
    return [below(workload, virtual, addresses="virtual", recording=1), *rows]


@pytest.mark.parametrize(
    ("physical", "holds"), [((80, 60), True), ((80, 90 - LITTLE), False), ((90, 60), False), ((95,), False), ((90,), False)]
)
def test_virtual_addresses_promise_more(physical: tuple[float, ...], holds: bool) -> None:
    assert judge("002-07", addressed("hash-map", 90, *physical)) == [None, None, holds]


def test_stride_is_off_by_less_than_the_others() -> None:
    others = addressed("hash-map", 90, 60) + addressed("min-heap", 90, 70)
    assert judge("002-11", others + addressed("stride", 60, 59.8, 57)) == [None, None, True, True]
    assert judge("002-11", others + addressed("stride", 60, 60)) == [None, None, False, True]
    assert judge("002-11", others + addressed("stride", 60, 40)) == [None, None, True, False]
    # Where none of the others was recorded there is nothing to be less than.
    assert judge("002-11", addressed("stride", 60, 59)) == [None, None, True]


@pytest.mark.parametrize(("least", "holds"), [(74, True), (75, False), (98, False)])
def test_the_error_of_matrix_multiply(least: float, holds: bool) -> None:
    assert judge("002-12", addressed("matrix-multiply", 100, 50, least)) == [holds]


@pytest.mark.parametrize(("microseconds", "holds"), [(400, True), (250, False), (100, False)])
def test_no_cache(microseconds: float, holds: bool) -> None:
    rows = [of("stride", cache_bytes=0, mean_latency_ns=1000 * microseconds), of("stride", cache_bytes=GIB, mean_latency_ns=9e9)]
    assert judge("002-14", rows) == [holds]


@pytest.mark.parametrize(("latency", "holds"), [(92, True), (91, False), (46, False)])
def test_the_largest_cache(latency: float, holds: bool) -> None:
    rows = [of("min-heap", cache_bytes=0, mean_latency_ns=1e6), of("min-heap", cache_bytes=GIB, mean_latency_ns=latency)]
    assert judge("002-15", rows) == [holds]


@pytest.mark.parametrize(("reads", "repeated", "holds"), [(100, 91, True), (100, 90, False), (0, 0, False)])
def test_repeated_reads(reads: int, repeated: int, holds: bool) -> None:
    assert judge("002-16", [of("hash-map", mshr="off", flash_reads=reads, repeated_reads=repeated)]) == [holds]


@pytest.mark.parametrize(
    ("workload", "without", "given", "holds"),
    [
        ("hash-map", 100, 50, True), ("hash-map", 100, 51, False),
        ("random", 100, 90, True), ("random", 100, 50, False),
        # The same is no improvement.
        ("random", 100, 100, False), ("random", 100, 101, False),
    ],
)  # fmt: skip
def test_tails(workload: str, without: int, given: int, holds: bool) -> None:
    assert judge("002-17", [of(workload, mshr="off", p999_ns=without), of(workload, mshr="on", p999_ns=given)]) == [holds]


def next_n(workload: str, shares: dict[int, float]) -> list[Row]:
    return [below(workload, percent, prefetch="next-n", degree=4.0, offset=float(at)) for at, percent in shares.items()]


@pytest.mark.parametrize(("after", "holds"), [(76, True), (64 + LITTLE, False), (64, False), (60, False)])
def test_a_degree_of_one(after: float, holds: bool) -> None:
    rows = [
        below("matrix-multiply", 64, prefetch="none", degree=None),
        below("matrix-multiply", after, prefetch="next-n", degree=1.0),
    ]
    assert judge("002-18", rows) == [holds]


@pytest.mark.parametrize(
    ("shares", "holds"),
    [
        ((60, 70, 55), [True, True]), ((60, 60, 60), [False, False]), ((60, 60 + LITTLE, 60), [False, False]),
        ((60, 55, 65), [False, False]),
    ],
)  # fmt: skip
def test_offsets_help_and_harm(shares: tuple[float, ...], holds: list[bool]) -> None:
    assert judge("002-19", next_n("min-heap", dict(zip((4, 16, 64), shares, strict=True)))) == holds
    assert judge("002-19", next_n("min-heap", {4: 60, 16: 70})) == []


@pytest.mark.parametrize(
    ("workload", "shares", "holds"),
    [
        ("random", (30, 30, 35), [True, True]), ("random", (30, 30, 25), [True, True]), ("random", (30, 30, 30, 35), [True, True]),
        ("random", (30, 30, 30, 30), [True, False]), ("random", (30, 35, 40), [False, True]),
        ("stride", (50, 55, 60), [True]), ("stride", (50, 50, 60), [True]), ("stride", (50, 50, 50), [False]),
        ("stride", (50, 50, 50 + LITTLE), [False]), ("stride", (60, 50, 65), [False]), ("stride", (60, 55, 50), [False]),
    ],
)  # fmt: skip
def test_offsets_of_random_and_stride(workload: str, shares: tuple[float, ...], holds: list[bool]) -> None:
    assert judge("002-20", next_n(workload, dict(zip((4, 16, 64, 256), shares, strict=False)))) == holds


@pytest.mark.parametrize(
    ("uncached", "cached", "holds"),
    [((10, 100), (100, 105), [True, True]), ((60, 100), (80, 100), [False, False]), ((100, 100), (100, 100), [False, True])],
)
def test_ull_against_slc(uncached: tuple[int, int], cached: tuple[int, int], holds: list[bool]) -> None:
    rows = [
        of("stride", technology=technology, cache_bytes=size, mean_latency_ns=latency)
        for size, pair in ((0, uncached), (GIB, cached))
        for technology, latency in zip(("ull", "slc"), pair, strict=True)
    ]
    assert judge("002-21", rows) == holds


def test_lifetimes_of_technologies() -> None:
    def rows(*years: float | None) -> list[Row]:
        names = ("ull", "slc", "mlc", "tlc")
        return [
            lasting("stride", value, technology=name, cache_bytes=size, cache_scale=1)
            for name, value in zip(names, years, strict=True)
            for size in (0, GIB)
        ]

    table = rows(5, 4, 1, 1.5)
    assert judge("002-22", table) == [True, False] and judge("002-23", table) == [True, False]
    # Nothing written lasts without end, which says nothing of flash.
    nothing = rows(None, None, None, None)
    assert judge("002-22", nothing) == [None, None] and judge("002-23", nothing) == [None, None]
    # Without a cache of that size.
    assert judge("002-23", [row for row in table if not row["cache_bytes"]]) == [None, None]


@pytest.mark.parametrize(
    ("large", "small", "holds"),
    [
        ((80, 80), (40, 60), [True, True]), ((70, 80), (60, 60), [False, False]),
        ((80, 80), (60 - MATTERS_POINTS + LITTLE, 60), [True, False]),
    ],
)  # fmt: skip
def test_parallelism(large: tuple[float, float], small: tuple[float, float], holds: list[bool]) -> None:
    rows = [
        below("stride", percent, cache_bytes=size, channels=channels, flash_ways=ways)
        for size, pair in ((8 * GIB, large), (GIB, small))
        for (channels, ways), percent in zip(((8, 4), (32, 32)), pair, strict=True)
    ]
    assert judge("002-24", rows) == holds


@pytest.mark.parametrize(
    ("workload", "lru", "cflru", "writes", "holds"),
    [
        ("xz", 60, 65, 80, [True, True, True]), ("xz", 60, 60, 100, [True, False, False]),
        ("xz", 50 + LITTLE, 50 + LITTLE, 95, [False, False, False]), ("xz", 60, 55, 200, [True, False, False]),
        ("radiosity", 60, 60, 100, [True, True, True]), ("radiosity", 60, 55, 120, [True, False, False]),
    ],
)  # fmt: skip
def test_policies(workload: str, lru: float, cflru: float, writes: int, holds: list[bool]) -> None:
    def rows(others: int, own: int) -> list[Row]:
        at_sixteen = [("lru", lru, others), ("fifo", 40, others), ("cflru", cflru, own)]
        most = [below(workload, percent, policy=name, cache_ways=16, flash_writes=number) for name, percent, number in at_sixteen]
        return [below(workload, 50, policy="lru", cache_ways=1, flash_writes=others), *most]

    assert judge("002-31", rows(100, writes)) == holds
    # Nobody writes less than nothing.
    assert judge("002-31", rows(0, 0))[2] is None


def test_bounds() -> None:
    rows = prefetched("radiosity", fifo=83, lru=99)
    assert judge("002-32", rows) == [True] and judge("002-32", [*rows, below("radiosity", 82.9)]) == [False]
    rows = prefetched("pagerank", fifo=65, lru=20)
    assert judge("002-35", rows) == [True] and judge("002-35", [*rows, below("pagerank", 65.1)]) == [False]


@pytest.mark.parametrize(
    ("points", "degrades", "helps"),
    [(-5.0, True, False), (0.0, False, False), (-LITTLE, False, False), (LITTLE, False, False), (5.0, False, True)],
)
def test_prefetchers(points: float, degrades: bool, helps: bool) -> None:
    for workload, holds in (("transformer", degrades), ("pagerank", helps)):
        assert judge("002-36", prefetched(workload, none=50, next_n=50 + points, leap=50 + points)) == [holds]


@pytest.mark.parametrize(("none", "best", "holds"), [(60, 82, True), (60, 60, False), (60, 60 + LITTLE, False), (0, 10, True)])
def test_best_offset(none: float, best: float, holds: bool) -> None:
    assert judge("002-37", prefetched("radiosity", none=none, best_offset=best)) == [holds]


@pytest.mark.parametrize(
    ("none", "best", "holds"),
    [
        # Hits, and hits under miss, of a thousand.
        ((600, 300), (700, 200), True),
        ((600, 300), (600, 300), False),
        # They have become misses.
        ((600, 300), (600, 200), False),
        ((600, 300), (700, 300), False),
        ((600, 0), (700, 0), None),
    ],
)
def test_hits_under_miss(none: tuple[int, int], best: tuple[int, int], holds: bool | None) -> None:
    rows = [
        of("radiosity", prefetch=name, requests=1000, hits=hits, hits_under_miss=under)
        for name, (hits, under) in (("none", none), ("best-offset", best))
    ]
    assert judge("002-38", rows) == [holds]


def test_who_lasts_shortest_and_longest() -> None:
    others = [lasting("pagerank", 90), lasting("radiosity", 4), lasting("xz", 10)]
    # Page rank by its worst, Radiosity by its best.
    assert judge("002-39", [*others, lasting("pagerank", 3), lasting("radiosity", 400)]) == [True, True]
    assert judge("002-39", [*others, lasting("pagerank", 5), lasting("radiosity", 80)]) == [False, False]
    assert judge("002-39", [lasting("pagerank", 3), lasting("radiosity", None), lasting("xz", 10)]) == [True, None]
    # Alone among others, and alone.
    assert judge("002-39", [lasting("pagerank", 3), lasting("xz", 10)]) == [True]
    assert judge("002-39", [lasting("pagerank", 3)]) == [None]


@pytest.mark.parametrize(("lowest", "holds"), [(68, True), (65, False)])
def test_prices(lowest: float, holds: bool) -> None:
    rows = prefetched("xz", none=1, best_offset=lowest) + prefetched("radiosity", best_offset=99)
    assert judge("002-41", rows) == [holds]


def windows(ends: tuple[int | None, int | None], **of_phases: tuple[float, float, float]) -> list[Row]:
    """Nine windows of ten requests, of which three each are alike."""
    rows: list[Row] = [{"workload": "pagerank", "window": "all", "requests": 90}]
    for at in range(9):
        values = {name: phases[at // 3] for name, phases in of_phases.items()}
        ended = dict(zip(("loading_ends", "building_ends"), ends, strict=True))
        rows.append({"workload": "pagerank", "window": str(at), "requests": 10, "prefetches": 5, **ended, **values})
    return rows


def test_phases() -> None:
    good = {"prefetch_coverage": (0.8, 0.1, 0.5), "prefetch_accuracy": (0.9, 0.2, 0.5), "hits": (8, 2, 9)}
    assert judge("002-45", windows((30, 60), **good)) == [True, True, True]
    # Windows that lie in two phases count for none.
    assert judge("002-45", windows((25, 65), **good)) == [True, True, True]
    flat = {"prefetch_coverage": (0.1, 0.1, 0.1), "prefetch_accuracy": (0.2, 0.2, 0.2), "hits": (9, 9, 5)}
    assert judge("002-45", windows((30, 60), **flat)) == [False, False, False]
    # A trace that ends early has nothing to say of the phases that it does not get to.
    assert judge("002-45", windows((30, None), **good)) == [True, True, None]
    assert judge("002-45", windows((None, None), **good)) == [None, None, None]
    # Nothing is prefetched while the graph is built.
    idle = [{**row, "prefetches": 0} if row["window"] in "345" else row for row in windows((30, 60), **good)]
    assert judge("002-45", idle) == [True, None, True]


@pytest.mark.parametrize(
    ("claim", "workload", "metric"), [("002-46", "pagerank", "prefetch_accuracy"), ("002-47", "transformer", "prefetch_coverage")]
)
@pytest.mark.parametrize(
    ("values", "prefetches", "holds"),
    [
        ((0.9, 0.4), (9, 9), True), ((0.4, 0.4), (9, 9), False), ((0.4, 0.9), (9, 9), False),
        # Nothing is prefetched by one of them, or by both.
        ((0.9, 0.0), (9, 0), None), ((0.0, 0.0), (0, 0), None),
    ],
)  # fmt: skip
def test_metrics_by_address(
    claim: str, workload: str, metric: str, values: tuple[float, float], prefetches: tuple[int, int], holds: bool | None
) -> None:
    both = zip(("virtual", "physical"), values, prefetches, strict=True)
    assert judge(claim, [of(workload, addresses=name, prefetches=number, **{metric: value}) for name, value, number in both]) == [
        holds
    ]


def hinted(percents: dict[int, float], chances: dict[float, float]) -> list[Row]:
    none = below("transformer", 86, hint_percent=0.0, hint_probability=0.1)
    more = [below("transformer", value, hint_percent=float(at), hint_probability=0.1) for at, value in percents.items()]
    return [none, *more, *(below("transformer", value, hint_percent=10.0, hint_probability=at) for at, value in chances.items())]


@pytest.mark.parametrize(
    ("shares", "holds"),
    [((87, 89, 91), True), ((86, 86, 86), False), ((86, 86, 86 + LITTLE), False), ((95, 92, 91), False), ((91, 89, 85), False)],
)
def test_more_hints(shares: tuple[float, ...], holds: bool) -> None:
    # The point that both sweeps have comes twice.
    assert judge("002-48", hinted(dict(zip((1, 10, 100), shares, strict=True)), {0.1: shares[1]})) == [holds]


@pytest.mark.parametrize(
    ("shares", "holds"),
    [
        ((89, 90.8, 91), True), ((86, 86, 86), False),
        # As steep at the end as at the beginning, by little or by much.
        ((87, 88, 89), False), ((86.4, 86.8, 87.2), False), ((87, 90, 88), False),
    ],
)  # fmt: skip
def test_hints_level_off(shares: tuple[float, ...], holds: bool) -> None:
    chances = dict(zip((0.1 / 3, 0.2 / 3, 0.1), shares, strict=True))
    assert judge("002-49", hinted({10: shares[-1], 20: 99}, chances)) == [holds]


def test_recordings_are_judged_one_by_one() -> None:
    claim = claim_of("002-46")
    field = f"prefetch_{claim['paper']['metric']}"

    def row(recording: int, addresses: str, value: float) -> Row:
        return of("pagerank", recording=recording, addresses=addresses, prefetches=1, **{field: value})

    virtual = row(1, "virtual", 0.9)
    rows = [virtual, row(1, "physical", 0.4), row(2, "physical", 0.95), row(3, "physical", 0.1)]
    ((_, (line,)),) = verdicts.compared([claim], claim["of"], rows, each_recording=True)
    assert (line.holds, line.judged, line.judgements()) == (False, (True, False, True), (True, False, True))
    assert line.ours == "1: 90.0%, 40.0%; 2: 90.0%, 95.0%; 3: 90.0%, 10.0%"
    # One alone needs no number.
    ((_, (line,)),) = verdicts.compared([claim], claim["of"], [virtual, row(1, "physical", 0.4)], each_recording=True)
    assert (line.ours, line.holds, line.judged, line.judgements()) == ("90.0%, 40.0%", True, (), (True,))
    # Another program has the first recording alone.
    other = [{**row, "workload": "xz"} for row in rows[:2]]
    ((_, (line,)),) = verdicts.compared([claim], claim["of"], [*other, *rows], each_recording=True)
    assert line.judged == (True, False, True)
    ((_, found),) = verdicts.compared([{**claim, "workloads": ["xz"]}], claim["of"], [*other, *rows], each_recording=True)
    assert [line.ours for line in found] == ["1: 90.0%, 40.0%"]
    # Nothing prefetched in the second: it says nothing.
    nothing = {**row(2, "physical", 0.0), "prefetches": 0}
    ((_, (line,)),) = verdicts.compared([claim], claim["of"], [virtual, row(1, "physical", 0.4), nothing], each_recording=True)
    assert (line.holds, line.judged) == (True, (True,))


def test_no_line_is_lost_among_recordings() -> None:
    """Shares and writes have the same label."""
    rows = [below("xz", 50 + recording, policy=policy, cache_ways=ways, flash_writes=9, recording=recording, addresses="physical")
            for policy, ways, recording in itertools.product(("lru", "cflru"), (1, 16), (1, 2))]  # fmt: skip
    claim = claim_of("002-31")
    ((_, apart),) = verdicts.compared([claim], claim["of"], rows[::2])
    ((_, found),) = verdicts.compared([claim], claim["of"], rows, each_recording=True)
    assert [(line.of, line.paper) for line in found] == [(line.of, line.paper) for line in apart] and len(found) == 3
    assert found[0].ours == "1: 51.0 51.0%; 2: 52.0 52.0%"
    # A claim of all programs together is not judged where one of them is missing.
    first = [{**row, "workload": "pagerank"} for row in rows[::2]]
    ((_, found),) = verdicts.compared([claim], claim["of"], [*rows, *first], each_recording=True)
    assert [line.ours for line in found if line.of.startswith("xz: LRU")] == ["1: 51.0 51.0%"]


def test_sentences() -> None:
    def line(holds: bool | None) -> verdicts.Line:
        return verdicts.Line("of", "paper", "ours", holds)

    plain, with_one = {"id": "002-98"}, {"id": "002-99", "differs": "Traces are shorter."}
    assert verdicts.without_sentence([(plain, [line(True), line(False)]), (with_one, [line(False)])]) == (["002-98"], [])
    assert verdicts.without_sentence([(plain, [line(None)]), (with_one, [line(True), line(None)])]) == ([], ["002-99"])
    # What was not recorded says nothing of a sentence.
    assert verdicts.without_sentence([(with_one, []), (with_one, [line(None)])]) == ([], [])


def test_numbers_beside_each_other_are_not_judged() -> None:
    beside = {"trace_statistics", "least_writes", "best_share", "metric", "metrics_of_xz"}
    assert beside <= set(verdicts.CHECKS)
    statistics = {"interarrival_ns": 50.0, "reads_percent": 60.0, "footprint_gib": None, "accesses_millions": 20.0, "spatial": 0.5,
                  "temporal": 0.5}  # fmt: skip
    row = of("xz", flash_writes=5, requests=10, sub_us_percent=5, prefetch="best-offset", prefetches=0, prefetch_accuracy=0.0,
             prefetch_coverage=0.0, **statistics, **{f"paper_{name}": 1.0 for name in statistics})  # fmt: skip
    for claim in PUBLISHED:
        if claim["check"] in beside:
            rows = [{**row, "workload": name, "prefetch": prefetch} for name, prefetch in itertools.product(
                claim.get("workloads", ["transformer", "radiosity"]), ("best-offset", "leap"))]  # fmt: skip
            found = judge(claim["id"], rows)
            assert found and set(found) == {None}, claim["id"]
    assert not JUDGED & beside


def test_every_check_that_judges_was_asked(request: pytest.FixtureRequest) -> None:
    if len(request.session.items) < 50 or request.config.getoption("keyword"):
        pytest.skip("only a part of this file runs")
    assert set(verdicts.CHECKS) - JUDGED == {"trace_statistics", "least_writes", "best_share", "metric", "metrics_of_xz"}
