"""`tiermem heatmap`: numbers, pictures, and the page in a browser."""

from __future__ import annotations

import pathlib
import re
import subprocess

import pytest

from browser import QUIET_CHROMIUM
from heatmaps import GRANULE_BYTES, drawn, rows, table
from programs import tool
from store import PATIENCE_S, tiermem


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A memory trace without regions: two places, three seconds."""
    path = tmp_path_factory.mktemp("trace") / "memory.csv"
    lines = ["time,op,key,size"]
    for second in range(3):
        lines += [f"{second},load,{0x10000000 + 4096 * page},8" for page in range(16) for _ in range(page + 1)]
        lines += [f"{second},store,{0x7F0000000000 + 64 * second},8"]
    path.write_text("\n".join(lines) + "\n")
    converted = path.with_suffix(".parquet")
    done = tiermem("trace", "convert", str(path), "-o", str(converted), "--columns", "time=1,op=2,key=3,size=4,header")
    assert done.returncode == 0, done.stderr
    return converted


def test_rows_sum_up_to_the_table_at_every_granule(recording: pathlib.Path, tmp_path: pathlib.Path) -> None:
    regions = {row["name"]: row for row in table(str(recording))}
    assert list(regions)[0] == "llama.gguf"
    assert sum(row["share"] for row in regions.values()) == pytest.approx(1, abs=1e-3)
    for granule in ["4MiB", "16MiB", "1GiB"]:
        drawn(recording, tmp_path / "all.csv", "--granule", granule)
        sums: dict[str, float] = {}
        for row in rows(tmp_path / "all.csv"):
            sums[row["name"]] = sums.get(row["name"], 0) + float(row["accesses"])
            assert float(row["accesses"]) == pytest.approx(float(row["loads"]) + float(row["stores"]), rel=1e-4)
            assert int(row["offset"]) == int(row["granule"]) * int(row["granule_bytes"])
            assert float(row["local"]) + float(row["remote"]) + float(row["cached"]) > 0
        for name, row in regions.items():
            assert sums[name] == pytest.approx(row["accesses"], rel=1e-4), (granule, name)


def test_what_is_selected_is_a_part_of_all(recording: pathlib.Path, tmp_path: pathlib.Path) -> None:
    def total(*arguments: str) -> float:
        return sum(row["accesses"] for row in table(str(recording), *arguments))

    everything = total()
    for parts in [
        (["--op", "load"], ["--op", "store"]),
        (["--mode", "user"], ["--mode", "kernel"]),
        (["--access", "memory"], ["--access", "cached"]),
        (["--access", "local"], ["--access", "remote"], ["--access", "cached"]),
        (["--slices", "0-4"], ["--slices", "5,6,7-11"]),
    ]:
        assert sum(total(*part) for part in parts) == pytest.approx(everything), parts
    drawn(recording, tmp_path / "part.csv", "--region", "llama.gguf:1GiB+64MiB", "--slices", "3", "--granule", "4MiB")
    part = rows(tmp_path / "part.csv")
    assert {row["slice"] for row in part} == {"3"}
    assert {int(row["granule"]) for row in part} == set(range(256, 272))


def test_the_period_is_found_and_named(recording: pathlib.Path, tmp_path: pathlib.Path) -> None:
    row = table(str(recording), "--region", "llama.gguf", "--granule", "4MiB")[0]
    assert (row["period_granules"], row["period_bytes"]) == (540, 540 * GRANULE_BYTES)
    path = tmp_path / "period.svg"
    drawn(recording, path, "--region", "llama.gguf", "--granule", "4MiB", "--view", "autocorrelation")
    assert "period 540 granules = 2.11 GiB" in path.read_text()
    drawn(recording, path, "--region", "llama.gguf", "--granule", "4MiB", "--columns", "period")
    assert "a row is 540 granules" in path.read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--view", "map"], "white is never accessed"),
        (["--view", "map", "--theme", "dark"], "grey is never accessed"),
        (["--view", "map", "--show", "share-remote"], "remote share of samples"),
        (["--view", "map", "--show", "idle"], "time since the last sample"),
        (["--view", "scatter", "--show", "idle"], "time since the last sample"),
        (["--view", "map", "--slices", "0-5"], "slice 5"),
        (["--view", "map", "--slices", "0-5", "--together"], "slices 0-5"),
        (["--view", "scatter", "--granules", "0-99"], "offset in the region"),
        (["--view", "path"], "path of the hotspot"),
        (["--view", "wss", "--all-regions"], "working set"),
        (["--all-regions"], "4 regions"),
    ],
)
def test_pictures_say_what_they_show(
    recording: pathlib.Path, tmp_path: pathlib.Path, arguments: list[str], says: str
) -> None:
    drawn(recording, tmp_path / "picture.svg", *arguments)
    text = (tmp_path / "picture.svg").read_text()
    assert says in text and "sample" in text and "NaN" not in text
    stderr = drawn(recording, tmp_path / "picture.png", *arguments)
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert "--all-regions" in arguments or "llama.gguf is drawn" in stderr


def test_a_plain_memory_trace_has_regions_where_its_addresses_lie(trace: pathlib.Path, tmp_path: pathlib.Path) -> None:
    regions = table(str(trace))
    assert [(row["name"], row["accesses"]) for row in regions] == [("0x10000000", 3 * 136), ("0x7f0000000000", 3)]
    drawn(trace, tmp_path / "trace.csv")
    counts = {(row["name"], row["granule"], row["slice"]): row["loads"] for row in rows(tmp_path / "trace.csv")}
    assert counts["0x10000000", "15", "2"] == "16"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 500])
def test_the_page_in_a_browser(recording: pathlib.Path, tmp_path: pathlib.Path, scheme: str, width: int) -> None:
    page = tmp_path / "page.html"
    drawn(recording, page, "--granule", "4MiB", "--absolute")
    html = page.read_text()
    assert not re.search(r"https?://|url\(|@import| src=", html)
    # Uses the page as a reader would, and writes down what comes.
    probe = """<script>(async () => {
      const tip = document.getElementById("tip"), body = document.body, picture = document.getElementById("picture");
      const wait = (ms) => new Promise((done) => setTimeout(done, ms));
      while (!body.dataset.ready) await wait(20);
      const written = CanvasRenderingContext2D.prototype.fillText;
      let words = [];
      CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {
        words.push(text);
        return written.call(this, text, ...at);
      };
      picture.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
      body.dataset.key = tip.hidden ? "" : tip.innerText;
      const seen = [];
      for (const button of document.querySelectorAll("#views button")) {
        words = [];
        button.click();
        body.dataset["words" + button.dataset.view] = words.join("|");
        const box = picture.getBoundingClientRect();
        picture.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + 0.3 * box.width, clientY: box.top + 100 }));
        const copy = new OffscreenCanvas(picture.width, picture.height).getContext("2d", { willReadFrequently: true });
        copy.drawImage(picture, 0, 0);
        const pixels = copy.getImageData(0, 0, picture.width, picture.height).data;
        const colours = new Set();
        for (let at = 0; at < pixels.length; at += 4) colours.add(pixels[at] * 65536 + pixels[at + 1] * 256 + pixels[at + 2]);
        seen.push(`${button.dataset.view}:${colours.size > 10 && !tip.hidden}`);
      }
      body.dataset.seen = seen.join(" ");
      document.querySelector("#views button").click();
      const show = document.getElementById("show");
      words = [];
      show.value = "idle";
      show.dispatchEvent(new Event("change"));
      body.dataset.idle = words.join("|");
      show.value = "accesses";
      show.dispatchEvent(new Event("change"));
      document.getElementById("play").click();
      await wait(1500);
      document.getElementById("play").click();
      body.dataset.played = document.getElementById("which").textContent;
      document.querySelectorAll("#regions button")[1].click();
      await wait(300);
      body.dataset.second = document.getElementById("name").textContent;
      body.dataset.wide = document.documentElement.scrollWidth - innerWidth;
    })()</script></body>"""
    page.write_text(html.replace("</body>", probe))
    done = subprocess.run(
        [
            tool("chromium"), *QUIET_CHROMIUM, f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr",
            f"--window-size={width},2000", f"--blink-settings=preferredColorScheme={int(scheme == 'light')}",
            "--virtual-time-budget=9000", "--dump-dom", page.as_uri(),
        ],
        capture_output=True, text=True, timeout=3 * PATIENCE_S, check=False,
    )  # fmt: skip
    body = re.search(r"<body[^>]*>", done.stdout)
    assert body and "data-wide" in body[0], done.stderr[-3000:]
    assert "granule" in body[0] and "offset" in body[0] and "llama.gguf" in body[0]
    seen = dict(entry.split(":") for entry in re.search(r'data-seen="([^"]*)"', body[0])[1].split())
    assert seen == dict.fromkeys(["map", "slices", "scatter", "autocorrelation", "path", "wss"], "true")
    # Each colour and each line has its name.
    written = dict(re.findall(r'data-words(\w+)="([^"]*)"', body[0]))
    assert "never accessed" in written["map"] and "never accessed" in written["slices"], written
    assert "hotspot" in written["path"] and "its reach" in written["path"], written
    assert "behind the end" in written["map"] + written["slices"], written
    assert "since the start" in written["wss"] and "in each slice" in written["wss"], written
    # Where the region began in the recorded run, and how long ago it was accessed.
    key = re.search(r'data-key="([^"]*)"', body[0])[1]
    assert re.search(r"address\s*0x7e0000000000", key) and re.search(r"last access\s*in the last slice", key), key
    idle = re.search(r'data-idle="([^"]*)"', body[0])[1]
    assert "time since the|last sample" in idle and "10 s" in idle and "never accessed" in idle, idle
    assert re.search(r'data-played="slice \d+', body[0]) and 'data-second="anon 1"' in body[0]
    # Nothing sticks out to the right.
    assert int(re.search(r'data-wide="([^"]*)"', body[0])[1]) <= 0
    assert not [line for line in done.stderr.splitlines() if ":CONSOLE" in line]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--region", "stak"], 2, "the regions are llama.gguf"),
        (["--region", "llama.gguf:9TiB+1"], 2, "outside"),
        (["--slices", "5-99"], 2, "there is no slice"),
        (["--granules", "99999999-99999999", "--region", "0"], 2, "there is no granule"),
        (["--granule", "0"], 2, "granule"),
        (["--granule", "1", "-o", "{dir}/out.csv"], 1, "--granule"),
        (["--source", "damon"], 2, "perf-mem"),
        (["--access", "far"], 2, "remote"),
        (["-o", "{dir}/out.gif"], 2, ".png"),
        (["--op", "store", "--region", "0", "-o", "{dir}/out.png"], 1, "nothing in it"),
        (["--all-regions", "--view", "path", "-o", "{dir}/out.png"], 2, "--all-regions"),
        (["--text", "--region", "stak"], 2, "the regions are llama.gguf"),
        (["--text", "--op", "store", "--region", "0"], 1, "nothing in it"),
        (["--text", "-o", "{dir}/out.png"], 2, "cannot be used with"),
    ],
)
def test_mistakes_are_explained(
    recording: pathlib.Path, tmp_path: pathlib.Path, arguments: list[str], code: int, says: str
) -> None:
    done = tiermem("heatmap", str(recording), *[argument.format(dir=tmp_path) for argument in arguments])
    assert done.returncode == code and says in done.stderr, (done.returncode, done.stderr)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_recording_is_refused(recording: pathlib.Path, tmp_path: pathlib.Path) -> None:
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(recording.read_bytes()[:-100])
    done = tiermem("heatmap", str(cut))
    assert done.returncode == 1 and "record it again" in done.stderr, done.stderr
    done = tiermem("heatmap", "zipf:requests=100")
    assert done.returncode == 1 and "not a memory trace" in done.stderr, done.stderr
    assert tiermem("heatmap", str(tmp_path / "nowhere.parquet")).returncode == 1
