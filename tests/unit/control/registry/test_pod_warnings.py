from __future__ import annotations

from typing import Any

import pytest

from kube.json_object import Object
from tests.unit.control.registry.strategies import container, created, pod, strategy_of, workload

HIDES = "hides previous definition of"
DROPPED = "which may be dropped when using apply"
NULL = "a null labelSelector results in matching no pod"


def env(*variables: Object) -> Object:
    return pod(containers=[container(env=list(variables))])


def ports(*found: Object) -> Object:
    return pod(containers=[container(ports=list(found))])


def annotated(**annotations: str) -> Object:
    obj = pod()
    obj["metadata"]["annotations"] = {k.replace("__", "/"): v for k, v in annotations.items()}
    return obj


def required(kind: str, term: Object) -> Object:
    return pod(affinity={kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})


WARNED: list[tuple[Object, list[str]]] = [
    (pod(), []),
    (
        pod(nodeSelector={"beta.kubernetes.io/os": "linux"}),
        ['spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead'],
    ),
    (
        pod(
            affinity={
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "beta.kubernetes.io/arch", "operator": "Exists"}]}
                        ]
                    }
                }
            }
        ),
        [
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]."
            'matchExpressions[0].key: beta.kubernetes.io/arch is deprecated since v1.14; use "kubernetes.io/arch" instead'
        ],
    ),
    (
        pod(topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "zone"}]),
        [f"spec.topologySpreadConstraints[0].labelSelector: {NULL}"],
    ),
    (
        required("podAntiAffinity", {"topologyKey": "zone"}),
        [
            "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: " + NULL,
        ],
    ),
    (
        pod(volumes=[{"name": "v", "gitRepo": {"repository": "r"}}]),
        ["spec.volumes[0].gitRepo: deprecated in v1.11"],
    ),
    (
        pod(hostAliases=[{"ip": "10.0.0.1"}, {"ip": "10.0.0.1"}]),
        ['spec.hostAliases[1].ip: duplicate ip "10.0.0.1"'],
    ),
    (
        pod(imagePullSecrets=[{"name": "a"}, {"name": "a"}, {}]),
        [
            'spec.imagePullSecrets[1].name: duplicate name "a"',
            'spec.imagePullSecrets[2].name: invalid empty name ""',
        ],
    ),
    (
        pod(containers=[container(resources={"requests": {"memory": "1500m"}})]),
        ['spec.containers[0].resources.requests[memory]: fractional byte value "1500m" is invalid, must be an integer'],
    ),
    (
        env({"name": "A", "value": "1"}, {"name": "A", "value": "2"}),
        [f'spec.containers[0].env[1]: {HIDES} "A", {DROPPED}'],
    ),
    (env({"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}), []),
    (
        env({"name": "A", "value": "1"}, {"name": "A", "value": "$(A)"}),
        [f'spec.containers[0].env[1]: {HIDES} "A", {DROPPED}'],
    ),
    (
        ports({"containerPort": 80, "name": "a"}, {"containerPort": 80, "name": "b"}),
        ["spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]"],
    ),
    (ports({"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "protocol": "TCP"}), []),
    (
        ports({"containerPort": 80}, {"containerPort": 80, "hostPort": 8080}),
        ["spec.containers[0].ports[1]: overlapping port definition with spec.containers[0].ports[0]"],
    ),
    (
        ports({"containerPort": 80, "hostPort": 80}, {"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"}),
        ["spec.containers[0].ports[1]: dangerously ambiguous port definition with spec.containers[0].ports[0]"],
    ),
    (
        ports({"containerPort": 80, "hostIP": "10.0.0.1"}),
        [
            "spec.containers[0].ports[0]: hostIP set without hostPort: {Name: HostPort:0 ContainerPort:80 Protocol:TCP "
            "HostIP:10.0.0.1}"
        ],
    ),
    (
        pod(containers=[container(name=n, ports=[{"containerPort": 80}]) for n in ("a", "b")]),
        ["spec.containers[1].ports[0]: duplicate port definition with spec.containers[0].ports[0]"],
    ),
    (pod(terminationGracePeriodSeconds=-1), []),
    (
        annotated(**{"scheduler.alpha.kubernetes.io__critical-pod": ""}),
        [
            "metadata.annotations[scheduler.alpha.kubernetes.io/critical-pod]: non-functional in v1.16+; use the "
            '"priorityClassName" field instead'
        ],
    ),
    (
        annotated(**{"container.seccomp.security.alpha.kubernetes.io__c": "unconfined"}),
        [
            "metadata.annotations[container.seccomp.security.alpha.kubernetes.io/c]: non-functional in v1.27+; use the "
            '"seccompProfile" field instead'
        ],
    ),
]


@pytest.mark.parametrize(("obj", "message"), WARNED, ids=lambda v: str(v)[:60] if isinstance(v, list) else "")
def test_a_pod_that_will_surprise_is_warned_of(obj: Object, message: list[str]) -> None:
    assert strategy_of(obj).warnings(created(obj), None) == message


def test_a_pod_with_a_name_that_no_host_can_have_is_warned_of() -> None:
    obj = pod()
    obj["metadata"]["name"] = "a.b"
    assert strategy_of(obj).warnings(created(obj), None) == [
        "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is "
        "recommended: [must not contain dots]"
    ]


def test_a_negative_grace_period_of_a_template_is_warned_of() -> None:
    found: dict[str, Any] = workload("Deployment")
    found["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = -1
    assert strategy_of(found).warnings(created(found), None) == [
        "spec.template.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
    ]


def test_a_template_is_warned_of_under_its_own_place_and_only_when_it_changes() -> None:
    found: dict[str, Any] = workload("Deployment")
    found["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "A"}, {"name": "A"}]
    stored = created(found)
    strategy = strategy_of(found)
    message = [f'spec.template.spec.containers[0].env[1]: {HIDES} "A", {DROPPED}']
    assert strategy.warnings(stored, None) == message
    assert strategy.warnings(stored, stored) == []
