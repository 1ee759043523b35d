"""The pictures of each recording."""

from __future__ import annotations

from pathlib import Path

from measure import regions
from recordings import Tools

# Of a recording: the file, what it shows, and how it is drawn. {region} is the region that was accessed most,
# {largest} the one of which most was, {slices} and {second} are slices in the middle of a full recording.
PICTURES: dict[str, list[tuple[str, str, list[str]]]] = {
    "layers": [
        ("layers-map", "Figures 4.3, 4.4: loads of a token, a row a layer", ["--region", "layers.gguf", "--columns", "period"]),
        ("layers-scatter", "Figure 4.5: the same as dots", ["--region", "layers.gguf", "--view", "scatter"]),
        ("layers-autocorrelation", "Figure 4.6", ["--region", "layers.gguf", "--view", "autocorrelation"]),
        (
            "layers-memory", "Figure 4.9: without what caches answer",
            ["--region", "layers.gguf", "--view", "autocorrelation", "--access", "memory"],
        ),
    ],
    "vector": [("vector-map", "Figure 4.2: the region with the matrix, 1 KiB granules", ["--region", "{largest}"])],
    "decode": [
        ("decode-slices", "Figures 4.7, 4.13: slices of two tokens", ["--region", "{region}", "--slices", "{slices}"]),
        ("decode-path", "The hotspot's path", ["--region", "{region}", "--view", "path"]),
        ("decode-wss", "Working set", ["--view", "wss", "--all-regions"]),
    ],
    "prompt": [("prompt-path", "Filling a prompt in batches: the path", ["--region", "{region}", "--view", "path"])],
    "matvec": [("matvec-path", "Matrix by vector: the path", ["--region", "{region}", "--view", "path", "--slices", "{second}"])],
    "pagerank": [("pagerank-map", "Page rank: all regions", ["--all-regions"])],
    "redis": [("redis-map", "Redis under YCSB's workload B", ["--region", "{region}"])],
    "skewed": [("skewed-map", "Granules whose heat is 1/n", ["--region", "{region}"])],
}  # fmt: skip


def draw(tools: Tools, name: str, out: Path) -> None:
    """All pictures of a recording."""
    found = regions(tools, name)
    names = {"region": found[0]["name"], "largest": max(found, key=lambda it: it["touched_bytes"])["name"]}
    slices = {"slices": "300-319", "second": "300-419"}
    for stem, _, words in PICTURES[name]:
        filled = [word.format(**names, **slices) for word in words]
        if tools.short and "--slices" in filled:
            # A short recording is drawn whole: which of its slices the program spends on what depends on how busy the machine is.
            at = filled.index("--slices")
            del filled[at : at + 2]
        tools.call("heatmap", str(tools.folder / f"{name}.rec"), "-o", str(out / f"{stem}.png"), *filled)
