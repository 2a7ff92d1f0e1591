"""Reads the annotations of autoscaling/v1 that hold what only autoscaling/v2 has fields for.

Their values are text to the decoder of the body, so they are decoded here, by autoscaling/v2's types: wrong types, numbers too
large for their type, invalid quantities and times, and too deep nesting. An annotation that does not fit its type means
nothing, as upstream (pkg/apis/autoscaling/v1/conversion.go); an object of a wrong type would be unreadable for every client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from control.decoding.decode import load_json
from control.decoding.typed import to_object
from kube import errors
from kube.api.autoscaling_v2 import HorizontalPodAutoscalerSpec as Spec
from kube.api.autoscaling_v2 import HorizontalPodAutoscalerStatus as Status
from kube.json_object import Object
from kube.value_count import MOST_VALUES, marks, structure


def check_values(texts: list[str]) -> None:
    """Raise 413 if annotations together have more values than a body may have."""
    bodies = [text.encode(errors="replace") for text in texts]
    if sum(map(marks, bodies)) >= MOST_VALUES and sum(marks(structure(body)) for body in bodies) >= MOST_VALUES:
        raise errors.too_much(f"more than {MOST_VALUES} values")


def typed_list(
    text: str | None, struct: type[Spec] | type[Status], field: str, to_v2: Callable[[Any], Object]
) -> list[Object]:
    """Return a list of a spec or status that an annotation holds, empty if one item does not fit its type."""

    def converted(value: Any) -> list[Object]:
        if not isinstance(value, list):
            raise ValueError("not a list")
        return [to_v2(item) for item in value]

    return _typed(text, struct, field, converted) or []


def typed_object(
    text: str | None, struct: type[Spec] | type[Status], field: str, to_v2: Callable[[Any], Object]
) -> Object | None:
    """Return an object of a spec or status that an annotation holds, None if it does not fit its type."""
    found: Object | None = _typed(text, struct, field, to_v2)
    return found


def json_object(value: Any) -> Mapping[str, Any]:
    """Return a JSON value that must be an object; raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _typed(text: str | None, struct: type[Spec] | type[Status], field: str, to_v2: Callable[[Any], Any]) -> Any:
    if not text:
        return None
    try:
        found = to_object({field: to_v2(load_json(text.encode()))}, struct)
    except (ValueError, msgspec.ValidationError):
        return None
    return found.get(field)
