"""What an operator sees of a block server and what he may change: `status`, `set`, `flush`, `drop`, /metrics, the live page."""

from __future__ import annotations

import contextlib
import csv
import json
import pathlib
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from browser import cut_words, visit
from nbd_client import NbdClient
from store import PATIENCE_S, binary, eventually, tiermem
from volume_server import KIB, MIB, Nbdkit, VolumeServer, image, tool

Serve = Callable[..., VolumeServer]
Store = Callable[..., Nbdkit]
VOLUME_BYTES = 64 * MIB
METRIC = re.compile(r'^(tiermem|process)_\w+(\{(\w+="[^"]*",?)+\})? ([-+0-9.e]+|NaN|\+Inf)$')
CONTROL = {"Content-Type": "application/json", "X-Tiermem": "control"}
# Nothing is written back by itself while a test runs.
LAZY = """
    [cache]
    path = "{cache}"
    capacity = "32MiB"
    dirty_age = "3600s"
    [[export]]
    name = "disk"
    backing = "{backing}"
"""


@pytest.fixture
def lazy(serve_volumes: Serve, tmp_path: pathlib.Path) -> VolumeServer:
    """A server that keeps what is dirty until it is told otherwise."""
    disk = image(tmp_path / "disk.img", VOLUME_BYTES, seed=1)
    config = LAZY.format(cache=tmp_path / "cache.tiermem", backing=disk)
    return serve_volumes({"disk": disk}, config=config)


def stored(tmp_path: pathlib.Path, offset: int, length: int) -> bytes:
    """What the image itself has."""
    with (tmp_path / "disk.img").open("rb") as file:
        file.seek(offset)
        return file.read(length)


def post(server: VolumeServer, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    """Sends a command as something else than `tiermem` would; the status and the answer."""
    request = urllib.request.Request(server.page + path, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def work(server: VolumeServer) -> None:
    """Two reads of the same, and a write."""
    client = NbdClient(server.socket, server.name)
    client.read(0, 64 * KIB)
    client.read(0, 64 * KIB)
    client.write(MIB, b"x" * (8 * KIB))
    client.close()


def test_status_in_every_format(lazy: VolumeServer) -> None:
    work(lazy)
    table = lazy.command_line("status").stdout
    assert re.search(r"^disk +2 +50\.0% +1 +0\.0% ", table, re.MULTILINE), table
    assert re.search(r"^dirty +8KiB$", table, re.MULTILINE), table

    report = json.loads(lazy.command_line("status", "--format", "json").stdout)
    (export,) = report["exports"]
    assert (export["reads"], export["read_hits"], export["read_hit_ratio"]) == (2, 1, 0.5)
    assert (export["writes"], export["write_hits"], export["dirty_bytes"]) == (1, 0, 8 * KIB)
    assert (export["core_read_bytes"], export["core_written_bytes"]) == (64 * KIB, 0)
    assert (export["quota_bytes"], export["errors"]) == (None, 0)
    assert report["held_bytes"] == sum(size["block_bytes"] * size["blocks"] for size in report["blocks"])
    assert export["processing_p50_ns"] > 0 and export["read_p99_us"] >= export["read_p50_us"] > 0

    lines = lazy.command_line("status", "--format", "csv").stdout.split("\n\n")
    server, exports, blocks = (list(csv.DictReader(part.splitlines())) for part in lines)
    assert list(exports[0]) == list(export) and exports[0]["reads"] == "2" and exports[0]["quota_bytes"] == ""
    assert server[0].keys() == report.keys() - {"exports", "blocks"}
    assert [row["blocks"] for row in blocks] == [str(size["blocks"]) for size in report["blocks"]]


def test_status_tells_of_clients_and_errors(lazy: VolumeServer) -> None:
    client = NbdClient(lazy.socket, "disk")
    assert client.ask(0, VOLUME_BYTES, 4096).error
    assert (lazy.export()["clients"], lazy.export()["errors"]) == (1, 1)
    client.close()
    eventually(lambda: lazy.export()["clients"] == 0, "the client is not counted any more")


def test_watching_tells_what_happened_meanwhile(lazy: VolumeServer) -> None:
    work(lazy)
    command = [binary(), "block", "status", "--watch", "100ms", "--http", lazy.page.split("/")[2]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        lines = []
        while not any("in the last" in line for line in lines):
            lines.append(watching.stdout.readline())
        watching.terminate()
    assert any("since the start" in line for line in lines)


def test_metrics_are_well_formed_and_count(lazy: VolumeServer) -> None:
    work(lazy)

    def sample(name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (\S+)$", lazy.get("/metrics"), re.MULTILINE)
        assert found, f"{name} is not among the metrics"
        return float(found[1])

    eventually(lambda: sample('tiermem_block_requests_total{export="disk",op="write"}') == 1, "the write is counted")
    for line in lazy.get("/metrics").splitlines():
        assert line.startswith(("# HELP ", "# TYPE ")) or METRIC.match(line), line
    assert sample('tiermem_block_hits_total{export="disk",op="read"}') == 1
    assert sample('tiermem_block_io_bytes_total{export="disk",device="core",op="read"}') == 64 * KIB
    assert sample('tiermem_block_dirty_bytes{export="disk"}') == 8 * KIB
    assert sample('tiermem_block_request_duration_seconds_bucket{export="disk",op="read",le="+Inf"}') == 2
    assert sample("tiermem_block_log_failed") == 0
    assert lazy.get("/ready") == "ready\n"


def test_writes_after_a_change_of_mode_go_the_new_way(lazy: VolumeServer, tmp_path: pathlib.Path) -> None:
    client = NbdClient(lazy.socket, "disk")
    client.write(0, b"a" * (64 * KIB))
    assert stored(tmp_path, 0, 64 * KIB) != b"a" * (64 * KIB)
    done = lazy.command_line("set", "disk", "--mode", "write-through")
    assert done.returncode == 0 and "write-through" in done.stdout, done
    client.write(MIB, b"b" * (64 * KIB))
    assert stored(tmp_path, 0, 64 * KIB) == b"a" * (64 * KIB), "what was dirty goes first"
    assert stored(tmp_path, MIB, 64 * KIB) == b"b" * (64 * KIB)
    assert (lazy.export()["mode"], lazy.export()["dirty_bytes"]) == ("write-through", 0)
    assert lazy.command_line("set", "disk", "--mode", "write-back").returncode == 0
    client.write(2 * MIB, b"c" * (64 * KIB))
    assert stored(tmp_path, 2 * MIB, 64 * KIB) != b"c" * (64 * KIB)
    client.close()


def test_a_quota_is_kept(lazy: VolumeServer) -> None:
    client = NbdClient(lazy.socket, "disk")
    done = lazy.command_line("set", "disk", "--quota", "8MiB")
    assert done.returncode == 0 and "8MiB" in done.stdout, done
    for at in range(24):
        client.read(at * MIB, MIB)
    assert lazy.export()["quota_bytes"] == 8 * MIB
    assert lazy.export()["share_held_bytes"] <= 8 * MIB
    assert lazy.command_line("set", "disk", "--quota", "none").returncode == 0
    for at in range(24):
        client.read(at * MIB, MIB)
    assert lazy.export()["quota_bytes"] is None
    assert lazy.export()["share_held_bytes"] > 8 * MIB
    client.close()


def test_after_a_flush_the_image_is_complete(lazy: VolumeServer, tmp_path: pathlib.Path) -> None:
    client = NbdClient(lazy.socket, "disk")
    for at in range(8):
        client.write(at * MIB, bytes([at + 1]) * MIB)
    done = lazy.command_line("flush", "disk")
    assert (done.returncode, done.stdout) == (0, "disk: 8MiB written back\n"), done
    client.close()
    lazy.kill()
    for at in range(8):
        assert stored(tmp_path, at * MIB, MIB) == bytes([at + 1]) * MIB
    lazy.start()
    # What the log has not yet as written back is written once more, which changes nothing.
    assert lazy.command_line("flush").returncode == 0
    done = lazy.command_line("flush")
    assert (done.returncode, done.stdout) == (0, "disk: 0B written back\n"), done
    for at in range(8):
        assert stored(tmp_path, at * MIB, MIB) == bytes([at + 1]) * MIB


def test_all_of_many_exports_are_flushed(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    exports = {f"disk{at}": f"{image(tmp_path / f'{at}.img', MIB)},threads" for at in range(80)}
    server = serve_volumes(exports, cache="dram:32MiB")
    client = NbdClient(server.socket, "disk79")
    client.write(0, b"a" * (64 * KIB))
    done = server.command_line("flush")
    assert done.returncode == 0, done
    lines = done.stdout.splitlines()
    assert len(lines) == 80 and lines[79].startswith("disk79: ") and lines[0] == "disk0: 0B written back"
    assert server.export("disk79")["dirty_bytes"] == 0
    client.close()


def test_a_flush_that_the_store_fails_is_told(serve_volumes: Serve, nbdkit: Store, tmp_path: pathlib.Path) -> None:
    failing = tmp_path / "failing"
    failing.touch()
    store = nbdkit("--filter=error", "memory", "64M", "error-pwrite=EIO", "error-pwrite-rate=100%", f"error-pwrite-file={failing}")
    config = LAZY.format(cache=tmp_path / "cache.tiermem", backing=store.uri)
    server = serve_volumes({"disk": store.uri}, config=config)
    client = NbdClient(server.socket, "disk")
    client.write(0, b"a" * (64 * KIB))
    done = server.command_line("flush", "disk")
    assert done.returncode == 1 and "the store of disk failed while 64KiB" in done.stderr, done
    failing.unlink()
    # The next one may find the failed try's echo; it goes on by itself.
    eventually(lambda: server.command_line("flush", "disk").returncode == 0, "the store has all of it")
    assert server.export()["dirty_bytes"] == 0
    client.close()


def test_a_flush_waits_for_a_store_that_says_nothing(serve_volumes: Serve, nbdkit: Store, tmp_path: pathlib.Path) -> None:
    """And says meanwhile that it waits; who asked may go away."""
    store = nbdkit("memory", "64M")
    config = LAZY.format(cache=tmp_path / "cache.tiermem", backing=store.uri)
    server = serve_volumes({"disk": store.uri}, config=config)
    client = NbdClient(server.socket, "disk")
    client.write(0, b"a" * (64 * KIB))
    store.process.send_signal(signal.SIGSTOP)
    request = urllib.request.Request(server.page + "api/flush", data=b"{}", headers=CONTROL)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        assert json.loads(answer.readline()) == {"working_on": "disk", "dirty_bytes": 64 * KIB}
        assert client.read(0, 4 * KIB) == b"a" * (4 * KIB)
    store.process.send_signal(signal.SIGCONT)
    assert server.command_line("flush").returncode == 0
    client.close()


def test_what_is_dropped_is_read_anew(lazy: VolumeServer) -> None:
    client = NbdClient(lazy.socket, "disk")
    before = client.read(0, MIB)
    assert client.read(0, MIB) == before
    client.write(8 * MIB, b"d" * (32 * KIB))
    assert lazy.export()["core_read_bytes"] == MIB
    done = lazy.command_line("drop", "disk")
    assert done.returncode == 0, done
    assert "disk: 1MiB forgotten" in done.stdout and "32KiB that only the cache has stays" in done.stdout, done
    assert client.read(0, MIB) == before
    assert lazy.export()["core_read_bytes"] == 2 * MIB
    assert client.read(8 * MIB, 32 * KIB) == b"d" * (32 * KIB)
    client.close()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["set", "nothing", "--quota", "none"], 1, 'no export "nothing"; there are: disk'),
        (["set", "disk", "--quota", "1TiB"], 1, "more than the cache has"),
        (["set", "disk", "--mode", "read-only"], 1, "when the server is started"),
        (["set", "disk", "--mode", "sideways"], 2, "write-through"),
        (["set", "disk"], 2, "--quota"),
        (["drop", "nothing"], 1, "no export"),
        (["flush", "nothing"], 1, "no export"),
    ],
)
def test_what_cannot_be_done_is_told(lazy: VolumeServer, words: list[str], code: int, says: str) -> None:
    done = lazy.command_line(*words)
    assert done.returncode == code and says in done.stderr, done
    assert (lazy.export()["mode"], lazy.export()["quota_bytes"]) == ("write-back", None)


def test_a_page_of_another_name_reads_nothing(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    disk = image(tmp_path / "disk.img", VOLUME_BYTES, seed=1)
    config = 'http_hosts = ["cache.example"]\n' + LAZY.format(cache=tmp_path / "cache.tiermem", backing=disk)
    server = serve_volumes({"disk": disk}, config=config)

    def status(path: str, host: str) -> int:
        request = urllib.request.Request(server.page + path, headers={"Host": host})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    for path in ("", "api/snapshot", "api/status"):
        assert [status(path, host) for host in ("evil.example", "localhost:1", "cache.example")] == [421, 200, 200]
    assert [status(path, "evil.example") for path in ("metrics", "ready")] == [200] * 2


def test_commands_that_a_web_page_could_cause_are_refused(lazy: VolumeServer) -> None:
    body = json.dumps({"export": "disk", "mode": "write-around"}).encode()
    for headers, code, says in [
        ({}, 403, "need the headers"),
        ({"Content-Type": "application/json"}, 403, "need the headers"),
        ({**CONTROL, "Content-Type": "text/plain"}, 403, "need the headers"),
        ({**CONTROL, "Host": "cache.example:7381"}, 421, "by its address or as localhost"),
    ]:
        status, text = post(lazy, "api/set", body, headers)
        assert status == code and says in text, (headers, text)
    assert post(lazy, "api/set", b"not JSON", CONTROL)[0] == 400
    assert post(lazy, "api/set", b'{"export": "disk", "colour": "red"}', CONTROL)[0] == 400
    assert post(lazy, "api/set", b" " * MIB, CONTROL)[0] == 413
    with pytest.raises(urllib.error.HTTPError) as caught:
        lazy.get("/api/flush")
    assert caught.value.code == 405
    assert lazy.export()["mode"] == "write-back"
    status, text = post(lazy, "api/set", body, {**CONTROL, "Host": "localhost:7381"})
    assert status == 200 and json.loads(text)["mode"] == "write-around", text


def test_an_operator_may_want_no_commands(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    disk = image(tmp_path / "disk.img", VOLUME_BYTES)
    config = "http_control = false\n" + LAZY.format(cache=tmp_path / "cache.tiermem", backing=disk)
    server = serve_volumes({"disk": disk}, config=config)
    done = server.command_line("drop", "disk")
    assert done.returncode == 1 and "http_control = false" in done.stderr, done
    assert server.command_line("status").returncode == 0


def test_whoever_is_no_block_server_is_told_apart(serve: Callable[..., Any]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
        done = tiermem("block", "status", "--http", nobody)
    assert done.returncode == 1 and f"cannot reach {nobody}" in done.stderr, done
    store = serve()
    done = tiermem("block", "status", "--http", store.page.split("/")[2])
    assert done.returncode == 1 and "is this the address of its live page" in done.stderr, done


def test_only_an_address_that_was_asked_for_must_be_free(tmp_path: pathlib.Path) -> None:
    disk = image(tmp_path / "disk.img", VOLUME_BYTES)
    command = [binary(), "block", "serve", "--listen", f"unix:{tmp_path}/nbd", "--cache", "dram:32MiB", "--export", f"disk={disk}"]
    with contextlib.ExitStack() as held:
        # Whoever has the default one already, a test elsewhere perhaps, will do.
        taken = held.enter_context(socket.socket())
        with contextlib.suppress(OSError):
            taken.bind(("127.0.0.1", 7381))
            taken.listen()
        done = subprocess.run([*command, "--http", "127.0.0.1:7381"], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 1 and "127.0.0.1:7381 is in use" in done.stderr, done
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None and server.stderr is not None
            assert server.stdout.readline().startswith("nbd+unix://")
            server.terminate()
            assert server.stdout.read() == ""
            assert "no live page" in server.stderr.read()
            assert server.wait(PATIENCE_S) == 0


def test_no_page_where_none_is_wanted(tmp_path: pathlib.Path) -> None:
    disk = image(tmp_path / "disk.img", VOLUME_BYTES)
    command = [binary(), "block", "serve", "--listen", f"unix:{tmp_path}/nbd", "--http", "none", "--cache", "dram:32MiB"]
    with subprocess.Popen([*command, "--export", f"disk={disk}"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("nbd+unix://")
        server.terminate()
        assert server.stdout.read() == ""
        assert server.wait(PATIENCE_S) == 0


def test_the_live_page_in_a_browser(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    browser = tool("chromium")
    disk, other = (image(tmp_path / f"{name}.img", VOLUME_BYTES) for name in ("disk", "other"))
    server = serve_volumes({"disk": disk, "<b>other</b>": f"{other},read-only"})
    work(server)
    eventually(lambda: json.loads(server.get("/api/snapshot"))["exports"][0]["reads"] == 2, "the reads are published")
    page = visit(browser, server.page, tmp_path)
    assert 'data-ready="true"' in page
    exports = page.partition('<tbody id="exports"')[2].partition("</tbody>")[0]
    assert exports.count("<tr") == 2 and ">disk<" in exports and "&lt;b&gt;other" in exports and "write-back" in exports
    assert page.partition('<tbody id="blocks"')[2].partition("</tbody>")[0].count("<tr") == 4
    assert re.search(r'id="read-note">50\.0% since the start<', page), page
    assert re.search(r'id="log-state">healthy<', page), page
    assert page.count("<canvas") == 7
    assert cut_words(browser, server.page, tmp_path) == []
