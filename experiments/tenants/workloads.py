"""Stand-ins for the traces with which Wang 2024, chapters 3 and 4, evaluates servers for several tenants.

The originals (MSR Cambridge, Twitter) are large and not everywhere at hand; with `--trace-dir` they are used where they are.
A stand-in has of its original what is published, and is called `...-like`. What was chosen freely says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Block:
    """What stands in for a block trace: a hot set, a long stream that is read over and over, files, and what is read once.

    Weights are shares of the requests; sizes of the parts are shares of the keys.
    """

    alpha: float
    hot: float
    hot_keys: float
    stream: float
    stream_keys: float
    files: float
    files_keys: float
    once: float
    size: str
    why: str

    def spec(self, keys: int, seed: int) -> str:
        """A description for `tiermem trace gen`, of as many requests as touch each key ten times."""
        parts = [
            f"{self.hot}*zipf(alpha={self.alpha},objects={max(1, int(keys * self.hot_keys))},size={self.size})",
            f"{self.stream}*scan(objects={max(1, int(keys * self.stream_keys))},size={self.size})",
        ]
        if self.files:
            objects = max(1, int(keys * self.files_keys))
            parts.append(f"{self.files}*streams(objects={objects},length={max(1, objects // 50)},size={self.size})")
        if self.once:
            parts.append(f"{self.once}*scan(objects=1G,size={self.size})")
        return f"mix:{'+'.join(parts)},requests={10 * keys},seed={seed}"


# Of the MSR Cambridge volumes Wang 2024 prints few numbers; each `why` names those that were used. All else is chosen: the
# weights so that what is said of the curve holds, and sizes around the 4 KiB page, with half of the bytes in larger requests.
PAGES = "lognormal(4KiB,1.0)"
BLOCKS = {
    # Figures 2.1, 4.2: the curve differs with K. Table 4.2: at half of the working set more than a tenth of the accesses miss.
    "web": Block(0.8, 0.5, 0.35, 0.3, 0.45, 0.2, 0.2, 0.01, PAGES, "Wang 2024, figures 2.1 and 4.2, table 4.2"),
    # Table 4.2: the one with the near database misses less than 1% where it may take what it wants. Table 4.1: 1455 hits a second
    # become 22071 with more memory, so there is a cliff, as a stream makes one.
    "src2": Block(1.0, 0.45, 0.2, 0.55, 0.8, 0.0, 0.0, 0.0, PAGES, "Wang 2024, tables 4.1 and 4.2"),
    # Section 5.2.4.1: alpha 0.4. Section 3.2.3.1: K = 1 is better at a quarter of the working set, worse at half.
    "src1": Block(0.4, 0.6, 0.5, 0.4, 0.5, 0.0, 0.0, 0.0, PAGES, "Wang 2024, sections 3.2.3.1 and 5.2.4.1"),
    # Table 4.1: the fewest hits a second of four, and little lost with most of its memory.
    "mds": Block(0.7, 0.4, 0.3, 0.3, 0.5, 0.25, 0.2, 0.05, PAGES, "Wang 2024, table 4.1"),
    # Section 3.2.5.1: pairs of 70 KB in the mean (here an eighth of that). Section 3.2.3.2: up to 32.5% gained with another K.
    "stg": Block(0.7, 0.35, 0.3, 0.6, 0.65, 0.0, 0.0, 0.01, "lognormal(6KiB,0.8)", "Wang 2024, sections 3.2.3.2, 3.2.5.1"),
    # Section 3.2.3.2: sizes that fluctuate; K matters at a quarter and at three quarters of the working set.
    "rsrch": Block(0.9, 0.6, 0.3, 0.4, 0.7, 0.0, 0.0, 0.0, "pareto(1KiB,1.2,256KiB)", "Wang 2024, section 3.2.3.2"),
    # Section 3.1.2 uses it for what an eviction costs; home directories, so mostly files. The rest is chosen.
    "usr": Block(0.8, 0.4, 0.3, 0.1, 0.2, 0.45, 0.5, 0.01, PAGES, "Wang 2024, section 3.1.2"),
    # Section 3.2.3.1, set B: K hardly matters, so there is next to no stream.
    "prxy": Block(1.1, 0.97, 0.95, 0.02, 0.04, 0.0, 0.0, 0.01, PAGES, "Wang 2024, section 3.2.3.1"),
}


@dataclass(frozen=True)
class Cluster:
    """What is published of a Twitter cluster."""

    alpha: float
    value_bytes: int
    # Of the requests, those to keys that were not asked for before.
    compulsory_miss_percent: float
    # Of the keys, those that are asked for once.
    one_hit_wonder_percent: float


# The statistics published with the traces of March 2020 (github.com/twitter/cache-trace, CC BY 4.0).
CLUSTERS = {
    4: Cluster(1.1004, 2439, 3.77, 29.33),
    17: Cluster(2.1106, 212, 1.64, 38.87),
    18: Cluster(2.0994, 37, 0.15, 0.71),
    29: Cluster(1.2323, 799, 4.45, 23.04),
    34: Cluster(1.1401, 322, 2.03, 0.26),
    44: Cluster(1.4084, 22, 1.65, 20.24),
    52: Cluster(1.2117, 273, 3.07, 19.36),
    54: Cluster(1.6110, 246, 10.25, 54.83),
}


def twitter(cluster: Cluster, keys: int, seed: int, scale: float) -> str:
    """A stand-in for a cluster: alpha, mean size, distinct keys over requests and keys asked for once are the published ones.

    Chosen: the form of the distribution of sizes, lognormal with sigma 0.8; `keys`; and `scale`, by which sizes are multiplied.
    """
    distinct = cluster.compulsory_miss_percent / 100
    once = distinct * cluster.one_hit_wonder_percent / 100
    requests = int(keys / distinct)
    sigma = 0.8
    median = max(1, round(cluster.value_bytes * scale / math.exp(sigma * sigma / 2)))
    size = f"lognormal({median},{sigma})"
    hot = f"{1 - once:.6f}*zipf(alpha={cluster.alpha},objects={max(100, int(requests * (distinct - once)))},size={size})"
    return f"mix:{hot}+{once:.6f}*scan(objects=1G,size={size}),requests={requests},seed={seed}"


@dataclass(frozen=True)
class Tenant:
    """One application: what it is called, which workload it has, and what its database takes, in microseconds."""

    name: str
    workload: str
    miss_us: int


# The cases of section 4.2.3 and 4.2.5. Fifteen tenants are remainders of the clients' numbers in one cluster's trace; the
# stand-in's tenants are streams of their own with the cluster's statistics.
CASES: dict[str, list[Tenant]] = {
    "msr": [
        Tenant("web-local", "web", 200),
        Tenant("web-remote", "web", 2000),
        Tenant("src2-local", "src2", 200),
        Tenant("src2-remote", "src2", 2000),
    ],
    "twitter": [
        Tenant("cluster4", "cluster4", 200),
        Tenant("cluster29", "cluster29", 400),
        Tenant("cluster34", "cluster34", 1000),
        Tenant("cluster54", "cluster54", 2000),
    ],
    "throughput": [Tenant(name, name, 2000) for name in ("mds", "src2", "stg", "web")],
    **{
        f"fifteen-{cluster}": [Tenant(f"t{number}", f"cluster{cluster}-{number}", 1 << number) for number in range(15)]
        for cluster in (4, 17, 18, 29, 44, 52)
    },
}


def spec(workload: str, keys: int, scale: float) -> str:
    """The stand-in for a workload: about `keys` keys; sizes of Twitter's values are multiplied by `scale`."""
    if workload in BLOCKS:
        return BLOCKS[workload].spec(keys, seed=1)
    cluster, _, part = workload.removeprefix("cluster").partition("-")
    return twitter(CLUSTERS[int(cluster)], keys, seed=1 + int(part or 0), scale=scale)
