"""Opens the page in a browser without the link on its command line, which every user of the machine can read.

The browser opens a file that only this user can read, and that leads to the link.
"""

from __future__ import annotations

import contextlib
import html
import shutil
import tempfile
import webbrowser
from collections.abc import Iterator
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


def show(path: Path) -> bool:
    """Open a file in the user's browser; return whether there is one that can be started."""
    try:
        return webbrowser.open(path.as_uri())
    except (webbrowser.Error, OSError):
        return False
