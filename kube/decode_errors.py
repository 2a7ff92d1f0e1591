"""Errors of decoded documents in the words of somebody who writes them: the field, and what it is to be."""

from __future__ import annotations

import re

import msgspec

_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
_PATH = re.compile(r" - at `(?:key in )?\$?\.?(.*)`$")
_EXPECTED = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_MISSING = re.compile(r"Object missing required field `([^`]*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")


def sentence(error: Exception) -> str:
    """Return what is wrong with a document that could not be decoded, beginning with the field if it is one's value."""
    if not isinstance(error, msgspec.ValidationError):
        return "it is not JSON"
    text = str(error)
    place = found[1] if (found := _PATH.search(text)) else ""
    before = f"{place}: " if place else ""
    if missing := _MISSING.match(text):
        return f"{before}{missing[1]} is missing"
    if unknown := _UNKNOWN.match(text):
        return f"{before}there is no field {unknown[1]}"
    if expected := _EXPECTED.match(text):
        kinds = [_kind(kind) for kind in expected[1].split(" | ") if kind != "null"]
        return f"{before}write {' or '.join(kinds)}, not {_kind(expected[2])}"
    return f"{before}this is no valid value"


def _kind(name: str) -> str:
    return _KINDS.get(name, name)
