"""Conditions of objects by their type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

C = TypeVar("C", bound=Any)


def find(conditions: Iterable[C], type_: str) -> C | None:
    """Return the condition of a type, None if there is none."""
    return next((each for each in conditions if each.type == type_), None)
