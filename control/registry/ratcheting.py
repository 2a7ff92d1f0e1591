"""Checks that upstream does not make: they refuse new text alone, so that objects stored before stay changeable."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from control.registry.strategy import Strategy
from kube.errors import FieldError, not_supported
from kube.json_object import Object


@dataclass(frozen=True, slots=True)
class NewlyInvalid(FieldError):
    """A wrong value that an update may keep, wherever in the object it stands."""


def newly_invalid(path: str, value: Any, detail: str) -> FieldError:
    return NewlyInvalid(path, "Invalid value", detail, value)


def newly_forbidden(path: str, detail: str) -> FieldError:
    return NewlyInvalid(path, "Forbidden", detail)


def newly_unsupported(path: str, value: Any, supported: Iterable[str]) -> FieldError:
    return NewlyInvalid(path, "Unsupported value", not_supported(path, value, supported).detail, value)


def problems_of_change(strategy: Strategy, obj: Object, old: Object, subresource: str = "") -> list[FieldError]:
    """Return what is wrong with a change of `old`, without values that are newly invalid and in `old` already."""
    if subresource:
        problems = strategy.validate_subresource(subresource, obj, old)
    else:
        problems = strategy.validate_update(obj, old)
    if not any(isinstance(problem, NewlyInvalid) for problem in problems):
        return problems
    kept = {(p.detail, p.value) for p in strategy.validate(old) if isinstance(p, NewlyInvalid)}
    return [p for p in problems if not (isinstance(p, NewlyInvalid) and (p.detail, p.value) in kept)]
