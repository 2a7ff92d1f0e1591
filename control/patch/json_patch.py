"""JSON Patch (RFC 6902) on dicts, with the limits and the refusals of upstream's API server.

A patch that is no patch is 400; one that cannot be carried out is 422. A patch has at most 10 000 operations, and what
"copy" operations make together is bounded. As in upstream's library (evanphx/json-patch v4), and unlike in the RFC:

- array indices may be negative (counted from the end);
- `replace` adds a member that is missing, and a missing member or `value` is null in `copy`, `test`, `add` and `replace`;
- only `replace` and `test` accept the whole document;
- the text before a pointer's first slash is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from typing import Any

import msgspec

from kube.errors import StatusError, bad_request
from kube.json_object import copy_json
from kube.nesting import too_deep

MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = 3 * 1024 * 1024
MAX_MOVED_ITEMS = 50_000_000
"""Items that insertions into arrays, and removals, may shift: 10 000 operations on arrays of 5 000."""
_WHOLE = [""]
"""Path of the whole document."""
_INDEX = re.compile("[+-]?[0-9]+")
_LONGEST_INDEX = 20
"""Characters of an index; one with more is out of all bounds."""


class _Failed(Exception):
    """An operation cannot be carried out."""


class _Differs(_Failed):
    """A `test` operation found another value."""


class FailedTest(StatusError):
    """The value of a `test` operation differs from that of the document."""


class _Work(msgspec.Struct):
    """Work of all operations of a patch."""

    copied: int = 0
    moved: int = 0

    def shift(self, items: int) -> None:
        self.moved += items
        if self.moved > MAX_MOVED_ITEMS:
            message = f"The allowed maximum of array items that a JSON patch shifts is {MAX_MOVED_ITEMS}"
            raise StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {message}")


def apply_json_patch(document: Any, patch: Any) -> Any:
    """Return a patched copy; `patch` is the decoded body. Raises StatusError 400, 413 or 422."""
    if not isinstance(patch, list) or not all(isinstance(operation, dict | None) for operation in patch):
        raise bad_request("json: cannot unmarshal: a JSON patch is an array of operations")
    if len(patch) > MAX_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(patch)}"
        raise StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {message}")
    holder, work = {"": copy_json(document)}, _Work()
    try:
        for operation in patch:
            _operate(holder, operation, work)
    except _Failed as error:
        raise rejected(str(error), FailedTest if isinstance(error, _Differs) else StatusError) from error
    except RecursionError as error:
        raise rejected("the document nests too deep") from error
    if too_deep(holder[""]):
        raise rejected("the document nests too deep")
    return holder[""]


def rejected(why: str, kind: type[StatusError] = StatusError) -> StatusError:
    """Make the 422 that upstream gives for patches that do not fit the object; why is for the log alone, as there."""
    error = kind(422, "Invalid", "the server rejected our request due to an error in our request")
    error.add_note(why)
    return error


def _operate(holder: dict[str, Any], operation: dict[str, Any] | None, work: _Work) -> None:
    operation = operation or {}
    kind = operation.get("op")
    path = _pointer(operation, "path")
    if kind == "add":
        _add(holder, path, copy_json(operation.get("value")), work)
    elif kind == "remove":
        _remove(holder, path, work)
    elif kind == "replace":
        _replace(holder, path, copy_json(operation.get("value")))
    elif kind == "move":
        source = _pointer(operation, "from")
        if path[: len(source)] == source and path != source != _WHOLE:
            raise _Failed(f"cannot move {_show(source)} into itself")
        _add(holder, path, _remove(holder, source, work), work)
    elif kind == "copy":
        value = _member(holder, _pointer(operation, "from"))
        work.copied += len(msgspec.json.encode(value))
        if work.copied > MAX_COPIED_BYTES:
            raise _Failed(
                f"Unable to complete the copy, the accumulated size increase of copy is {work.copied}, exceeding"
            )
        _add(holder, path, copy_json(value), work)
    elif kind == "test":
        found = holder[""] if path == _WHOLE else _member(holder, path)
        if not same(found, operation.get("value")):
            raise _Differs(f"testing value {_show(path)} failed")
    else:
        raise _Failed(f"Unexpected kind: {kind}")


def _pointer(operation: dict[str, Any], name: str) -> list[str]:
    text = operation.get(name)
    if not isinstance(text, str) or (text and "/" not in text):
        raise _Failed(f"a JSON pointer is wanted in {name!r}, got {text!r}")
    # The document hangs under the key "" of a holder, which is what the pointer's first token names.
    return ["", *(token.replace("~1", "/").replace("~0", "~") for token in text.split("/")[1:])]


def _parent(holder: dict[str, Any], path: list[str]) -> Any:
    if path == _WHOLE:
        raise _Failed("the whole document can only be replaced and tested")
    node: Any = holder
    for token in path[:-1]:
        node = _child(node, token, path)
    if not isinstance(node, dict | list):
        raise _Failed(f"{_show(path)}: the parent is no object or array")
    return node


def _child(node: Any, token: str, path: list[str]) -> Any:
    if isinstance(node, dict) and token in node:
        return node[token]
    if isinstance(node, list):
        return node[_index(token, len(node), path)]
    raise _Failed(f"{_show(path)} does not exist")


def _index(token: str, length: int, path: list[str]) -> int:
    if len(token) > _LONGEST_INDEX or not _INDEX.fullmatch(token):
        raise _Failed(f"{_show(path)}: {token!r} is no array index")
    index = int(token)
    if not -length <= index < length:
        raise _Failed(f"{_show(path)}: index {index} is out of bounds")
    return index % length if length else index


def _member(holder: dict[str, Any], path: list[str]) -> Any:
    """Return an item of an array, or a member of an object, which is None if it is missing."""
    parent = _parent(holder, path)
    return parent.get(path[-1]) if isinstance(parent, dict) else _child(parent, path[-1], path)


def _add(holder: dict[str, Any], path: list[str], value: Any, work: _Work) -> None:
    parent, token = _parent(holder, path), path[-1]
    if isinstance(parent, dict):
        parent[token] = value
    elif token == "-":
        parent.append(value)
    else:
        index = _index(token, len(parent) + 1, path)
        work.shift(len(parent) - index)
        parent.insert(index, value)


def _remove(holder: dict[str, Any], path: list[str], work: _Work) -> Any:
    parent, token = _parent(holder, path), path[-1]
    value = _child(parent, token, path)
    if isinstance(parent, dict):
        del parent[token]
    else:
        index = _index(token, len(parent), path)
        work.shift(len(parent) - index)
        del parent[index]
    return value


def _replace(holder: dict[str, Any], path: list[str], value: Any) -> None:
    if path == _WHOLE:
        if not isinstance(value, dict | list):
            raise _Failed("the whole document can only be replaced by an object or an array")
        holder[""] = value
        return
    parent, token = _parent(holder, path), path[-1]
    if isinstance(parent, dict):
        parent[token] = value
    else:
        parent[_index(token, len(parent), path)] = value


def same(a: Any, b: Any) -> bool:
    """Compare two JSON values; unlike in Python, true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(value, b[key]) for key, value in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def identity(value: Any) -> Hashable:
    """Return what is equal for JSON values that are the same, and only for those; a key to look them up by."""
    if isinstance(value, bool):
        return bool, value
    if isinstance(value, int | float):
        # As text: whoever chooses numbers can choose such with one hash, but not with strings.
        return float, str(int(value) if isinstance(value, float) and value.is_integer() else value)
    if isinstance(value, dict):
        return dict, frozenset((key, identity(part)) for key, part in value.items())
    if isinstance(value, list):
        return list, tuple(map(identity, value))
    other: Hashable = value
    return other


def union(some: Iterable[Any], more: Iterable[Any]) -> list[Any]:
    """Return some JSON values and those of the others that are not the same as an earlier one."""
    found = list(some)
    known = set(map(identity, found))
    for value in more:
        key = identity(value)
        if key not in known:
            known.add(key)
            found.append(value)
    return found


def _show(path: list[str]) -> str:
    return "/".join(path)
