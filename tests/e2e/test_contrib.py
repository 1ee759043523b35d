"""What lies in contrib/: queries of the dashboard find something at a Prometheus that watches a store at work, and the units are well formed."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
import redis

from programs import tool
from store import PATIENCE_S, ROOT, Store, binary, eventually

CONTRIB = ROOT / "contrib"
DASHBOARD = json.loads((CONTRIB / "grafana" / "tiermem-store.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
CONFIG = """
    snapshot = "{directory}/snapshot"
    [tenants]
    by = "prefix"
    [[tier]]
    name = "dram"
    kind = "dram"
    capacity = "16MiB"
    [[tier]]
    name = "cxl"
    kind = "emulated"
    capacity = "16MiB"
    [[tier]]
    name = "flash"
    kind = "flash"
    path = "{directory}/flash"
    capacity = "64MiB"
"""
SCRAPE = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: tiermem
    static_configs: [{{targets: ["{target}"]}}]
"""


class Prometheus:
    """A Prometheus that asks one server each second."""

    def __init__(self, directory: pathlib.Path, target: str) -> None:
        config = directory / "prometheus.yml"
        config.write_text(SCRAPE.format(target=target))
        self.log = (directory / "prometheus.log").open("wb+")
        self.process = subprocess.Popen(
            [tool("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={directory / 'tsdb'}", "--web.listen-address=127.0.0.1:0"],
            stdout=self.log, stderr=self.log,
        )  # fmt: skip
        self.address = ""

    def said(self) -> str:
        self.log.seek(0)
        return self.log.read().decode()

    def is_listening(self) -> bool:
        assert self.process.poll() is None, self.said()
        found = re.search(r'msg="?Listening on"? address=(127\.0\.0\.1:\d+)', self.said())
        self.address = found[1] if found else ""
        return bool(found)

    def ask(self, query: str) -> list:
        url = f"http://{self.address}/api/v1/query?" + urllib.parse.urlencode({"query": query})
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                return json.loads(answer.read())["data"]["result"]
        except urllib.error.HTTPError as error:
            # It listens before it is ready.
            assert error.code == 503, error.read()
            return []

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()


def work(store: Store, over: threading.Event) -> None:
    """Two tenants, three tiers, and some requests that fail."""
    client = redis.Redis(port=store.port)
    client.bgsave()
    for turn in range(1 << 30):
        if over.is_set():
            return
        pipe = client.pipeline(transaction=False)
        for n in range(200):
            key = f"{'web' if n % 2 else 'jobs'}:{(turn * 100 + n) % 60_000}"
            pipe.get(key)
            pipe.set(key, b"x" * 1000)
        pipe.incrby("web:1", 1)
        pipe.execute(raise_on_error=False)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has watched a store at work for a while."""
    tool("prometheus")
    directory = tmp_path_factory.mktemp("watched")
    config = directory / "store.toml"
    config.write_text(CONFIG.format(directory=directory))
    store = Store(directory, "--config", str(config))
    over = threading.Event()
    worker = threading.Thread(target=work, args=(store, over))
    worker.start()
    prometheus = Prometheus(directory, urlsplit(store.page).netloc)
    eventually(prometheus.is_listening, "Prometheus listens")
    yield prometheus
    over.set()
    worker.join()
    prometheus.close()
    store.close()


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: f"{panel['id']} {panel['title']}")
def test_each_query_of_the_dashboard_finds_something(watched: Prometheus, panel: dict) -> None:
    for target in panel["targets"]:
        query = target["expr"].replace("$instance", ".+").replace("$__rate_interval", "30s")
        assert "$" not in query
        eventually(lambda query=query: watched.ask(query), f"{query} finds something")
        values = [float(series["value"][1]) for series in watched.ask(query)]
        # A ratio of nothing to nothing would be NaN.
        assert all(value >= 0 for value in values), (query, values)


def test_no_two_panels_of_the_dashboard_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not taken & cells and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("unit", sorted(path.name for path in (CONTRIB / "systemd").iterdir()))
def test_the_units_are_well_formed(unit: str, tmp_path: pathlib.Path) -> None:
    verify = tool("systemd-analyze")
    text = (CONTRIB / "systemd" / unit).read_text()
    assert "/usr/local/bin/tiermem " in text
    # It wants the program to be there.
    (tmp_path / unit).write_text(text.replace("/usr/local/bin/tiermem ", f"{pathlib.Path(binary()).resolve()} "))
    done = subprocess.run([verify, "verify", tmp_path / unit], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, ""), done
