#!/usr/bin/env python3
"""Changes one decision of the block cache's cleaner at a time and says which changes no test notices.

    scripts/mutate_cleaner.py [--test-command 'cargo test -q -p tiermem-policy --test extents_cleaner'] [NAME ...]

Each mutation is a text in a file that is replaced by another; the file is put back afterwards, also after Ctrl-C. Do not build in the same
tree meanwhile. The exit code is 1 where a mutation survives, or its text is not there exactly once.
"""

import argparse
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLEANER = "crates/policy/src/extents/cleaner/"
MACHINE, RULES, VOLUME = CLEANER + "mod.rs", CLEANER + "rules.rs", CLEANER + "volume.rs"
OUTCOMES = CLEANER + "outcomes.rs"

MUTATIONS = {
    # name: (file, what is there, what is put in its place)
    "stop-never": (MACHINE, "DIRTY_PERCENT_MAX: u64 = 90", "DIRTY_PERCENT_MAX: u64 = 100"),
    "stop-early": (MACHINE, "DIRTY_PERCENT_MAX: u64 = 90", "DIRTY_PERCENT_MAX: u64 = 89"),
    "stop-all": (MACHINE, "let part_bytes = limit_bytes / dirtying.max(1) as u64;", "let part_bytes = 0 * dirtying as u64;"),
    "no-pass-over": (MACHINE, "PASSED_OVER_MAX: u32 = 256", "PASSED_OVER_MAX: u32 = 0"),
    "youngest-first": (MACHINE, "order.sort_unstable();", "order.sort_unstable();\n        order.reverse();"),
    "first-volume-first": (MACHINE, "order.sort_unstable();", "order.sort_unstable_by_key(|of| of.1);"),
    "batch-larger": (MACHINE, "BATCH_BYTES: u64 = 1 << 20", "BATCH_BYTES: u64 = 4 << 20"),
    "batch-smaller": (MACHINE, "BATCH_BYTES: u64 = 1 << 20", "BATCH_BYTES: u64 = 1 << 19"),
    "leaving-unbounded": (MACHINE, "LEAVING_BYTES_MAX: u64 = 8 << 20", "LEAVING_BYTES_MAX: u64 = 64 << 20"),
    "leaving-counts": (MACHINE, "dirty_bytes += volume.epochs.dirty_bytes();", "dirty_bytes += volume.epochs.lacking_bytes();"),
    "budget-for-each": (MACHINE, "self.budget_bytes = self.budget_bytes.saturating_sub(taken_bytes);", ""),
    "flush-each-batch": (MACHINE, "if is_much ||", "if unflushed_bytes > 0 ||"),
    "flush-late": (MACHINE, "FLUSHES_PER_RESERVE: u64 = 2", "FLUSHES_PER_RESERVE: u64 = 1"),
    "flush-not-for-waiters": (MACHINE, "|| is_waited_for && covers_all", "|| is_waited_for && covers_all && false"),
    "no-haste": (MACHINE, "self.budget_bytes = self.budget_bytes.max(WAITING_BYTES.saturating_sub(coming_bytes));", "let _ = (WAITING_BYTES, coming_bytes);"),
    "haste-for-ever": (MACHINE, "WAITING_BYTES.saturating_sub(coming_bytes)", "WAITING_BYTES.max(coming_bytes)"),
    "named-not-first": (MACHINE, "self.take_parts(&plan.clean, &plan.clean_volumes, acts);", "let _ = (&plan, acts);"),
    "first-share-only": (MACHINE, "(0..extents.shares()).map(Share)", "(0..1).map(Share)"),
    "reserve-of-the-cache": (MACHINE, "reserve_bytes(extents.limit_bytes(share))", "reserve_bytes(extents.geometry().capacity_bytes())"),
    "log-ignored": (MACHINE, "        if !self.has_log_room {\n", "        if false {\n"),
    "log-ignored-by-waiters": (MACHINE, "        if self.has_log_room {\n", "        if true {\n"),
    "clock-back": (MACHINE, "self.now_ns = self.now_ns.max(now_ns);", "self.now_ns = now_ns;"),
    "sessions-ignored": (OUTCOMES, "                    state.epochs.lost_session();\n                }\n                state.epochs.written", "                }\n                state.epochs.written"),
    "failed-flush-is-clean": (OUTCOMES, "            _ => {\n                state.epochs.lost_session();", "            _ => {\n                state.epochs.flushed(&mut Vec::new());"),
    "gaps-go": (OUTCOMES, "state.epochs.lost(reached..run.start);", ""),
    "epoch-not-due": (MACHINE, "state.due_bytes = state.due_bytes.max(BATCH_BYTES);", ""),
    "no-back-off": (VOLUME, "self.retry_at_ns = now_ns.saturating_add(wait_ns);", "let _ = wait_ns;"),
    "back-off-constant": (VOLUME, "self.failures += 1;", ""),
    "back-off-first": (VOLUME, "RETRY_NS: u64 = 100_000_000", "RETRY_NS: u64 = 50_000_000"),
    "back-off-longest": (VOLUME, "RETRY_NS_MAX: u64 = 30_000_000_000", "RETRY_NS_MAX: u64 = 60_000_000_000"),
    "back-off-for-ever": (VOLUME, "        self.failures = 0;\n    }", "    }"),
    "hang-never": (VOLUME, "HANG_NS: u64 = 1_000_000_000", "HANG_NS: u64 = 1_000_000_000_000"),
    "age-ignored": (VOLUME, "self.due_bytes = dirty_bytes;", ""),
    "urgent-ignored": (VOLUME, "if self.is_urgent() { self.epochs.dirty_bytes() }", "if false { 0 }"),
    "cold-every": (RULES, "COLD_EVERY_NS: u64 = 20_000_000", "COLD_EVERY_NS: u64 = 40_000_000"),
    "cold-pause": (RULES, "COLD_PAUSE_NS: u64 = 500_000", "COLD_PAUSE_NS: u64 = 0"),
    "cold-never-by-the-clock": (RULES, "            () if self.is_stale => COLD_EVERY_NS,\n", ""),
    "cold-always-by-the-clock": (RULES, "            () => return None,", "            () => COLD_EVERY_NS,"),
    "low-mark": (RULES, "percent(capacity_bytes, self.low_percent.into()).min(high)", "high"),
    "waiting-bytes": (RULES, "WAITING_BYTES: u64 = 4 << 20", "WAITING_BYTES: u64 = 1 << 20"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command = "cargo test -q -p tiermem-policy --test extents_cleaner"
    parser.add_argument("--test-command", default=command)
    parser.add_argument("--timeout-s", type=int, default=900)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MUTATIONS)} [default: all]")
    arguments = parser.parse_args()
    bad = []
    for name in arguments.names or MUTATIONS:
        file, before, after = MUTATIONS[name]
        path = ROOT / file
        text = path.read_text()
        if text.count(before) != 1:
            print(f"{name}: its text is there {text.count(before)} times", flush=True)
            bad.append(name)
            continue
        try:
            path.write_text(text.replace(before, after))
            run = subprocess.run(
                shlex.split(arguments.test_command),
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=arguments.timeout_s,
                check=False,
            )
            failed = [line.split()[1] for line in run.stdout.splitlines() if line.startswith("---- ")]
            if "error: could not compile" in run.stdout:
                print(f"{name}: does not compile", flush=True)
                bad.append(name)
            elif run.returncode == 0:
                print(f"{name}: SURVIVES", flush=True)
                bad.append(name)
            else:
                print(f"{name}: noticed by {', '.join(failed) or 'an abort'}", flush=True)
        except subprocess.TimeoutExpired:
            print(f"{name}: noticed, the tests do not end", flush=True)
        finally:
            path.write_text(text)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
