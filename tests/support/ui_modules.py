"""The modules of the page of `wherry ui` in a browser without a cluster: tests import them, and stand in for its server."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.chromium import Chromium, Tab
from wherry.ui import files


class _Files(BaseHTTPRequestHandler):
    loaded = files.load()

    def do_GET(self) -> None:
        content, media_type = self.loaded.get(self.path.removeprefix("/static/"), (b"<!doctype html>", "text/html"))
        self.send_response(200)
        self.send_header("content-type", media_type)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@contextlib.contextmanager
def modules(browser: Chromium) -> Iterator[Tab]:
    """Lend a tab whose scripts can import `/static/NAME.js`."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Files) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        shown = browser.tab()
        try:
            shown.open(f"http://127.0.0.1:{server.server_address[1]}/")
            shown.wait("document.readyState === 'complete' && location.protocol === 'http:'")
            yield shown
        finally:
            shown.close()
            server.shutdown()
            thread.join()


def run(tab: Tab, *imported: str, body: str) -> Any:
    """Return what the body of an async function returns, in which each imported module has its name."""
    names = ", ".join(imported)
    paths = ", ".join(f"import('/static/{each}.js')" for each in imported)
    return tab.evaluate(f"(async () => {{ const [{names}] = await Promise.all([{paths}]); {body} }})()")
