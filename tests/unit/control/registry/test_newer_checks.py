"""Checks that came with features which v1.33 to v1.36 enable by default: the object, and the exact errors."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kube.json_object import Object
from tests.unit.control.registry.strategies import container, created, pod, problems, update_problems

HOST_USERS = "when `hostUsers` is false"
RULE = {"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}
FEATURE = (
    "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or "
    "MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
)


def obj(api_version: str, kind: str, **parts: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "namespace": "default"}, **parts}


def csi_driver(**spec: Any) -> Object:
    return obj("storage.k8s.io/v1", "CSIDriver", spec=spec)


def csi_node(**parts: Any) -> Object:
    return obj("storage.k8s.io/v1", "CSINode", spec={"drivers": [{"name": "d", "nodeID": "n", **parts}]})


def with_devices(**spec: Any) -> Object:
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    return pod(volumes=[claim], containers=[container(volumeDevices=[{"name": "v", "devicePath": "/d"}])], **spec)


def with_rules(*rules: Object) -> Object:
    return pod(containers=[container(restartPolicy="Never", restartPolicyRules=list(rules))])


def node(*features: str) -> Object:
    return obj("v1", "Node", status={"declaredFeatures": list(features)})


REFUSED: list[tuple[Object, list[str]]] = [
    (
        with_devices(hostUsers=False, hostNetwork=True, hostPID=True, hostIPC=True),
        [
            f"spec.hostNetwork: Forbidden: {HOST_USERS}",
            f"spec.HostPID: Forbidden: {HOST_USERS}",
            f"spec.HostIPC: Forbidden: {HOST_USERS}",
            f"spec.containers[0].volumeDevices: Forbidden: {HOST_USERS}",
        ],
    ),
    (with_devices(), []),
    (
        pod(hostnameOverride="a", setHostnameAsFQDN=True),
        ["spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true"],
    ),
    (pod(hostnameOverride="a" * 65), ["spec.hostnameOverride: Too long: may not be more than 64 bytes"]),
    (with_rules(*[RULE] * 20), []),
    (
        with_rules(*[RULE] * 21),
        ["spec.containers[0].restartPolicyRules: Too many: 21: must have at most 20 items"],
    ),
    (
        with_rules({"action": "Restart", "exitCodes": {"operator": "In", "values": [1] * 256}}),
        ["spec.containers[0].restartPolicyRules[0].exitCodes.values: Too many: 256: must have at most 255 items"],
    ),
    (
        pod(os={"name": "windows"}, resources={"requests": {"cpu": "1"}}),
        ["spec.resources: Forbidden: may not be set for a windows pod"],
    ),
    (
        pod(resources={"claims": [], "requests": {"cpu": "1"}}),
        ["spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level"],
    ),
    (
        pod(
            resources={
                "requests": {"cpu": "1", "hugepages-2Mi": "2Mi"},
                "limits": {"cpu": "1", "hugepages-2Mi": "2Mi"},
            },
            containers=[container(resources={"limits": {"cpu": "1", "hugepages-2Mi": "4Mi"}})],
        ),
        [
            'spec.resources.requests[hugepages-2Mi]: Invalid value: "2Mi": must be greater than or equal to aggregate '
            "container requests of 4Mi",
            'spec.resources.limits[hugepages-2Mi]: Invalid value: "2Mi": must be greater than or equal to aggregate '
            "container limits of 4Mi",
            'spec.resources.containers[0][hugepages-2Mi].limits: Invalid value: "4Mi": must be less than or equal to pod '
            "limits of 2Mi",
        ],
    ),
    (
        csi_driver(nodeAllocatableUpdatePeriodSeconds=9, serviceAccountTokenInSecrets=True),
        [
            "spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 9: must be greater than or equal to 10 seconds",
            "spec.serviceAccountTokenInSecrets: Invalid value: true: serviceAccountTokenInSecrets is set but no "
            "tokenRequests are specified",
        ],
    ),
    (
        csi_driver(
            nodeAllocatableUpdatePeriodSeconds=10, serviceAccountTokenInSecrets=True, tokenRequests=[{"audience": "a"}]
        ),
        [],
    ),
    (node("A", "B", "B/cD"), []),
    (
        node("B", "A", "A", "a b"),
        [
            'status.declaredFeatures[1]: Invalid value: "A": list must be sorted alphabetically',
            'status.declaredFeatures[2]: Duplicate value: "A"',
            f'status.declaredFeatures[3]: Invalid value: "a b": invalid feature name "a b": {FEATURE}',
        ],
    ),
]


@pytest.mark.parametrize(("found", "expected"), REFUSED, ids=[f"{o['kind']} {m[:1]}"[:80] for o, m in REFUSED])
def test_a_bad_object_is_refused_in_upstreams_words(found: Object, expected: list[str]) -> None:
    assert problems(found) == expected


def test_a_stored_pod_keeps_block_devices_without_the_users_of_the_host() -> None:
    old = created(with_devices(hostUsers=False))
    changed = copy.deepcopy(old)
    changed["metadata"]["labels"] = {"a": "b"}
    assert update_problems(old, changed) == []


def test_the_count_of_volumes_of_a_node_is_mutable() -> None:
    old = created(csi_node(allocatable={"count": 1}))
    assert update_problems(old, csi_node(allocatable={"count": 2})) == []
    assert update_problems(old, csi_node(allocatable={"count": 2}, topologyKeys=["a"])) == [
        'spec.drivers: Invalid value: {"Name":"d","NodeID":"n","TopologyKeys":["a"],"Allocatable":null}: field is immutable'
    ]


def test_a_driver_keeps_whether_it_attaches_volumes() -> None:
    old = created(csi_driver(attachRequired=True, nodeAllocatableUpdatePeriodSeconds=10))
    assert update_problems(old, csi_driver(attachRequired=False, nodeAllocatableUpdatePeriodSeconds=20)) == [
        "spec.attachedRequired: Invalid value: false: field is immutable"
    ]


ALLOCATED = "status.containerStatuses[0].allocatedResourcesStatus"
HEALTHY = {"resourceID": "a", "health": "Healthy"}


def container_status(**parts: Any) -> Object:
    return {
        "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": True, "restartCount": 0, **parts}]
    }


STATUSES: list[tuple[Object, list[str]]] = [
    ({"observedGeneration": -1}, ["status.observedGeneration: Invalid value: -1: must be a non-negative integer"]),
    (
        {"conditions": [{"type": "Ready", "status": "True", "observedGeneration": -1}]},
        ["status.conditions[0].observedGeneration: Invalid value: -1: must be a non-negative integer"],
    ),
    (
        {"nominatedNodeName": "m"},
        ["status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node"],
    ),
    (container_status(user={"linux": {"uid": 0, "gid": 0, "supplementalGroups": [7]}}), []),
    (
        container_status(user={"linux": {"uid": -1, "gid": 2**31, "supplementalGroups": [-7]}}),
        [
            f"status.containerStatuses[0].user.linux.{field}: Invalid value: {value}: must be between 0 and 2147483647, "
            "inclusive"
            for field, value in (("uid", -1), ("gid", 2**31), ("supplementalGroups[0]", -7))
        ],
    ),
    (container_status(allocatedResourcesStatus=[{"name": "example.com/gpu", "resources": [HEALTHY]}]), []),
    (container_status(allocatedResourcesStatus=[{"name": "claim:one/r", "resources": [HEALTHY]}]), []),
    (
        container_status(
            allocatedResourcesStatus=[
                {"name": "other", "resources": [{**HEALTHY, "health": "Fine"}, {**HEALTHY, "message": ""}]},
                {"name": "claim:one", "resources": [{**HEALTHY, "message": "x" * 1025}]},
            ]
        ),
        [
            f'{ALLOCATED}[0].name: Invalid value: "other": must match one of the container\'s resource requests',
            f'{ALLOCATED}[0].resources[0].health: Unsupported value: "Fine": supported values: "Healthy", "Unhealthy", '
            '"Unknown"',
            f"{ALLOCATED}[0].resources[1].message: Required value: must be non-empty if specified",
            f'{ALLOCATED}[0].resources[1].resourceID: Duplicate value: "a"',
            f'{ALLOCATED}[1].name: Invalid value: "claim:one": must match one of the container\'s resource claims in a '
            "format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty",
            f"{ALLOCATED}[1].resources[0].message: Too long: may not be more than 1024 bytes",
        ],
    ),
]


@pytest.mark.parametrize(("status", "expected"), STATUSES, ids=[str(m[:1])[:80] for _, m in STATUSES])
def test_a_bad_status_of_a_pod_is_refused(status: Object, expected: list[str]) -> None:
    resources = {
        "requests": {"example.com/gpu": "1"},
        "limits": {"example.com/gpu": "1"},
        "claims": [{"name": "one", "request": "r"}],
    }
    claims = [{"name": "one", "resourceClaimName": "c"}]
    old = created(pod(nodeName="n", resourceClaims=claims, containers=[container(resources=resources)]))
    new = copy.deepcopy(old)
    new["status"] |= status
    assert update_problems(old, new, "status") == expected


def test_ephemeral_containers_have_no_allocated_devices() -> None:
    old = created(pod(nodeName="n"))
    new = copy.deepcopy(old)
    found = container_status(allocatedResourcesStatus=[{"name": "a", "resources": []}])["containerStatuses"]
    new["status"]["ephemeralContainerStatuses"] = found
    assert update_problems(old, new, "status") == [
        "status.ephemeralContainerStatuses[0].allocatedResourcesStatus: Forbidden: must not be specified in container status"
    ]
