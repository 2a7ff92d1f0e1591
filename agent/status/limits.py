"""Limits of a pod's status: a pod may have thousands of containers, and a message for each of them. Pure.

Upstream has the limit of termination messages (12 KiB a pod, divided equally among its containers) and none of the others.
"""

from __future__ import annotations

import msgspec

from cri.texts import MESSAGE
from kube.api import core_v1

TERMINATED_BYTES = 12 * 1024
"""Bytes of the messages of a pod's terminated containers, divided equally among all containers (upstream's limit)."""
WAITING_BYTES = 64 * 1024
"""The same of its waiting containers."""
GROUPS = 16 * 1024
"""Supplemental groups of a pod's containers; one with more than an equal share is shown without its user."""
CONDITION_BYTES = 32 * 1024
"""Bytes of a condition's message, as in the API's other conditions."""


def limit(status: core_v1.PodStatus) -> None:
    """Cut what is too long in a new status; what it shares with others is replaced, not changed."""
    parts = (status.init_container_statuses, status.container_statuses, status.ephemeral_container_statuses)
    containers = max(1, sum(map(len, parts)))
    for shown in (container for part in parts for container in part):
        shown.state = _state(shown.state, containers)
        shown.last_state = _state(shown.last_state, containers)
        if shown.user is not None and shown.user.linux is not None:
            if len(shown.user.linux.supplemental_groups) > GROUPS // containers:
                shown.user = None
    status.message = _beginning(status.message, MESSAGE)
    status.conditions = [_condition(condition) for condition in status.conditions]


def _state(state: core_v1.ContainerState | None, containers: int) -> core_v1.ContainerState | None:
    if state is None:
        return None
    if (ended := state.terminated) is not None:
        text = _beginning(ended.message, TERMINATED_BYTES // containers)
        if text != ended.message:
            return core_v1.ContainerState(terminated=msgspec.structs.replace(ended, message=text))
    if (waiting := state.waiting) is not None:
        text = _beginning(waiting.message, WAITING_BYTES // containers)
        if text != waiting.message:
            return core_v1.ContainerState(waiting=msgspec.structs.replace(waiting, message=text))
    return state


def _condition(condition: core_v1.PodCondition) -> core_v1.PodCondition:
    text = _beginning(condition.message, CONDITION_BYTES)
    return condition if text == condition.message else msgspec.structs.replace(condition, message=text)


def _beginning(text: str | None, most: int) -> str | None:
    """Return the text, or as much of its beginning as has so many bytes."""
    if not text or len(text) * 4 <= most:
        return text
    data = text[:most].encode(errors="replace")
    return text if len(data) <= most and len(text) <= most else data[:most].decode(errors="ignore") or None
