"""A sort: `sort` of coreutils holds all lines in memory. It needs nothing that is not there."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Iterable
from pathlib import Path

from kinds.contract import Outcome, Workload
from paged import Failed, Paging
from programs import Unavailable

LINES_AT_ONCE = 100_000


class Sort(Workload):
    """Seconds. Its buffer holds all lines, so it writes no files of its own."""

    def prepare(self) -> None:
        """The same lines wherever they are made."""
        if not shutil.which("sort"):
            raise Unavailable("there is no sort here: install coreutils")
        self.unsorted = self.place.data / f"lines-{self.sizes['lines']}"
        if not self.unsorted.exists():
            self.place.data.mkdir(parents=True, exist_ok=True)
            chance = random.Random(1)
            making = self.unsorted.with_suffix(".making")
            with making.open("w") as file:
                left = self.sizes["lines"]
                while left:
                    count = min(left, LINES_AT_ONCE)
                    file.writelines(f"{chance.getrandbits(256):064x}\n" for _ in range(count))
                    left -= count
            making.rename(self.unsorted)

    def run(self, paging: Paging, engine_bytes: int | None = None) -> Outcome:
        """By bytes, in two threads."""
        out = self.place.scratch / "sorted"
        words = ["--parallel=2", f"--buffer-size={self.sizes['buffer_mib']}M", "-T", str(self.place.scratch), "-o", str(out)]
        paging.run(["sort", *words, str(self.unsorted)], {"LC_ALL": "C"})
        if out.stat().st_size != self.unsorted.stat().st_size:
            raise Failed(f"sort has written {out.stat().st_size} bytes of {self.unsorted.stat().st_size}")
        with out.open("rb") as file:
            return Outcome(paging.report["real_s"], hashlib.file_digest(file, "sha256").hexdigest())

    def files(self) -> Iterable[Path]:
        """What is sorted."""
        return [self.unsorted]
