"""Control groups of version 2 as a kernel has them: the tests of `crates/sys` that need them, run in a guest that mounts them."""

from __future__ import annotations

import json
import pathlib
import subprocess

from machine import Machine

ROOT = pathlib.Path(__file__).resolve().parents[3]
TESTS = ["version_2_limits_and_has_memory_back", "version_2_kills_together_and_tells"]

SCRIPT = """
grep -q "^[^ ]* /sys/fs/cgroup cgroup2 " /proc/mounts || mount -t cgroup2 none /sys/fs/cgroup || exit 1
echo never >/sys/kernel/mm/transparent_hugepage/enabled
RUST_BACKTRACE=1 sys-tests --show-output --test-threads 1 control_group::tests::version_2
"""


def sys_tests() -> pathlib.Path:
    """The program of the unit tests of `crates/sys`, built if it is not there."""
    build = ["cargo", "test", "-p", "tiermem-sys", "--lib", "--no-run", "--message-format=json"]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=True)
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    programs = [message["executable"] for message in messages if message.get("executable")]
    assert len(programs) == 1, programs
    return pathlib.Path(programs[0])


def test_version_2_does_what_its_files_say(guest: type[Machine]) -> None:
    result = guest("two-nodes", (640, 64)).run(SCRIPT, files={"/bin/sys-tests": sys_tests()})
    assert result.exit_code == 0, result.output
    for test in TESTS:
        assert f"control_group::tests::{test} ... ok" in result.output, result.output
    assert "not run" not in result.output, result.output
