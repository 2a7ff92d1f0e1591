"""allocatedResources and resources of a pod's status."""

from __future__ import annotations

from typing import Any

from agent.lifecycle.resize import PendingResize
from agent.status.container import StatusInputs
from agent.status.pod import NodeFacts, pod_status
from agent.status.pod_resources import pod_requests
from kube.api import core_v1
from tests.unit.agent.pods import NOTHING, pod, record, runtime


def sized(name: str = "main", requests: Any = None, limits: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def status(given: core_v1.Pod, *, runs: bool = True, **known: Any) -> core_v1.PodStatus:
    records = [record(c.name) for c in (*given.spec.init_containers, *given.spec.containers)]
    return pod_status(given, runtime(*records) if runs else NOTHING, StatusInputs(**known), NodeFacts(), 100.0)


def shown(found: core_v1.PodStatus) -> tuple[Any, Any, Any]:
    assert found.resources is not None
    return found.allocated_resources, found.resources.requests, found.resources.limits


SMALL = {"cpu": "100m", "memory": "64Mi"}


def test_requests_are_summed_exactly_in_the_form_of_the_first() -> None:
    side = sized("side", {"cpu": "250m", "memory": "64Mi"}, restartPolicy="Always")
    setup = sized("setup", {"memory": "1Gi", "ephemeral-storage": "1Gi"})
    given = pod(sized("a", SMALL), sized("b", {"cpu": "1", "memory": "500k"}), init=[side, setup])
    assert pod_requests(given) == {"cpu": "1350m", "memory": "1088Mi", "ephemeral-storage": "1Gi"}
    over = pod(sized("a", {"memory": "10m"}), overhead={"cpu": "10m", "memory": "20m"})
    assert pod_requests(over) == {"cpu": "10m", "memory": "30m"}


def test_the_resources_of_the_pod_stand_for_those_of_its_containers() -> None:
    own = {"requests": {"cpu": "4m", "memory": "10m"}}
    given = pod(sized(requests={"cpu": "2m"}), resources=own)
    assert shown(status(given)) == (own["requests"], own["requests"], {})
    assert shown(status(given, runs=False)) == (own["requests"], own["requests"], {})


def test_a_pod_without_requests_has_no_resources() -> None:
    found = status(pod())
    assert shown(found) == ({}, {}, {}) and found.resources == core_v1.ResourceRequirements()


def test_a_running_pod_shows_limits_only_where_its_cgroup_has_one() -> None:
    given = pod(sized("a", SMALL, {"cpu": "1", "memory": "1Gi"}), sized("b", SMALL, {"cpu": "500m"}))
    requests = {"cpu": "200m", "memory": "128Mi"}
    assert shown(status(given)) == (requests, requests, {"cpu": "1500m"})
    assert shown(status(given, runs=False)) == (requests, requests, {"cpu": "1500m", "memory": "1Gi"})
    least = pod(sized(requests={"cpu": "1m"}, limits={"cpu": "5m"}))
    assert shown(status(least)) == ({"cpu": "1m"}, {}, {}), "a cgroup has no less than 2m and 10m"


def test_during_a_resize_the_allocated_and_the_actual_size_are_shown() -> None:
    before, wanted = ({"requests": {"cpu": cpu}, "limits": {"cpu": "2"}} for cpu in ("1", "2"))
    old, new = pod(resources=before), pod(resources=wanted)
    running = status(new, actual=old)
    assert shown(running) == ({"cpu": "2"}, {"cpu": "1"}, {"cpu": "2"})
    assert [c.type for c in running.conditions if c.type.startswith("PodResize")] == ["PodResizeInProgress"]
    held = status(new, allocated=old, pending_resize=PendingResize("Deferred", "full"))
    assert shown(held) == ({"cpu": "1"}, {"cpu": "1"}, {"cpu": "2"})
    both = status(new, allocated=old, actual=old, pending_resize=PendingResize("Deferred", "full"), resize_error="no")
    found = {c.type: (c.reason, c.message) for c in both.conditions if c.type.startswith("PodResize")}
    assert found == {"PodResizePending": ("Deferred", "full"), "PodResizeInProgress": ("Error", "no")}


def test_a_container_shows_its_allocated_and_actual_resources_without_inherited_limits() -> None:
    given = pod(sized("main", {"cpu": "2"}), resources={"limits": {"cpu": "4"}})
    actuated = core_v1.ResourceRequirements(requests={"cpu": "1"}, limits={"cpu": "3"})
    (found,) = status(given, actuated={"main-0": actuated}).container_statuses
    assert found.allocated_resources == {"cpu": "2"}
    assert found.resources == core_v1.ResourceRequirements(requests={"cpu": "1"})
