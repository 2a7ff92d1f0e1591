"""Writes of the CSINode and the Node for drivers: only changes, and none is lost."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest

from agent.csi.csi_node import NODE_ID, CSINodes
from agent.plugins.handler import PluginError
from kube.api import core_v1, storage_v1
from tests.support.clock import FakeClock
from tests.support.lagging_api import LaggingAPI

RACK = {"topology/rack": "r1"}


class Node(LaggingAPI):
    def __init__(self) -> None:
        super().__init__()
        self.put(msgspec.convert({"metadata": {"name": "node"}}, core_v1.Node))
        self.csi = CSINodes(self.client(), "node", clock=FakeClock())

    @property
    def writes(self) -> int:
        return sum(method != "GET" for method, _ in self.requests)

    @property
    def drivers(self) -> list[tuple[str, int | None]]:
        found = self.read(storage_v1.CSINode, "node").spec.drivers
        return [(driver.name, driver.allocatable.count if driver.allocatable else None) for driver in found]

    @property
    def ids(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.read(core_v1.Node, "node").metadata.annotations.get(NODE_ID, "{}"))
        return found


async def test_drivers_that_change_nothing_cause_no_write() -> None:
    node = Node()
    await node.csi.add("a", "id-a", RACK, 5)
    await node.csi.add("b", "id-b", {}, 0)
    before = node.writes
    for _ in range(3):
        await node.csi.add("a", "id-a", RACK, 5)
        await node.csi.add("b", "id-b", {}, 0)
        await node.csi.update("a", "id-a", RACK, 5)
    assert node.writes == before and node.drivers == [("a", 5), ("b", None)]
    await node.csi.update("a", "id-a", RACK, 6)
    assert node.writes == before + 1 and sorted(node.drivers) == [("a", 6), ("b", None)]


async def test_drivers_that_come_and_go_at_the_same_time_are_all_recorded() -> None:
    node = Node()
    await asyncio.gather(*(node.csi.add(name, f"id-{name}", {}, 0) for name in "abc"))
    assert node.ids == {name: f"id-{name}" for name in "abc"} and len(node.drivers) == 3
    await asyncio.gather(node.csi.remove("a"), node.csi.add("d", "id-d", {}, 0), node.csi.remove("b"))
    assert node.ids == {name: f"id-{name}" for name in "cd"} and len(node.drivers) == 2


async def test_another_topology_is_refused_at_registration_only() -> None:
    node = Node()
    await node.csi.add("a", "id-a", RACK, 5)
    with pytest.raises(PluginError, match="topology value collision"):
        await node.csi.add("a", "id-a", {"topology/rack": "r2"}, 7)
    await node.csi.update("a", "id-a", {"topology/rack": "r2"}, 7)
    assert node.drivers == [("a", 7)]


@pytest.mark.parametrize("text", ["", "no JSON", "[]", "[" * 100_000, "1" * 5000])
async def test_an_annotation_of_another_form_keeps_no_driver_from_being_registered(text: str) -> None:
    node = Node()
    node.put(msgspec.convert({"metadata": {"name": "node", "annotations": {NODE_ID: text}}}, core_v1.Node))
    await node.csi.add("a", "id-a", {}, 0)
    assert node.ids == {"a": "id-a"}
