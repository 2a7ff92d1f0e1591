"""Validates an applied configuration against its kind: every field is in the schema, and items of a keyed list have keys.

Objects that exist may hold one item twice; a configuration may not, as nobody could say which of the two is meant. Errors
are those of structured-merge-diff's typed values, under its paths (.spec.ports[port=80,protocol="TCP"]).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from control.patch.apply.fieldset import shown
from control.patch.apply.items import ItemWithoutKey, step
from control.patch.schema import Node, Shape
from kube.errors import StatusError
from kube.json_object import Object, go_type

_TOKEN = re.compile(r"\[([0-9]+)\]|([^.\[\]]+)")


def refuse(applied: Object, problems: list[str]) -> StatusError:
    """Return the answer to a configuration that does not fit, which upstream gives without a reason."""
    metadata = applied.get("metadata") or {}
    which = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {applied.get('apiVersion')}"
    text = problems[0] if len(problems) == 1 else "errors:\n" + "\n".join(f"  {p}" for p in problems)
    return StatusError(500, "", f"failed to create typed patch object ({which}, Kind={applied.get('kind')}): {text}")


def check(applied: Object, schema: Node, unknown: Iterable[str] = ()) -> None:
    """Raise 500 for what does not fit; `unknown` are paths of fields that no type knows (spec.containers[0].x)."""
    problems = [f"{path_of(schema, applied, path)}: field not declared in schema" for path in unknown]
    problems += _items(schema, applied, "")
    if problems:
        raise refuse(applied, problems)


def wrong_type(applied: Object, schema: Node, error: msgspec.ValidationError) -> StatusError:
    """Return the answer to a value of a wrong type, which a decoder has found."""
    match = _WRONG.match(str(error))
    wanted, path = (match.group(1), match.group(2) or "") if match else ("", "")
    value: Any = applied
    for index, name in _TOKEN.findall(path):
        try:
            value = value[int(index)] if index else value[name]
        except (KeyError, IndexError, TypeError):
            value = None
    where = path_of(schema, applied, path)
    for word, (shape, text) in _EXPECTED.items():
        if word in wanted:
            return refuse(applied, [f"{where}: expected {shape}, got {text(value)}"])
    return refuse(applied, [f"{where}: {error}"])


def _go_value(value: Any) -> str:
    if isinstance(value, dict | list):
        return "&value.valueUnstructured{Value:" + go_type(value) + "{...}}"
    return "&value.valueUnstructured{Value:" + msgspec.json.encode(value).decode() + "}"


_WRONG = re.compile(r"Expected `([^`]*)`, got `[^`]*`(?: - at `\$\.?(.*)`)?")
_EXPECTED: dict[str, tuple[str, Callable[[Any], str]]] = {
    "object": ("map", _go_value),
    "array": ("list", _go_value),
    "bool": ("boolean", _go_value),
    "str": ("string", _go_value),
    "int": ("numeric (int or float)", go_type),
    "float": ("numeric (int or float)", go_type),
}


def path_of(node: Node | None, value: Any, path: str) -> str:
    """Return a path that counts items as one that names them by their keys."""
    text = ""
    for index, name in _TOKEN.findall(path):
        if not index:
            text += f".{name}"
            value, node = (value.get(name) if isinstance(value, dict) else None), _below(node, name)
            continue
        item = value[int(index)] if isinstance(value, list) and int(index) < len(value) else None
        text += _name(node, item, int(index))
        value, node = item, node.item if node else None
    return text


def _name(node: Node | None, item: Any, index: int) -> str:
    if node is not None and node.shape in (Shape.KEYED, Shape.SET):
        try:
            return shown(step(node, item))
        except ItemWithoutKey:
            pass
    return f"[{index}]"


def _below(node: Node | None, name: str) -> Node | None:
    if node is None:
        return None
    field = node.fields.get(name)
    return field.node if field is not None else node.item


def _items(node: Node | None, value: Any, path: str) -> Iterator[str]:
    if node is None or node.shape is Shape.DEDUCED:
        return
    if isinstance(value, dict):
        for key, part in value.items():
            if isinstance(part, dict | list):
                yield from _items(_below(node, key), part, f"{path}.{key}")
        return
    seen: set[str] = set()
    for index, item in enumerate(value if isinstance(value, list) else ()):
        if node.shape in (Shape.KEYED, Shape.SET):
            try:
                name = step(node, item)
            except ItemWithoutKey as error:
                yield f"{path}: element {index}: {error}"
                return
            if name in seen:
                yield f"{path}: duplicate entries for key {shown(name)}"
            seen.add(name)
        if isinstance(item, dict | list):
            yield from _items(node.item, item, path + _name(node, item, index))
