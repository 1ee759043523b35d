from collections.abc import Sequence
from typing import Any, final

from ._curves import Sampling
from ._report import Prices
from ._trace import ArrowStream, Progress, Reading

__all__ = [
    "TraceStream",
    "__version__",
    "generate",
    "mean_curve",
    "mrc",
    "policies",
    "read_trace",
    "report",
    "simulate",
    "stat",
]
__version__: str

@final
class TraceStream:
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def to_reader(self) -> Any: ...
    def to_table(self) -> Any: ...

def read_trace(trace: str, reading: Reading, batch_records: int) -> TraceStream: ...
def generate(spec: str, batch_records: int) -> TraceStream: ...
def stat(trace: str | ArrowStream, reading: Reading, sample: float, block: int | None, progress: Progress | None) -> str: ...
def mrc(
    trace: str | ArrowStream,
    reading: Reading,
    policies: Sequence[str],
    ks: Sequence[float],
    sizes: Sequence[int],
    sizes_count: int,
    unit_name: str,
    sampling: Sampling,
    progress: Progress | None,
) -> tuple[list[tuple[str, float | None, int, list[int], list[float], list[float]]], int, float]: ...
def mean_curve(sizes: Sequence[int], parts: Sequence[tuple[float, Sequence[float]]]) -> tuple[list[float], list[float]]: ...
def policies() -> list[str]: ...
def simulate(
    trace: str | ArrowStream,
    reading: Reading,
    policies: Sequence[str],
    ks: Sequence[int],
    sizes: Sequence[int],
    in_bytes: bool,
    seed: int,
    progress: Progress | None,
) -> list[tuple[str, int | None, int, int, int, int, int]]: ...
def report(
    trace: str | ArrowStream,
    reading: Reading,
    name: str,
    sample: float | None,
    seed: int,
    prices: Prices,
    progress: Progress | None,
) -> str: ...
