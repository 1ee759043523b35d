#!/usr/bin/env python3
"""What several tenants wait for on stock Redis and on tiermem with its memory divided in several ways.

Wang 2024, sections 4.2.3 to 4.2.6: each tenant sends GETs from its trace, again and again; after a miss it waits for its database
and sends SET. The figure is the mean of the tenants' mean access latencies. Servers have the same bytes of memory, metadata
and all, and are run in turn, round by round; figures are medians over rounds. The server has a core and the tenants have one.
Traces are stand-ins (workloads.py) where --trace-dir does not hold the originals. Time: --seconds for each server, round and
size of memory; with --quick about seven minutes for a case.

The static division is made from one pass over each trace. A tenant that comes to the end of its trace within a run finds again
what one pass asks for once, which the division knows nothing of: take --keys large enough for --seconds where that matters.

    experiments/tenants/latency.py --quick --case msr
    experiments/tenants/latency.py --trace-dir traces --variant online=online.toml

Writes data (JSON), a table (Markdown) and a plot (SVG) next to each other.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from servers import Setup, Variant, drive, running
from workloads import CASES, Tenant, spec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from drawing import bar, keep, svg

# What an item takes beside its value: its key, a tenant's name and 20 bytes, and the metadata of either server.
OVERHEAD_BYTES = 90
MEASURES = ["tenants_mean_us", "mean_us", "hit_ratio", "hits_per_second", "errors"]
TENANT_MEASURES = ["mean_us", "hit_ratio", "hits_per_second", "p90_us", "p95_us", "p99_us", "p999_us"]


def traces(args: argparse.Namespace, tenants: list[Tenant], folder: Path) -> tuple[dict[str, Path], str]:
    """A file for each tenant, of its name, and a line that says what they are."""
    files, kinds = {}, []
    made: dict[str, Path] = {}
    for tenant in tenants:
        found = sorted(args.trace_dir.glob(f"{tenant.workload}.*")) if args.trace_dir else []
        if found:
            files[tenant.name] = folder / (tenant.name + "".join(found[0].suffixes))
            files[tenant.name].symlink_to(found[0].resolve())
            kinds.append(tenant.workload)
            continue
        files[tenant.name] = folder / f"{tenant.name}.parquet"
        if tenant.workload in made:
            files[tenant.name].symlink_to(made[tenant.workload])
        else:
            text = spec(tenant.workload, args.keys, args.value_scale)
            subprocess.run([args.tiermem, "trace", "gen", text, "-o", str(files[tenant.name])], check=True, capture_output=True)
            made[tenant.workload] = files[tenant.name]
        kinds.append(f"{tenant.workload.partition('-')[0]}-like")
    return files, f"traces: {', '.join(dict.fromkeys(kinds))} (-like: a stand-in from published statistics)"


def division(
    args: argparse.Namespace, tenants: list[Tenant], files: dict[str, Path], share: float, folder: Path
) -> tuple[int, str]:
    """The memory that is this share of all tenants' working sets, and how `tiermem partition` divides it."""
    path = folder / "division.toml"
    words = [args.tiermem, "partition", *(str(files[tenant.name]) for tenant in tenants), "--memory", f"{100 * share:g}%"]
    words += ["--overhead", str(OVERHEAD_BYTES), "--sample", str(args.sample), "-o", str(path), "--format", "json"]
    words += [word for tenant in tenants for word in ("--tenant", f"{tenant.name}:miss={tenant.miss_us}us")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)[-1]["share_bytes"], path.read_text()


def variants(args: argparse.Namespace, tenants: list[Tenant], memory: int, static: str) -> list[Variant]:
    """Who is compared: Redis, and tiermem under each configuration."""
    told_apart = '[tenants]\nby = "prefix"\n'
    equal = "".join(f'\n[[tenant]]\nname = "{tenant.name}"\nshare = "{memory // len(tenants)}B"\n' for tenant in tenants)
    own = [
        Variant("redis", None),
        Variant("free", ""),
        Variant("equal", told_apart + equal),
        Variant("static", told_apart + static),
    ]
    more = [Variant(name, Path(path).read_text()) for name, path in (text.split("=", 1) for text in args.variant)]
    return own + more


def median(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each figure over rounds, for all tenants and for each."""
    of = statistics.median
    found = {measure: of(run[measure] for run in runs) for measure in MEASURES}
    found["tenants"] = {
        tenant["name"]: {measure: of(run["tenants"][at][measure] for run in runs) for measure in TENANT_MEASURES}
        for at, tenant in enumerate(runs[0]["tenants"])
    }
    return found


def measure(args: argparse.Namespace, setup: Setup, case: str, folder: Path) -> dict[str, Any]:
    """All servers at all sizes of memory, in turn."""
    tenants = CASES[case]
    files, about = traces(args, tenants, folder)
    print(f"{case}: {about}", flush=True)
    flags = ["--seconds", str(args.seconds), "--warm-up", str(args.warm_up), *(["--charge"] if args.charge else [])]
    fronts = [f"{tenant.name}={files[tenant.name]},miss={tenant.miss_us}us" for tenant in tenants]
    filling = [f"{tenant.name}={files[tenant.name]}" for tenant in tenants]
    result: dict[str, Any] = {"traces": about, "flags": flags, "fill": args.fill, "memory": {}}
    for share in args.memory:
        memory, static = division(args, tenants, files, share, folder)
        runs: dict[str, list[dict[str, Any]]] = {}
        for turn in range(args.rounds):
            for variant in variants(args, tenants, memory, static):
                with running(setup, variant, memory, folder) as port:
                    if args.fill:
                        drive(setup, port, filling, ["--requests", str(args.fill)])
                    run = drive(setup, port, fronts, flags)
                runs.setdefault(variant.name, []).append(run)
                print(f"  {share:.0%} round {turn + 1} {variant.name:8} {run['tenants_mean_us']:9.1f} us", flush=True)
        medians = {name: median(found) for name, found in runs.items()}
        result["memory"][f"{share:g}"] = {"bytes": memory, "division": static, "medians": medians, "runs": runs}
    return result


def tails(medians: dict[str, Any]) -> list[str]:
    """Each tenant's slowest accesses on each server as Markdown (Wang 2024, table 4.2), if there are not too many to read."""
    tenants = list(medians["redis"]["tenants"])
    if len(tenants) > 4:
        return []
    head = ["tenant", "server", "p90, us", "p95", "p99", "p99.9"]
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    for tenant in tenants:
        for name, row in medians.items():
            seen = row["tenants"][tenant]
            cuts = [f"{seen[measure]:.0f}" for measure in ("p90_us", "p95_us", "p99_us", "p999_us")]
            lines.append(f"| {' | '.join([tenant, name, *cuts])} |")
    return lines


def table(data: dict[str, Any]) -> str:
    """Each case as Markdown: means against Redis, then each tenant."""
    lines = []
    for case, found in data.items():
        filled = f"; filled by {found['fill']} requests of each before, with no database" if found["fill"] else ""
        lines += [f"## {case}", "", f"{found['traces']}; `replay-tenants {' '.join(found['flags'])}`{filled}", ""]
        for share, at in found["memory"].items():
            medians = at["medians"]
            lines += [f"Memory {float(share):.0%} of the working set, {at['bytes'] / (1 << 20):.1f} MiB", ""]
            head = ["server", "tenants' mean, us", "against redis", "hits/s", "hit ratio", "refused", *medians["redis"]["tenants"]]
            lines += [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
            base = medians["redis"]["tenants_mean_us"]
            for name, row in medians.items():
                mean = f"{row['tenants_mean_us']:.1f}"
                gain = f"{100 * (row['tenants_mean_us'] / base - 1):+.1f}%"
                each = [f"{tenant['mean_us']:.0f} us, {tenant['hit_ratio']:.3f}" for tenant in row["tenants"].values()]
                own = [
                    f"{row[measure]:.{digits}f}" for measure, digits in (("hits_per_second", 0), ("hit_ratio", 4), ("errors", 0))
                ]
                lines.append(f"| {' | '.join([name, mean, gain, *own, *each])} |")
            lines += ["", *tails(medians), ""]
    return "\n".join(lines)


def draw(data: dict[str, Any]) -> str:
    """For each case, memory and server a bar: the tenants' mean against Redis's, with the lowest and highest round."""
    left, row, width = 90, 20, 860
    memories = [at for found in data.values() for at in found["memory"].values()]
    longest = [max(run["tenants_mean_us"] for runs in at["runs"].values() for run in runs) for at in memories]
    bases = [at["medians"]["redis"]["tenants_mean_us"] for at in memories]
    # All bars have one scale, and their figures room beside them.
    scale = 440 / max(1, *(most / base for most, base in zip(longest, bases, strict=True)))
    parts = ['<text class="t" x="10" y="22">Mean access latency, mean over tenants; redis = 1</text>']
    y = 52
    for case, found in data.items():
        for share, at in found["memory"].items():
            parts.append(f'<text class="t" x="10" y="{y}">{case}, memory {float(share):.0%} of the working set</text>')
            y += 8
            base = at["medians"]["redis"]["tenants_mean_us"]
            for name, figures in at["medians"].items():
                value = figures["tenants_mean_us"] / base
                rounds = [run["tenants_mean_us"] / base for run in at["runs"][name]]
                parts += bar(y, left, scale, name, value, rounds)
                label = f"{value:.3f}: {figures['tenants_mean_us']:.0f} us, hit ratio {figures['hit_ratio']:.3f}"
                parts.append(f'<text x="{left + max(*rounds, value, 1) * scale + 10:.1f}" y="{y + 12}">{label}</text>')
                y += row
            y += 24
    parts.append(f'<line x1="{left + scale}" x2="{left + scale}" y1="36" y2="{y - 20}" stroke="#222" stroke-dasharray="2 3"/>')
    return svg(width, y, parts)


def arguments() -> argparse.Namespace:
    """The command line, with what --quick changes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", default="target/release/tiermem")
    parser.add_argument("--redis", default="redis-server", help="stock Redis 7.0")
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--client-core", type=int, default=1)
    parser.add_argument("--nice", type=int, default=0, help="of servers and clients; below 0 where others use the machine as well")
    parser.add_argument("--case", choices=CASES, action="append", help="default: msr, twitter and the fifteen of cluster 52")
    parser.add_argument(
        "--trace-dir", type=Path, help="originals, each named after its workload: web.csv.gz, cluster4.zst, cluster52-0.zst"
    )
    parser.add_argument(
        "--variant", action="append", default=[], metavar="NAME=FILE", help="tiermem with this configuration file as well"
    )
    parser.add_argument("--memory", type=float, action="append", help="a share of the working set [default: 0.25, 0.5 and 0.75]")
    parser.add_argument("--rounds", type=int, help="[default: 5]")
    parser.add_argument("--seconds", type=float, help="for each server, warm-up and all [default: 300]")
    parser.add_argument("--warm-up", type=float, default=0.5, help="the share of it that is not measured")
    parser.add_argument(
        "--fill",
        type=int,
        default=0,
        metavar="N",
        help="first N requests of each tenant with no database: who waits 16 ms for each new key asks for few of them in a run",
    )
    parser.add_argument("--keys", type=int, help="of each stand-in [default: 20000]")
    parser.add_argument("--value-scale", type=float, default=8.0, help="for Twitter's stand-ins, whose values are small")
    parser.add_argument("--sample", type=float, default=1.0, help="the share of the keys that tiermem partition looks at")
    parser.add_argument("--charge", action="store_true", help="databases' time is counted, not waited for")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--quick", action="store_true", help="half of the working set, 3 rounds, 30 s, 4000 keys")
    args = parser.parse_args()
    args.case = args.case or ["msr", "twitter", "fifteen-52"]
    args.memory = args.memory or ([0.5] if args.quick else [0.25, 0.5, 0.75])
    args.rounds = args.rounds or (3 if args.quick else 5)
    args.seconds = args.seconds or (30 if args.quick else 300)
    args.keys = args.keys or (4000 if args.quick else 20000)
    args.tiermem = str(Path(args.tiermem).resolve())
    return args


def main() -> None:
    """Runs the cases, keeping what was measured after each."""
    args = arguments()
    setup = Setup(args.tiermem, args.redis, args.server_core, args.client_core, args.nice)
    stem = args.out / ("tenants-quick" if args.quick else "tenants")
    data = {}
    for case in args.case:
        with tempfile.TemporaryDirectory() as folder:
            data[case] = measure(args, setup, case, Path(folder))
        keep(stem, data, table(data), draw(data))
    print(table(data))


if __name__ == "__main__":
    main()
