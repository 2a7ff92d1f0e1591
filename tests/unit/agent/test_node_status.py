"""The patch of a node's status: only what the agent changes, so that what others write meanwhile stays."""

from __future__ import annotations

from agent.node import status
from kube.api import core_v1


def condition(kind: str, value: str, reason: str = "") -> core_v1.NodeCondition:
    return core_v1.NodeCondition(type=kind, status=value, reason=reason)


def test_conditions_of_others_are_not_written() -> None:
    """A network plugin may have changed its condition since the agent read it."""
    theirs = condition("NetworkUnavailable", "True", "NoRouteCreated")
    old = core_v1.NodeStatus(conditions=[theirs, condition("Ready", "False"), condition("DiskPressure", "False")])
    new = core_v1.NodeStatus(conditions=[theirs, condition("Ready", "True"), condition("DiskPressure", "False")])
    assert [each["type"] for each in status.patch(old, new)["conditions"]] == ["Ready"]
    assert status.patch(new, new) == {}


def test_a_first_status_has_all_conditions() -> None:
    new = core_v1.NodeStatus(conditions=[condition("Ready", "True")])
    assert [each["type"] for each in status.patch(core_v1.NodeStatus(), new)["conditions"]] == ["Ready"]
