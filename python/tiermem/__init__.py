"""Size memory for a workload: traces, miss-ratio curves, cache simulation and reports.

The code is that of the command ``tiermem``. Wherever a function takes a *trace*, that is

- the path of a trace file in any format that ``tiermem trace`` reads,
- the description of a generator, such as ``"zipf:objects=100k,requests=1M"``,
- any object with the Arrow stream interface (``__arrow_c_stream__``): a table of pyarrow or polars, a result of duckdb, the
  return value of :func:`read_trace`. It needs a column ``key``; ``time_ns``, ``op``, ``size``, ``tenant``, ``key_size`` and
  ``ttl_s`` are optional. It is read batch by batch.

Long calls release the interpreter's lock, can be interrupted, and report their progress.
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
