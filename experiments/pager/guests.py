"""Guest machines of the end-to-end tests, for the experiments: emulated in software."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from paged import Failed

GUEST = Path(__file__).resolve().parents[2] / "tests/e2e/guest/machine.py"
PATIENCE_S = 3600


def in_guest(
    script: str, files: dict[str, Path], memory_mib: tuple[int, int], shape: str = "two-nodes", out: Path | None = None,
    under: Sequence[str] = (),
) -> str:  # fmt: skip
    """Runs a script in a guest with these files, and returns what it prints; what it leaves in /out goes to `out`. The emulator is started
    by the command `under`, if there is one.
    """
    puts = [word for path, source in files.items() for word in ("--put", f"{source}={path}")]
    sizes = ",".join(map(str, memory_mib))
    command = [sys.executable, str(GUEST), "--shape", shape, "--memory-mib", sizes, *puts, "--script", "-"]
    command += ["--timeout-s", str(PATIENCE_S), "--under", shlex.join(under), *(["--out", str(out)] if out else [])]
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"the guest's script failed:\n{done.stdout}{done.stderr}")
    return done.stdout
