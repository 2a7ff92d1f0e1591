"""The origin of the page of `wherry ui` in a browser that has data of a server which had the same port before."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
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


@pytest.mark.parametrize("localhost", [False, pytest.param(True, marks=pytest.mark.long)])
def test_no_two_runs_have_the_same_host(browser: Chromium, config: Path, localhost: bool) -> None:
    runs = (page_server(config, localhost=localhost) for _ in range(2))
    with next(runs) as first, next(runs) as second:
        assert urlsplit(first).hostname != urlsplit(second).hostname
        with tab(browser, first) as shown:
            shown.wait_text("live", "#connection")
            shown.evaluate("location.reload()")
            shown.wait_text("live", "#connection")


OTHER = """
import asyncio, socket, sys
host, port, count = sys.argv[1], int(sys.argv[2]), 0
async def occupy():
    global count
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, port)
            count += 1
            writer.write(b"GET /x HTTP/1.1\\r\\n")
            await reader.read()
            writer.close()
        except OSError:
            await asyncio.sleep(0.01)
async def answer(device):
    client = socket.socket()
    if device:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
    try:
        client.connect((host, port))
        reader, writer = await asyncio.open_connection(sock=client)
        writer.write(f"GET /static/main.js HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n\\r\\n".encode())
        return len(await reader.read())
    except ConnectionError:
        return 0
async def main():
    print(await answer(b""), await answer(b"lo"), flush=True)
    tasks = [asyncio.create_task(occupy()) for _ in range(100)]
    while count < 200:
        await asyncio.sleep(0.01)
    print("occupied", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
NOBODY = 65534


@pytest.mark.parametrize("localhost", [False, pytest.param(True, marks=pytest.mark.long)])
def test_connections_of_other_users_are_refused_and_keep_no_page_from_opening(
    browser: Chromium, config: Path, localhost: bool
) -> None:
    with page_server(config, localhost=localhost, users=frozenset({os.geteuid()})) as link:
        place = urlsplit(link)
        address = "127.0.0.1" if localhost else place.hostname
        command = [sys.executable, "-c", OTHER, str(address), str(place.port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, user=NOBODY, group=NOBODY, cwd="/") as other:
            try:
                assert other.stdout is not None
                assert other.stdout.readline() == "0 0\n", "another user got an answer"
                assert other.stdout.readline() == "occupied\n"
                with tab(browser, link) as shown:
                    shown.wait_text("live", "#connection")
            finally:
                other.kill()
