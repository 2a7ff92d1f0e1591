"""One OpenAPI v2 document of this server and its extensions, as upstream's aggregation layer answers it.

Of an extension's document only what lies below its group version counts, with the definitions and shared parameters that this
refers to: it publishes the health paths and meta types of its own too. References stay references, so that a part is never
larger than its document. Two definitions or parameters that mean different things by one name are distinguished by `_v2`,
`_v3` (kube-openapi's aggregator).
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from control.openapi import gnostic
from kube import value_count
from kube.json_object import Object

_DEFINITIONS = "#/definitions/"
_PARAMETERS = "#/parameters/"
_SHARED = (("definitions", _DEFINITIONS), ("parameters", _PARAMETERS))
DEEPEST = 128
"""Levels of objects and lists in a part: its writers go through them by recursion."""
PART_LIMIT = 4 << 20
"""Bytes of a part. This server's own document has less than half as many."""
DOCUMENT_VALUES = 500_000
"""Values of an extension's whole document, ten times as many as this server's has."""


class Unusable(ValueError):
    """An extension's document would make the whole unreadable, or too large."""


class Part:
    """Document of one extension, kept compressed: it is read when a client requests the whole, which is seldom."""

    def __init__(self, packed: bytes, digest: str) -> None:
        self._packed, self.digest = packed, digest

    def read(self) -> Object:
        found: Object = msgspec.json.decode(zlib.decompress(self._packed))
        return found


def build(body: bytes, group: str, version: str) -> tuple[bytes, str] | None:
    """Take a group version's part out of a whole document; None if it has none, else the arguments of `Part`.

    Raises Unusable. It is a job of the helper process, whose time and memory are limited.
    """
    if value_count.marks(body) > DOCUMENT_VALUES:
        raise Unusable(f"it has more than {DOCUMENT_VALUES} values")
    try:
        part = _part(msgspec.json.decode(body), f"/apis/{group}/{version}")
        if part is None:
            return None
        _check_depth(part, DEEPEST)
        raw = msgspec.json.encode(part, order="sorted")
        if len(raw) > PART_LIMIT:
            raise Unusable(f"its part is longer than {PART_LIMIT} bytes")
        value_count.check_count(raw)
        gnostic.document({"swagger": "2.0", "info": {"title": "", "version": ""}, **part})
    except Unusable:
        raise
    except Exception as error:  # whatever the writers stumble over, they would again in the whole document
        raise Unusable(f"{type(error).__name__}: {str(error)[:200]}") from error
    return zlib.compress(raw, 6), hashlib.sha256(raw).hexdigest().upper()


def _part(document: Any, root: str) -> Object | None:
    if not isinstance(document, dict) or not isinstance(document.get("paths"), dict):
        return None
    paths = {
        path: item
        for path, item in document["paths"].items()
        if isinstance(item, dict) and (path.rstrip("/") == root or path.startswith(root + "/"))
    }
    if not paths:
        return None
    shared, every = document.get("parameters") or {}, document.get("definitions") or {}
    if not isinstance(shared, dict) or not isinstance(every, dict):
        raise Unusable("the definitions or parameters of the document are no object")
    parameters = {}
    for name in sorted(set(_references(paths, _PARAMETERS))):
        if name not in shared:
            raise Unusable(f"it has no parameter {name[:200]}")
        parameters[name] = shared[name]
    definitions = {name: every[name] for name in _reached([paths, parameters], every)}
    return {"paths": paths, "definitions": definitions} | ({"parameters": parameters} if parameters else {})


def merged(local: Object, parts: Iterable[Part]) -> Object:
    """Return the local document with the extensions' parts; what is there already stays."""
    whole = {**local, "paths": dict(local["paths"])}
    for kind, _ in _SHARED:
        whole[kind] = dict(local.get(kind) or {})
    for part in parts:
        found = part.read()
        names = {prefix: _names(found.get(kind) or {}, whole[kind]) for kind, prefix in _SHARED}
        if any(old != new for given in names.values() for old, new in given.items()):
            found = _renamed(found, names)
        for kind, prefix in _SHARED:
            for name, value in (found.get(kind) or {}).items():
                whole[kind].setdefault(names[prefix][name], value)
        for path, item in found["paths"].items():
            whole["paths"].setdefault(path, item)
    if not whole["parameters"]:
        del whole["parameters"]
    return whole


def _names(part: Object, taken: Object) -> dict[str, str]:
    """Return the name of each of a part's definitions or parameters in the whole."""
    names: dict[str, str] = {}
    given: set[str] = set()
    for name, value in part.items():
        number, wanted = 1, name
        while wanted in given or (wanted != name and wanted in part) or (wanted in taken and taken[wanted] != value):
            number += 1
            wanted = f"{name}_v{number}"
        names[name] = wanted
        given.add(wanted)
    return names


def _renamed(node: Any, names: dict[str, dict[str, str]]) -> Any:
    if isinstance(node, list):
        return [_renamed(item, names) for item in node]
    if not isinstance(node, dict):
        return node
    found = {key: _renamed(value, names) for key, value in node.items()}
    for prefix, given in names.items():
        reference = _reference(node, prefix)
        if reference in given:
            found["$ref"] = prefix + given[reference]
    return found


def _check_depth(node: Any, left: int) -> None:
    if left < 0:
        raise ValueError(f"nested more than {DEEPEST} levels deep")
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for item in inner:
        _check_depth(item, left - 1)


def _reached(roots: list[Object], definitions: Object) -> set[str]:
    found: set[str] = set()
    waiting = list(_references(roots, _DEFINITIONS))
    while waiting:
        name = waiting.pop()
        if name in definitions and name not in found:
            found.add(name)
            waiting += _references(definitions[name], _DEFINITIONS)
    return found


def _references(node: Any, place: str) -> Iterator[str]:
    if isinstance(node, dict):
        here = _reference(node, place)
        if here:
            yield here
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for item in inner:
        yield from _references(item, place)


def _reference(node: Object, place: str) -> str:
    found = node.get("$ref")
    return found.removeprefix(place) if isinstance(found, str) and found.startswith(place) else ""
