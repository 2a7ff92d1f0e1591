"""Strategic merge patches from one pod status to another, which leave the conditions of other components alone."""

from __future__ import annotations

from typing import Any

import msgspec

from kube import disruption_target
from kube.api import core_v1

OURS = frozenset(
    "PodReadyToStartContainers Initialized Ready ContainersReady PodScheduled DisruptionTarget PodResizePending "
    "PodResizeInProgress AllContainersRestarting".split()
)
"""The conditions that a kubelet writes; all others are other controllers'."""
SHARED, BY_KUBELET = disruption_target.TYPE, "TerminationByKubelet"
"""The condition that other components write too, and the kubelet's reason for it: it never removes theirs."""
_BY_KEY = {"conditions": "type", "podIPs": "ip", "hostIPs": "ip", "resourceClaimStatuses": "name"}


def difference(old: core_v1.PodStatus, new: core_v1.PodStatus) -> dict[str, Any] | None:
    """Return the strategic merge patch from one status to another, None if they are the same."""
    if old == new:
        return None
    before, after = msgspec.to_builtins(old), msgspec.to_builtins(new)
    patch: dict[str, Any] = {}
    for name in before.keys() | after.keys():
        was, now = before.get(name), after.get(name)
        if name == "conditions":
            was, now = _our_conditions(was), _our_conditions(now)
        if was == now:
            continue
        found = _list_difference(was or [], now or [], _BY_KEY[name]) if name in _BY_KEY else _merge_patch(was, now)
        if found != [] or name not in _BY_KEY:  # a mark that is left where it is is no difference
            patch[name] = found
    return patch or None


def _merge_patch(old: Any, new: Any) -> Any:
    """Return the new value of a field; of an object, the changed fields, with null for those that are gone."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    gone = {name: None for name in old if name not in new}
    return gone | {name: _merge_patch(old.get(name), value) for name, value in new.items() if value != old.get(name)}


def _our_conditions(conditions: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    return [condition for condition in conditions or () if _is_ours(condition["type"], condition.get("reason"))]


def _list_difference(old: list[dict[str, Any]], new: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Patch a list whose items are merged by key: changed items whole, with null for removed fields."""
    before = {item[key]: item for item in old}
    kept = {item[key] for item in new}
    result = []
    for item in new:
        known = before.get(item[key])
        if known != item:
            result.append({**{name: None for name in (known or {}) if name not in item}, **item})
    result += [{"$patch": "delete", key: gone} for gone in before if gone not in kept and gone != SHARED]
    return result


def _is_ours(condition: str, reason: str | None) -> bool:
    return condition in OURS and (condition != SHARED or reason == BY_KUBELET)
