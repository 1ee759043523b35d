"""A build: make and gcc compile C files that are made here. It needs nothing but a compiler."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path

from kinds.contract import Outcome, Workload
from paged import Failed, Paging
from programs import Unavailable

MAKEFILE = """\
objects := $(patsubst $(source)/%.c,%.o,$(wildcard $(source)/*.c))
all: $(objects)
%.o: $(source)/%.c
\t@gcc -O2 -c -o $@ $<
"""


def source(number: int, functions: int) -> str:
    """A file of functions that differ, so that none is compiled from another's result."""
    lines = ["#include <stdint.h>", "#include <string.h>"]
    for at in range(functions):
        factor = 2 * (number * functions + at) + 1
        lines += [
            f"uint64_t mix_{at}(const uint8_t *bytes, uint64_t length) {{",
            f"    uint64_t table[16], sum = {factor}u;",
            f"    for (int i = 0; i < 16; i++) table[i] = sum = sum * {factor + 2}u + i;",
            "    for (uint64_t at = 0; at + 8 <= length; at += 8) {",
            "        uint64_t word; memcpy(&word, bytes + at, 8);",
            f"        switch (word % 5) {{ case 0: sum += table[word & 15]; break; case 1: sum ^= word >> {1 + at % 31}; break;",
            f"        case 2: table[sum & 15] += word; break; case 3: sum = (sum << {1 + at % 29}) | (sum >> {64 - (1 + at % 29)}); break;",
            f"        default: sum *= {factor + 4}u; }}",
            "    }",
            "    return sum ^ table[3];",
            "}",
        ]
    return "\n".join(lines) + "\n"


class Build(Workload):
    """Seconds of `make -j2`. Objects are the same, bit for bit, in every run."""

    def prepare(self) -> None:
        """The same sources wherever they are made."""
        for program in ("gcc", "make"):
            if not shutil.which(program):
                raise Unavailable(f"there is no {program} here: install gcc and make")
        files, functions = self.sizes["files"], self.sizes["functions"]
        self.sources = self.place.data / f"build-{files}-{functions}"
        if not self.sources.exists():
            making = self.sources.with_suffix(".making")
            shutil.rmtree(making, ignore_errors=True)
            making.mkdir(parents=True)
            for number in range(files):
                (making / f"part{number:03}.c").write_text(source(number, functions))
            making.rename(self.sources)

    def run(self, paging: Paging, engine_bytes: int | None = None) -> Outcome:
        """Objects go to the scratch folder, and none is there before."""
        objects = self.place.scratch / "objects"
        objects.mkdir()
        makefile = objects / "Makefile"
        makefile.write_text(MAKEFILE)
        paging.run(["make", "-s", "-j2", "-C", str(objects), "-f", str(makefile), f"source={self.sources}"])
        made = sorted(objects.glob("*.o"))
        if len(made) != self.sizes["files"]:
            raise Failed(f"{len(made)} objects of {self.sizes['files']} files")
        checksum = hashlib.sha256()
        for path in made:
            checksum.update(path.read_bytes())
        return Outcome(paging.report["real_s"], checksum.hexdigest())

    def files(self) -> Iterable[Path]:
        """The sources. The compiler is everybody's."""
        return [self.sources]
