"""Warning headers of an answer (RFC 7234: code 299, no agent, a quoted string), at most as long as upstream's in all.

Where the texts together are longer than TOTAL, each is cut to ITEM characters, and those that do not fit are left out
(apiserver's endpoints/filters/warning.go).
"""

from __future__ import annotations

from collections.abc import Iterable

TOTAL = 4 * 1024
ITEM = 256


def headers(texts: Iterable[str]) -> list[tuple[bytes, bytes]]:
    """Return the headers for texts, each once."""
    once = [text for text in dict.fromkeys(texts) if text]
    if sum(map(len, once)) > TOTAL:
        once, room = [text[:ITEM] for text in once], TOTAL
        for index, text in enumerate(once):
            if room <= 0:
                del once[index:]
                break
            room -= len(text)
    return [(b"warning", _quoted(text)) for text in once]


def _quoted(text: str) -> bytes:
    cleaned = "".join(c if c.isprintable() else " " for c in text)
    escaped = cleaned.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'.encode()
