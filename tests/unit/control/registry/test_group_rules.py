"""Rules of other groups that upstream's own tests check: the object, and the exact errors."""

from __future__ import annotations

import base64
import copy
from typing import Any

import pytest

from kube.json_object import Object
from tests.unit.control.registry.strategies import created, pod, problems, strategy_of, update_problems

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def obj(api_version: str, kind: str, **parts: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "namespace": "default"}, **parts}


def warned(given: Object) -> list[str]:
    return strategy_of(given).warnings(created(given), None)


def autoscaler(api_version: str = "apps/v1", kind: str = "Deployment", *metrics: Object) -> Object:
    target = {"apiVersion": api_version, "kind": kind, "name": "d"}
    spec = {"scaleTargetRef": target, "maxReplicas": 2, **({"metrics": list(metrics)} if metrics else {})}
    return obj("autoscaling/v2", "HorizontalPodAutoscaler", spec=spec)


def described(api_version: str) -> Object:
    target = {"type": "Value", "value": "1"}
    reference = {"apiVersion": api_version, "kind": "Service", "name": "s"}
    return {"type": "Object", "object": {"describedObject": reference, "metric": {"name": "m"}, "target": target}}


def container_metric(name: str) -> Object:
    target = {"type": "Utilization", "averageUtilization": 5}
    return {"type": "ContainerResource", "containerResource": {"name": name, "container": "c", "target": target}}


def attachment(**spec: Any) -> Object:
    source = {"persistentVolumeName": "v"}
    spec = {"attacher": "a", "nodeName": "n", "source": source, **spec}
    return obj("storage.k8s.io/v1", "VolumeAttachment", spec=spec)


def storage_class(**parts: Any) -> Object:
    return obj("storage.k8s.io/v1", "StorageClass", provisioner="p", **parts)


def attributes_class(**parts: Any) -> Object:
    return obj("storage.k8s.io/v1", "VolumeAttributesClass", **{"driverName": "d", "parameters": {"a": "b"}, **parts})


def address(**parent: str) -> Object:
    parent = {"resource": "r", "name": "n", **parent}
    return obj("networking.k8s.io/v1", "IPAddress", spec={"parentRef": parent}) | {"metadata": {"name": "10.0.0.1"}}


def runtime_class(**parts: Any) -> Object:
    return obj("node.k8s.io/v1", "RuntimeClass", **{"handler": "h", **parts})


def ingress(**spec: Any) -> Object:
    backend = {"service": {"name": "s", "port": {"number": 80}}}
    return obj("networking.k8s.io/v1", "Ingress", spec={"defaultBackend": backend, **spec})


def flow_schema(**rule: Any) -> Object:
    user = {"kind": "User", "user": {"name": "u"}}
    usual = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["default"]}
    rules = [{"subjects": [user], "resourceRules": [{**usual, **rule}]}]
    spec = {"priorityLevelConfiguration": {"name": "l"}, "matchingPrecedence": 5, "rules": rules}
    return obj("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", spec=spec)


def priority_level(name: str, **annotations: str) -> Object:
    spec = {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}
    found = obj("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration", spec=spec)
    return found | {"metadata": {"name": name, "annotations": annotations}}


LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
ROUND_TRIP = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"
R = "spec.rules[0].resourceRules[0]"
TWICE = {"key": "k", "operator": "Exists", "effect": "NoExecute"}
CASES: list[tuple[Object, list[str]]] = [
    (
        flow_schema(verbs=["feed"]),
        [
            f'{R}.verbs: Unsupported value: ["feed"]: supported values: "create", "delete", "deletecollection", "get", '
            '"list", "patch", "proxy", "update", "watch"'
        ],
    ),
    (
        flow_schema(namespaces=["a", "*"]),
        [f'{R}.namespaces: Invalid value: ["a","*"]: if \'*\' is present, must not specify other namespaces'],
    ),
    (
        flow_schema(namespaces=["-a"]),
        [
            f"{R}.namespaces[0]: Invalid value: \"-a\": each member of this list must be '*' or a DNS-1123 label; {LABEL}",
        ],
    ),
    (
        priority_level("exempt"),
        ["spec.type: Invalid value: \"Limited\": must be 'Exempt' if and only if `name` is 'exempt'"],
    ),
    (
        priority_level("l", **{ROUND_TRIP: ""}),
        [f"metadata.annotations: Forbidden: annotation '{ROUND_TRIP}' is forbidden"],
    ),
    (autoscaler(), []),
    (
        autoscaler("v1"),
        ['spec.scaleTargetRef.apiVersion: Invalid value: "v1": apiVersion must specify API group'],
    ),
    (autoscaler("v1", "ReplicationController"), []),
    (
        autoscaler("a/b/c"),
        ['spec.scaleTargetRef.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c'],
    ),
    (autoscaler("apps/v1", "Deployment", described("v1")), []),
    (
        autoscaler("apps/v1", "Deployment", described("a/b/c")),
        [
            'spec.metrics[0].object.describedObject.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: '
            "a/b/c"
        ],
    ),
    (
        autoscaler("apps/v1", "Deployment", container_metric("Sand")),
        [
            'spec.metrics[0].containerResource.name: Invalid value: "Sand": must be a standard resource type or fully '
            "qualified",
            'spec.metrics[0].containerResource.name: Invalid value: "Sand": must be a standard resource for containers',
        ],
    ),
    (
        storage_class(parameters={f"k{n}": "" for n in range(513)}),
        ["parameters: Too long: may not be more than 512 bytes"],
    ),
    (
        storage_class(parameters={"k": "v" * 256 * 1024}),
        ["parameters: Too long: may not be more than 262144 bytes"],
    ),
    (
        storage_class(allowedTopologies=[{}]),
        ['allowedTopologies[0].matchLabelExpressions: Duplicate value: ""'],
    ),
    (attributes_class(driverName=" "), [f'driverName: Invalid value: " ": {KEY}']),
    (attributes_class(parameters={"": "v"}), ['parameters: Invalid value: "": field can not be empty.']),
    (
        attachment(source={"persistentVolumeName": "A"}),
        [f'spec.source.persistentVolumeName: Invalid value: "A": {SUBDOMAIN}'],
    ),
    (attachment(nodeName=""), [f'spec.nodeName: Invalid value: "": {SUBDOMAIN}']),
    (
        obj("storage.k8s.io/v1", "CSIStorageCapacity"),
        [f'storageClassName: Invalid value: "": {SUBDOMAIN}'],
    ),
    (
        obj(
            "storage.k8s.io/v1", "CSINode", spec={"drivers": [{"name": "d", "nodeID": "n", "topologyKeys": ["a", "a"]}]}
        ),
        ['spec.drivers[0]: Duplicate value: "a"'],
    ),
    (
        address(group=".a", namespace="a%", name="b%"),
        [
            f'spec.parentRef.group: Invalid value: ".a": {SUBDOMAIN}',
            "spec.parentRef.name: Invalid value: \"b%\": may not contain '%'",
            "spec.parentRef.namespace: Invalid value: \"a%\": may not contain '%'",
        ],
    ),
    (runtime_class(handler=""), ["handler: Required value"]),
    (
        runtime_class(overhead={"podFixed": {"Sand": "1"}}),
        [
            'overhead.limits[Sand]: Invalid value: "Sand": must be a standard resource type or fully qualified',
            'overhead.limits[Sand]: Invalid value: "Sand": must be a standard resource for containers',
        ],
    ),
    (
        runtime_class(scheduling={"tolerations": [TWICE, {**TWICE, "tolerationSeconds": 5}]}),
        [
            'scheduling.tolerations[1]: Duplicate value: {"key":"k","operator":"Exists","effect":"NoExecute",'
            '"tolerationSeconds":5}'
        ],
    ),
    (
        obj("discovery.k8s.io/v1", "EndpointSlice", addressType="IPv4", endpoints=[], ports=[{"appProtocol": "--"}]),
        [f'ports[0].appProtocol: Invalid value: "--": {KEY}'],
    ),
]


@pytest.mark.parametrize(("given", "expected"), CASES)
def test_what_is_wrong_is_named_as_upstream_names_it(given: Object, expected: list[str]) -> None:
    assert problems(given) == expected


def test_warnings_of_storage() -> None:
    term = {"matchLabelExpressions": [{"key": "failure-domain.beta.kubernetes.io/zone", "values": ["z"]}]}
    place = "allowedTopologies[0].matchLabelExpressions[0].key"
    assert warned(storage_class(allowedTopologies=[term])) == [
        f'{place}: deprecated since v1.17; use "topology.kubernetes.io/zone" instead'
    ]
    driver = obj("storage.k8s.io/v1", "CSIDriver", spec={"tokenRequests": [{"audience": "a"}]})
    (text,) = warned(driver)
    assert text.startswith("spec.serviceAccountTokenInSecrets is unset; ")
    driver["spec"]["serviceAccountTokenInSecrets"] = True
    assert not warned(driver)


def test_sources_of_projected_volumes_that_are_empty_are_named_in_warnings() -> None:
    volume = {"name": "v", "projected": {"sources": [{}]}}
    assert warned(pod(volumes=[volume])) == ['volume "v" (Projected) has no sources provided']


def test_an_autoscaler_keeps_the_reference_that_it_has() -> None:
    old = created(autoscaler("v1", "Deployment", described("a/b/c")))
    new = copy.deepcopy(old)
    new["spec"]["maxReplicas"] = 3
    assert not update_problems(old, new)
    new["spec"]["scaleTargetRef"]["kind"] = "StatefulSet"
    assert update_problems(old, new) == [
        'spec.scaleTargetRef.apiVersion: Invalid value: "v1": apiVersion must specify API group'
    ]


def test_the_status_of_an_attachment_is_limited() -> None:
    old = created(attachment())
    new = copy.deepcopy(old)
    new["status"] |= {
        "attachmentMetadata": {"k": "v" * 262144},
        "attachError": {"message": "m" * 262145},
        "detachError": {"errorCode": -1},
    }
    assert update_problems(old, new, "status") == [
        "status.attachmentMetadata: Too long: may not be more than 262144 bytes",
        "status.attachError.message: Too long: may not be more than 262144 bytes",
        "status.detachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive",
    ]


WILD_PATH = {"path": "p", "pathType": "Exact", "backend": ingress()["spec"]["defaultBackend"]}
WILD = {"host": "*.a.b", "http": {"paths": [WILD_PATH]}}


@pytest.mark.parametrize("spec", [{"tls": [{"secretName": "A_"}]}, {"rules": [WILD]}])
def test_an_ingress_keeps_older_mistakes(spec: Object) -> None:
    assert problems(ingress(**spec))
    old = created(ingress(**spec))
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"a": "b"}
    assert not update_problems(old, new)
    assert update_problems(created(ingress()), new)


def test_the_class_of_an_ingress_is_compared_with_its_annotation_only_at_creation() -> None:
    old = created(ingress(ingressClassName="a"))
    new = copy.deepcopy(old)
    new["metadata"]["annotations"] = {"kubernetes.io/ingress.class": "b"}
    assert not update_problems(old, new) and problems(new)


PEM = "-----BEGIN {0}-----\nAAAA\n-----END {0}-----\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("none", "must contain at least one CERTIFICATE PEM block"),
        (PEM.format("KEY"), 'only CERTIFICATE PEM blocks are allowed, found "KEY"'),
        (PEM.format("CERTIFICATE").replace("\nAAAA", "\na: b\n\nAAAA"), "no PEM block headers are permitted"),
        (PEM.format("CERTIFICATE"), ""),
    ],
)
def test_an_issued_certificate_is_one(text: str, problem: str) -> None:
    old = obj("certificates.k8s.io/v1", "CertificateSigningRequest", spec={}, status={})
    new = copy.deepcopy(old)
    new["status"]["certificate"] = base64.b64encode(text.encode()).decode()
    expected = [f'status.certificate: Invalid value: "<certificate data>": {problem}'] if problem else []
    assert update_problems(old, new, "status") == expected
