#!/usr/bin/env python3
"""What it costs a server to follow its tenants and to decide about them.

Wang 2024, section 4.2.7: fifteen tenants send GETs, and SET after a miss, with no database behind. Each round runs the same
requests against a server that only keeps tenants apart, and against servers that divide memory from a sample of the keys. Figures
are processor time of the server's process (all threads) for a request, in pairs with the server of the same round that does not
divide; the slowest of a thousand requests, likewise; and what the division takes of memory.

    experiments/tenants/overhead.py            # about half an hour
    experiments/tenants/overhead.py --quick

Writes data (JSON), a table (Markdown) and a plot (SVG) next to each other.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from servers import Setup, Variant, drive, running

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from drawing import keep, svg

TENANTS = 15
VALUE_BYTES = 200
# With its key, a tenant's name and metadata.
ITEM_BYTES = 300
BASE = "apart"


def ask(port: int, *words: str) -> str:
    """A command's answer, which must be a bulk string."""
    request = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as server, server.makefile("rb") as answers:
        server.sendall(request.encode())
        head = answers.readline()
        if not head.startswith(b"$"):
            raise RuntimeError(f"{' '.join(words)}: {head.decode(errors='replace')}")
        return answers.read(int(head[1:])).decode()


def cpu_us(port: int) -> float:
    """Processor time of the server's process so far."""
    rows = dict(line.split(":", 1) for line in ask(port, "INFO", "cpu").splitlines() if ":" in line)
    return 1e6 * (float(rows["used_cpu_user"]) + float(rows["used_cpu_sys"]))


def variants(rates: list[float], window: int) -> list[Variant]:
    """Tenants kept apart alone, and memory divided by samples of these rates."""
    shared = '[tenants]\nby = "prefix"\n'
    divided = [
        Variant(f"R={rate:g}", shared + f'divide = "latency"\nmiss_cost = "1ms"\nwindow = {window}\nsample_rate = {rate}\n')
        for rate in rates
    ]
    return [Variant(BASE, shared), *divided]


def measure(args: argparse.Namespace, setup: Setup, variant: Variant, folder: Path) -> dict[str, Any]:
    """One run against one server."""
    memory = TENANTS * args.keys * ITEM_BYTES // 4
    # Skews differ, so that there is something to divide.
    skews = [0.6 + 0.05 * tenant for tenant in range(TENANTS)]
    fronts = [
        f"t{tenant}=zipf:alpha={skew:.2f},objects={args.keys},requests={args.requests},size={VALUE_BYTES},seed={tenant}"
        for tenant, skew in enumerate(skews)
    ]
    with running(setup, variant, memory, folder) as port:
        before = cpu_us(port)
        seen = drive(setup, port, fronts, ["--requests", str(args.requests), "--warm-up", "0.5"])
        commands_us = cpu_us(port) - before
        division = json.loads(ask(port, "TENANTS", "JSON"))["division"]
    return {
        "cpu_us": commands_us / (TENANTS * args.requests),
        "p999_us": statistics.mean(tenant["p999_us"] for tenant in seen["tenants"]),
        "hit_ratio": seen["hit_ratio"],
        "memory_share": division["metadata_bytes"] / memory if division else 0.0,
        "windows": division["windows"] if division else 0,
        "verdict": division["verdict"] if division else "",
    }


def paired(runs: dict[str, list[dict[str, Any]]], name: str, what: str) -> tuple[float, float, float]:
    """Median, lowest and highest of a figure beside that of the same round's base."""
    ratios = sorted(run[what] / base[what] for run, base in zip(runs[name], runs[BASE], strict=True))
    return statistics.median(ratios), ratios[0], ratios[-1]


def table(data: dict[str, Any]) -> str:
    """All servers as Markdown."""
    head = ["server", "CPU a request, us", "beside tenants kept apart", "p99.9, us", "beside", "memory", "hit ratio", "windows"]
    lines = [data["about"], "", f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    runs = data["runs"]
    for name, rows in runs.items():
        cells = [name]
        for what in ("cpu_us", "p999_us"):
            median, low, high = paired(runs, name, what)
            cells += [f"{statistics.median(row[what] for row in rows):.2f}"]
            cells += ["" if name == BASE else f"{median:.4f} ({low:.4f} to {high:.4f})"]
        cells += [f"{100 * rows[-1]['memory_share']:.4f}%"]
        cells += [f"{statistics.median(row['hit_ratio'] for row in rows):.4f}", str(rows[-1]["windows"])]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *(f"{name}: {rows[-1]['verdict']}" for name, rows in runs.items() if rows[-1]["verdict"])]
    return "\n".join(lines) + "\n"


def draw(data: dict[str, Any]) -> str:
    """Each round's processor time and slowest requests beside the base's."""
    left, row, scale = 150, 26, 4000
    parts = ['<text class="t" x="10" y="22">Beside the same round with tenants kept apart alone; the line is 1</text>']
    y = 50
    for what, title in (("cpu_us", "processor time of a request"), ("p999_us", "p99.9 (a tenth of the scale)")):
        parts.append(f'<text class="t" x="10" y="{y}">{title}</text>')
        y += 12
        for name in list(data["runs"])[1:]:
            across = scale if what == "cpu_us" else scale / 10
            for run, base in zip(data["runs"][name], data["runs"][BASE], strict=True):
                x = left + 300 + (run[what] / base[what] - 1) * across
                parts.append(f'<circle cx="{min(max(x, left), 840):.1f}" cy="{y + 10}" r="4" fill="#c0392b" fill-opacity="0.6"/>')
            parts.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{name}</text>')
            parts.append(f'<line x1="{left}" x2="840" y1="{y + row - 4}" y2="{y + row - 4}" stroke="#ddd"/>')
            y += row
        y += 26
    parts.append(f'<line x1="{left + 300}" x2="{left + 300}" y1="34" y2="{y - 20}" stroke="#222" stroke-dasharray="2 3"/>')
    parts.append(f'<text class="s" x="{left}" y="{y}">{300 / scale:.1%} to each side for processor time</text>')
    return svg(860, y + 14, parts)


def main() -> None:
    """Runs rounds in turn and keeps what was measured after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", default="target/release/tiermem")
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--client-core", type=int, default=1)
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("--rate", type=float, action="append", help="a share of the keys [default: 0.001 and 0.01]")
    parser.add_argument("--keys", type=int, help="of each tenant [default: 300000]")
    parser.add_argument("--requests", type=int, help="of each tenant [default: 300000]")
    parser.add_argument("--window", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, help="[default: 7]")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--quick", action="store_true", help="3 rounds with a sixth of the requests")
    args = parser.parse_args()
    args.keys = args.keys or (50_000 if args.quick else 300_000)
    args.requests = args.requests or (50_000 if args.quick else 300_000)
    args.rounds = args.rounds or (3 if args.quick else 7)
    args.window = min(args.window, TENANTS * args.requests // 4)
    setup = Setup(str(Path(args.tiermem).resolve()), "", args.server_core, args.client_core, args.nice)
    about = f"{TENANTS} tenants, {args.keys} keys and {args.requests} requests each, {VALUE_BYTES} B, window {args.window}"
    data: dict[str, Any] = {"about": f"{about}, {args.rounds} rounds", "runs": {}}
    for turn in range(args.rounds):
        with tempfile.TemporaryDirectory() as folder:
            for variant in variants(args.rate or [0.001, 0.01], args.window):
                run = measure(args, setup, variant, Path(folder))
                data["runs"].setdefault(variant.name, []).append(run)
                print(f"round {turn + 1} {variant.name:8} {run['cpu_us']:.3f} us, p99.9 {run['p999_us']:.0f} us", flush=True)
        keep(args.out / ("tenants-overhead-quick" if args.quick else "tenants-overhead"), data, table(data), draw(data))
    print(table(data))


if __name__ == "__main__":
    main()
