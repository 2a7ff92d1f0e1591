"""Allocated and actuated sizes: a size that the node has not granted does not come true by a restart."""

from __future__ import annotations

from typing import Any

from agent.lifecycle.resize import Actuated
from agent.pods import allocation
from agent.pods.allocation import Size
from kube.api import core_v1
from tests.unit.agent.pods import pod, record, runtime


def sized(name: str, cpu: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": {"cpu": cpu}}}


def asks(cpu: str) -> core_v1.ResourceRequirements:
    return core_v1.ResourceRequirements(requests={"cpu": cpu})


def requests(given: core_v1.Pod) -> dict[str, str]:
    every = (*given.spec.init_containers, *given.spec.containers)
    found = {c.name: str(c.resources.requests["cpu"]) for c in every if c.resources}
    return found | ({"": str(given.spec.resources.requests["cpu"])} if given.spec.resources else {})


def test_a_held_size_is_the_allocated_one() -> None:
    before = pod(sized("main", "1"), init=[sized("side", "3")], resources={"requests": {"cpu": "4"}})
    wanted = pod(sized("main", "10"), init=[sized("side", "30")], resources={"requests": {"cpu": "40"}})
    assert allocation.differs(wanted, before) and not allocation.differs(before, before)
    held = allocation.with_size(wanted, allocation.size_of(before))
    assert requests(held) == {"main": "1", "side": "3", "": "4"}
    assert requests(wanted) == {"main": "10", "side": "30", "": "40"}
    assert not allocation.differs(held, before)


def test_a_pod_differs_in_its_own_resources_alone() -> None:
    before = pod(sized("main", "1"), resources={"requests": {"cpu": "4"}})
    assert allocation.differs(pod(sized("main", "1"), resources={"requests": {"cpu": "5"}}), before)
    assert allocation.differs(pod(sized("main", "1")), before)
    assert not allocation.differs(pod(sized("main", "1"), resources={"requests": {"cpu": "4000m"}}), before)


def test_the_actuated_size_is_what_running_containers_and_the_cgroup_have() -> None:
    allocated = pod(sized("main", "1"), sized("other", "2"), resources={"requests": {"cpu": "9"}})
    found = runtime(record("main"), record("other", "exited"))
    shown = allocation.as_actuated(allocated, found, Actuated({"main-0": asks("5")}, asks("8")))
    assert requests(shown) == {"main": "5", "other": "2", "": "8"}
    assert allocation.size_of(shown) == Size({"main": asks("5"), "other": asks("2")}, asks("8"))
