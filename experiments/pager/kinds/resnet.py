"""ResNet50: training on the processor, by Debian's PyTorch; the seed's Figure 4.5 had eight GPUs and ImageNet."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from kinds.contract import INSIDE, Outcome, Workload
from paged import Failed, Paging

# Without it the reference implementation of BLAS serves, which is 20 times slower.
BLAS = "usr/lib/x86_64-linux-gnu/openblas-pthread"
SIZES = ("images", "batch", "epochs", "side")


class Resnet(Workload):
    """Seconds of training. The seed of all random numbers is fixed, so the losses are the same in every run."""

    def prepare(self) -> None:
        """The pictures are made by the program."""
        self.program = self.place.programs.debian("torch", "python3-torch", "python3-torchvision", "libopenblas0-pthread")

    def run(self, paging: Paging, engine_bytes: int | None = None) -> Outcome:
        """Two threads in every run, as a sum's order decides its last bits."""
        words = [word for name in SIZES for word in (f"--{name}", str(self.sizes[name]))]
        python = self.program.command("usr/bin/python3.11", BLAS)
        environment = {"PYTHONHOME": str(self.program.root / "usr"), "PYTHONPATH": "", "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
        told = json.loads(paging.run([*python, str(INSIDE / "resnet.py"), *words], environment))
        steps = self.sizes["epochs"] * -(-self.sizes["images"] // self.sizes["batch"])
        if len(told["losses"]) != steps:
            raise Failed(f"{len(told['losses'])} steps of training instead of {steps}")
        return Outcome(told["seconds"], " ".join(float(it).hex() for it in told["losses"]))

    def files(self) -> Iterable[Path]:
        """Python, PyTorch and their libraries."""
        return [self.program.root]
