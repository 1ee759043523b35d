"""What the experiments' plots have in common."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def svg(width: int, height: int, parts: list[str]) -> str:
    """A picture of these parts on white."""
    style = "text{font:12px sans-serif;fill:#222} .t{font-size:14px;font-weight:bold} .s{fill:#666}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    return f'{head}<style>{style}</style><rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'


def bar(y: float, left: float, scale: float, name: str, value: float, rounds: list[float]) -> list[str]:
    """A bar of this value, grey for redis, with a line from its lowest to its highest round."""
    color = "#999" if name == "redis" else "#c0392b"
    ends = f'x1="{left + min(rounds) * scale:.1f}" x2="{left + max(rounds) * scale:.1f}"'
    return [
        f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{name}</text>',
        f'<rect x="{left}" y="{y}" width="{value * scale:.1f}" height="14" fill="{color}"/>',
        f'<line {ends} y1="{y + 7.0}" y2="{y + 7.0}" stroke="#222" stroke-width="2"/>',
    ]


def keep(stem: Path, data: Any, table: str, picture: str) -> None:
    """Writes data (JSON), a table (Markdown) and a plot (SVG) next to each other."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    stem.with_suffix(".md").write_text(table)
    stem.with_suffix(".svg").write_text(picture)
