"""One large object times many others costs the scheduler their sum, not their product.

The scheduler shares the event loop with the server: what is multiplied there stops everybody. For every list and map of the
kinds that plugins read, a world with one such object and N others is worked through: the large pod is bound, waits, or is to
be placed, N small pods are placed and go again, nodes change. The lines that are executed are counted for two sizes and two
numbers of others; what is left when the two sums are taken off is the product. Plugins are those of the default profile.
"""

from __future__ import annotations

import copy
import gc
import logging
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from control.scheduler import node_selection, sliced_work, term_sets, toleration_set
from control.scheduler import steps as scheduler_steps
from control.scheduler.decisions import Failed, Placed
from control.scheduler.profile import DEFAULTS
from kube import serialize
from kube.api import apps_v1, core_v1, meta_v1, policy_v1, resource_v1, storage_v1
from tests.support.cost import Case, steps
from tests.support.large_objects import LargeField, large_fields
from tests.support.scheduling import Bench

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
SIZES, NUMBERS = (40, 80), (4, 8)
MOST_PRODUCT = 0.25
"""Lines for each item and each of the others: a comparison of each with each is one at least."""
READ = (
    core_v1.Pod,
    core_v1.Node,
    core_v1.PersistentVolume,
    core_v1.PersistentVolumeClaim,
    core_v1.Namespace,
    core_v1.Service,
    apps_v1.ReplicaSet,
    policy_v1.PodDisruptionBudget,
    resource_v1.ResourceClaim,
    storage_v1.StorageClass,
    storage_v1.CSINode,
    storage_v1.CSIStorageCapacity,
)
OPERATORS = {"any": "NotIn", "one": "In", "full": "NotIn"}
"""True if terms match all the others, or none but those that have the value; `full`: pods that preempt."""
CHOICES: dict[type[Any], dict[str, Any]] = {
    core_v1.Toleration: {"operator": "Equal", "effect": None},
    core_v1.Taint: {"effect": "PreferNoSchedule"},
    core_v1.TopologySpreadConstraint: {"when_unsatisfiable": "ScheduleAnyway", "max_skew": 1},
    core_v1.ContainerPort: {"protocol": "TCP", "host_ip": None},
    core_v1.Volume: {},
}
SMALL_ALL = {"app": "small"}


def fields() -> dict[str, list[LargeField]]:
    found: dict[str, list[LargeField]] = defaultdict(list)
    for field in large_fields():
        if field.resource.type in READ and field.path[:2] != ("metadata", "managedFields"):
            found[f"{field.resource.kind}.{'.'.join(field.path[:2])}"].append(field)
    return found


FIELDS = fields()


def made_valid(value: Any, flavor: str, number: int = 0) -> None:
    """Put in what the scheduler can read where a number stands for one of few words."""
    if isinstance(value, list | tuple):
        for position, item in enumerate(value):
            made_valid(item, flavor, position)
    elif isinstance(value, dict):
        for item in value.values():
            made_valid(item, flavor, number)
    elif isinstance(value, msgspec.Struct):
        if isinstance(value, core_v1.NodeSelectorRequirement | meta_v1.LabelSelectorRequirement):
            value.operator = OPERATORS[flavor]
            value.values = value.values or ["x"]
            value.key = value.key or "app"
        if isinstance(value, core_v1.PodAffinityTerm):
            # Of all but the first flavor every term is for a label that nodes have.
            value.topology_key = value.topology_key if flavor == "any" and value.topology_key else HOST
        if isinstance(value, core_v1.TopologySpreadConstraint):  # no two of them have one key
            value.topology_key = HOST if number == 0 else value.topology_key
        for name, choice in CHOICES.get(type(value), {}).items():
            setattr(value, name, choice)
        for name in value.__struct_fields__:
            made_valid(getattr(value, name), flavor, number)


def small_pod(name: str, claim: str = "", priority: int = 0) -> core_v1.Pod:
    """Return a pod that concerns most plugins a little."""
    term = core_v1.PodAffinityTerm(
        label_selector=meta_v1.LabelSelector(match_labels={"app": "other"}), topology_key=HOST
    )
    even = core_v1.TopologySpreadConstraint(
        max_skew=100,
        topology_key=ZONE,
        when_unsatisfiable="DoNotSchedule",
        label_selector=meta_v1.LabelSelector(match_labels=SMALL_ALL),
    )
    ports = [core_v1.ContainerPort(container_port=1, host_port=61000 + priority)]
    requests: dict[str, str | int | float] = {"cpu": "1m"}
    volumes = [core_v1.Volume(name="own", gce_persistent_disk=core_v1.GCEPersistentDiskVolumeSource(pd_name=name))]
    if claim:
        source = core_v1.PersistentVolumeClaimVolumeSource(claim_name=claim)
        volumes.append(core_v1.Volume(name="claim", persistent_volume_claim=source))
    return core_v1.Pod(
        metadata=meta_v1.ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", labels=dict(SMALL_ALL)),
        spec=core_v1.PodSpec(
            priority=priority,
            volumes=volumes,
            containers=[
                core_v1.Container(
                    name="c", image="i", ports=ports, resources=core_v1.ResourceRequirements(requests=requests)
                )
            ],
            tolerations=[core_v1.Toleration(key="small", operator="Exists")],
            topology_spread_constraints=[even],
            affinity=core_v1.Affinity(
                pod_anti_affinity=core_v1.PodAntiAffinity(required_during_scheduling_ignored_during_execution=[term])
            ),
        ),
    )


def node(number: int, flavor: str) -> core_v1.Node:
    labels = {HOST: f"n{number}", ZONE: f"z{number % 3}"}
    amounts: dict[str, str | int | float] = {"cpu": "64", "memory": "64Gi", "pods": "2" if flavor == "full" else "500"}
    return core_v1.Node(
        metadata=meta_v1.ObjectMeta(name=f"n{number}", labels=labels),
        spec=core_v1.NodeSpec(taints=[core_v1.Taint(key="busy", effect="PreferNoSchedule")]),
        status=core_v1.NodeStatus(
            allocatable=amounts, images=[core_v1.ContainerImage(names=[f"i{number}:latest"], size_bytes=1)]
        ),
    )


def storage(number: int) -> Iterator[Any]:
    """Yield a claim that waits for its pod, and a volume that it may get."""
    here = core_v1.NodeSelectorRequirement(key=HOST, operator="In", values=[f"n{number}"])
    place = core_v1.NodeSelector(node_selector_terms=[core_v1.NodeSelectorTerm(match_expressions=[here])])
    size: dict[str, str | int | float] = {"storage": "1Gi"}
    yield core_v1.PersistentVolumeClaim(
        metadata=meta_v1.ObjectMeta(name=f"c{number}", namespace="default", uid=f"uid-c{number}"),
        spec=core_v1.PersistentVolumeClaimSpec(
            storage_class_name="waits",
            access_modes=["ReadWriteOnce"],
            resources=core_v1.VolumeResourceRequirements(requests=size),
        ),
    )
    yield core_v1.PersistentVolume(
        metadata=meta_v1.ObjectMeta(name=f"v{number}"),
        spec=core_v1.PersistentVolumeSpec(
            storage_class_name="waits",
            access_modes=["ReadWriteOnce"],
            capacity=size,
            node_affinity=core_v1.VolumeNodeAffinity(required=place),
        ),
        status=core_v1.PersistentVolumeStatus(phase="Available"),
    )


def world(number: int, flavor: str) -> Bench:
    bench = Bench()
    bench.put(
        core_v1.Namespace(metadata=meta_v1.ObjectMeta(name="default")),
        storage_v1.StorageClass(
            metadata=meta_v1.ObjectMeta(name="waits"),
            provisioner="kubernetes.io/no-provisioner",
            volume_binding_mode="WaitForFirstConsumer",
        ),
    )
    for i in range(number):
        driver = storage_v1.CSINodeDriver(name="d", allocatable=storage_v1.VolumeNodeResources(count=10))
        spec = storage_v1.CSINodeSpec(drivers=[driver])
        bench.put(node(i, flavor), storage_v1.CSINode(metadata=meta_v1.ObjectMeta(name=f"n{i}"), spec=spec))
        bench.put(*storage(i))
        there = small_pod(f"there{i}")
        there.spec.containers[0].ports = []
        there.spec.node_name = f"n{i}"
        bench.put(there)
    return bench


def large(field: LargeField, size: int, flavor: str) -> Any:
    assert field.resource.type is not None
    made = serialize.convert(field.build(size, 10_000), field.resource.type)
    made_valid(made, flavor)
    return made


def as_pod(made: core_v1.Pod, name: str, where: str = "", priority: int = 0) -> core_v1.Pod:
    made = copy.deepcopy(made)
    made.metadata = msgspec.structs.replace(
        made.metadata, name=name, namespace="default", uid=f"uid-{name}", deletion_timestamp=None
    )
    made.spec.node_name, made.spec.priority, made.spec.scheduling_gates = where, priority, []
    made.spec.containers = made.spec.containers or [core_v1.Container(name="c")]
    made.status.phase = "Running" if where else None
    return made


def large_pods(made: core_v1.Pod, flavor: str) -> list[core_v1.Pod]:
    """Return a large pod that is bound, one that waits, one that is nominated, and one that is to be placed."""
    waits = as_pod(made, "waits")
    waits.spec.containers[0].resources = core_v1.ResourceRequirements(
        requests={
            "cpu": "1000",
            **(waits.spec.containers[0].resources.requests if waits.spec.containers[0].resources else {}),
        }
    )
    nominated = as_pod(made, "nominated", priority=9)
    nominated.status.nominated_node_name = "n1"
    return [
        as_pod(made, "bound", "n0"),
        waits,
        nominated,
        as_pod(made, "incoming", priority=5 if flavor == "full" else 0),
    ]


def put_pods(bench: Bench, bound: core_v1.Pod, waits: core_v1.Pod, nominated: core_v1.Pod) -> None:
    bench.put(bound, waits, nominated)
    bench.schedule()
    bench.scheduler.cluster.nominations.add(bench_info(nominated), "n1")


def put_large(bench: Bench, made: Any) -> None:
    """Put an object other than a pod where it concerns the others."""
    names = {
        core_v1.Node: "n0",
        core_v1.PersistentVolume: "v0",
        core_v1.PersistentVolumeClaim: "c0",
        core_v1.Namespace: "default",
        storage_v1.StorageClass: "waits",
        storage_v1.CSINode: "n0",
    }
    known = bench.informers.of(type(made)).get
    name = names.get(type(made), "large")
    before = known(name) or known(f"default/{name}")
    namespace = None if type(made) in names and type(made) is not core_v1.PersistentVolumeClaim else "default"
    made.metadata.name, made.metadata.namespace, made.metadata.uid = name, namespace, f"uid-{name}"
    made.metadata.deletion_timestamp = None
    if before is not None:
        for part in ("spec", "status", "provisioner", "volume_binding_mode"):
            if hasattr(made, part) and isinstance(getattr(made, part), msgspec.Struct):
                merge(getattr(made, part), getattr(before, part))
            elif hasattr(made, part):
                setattr(made, part, getattr(before, part))
        made.metadata.labels = {**before.metadata.labels, **made.metadata.labels}
    bench.put(made)


def merge(new: Any, old: Any) -> None:
    for name in new.__struct_fields__:
        if not getattr(new, name):
            setattr(new, name, getattr(old, name))
        elif isinstance(getattr(new, name), dict):
            setattr(new, name, {**getattr(old, name), **getattr(new, name)})


def bench_info(pod: core_v1.Pod) -> Any:
    from control.scheduler.podinfo import PodInfo

    return PodInfo(pod)


def cost(field: LargeField, size: int, number: int, flavor: str) -> int:
    """Return the lines to work through a world with an object of a size and a number of others."""
    made = large(field, size, flavor)
    bench = world(number, flavor)
    # Copies take more lines than the scheduler, and are made before.
    pods = large_pods(made, flavor) if isinstance(made, core_v1.Pod) else []
    wanted = [*pods[3:], *(small_pod(f"s{i}", f"c{i}", 3 if flavor == "full" else 0) for i in range(number))]
    copies = copy.deepcopy(wanted)

    def work(_: object) -> None:
        if pods:
            put_pods(bench, *pods[:3])
        else:
            put_large(bench, made)
        bench.put(*wanted)
        placed = bench.schedule()
        for bound, decision in zip(copies, placed, strict=False):
            if isinstance(decision, Placed):
                bound.spec.node_name = decision.node
                bench.put(bound)
        for i in range(number):
            bench.put(node(i, "any"))
            bench.remove(bench.informers.of(core_v1.Pod).get(f"default/there{i}"))

    gc.collect()
    gc.disable()  # what other worlds leave behind does not count
    try:
        return steps(Case("", lambda size: size, work), None)
    finally:
        gc.enable()


def differs(field: LargeField, flavor: str) -> bool:
    """True if a flavor is another world for a field than the first one."""
    if flavor == "full":
        return field.resource.type in (core_v1.Pod, policy_v1.PodDisruptionBudget)
    return flavor == "any" or large(field, 2, flavor) != large(field, 2, "any")


@pytest.fixture(autouse=True)
def one_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt no search: what is done again after an interruption would depend on the machine's speed."""
    for slices in (scheduler_steps, sliced_work):
        monkeypatch.setattr(slices, "SLICE_SECONDS", 10**9)


def product(field: LargeField, flavor: str) -> float:
    """Return the lines for each item and each of the others."""
    (s, ss), (n, nn) = SIZES, NUMBERS
    cost(field, ss, 2, flavor)  # what is made once and kept does not count
    mixed = (
        cost(field, ss, nn, flavor)
        - cost(field, s, nn, flavor)
        - cost(field, ss, n, flavor)
        + cost(field, s, n, flavor)
    )
    return mixed / ((ss - s) * (nn - n))


def parts() -> Iterator[Any]:
    """Yield parts of kinds and flavors of the world; one flavor finds most, and containers stand for what is like them."""
    like_containers = ("initContainers", "ephemeralContainers", "ContainerStatuses")
    for part in sorted(FIELDS):
        for flavor in OPERATORS:
            slow = flavor != "one" or part.endswith(like_containers)
            yield pytest.param(part, flavor, marks=[pytest.mark.long] if slow else [])


@pytest.mark.parametrize(("part", "flavor"), list(parts()))
def test_one_large_object_and_many_others_cost_their_sum(part: str, flavor: str) -> None:
    logging.disable(logging.ERROR)
    try:
        found = {str(field): round(product(field, flavor), 2) for field in FIELDS[part] if differs(field, flavor)}
    finally:
        logging.disable(logging.NOTSET)
    assert {field: lines for field, lines in found.items() if lines > MOST_PRODUCT} == {}


def test_small_pods_are_placed_and_all_plugins_of_the_registry_take_part() -> None:
    bench = world(3, "any")
    bench.put(*(small_pod(f"s{i}", f"c{i}") for i in range(3)))
    placed = bench.schedule()
    assert [type(decision) for decision in placed] == [Placed] * 3, [d for d in placed if isinstance(d, Failed)]
    (served,) = bench.scheduler._served.values()
    profile = served.profile
    taking_part = {use.plugin.name for use in profile.cluster}
    for point in ("filters", "pre_enqueue", "post_filter", "reserve", "pre_bind", "bind"):
        taking_part |= {plugin.name for plugin in getattr(profile, point)}
    taking_part |= {plugin.name for plugin, _ in profile.scores} | {"PrioritySort", "DefaultPreemption"}
    assert taking_part == set(DEFAULTS)


@pytest.mark.parametrize(
    ("module", "few", "path"),
    [
        (term_sets, "FEW", "pods spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"),
        (term_sets, "FEW", "pods spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution"),
        (
            node_selection,
            "SMALL",
            "pods spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
        ),
        (toleration_set, "FEW", "pods spec.tolerations"),
    ],
)
def test_comparing_each_with_each_is_seen(module: Any, few: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    field = next(field for part in FIELDS.values() for field in part if str(field) == path)
    monkeypatch.setattr(module, few, 10**9)
    assert product(field, "one") > MOST_PRODUCT
