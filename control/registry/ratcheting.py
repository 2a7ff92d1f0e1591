"""Checks that depend on the stored object or on feature gates.

Values that are newly invalid are checks that upstream does not make: they refuse new text alone, so that objects stored before
stay changeable. Values of features that are off are refused unless the stored object uses the feature already.
"""

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


@dataclass(frozen=True, slots=True)
class Gated(FieldError):
    """A problem of a feature's value: with `enabled` only if the feature can be used, else only if it cannot."""

    gate: str = ""
    enabled: bool = False


def gated_unsupported(path: str, value: Any, supported: Iterable[str], gate: str) -> FieldError:
    """Return the error for a value that is only supported if a gate is on."""
    return Gated(path, "Unsupported value", not_supported(path, value, supported).detail, value, gate)


def gated_invalid(path: str, value: Any, detail: str, gate: str) -> FieldError:
    """Return the error for a wrong value of a feature that can be used."""
    return Gated(path, "Invalid value", detail, value, gate, enabled=True)


def problems_of_creation(strategy: Strategy, obj: Object) -> list[FieldError]:
    """Return what is wrong with a new object."""
    return _ungated(strategy.validate(obj), strategy.settings.gates)


def problems_of_change(strategy: Strategy, obj: Object, old: Object, subresource: str = "") -> list[FieldError]:
    """Return what is wrong with a change of `old`, without values that `old` contains already and may keep."""
    if subresource:
        problems = strategy.validate_subresource(subresource, obj, old)
    else:
        problems = strategy.validate_update(obj, old)
    if not any(isinstance(problem, (NewlyInvalid, Gated)) for problem in problems):
        return problems
    before = strategy.validate(old)
    kept = {(p.detail, p.value) for p in before if isinstance(p, NewlyInvalid)}
    used = {p.gate for p in before if isinstance(p, Gated)}
    problems = _ungated(problems, strategy.settings.gates | used)
    return [p for p in problems if not (isinstance(p, NewlyInvalid) and (p.detail, p.value) in kept)]


def _ungated(problems: list[FieldError], gates: frozenset[str]) -> list[FieldError]:
    return [p for p in problems if not isinstance(p, Gated) or p.enabled == (p.gate in gates)]
