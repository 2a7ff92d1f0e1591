"""Processors: read from sysfs, picked, given for themselves to containers of guaranteed pods, recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.managers import cpu_assignment, cpu_state, cpuset
from agent.managers.cpu import CpuManager
from agent.managers.errors import AdmissionError, SMTAlignmentError
from agent.managers.hints import ANY, Hint
from agent.managers.state_files import StateError
from kube.api import core_v1
from tests.unit.agent.managers.machines import machine
from tests.unit.agent.pods import pod, reused


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("", set()), ("0", {0}), ("0-3", {0, 1, 2, 3}), ("1,3-4,8", {1, 3, 4, 8}), (" 2 , 4 \n", {2, 4})],
)
def test_lists_of_processors_are_read_and_written(text: str, numbers: set[int]) -> None:
    assert cpuset.parse(text) == numbers
    assert cpuset.parse(cpuset.render(numbers)) == numbers


@pytest.mark.parametrize("text", ["a", "3-1", "-1", "1.3"])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        cpuset.parse(text)


def test_threads_cores_sockets_and_nodes_are_read_from_sysfs(tmp_path: Path) -> None:
    found = machine(tmp_path, sockets=2, nodes=4, cores=2, threads=2, huge=3)
    assert len(found.cpus) == 16 and found.node_ids == (0, 1, 2, 3) and found.threads_per_core == 2
    assert found.cores[0] == {0, 8} and found.node_cpus[1] == {2, 3, 10, 11}
    assert found.sockets[1] == {4, 5, 6, 7, 12, 13, 14, 15}
    assert found.nodes[0].huge_pages == {"hugepages-2Mi": 3 << 21} and found.nodes[1].distances == (20, 10, 20, 20)


def test_a_kernel_without_numa_is_one_node(tmp_path: Path) -> None:
    from agent.managers import hardware
    from tests.unit.agent.managers.machines import sysfs

    root = sysfs(tmp_path)
    (root / "devices/system/node").rename(root / "none")
    (tmp_path / "meminfo").write_text("MemTotal:  2048 kB\n")
    found = hardware.read(root, tmp_path / "meminfo")
    assert found.node_ids == (0,) and found.node_cpus[0] == {0, 1} and found.nodes[0].memory == 2 << 20


# 2 sockets = 2 nodes of 4 cores with 2 threads: cores 0-3 on node 0 (threads 0-3, 8-11), 4-7 on node 1 (4-7, 12-15).
TWO = {"sockets": 2, "nodes": 2, "cores": 4, "threads": 2}


@pytest.mark.parametrize(
    ("available", "count", "taken"),
    [
        ("0-15", 1, "0"),
        ("0-15", 2, "0,8"),
        ("0-15", 3, "0-1,8"),
        ("0-15", 8, "0-3,8-11"),
        ("0-15", 10, "0-4,8-12"),
        ("1-15", 8, "4-7,12-15"),  # the node that is whole
        ("1-15", 1, "8"),  # the rest of a core that is begun
        ("1-15", 2, "1,9"),  # a whole core rather than two halves
        ("2-3,10-11,4-7,12-15", 4, "2-3,10-11"),  # the fuller node is filled up
        ("0-15", 16, "0-15"),
        ("0-15", 0, ""),
    ],
)
def test_processors_are_picked_close_together(tmp_path: Path, available: str, count: int, taken: str) -> None:
    found = cpu_assignment.packed(machine(tmp_path, **TWO), cpuset.parse(available), count)
    assert cpuset.render(found) == taken


@pytest.mark.parametrize(
    ("available", "count", "group", "taken"),
    [
        ("0-15", 8, 1, "0-3,8-11"),  # one node holds it
        ("0-15", 10, 1, "0-2,4-6,8-9,12-13"),
        ("0-15", 12, 2, "0-2,4-6,8-10,12-14"),
        ("0-15", 10, 2, "0-2,4-5,8-10,12-13"),  # the rest in whole cores
        ("0-3,8-11,4,12", 10, 1, "0-4,8-12"),  # not evenly: close together
    ],
)
def test_processors_are_spread_over_nodes(tmp_path: Path, available: str, count: int, group: int, taken: str) -> None:
    found = cpu_assignment.distributed(machine(tmp_path, **TWO), cpuset.parse(available), count, group)
    assert cpuset.render(found) == taken


@pytest.mark.parametrize(
    ("available", "count", "taken"),
    [
        ("0-7", 2, "0-1"),
        ("1-7", 2, "2-3"),  # not over two caches, though 1 alone would fill one up
        ("1-7", 4, "2-5"),
        ("1-7", 1, "1"),
        ("1,3,5,7", 2, "1,3"),  # no cache has two
        ("1,2-3,6-7", 3, "1-3"),  # a whole cache, and one beside it
    ],
)
def test_processors_share_a_cache_where_they_can(tmp_path: Path, available: str, count: int, taken: str) -> None:
    found = machine(tmp_path, cores=8, cache=2)
    assert found.caches[2] == {2, 3}
    assert cpuset.render(cpu_assignment.packed(found, cpuset.parse(available), count, by_cache=True)) == taken


def test_too_few_cpus_are_reported(tmp_path: Path) -> None:
    with pytest.raises(AdmissionError, match="not enough cpus available to satisfy request: requested=3, available=2"):
        cpu_assignment.packed(machine(tmp_path), cpuset.parse("0-1"), 3)


# -- the manager -----------------------------------------------------------------------------------------------------
def guaranteed(*cpus: str, uid: str = "u1", init: tuple[str, ...] = (), sidecars: tuple[str, ...] = ()) -> core_v1.Pod:
    """A guaranteed pod whose containers c0, c1 … (i0 …, s0 …) ask for so many processors."""

    def container(name: str, cpu: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "resources": {"limits": {"cpu": cpu, "memory": "64Mi"}}, **more}

    first = [container(f"i{n}", cpu) for n, cpu in enumerate(init)]
    first += [container(f"s{n}", cpu, restartPolicy="Always") for n, cpu in enumerate(sidecars)]
    mains = [container(f"c{n}", cpu) for n, cpu in enumerate(cpus)]
    return pod(*mains, init=first, metadata={"uid": uid})


def static(root: Path, *, options: dict[str, bool] | None = None, **shape: int) -> CpuManager:
    found = machine(root / "sys", **(shape or TWO))
    return CpuManager(found, root, "static", options or {}, reserved_count=1)


async def give(manager: CpuManager, given: core_v1.Pod, hint: Hint = ANY) -> dict[str, str]:
    for container in (*given.spec.init_containers, *given.spec.containers):
        await manager.allocate(given, container, hint, reused=reused(given, container))
    await manager.save()
    names = [c.name for c in (*given.spec.init_containers, *given.spec.containers)]
    return {name: cpuset.render(manager.exclusive(given.metadata.uid or "", name)) for name in names}


async def test_whole_processors_are_exclusive_and_leave_the_shared_pool(tmp_path: Path) -> None:
    manager = static(tmp_path)
    assert await give(manager, guaranteed("2", "1500m")) == {"c0": "1,9", "c1": ""}
    assert cpuset.render(manager.affinity("u1", "c1")) == "0,2-8,10-15"
    assert cpuset.render(manager.affinity("other", "any")) == "0,2-8,10-15"
    await manager.release("u1")
    assert cpuset.render(manager.affinity("other", "any")) == "0-15"


@pytest.mark.parametrize(
    "given",
    [
        pod({"name": "c0", "resources": {"requests": {"cpu": "2"}}}),
        pod({"name": "c0", "resources": {"limits": {"cpu": "2"}}}),
        pod({"name": "c0"}),
        pod(
            {"name": "c0", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}},
            resources={"limits": {"cpu": "2", "memory": "1Gi"}},
        ),
    ],
)
async def test_other_pods_share(tmp_path: Path, given: core_v1.Pod) -> None:
    assert await give(static(tmp_path), given) == {"c0": ""}


async def test_reserved_processors_are_not_given_away(tmp_path: Path) -> None:
    manager = static(tmp_path)
    with pytest.raises(AdmissionError, match="requested=16, available=15"):
        await give(manager, guaranteed("16"))
    assert await give(manager, guaranteed("15", uid="u2")) == {"c0": "1-15"}
    assert cpuset.render(manager.affinity("x", "y")) == "0"


async def test_strictly_reserved_processors_are_nobodys(tmp_path: Path) -> None:
    manager = static(tmp_path, options={"strict-cpu-reservation": True})
    assert cpuset.render(manager.affinity("x", "y")) == "1-15"
    await give(manager, guaranteed("1"))
    await manager.release("u1")
    assert cpuset.render(manager.affinity("x", "y")) == "1-15"


async def test_main_containers_take_over_what_init_containers_had_and_sidecars_keep_theirs(tmp_path: Path) -> None:
    manager = static(tmp_path)
    found = await give(manager, guaranteed("2", init=("4",), sidecars=("1",)))
    assert set(cpuset.parse(found["c0"])) <= set(cpuset.parse(found["i0"]))
    assert not set(cpuset.parse(found["c0"])) & set(cpuset.parse(found["s0"]))
    assert len(manager.affinity("x", "y")) == 12
    await manager.release("u1")
    assert len(manager.affinity("x", "y")) == 16


async def test_only_whole_cores_with_full_pcpus_only(tmp_path: Path) -> None:
    manager = static(tmp_path, options={"full-pcpus-only": True})
    with pytest.raises(SMTAlignmentError) as refused:
        await give(manager, guaranteed("3"))
    assert refused.value.text == "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"
    assert refused.value.reason == "SMTAlignmentError"
    with pytest.raises(SMTAlignmentError) as short:
        await give(manager, guaranteed("16", uid="u2"))
    assert "not enough free physical CPUs: available physical CPUs = 14, requested CPUs = 16" in short.value.text


async def test_the_hinted_nodes_give_first(tmp_path: Path) -> None:
    assert await give(static(tmp_path), guaranteed("3"), Hint(0b10)) == {"c0": "4-5,12"}
    assert await give(static(tmp_path / "b"), guaranteed("10"), Hint(0b10)) == {"c0": "1,4-7,9,12-15"}


@pytest.mark.parametrize(
    ("cpus", "hints"),
    [
        ("2", [(0b01, True), (0b10, True), (0b11, False)]),
        ("8", [(0b10, True), (0b11, False)]),  # node 0 has one reserved
        ("9", [(0b11, True)]),
        ("500m", None),
    ],
)
async def test_hints_name_the_nodes_with_room(tmp_path: Path, cpus: str, hints: list[tuple[int, bool]] | None) -> None:
    manager, given = static(tmp_path), guaranteed(cpus)
    found = manager.container_hints(given, given.spec.containers[0])
    assert found == manager.pod_hints(given)
    assert found == ({"cpu": [Hint(*hint) for hint in hints]} if hints else {})


# -- the note on disk ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("policy", "shared", "entries", "checksum"),
    [
        ("none", "1-3", {"pod": {"container1": "4-6", "container2": "1-3"}}, 3610638499),
        ("none", "4-6", {}, 354655845),
    ],
)
def test_the_checksum_is_the_one_that_upstream_writes(
    tmp_path: Path, policy: str, shared: str, entries: dict[str, dict[str, str]], checksum: int
) -> None:
    assigned = {uid: {name: cpuset.parse(t) for name, t in pod.items()} for uid, pod in entries.items()}
    cpu_state.save(tmp_path, cpu_state.CpuState(policy, cpuset.parse(shared), assigned))
    written = json.loads((tmp_path / "cpu_manager_state").read_text())
    assert written.pop("checksum") == checksum
    assert written.pop("entries", {}) == entries
    assert written == {"policyName": policy, "defaultCpuSet": shared}


async def test_the_next_agent_knows_what_was_given(tmp_path: Path) -> None:
    given = guaranteed("2")
    before = await give(static(tmp_path), given)
    again = static(tmp_path)
    assert cpuset.render(again.exclusive("u1", "c0")) == before["c0"] and again.owners == {"u1"}
    assert again.container_hints(given, given.spec.containers[0]) == {"cpu": [Hint(0b01, True), Hint(0b11, False)]}
    assert await give(again, given) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"policyName": "none", "checksum": 0},
            'configured policy "static" differs from state checkpoint policy "none"',
        ),
        ({"defaultCpuSet": "0-7", "checksum": 0}, "doesn't match with CPUs in state"),
        ({"defaultCpuSet": "1-15", "checksum": 0}, "not all reserved cpus: 0 are present"),
        ({"defaultCpuSet": "0-14"}, "checkpoint is corrupted"),
        ({"defaultCpuSet": "x", "checksum": 0}, "invalid literal"),
    ],
)
def test_a_note_that_does_not_fit_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    static(tmp_path)
    file = tmp_path / "cpu_manager_state"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(StateError, match=message):
        static(tmp_path)
