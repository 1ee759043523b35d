"""Plots of the other functions' results, with matplotlib (``pip install 'tiermem[plots]'``).

Each function draws into the given axes, or into new ones, and returns them. Colours suit colour-blind readers.
:mod:`tiermem.plots.cxl_flash` draws tables of ``tiermem sim cxl-flash``, :mod:`tiermem.plots.cxl_flash_traces` draws
memory traces.
"""

from . import cxl_flash, cxl_flash_traces
from ._axes import COLOURS
from .curves import mrc
from .traces import popularity, reuse_time, sizes, working_set

__all__ = [
    "COLOURS",
    "cxl_flash",
    "cxl_flash_traces",
    "mrc",
    "popularity",
    "reuse_time",
    "sizes",
    "working_set",
]
