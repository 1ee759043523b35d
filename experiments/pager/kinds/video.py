"""Video: ffmpeg encodes generated pictures by libx264; the seed's Figure 4.2."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from kinds.contract import Outcome, Workload
from paged import Failed, Paging


class Video(Workload):
    """Frames a second. The encoded stream is the same, bit for bit, in every run."""

    def prepare(self) -> None:
        """The input is made by ffmpeg itself, while it encodes."""
        self.program = self.place.programs.debian("ffmpeg", "ffmpeg")

    def run(self, paging: Paging, engine_bytes: int | None = None) -> Outcome:
        """Everything but the input is as ffmpeg has it."""
        out = self.place.scratch / "video.h264"
        source = f"testsrc2=size={self.sizes['size']}:rate={self.sizes['rate']}:duration={self.sizes['seconds']}"
        # Libraries of linear algebra lie in folders of their own, as a system may have several.
        folders = [f"usr/lib/x86_64-linux-gnu/{name}" for name in ("blas", "lapack")]
        words = ["-hide_banner", "-nostdin", "-v", "error", "-f", "lavfi", "-i", source, "-c:v", "libx264", "-f", "h264", str(out)]
        paging.run([*self.program.command("usr/bin/ffmpeg", *folders), *words])
        frames = self.sizes["rate"] * self.sizes["seconds"]
        stream = out.read_bytes()
        if not stream:
            raise Failed("ffmpeg has written nothing")
        return Outcome(frames / paging.report["real_s"], hashlib.sha256(stream).hexdigest())

    def files(self) -> Iterable[Path]:
        """The program and its libraries."""
        return [self.program.root]
