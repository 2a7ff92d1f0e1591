"""The files of the page, which are read once: no request names a path of this machine."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "page"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
INDEX = "index.html"


def load() -> dict[str, tuple[bytes, str]]:
    """Return the content and the media type of each file by its name."""
    return {path.name: (path.read_bytes(), TYPES[path.suffix]) for path in FOLDER.iterdir() if path.suffix in TYPES}
