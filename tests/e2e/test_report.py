"""`tiermem report`: the page in a browser, and what it says."""

from __future__ import annotations

import pathlib
import re
import subprocess

import pytest

from programs import tool
from store import PATIENCE_S, TESTDATA, tiermem

TRACE = TESTDATA / "twitter_cluster52-20k.csv.zst"
CHARTS = ["policies", "ks", "gains", "prices", "popularity", "sizes", "reuse", "arrival", "growth"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    done = tiermem("report", str(TRACE), "-o", str(path), "--price-misses", "1")
    assert (done.returncode, done.stdout) == (0, f"{path}\n"), done.stderr
    return path


def figure(html: str, name: str) -> str:
    found = re.search(rf'<figure class="card[^"]*" id="{name}".*?</figure>', html, re.DOTALL)
    assert found, f"there is no chart {name}"
    return found[0]


def test_the_page_says_first_what_the_data_is(page: pathlib.Path) -> None:
    body = page.read_text().partition("<body>")[2]
    assert body.startswith(
        '<header><p class="source">twitter_cluster52-20k.csv.zst: 20,000 requests, <b>not sampled</b>'
    )
    # Where the file lay is not told.
    assert str(TESTDATA) not in body


def test_the_page_needs_no_network(page: pathlib.Path) -> None:
    html = page.read_text()
    assert not re.search(r"https?://|url\(|@import| src=", html)


@pytest.mark.parametrize("chart", CHARTS)
def test_every_chart_has_content(page: pathlib.Path, chart: str) -> None:
    drawn = figure(page.read_text(), chart)
    for svg in re.findall(r"<svg.*?</svg>", drawn, re.DOTALL):
        lines = [path for path in re.findall(r'class="line [^"]*" d="([^"]*)"', svg) if path.count("L") >= 5]
        bars = [float(height) for height in re.findall(r'<rect[^>]* height="([^"]+)"', svg)]
        assert lines or sum(bars) > 20, chart
        # Ticks have their numbers, and both axes their words.
        assert len(re.findall(r"<text", svg)) >= 6
    assert drawn.count("<td>") >= 3


def test_curves_are_those_of_mrc(page: pathlib.Path) -> None:
    """The values beside the chart are those that `tiermem mrc` prints at the same sizes."""
    table = figure(page.read_text(), "policies").partition("<table>")[2]
    names = re.findall(r"<th>([^<]*)</th>", table.partition("</thead>")[0])[1:]
    last = re.findall(r"<tr>.*?</tr>", table.partition("<tbody>")[2])[-1]
    shown = dict(zip(names, re.findall(r"<td>([\d.]+)%</td>", last)))
    for name, policy in [("LRU", "lru"), ("S3-FIFO", "s3-fifo")]:
        done = tiermem("mrc", str(TRACE), "--bytes", "--sizes", "1", "--policy", policy, "--format", "csv")
        ratio = float(done.stdout.splitlines()[1].split(",")[3])
        assert float(shown[name]) == pytest.approx(100 * ratio, abs=0.006)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 500])
def test_the_page_in_a_browser(page: pathlib.Path, tmp_path: pathlib.Path, scheme: str, width: int) -> None:
    # A page around it asks for the values at each chart, as a reader would with the arrow keys, and says what comes.
    probe = """<script>addEventListener("load", () => {
      const seen = [...document.querySelectorAll("figure.card")].map((figure) => {
        const svg = [...figure.querySelectorAll("svg")].find((svg) => svg.getBoundingClientRect().width > 0);
        svg.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
        return `${figure.id}:${document.getElementById("tip").querySelectorAll("em").length}`;
      });
      const wide = document.documentElement.scrollWidth - innerWidth;
      document.body.dataset.seen = seen.join(" ");
      document.body.dataset.wide = wide;
    })</script></body>"""
    probed = tmp_path / "probed.html"
    probed.write_text(page.read_text().replace("</body>", probe))
    done = subprocess.run(
        [
            tool("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
            f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", f"--window-size={width},3000",
            f"--blink-settings=preferredColorScheme={int(scheme == 'light')}", "--dump-dom", probed.as_uri(),
        ],
        capture_output=True, text=True, timeout=3 * PATIENCE_S, check=False,
    )  # fmt: skip
    seen = re.search(r'data-seen="([^"]*)" data-wide="([^"]*)"', done.stdout)
    assert seen, done.stderr[-3000:]
    values = dict(entry.split(":") for entry in seen[1].split())
    assert list(values) == CHARTS
    assert all(int(count) >= 1 for count in values.values()), values
    # Nothing sticks out to the right.
    assert int(seen[2]) <= 0
    assert not [line for line in done.stderr.splitlines() if ":CONSOLE" in line]


def test_long_traces_are_sampled_unless_told_otherwise(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "long.html"
    spec = "zipf:objects=50k,requests=4M"
    assert tiermem("report", spec, "-o", str(path), "--sizes", "4", "--policy", "lru", "--k", "5").returncode == 0
    html = path.read_text()
    assert "<b>sampled</b>" in html and 'class="band' in figure(html, "policies")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nowhere.csv"], 1, "nowhere.csv"),
        (["zipf:requests=0"], 1, "nothing to report"),
        (["zipf:requests=10", "--sample", "0"], 2, "above 0"),
        (["zipf:requests=10", "--price-dram=-1"], 2, "price"),
        (["zipf:requests=10", "--policy", "lruu"], 2, "s3-fifo"),
    ],
)
def test_mistakes_are_explained(tmp_path: pathlib.Path, arguments: list[str], code: int, says: str) -> None:
    path = tmp_path / "report.html"
    done = tiermem("report", *arguments, f"-o{path}")
    assert done.returncode == code and says in done.stderr, done.stderr
    assert not path.exists()
