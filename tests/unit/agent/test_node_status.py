"""The patch of a node's status: only what the agent changes, so that what others write meanwhile stays."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from agent.config import AgentConfig
from agent.node import status
from control.registry.core.node import NodeStrategy
from kube import resources
from kube.api import core_v1, meta_v1
from tests.unit.agent.test_node_allocatable import MACHINE


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


@pytest.mark.parametrize(("swap", "reported"), [(0, None), (2 << 30, core_v1.NodeSwapStatus(capacity=2 << 30))])
def test_a_node_without_swap_registers_as_does_one_with_swap(
    swap: int, reported: core_v1.NodeSwapStatus | None
) -> None:
    """The API server rejects a new node with a swap of zero bytes."""
    machine, config, before = dataclasses.replace(MACHINE, swap=swap), AgentConfig(node_name="n"), core_v1.NodeStatus()
    runtime = status.RuntimeFacts()
    found = status.node_status(machine, config, runtime, ["192.0.2.1"], before, "2026-01-01T00:00:00Z")
    assert found.node_info.swap == reported
    node = core_v1.Node(metadata=meta_v1.ObjectMeta(name="n"), status=found)
    assert NodeStrategy(resources.of(core_v1.Node)).validate(msgspec.to_builtins(node)) == []
