"""Errors of rules in rows of storage, flow control, jobs and volumes, with their paths."""

from __future__ import annotations

from typing import Any

import pytest

from kube.json_object import Object
from tests.support.cost import Lines
from tests.unit.control.registry.strategies import problems

STORAGE, FLOW = "storage.k8s.io/v1", "flowcontrol.apiserver.k8s.io/v1"
MODE = "must be a number between 0 and 0777 (octal), both inclusive"
BESIDE_STAR = "if '*' is present, must not specify other"
RULE = "spec.rules[0].resourceRules[0]"
URLS = "spec.rules[0].nonResourceRules[0]"
QUEUING = "spec.limited.limitResponse"


def obj(api_version: str, kind: str, name: str = "x", **parts: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **parts}


def flow(key: str, **parts: Any) -> Object:
    base: Object = {"verbs": ["get"]} | (
        {"apiGroups": ["a"], "resources": ["b"], "clusterScope": True}
        if key == "resourceRules"
        else {"nonResourceURLs": ["/a"]}
    )
    rule = {"subjects": [{"kind": "User", "user": {"name": "a"}}], key: [base | parts]}
    return obj(FLOW, "FlowSchema", spec={"priorityLevelConfiguration": {"name": "p"}, "rules": [rule]})


def level(kind: str = "Queue", **queuing: int) -> Object:
    response = {"type": kind, "queuing": queuing} if queuing else {"type": kind}
    return obj(FLOW, "PriorityLevelConfiguration", spec={"type": "Limited", "limited": {"limitResponse": response}})


def pod(source: Object) -> Object:
    container = {"name": "c", "image": "i"}
    return obj("v1", "Pod", spec={"containers": [container], "volumes": [{"name": "v", **source}]})


def volume(csi: Object) -> Object:
    capacity, modes = {"storage": "1Gi"}, ["ReadWriteOnce"]
    source = {"driver": "a.b", "volumeHandle": "h", **csi}
    return obj("v1", "PersistentVolume", spec={"capacity": capacity, "accessModes": modes, "csi": source})


def job(patterns: int) -> Object:
    pattern = {"type": "Ready", "status": "True"}
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    rules = [{"action": "Ignore", "onPodConditions": [pattern] * patterns}]
    return obj("batch/v1", "Job", spec={"template": template, "podFailurePolicy": {"rules": rules}})


SECRET = {"key": "k", "path": "p"}
TOO_LONG_TOKEN = "may not specify a duration larger than 2^32 seconds"


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (obj(STORAGE, "CSIDriver", "a" * 64, spec={}), "metadata.name: Too long: may not be more than 63 bytes"),
        (
            obj(STORAGE, "CSIDriver", spec={"tokenRequests": [{"expirationSeconds": 2**32 + 1}]}),
            f"spec.tokenRequests[0].expirationSeconds: Invalid value: 4294967297: {TOO_LONG_TOKEN}",
        ),
        (
            flow("resourceRules", apiGroups=["*", "a"]),
            f'{RULE}.apiGroups: Invalid value: ["*","a"]: {BESIDE_STAR} api groups',
        ),
        (
            flow("resourceRules", resources=["*", "a"]),
            f'{RULE}.resources: Invalid value: ["*","a"]: {BESIDE_STAR} resources',
        ),
        (
            flow("nonResourceRules", verbs=["*", "get"]),
            f'{URLS}.verbs: Invalid value: ["*","get"]: {BESIDE_STAR} verbs',
        ),
        (
            flow("nonResourceRules", nonResourceURLs=["*", "/a"]),
            f'{URLS}.nonResourceURLs: Invalid value: ["*","/a"]: {BESIDE_STAR} non-resource URLs',
        ),
        (level("Drop"), f'{QUEUING}.type: Unsupported value: "Drop": supported values: "Queue", "Reject"'),
        (level(queueLengthLimit=-1), f"{QUEUING}.queuing.queueLengthLimit: Invalid value: -1: must be positive"),
        (
            level(queues=10_000_001, handSize=1),
            f"{QUEUING}.queuing.queues: Invalid value: 10000001: must not be greater than 10000000",
        ),
        (job(21), "spec.podFailurePolicy.rules[0].onPodConditions: Too many: 21: must have at most 20 items"),
        (
            pod({"secret": {"secretName": "s", "items": [{**SECRET, "key": ""}]}}),
            "spec.volumes[0].secret.items[0].key: Required value",
        ),
        (
            pod({"secret": {"secretName": "s", "items": [{**SECRET, "path": ""}]}}),
            "spec.volumes[0].secret.items[0].path: Required value",
        ),
        (
            pod({"configMap": {"name": "s", "items": [{**SECRET, "path": "../a"}]}}),
            "spec.volumes[0].configMap.items[0].path: Invalid value: \"../a\": must not contain '..'",
        ),
        (
            pod({"configMap": {"name": "s", "items": [{**SECRET, "mode": 512}]}}),
            f"spec.volumes[0].configMap.items[0].mode: Invalid value: 512: {MODE}",
        ),
        (
            pod({"downwardAPI": {"items": [{"path": "/a", "fieldRef": {"fieldPath": "metadata.name"}}]}}),
            'spec.volumes[0].downwardAPI.path: Invalid value: "/a": must be a relative path',
        ),
        (
            pod({"downwardAPI": {"items": [{"path": "a", "mode": -1, "fieldRef": {"fieldPath": "metadata.name"}}]}}),
            f"spec.volumes[0].downwardAPI.mode: Invalid value: -1: {MODE}",
        ),
        (
            pod({"csi": {"driver": "a.b", "nodePublishSecretRef": {}}}),
            "spec.volumes[0].csi.nodePublishSecretRef.name: Required value",
        ),
        *(
            (volume({key: {"name": "a", "namespace": "b", part: ""}}), f"spec.csi.{key}.{part}: Required value")
            for key in (
                "controllerPublishSecretRef",
                "controllerExpandSecretRef",
                "nodePublishSecretRef",
                "nodeExpandSecretRef",
            )
            for part in ("name", "namespace")
        ),
    ],
)
def test_a_wrong_value_is_refused_under_its_path(wrong: Object, error: str) -> None:
    assert problems(wrong) == [error]


def test_the_hash_bits_of_queues_are_estimated_as_upstream_in_constant_time() -> None:
    assert problems(level(queues=64, handSize=10)) == []
    for queues, hand in ((65, 10), (10_000_000, 10_000_000), (2**31 - 1, 2**31 - 1)):
        with Lines() as lines:
            found = problems(level(queues=queues, handSize=hand))
        assert found[-1] == (
            f"{QUEUING}.queuing.handSize: Invalid value: {hand}: required entropy bits of deckSize {queues} and handSize "
            f"{hand} should not be greater than 60"
        )
        assert lines.count < 3000


def test_fewer_queues_than_one_are_refused() -> None:
    assert problems(level(queues=-1, handSize=1)) == [
        f"{QUEUING}.queuing.queues: Invalid value: -1: must be positive",
        f"{QUEUING}.queuing.handSize: Invalid value: 1: should not be greater than queues (-1)",
    ]
