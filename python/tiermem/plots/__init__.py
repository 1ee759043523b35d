"""Plots of what the other functions find, with matplotlib (``pip install 'tiermem[plots]'``).

Each function draws into the axes that it is given, or into new ones, and returns them. Colours can be told apart by the
colour-blind. :mod:`tiermem.plots.cxl_flash` draws tables of ``tiermem sim cxl-flash``,
:mod:`tiermem.plots.cxl_flash_traces` the traces before them.
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
