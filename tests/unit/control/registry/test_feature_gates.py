"""Fields and values of features that are off by default: dropped or refused unless the stored object uses them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kube.json_object import Object
from tests.unit.control.registry.strategies import changed, container, created, pod, problems, update_problems

LABELS = {"app": "x"}
BUNDLE = {"name": "a", "path": "ca.pem"}
CERTIFICATE = {"signerName": "example.com/s", "keyType": "ED25519", "credentialBundlePath": "b"}


def workload(kind: str, api_version: str = "apps/v1", **spec: Any) -> Object:
    template = {"metadata": {"labels": LABELS}, "spec": pod(**spec)["spec"]}
    selector = {"matchLabels": LABELS}
    parts = {"template": template, "selector": selector, **({"serviceName": "s"} if kind == "StatefulSet" else {})}
    metadata = {"name": "x", "namespace": "default"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": parts}


def cron_job(**spec: Any) -> Object:
    template = {"spec": pod(restartPolicy="Never", **spec)["spec"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "x", "namespace": "default"},
        "spec": {"schedule": "@daily", "jobTemplate": {"spec": {"template": template}}},
    }


def projected(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "projected": {"sources": [source]}}]}


def rolling(**fields: Any) -> Object:
    found = workload("StatefulSet")
    found["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": fields}
    return found


def resource_slice(**device: Any) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "x"},
        "spec": {
            "driver": "d.example.com",
            "nodeName": "n",
            "pool": {"name": "p", "resourceSliceCount": 1},
            "devices": [{"name": "a", **device}],
        },
    }


def at(obj: Any, path: str) -> Any:
    """Return the value at a path, None if there is none."""
    for step in path.split("."):
        if obj is None:
            return None
        obj = obj[int(step)] if step.isdigit() else obj.get(step)
    return obj


STOP = {"lifecycle": {"stopSignal": "SIGINT"}}
SOURCE = "spec.volumes.0.projected.sources.0"
DROPPED: list[tuple[str, Object, str]] = [
    ("ContainerStopSignals", pod(os={"name": "linux"}, containers=[container(**STOP)]), "spec.containers.0.lifecycle"),
    (
        "ContainerStopSignals",
        workload("Deployment", os={"name": "linux"}, containers=[container(**STOP)]),
        "spec.template.spec.containers.0.lifecycle",
    ),
    (
        "ContainerStopSignals",
        cron_job(os={"name": "linux"}, initContainers=[container(name="i", **STOP)]),
        "spec.jobTemplate.spec.template.spec.initContainers.0.lifecycle",
    ),
    ("ClusterTrustBundleProjection", pod(**projected(clusterTrustBundle=BUNDLE)), f"{SOURCE}.clusterTrustBundle"),
    ("PodCertificateRequest", pod(**projected(podCertificate=CERTIFICATE)), f"{SOURCE}.podCertificate"),
    ("GenericWorkload", pod(schedulingGroup={"podGroupName": "g"}), "spec.schedulingGroup"),
    (
        "MaxUnavailableStatefulSet",
        rolling(maxUnavailable=2, partition=0),
        "spec.updateStrategy.rollingUpdate.maxUnavailable",
    ),
    ("DRAListTypeAttributes", resource_slice(attributes={"a": {"ints": [1]}}), "spec.devices.0.attributes.a.ints"),
    (
        "DRANodeAllocatableResources",
        resource_slice(nodeAllocatableResourceMappings={"cpu": {}}),
        "spec.devices.0.nodeAllocatableResourceMappings",
    ),
]


@pytest.mark.parametrize(("gate", "obj", "path"), DROPPED, ids=[f"{g} {o['kind']}" for g, o, _ in DROPPED])
def test_fields_of_gates_that_are_off_are_dropped(gate: str, obj: Object, path: str) -> None:
    assert at(created(obj), path) is None
    assert at(created(obj, gate), path) is not None


@pytest.mark.parametrize(("gate", "obj", "path"), DROPPED, ids=[f"{g} {o['kind']}" for g, o, _ in DROPPED])
def test_an_update_keeps_what_the_stored_object_uses(gate: str, obj: Object, path: str) -> None:
    stored = created(obj, gate)
    assert at(changed(stored, obj), path) == at(stored, path)
    without = created(obj)
    assert at(changed(without, obj), path) is None


def test_the_rest_of_a_lifecycle_stays() -> None:
    hook = {"sleep": {"seconds": 1}}
    found = created(pod(containers=[container(lifecycle={"stopSignal": "SIGINT", "preStop": hook})]))
    assert found["spec"]["containers"][0]["lifecycle"] == {"preStop": hook}


def test_statuses_of_gates_that_are_off_are_dropped() -> None:
    old = created(pod())
    new = copy.deepcopy(old)
    mount = {"name": "v", "mountPath": "/m", "volumeStatus": {"image": {"imageRef": "r"}}}
    claim = {"resourceClaimName": "c", "resources": {"cpu": "1"}}
    new["status"] |= {
        "containerStatuses": [{"name": "c", "volumeMounts": [mount]}],
        "nodeAllocatableResourceClaimStatuses": [claim],
    }
    status = changed(old, new, subresource="status")["status"]
    assert status["containerStatuses"][0]["volumeMounts"] == [{"name": "v", "mountPath": "/m"}]
    assert "nodeAllocatableResourceClaimStatuses" not in status


GATE = "TaintTolerationComparisonOperators"
UNSUPPORTED = 'spec.tolerations[0].operator: Unsupported value: "Gt": supported values: "Equal", "Exists", "Lt", "Gt"'
VALUES = [
    ("5", []),
    ("", ['Invalid value: "": must be non-empty', 'Invalid value: "": strconv.ParseInt: parsing "": invalid syntax']),
    ("07", ['Invalid value: "07": must be a valid decimal integer in canonical form']),
    ("9223372036854775807", []),
    (
        "9223372036854775808",
        [
            'Invalid value: "9223372036854775808": strconv.ParseInt: parsing "9223372036854775808": value out of range',
        ],
    ),
    (
        "x",
        [
            'Invalid value: "x": must be a valid decimal integer in canonical form',
            'Invalid value: "x": strconv.ParseInt: parsing "x": invalid syntax',
        ],
    ),
]


def tolerating(value: str) -> Object:
    return pod(tolerations=[{"key": "k", "operator": "Gt", "value": value, "effect": "NoSchedule"}])


@pytest.mark.parametrize(("value", "expected"), VALUES)
def test_comparisons_of_tolerations(value: str, expected: list[str]) -> None:
    assert problems(tolerating(value)) == [UNSUPPORTED]
    assert problems(tolerating(value), GATE) == [f"spec.tolerations[0].value: {text}" for text in expected]


def test_stored_comparisons_of_tolerations_stay_changeable() -> None:
    old = created(tolerating("5"), GATE)
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"a": "b"}
    assert not update_problems(old, new)
    plain = created(pod())
    added = copy.deepcopy(plain)
    added["spec"]["tolerations"] = old["spec"]["tolerations"]
    assert update_problems(plain, added) == [UNSUPPORTED]


def test_other_operators_are_not_offered() -> None:
    wrong = pod(tolerations=[{"key": "k", "operator": "Is", "value": "v"}])
    text = 'spec.tolerations[0].operator: Unsupported value: "Is": supported values: "Equal", "Exists"'
    assert problems(wrong) == [text] == problems(wrong, GATE)
