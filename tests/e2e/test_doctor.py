"""`tiermem doctor`: what it says of this machine, held against what the machine says itself."""

from __future__ import annotations

import csv
import io
import json
import mmap
import pathlib
import re
import shutil
import sys

from programs import workload
from store import retried, tiermem

FIELDS = ["item", "state", "purpose", "found", "advice"]
SOURCES = ["refs", "writes", "faults", "damon", "perf-mem", "lackey"]
DAMON = pathlib.Path("/sys/kernel/mm/damon/admin/kdamonds")


def rows() -> dict[str, dict[str, str]]:
    done = tiermem("doctor", "--format", "json")
    assert done.returncode == 0 and done.stderr == "", done
    found = json.loads(done.stdout)
    by_item = {row["item"]: row for row in found}
    assert len(by_item) == len(found)
    return by_item


def test_every_row_has_all_fields_and_says_what_would_help() -> None:
    found = rows()
    for row in found.values():
        assert list(row) == FIELDS
        assert row["state"] in ("yes", "limited", "no", "unknown") and row["purpose"], row
        assert (row["advice"] == "") == (row["state"] == "yes"), row
    assert [f"source {name}" for name in SOURCES] == [item for item in found if item.startswith("source ")]
    for item in ["NUMA nodes", "CXL memory", "DAMON", "PAGEMAP_SCAN", "userfaultfd", "agent", "privileges"]:
        assert item in found
    paging = ["process_madvise", "swap", "fault times", "control groups", "out-of-memory daemons"]
    for item in ["userfaultfd faults", "userfaultfd shared", *paging]:
        assert item in found


def test_swap_and_control_groups_are_those_of_the_machine() -> None:
    found = rows()
    areas = [line.split()[0] for line in pathlib.Path("/proc/swaps").read_text().splitlines()[1:]]
    assert all(area in found["swap"]["found"] for area in areas)
    assert (found["swap"]["state"] == "yes") == bool(areas)
    mounts = [line.split(" - ")[1].split(" ", 2) for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()]
    one = any(kind == "cgroup" and "memory" in options.split(",") for kind, _, options in mounts)
    if one:
        assert "version 1" in found["control groups"]["found"]


def test_forms_say_the_same() -> None:
    found = rows()
    done = tiermem("doctor", "--format", "csv")
    assert done.returncode == 0
    table = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["item"] for row in table] == list(found)
    assert all(row["state"] == found[row["item"]]["state"] for row in table)
    done = tiermem("doctor")
    assert done.returncode == 0
    for item, row in found.items():
        assert re.search(rf"^{re.escape(item)} +{row['state']} +", done.stdout, re.MULTILINE), item


def test_what_it_says_can_be_seen() -> None:
    found = rows()
    # Every Linux machine tells what is referenced; in granules with an agent.
    has_agent = found["agent"]["state"] == "yes"
    assert found["source refs"]["state"] == ("yes" if has_agent else "limited")
    for name in ("valgrind", "perf"):
        assert (found[name]["state"] == "yes") == (shutil.which(name) is not None)
        assert found[name]["found"] in (shutil.which(name), "not in PATH")
    assert found["source lackey"]["state"] == found["valgrind"]["state"]
    nodes = pathlib.Path("/sys/devices/system/node/has_memory")
    if nodes.exists():
        first = re.match(r"\d+", nodes.read_text())
        assert first and f"node {first[0]}: " in found["NUMA nodes"]["found"]


# Touches a page for the first time each millisecond, for a second or longer. Shared memory has small pages.
FIRST_TOUCHES = """
import mmap, time
memory = mmap.mmap(-1, 4 << 20)
for page in range(0, len(memory), mmap.PAGESIZE):
    memory[page] = 1
    time.sleep(0.001)
"""


def test_a_source_that_works_records(tmp_path: pathlib.Path) -> None:
    out, report = tmp_path / "a.rec", tmp_path / "report"
    found = rows()
    # Both do until they end what their source sees. Of a program that does so only while it starts, as `sleep` does, there is nothing
    # to see on a machine that is too busy to let the recorder look in that time; then recording fails, and says so.
    commands = {
        "refs": workload("skewed", "--footprint 4MiB --seconds 1"),
        "faults": [sys.executable, "-c", FIRST_TOUCHES],
    }
    for source, command in commands.items():
        state = found[f"source {source}"]["state"]

        def attempt(source: str = source, command: list[str] = command, state: str = state) -> None:
            options = ["--source", source, "--slice", "20ms", "--format", "json", "--report", str(report), "-o", str(out)]
            done = tiermem("record", *options, "--", *command)
            if state == "no":
                assert done.returncode == 125 and source in done.stderr, done
                return
            assert done.returncode == 0, done
            [summary] = json.loads(report.read_text())
            # Of faults a sample is a page in a slice: most are touched after the recorder has come.
            least = 100 if source == "faults" else 1
            assert summary["samples"] >= least, done
            assert summary["touched_bytes"] >= least * mmap.PAGESIZE, done

        retried(attempt)


def test_nothing_is_changed() -> None:
    files = [
        DAMON / "nr_kdamonds",
        pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled"),
        pathlib.Path("/proc/sys/kernel/perf_event_paranoid"),
        pathlib.Path("/proc/sys/vm/max_map_count"),
        *sorted(DAMON.glob("*/state")),
        *sorted(DAMON.glob("*/contexts/*/operations")),
        *sorted(pathlib.Path("/sys/kernel/mm/mempolicy/weighted_interleave").glob("*")),
    ]

    def contents() -> list[str]:
        return [file.read_text() for file in files if file.is_file()]

    before = contents()
    rows()
    assert contents() == before
