"""Messages in the source: the texts of string constants and f-strings, with … for each value that is filled in.

Documents quote messages in this form. Text of adjacent strings is one message, and %s, %d, %.3f of log lines count as values.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("wherry", "agent", "netproxy", "control", "kube", "cri")
VALUE = "…"
LITERAL = 5
"""Characters besides values that a message needs to be recognized."""
_PERCENT = re.compile(r"%[-0-9.]*[sdrfg]")


@cache
def templates(root: Path = ROOT) -> frozenset[str]:
    """Return all messages of the source."""
    found: set[str] = set()
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            if "_pb2" not in path.name and "kube/api/" not in str(path):
                found.update(in_source(path.read_text()))
    return frozenset(found)


def in_source(text: str) -> Iterator[str]:
    """Yield the messages of one file."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else VALUE for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield _PERCENT.sub(VALUE, node.value)


def exists(quoted: str) -> bool:
    """Return whether a message of the source contains the quoted text."""
    return any(quoted in template for template in templates())


def fits(shown: str) -> bool:
    """Return whether a text is a whole message with its values filled in."""
    for template in templates():
        parts = template.split(VALUE)
        if sum(map(len, parts)) >= LITERAL and all(part in shown for part in parts):
            if re.fullmatch(".*".join(map(re.escape, parts)), shown, re.S):
                return True
    return False
