"""Defaults as rows of field and value, for pointers and other fields of Go's types.

A pointer is defaulted only if it is absent, as its zero value means something; any other field also if it holds the
zero value. If the object that contains them is absent (an optional part of the spec), fields get no defaults.
"""

from __future__ import annotations

from typing import Any

from kube.json_object import Object


def default_absent(place: Object | None, *rows: tuple[str, Any]) -> None:
    """Set the fields that are absent."""
    if place is not None:
        get = place.get
        for key, value in rows:
            if get(key) is None:
                place[key] = value


def default_empty(place: Object | None, *rows: tuple[str, Any]) -> None:
    """Set the fields that are absent, empty or 0."""
    if place is not None:
        get = place.get
        for key, value in rows:
            if not get(key):
                place[key] = value
