"""A recording that is looked at while it is made: the page and maps of `record --watch`, and `heatmap --text --watch` in a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator

import pytest

from browser import FIND_CUT
from browser_session import session
from programs import tool, workload
from store import PATIENCE_S, binary, eventually, tiermem

OTHER_SCREEN, OWN_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
# What a page must not take for a part of itself.
EVIL = "<img src=x onerror=\"document.body.dataset.evil='yes'\">"
# Maps a file of that name, and touches it until its input ends.
MAPS_A_FILE = """
import mmap, select, sys
with open(sys.argv[1], "r+b") as file:
    mapped = mmap.mmap(file.fileno(), 0)
while not select.select([sys.stdin], [], [], 0.001)[0]:
    for at in range(0, len(mapped), 4096):
        mapped[at] = (mapped[at] + 1) % 256
"""


class Watched:
    """A recording under way, with its page."""

    def __init__(self, out: pathlib.Path, *command: str, arguments: tuple[str, ...] = ("--slice", "50ms", "--granule", "1MiB")) -> None:
        self.out = out
        record = [binary(), "record", "-o", str(out), "--watch", *arguments]
        self.process = subprocess.Popen(
            [*record, "--", *command] if command else record,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stderr is not None
        first = self.process.stderr.readline()
        found = re.fullmatch(r"tiermem: the recording can be watched at (http://127\.0\.0\.1:\d+/)\n", first)
        assert found, first
        self.page = found[1]
        self.port = urllib.parse.urlsplit(self.page).port

    def get(self, path: str, host: str | None = None) -> str:
        request = urllib.request.Request(urllib.parse.urljoin(self.page, path), headers={"Host": host} if host else {})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.read().decode()

    def refused(self, path: str, host: str | None = None) -> tuple[int, str]:
        with pytest.raises(urllib.error.HTTPError) as caught:
            self.get(path, host)
        return caught.value.code, caught.value.read().decode()

    def snapshot(self) -> dict:
        return json.loads(self.get("api/snapshot"))

    def map(self) -> dict:
        return json.loads(self.get("api/map"))

    def wait_for_slices(self, count: int) -> None:
        eventually(lambda: self.snapshot()["slices"] >= count, f"there are {count} slices")

    def end(self) -> tuple[int, str]:
        """Ends recording and program; the exit code, and what was said after the first line."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, said


@contextlib.contextmanager
def watched(out: pathlib.Path, *command: str) -> Iterator[Watched]:
    watch = Watched(out, *command)
    try:
        yield watch
    finally:
        if watch.process.poll() is None:
            watch.end()


@pytest.fixture
def skewed() -> list[str]:
    return workload("skewed", "--footprint 16MiB --seconds 600")


def test_a_recording_is_served_while_it_grows(skewed: list[str], tmp_path: pathlib.Path) -> None:
    with watched(tmp_path / "a.rec", *skewed) as watch:
        watch.wait_for_slices(5)
        assert watch.get("ready") == "ready\n"
        one = watch.snapshot()
        watch.wait_for_slices(one["slices"] + 3)
        other = watch.snapshot()
        assert other["written_bytes"] > one["written_bytes"] and other["uptime_s"] > one["uptime_s"]
        assert other["output"] == str(watch.out) and other["source"] == "refs" and other["processes"] == 1
        assert 16 << 20 <= other["working_set_bytes"] <= other["rss_bytes"] < 64 << 20
        assert other["mappings"][0]["bytes"] >= 16 << 20 and other["mappings"][0]["share"] > 0.9
        hottest = other["mappings"][0]["name"]

        drawn = watch.map()
        assert drawn["slices"] >= other["slices"] and drawn["together"] == 1
        assert drawn["data"]["regions"][0]["name"] == hottest and drawn["data"]["regions"][0]["granules"] >= 16
        assert len(drawn["data"]["slices"]) == drawn["slices"]
        eventually(lambda: watch.map()["slices"] > drawn["slices"], "the map grows")

        text = watch.get("map.txt")
        assert text.startswith("Page touches per second and granule of 1 MiB") and f"\n{hottest} " in text
        assert max(map(len, text.splitlines())) <= 80
        wide = watch.get(f"map.txt?columns=200&region={urllib.parse.quote(hottest)}")
        assert wide.startswith(f"{hottest}: page touches") and wide.count("MiB |") >= 16
        code, words = watch.refused("map.txt?region=nothing")
        assert code == 400 and "nothing" in words and hottest in words
        assert watch.refused("map.txt?columns=many")[0] == 400
        metrics = watch.get("metrics")
        assert re.search(r"^tiermem_record_slices_total \d+$", metrics, re.MULTILINE)
        assert re.search(r"^tiermem_record_working_set_bytes \d+$", metrics, re.MULTILINE)

        # Who draws it once is told that it goes on.
        once = tiermem("heatmap", str(watch.out), "--text")
        assert once.returncode == 0 and f"\n{hottest} " in once.stdout
        assert re.fullmatch(r"tiermem: the recording is under way: these are its \d+ slices so far\n", once.stderr), once.stderr

        # A page of another name, which resolves to this machine, must not read it.
        for path in ("", "map.txt", "api/map", "api/snapshot", "api/end"):
            code, words = watch.refused(path, host="evil.example")
            assert code == 421 and "localhost" in words and "http_hosts" not in words, (code, words)
        assert watch.get("map.txt", host="localhost") != ""

        ends: list[dict] = []
        waits = threading.Thread(target=lambda: ends.append(json.loads(watch.get("api/end"))))
        waits.start()
        code, said = watch.end()
        waits.join(PATIENCE_S)
        assert ends == [{"ended": "stopped"}]
        assert code == 128 + signal.SIGTERM and said.splitlines()[-1].startswith("ended by"), said
    table = json.loads(tiermem("heatmap", str(tmp_path / "a.rec"), "--format", "json").stdout)
    assert table[0]["name"] == hottest


def test_the_program_has_its_own_output_and_exit_code(tmp_path: pathlib.Path) -> None:
    script = "echo out; echo err >&2; test -t 1 || echo no terminal; exit 7"
    out = tmp_path / "a.rec"
    done = tiermem("record", "-o", str(out), "--watch", "--report", str(tmp_path / "report"), "--", "/bin/sh", "-c", script)
    assert (done.returncode, done.stdout) == (7, "out\nno terminal\n")
    lines = done.stderr.splitlines()
    # The address comes before anything of the program's, and all else after its end.
    assert lines[0].startswith("tiermem: the recording can be watched at http://127.0.0.1:") and lines[1] == "err", lines
    assert out.exists()


def test_a_port_that_is_taken_starts_no_program(tmp_path: pathlib.Path) -> None:
    out, touched = tmp_path / "a.rec", tmp_path / "touched"
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        done = tiermem("record", "-o", str(out), f"--watch={address}", "--", "touch", str(touched))
    assert done.returncode == 125 and f"{address} is in use" in done.stderr and "free one" in done.stderr, done
    wrong = tiermem("record", "-o", str(out), "--watch=7391", "--", "touch", str(touched))
    assert wrong.returncode == 125 and "no address with a port, such as 127.0.0.1:80" in wrong.stderr, wrong
    late = tiermem("record", "-o", str(out), "--watch", "--source", "lackey", "--", "touch", str(touched))
    assert late.returncode == 125 and "leave --watch out" in late.stderr, late
    assert not out.exists() and not touched.exists()


def test_clients_that_do_not_read_hold_nobody_up(skewed: list[str], tmp_path: pathlib.Path) -> None:
    with watched(tmp_path / "a.rec", *skewed) as watch, contextlib.ExitStack() as stalled:
        watch.wait_for_slices(3)
        for number in range(80):
            client = stalled.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", watch.port))
            # Some ask for as much as they can, some for nothing, some wait for the end; none of them reads.
            asked = [b"", b"GET /api/end HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /api/map HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50]
            with contextlib.suppress(OSError):
                client.sendall(asked[number % 3])
        before = watch.snapshot()["slices"]
        watch.wait_for_slices(before + 5)
        assert watch.map()["slices"] >= before
        code, said = watch.end()
        assert code == 128 + signal.SIGTERM and "ended by" in said, said


@pytest.fixture
def evil(tmp_path: pathlib.Path) -> Iterator[Watched]:
    """A program with a mapping whose name is HTML."""
    (tmp_path / EVIL).write_bytes(bytes(4 << 20))
    with watched(tmp_path / "a.rec", sys.executable, "-c", MAPS_A_FILE, str(tmp_path / EVIL)) as watch:
        eventually(lambda: any(EVIL in it["name"] for it in watch.snapshot()["mappings"]), "the mapping is seen")
        yield watch


def test_names_are_text_whatever_they_look_like(evil: Watched, tmp_path: pathlib.Path) -> None:
    assert any(it["name"] == EVIL for it in evil.map()["data"]["regions"])
    assert "text/plain" in urllib.request.urlopen(evil.page + "map.txt", timeout=PATIENCE_S).headers["Content-Type"]
    with session(tool("chromium"), tmp_path) as browser:
        browser.show(evil.page)
        browser.wait_for("document.getElementById('regions').textContent.includes('onerror')", "the mapping is in the table")
        assert browser.ask("[document.images.length, document.body.dataset.evil ?? null]") == [0, None]
        assert browser.console == []


def test_a_terminal_gets_no_commands_from_names(tmp_path: pathlib.Path) -> None:
    name = tmp_path / "a\x1b[31mb"
    name.write_bytes(bytes(4 << 20))
    with watched(tmp_path / "a.rec", sys.executable, "-c", MAPS_A_FILE, str(name)) as watch:
        eventually(lambda: "a\ufffd[31mb" in watch.get("map.txt"), "the mapping is drawn")
        assert "\x1b" not in watch.get("map.txt")


def test_the_page_in_a_browser(skewed: list[str], tmp_path: pathlib.Path) -> None:
    text = "document.getElementById({!r}).textContent".format
    slices = "Number(document.getElementById('which').textContent.match(/all (\\d+) slices/)?.[1])"
    with session(tool("chromium"), tmp_path) as browser, watched(tmp_path / "a.rec", *skewed) as watch:
        watch.wait_for_slices(3)
        browser.show(watch.page)
        browser.wait_for(f"{slices} >= 3", "the map is drawn")
        assert browser.ask(text("state")) == "recording" and browser.ask("document.documentElement.dataset.state") == "live"
        headline, working_set = browser.ask(text("headline")), browser.ask(text("working-set"))
        assert re.fullmatch(r"Nine tenths of the page touches go to [\d.]+ MiB", str(headline)), headline
        assert re.fullmatch(r"[\d.]+ MiB", str(working_set)), working_set
        label = str(browser.ask("document.getElementById('picture').getAttribute('aria-label')"))
        assert re.fullmatch(r"anon 1: path, all \d+ slices", label), label

        # Somebody looks at another region, and further down, while slices come: all of that stays, and nothing moves.
        browser.ask("document.querySelector('[data-view=map]').click(); document.querySelectorAll('#regions button')[1].click()")
        browser.wait_for(f"{text('name')} === document.querySelectorAll('#regions button')[1].textContent", "the other region is shown")
        name, before = browser.ask(text("name")), browser.ask(slices)
        browser.wait_for(f"{slices} > {before} + 20", "the map grows while the page scrolls to the region")
        browser.ask(
            """window.shifts = [];
            const places = ({ sources }) => sources.map(({ node, previousRect, currentRect }) => [node?.id || node?.nodeName, previousRect.y, currentRect.y]);
            new PerformanceObserver((list) => shifts.push(...list.getEntries().map(places))).observe({ type: "layout-shift" });
            document.querySelector("#regions button").focus({ preventScroll: true });
            scrollTo({ top: 400, behavior: "instant" })"""
        )
        before = browser.ask(slices)
        browser.wait_for(f"{slices} > {before} + 3", "the map grows")
        focus = "document.activeElement === document.querySelector('#regions button')"
        assert browser.ask(f"[{text('name')}, scrollY, {focus}, shifts]") == [name, 400, True, []]
        assert "map" in str(browser.ask("document.getElementById('picture').getAttribute('aria-label')"))

        browser.show(watch.page, width=360)
        browser.wait_for(f"{slices} >= 3", "the map is drawn")
        assert browser.ask(f"({FIND_CUT})(document, 360)") == []
        watch.end()
        browser.wait_for("!document.getElementById('ended').hidden", "the page says that the recording has ended")
        words = browser.ask(text("ended"))
        assert words == f"The recording is finished (stopped). Look at it with tiermem heatmap {watch.out} -o recording.html."
        assert browser.ask(text("state")) == "finished" and browser.console == []


def shown(reader: int, what: str) -> str:
    """What a terminal is sent until that is among it."""
    sent = b""
    while what not in sent.decode(errors="replace"):
        try:
            sent += os.read(reader, 65536)
        except OSError:
            # The other end has been closed.
            break
    return sent.decode(errors="replace")


@contextlib.contextmanager
def terminal(path: pathlib.Path, *arguments: str) -> Iterator[tuple[int, subprocess.Popen]]:
    """The view in a terminal: where one reads it, and its process."""
    master, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 72, 0, 0))
    command = [binary(), "heatmap", str(path), "--text", "--watch", *arguments]
    with subprocess.Popen(command, stdin=other, stdout=other, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        os.close(other)
        try:
            yield master, process
        finally:
            process.kill()
            os.close(master)


def test_a_terminal_shows_each_slice_until_the_end(skewed: list[str], tmp_path: pathlib.Path) -> None:
    out = tmp_path / "a.rec"
    with watched(out, *skewed) as watch:
        eventually(out.exists, "there is a slice")
        with terminal(out) as (reader, process):
            first = shown(reader, "Ctrl-C ends the view")
            assert first.startswith(OTHER_SCREEN) and OWN_SCREEN not in first
            numbers: list[int] = []
            while len(set(numbers)) < 3:
                numbers += [int(it) for it in re.findall(r"a\.rec: (\d+) slice", shown(reader, "Ctrl-C ends the view"))]
            assert numbers == sorted(numbers)
            # It has another size from now on.
            fcntl.ioctl(reader, termios.TIOCSWINSZ, struct.pack("HHHH", 8, 60, 0, 0))
            assert "..." in shown(reader, "...")
            watch.end()
            rest = shown(reader, "it will be closed")
            assert process.wait(PATIENCE_S) == 0
            assert process.stderr is not None and process.stderr.read() == f"tiermem: {out}: the recording has ended\n"
            # The terminal is its own again, and has the last map.
            _, last = rest.split(OWN_SCREEN)
            assert last.startswith("Page touches per second") and "\nanon 1 " in last and "\x1b" not in last


def test_ctrl_c_ends_the_view_alone(skewed: list[str], tmp_path: pathlib.Path) -> None:
    out = tmp_path / "a.rec"
    with watched(out, *skewed) as watch:
        eventually(out.exists, "there is a slice")
        with terminal(out, "--region", "hottest") as (reader, process):
            shown(reader, "Ctrl-C ends the view")
            process.send_signal(signal.SIGINT)
            _, last = shown(reader, "it will be closed").split(OWN_SCREEN)
            assert process.wait(PATIENCE_S) == 0 and last.startswith("anon 1: page touches")
        slices = watch.snapshot()["slices"]
        watch.wait_for_slices(slices + 1)


def test_what_is_no_terminal_gets_each_map_once(skewed: list[str], tmp_path: pathlib.Path) -> None:
    out = tmp_path / "a.rec"
    with watched(out, *skewed) as watch:
        eventually(out.exists, "there is a slice")
        command = [binary(), "heatmap", str(out), "--text", "--watch"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            watch.wait_for_slices(watch.snapshot()["slices"] + 5)
            watch.end()
            maps, said = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0 and said == f"tiermem: {out}: the recording has ended\n"
        assert maps.count("Page touches per second") >= 2 and "\x1b" not in maps
    # Of a recording that has ended there is one map.
    done = tiermem("heatmap", str(out), "--text", "--watch")
    once = tiermem("heatmap", str(out), "--text")
    assert (done.returncode, done.stdout) == (0, once.stdout)
    nothing = tiermem("heatmap", str(tmp_path / "none.rec"), "--text", "--watch")
    assert nothing.returncode == 1 and "after its first slice" in nothing.stderr
    alone = tiermem("heatmap", str(out), "--watch")
    assert alone.returncode == 2 and "--text" in alone.stderr


def test_a_recorder_that_is_killed_ends_the_view(skewed: list[str], tmp_path: pathlib.Path) -> None:
    out = tmp_path / "a.rec"
    watch = Watched(out, *skewed)
    eventually(out.exists, "there is a slice")
    children = pathlib.Path(f"/proc/{watch.process.pid}/task/{watch.process.pid}/children")
    eventually(children.read_text, "it has started the program")
    program = [int(pid) for pid in children.read_text().split()]
    with subprocess.Popen([binary(), "heatmap", str(out), "--text", "--watch"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as view:
        assert view.stdout is not None and "Page touches" in view.stdout.readline()
        watch.process.kill()
        for pid in program:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _, said = view.communicate(timeout=PATIENCE_S)
        assert view.returncode == 0 and "its recorder has ended before the recording was complete" in said
    watch.process.communicate(timeout=PATIENCE_S)


def test_a_process_that_runs_is_watched(skewed: list[str], tmp_path: pathlib.Path) -> None:
    with subprocess.Popen(skewed, stdout=subprocess.DEVNULL) as program:
        try:
            watch = Watched(tmp_path / "a.rec", arguments=("--slice", "50ms", "--pid", str(program.pid)))
            watch.wait_for_slices(2)
            # Mappings are looked at as wholes: which parts are hot is not known, and the map says so. The first slices may end
            # before the program has mapped its memory.
            eventually(
                lambda: watch.map()["data"]["regions"][0]["unknown"] and "not known" in watch.get("map.txt"),
                "the map says that its parts are not known",
            )
            watch.process.send_signal(signal.SIGINT)
            _, said = watch.process.communicate(timeout=PATIENCE_S)
            assert watch.process.returncode == 0, said
            assert program.poll() is None
        finally:
            program.kill()
