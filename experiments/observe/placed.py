#!/usr/bin/env python3
"""What a plan does for a language model where there are two nodes of memory: an emulated guest, so that it runs on any machine.

    experiments/observe/placed.py --tiermem target/release/tiermem --out docs/results/observe
    experiments/observe/placed.py --tiermem target/debug/tiermem --short --out results

llama.cpp decodes with a small model in a guest and is recorded there; plans are made of the recording, with a half and with a
quarter of what was touched fast, the latter half as large as the weights; then the model decodes again in another guest, with pages
that stay where they are first touched, with the plan, and with the plan and what is seen (`--follow`), which take turns. Told are
the shares of pages touched that lay in slow memory. An emulated machine's times say nothing. Writes placed.json and placed.md,
which run.py takes into its page.

It needs a C compiler, and llama-cpp-python built without AVX-512, as requirements.txt has it, which the emulator does not know.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from measure import placements
from recordings import HERE, Tools

GUEST = HERE.parents[1] / "tests/e2e/guest/machine.py"
# Node 0 holds the system and all files.
MEMORY_MIB = "1024,512"
FOLLOWED = {"first-touch": "where first touched", "plan": "the plan", "live": "the plan, and what is seen"}
FAST_SHARES = (0.5, 0.25)
# The kernel divides pages of 2 MiB when it moves a part of one, which a small model would be full of.
SMALL_PAGES = "echo never >/sys/kernel/mm/transparent_hugepage/enabled\n"


def program(tools: Tools) -> Path:
    """programs/decode.c, compiled against what llama-cpp-python has brought along."""
    spec = importlib.util.find_spec("llama_cpp")
    if not spec or not spec.origin:
        sys.exit("llama-cpp-python is not installed")
    libraries = Path(spec.origin).parent / "lib"
    headers = libraries.parents[1] / "include"
    built = tools.folder / "decode"
    command = ["cc", "-O2", str(HERE / "programs/decode.c"), "-o", str(built), f"-I{headers}", f"-L{libraries}", "-lllama"]
    subprocess.run([*command, f"-Wl,-rpath,{libraries}", f"-Wl,-rpath-link,{libraries}"], check=True)
    return built


def in_guest(script: str, files: dict[str, Path], out: Path) -> None:
    """Runs a script in a guest, with these files, and fetches what it leaves."""
    puts = [word for path, source in files.items() for word in ("--put", f"{source}={path}")]
    # Of the guests' own: the interpreter may be that of an environment which lacks nothing that they need.
    command = [sys.executable, str(GUEST), "--memory-mib", MEMORY_MIB, *puts, "--script", "-", "--out", str(out)]
    done = subprocess.run([*command, "--timeout-s", "3600"], input=script, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"the guest's script failed:\n{done.stdout}{done.stderr}")


def measured(tools: Tools, rounds: int) -> dict[str, Any]:
    """All of it."""
    model = tools.model("small", "--size", "20MiB")
    beside = tools.tiermem.parent
    files = {"/model.gguf": model, "/bin/decode": program(tools), "/bin/tiermem": tools.tiermem}
    files["/bin/libtiermem_preload.so"] = beside / "libtiermem_preload.so"
    tokens = 20 if tools.short else 40
    record = f"tiermem record --slice 100ms --granule 512KiB -o /out/placed.rec -- decode /model.gguf {tokens}\n"
    in_guest(SMALL_PAGES + record, files, tools.folder)
    replayed = [planned(tools, share) for share in FAST_SHARES]

    run = "tiermem run --slice 100ms --format json"
    turns = [(turn, at, follow) for turn in range(rounds) for at in range(len(replayed)) for follow in FOLLOWED]
    each = (
        f"{run} --plan /{at}.json --follow {follow} -- decode /model.gguf {tokens} >/out/{turn}.{at}.{follow} || exit 1\n"
        for turn, at, follow in turns
    )
    files |= {f"/{at}.json": tools.folder / f"placed.{row['fast_bytes']}.plan.json" for at, row in enumerate(replayed)}
    runs: list[dict[str, list[dict[str, Any]]]] = [{follow: [] for follow in FOLLOWED} for _ in replayed]
    with tempfile.TemporaryDirectory() as folder:
        in_guest(SMALL_PAGES + "".join(each), files, Path(folder))
        for turn, at, follow in turns:
            # What the program prints comes before.
            runs[at][follow].append(json.loads((Path(folder) / f"{turn}.{at}.{follow}").read_text().splitlines()[-1])[0])
    return {"tokens": tokens, "plans": [{"replayed": row, "runs": of} for row, of in zip(replayed, runs, strict=True)]}


def planned(tools: Tools, share: float) -> dict[str, Any]:
    """A plan for such a share of what was touched, and what it does when it is replayed."""
    row = placements(tools, "placed", share)
    (tools.folder / "placed.plan.json").rename(tools.folder / f"placed.{row['fast_bytes']}.plan.json")
    return row


def table(found: dict[str, Any]) -> str:
    """The page."""
    touched = found["plans"][0]["replayed"]["touched_bytes"]
    lines = [
        f"{touched / 2**20:.0f} MiB touched, {found['tokens']} tokens decoded.",
        "",
        "| fast memory | pages follow | touched in slow memory | replayed | moved | runs |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for plan in found["plans"]:
        replayed = plan["replayed"]
        for follow, runs in plan["runs"].items():
            shares = sorted(run["slow_share"] for run in runs)
            share = f"**{statistics.median(shares):.1%}** ({shares[0]:.1%} to {shares[-1]:.1%})"
            moved = statistics.median(run["moved_bytes"] for run in runs)
            # Of a live program the plan is followed too, where it is right.
            alone = replayed["plan+live" if follow == "live" else follow]
            cells = [f"{replayed['fast_bytes'] / 2**20:.0f} MiB", FOLLOWED[follow], share, f"{alone:.1%}"]
            lines.append(f"| {' | '.join([*cells, f'{moved / 2**20:.0f} MiB', str(len(runs))])} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measures, and writes both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiermem", type=Path, default=Path("target/release/tiermem"), help="the preload library lies beside it")
    parser.add_argument("--recordings", type=Path, default=Path("target/observe"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("docs/results/observe"))
    parser.add_argument("--short", action="store_true", help="one round of few tokens: to see that it runs")
    args = parser.parse_args()
    for folder in (args.recordings, args.out):
        folder.mkdir(parents=True, exist_ok=True)
    tools = Tools(args.tiermem.resolve(), args.recordings.resolve(), args.short)
    found = measured(tools, 1 if args.short else args.rounds)
    (args.out / "placed.json").write_text(json.dumps(found, indent=1) + "\n")
    (args.out / "placed.md").write_text(table(found))
    print(table(found), end="")


if __name__ == "__main__":
    main()
