"""Claims of a pod are looked up by entry: a pod of many takes no longer for each of them.

Steps are lines of Python and comparisons of texts, as with large objects.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from agent.claims import pod_claims
from agent.claims.checkpoint import ClaimDevice, ClaimInfo
from agent.claims.device_health import DeviceHealthCache
from agent.claims.manager import ClaimManager
from agent.container_manager import health
from agent.podresources import report
from control.controllers.context import Context
from control.controllers.resource_claims import claims
from control.controllers.statefulset import StatefulSetController
from control.scheduler import hints
from control.scheduler.podinfo import PodInfo
from kube.api import apps_v1, core_v1, meta_v1, resource_v1
from tests.support.memory_api import MemoryAPI
from tests.unit.cost.test_large_objects import COUNTS, STEEPEST, Steps, Text


def using(count: int) -> core_v1.Pod:
    """Return a pod with so many claims that were made from a template."""
    entries = [core_v1.PodResourceClaim(name=Text(f"c{n}"), resource_claim_template_name="t") for n in range(count)]
    made = [core_v1.PodResourceClaimStatus(name=Text(f"c{n}"), resource_claim_name=f"p-c{n}") for n in range(count)]
    return core_v1.Pod(
        metadata=meta_v1.ObjectMeta(name="p", namespace="default", uid="u"),
        spec=core_v1.PodSpec(resource_claims=entries),
        status=core_v1.PodStatus(resource_claim_statuses=made),
    )


def indexed(count: int) -> Callable[[], object]:
    given = using(count)
    return lambda: claims._claims(given)


def hinted(count: int) -> Callable[[], object]:
    claim = resource_v1.ResourceClaim(metadata=meta_v1.ObjectMeta(name="other", namespace="default"))
    given = PodInfo(using(count))
    return lambda: hints._uses(given, claim)


def prepared(count: int) -> Callable[[], object]:
    given = using(count)
    return lambda: pod_claims.names_of(given)


def sharing(count: int) -> tuple[core_v1.Pod, ClaimManager]:
    """Return a pod of so many entries for one claim, of so many containers, each of which uses many of the claim's requests."""
    given, drivers = using(count), SimpleNamespace(health=DeviceHealthCache(lambda: None))
    manager = ClaimManager(cast(Any, None), cast(Any, drivers), Path("/nowhere"))
    devices = [ClaimDevice("pool", f"d{n}", (f"r{n}",), (f"v.com/x={n}",)) for n in range(count)]
    for n in range(count):
        given.status.resource_claim_statuses[n].resource_claim_name = "p-c"
    manager._claims["default", "p-c"] = ClaimInfo("cu", "p-c", "default", {"u"}, {"driver": devices}, prepared=True)
    uses = [core_v1.ResourceClaim(name=Text("c0"), request=f"r{n}") for n in range(count)]
    mappings = [
        core_v1.ContainerExtendedResourceRequest(
            container_name=Text(f"c{n}"), resource_name="example.com/gpu", request_name=f"r{n}"
        )
        for n in range(count)
    ]
    given.status.extended_resource_claim_status = core_v1.PodExtendedResourceClaimStatus(
        request_mappings=mappings, resource_claim_name="p-c"
    )
    for n in range(count):
        resources = core_v1.ResourceRequirements(claims=[core_v1.ResourceClaim(name=Text(f"c{n}"), request=f"r{n}")])
        given.spec.containers.append(core_v1.Container(name=Text(f"c{n}"), image="i", resources=resources))
    given.spec.containers[0].resources = core_v1.ResourceRequirements(claims=uses)
    return given, manager


def reported(count: int) -> Callable[[], object]:
    given, manager = sharing(count)
    plugins: Any = SimpleNamespace(of=lambda uid, name: [])
    shown = [core_v1.ContainerStatus(name=c.name, image="i", image_id="i") for c in given.spec.containers]
    status = core_v1.PodStatus(container_statuses=shown)
    return lambda: health.report(plugins, manager, given, status, 0.0)


def listed(count: int) -> Callable[[], object]:
    given, manager = sharing(count)
    given.spec.containers[0].resources = None
    manager._claims["default", "p-c"].drivers = {}
    none: Any = SimpleNamespace(of=lambda uid, name: [], exclusive=lambda *_: (), blocks=lambda *_: ())
    managers: Any = SimpleNamespace(devices=none, cpu=none, memory=none, claims=manager)
    return lambda: report.of_pod(managers, given)


@pytest.mark.parametrize("prepare", [indexed, hinted, prepared, reported, listed])
def test_what_is_done_for_each_claim_of_a_pod_is_linear_in_their_number(
    prepare: Callable[[int], Callable[[], object]],
) -> None:
    def steps(count: int) -> int:
        work = prepare(count)
        with Steps() as lines:
            work()
        return lines.count

    few, more, many = (steps(count) for count in COUNTS)
    assert few < more < many and (many - more - 2 * (more - few)) / (6 * COUNTS[0] ** 2) < STEEPEST


async def test_claims_of_a_set_are_looked_up_once_for_all_its_replicas() -> None:
    templates = [core_v1.PersistentVolumeClaim(metadata=meta_v1.ObjectMeta(name=f"v{n}")) for n in range(50)]
    few = apps_v1.StatefulSet(
        metadata=meta_v1.ObjectMeta(name="db", namespace="default"),
        spec=apps_v1.StatefulSetSpec(replicas=1, volume_claim_templates=templates),
    )
    many = msgspec.structs.replace(few, spec=msgspec.structs.replace(few.spec, replicas=1000))
    controller = StatefulSetController(Context(MemoryAPI().client()))

    def steps(given: apps_v1.StatefulSet) -> int:
        with Steps() as lines:
            controller._reserved(given)
        return lines.count

    assert steps(many) == steps(few)
