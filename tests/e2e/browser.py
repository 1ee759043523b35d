"""Live pages in a real browser."""

from __future__ import annotations

import html
import http.server
import json
import pathlib
import re
import subprocess
import threading
import urllib.parse
import urllib.request

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


# What of a page does not fit into so many pixels: its words and by how much. A canvas has no words.
FIND_CUT = """(page, most) => {
  const found = [];
  for (const it of page.body.querySelectorAll("*")) {
    const words = [...it.childNodes].filter((node) => node.nodeType === 3 && node.data.trim()).map((node) => node.data.trim()).join(" ");
    if (!words || !it.checkVisibility() || it.closest("script, style")) continue;
    const range = page.createRange();
    range.selectNodeContents(it);
    const { left, right } = range.getBoundingClientRect();
    // Labels that the style sheet adds count here; what is in the line has no width of its own.
    const cut = it.clientWidth > 0 && it.scrollWidth > it.clientWidth;
    if (cut || left < 0 || right > most) found.push(`${words}: ${Math.round(left)} to ${Math.round(right)}`);
  }
  const wide = page.documentElement.scrollWidth;
  if (wide > most) found.push(`the page is ${wide} wide`);
  return found;
}"""
# The page in a frame as narrow as a phone, and below it what does not fit there.
NARROW = f"""<!doctype html><iframe id="page" src="/" style="width:360px; height:4000px; border:0"></iframe><pre id="found">not looked yet</pre>
<script>
setTimeout(() => {{
  const found = ({FIND_CUT})(document.getElementById("page").contentDocument, 360);
  document.getElementById("found").textContent = JSON.stringify(found);
}}, 4000);
</script>"""


def cut_words(browser: str, page: str, tmp_path: pathlib.Path) -> list[str]:
    """The words of a live page that are not whole at a width of 360 pixels."""

    class Around(http.server.BaseHTTPRequestHandler):
        """The page's server, with one more page that looks at it: only one of the same origin may."""

        def do_GET(self) -> None:
            if self.path == "/narrow":
                kind, body = "text/html", NARROW.encode()
            else:
                try:
                    with urllib.request.urlopen(page.rstrip("/") + self.path, timeout=PATIENCE_S) as answer:
                        kind, body = answer.headers["Content-Type"], answer.read()
                except OSError:
                    self.send_error(502)
                    return
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Around) as around:
        threading.Thread(target=around.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{around.server_address[1]}/narrow"
        flags = [f"--user-data-dir={tmp_path / 'narrow'}", "--window-size=800,4200", "--virtual-time-budget=6000", "--dump-dom"]
        done = subprocess.run([browser, *QUIET_CHROMIUM, *flags, url], capture_output=True, text=True, timeout=3 * PATIENCE_S, check=False)
        around.shutdown()
    found = re.search(r'<pre id="found">(\[.*?\])</pre>', done.stdout, re.DOTALL)
    assert found, (done.stdout[-2000:], done.stderr[-2000:])
    return json.loads(html.unescape(found[1]))
