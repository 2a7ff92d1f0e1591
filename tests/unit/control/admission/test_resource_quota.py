from __future__ import annotations

import asyncio
from typing import Any

import pytest

from control.admission import quota as quotas
from control.admission.quota_claims import DEVICES_OF_CLASS
from control.admission.resource_quota import ResourceQuota
from kube.errors import StatusError
from kube.json_object import Object
from tests.support.lookup import Objects, attributes


def quota(hard: Object, used: Object | None = None, name: str = "q", **spec: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": dict.fromkeys(hard, "0") | (used or {})},
    }


def pod(name: str = "web", requests: Object | None = None, limits: Object | None = None, **spec: Any) -> Object:
    resources = {k: v for k, v in (("requests", requests), ("limits", limits)) if v}
    containers = [{"name": "c", "resources": resources}]
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": {"containers": containers, **spec}}


def devices(*requests: Object) -> Object:
    return {"metadata": {"name": "c", "namespace": "shop"}, "spec": {"devices": {"requests": list(requests)}}}


async def create(objects: Objects, obj: Object, target: str = "pods", **more: Any) -> str:
    """Charge one object and return why it was refused, "" where it was not."""
    plugin = ResourceQuota(objects)
    request = attributes(target, obj=obj, **more)
    try:
        if plugin.handles(request):
            await plugin.validate(request)
    except StatusError as error:
        assert error.code == 403
        return error.message
    return ""


def used(objects: Objects, name: str = "q") -> Object:
    found = objects.get("resourcequotas", "shop", name)
    assert found is not None
    status: Object = found["status"]["used"]
    return status


async def test_what_is_let_in_is_charged() -> None:
    objects = Objects(("resourcequotas", quota({"pods": "2", "requests.cpu": "1", "limits.memory": "1Gi"})))
    assert await create(objects, pod(requests={"cpu": "400m"}, limits={"memory": "512Mi"})) == ""
    assert used(objects) == {"pods": "1", "requests.cpu": "400m", "limits.memory": "512Mi"}


async def test_what_is_too_much_is_refused_in_upstreams_words() -> None:
    objects = Objects(("resourcequotas", quota({"pods": "5"}, {"pods": "5"})))
    assert await create(objects, pod()) == (
        'pods "web" is forbidden: exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5'
    )
    objects = Objects(("resourcequotas", quota({"requests.cpu": "1", "pods": "9"}, {"requests.cpu": "800m"})))
    assert (await create(objects, pod(requests={"cpu": "500m"}))).endswith(
        "exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=800m, limited: requests.cpu=1"
    )
    assert used(objects)["requests.cpu"] == "800m"


async def test_a_compute_quota_requires_requests_of_every_container() -> None:
    objects = Objects(("resourcequotas", quota({"limits.cpu": "1", "requests.memory": "1Gi"})))
    assert (await create(objects, pod())).endswith(
        "failed quota: q: must specify limits.cpu for: c; requests.memory for: c"
    )


async def test_a_quota_nobody_has_counted_yet_lets_nothing_in() -> None:
    objects = Objects(("resourcequotas", quota({"pods": "5"}) | {"status": {}}))
    assert (await create(objects, pod())).endswith("status unknown for quota: q, resources: pods")


async def test_if_one_quota_refuses_none_is_charged() -> None:
    objects = Objects(
        ("resourcequotas", quota({"pods": "5"}, name="a")),
        ("resourcequotas", quota({"pods": "1"}, {"pods": "1"}, name="b")),
    )
    assert "exceeded quota: b" in await create(objects, pod())
    assert used(objects, "a") == {"pods": "0"}


async def test_a_dry_run_charges_nothing() -> None:
    objects = Objects(("resourcequotas", quota({"pods": "1"})))
    assert await create(objects, pod(), dry_run=True) == ""
    assert used(objects) == {"pods": "0"}


async def test_the_last_place_is_given_once() -> None:
    objects = Objects(("resourcequotas", quota({"pods": "3"})))
    plugin = ResourceQuota(objects)
    requests = [attributes("pods", obj=pod(f"p{n}")) for n in range(10)]
    outcomes = await asyncio.gather(*(plugin.validate(r) for r in requests), return_exceptions=True)
    assert sum(o is None for o in outcomes) == 3 and used(objects) == {"pods": "3"}


async def test_a_quota_another_server_has_just_charged_is_read_again() -> None:
    class Behind(Objects):
        """A cache that still shows the quota as it was."""

        def list(self, target: str, namespace: str = "") -> Any:
            return [quota({"pods": "2"}) | {"metadata": {"name": "q", "namespace": "shop", "resourceVersion": "0"}}]

    objects = Behind(("resourcequotas", quota({"pods": "2"}, {"pods": "1"})))
    assert await create(objects, pod("a")) == "" and used(objects) == {"pods": "2"}
    assert "exceeded quota" in await create(objects, pod("b")) and used(objects) == {"pods": "2"}


@pytest.mark.parametrize(
    "spec, made, counted",
    [
        ({"scopes": ["BestEffort"]}, pod(), True),
        ({"scopes": ["BestEffort"]}, pod(requests={"cpu": "1"}), False),
        ({"scopes": ["NotBestEffort"]}, pod(limits={"memory": "1"}), True),
        ({"scopes": ["Terminating"]}, pod(activeDeadlineSeconds=5), True),
        ({"scopes": ["NotTerminating"]}, pod(activeDeadlineSeconds=5), False),
        ({"scopes": ["BestEffort", "Terminating"]}, pod(), False),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["a"]}]
                }
            },
            pod(priorityClassName="a"),
            True,
        ),
        (
            {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}},
            pod(),
            False,
        ),
    ],
)
async def test_quota_scopes_select_the_pods_that_count(spec: Object, made: Object, counted: bool) -> None:
    objects = Objects(("resourcequotas", quota({"pods": "5"}, **spec)))
    assert await create(objects, made) == ""
    assert used(objects) == {"pods": "1" if counted else "0"}


@pytest.mark.parametrize(
    "target, obj, expected",
    [
        ("configmaps", {}, {"count/configmaps": "1", "configmaps": "1"}),
        ("deployments.apps", {}, {"count/deployments.apps": "1"}),
        (
            "services",
            {"spec": {"type": "NodePort", "ports": [{}, {}]}},
            {"count/services": "1", "services": "1", "services.nodeports": "2"},
        ),
        (
            "services",
            {"spec": {"type": "LoadBalancer", "ports": [{}]}},
            {"count/services": "1", "services": "1", "services.loadbalancers": "1", "services.nodeports": "1"},
        ),
        (
            "persistentvolumeclaims",
            {"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}},
            {
                "count/persistentvolumeclaims": "1",
                "persistentvolumeclaims": "1",
                "requests.storage": "1Gi",
                "fast.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
                "fast.storageclass.storage.k8s.io/requests.storage": "1Gi",
            },
        ),
        (
            "pods",
            pod(requests={"cpu": "500m", "nvidia.com/gpu": "1"}, limits={"memory": "1Gi"}),
            {
                "count/pods": "1",
                "pods": "1",
                "cpu": "500m",
                "requests.cpu": "500m",
                "requests.nvidia.com/gpu": "1",
                "limits.memory": "1Gi",
            },
        ),
        ("pods", pod() | {"status": {"phase": "Succeeded"}}, {"count/pods": "1"}),
        (
            "persistentvolumeclaims",
            {
                "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}},
                "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1500m"}}},
                "status": {"allocatedResources": {"storage": "2500m"}},
            },
            {
                "count/persistentvolumeclaims": "1",
                "persistentvolumeclaims": "1",
                "requests.storage": "3",
                "old.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
                "old.storageclass.storage.k8s.io/requests.storage": "3",
            },
        ),
        (
            "resourceclaims.resource.k8s.io",
            devices(
                {"exactly": {"deviceClassName": "gpu"}},
                {"exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 3}},
                {"exactly": {"deviceClassName": "nic", "allocationMode": "All"}},
                {"exactly": {"deviceClassName": "tpu", "allocationMode": "Later", "count": 7}},
                {
                    "firstAvailable": [
                        {"deviceClassName": "gpu", "count": 4},
                        {"deviceClassName": "gpu", "count": 2},
                        {"deviceClassName": "fpga", "count": 5},
                    ]
                },
            ),
            {
                "count/resourceclaims.resource.k8s.io": "1",
                f"gpu{DEVICES_OF_CLASS}": "8",
                f"nic{DEVICES_OF_CLASS}": "32",
                f"tpu{DEVICES_OF_CLASS}": "0",
                f"fpga{DEVICES_OF_CLASS}": "5",
            },
        ),
    ],
)
def test_what_things_cost(target: str, obj: Object, expected: Object) -> None:
    assert quotas.render(quotas.usage(target, obj)) == expected


async def test_devices_are_charged_by_class() -> None:
    name = f"gpu{DEVICES_OF_CLASS}"
    objects = Objects(("resourcequotas", quota({name: "4"})))
    claim = devices({"exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 3}})
    assert await create(objects, claim, "resourceclaims.resource.k8s.io") == ""
    assert used(objects) == {name: "3"}
    assert await create(objects, claim, "resourceclaims.resource.k8s.io") == (
        'resourceclaims.resource.k8s.io "c" is forbidden: exceeded quota: q, '
        f"requested: {name}=3, used: {name}=3, limited: {name}=4"
    )


def with_class(name: str | None = None, **status: Any) -> Object:
    spec = {"volumeAttributesClassName": name} if name else {}
    return {"metadata": {"name": "data", "namespace": "shop"}, "spec": spec, "status": status}


@pytest.mark.parametrize(
    "operator, values, claim, counted",
    [
        ("In", ["gold"], with_class("gold"), True),
        ("In", ["gold"], with_class("silver"), False),
        ("In", ["gold"], with_class(), False),
        ("In", ["gold"], with_class("silver", currentVolumeAttributesClassName="gold"), True),
        (
            "In",
            ["gold"],
            with_class("silver", modifyVolumeStatus={"targetVolumeAttributesClassName": "gold"}),
            True,
        ),
        ("NotIn", ["gold"], with_class("gold"), False),
        ("NotIn", ["gold"], with_class("silver"), True),
        ("NotIn", ["gold"], with_class(), True),
        ("Exists", [], with_class("gold"), True),
        ("Exists", [], with_class(), False),
        ("DoesNotExist", [], with_class(), True),
        ("DoesNotExist", [], with_class("gold"), False),
    ],
)
async def test_a_scope_chooses_volume_claims_by_attributes_class(
    operator: str, values: list[str], claim: Object, counted: bool
) -> None:
    term = {"scopeName": "VolumeAttributesClass", "operator": operator, "values": values}
    objects = Objects(
        ("resourcequotas", quota({"persistentvolumeclaims": "5"}, scopeSelector={"matchExpressions": [term]}))
    )
    assert await create(objects, claim, "persistentvolumeclaims") == ""
    assert used(objects) == {"persistentvolumeclaims": "1" if counted else "0"}


async def test_a_claim_that_enters_a_scope_costs_all_that_it_uses() -> None:
    term = {"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["gold"]}
    objects = Objects(
        ("resourcequotas", quota({"persistentvolumeclaims": "1"}, scopeSelector={"matchExpressions": [term]}))
    )
    plugin = ResourceQuota(objects)
    for old, charged in (("silver", "1"), ("gold", "1")):
        await plugin.validate(attributes("persistentvolumeclaims", "UPDATE", with_class("gold"), with_class(old)))
        assert used(objects) == {"persistentvolumeclaims": charged}
    with pytest.raises(StatusError, match="exceeded quota: q"):
        await plugin.validate(attributes("persistentvolumeclaims", "UPDATE", with_class("gold"), with_class("silver")))


async def test_growing_a_claim_costs_the_difference() -> None:
    def claim(size: str) -> Object:
        spec = {"resources": {"requests": {"storage": size}}}
        return {"metadata": {"name": "data", "namespace": "shop"}, "spec": spec}

    objects = Objects(("resourcequotas", quota({"requests.storage": "10Gi"}, {"requests.storage": "2Gi"})))
    plugin = ResourceQuota(objects)
    await plugin.validate(attributes("persistentvolumeclaims", "UPDATE", claim("5Gi"), claim("2Gi")))
    assert used(objects) == {"requests.storage": "5Gi"}
    await plugin.validate(attributes("persistentvolumeclaims", "UPDATE", claim("1Gi"), claim("5Gi")))
    assert used(objects) == {"requests.storage": "5Gi"}


async def test_resizing_a_pod_costs_the_difference() -> None:
    objects = Objects(("resourcequotas", quota({"requests.cpu": "1"}, {"requests.cpu": "400m"})))
    plugin = ResourceQuota(objects)

    def resize(cpu: str) -> Any:
        return attributes(
            "pods", "UPDATE", pod(requests={"cpu": cpu}), pod(requests={"cpu": "200m"}), subresource="resize"
        )

    assert plugin.handles(resize("700m"))
    await plugin.validate(resize("700m"))
    assert used(objects) == {"requests.cpu": "900m"}
    with pytest.raises(StatusError):
        await plugin.validate(resize("900m"))


async def test_what_is_not_stored_is_not_counted() -> None:
    for target in ("bindings", "localsubjectaccessreviews.authorization.k8s.io"):
        objects = Objects(("resourcequotas", quota({f"count/{target}": "0"})))
        assert await create(objects, {"metadata": {"name": "x", "namespace": "shop"}}, target) == ""


async def test_events_are_not_counted() -> None:
    for target in ("events", "events.events.k8s.io"):
        objects = Objects(("resourcequotas", quota({f"count/{target}": "0"})))
        event = {"metadata": {"name": "e", "namespace": "shop"}}
        assert await create(objects, event, target) == ""


async def test_a_pod_that_gets_a_deadline_is_charged_to_the_quota_of_terminating_pods() -> None:
    objects = Objects(("resourcequotas", quota({"pods": "1"}, scopes=["Terminating"])))
    plugin = ResourceQuota(objects)
    change = attributes("pods", "UPDATE", pod(activeDeadlineSeconds=5), pod())
    assert plugin.handles(change) and not plugin.handles(attributes("pods", "UPDATE", pod(), pod()))
    await plugin.validate(change)
    assert used(objects) == {"pods": "1"}
    with pytest.raises(StatusError, match="exceeded quota: q"):
        await plugin.validate(change)


POD_LEVEL = {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}


@pytest.mark.parametrize("scope", ["NotBestEffort", "BestEffort"])
async def test_resources_of_the_pod_as_a_whole_decide_its_quality_of_service(scope: str) -> None:
    objects = Objects(("resourcequotas", quota({"pods": "1"}, scopes=[scope])))
    assert await create(objects, pod(resources=POD_LEVEL)) == ""
    assert used(objects) == {"pods": "1" if scope == "NotBestEffort" else "0"}


async def test_resources_of_the_pod_as_a_whole_are_limited_resources() -> None:
    limited = [{"resource": "pods", "matchScopes": [{"scopeName": "NotBestEffort", "operator": "Exists"}]}]
    kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration"}
    plugin = ResourceQuota(Objects(), {**kind, "limitedResources": limited})
    with pytest.raises(StatusError, match="insufficient quota"):
        await plugin.validate(attributes("pods", obj=pod(resources=POD_LEVEL)))
    await plugin.validate(attributes("pods", obj=pod()))


INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}


def resized(requested: str, allocated: str, actual: str, *conditions: Object, sidecar: bool = False) -> Object:
    found = pod(requests={"cpu": requested}, limits={"cpu": requested})
    resources = {"requests": {"cpu": actual}, "limits": {"cpu": actual}}
    status = [{"name": "c", "allocatedResources": {"cpu": allocated}, "resources": resources}]
    if sidecar:
        found["spec"]["initContainers"] = [found["spec"].pop("containers")[0] | {"restartPolicy": "Always"}]
    kind = "initContainerStatuses" if sidecar else "containerStatuses"
    return found | {"status": {"phase": "Running", kind: status, "conditions": list(conditions)}}


@pytest.mark.parametrize("sidecar", [False, True])
@pytest.mark.parametrize(
    ("requested", "allocated", "actual", "conditions", "requests", "limits"),
    [
        ("1", "1", "1", (), "1", "1"),
        ("1", "4", "4", (), "4", "4"),
        ("4", "1", "1", (), "4", "4"),
        ("1", "4", "2", (), "4", "2"),
        ("9", "4", "2", (INFEASIBLE,), "4", "2"),
    ],
)
def test_a_resized_pod_costs_the_most_of_what_it_requests_and_has(
    requested: str,
    allocated: str,
    actual: str,
    conditions: tuple[Object, ...],
    requests: str,
    limits: str,
    sidecar: bool,
) -> None:
    costs = quotas.render(quotas.usage("pods", resized(requested, allocated, actual, *conditions, sidecar=sidecar)))
    assert (costs["requests.cpu"], costs["limits.cpu"]) == (requests, limits)


def test_a_pod_resized_as_a_whole_costs_the_most_of_what_it_requests_and_has() -> None:
    found = pod(resources={"requests": {"cpu": "1"}, "limits": {"cpu": "1"}})
    has = {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}
    found["status"] = {"resources": has, "allocatedResources": {"cpu": "4"}}
    costs = quotas.render(quotas.usage("pods", found))
    assert (costs["requests.cpu"], costs["limits.cpu"]) == ("4", "3")


async def test_a_resize_after_an_infeasible_one_is_charged() -> None:
    objects = Objects(("resourcequotas", quota({"requests.cpu": "8"}, {"requests.cpu": "1"})))
    old, new = resized("7", "1", "1", INFEASIBLE), resized("6", "1", "1", INFEASIBLE)
    await ResourceQuota(objects).validate(attributes("pods", "UPDATE", new, old, subresource="resize"))
    assert used(objects) == {"requests.cpu": "6"}
