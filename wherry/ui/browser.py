"""Opens the page in a browser without the link on its command line, which every user of the machine can read.

The browser opens a file that only this user can read, and that leads to the link.
"""

from __future__ import annotations

import contextlib
import html
import os
import shutil
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Iterator, Mapping
from pathlib import Path

NAME = "wherry-ui.html"
TEXT = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={0}"><a href="{0}">wherry ui</a>'


@contextlib.contextmanager
def link_file(url: str) -> Iterator[Path]:
    """Write the file into a folder of its own (mode 0700), and remove it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="wherry-ui-"))
    try:
        path = folder / NAME
        path.write_text(TEXT.format(html.escape(url)))
        yield path
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def show(path: Path) -> None:
    """Open a file in the user's browser, if there is a screen for one; the command does not wait for it."""
    if available(os.environ, sys.platform):
        threading.Thread(target=_open, args=(path.as_uri(),), name="browser", daemon=True).start()


def available(environment: Mapping[str, str], platform: str) -> bool:
    """Return whether a browser has a window: one for terminals would take this command's own."""
    return platform == "darwin" or any(environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _open(url: str) -> None:
    with contextlib.suppress(webbrowser.Error, OSError):
        webbrowser.open(url)
