"""Headless Chromium, driven over its DevTools protocol: tests use the page as a person does, with keys and the mouse."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

MISSING = "chromium is not installed: `apt-get install chromium`, or scripts/install --dev"
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",  # tests run as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-default-apps",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.*, EXCLUDE localhost, EXCLUDE *.localhost",
    "--lang=en",
    "--remote-debugging-port=0",
)
SECONDS = 20.0
WATCHER = """
window.violations = [];
document.addEventListener('securitypolicyviolation', (e) => violations.push(e.violatedDirective + ' ' + e.blockedURI));
window.longest = 0;
new PerformanceObserver((list) => { for (const e of list.getEntries()) longest = Math.max(longest, e.duration); })
    .observe({entryTypes: ['longtask']});
"""

AT_REST = """
(async () => {
  for (let former = ''; ;) {
    const e = ELEMENT;
    e?.scrollIntoView({block: 'center'});
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    if (!e?.isConnected) continue;
    const r = e.getBoundingClientRect(), place = [r.left + r.width / 2, r.top + r.height / 2];
    if (String(place) === former && e.contains(document.elementFromPoint(...place))) return place;
    former = String(place);
  }
})()
"""
"""The middle of an element that can be clicked and no longer moves."""


class Tab:
    """A tab in a browser context of its own, without cookies and storage of the others."""

    def __init__(self, browser: Chromium, session: str, context: str) -> None:
        self._browser, self._session, self._context = browser, session, context
        self.errors: list[str] = []

    def send(self, method: str, **options: Any) -> dict[str, Any]:
        return self._browser.send(method, options, self._session)

    def open(self, url: str) -> None:
        self.send("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression, or of the promise that it is."""
        answer = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            found = answer["exceptionDetails"]
            raise AssertionError(found.get("exception", {}).get("description") or found["text"])
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = SECONDS) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(AssertionError):
                if self.evaluate(f"!!({expression})"):
                    return
            time.sleep(0.05)
        raise AssertionError(f"not true after {seconds:g} s: {expression}\nthe page: {self.text()[:3000]}")

    def text(self) -> str:
        return str(self.evaluate("document.body.innerText"))

    def wait_text(self, wanted: str, selector: str = "body", seconds: float = SECONDS) -> None:
        self.wait(f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(wanted)})", seconds)

    def click(self, selector: str, containing: str = "") -> None:
        """Click the first element of a selector that contains a text, with the mouse."""
        every = f"[...document.querySelectorAll({json.dumps(selector)})]"
        found = f"{every}.find(e => e.textContent.includes({json.dumps(containing)}))"
        self.wait(f"!!{found}")
        box = self.evaluate(AT_REST.replace("ELEMENT", found))
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def key(self, key: str, text: str = "") -> None:
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **({"text": text} if text else {}))
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, text: str) -> None:
        self.send("Input.insertText", text=text)

    def violations(self) -> list[str]:
        """Return violations of the content security policy, and errors of scripts."""
        return [*self.evaluate("window.violations"), *self.errors]

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))

    def size(self, width: int, height: int) -> None:
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, name: str) -> None:
        """Prefer the colours `dark` or `light`."""
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def close(self) -> None:
        self._browser.forget(self._session, self._context)


class Chromium:
    """A browser that runs."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection, self._number = connection, 0
        self._tabs: dict[str, Tab] = {}

    def send(self, method: str, options: dict[str, Any], session: str = "") -> dict[str, Any]:
        self._number += 1
        message = {
            "id": self._number,
            "method": method,
            "params": options,
            **({"sessionId": session} if session else {}),
        }
        self._connection.send(json.dumps(message))
        while True:
            answer = json.loads(self._connection.recv(timeout=SECONDS))
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer.get("result", {})
            self._record(answer)

    def _record(self, event: dict[str, Any]) -> None:
        tab = self._tabs.get(event.get("sessionId", ""))
        if tab is None:
            return
        if event["method"] == "Runtime.exceptionThrown":
            found = event["params"]["exceptionDetails"]
            tab.errors.append(found.get("exception", {}).get("description") or found["text"])
        if event["method"] == "Log.entryAdded" and event["params"]["entry"]["source"] == "security":
            tab.errors.append(event["params"]["entry"]["text"])

    def tab(self) -> Tab:
        """Open a tab in a new context, whose scripts may write to the clipboard."""
        context = self.send("Target.createBrowserContext", {})["browserContextId"]
        target = self.send("Target.createTarget", {"url": "about:blank", "browserContextId": context})["targetId"]
        session = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
        self.send("Browser.grantPermissions", {"permissions": permissions, "browserContextId": context})
        tab = self._tabs[session] = Tab(self, session, context)
        for domain in ("Page", "Runtime", "Log", "Accessibility", "DOM"):
            tab.send(f"{domain}.enable")
        tab.send("Emulation.setFocusEmulationEnabled", enabled=True)
        tab.send("Page.addScriptToEvaluateOnNewDocument", source=WATCHER)
        tab.size(1200, 800)
        return tab

    def forget(self, session: str, context: str) -> None:
        self._tabs.pop(session, None)
        self.send("Target.disposeBrowserContext", {"browserContextId": context})


@contextlib.contextmanager
def chromium() -> Iterator[Chromium]:
    """Run a browser while the block runs; it has no names but this machine's."""
    program = shutil.which("chromium")
    assert program, MISSING
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [program, *ARGUMENTS, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            address = _address(Path(folder, "DevToolsActivePort"), process)
            with connect(address, max_size=None, compression=None, ping_interval=None) as connection:
                yield Chromium(connection)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(file: Path, process: subprocess.Popen[bytes]) -> str:
    end = time.monotonic() + 30
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError, ValueError):
            port, path = file.read_text().split()
            return f"ws://127.0.0.1:{port}{path}"
        time.sleep(0.05)
    raise AssertionError(f"chromium does not start (status {process.poll()})")
