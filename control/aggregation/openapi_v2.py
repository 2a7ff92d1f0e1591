"""One OpenAPI v2 document of this server and its extensions, as upstream's aggregation layer answers it.

Of an extension's document only what lies below its group version counts, with the definitions that this refers to: it publishes
the health paths and meta types of its own too. Two that mean different things by one name are distinguished by `_v2`, `_v3`.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from control.openapi import gnostic
from kube.json_object import Object

_DEFINITIONS = "#/definitions/"
_PARAMETERS = "#/parameters/"
DEEPEST = 128
"""Levels of objects and lists in a part: its writers go through them by recursion."""


class Part:
    """Document of one extension, kept compressed: it is read when a client requests the whole, which is seldom."""

    def __init__(self, packed: bytes, digest: str) -> None:
        self._packed, self.digest = packed, digest

    @classmethod
    def of(cls, document: Any, group: str, version: str) -> Part | None:
        """Take a group version's part out of a whole document; None if there is none.

        Whatever is raised says that the document cannot be read or written: it would make the whole unreadable.
        """
        if not isinstance(document, dict) or not isinstance(document.get("paths"), dict):
            return None
        root = f"/apis/{group}/{version}"
        shared = document.get("parameters") or {}
        paths = {
            path: _inlined(item, shared)
            for path, item in document["paths"].items()
            if isinstance(item, dict) and (path.rstrip("/") == root or path.startswith(root + "/"))
        }
        if not paths:
            return None
        every = document.get("definitions") or {}
        definitions = {name: every[name] for name in _reached(paths, every)}
        part = {"paths": paths, "definitions": definitions}
        _check_depth(part, DEEPEST)
        gnostic.document({"swagger": "2.0", "info": {"title": "", "version": ""}, **part})
        raw = msgspec.json.encode(part, order="sorted")
        return cls(zlib.compress(raw, 6), hashlib.sha256(raw).hexdigest().upper())

    def read(self) -> Object:
        found: Object = msgspec.json.decode(zlib.decompress(self._packed))
        return found


def merged(local: Object, parts: Iterable[Part]) -> Object:
    """Return the local document with the extensions' parts; what is there already stays."""
    paths, definitions = dict(local["paths"]), dict(local["definitions"])
    for part in parts:
        found = part.read()
        names = {name: _free(name, schema, definitions) for name, schema in found["definitions"].items()}
        renamed = {old: new for old, new in names.items() if old != new}
        if renamed:
            found = _renamed(found, renamed)
        for name, schema in found["definitions"].items():
            definitions.setdefault(names[name], schema)
        for path, item in found["paths"].items():
            paths.setdefault(path, item)
    return {**local, "paths": paths, "definitions": definitions}


def _free(name: str, schema: Any, taken: Object) -> str:
    number, wanted = 1, name
    while wanted in taken and taken[wanted] != schema:
        number += 1
        wanted = f"{name}_v{number}"
    return wanted


def _renamed(node: Any, names: dict[str, str]) -> Any:
    if isinstance(node, list):
        return [_renamed(item, names) for item in node]
    if not isinstance(node, dict):
        return node
    found = {key: _renamed(value, names) for key, value in node.items()}
    reference = _reference(node, _DEFINITIONS)
    return {**found, "$ref": _DEFINITIONS + names[reference]} if reference in names else found


def _inlined(node: Any, shared: Object) -> Any:
    """Put parameters in the place of references to them: one list for all would have to be merged by name again."""
    if isinstance(node, list):
        return [_inlined(item, shared) for item in node]
    if not isinstance(node, dict):
        return node
    reference = _reference(node, _PARAMETERS)
    if reference in shared:
        return shared[reference]
    return {key: _inlined(value, shared) for key, value in node.items()}


def _check_depth(node: Any, left: int) -> None:
    if left < 0:
        raise ValueError(f"nested more than {DEEPEST} levels deep")
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for item in inner:
        _check_depth(item, left - 1)


def _reached(paths: Object, definitions: Object) -> set[str]:
    found: set[str] = set()
    waiting = list(_references(paths))
    while waiting:
        name = waiting.pop()
        if name in definitions and name not in found:
            found.add(name)
            waiting += _references(definitions[name])
    return found


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        here = _reference(node, _DEFINITIONS)
        if here:
            yield here
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for item in node:
            yield from _references(item)


def _reference(node: Object, place: str) -> str:
    found = node.get("$ref")
    return found.removeprefix(place) if isinstance(found, str) and found.startswith(place) else ""
