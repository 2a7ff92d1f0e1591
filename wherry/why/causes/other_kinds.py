"""Finds why an object of a kind without a function of its own is not as it should be: its deletion and its conditions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from wherry.why import commands
from wherry.why.causes import gateways
from wherry.why.causes.deletion import finalizers
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, reference

GOOD = frozenset(
    "Ready Available Established Accepted Programmed ResolvedRefs Synced Succeeded Reconciled Approved Complete".split()
)
"""Conditions that are True when all is well, by convention."""


async def causes(diagnosis: Diagnosis, obj: Any) -> Sequence[Cause]:
    """Return the finalizers that block an object's deletion, or its first condition that is False."""
    if obj.metadata.deletion_timestamp is not None:
        return finalizers(obj, diagnosis.reader.now)
    about = reference(obj)
    if about.group == gateways.GROUP and about.kind == "Gateway":
        return await gateways.gateway(diagnosis, obj)
    if about.group == gateways.GROUP and about.kind in gateways.ROUTES:
        return await gateways.route(diagnosis, obj)
    for condition in _conditions(msgspec.to_builtins(getattr(obj, "status", None))):
        if condition.get("type") in GOOD and condition.get("status") == "False":
            why = condition.get("message") or condition.get("reason") or "no reason is given"
            text = f"its condition {condition['type']} is False: {why}"
            return [Cause(text, commands.kubectl("get", about, "-o", "yaml"), about)]
    return ()


def _conditions(status: Any) -> Iterable[dict[str, Any]]:
    """Yield the conditions of a status, also those of its parts (parents of a route, listeners of a Gateway)."""
    if isinstance(status, dict):
        for key, value in status.items():
            if key == "conditions" and isinstance(value, list):
                yield from (each for each in value if isinstance(each, dict))
            elif isinstance(value, list):
                for each in value:
                    yield from _conditions(each)
