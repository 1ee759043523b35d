"""Programs under `tiermem run`: a command that ends by itself, or a server with clients outside its limit."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arms import end_with_this

# Of all that a report tells, what a row keeps.
REPORTED = (
    "required_bytes", "charged_peak_bytes", "dram_bytes", "dram_peak_bytes", "flash_peak_bytes", "foreign_bytes", "real_s", "user_s",
    "system_s", "pager_cpu_s", "minor_faults", "major_faults", "fault_p50_us", "fault_p99_us", "prefetched_pages", "prefetch_used_pages",
    "kernel_evicted_pages", "shared_bytes", "events_lost", "read_bytes", "written_bytes", "tcm_saved", "how",
)  # fmt: skip


class Failed(Exception):
    """A program failed, or its result is wrong; says which, and how."""


@dataclass
class Paging:
    """One run: the words before the program's, and what the report has said after it."""

    words: list[str]
    scratch: Path
    report: dict[str, Any] = field(default_factory=dict)
    command: str = ""

    def run(self, command: list[str], environment: dict[str, str] | None = None) -> str:
        """What a program that ends by itself prints."""
        with (self.scratch / "log").open("w+") as log:
            with self._started(command, environment, subprocess.PIPE, log) as program:
                told, _ = program.communicate()
            self._ended(program, log)
        return told.decode()

    @contextmanager
    def serving(self, command: list[str], environment: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """A server, while clients use it; it is told to end by SIGTERM, which tiermem passes on."""
        with (self.scratch / "log").open("w+") as log:
            with self._started(command, environment, log, log) as program:
                try:
                    yield program
                finally:
                    program.send_signal(signal.SIGTERM)
                    program.wait()
            self._ended(program, log)

    def _started(self, command: list[str], environment: dict[str, str] | None, out: Any, log: Any) -> subprocess.Popen[bytes]:
        whole = [*self.words, "--report", str(self.scratch / "report.json"), "--", *command]
        self.command = shlex.join(whole)
        base = os.environ | (environment or {})
        return subprocess.Popen(whole, stdout=out, stderr=log, env=base, cwd=self.scratch, preexec_fn=end_with_this)

    def _ended(self, program: subprocess.Popen[bytes], log: Any) -> None:
        if program.returncode:
            log.seek(0)
            raise Failed(f"{self.command} exited with {program.returncode}: {log.read()[-2000:]}")
        told = json.loads((self.scratch / "report.json").read_text())
        self.report = {name: told.get(name) for name in REPORTED}
