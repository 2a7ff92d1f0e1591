"""Errors of a body with the messages of upstream's decoders: JSON syntax, wrong types, repeated fields.

msgspec reports the path of a value of a wrong type; the Go struct and type come from the generated types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from control.decoding.numbers import too_large
from kube.field_path import MOST_PROBLEMS, bounded
from kube.schema.fields import ANY, FieldType, field_types, of_struct


def json_problem(body: bytes, error: Exception) -> str:
    """Word a JSON syntax error as Go's decoder does."""
    text = body.decode("utf-8", "replace")
    try:
        json.loads(text)
    except json.JSONDecodeError as found:
        if found.pos >= len(text.rstrip()):
            return "unexpected end of JSON input"
        character = text[found.pos]
        if "property name" in found.msg:
            return f"invalid character {_quoted(character)} looking for beginning of object key string"
        if found.msg.startswith("Expecting value"):
            return f"invalid character {_quoted(character)} looking for beginning of value"
        if found.msg.startswith("Extra data"):
            return f"invalid character {_quoted(character)} after top-level value"
        if "',' delimiter" in found.msg:
            return f"invalid character {_quoted(character)} after object key:value pair"
        if "':' delimiter" in found.msg:
            return f"invalid character {_quoted(character)} after object key"
        if found.msg.startswith("Unterminated string"):
            return "unexpected end of JSON input"
        return f"invalid character {_quoted(character)} in string literal"
    except RecursionError:
        return "exceeded max depth"
    return str(too_large(text) or error)


def _quoted(character: str) -> str:
    return "'\\''" if character == "'" else f"'{character}'"


_KEY_ENDS = re.compile(rb'"[ \t\r\n]*+:')


def most_keys(body: bytes) -> int:
    """Return how many keys a JSON text has at most: each ends in a quote and a colon, and strings can only add to those.

    Where that is no more than the keys of the value that was read, none is repeated.
    """
    spaced = b" :" in body or b"\n:" in body or b"\t:" in body or b"\r:" in body
    return len(_KEY_ENDS.findall(body)) if spaced else body.count(b'":')


def least_keys(value: Any) -> int:
    """Return how many keys a JSON value has at least: a key that ends in a backslash is not counted."""
    text = msgspec.json.encode(value)
    return text.count(b'":') - text.count(b'\\":')


def duplicates(body: bytes) -> list[str]:
    """Return the paths of fields that appear more than once in an object of a JSON text, MOST_PROBLEMS of them."""
    return [path for path, repeated in _strange(body, frozenset()) if repeated]


def strict_problems(body: bytes, unknown: Iterable[str]) -> list[str]:
    """Word the repeated and the unknown fields of a JSON text, in the order of the text (sigs.k8s.io/json).

    Unknown fields of the values of maps come last: their paths have another form than those of the text.
    """
    paths = dict.fromkeys(map(bounded, unknown))
    found = _strange(body, frozenset(paths))
    seen = {path for path, repeated in found if not repeated}
    found = [*found, *((path, False) for path in paths if path not in seen)][:MOST_PROBLEMS]
    return [f'{"duplicate" if repeated else "unknown"} field "{path}"' for path, repeated in found]


class Pairs(list[tuple[str, Any]]):
    """An object of a JSON text as its keys and values in their order, repeated keys too."""


def pairs(body: bytes) -> Any:
    """Read a JSON text with `Pairs` for its objects."""
    return json.loads(body, object_pairs_hook=Pairs)


def _strange(body: bytes, unknown: frozenset[str]) -> list[tuple[str, bool]]:
    """Return paths of unknown fields with False, and of repeated ones with True; nothing within unknown fields."""
    found: dict[tuple[str, bool], None] = {}

    def walk(value: Any, path: str) -> None:
        if isinstance(value, Pairs):
            seen: set[str] = set()
            for key, item in value:
                repeated = key in seen
                seen.add(key)
                if not (repeated or unknown or isinstance(item, list)):
                    continue
                where = bounded(f"{path}.{key}" if path else key)
                if where in unknown:
                    note(where, repeated=False)
                    continue
                if repeated:
                    note(where, repeated=True)
                walk(item, where)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, list):
                    walk(item, f"{path}[{index}]")

    def note(where: str, *, repeated: bool) -> None:
        if len(found) < MOST_PROBLEMS:
            found[where, repeated] = None

    walk(pairs(body), "")
    return list(found)


_EXPECTED = re.compile(r"Expected `([^`]*)`, got `([^`]*)`(?: - at `(.*)`)?")
_STEP = re.compile(r"\.([^.\[\]]+)|\[([0-9]+|\.\.\.)\]")
_JSON_NAMES = {
    "str": "string",
    "int": "number",
    "float": "number",
    "bool": "bool",
    "array": "array",
    "object": "object",
}


def json_type(value: Any) -> str:
    """Return what Go's decoder calls a JSON value's type."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    names: dict[type, str] = {str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


class Misfit(msgspec.Struct, frozen=True):
    """A value of a wrong type: the field's owner and path, the expected type, and the value."""

    expected: str
    got: str
    path: str
    type: FieldType
    owner: str
    names: tuple[str, ...]
    value: Any


def misfit(error: msgspec.ValidationError, raw: Any, struct: type[msgspec.Struct]) -> Misfit | None:
    """Find what a validation error speaks of; None if it is not about a type."""
    match = _EXPECTED.match(str(error))
    if match is None:
        return None
    expected, got, path = match.groups()
    type_, owner, names = of_struct(struct), struct.__name__, list[str]()
    for name, index in _STEP.findall(path or ""):
        if name and type_.struct is not None:
            owner = type_.struct.__name__
            names.append(name)
            type_ = field_types(type_.struct).get(name, ANY)
        elif index and type_.item is not None:
            type_ = type_.item
    return Misfit(expected, got, path or "", type_, owner, tuple(names), _at(raw, path or ""))


def go_message(error: msgspec.ValidationError, raw: Any, struct: type[msgspec.Struct]) -> str:
    """Say as Go's decoder would which field got a value of a wrong type."""
    found = misfit(error, raw, struct)
    if found is None:
        return f"json: {error}"
    word = _JSON_NAMES.get(found.got.split(" ")[0], found.got)
    if found.type.go == "string" and "date" in found.expected:
        word = "string"
    return unmarshal_error(found.value, found.owner, found.names, found.type.go, word)


def unmarshal_error(value: Any, owner: str, names: tuple[str, ...], go: str, word: str = "") -> str:
    """Return the message of Go's decoder for a value that a type cannot hold; `word` names the value's JSON type."""
    word = word or json_type(value)
    if word == "number" and go in ("int32", "int64"):
        word = f"number {value}"
    if not names:
        return f"json: cannot unmarshal {word} into Go value of type {go}"
    return f"json: cannot unmarshal {word} into Go struct field {owner}.{'.'.join(names)} of type {go}"


def _at(raw: Any, path: str) -> Any:
    for name, index in _STEP.findall(path):
        try:
            raw = raw[name] if name else raw[int(index)]
        except (KeyError, ValueError, IndexError, TypeError):
            return ""
    return raw


def summary(body: bytes) -> str:
    """Return the beginning of a body as messages show it: text for an object, hexadecimal for anything else."""
    if not body:
        return "<empty>"
    shown = body[:30]
    text = shown.decode("utf-8", "replace") if body[:1] == b"{" else shown.hex()
    return text + " ..." if len(body) > 30 else text
