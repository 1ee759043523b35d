"""Programs under `tiermem run`: a command that ends by itself, or a server with clients outside its limit."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

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
    """One run: the words before the program's (none: the bare program), and what is known of it afterwards."""

    words: list[str]
    scratch: Path
    report: dict[str, Any] = field(default_factory=dict)
    command: str = ""

    def run(self, command: list[str], environment: dict[str, str] | None = None) -> str:
        """What a program that ends by itself prints."""
        out = self.scratch / "out"
        with out.open("wb") as file:
            self._wait(self._started(command, environment, file))
        return out.read_text()

    @contextmanager
    def serving(self, command: list[str], environment: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """A server, while clients use it; it is told to end by SIGTERM, which tiermem passes on."""
        with (self.scratch / "out").open("wb") as file:
            program = self._started(command, environment, file)
        try:
            yield program
        except BaseException:
            if program.poll() is None:
                program.send_signal(signal.SIGTERM)
                program.wait()
            raise
        program.send_signal(signal.SIGTERM)
        self._wait(program)

    def _started(self, command: list[str], environment: dict[str, str] | None, out: IO[bytes]) -> subprocess.Popen[bytes]:
        told = ["--report", str(self._report_path), "--"] if self.words else []
        whole = [*self.words, *told, *command]
        self.command = shlex.join(whole)
        base = os.environ | (environment or {})
        with self._log.open("wb") as log:
            self._at = time.monotonic()
            return subprocess.Popen(whole, stdout=out, stderr=log, env=base, cwd=self.scratch, preexec_fn=end_with_this)

    def _wait(self, program: subprocess.Popen[bytes]) -> None:
        """Processor time is that of the program and of tiermem, with all processes that they have waited for."""
        _, status, used = os.wait4(program.pid, 0)
        real_s = time.monotonic() - self._at
        program.returncode = os.waitstatus_to_exitcode(status)
        if program.returncode:
            raise Failed(f"{self.command} exited with {program.returncode}: {self._log.read_text()[-2000:]}")
        told = json.loads(self._report_path.read_text()) if self.words else {"real_s": real_s}
        self.report = {name: told.get(name) for name in REPORTED} | {"cpu_s": used.ru_utime + used.ru_stime}

    @property
    def _report_path(self) -> Path:
        return self.scratch / "report.json"

    @property
    def _log(self) -> Path:
        return self.scratch / "log"
