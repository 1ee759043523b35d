"""The figure of the workloads: for each, its performance and its major faults over R, as the seed's Figures 4.2 to 4.6 have them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from arms import ROWS
from drawing import svg

COLORS = ("#999999", "#555555", "#c0392b", "#2471a3")
SEED_COLOR = "#b7950b"
WIDTH, HEIGHT, PANEL_WIDTH, PANEL_HEIGHT, LEFT, TOP = 880, 230, 330, 130, 60, 40
MOST_R = 4.0


class Measured(Protocol):
    """Of a cell of the table, what is drawn."""

    slowdown: float
    major_faults: float


@dataclass(frozen=True)
class Panel:
    """One workload: each arm's cells by R, and the seed's slowdowns by R."""

    title: str
    lines: dict[str, list[tuple[float, Measured]]]
    seed: dict[float, float]


def drawn(panels: list[Panel]) -> str:
    """A row for each workload."""
    parts: list[str] = []
    for at, panel in enumerate(panels):
        top = at * HEIGHT + TOP
        parts.append(f'<text class="t" x="{LEFT}" y="{top - 18}">{panel.title}</text>')
        relative = {arm: [(r, 1 / cell.slowdown) for r, cell in its] for arm, its in panel.lines.items()}
        if panel.seed:
            relative["the seed's"] = [(1.0, 1.0), *((r, 1 / it) for r, it in sorted(panel.seed.items()))]
        faults = {arm: [(r, cell.major_faults) for r, cell in its] for arm, its in panel.lines.items()}
        parts += _chart(LEFT, top, "performance, of that in all DRAM", relative)
        parts += _chart(LEFT + PANEL_WIDTH + 90, top, "major faults of a run", faults)
        parts += _legend(top + PANEL_HEIGHT + 42, list(relative))
    return svg(WIDTH, max(HEIGHT * len(panels), 1), parts)


def _chart(left: float, top: float, title: str, lines: dict[str, list[tuple[float, float]]]) -> list[str]:
    """Lines over R, from zero up."""
    most = max((value for its in lines.values() for _, value in its), default=0) or 1
    bottom = top + PANEL_HEIGHT
    parts = [
        f'<text class="s" x="{left}" y="{top - 4}">{title}</text>',
        f'<path d="M{left} {top}V{bottom}H{left + PANEL_WIDTH}" fill="none" stroke="#222"/>',
        f'<text class="s" x="{left - 6}" y="{top + 8}" text-anchor="end">{most:.3g}</text>',
        f'<text class="s" x="{left - 6}" y="{bottom}" text-anchor="end">0</text>',
    ]
    for r in (1, 1.5, 2, 3, 4):
        parts.append(f'<text class="s" x="{_across(left, r):.1f}" y="{bottom + 15}" text-anchor="middle">{r:g}</text>')
    for name, its in lines.items():
        points = [(_across(left, r), bottom - value / most * PANEL_HEIGHT) for r, value in its]
        color, dashes = _style(name)
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"{dashes}/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in points]
    return parts


def _across(left: float, r: float) -> float:
    return left + 20 + (r - 1) / (MOST_R - 1) * (PANEL_WIDTH - 40)


def _style(name: str) -> tuple[str, str]:
    """A name has one color in all charts."""
    return (COLORS[ROWS.index(name)], "") if name in ROWS else (SEED_COLOR, ' stroke-dasharray="5 4"')


def _legend(y: float, names: list[str]) -> list[str]:
    parts = []
    for at, name in enumerate(names):
        x = LEFT + at * 160
        color, dashes = _style(name)
        parts.append(f'<line x1="{x}" x2="{x + 24}" y1="{y - 4}" y2="{y - 4}" stroke="{color}" stroke-width="2"{dashes}/>')
        parts.append(f'<text x="{x + 30}" y="{y}">{name}</text>')
    return parts
