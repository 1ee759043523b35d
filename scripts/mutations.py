#!/usr/bin/env python3
"""Changes one decision after the other, and says which change no test notices.

    scripts/mutations.py scripts/mutations/placement.toml
    scripts/mutations.py scripts/mutations/placement.toml --only saved
    scripts/mutations.py --check scripts/mutations/*.toml     # only whether each change can be made, in no time

A list has the tests that guard the decisions (`tests`, commands) and the changes (`[[change]]`: name, file, from, to). `from` stands in the
file exactly once. First the tests must pass without a change, or else every change would seem to be noticed. A change passes that makes one
of the tests fail, or never end; it is taken back either way. Exit code 1 if one goes unnoticed, or does not compile, which proves nothing;
2 if the tests fail without a change.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# A command that takes longer does not end: its change is noticed.
TIMEOUT_S = 900
# The exit code of timeout(1) then.
TIMED_OUT = 124


def run(test: str, timeout_s: int = TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    """Runs one command; a timeout of 0 is none."""
    command = ["timeout", str(timeout_s), *shlex.split(test)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def defect(change: dict[str, str]) -> str:
    """Why a change cannot be made; empty if it can."""
    path = ROOT / change["file"]
    count = path.read_text().count(change["from"]) if path.exists() else 0
    return "" if count == 1 else f"is no change: {change['file']} has {count} times {change['from']!r}"


def check(lists: list[Path]) -> int:
    """Says which changes cannot be made, as the code is another now."""
    bad = 0
    for path in lists:
        for change in tomllib.loads(path.read_text())["change"]:
            if why := defect(change):
                bad += 1
                print(f"{path.name}: {change['name']}: {why}")
    return 1 if bad else 0


def outcome(change: dict[str, str], tests: list[str]) -> str:
    """What the tests say of a change."""
    if why := defect(change):
        return why
    path = ROOT / change["file"]
    before = path.read_text()
    path.write_text(before.replace(change["from"], change["to"]))
    try:
        for test in tests:
            done = run(test)
            if done.returncode == TIMED_OUT:
                return f"noticed, {test} does not end"
            if "could not compile" in done.stderr:
                return f"does not compile:\n{done.stderr}"
            if done.returncode:
                failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("---- ")]
                return f"noticed by {', '.join(failed) or test}"
    finally:
        path.write_text(before)
    return "goes unnoticed"


def try_all(path: Path, only: str) -> int:
    """Tries the changes of a list whose name has `only` in it."""
    wanted = tomllib.loads(path.read_text())
    for test in wanted["tests"]:
        # The first run also builds everything, which may take long.
        done = run(test, timeout_s=0)
        if done.returncode:
            print(f"without a change this fails: {test}\n{done.stdout}{done.stderr}", file=sys.stderr)
            return 2
    bad = 0
    for change in wanted["change"]:
        if only in change["name"]:
            said = outcome(change, wanted["tests"])
            bad += not said.startswith("noticed")
            print(f"{change['name']}: {said}", flush=True)
    return 1 if bad else 0


def main() -> int:
    """Tries or checks lists."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path, nargs="+")
    parser.add_argument("--only", default="", help="changes whose name has this in it")
    parser.add_argument("--check", action="store_true", help="only say which changes cannot be made")
    args = parser.parse_args()
    if args.check:
        return check(args.list)
    return max(try_all(path, args.only) for path in args.list)


if __name__ == "__main__":
    sys.exit(main())
