"""Live pages in a real browser."""

from __future__ import annotations

import json
import pathlib
import subprocess
import urllib.parse

from store import PATIENCE_S

# No first-run pages, no updates, no telemetry: what is left on the network is the page's own doing.
QUIET_CHROMIUM = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


def requested_hosts(net_log: pathlib.Path) -> set[str]:
    """The hosts of everything that a page asked for, according to Chromium's log of its network stack."""
    log = json.loads(net_log.read_text())
    types = {number: name for name, number in log["constants"]["logEventTypes"].items()}
    hosts = set()
    for event in log["events"]:
        parameters = event.get("params") or {}
        # What the browser asks for itself, such as the page that was named, has no page as its initiator.
        initiator = parameters.get("initiator", "not an origin")
        if types.get(event["type"]) == "URL_REQUEST_START_JOB" and initiator != "not an origin":
            hosts.add(urllib.parse.urlsplit(parameters["url"]).netloc)
    return hosts


def visit(browser: str, page: str, tmp_path: pathlib.Path) -> str:
    """What a live page has become after some seconds: it is connected, has asked nobody but its own server, and has no error to tell."""
    net_log = tmp_path / "net.json"
    done = subprocess.run(
        [
            browser, *QUIET_CHROMIUM, f"--user-data-dir={tmp_path / 'profile'}", f"--log-net-log={net_log}",
            "--enable-logging=stderr", "--virtual-time-budget=6000", "--dump-dom", page,
        ],
        capture_output=True, text=True, timeout=3 * PATIENCE_S, check=False,
    )  # fmt: skip
    assert 'data-state="live"' in done.stdout, done.stderr[-3000:]
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    assert console == []
    assert requested_hosts(net_log) == {urllib.parse.urlsplit(page).netloc}
    return done.stdout
