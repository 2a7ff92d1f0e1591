"""The page of `wherry ui` when the command has ended, and another server has its address: it reads and shows nothing of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.chromium import Chromium
from tests.support.ui_modules import modules, run
from tests.support.ui_page import count, page_server, pod, tab
from wherry.testing import Cluster


class Recording(BaseHTTPRequestHandler):
    """Answers everything with a story whose fix should not be copied."""

    def do_GET(self) -> None:
        self.server.paths.append(self.path)  # type: ignore[attr-defined]
        body = b'{"items": [], "metadata": {"resourceVersion": "1"}, "causes": [{"text": "x", "fix": "sudo sh"}]}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextlib.contextmanager
def successor(host: str, port: int) -> Iterator[list[str]]:
    """Serve at the address of a page whose command has ended; lends the paths that are requested."""
    with ThreadingHTTPServer((host, port), Recording) as server:
        paths: list[str] = []
        server.paths = paths  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield paths
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def config() -> Iterator[Path]:
    with Cluster(nodes=1) as cluster:
        cluster.apply(pod("big", resources={"requests": {"memory": "640Gi"}}))
        cluster.wait("pod/big", "PodScheduled=False")
        yield cluster.kubeconfig


def test_a_page_sends_nothing_to_whoever_has_the_address_after_the_command(browser: Chromium, config: Path) -> None:
    with contextlib.ExitStack() as stack:
        with page_server(config) as link:
            shown = stack.enter_context(tab(browser, link))
            shown.wait_text("live", "#connection")
            shown.click(".toggle", "Pod default/big")
            shown.wait("document.querySelector('.problems .copy')")
        place = urlsplit(link)
        assert place.hostname and place.port
        with successor(place.hostname, place.port) as paths:
            shown.wait_text("wherry ui has ended: run it again, and close this tab", "#connection")
            assert shown.evaluate("localStorage.length") == 0 and shown.evaluate(
                "document.querySelector('#again').hidden"
            )
            assert shown.evaluate("document.querySelector('.problems .copy').disabled")
            shown.click(".problems .link", "Details")
            shown.wait_text("wherry ui has ended", "#panel")
            for name in ("Events", "YAML"):
                shown.click("[role=tab]", name)
                shown.wait_text("wherry ui has ended", "#panel")
            shown.click(".close")
            shown.click("nav a", "Inside")
            shown.wait_text("wherry ui has ended", "#inside")
            assert set(paths) <= {"/static/icon.svg"} and count(shown, ".problems > li") == 1


def test_a_page_that_reaches_no_server_waits_for_a_person(browser: Chromium, config: Path) -> None:
    with page_server(config) as link, tab(browser, link) as shown:
        shown.wait_text("live", "#connection")
        shown.evaluate(
            "window.fetched = fetch; window.fetch = async () => { throw new TypeError('Failed to fetch'); }; 0"
        )
        shown.click(".toggle", "Pod default/big")
        shown.wait_text("wherry ui does not answer: run it again, and close this tab", "#connection")
        shown.evaluate("window.fetch = window.fetched; 0")
        shown.wait_text("wherry ui does not answer", ".problems .failure")
        shown.click("#again", "Try again")
        shown.wait_text("live", "#connection")
        shown.wait("document.querySelector('#again').hidden")
        shown.wait("!document.querySelector('.problems .failure')")
        shown.click(".toggle", "Pod default/big")
        shown.wait_text("it requests 640Gi of memory", ".problems .causes")


BROKEN = """
const real = window.fetch;
let asked = 0;
window.fetch = async (url) => {
  asked += 1;
  if (url.startsWith('/watch')) return new Response(new ReadableStream({pull(c) { c.error(new TypeError('network error')); }}));
  return new Response(JSON.stringify({items: [], metadata: {resourceVersion: '1'}}));
};
const states = [];
const pods = new live.Collection('pods', '/api/v1/pods', (each) => each);
const found = new live.Live([pods], {changed() {}, state: (name) => states.push(name)});
await found.run();
const refused = await api.getJson('/about').catch((error) => error.reason);
window.fetch = real;
session.resume();
return [states, asked, refused];
"""


def test_a_watch_that_breaks_without_a_last_line_is_not_opened_again(browser: Chromium) -> None:
    with modules(browser) as page:
        assert run(page, "live", "api", "session", body=BROKEN) == [["live", "ended"], 2, "Over"]
