"""NUMA placement: hints merged by each policy, memory promised, whole pods or single containers placed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.container_manager.manager import ContainerManager
from agent.kubelet_configuration import ConfigError, parse
from agent.managers import memory_state, options
from agent.managers.errors import AdmissionError
from agent.managers.hints import ANY, Hint, Hints, Merger, masks
from agent.managers.memory import MemoryManager
from agent.managers.memory_state import Block, MemoryState, NUMANodeState, Table
from agent.managers.options import ManagerOptions
from agent.managers.resize import refuse_resize
from agent.managers.state_files import StateError
from kube.api import core_v1
from kube.clock import SYSTEM
from tests.unit.agent.managers.machines import GIB, machine, sysfs
from tests.unit.agent.pods import pod, reused

A, B, BOTH = 0b01, 0b10, 0b11


def hints(**lists: list[tuple[int, bool]] | None) -> Hints:
    return {name: None if row is None else [Hint(*hint) for hint in row] for name, row in lists.items()}


EITHER = [(A, True), (B, True), (BOTH, False)]


@pytest.mark.parametrize(
    ("provided", "best", "admitted"),
    [
        # admitted by best-effort, restricted, single-numa-node
        ([], (BOTH, True), "brs"),
        ([hints(cpu=EITHER)], (A, True), "brs"),
        ([hints(cpu=EITHER), hints(gpu=[(B, True), (BOTH, False)])], (B, True), "brs"),
        ([hints(cpu=[(A, True), (BOTH, False)]), hints(gpu=[(B, True), (BOTH, False)])], (A, False), "b"),
        ([hints(cpu=EITHER), hints(gpu=None)], (A, True), "brs"),
        ([hints(cpu=EITHER), {}], (A, True), "brs"),
        ([hints(cpu=EITHER), hints(gpu=[])], (A, False), "b"),
        ([hints(cpu=[(BOTH, True)])], (BOTH, True), "br"),
        ([hints(cpu=[(BOTH, False)])], (BOTH, False), "b"),
        ([hints(cpu=EITHER, memory=[(BOTH, True)])], (A, True), "br"),
    ],
)
def test_hints_are_merged_by_policy(provided: list[Hints], best: tuple[int, bool], admitted: str) -> None:
    for policy in ("best-effort", "restricted", "single-numa-node"):
        found, ok = Merger(policy, (0, 1)).merge(provided)
        assert ok is (policy[0] in admitted), policy
        if policy == "best-effort":
            assert found == Hint(*best)
    assert Merger("none", (0, 1)).merge(provided) == (ANY, True)


def test_of_sets_that_not_all_prefer_the_one_that_all_need_wins() -> None:
    # One resource takes two nodes in any case: one node alone would only look narrower.
    row = [hints(cpu=[(0b0011, True), (0b1100, True)]), hints(gpu=[(0b0100, True), (0b1111, False)])]
    assert Merger("best-effort", (0, 1, 2, 3)).merge(row)[0] == Hint(0b0100, True)
    row = [hints(cpu=[(0b0011, True)]), hints(gpu=[(0b0001, False), (0b1111, False)])]
    assert Merger("best-effort", (0, 1, 2, 3)).merge(row)[0] == Hint(0b0011, False)


def test_of_equally_large_sets_the_closest_numa_nodes_are_preferred_if_configured() -> None:
    distances = {0: (10, 40, 20), 1: (40, 10, 40), 2: (20, 40, 10)}
    row = [hints(cpu=[(0b011, True), (0b101, True)])]
    assert Merger("best-effort", (0, 1, 2)).merge(row)[0].affinity == 0b011
    assert Merger("best-effort", (0, 1, 2), distances).merge(row)[0].affinity == 0b101


ONE = st.tuples(st.one_of(st.none(), st.integers(1, 7)), st.booleans())


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(ONE, max_size=4), max_size=4), st.sampled_from(("best-effort", "restricted")))
def test_combinations_that_are_alike_are_compared_once_with_the_same_result(
    drawn: list[list[tuple[int | None, bool]]], policy: str
) -> None:
    class Product(Merger):
        """Compares every combination, as upstream does."""

        def _combined(self, lists: Sequence[Sequence[Hint]]) -> Iterable[tuple[int, bool]]:
            for combined in itertools.product(*lists):
                affinity = self._all
                for hint in combined:
                    affinity &= self._all if hint.affinity is None else hint.affinity
                yield affinity, all(hint.preferred for hint in combined)

    provided = [{f"r{number}": [Hint(*hint) for hint in row]} for number, row in enumerate(drawn)]
    assert Merger(policy, (0, 1, 2)).merge(provided) == Product(policy, (0, 1, 2)).merge(provided)


def test_many_resources_on_many_nodes_are_no_product() -> None:
    nodes = range(8)
    every = [Hint(mask, mask.bit_count() == 1) for mask in masks(nodes)]
    merger = Merger("best-effort", nodes)
    combined = merger._combined([every] * 6)
    assert len(list(combined)) <= 2 << 8
    assert merger.merge([{f"r{number}": every} for number in range(6)]) == (Hint(1, True), True)


# -- memory -----------------------------------------------------------------------------------------------------------
def asks(memory: str = "256Mi", *, uid: str = "u1", init: str = "", **more: str) -> core_v1.Pod:
    limits = {"cpu": "100m", "memory": memory, **{k.replace("_", "-"): v for k, v in more.items()}}
    first = [{"name": "init", "resources": {"limits": {"cpu": "100m", "memory": init}}}] if init else []
    return pod({"name": "main", "resources": {"limits": limits}}, init=first, metadata={"uid": uid})  # type: ignore[arg-type]


RESERVED = {0: {"memory": GIB // 2}}


def static(root: Path, **shape: int) -> MemoryManager:
    return MemoryManager(machine(root / "sys", **{"nodes": 2, **shape}), root, "Static", RESERVED)


def free(root: Path, kind: str = "memory") -> list[int]:
    written = json.loads((root / "memory_manager_state").read_text())
    return [node["memoryMap"][kind]["free"] for node in written["machineState"].values()]


async def give(manager: MemoryManager, given: core_v1.Pod, hint: Hint = ANY) -> tuple[int, ...]:
    for container in (*given.spec.init_containers, *given.spec.containers):
        await manager.allocate(given, container, hint, reused=reused(given, container))
    await manager.save()
    return manager.nodes(given.metadata.uid or "", "main")


@pytest.mark.parametrize(
    ("memory", "found"),
    [
        ("256Mi", [(A, True), (B, True), (BOTH, False)]),
        ("768Mi", [(B, True), (BOTH, False)]),  # half of node 0 is reserved
        ("1200Mi", [(BOTH, True)]),
        ("2Gi", []),
    ],
)
def test_hints_name_the_nodes_with_free_memory(tmp_path: Path, memory: str, found: list[tuple[int, bool]]) -> None:
    given = asks(memory)
    manager = static(tmp_path)
    assert manager.container_hints(given, given.spec.containers[0]) == {"memory": [Hint(*hint) for hint in found]}
    assert manager.pod_hints(given) == {"memory": [Hint(*hint) for hint in found]}


async def test_memory_is_promised_and_taken_back(tmp_path: Path) -> None:
    manager = static(tmp_path)
    assert free(tmp_path) == [GIB // 2, GIB]
    assert await give(manager, asks("256Mi"), Hint(B)) == (1,)
    assert free(tmp_path) == [GIB // 2, GIB * 3 // 4]
    assert await give(manager, asks("512Mi", uid="u2")) == (0,)
    await manager.release("u1")
    await manager.release("u2")
    assert free(tmp_path) == [GIB // 2, GIB]


async def test_nodes_that_gave_together_are_a_group(tmp_path: Path) -> None:
    manager = static(tmp_path)
    assert await give(manager, asks("1200Mi")) == (0, 1)
    small = asks("64Mi", uid="u2")
    assert manager.container_hints(small, small.spec.containers[0]) == {"memory": [Hint(BOTH, False)]}
    await manager.release("u1")
    assert manager.container_hints(small, small.spec.containers[0])["memory"] == [
        Hint(A, True),
        Hint(B, True),
        Hint(BOTH, False),
    ]


async def test_huge_pages_are_promised_too_and_are_no_ordinary_memory(tmp_path: Path) -> None:
    manager = static(tmp_path, huge=64)
    assert free(tmp_path) == [GIB // 2 - (64 << 21), GIB - (64 << 21)]
    await give(manager, asks("64Mi", hugepages_2Mi="32Mi"), Hint(A))
    assert free(tmp_path, "hugepages-2Mi") == [48 << 21, 64 << 21]


async def test_the_main_containers_use_what_the_init_container_was_promised(tmp_path: Path) -> None:
    manager = static(tmp_path)
    await give(manager, asks("256Mi", init="512Mi"), Hint(A))
    assert free(tmp_path) == [0, GIB]
    await manager.release("u1")
    assert free(tmp_path) == [GIB // 2, GIB]


async def test_memory_that_is_used_again_is_recorded_for_the_later_container_alone(tmp_path: Path) -> None:
    def sized(name: str, memory: str, **more: str) -> dict[str, Any]:
        return {"name": name, "resources": {"limits": {"cpu": "100m", "memory": memory}}, **more}

    init = [sized("side", "64Mi", restartPolicy="Always"), sized("small", "32Mi"), sized("large", "96Mi")]
    given, manager = pod(sized("main", "64Mi"), init=init, metadata={"uid": "u1"}), static(tmp_path)
    await give(manager, given, Hint(A))
    blocks = {name: [b.size >> 20 for b in found] for name, found in manager._state.entries["u1"].items()}
    assert blocks == {"side": [64], "small": [0], "large": [32], "main": [64]}
    assert free(tmp_path) == [GIB // 2 - (160 << 20), GIB]


async def test_too_little_memory_is_reported_and_others_are_not_managed(tmp_path: Path) -> None:
    manager = static(tmp_path)
    with pytest.raises(AdmissionError, match="no NUMA nodes with enough memory"):
        await give(manager, asks("2Gi"))
    assert await give(manager, pod("main", metadata={"uid": "u3"})) == ()


def test_the_checksum_is_the_one_that_upstream_writes(tmp_path: Path) -> None:
    table = Table(total=2048, system_reserved=512, allocatable=1536, reserved=512, free=1024)
    state = MemoryState(
        policy_name="static",
        machine_state={0: NUMANodeState(memory_map={"memory": table})},
        entries={"pod": {"container1": [Block(numa_affinity=[0], type="memory", size=512)]}},
    )
    memory_state.save(tmp_path, state)
    assert json.loads((tmp_path / "memory_manager_state").read_text())["checksum"] == 4215593881
    assert memory_state.load(tmp_path, "static") == state


async def test_the_next_agent_knows_what_was_promised(tmp_path: Path) -> None:
    await give(static(tmp_path), asks("256Mi"), Hint(B))
    assert static(tmp_path).nodes("u1", "main") == (1,)
    with pytest.raises(StateError, match="the expected machine state is different from the real one"):
        static(tmp_path, memory=2 * GIB)
    with pytest.raises(StateError, match='configured policy "None" differs from state checkpoint policy "Static"'):
        MemoryManager(machine(tmp_path / "sys"), tmp_path, "None", {})


# -- all together -----------------------------------------------------------------------------------------------------
def manager(root: Path, policy: str, scope: str = "container") -> ContainerManager:
    given = ManagerOptions(
        cpu_policy="static",
        memory_policy="Static",
        reserved_memory={0: {"memory": GIB // 2}},
        topology_policy=policy,
        topology_scope=scope,
    )
    sys = sysfs(root / "sys", nodes=2, sockets=2, cores=4)
    return ContainerManager(root, given, reserved_cpus=1, clock=SYSTEM, sys=sys)


def two(cpu: str, memory: str, uid: str = "u1") -> core_v1.Pod:
    resources = {"limits": {"cpu": cpu, "memory": memory}}
    return pod({"name": "a", "resources": resources}, {"name": "b", "resources": resources}, metadata={"uid": uid})


async def test_containers_are_placed_one_by_one_or_together(tmp_path: Path) -> None:
    by_container = manager(tmp_path / "c", "single-numa-node")
    assert await by_container.admit(two("3", "256Mi"), ()) is None
    given = two("3", "256Mi")
    first, second = [await by_container.run_options(given, container) for container in given.spec.containers]
    assert (first.cpus, first.mems) == ("1-3", "0") and (second.cpus, second.mems) == ("4-6", "1")
    by_pod = manager(tmp_path / "p", "single-numa-node", "pod")
    assert await by_pod.admit(two("2", "256Mi"), ()) is None
    given = two("2", "256Mi")
    assert {(await by_pod.run_options(given, container)).mems for container in given.spec.containers} == {"1"}


async def test_what_does_not_fit_one_node_fails_with_upstreams_words(tmp_path: Path) -> None:
    by_pod = manager(tmp_path, "single-numa-node", "pod")
    end = await by_pod.admit(two("3", "256Mi"), ())
    assert end is not None and (end.phase, end.reason) == ("Failed", "TopologyAffinityError")
    assert end.message == "Pod was rejected: Resources cannot be allocated with Topology locality"
    # Nothing stays with it, and a pod that runs already is not refused.
    assert by_pod.cpu.owners == set()
    assert await by_pod.admit(two("3", "256Mi"), ("a",)) is None
    assert await manager(tmp_path / "b", "best-effort", "pod").admit(two("3", "256Mi"), ()) is None


async def test_a_request_that_cannot_be_met_is_unexpected(tmp_path: Path) -> None:
    end = await manager(tmp_path, "none").admit(two("5", "256Mi"), ())
    assert end is not None and end.reason == "UnexpectedAdmissionError"
    assert end.message == (
        "Pod was rejected: Allocate failed due to not enough cpus available to satisfy request: requested=5, "
        "available=2, which is unexpected"
    )


def test_guaranteed_pods_are_not_resized_under_a_static_policy(tmp_path: Path) -> None:
    of, before = partial(refuse_resize, manager(tmp_path, "none").options), two("1", "1Gi")
    found, other = of(two("2", "1Gi"), before), of(two("1", "2Gi"), before)
    assert found is not None and other is not None and found.reason == other.reason == "Infeasible"
    assert found.message == 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
    assert other.message == 'Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"'
    assert of(before, before) is None and of(pod(), pod()) is None


# -- settings ---------------------------------------------------------------------------------------------------------
HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
MEMORY = "memoryManagerPolicy: Static\nkubeReserved: {memory: 412Mi}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpuManagerPolicy: dynamic", 'unknown policy: "dynamic"'),
        ("cpuManagerPolicy: static", "requires systemreserved.cpu + kubereserved.cpu to be greater than zero"),
        ("cpuManagerPolicyOptions: {full-pcpus-only: 'true'}", "policy none does not support options"),
        (
            "cpuManagerPolicy: static\nreservedSystemCPUs: '0'\ncpuManagerPolicyOptions: {align-by-socket: 'true'}",
            'Alpha-level Options not enabled, but option "align-by-socket" provided',
        ),
        (
            "cpuManagerPolicy: static\nreservedSystemCPUs: '0'\ncpuManagerPolicyOptions: {full-pcpus-only: maybe}",
            'bad value for option "full-pcpus-only"',
        ),
        (
            "cpuManagerPolicy: static\nreservedSystemCPUs: '0'\ncpuManagerPolicyOptions: "
            "{prefer-align-cpus-by-uncorecache: 'true', distribute-cpus-across-numa: 'true'}",
            "can not be used at the same time",
        ),
        ("cpuManagerReconcilePeriod: often", "cpuManagerReconcilePeriod: invalid duration"),
        ("reservedSystemCPUs: 0-x", "unable to parse reservedSystemCPUs"),
        ("reservedSystemCPUs: '0'\nkubeReservedCgroup: /kube", "can't use reservedSystemCPUs"),
        ("topologyManagerPolicy: strict", "topologyManagerPolicy"),
        ("topologyManagerScope: node", 'must be one of: "container", or "pod"'),
        ("topologyManagerPolicyOptions: {max-allowable-numa-nodes: '4'}", "should not be less than 8"),
        ("memoryManagerPolicy: Dynamic", 'unknown memoryManagerPolicy: "Dynamic"'),
        (MEMORY, 'the total amount "0" of type "memory" is not equal to the value "536870912"'),
        (MEMORY + "reservedMemory: [{numaNode: 0, limits: {memory: 256Mi}}]", "is not equal to the value"),
        ("reservedMemory: [{numaNode: 0, limits: {cpu: 1}}]", 'the limit type "cpu" for NUMA node 0 is not allowed'),
        ("reservedMemory: [{numaNode: 0, limits: {memory: 0}}]", "the limit value is zero"),
        (
            "reservedMemory: [{numaNode: 0, limits: {memory: 1}}, {numaNode: 0, limits: {memory: 1}}]",
            "has a duplicate value",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        options.read(parse(HEAD + text)[0])
    assert message in str(refused.value)


def test_settings_are_read() -> None:
    text = """
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true", strict-cpu-reservation: "false"}
cpuManagerReconcilePeriod: 5s
reservedSystemCPUs: 0,2
memoryManagerPolicy: Static
kubeReserved: {memory: 412Mi}
reservedMemory: [{numaNode: 0, limits: {memory: 256Mi}}, {numaNode: 1, limits: {memory: 256Mi}}]
topologyManagerPolicy: restricted
topologyManagerScope: pod
topologyManagerPolicyOptions: {prefer-closest-numa-nodes: "true", max-allowable-numa-nodes: "16"}
"""
    found = options.read(parse(HEAD + text)[0])
    wanted: dict[str, Any] = {
        "cpu_policy": "static",
        "cpu_options": {"full-pcpus-only": True, "strict-cpu-reservation": False},
        "cpu_period": 5.0,
        "reserved_cpus": {0, 2},
        "memory_policy": "Static",
        "reserved_memory": {0: {"memory": 256 << 20}, 1: {"memory": 256 << 20}},
        "topology_policy": "restricted",
        "topology_scope": "pod",
        "closest_nodes": True,
        "most_nodes": 16,
    }
    assert {name: getattr(found, name) for name in wanted} == wanted and not found.idle
