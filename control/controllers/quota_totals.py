"""Usage of a namespace's quotas, summed up in one pass: each object is evaluated once for all quotas. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal

import msgspec

from control.admission import quota as quotas
from kube.json_object import Object


@dataclass(slots=True)
class _Scoped:
    """Usage within certain scopes."""

    terms: list[Object]
    used: quotas.Usage = field(default_factory=dict)


class Totals:
    """Usage by scopes: quotas of the same scopes share it."""

    def __init__(self, shapes: Iterable[Object]) -> None:
        self._by_scopes: dict[bytes, _Scoped] = {}
        for quota in shapes:
            self._by_scopes.setdefault(_key(quota), _Scoped(quotas.terms(quota)))

    @property
    def steps(self) -> int:
        """Cost of one object: the terms of all scopes."""
        return 1 + sum(1 + len(scoped.terms) for scoped in self._by_scopes.values())

    def add(self, target: str, obj: Object) -> None:
        """Add an object to what it is within the scopes of."""
        usage, subject = quotas.usage(target, obj), quotas.Subject(target, obj)
        for scoped in self._by_scopes.values():
            if subject.within(scoped.terms):
                for name, value in usage.items():
                    scoped.used[name] = scoped.used.get(name, Decimal(0)) + value

    def of(self, quota: Object) -> quotas.Usage:
        """Return what is used of a quota, by resource name."""
        return self._by_scopes[_key(quota)].used


def _key(quota: Object) -> bytes:
    return msgspec.json.encode(quotas.scopes(quota))
