"""Lists of two objects that are looked up together, and agree in their names, take steps in proportion to both.

Steps are lines of Python, and the entries that a line copies or compares in C code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.images.image_access import ImageAccess
from agent.images.names import without_tag
from agent.images.pull_record_files import PulledRecord, Pullers, PullSecret
from agent.images.registry_auth import SECRET, Credential, Source
from agent.server.log_query import LogQuery
from control.admission.runtime_class import RuntimeClass
from control.controllers.statefulset.claim_owners import wanted_owners
from control.registry.core import endpoints
from control.registry.core.pod.update import validate_gated_placement
from control.registry.core.service.allocations import ServiceAllocations
from control.registry.core.service.node_ports import NodePorts
from control.scheduler.devices import extended, results
from kube.api import apps_v1, core_v1, meta_v1, resource_v1
from tests.support.copies import counting
from tests.support.cost import Lines
from tests.support.lookup import Objects, attributes
from tests.unit.cost.test_large_objects import STEEPEST

ROOT = Path(endpoints.__file__).parents[3]
FOLDERS = tuple(f"{ROOT}/{folder}/" for folder in ("agent", "control", "kube"))
COUNTS = (64, 128, 256)
_entries = 0


def _count(file: str, line: int, entries: int) -> None:
    global _entries
    _entries += entries


@pytest.fixture(scope="module", autouse=True)
def counted_entries() -> Iterator[None]:
    with counting(FOLDERS, _count):
        yield


def owners_of_a_claim(count: int) -> Callable[[], object]:
    """Return the check of a claim's owners that are none of its StatefulSet's."""
    sts = apps_v1.StatefulSet(metadata=meta_v1.ObjectMeta(name="s", uid="s", namespace="n"))
    claim = core_v1.PersistentVolumeClaim(metadata=meta_v1.ObjectMeta(name="data-s-0"))
    claim.metadata.owner_references = [
        meta_v1.OwnerReference(api_version="v1", kind="ConfigMap", name="c", uid=f"u{number}")
        for number in range(count)
    ]
    return lambda: wanted_owners(sts, claim, None, condemned=False)


def tolerations_of_a_runtime_class(count: int) -> Callable[[], object]:
    tolerations = [{"key": f"k{number}", "operator": "Exists"} for number in range(count)]
    scheduling = {"tolerations": tolerations[::-1]}
    plugin = RuntimeClass(
        Objects(("runtimeclasses.node.k8s.io", {"metadata": {"name": "r"}, "handler": "r", "scheduling": scheduling}))
    )
    pod = {"metadata": {"name": "p"}, "spec": {"runtimeClassName": "r", "tolerations": list(tolerations)}}
    return lambda: asyncio.run(plugin.admit(attributes("pods", obj=pod)))


def selectors_of_devices(count: int) -> Callable[[], object]:
    terms = [core_v1.NodeSelectorRequirement(key=f"k{number}", operator="Exists") for number in range(count)]
    selector = core_v1.NodeSelector(node_selector_terms=[core_v1.NodeSelectorTerm(match_expressions=terms)])
    spec = resource_v1.ResourceSliceSpec(
        driver="d",
        pool=resource_v1.ResourcePool(name="p", generation=1, resource_slice_count=1),
        node_selector=selector,
    )
    entry = resource_v1.Device(name="d")
    found = SimpleNamespace(device=SimpleNamespace(slice=resource_v1.ResourceSlice(spec=spec), entry=entry))
    node = core_v1.Node(metadata=meta_v1.ObjectMeta(name="n"))
    return lambda: results._node_selector(cast(Any, [found, found]), node)


def shared_devices(count: int) -> Callable[[], object]:
    """Return the requests of a pod whose init containers share the devices of its containers."""
    resources = core_v1.ResourceRequirements(requests={"example.com/gpu": "1"})
    each = [core_v1.Container(name=f"c{number}", resources=resources) for number in range(count)]
    pod = core_v1.Pod(spec=core_v1.PodSpec(init_containers=each, containers=each))
    return lambda: extended.device_requests(pod, {"example.com/gpu": "gpu"})


def ports_of_a_service(count: int) -> Callable[[], object]:
    ports = [
        {"port": number + 1, "nodePort": 30000 + number, "protocol": protocol}
        for number in range(count)
        for protocol in ("TCP", "UDP")
    ]
    obj = {"metadata": {"name": "s", "namespace": "n"}, "spec": {"type": "NodePort", "ports": ports}}
    return lambda: NodePorts(range(30000, 32000)).assign(obj, set(), ServiceAllocations("n/s"))


def addresses_and_ports(count: int) -> Callable[[], object]:
    subset = {
        "addresses": [{"ip": f"10.0.0.{number}"} for number in range(count)],
        "ports": [{"port": number + 1} for number in range(count)],
    }
    return lambda: endpoints._text([subset])


def queries_of_logs(count: int) -> Callable[[], object]:
    names = [f"s{number}" for number in range(count)] + [f"/f{number}" for number in range(count)]

    def read() -> None:
        with pytest.raises(Exception, match="query"):
            LogQuery.read([("query", name) for name in names], Path("/nowhere"))

    return read


def secrets_of_pullers(count: int) -> Callable[[], object]:
    """Return the comparison of a pod's secrets with those that have pulled an image."""
    pullers = Pullers(
        kubernetes_secrets=[
            PullSecret(uid=f"u{number}", namespace="n", name=f"s{number}", credential_hash=f"h{number}")
            for number in range(count)
        ]
    )
    record = PulledRecord("ImagePulledRecord", "v1", "now", "id", {without_tag("r.test/app:1"): pullers})
    access = ImageAccess(Path("/nowhere"), lambda: "now", "AlwaysVerify", ())
    access._records._records["id"] = record
    given = [
        Credential("r.test", "u", "p", source=Source(SECRET, f"other-{number}", "n", f"s{number}"))
        for number in range(count)
    ]
    return lambda: access.allows("r.test/app:1", "id", given)


def terms_of_a_gated_pod(count: int) -> Callable[[], object]:
    terms = [{"key": f"k{number}", "operator": "Exists"} for number in range(count)]

    def spec(expressions: list[dict[str, str]]) -> dict[str, Any]:
        required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
        return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}

    return lambda: validate_gated_placement(spec(terms[::-1]), spec(terms))


CASES = [
    owners_of_a_claim,
    tolerations_of_a_runtime_class,
    selectors_of_devices,
    shared_devices,
    ports_of_a_service,
    addresses_and_ports,
    queries_of_logs,
    secrets_of_pullers,
    terms_of_a_gated_pod,
]


@pytest.mark.parametrize("prepare", CASES)
def test_lists_that_agree_are_looked_up_in_proportion_to_their_lengths(
    prepare: Callable[[int], Callable[[], object]],
) -> None:
    def steps(count: int) -> int:
        global _entries
        work = prepare(count)
        _entries = 0
        with Lines() as lines:
            work()
        return lines.count + _entries

    steps(2)  # what is made once and kept does not count
    few, more, many = (steps(count) for count in COUNTS)
    assert few <= more <= many and (many - more - 2 * (more - few)) / (6 * COUNTS[0] ** 2) < STEEPEST
