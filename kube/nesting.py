"""A limit on how deep JSON nests, found without a call for each level."""

from __future__ import annotations

from typing import Any

from kube.value_count import structure

DEEPEST = 400
"""Maximum depth of JSON and YAML; Go's decoders stop at 10 000, ours long before Python's stack does."""
_OPENING = b"[{"


def too_deep(value: Any) -> bool:
    """Return whether a JSON value nests deeper than DEEPEST."""
    level = [value]
    for _ in range(DEEPEST + 1):
        below: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                below += [part for part in one.values() if isinstance(part, dict | list)]
            elif isinstance(one, list):
                below += [part for part in one if isinstance(part, dict | list)]
        if not below:
            return False
        level = below
    return True


def check_nesting(body: bytes) -> None:
    """Raise ValueError for text that nests too deep for what works on it afterwards, level by level."""
    if body.count(b"[") + body.count(b"{") <= DEEPEST:
        return
    depth = 0
    for bracket in structure(body).replace(b",", b""):
        depth += 1 if bracket in _OPENING else -1
        if depth > DEEPEST:
            raise ValueError("exceeded max depth")
