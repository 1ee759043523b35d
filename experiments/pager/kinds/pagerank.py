"""Page rank of a random graph, by the workload that lies beside tiermem."""

from __future__ import annotations

from kinds.contract import Outcome, Workload
from paged import Paging
from programs import Unavailable


class PageRank(Workload):
    """Seconds. The program prints a checksum of the scores."""

    def prepare(self) -> None:
        """The graph is made by the program."""
        self.program = self.place.tiermem.parent / "pagerank"
        if not self.program.exists():
            raise Unavailable(f"{self.program} is not there: build it with `cargo build --release -p tiermem-workloads`")

    def run(self, paging: Paging, engine_bytes: int | None = None) -> Outcome:
        """As a user starts it."""
        told = paging.run([str(self.program), "--scale", str(self.sizes["scale"]), "--iterations", str(self.sizes["iterations"])])
        return Outcome(paging.report["real_s"], told.strip())
