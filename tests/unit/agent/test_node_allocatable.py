"""Allocatable resources of a node."""

from __future__ import annotations

from typing import Any

import pytest

from agent.config import AgentConfig, EvictionSettings
from agent.managers.options import ManagerOptions
from agent.node.extended_resources import add, is_extended
from agent.node.machine import Machine
from agent.node.status import allocatable, capacity
from kube.api import core_v1

GIB = 1 << 30
MACHINE = Machine(
    cpus=4,
    memory=8 * GIB,
    swap=0,
    disk=100 * GIB,
    huge_pages={"2Mi": GIB},
    architecture="amd64",
    kernel="6",
    os_image="",
    machine_id="",
    system_uuid="",
    boot_id="",
)


@pytest.mark.parametrize(
    ("settings", "name", "found"),
    [
        ({}, "cpu", "4"),
        ({"kube_reserved": {"cpu": "500m"}, "system_reserved": {"cpu": "250m"}}, "cpu", "3250m"),
        # Which processors are reserved counts, whatever their number was said to be.
        (
            {"kube_reserved": {"cpu": "500m"}, "managers": ManagerOptions(reserved_cpus=frozenset({0, 1}))},
            "cpu",
            "2",
        ),
        ({"kube_reserved": {"memory": "1Gi"}, "eviction": EvictionSettings(hard={})}, "memory", f"{6 * GIB // 1024}Ki"),
        ({"eviction": EvictionSettings(hard={"memory.available": "512Mi"})}, "memory", f"{(13 * GIB // 2) // 1024}Ki"),
        ({"kube_reserved": {"hugepages-2Mi": "256Mi"}}, "hugepages-2Mi", "768Mi"),
    ],
)
def test_reservations_are_kept_from_pods(settings: dict[str, Any], name: str, found: str) -> None:
    assert allocatable(MACHINE, AgentConfig(node_name="n", **settings))[name] == found
    assert capacity(MACHINE, AgentConfig(node_name="n"))["cpu"] == "4"


@pytest.mark.parametrize(
    ("name", "extended"),
    [
        ("cpu", False),
        ("hugepages-2Mi", False),
        ("example.com/gpu", True),
        ("kubernetes.io/batch-cpu", False),
        ("attachable.kubernetes.io/x", False),
    ],
)
def test_extended_resources_are_those_of_others(name: str, extended: bool) -> None:
    assert is_extended(name) is extended


def test_devices_win_over_what_was_written_and_the_rest_stays() -> None:
    old = core_v1.NodeStatus(capacity={"cpu": "9", "example.com/a": "3", "example.com/b": "5"})
    new = core_v1.NodeStatus(capacity={"cpu": "4"}, allocatable={"cpu": "4"})
    add(new, old, {"example.com/b": (2, 1)}, forget=False)
    assert new.capacity == {"cpu": "4", "example.com/a": "3", "example.com/b": "2"}
    assert new.allocatable == {"cpu": "4", "example.com/a": "3", "example.com/b": "1"}
    add(new, old, {}, forget=True)
    assert new.capacity["example.com/a"] == new.allocatable["example.com/b"] == "0"
