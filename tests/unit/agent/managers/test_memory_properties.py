"""Memory of NUMA nodes over any sequence of pods: none is given twice, and none is lost when pods are gone."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.managers.errors import AdmissionError
from agent.managers.hints import ANY, Hint
from agent.managers.memory import MemoryManager
from kube.api import core_v1
from tests.unit.agent.managers.machines import GIB, machine
from tests.unit.agent.pods import pod, reused

PART = GIB // 8
sizes = st.integers(1, 12)
pods = st.tuples(
    st.lists(st.tuples(sizes, st.booleans()), max_size=2),
    st.lists(sizes, min_size=1, max_size=2),
    st.lists(st.sampled_from((None, 0b01, 0b10, 0b11)), min_size=4, max_size=4),
)
operations = st.lists(st.one_of(pods, st.integers(0, 5), st.just("restart")), max_size=14)


def made(number: int, init: list[tuple[int, bool]], mains: list[int]) -> core_v1.Pod:
    def container(name: str, size: int, **more: Any) -> dict[str, Any]:
        return {"name": name, "resources": {"limits": {"cpu": "100m", "memory": str(size * PART)}}, **more}

    first: list[str | dict[str, Any]] = [
        container(f"i{n}", size, **({"restartPolicy": "Always"} if sidecar else {}))
        for n, (size, sidecar) in enumerate(init)
    ]
    return pod(*(container(f"m{n}", size) for n, size in enumerate(mains)), init=first, metadata={"uid": f"u{number}"})


def check(manager: MemoryManager) -> None:
    """Compare each node's memory with what containers were given of it."""
    state = manager._state
    given: dict[tuple[int, ...], int] = {}
    for containers in state.entries.values():
        for blocks in containers.values():
            for block in blocks:
                nodes = tuple(block.numa_affinity)
                given[nodes] = given.get(nodes, 0) + block.size
    tables = {node: found.memory_map["memory"] for node, found in state.machine_state.items()}
    assert all(table.free + table.reserved == table.allocatable and table.free >= 0 for table in tables.values())
    assert sum(table.reserved for table in tables.values()) == sum(given.values())
    for nodes, size in given.items():
        assert size <= sum(tables[node].allocatable for node in nodes)
        if len(nodes) == 1:
            assert size <= tables[nodes[0]].reserved


async def run(root: Path, drawn: list[Any]) -> None:
    def begin() -> MemoryManager:
        return MemoryManager(machine(root / "sys", nodes=2), root, "Static", {0: {"memory": PART}})

    manager, alive = begin(), list[str]()
    for number, operation in enumerate(drawn):
        if operation == "restart":
            manager = begin()
        elif isinstance(operation, int):
            if alive:
                await manager.release(alive.pop(operation % len(alive)))
        else:
            one, hints = made(number, *operation[:2]), iter(operation[2])
            try:
                for container in (*one.spec.init_containers, *one.spec.containers):
                    wanted = next(hints)
                    await manager.allocate(
                        one, container, ANY if wanted is None else Hint(wanted), reused=reused(one, container)
                    )
                await manager.save()
                alive.append(one.metadata.uid or "")
            except AdmissionError:
                if one.metadata.uid in manager.owners:
                    await manager.release(one.metadata.uid or "")
        check(manager)
    for uid in alive:
        await manager.release(uid)
    for found in manager._state.machine_state.values():
        assert found.memory_map["memory"].free == found.memory_map["memory"].allocatable
        assert not found.number_of_assignments
    assert not manager._reusable, "also of pods that were rejected"


@settings(max_examples=150, deadline=None)
@given(operations)
def test_memory_is_never_given_twice_nor_lost(drawn: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder), drawn))
