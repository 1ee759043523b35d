"""How much of which memory does a workload need.

Traces, miss-ratio curves, cache simulation and reports, by the same code as the command ``tiermem``. Wherever a function
takes a *trace*, that is

- the path of a trace file in any format that ``tiermem trace`` reads,
- the description of a generator, such as ``"zipf:objects=100k,requests=1M"``,
- anything that speaks the Arrow stream interface (``__arrow_c_stream__``): a table of pyarrow or polars, a result of duckdb,
  what :func:`read_trace` gives. A column ``key`` must be there; ``time_ns``, ``op``, ``size``, ``tenant``, ``key_size`` and
  ``ttl_s`` may be. They are taken batch by batch.

Long calls run without the interpreter's lock, can be interrupted, and report how far they are.
"""

from ._curves import Curve, Curves
from ._mrc import mrc
from ._native import TraceStream, __version__, policies
from ._report import report
from ._simulate import Simulation, simulate
from ._stat import Distribution, TraceStat, stat
from ._trace import generate, read_trace

__all__ = [
    "Curve",
    "Curves",
    "Distribution",
    "Simulation",
    "TraceStat",
    "TraceStream",
    "__version__",
    "generate",
    "mrc",
    "policies",
    "read_trace",
    "report",
    "simulate",
    "stat",
]
