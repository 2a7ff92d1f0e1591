"""The origin of the page of `wherry ui` in a browser that has data of a server which had the same port before."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.chromium import Chromium, Tab
from tests.support.ui_page import page_server, tab
from wherry.testing import Cluster

SCRIPT = "window.foreign = location.hash;"
WORKER = f"""
self.addEventListener('install', () => self.skipWaiting());
self.addEventListener('activate', (event) => event.waitUntil(clients.claim()));
const page = {json.dumps("<script>" + SCRIPT + "</script>")};
self.addEventListener('fetch', (event) => {{
  if (event.request.mode === 'navigate') event.respondWith(new Response(page, {{headers: {{'content-type': 'text/html'}}}}));
}});
"""
REGISTERED = """
navigator.serviceWorker.register('/worker.js').then(() => navigator.serviceWorker.ready).then(() => document.title = 'done')
"""
FILES = {
    "/": ("text/html", f"<script src=/static/main.js></script><script>{REGISTERED}</script>", ""),
    "/static/main.js": ("text/javascript", SCRIPT, "public, max-age=31536000, immutable"),
    "/worker.js": ("text/javascript", WORKER, ""),
}


class Foreign(BaseHTTPRequestHandler):
    """Answers with a script for the cache of the browser, and registers a service worker."""

    def do_GET(self) -> None:
        media_type, text, cache = FILES.get(self.path, ("text/plain", "", ""))
        self.send_response(200)
        for name, value in (("content-type", media_type), ("content-length", str(len(text))), ("cache-control", cache)):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextlib.contextmanager
def foreign_server(port: int = 0) -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", port), Foreign) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def config() -> Iterator[Path]:
    with Cluster(nodes=1) as cluster:
        yield cluster.kubeconfig


def visited(browser: Chromium, host: str) -> tuple[Tab, int]:
    """Return a tab whose browser has a script and a service worker of a server that has ended, and the server's port."""
    shown = browser.tab()
    with foreign_server() as port:
        shown.open(f"http://{host}:{port}/")
        shown.wait("document.title === 'done'")
    shown.open("about:blank")
    return shown, port


@pytest.mark.parametrize("localhost", [False, True])
def test_scripts_and_workers_of_a_former_server_of_the_port_do_not_run(
    browser: Chromium, config: Path, localhost: bool
) -> None:
    shown, port = visited(browser, "localhost" if localhost else "127.0.0.1")
    with page_server(config, port=port, localhost=localhost) as link:
        shown.open(link)
        shown.wait_text("live", "#connection")
        assert shown.evaluate("window.foreign === undefined && navigator.serviceWorker.controller === null")
        assert urlsplit(link).port == port and shown.evaluate("location.hostname") == urlsplit(link).hostname
    shown.close()


@pytest.mark.parametrize("localhost", [False, True])
def test_no_two_runs_have_the_same_host(browser: Chromium, config: Path, localhost: bool) -> None:
    runs = (page_server(config, localhost=localhost) for _ in range(2))
    with next(runs) as first, next(runs) as second:
        assert urlsplit(first).hostname != urlsplit(second).hostname
        with tab(browser, first) as shown:
            shown.wait_text("live", "#connection")
            shown.evaluate("location.reload()")
            shown.wait_text("live", "#connection")
