"""Panels of lying bars, side by side and one below the other."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from drawing import svg

ROW = 17
BAR = 12
LABEL = 118
FIGURE = 86
PANEL = 470
GAP = 14


@dataclass(frozen=True)
class Bar:
    """One bar: parts one behind the other with their colours, the lowest and the highest round, and what stands behind it."""

    label: str
    parts: list[tuple[float, str]]
    text: str
    ends: tuple[float, float] | None = None

    def length(self) -> float:
        """All of it."""
        return sum(value for value, _ in self.parts)


@dataclass(frozen=True)
class Panel:
    """Bars of one scale from 0 on, and in which unit."""

    title: str
    unit: str
    bars: list[Bar]

    def height(self) -> int:
        """With its title and its axis."""
        return 26 + ROW * len(self.bars) + 26


def ticks(longest: float) -> list[float]:
    """Round values from 0 up to the longest bar, a handful of them."""
    if longest <= 0:
        return [0.0]
    step = 10.0 ** len(str(int(longest)))
    while longest / step < 2.5:
        step /= 10
        for times in (5, 2, 1):
            if longest / (step * times) >= 2.5:
                step *= times
                break
    return [step * at for at in range(int(longest / step) + 1)]


def drawn(panel: Panel, left: int, top: int) -> list[str]:
    """A panel with its left upper corner there."""
    longest = max((max(bar.length(), bar.ends[1] if bar.ends else 0) for bar in panel.bars), default=0)
    scale = (PANEL - LABEL - FIGURE - GAP) / longest if longest else 0
    zero = left + LABEL
    bottom = top + 26 + ROW * len(panel.bars)
    out = [f'<text class="t" x="{left + 8}" y="{top + 16}">{escape(panel.title)}</text>']
    for value in ticks(longest):
        at = zero + value * scale
        out.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top + 24}" y2="{bottom}" stroke="#ddd"/>')
        out.append(f'<text class="s" x="{at:.1f}" y="{bottom + 14}" text-anchor="middle">{value:g}</text>')
    out.append(f'<text class="s" x="{left + PANEL - GAP}" y="{bottom + 14}" text-anchor="end">{escape(panel.unit)}</text>')
    for number, bar in enumerate(panel.bars):
        y = top + 26 + ROW * number
        out.append(f'<text x="{zero - 6}" y="{y + 11}" text-anchor="end">{escape(bar.label)}</text>')
        at = float(zero)
        for value, colour in bar.parts:
            out.append(f'<rect x="{at:.1f}" y="{y + 1}" width="{value * scale:.1f}" height="{BAR}" fill="{colour}"/>')
            at += value * scale
        if bar.ends:
            low, high = (zero + value * scale for value in bar.ends)
            out.append(f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y + 7}" y2="{y + 7}" stroke="#222" stroke-width="1.5"/>')
            at = max(at, high)
        out.append(f'<text x="{at + 6:.1f}" y="{y + 11}">{escape(bar.text)}</text>')
    out.append(f'<line x1="{zero}" x2="{zero}" y1="{top + 24}" y2="{bottom}" stroke="#222"/>')
    return out


def picture(title: str, rows: list[list[Panel]], legend: list[tuple[str, str]]) -> str:
    """Rows of panels under a title and what the colours mean."""
    width = PANEL * max(len(row) for row in rows) + 10
    out = [f'<text class="t" x="10" y="22">{escape(title)}</text>']
    x, y = 10, 44
    for words, colour in legend:
        length = 26 + round(6.6 * len(words))
        if x + length > width:
            x, y = 10, y + 18
        out.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{colour}"/>')
        out.append(f'<text x="{x + 17}" y="{y}">{escape(words)}</text>')
        x += length
    top = y + 14
    for row in rows:
        for column, panel in enumerate(row):
            out += drawn(panel, 5 + PANEL * column, top)
        top += max(panel.height() for panel in row) + 8
    return svg(width, top, out)
