"""A size that the node has not granted does not come true by a restart."""

from __future__ import annotations

from typing import Any

from agent.pods import allocation
from kube.api import core_v1
from tests.unit.agent.pods import pod, record, runtime


def sized(name: str, cpu: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": {"cpu": cpu}}}


def requests(given: core_v1.Pod) -> dict[str, str]:
    every = (*given.spec.init_containers, *given.spec.containers)
    return {c.name: str(c.resources.requests["cpu"]) for c in every if c.resources}


def test_a_held_size_is_that_which_each_container_was_last_given() -> None:
    before = pod(sized("main", "1"), sized("other", "2"), init=[sized("side", "3")])
    wanted = pod(sized("main", "10"), sized("other", "20"), init=[sized("side", "30")])
    assert allocation.differs(wanted, before) and not allocation.differs(before, before)
    found = runtime(record("main", "exited"), record("other"))
    given = {"main-0": core_v1.ResourceRequirements(requests={"cpu": "5"})}
    has = allocation.current_sizes(before, found, given)
    held = allocation.with_sizes(wanted, has)
    assert requests(held) == {"main": "5", "other": "2", "side": "3"}
    assert requests(wanted) == {"main": "10", "other": "20", "side": "30"}
    assert not allocation.differs(held, allocation.with_sizes(before, has))
