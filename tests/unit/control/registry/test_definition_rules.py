"""Rules of definitions and volumes that upstream's own tests check: the object, and the exact errors."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kube.json_object import Object
from tests.unit.control.registry.strategies import created, problems, update_problems

LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and "
    "end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def definition(schema: Object | None = None, **spec: Any) -> Object:
    schema = {"type": "object"} if schema is None else schema
    names = {"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version], **spec},
    }


def converted(*reviews: str, strategy: str = "Webhook", **client: Any) -> Object:
    webhook = {"clientConfig": client, "conversionReviewVersions": list(reviews)}
    return definition(conversion={"strategy": strategy, "webhook": webhook})


def with_fields(schema: Object, **version: Any) -> Object:
    found = definition({"type": "object", **schema})
    found["spec"]["versions"][0] |= version
    return found


SERVICE = {"name": "s", "namespace": "n"}
UNSET = "should not be set when strategy is not set to Webhook"
S = "spec.validation.openAPIV3Schema"
CASES: list[tuple[Object, list[str]]] = [
    (
        definition(preserveUnknownFields=True),
        [
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set "
            "x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        ],
    ),
    (converted("v1", service=SERVICE), []),
    (
        converted("v1", service={**SERVICE, "port": 0}),
        [
            "spec.conversion.webhookClientConfig.service.port: Invalid value: 0: port is not valid: must be between 1 "
            "and 65535, inclusive"
        ],
    ),
    (
        converted("v1", url=""),
        [
            "spec.conversion.webhookClientConfig.url: Invalid value: \"\": 'https' is the only allowed URL scheme; desired "
            "format: https://host[/path]",
            'spec.conversion.webhookClientConfig.url: Invalid value: "": host must be specified; desired format: '
            "https://host[/path]",
        ],
    ),
    (
        converted("v1", "v1", service=SERVICE),
        ['spec.conversion.conversionReviewVersions[1]: Invalid value: "v1": duplicate version'],
    ),
    (
        converted("v1", "0v", service=SERVICE),
        [f'spec.conversion.conversionReviewVersions[1]: Invalid value: "0v": {LABEL}'],
    ),
    (
        converted("v1", strategy="None", service=SERVICE),
        [
            f"spec.conversion.webhookClientConfig: Forbidden: {UNSET}",
            f"spec.conversion.conversionReviewVersions: Forbidden: {UNSET}",
        ],
    ),
    (
        with_fields({}, subresources={"scale": {"specReplicasPath": ".a", "statusReplicasPath": ".status.a",
                                                "labelSelectorPath": ".b"}}),
        [
            'spec.subresources.scale.specReplicasPath: Invalid value: ".a": should be a json path under .spec',
            'spec.subresources.scale.labelSelectorPath: Invalid value: ".b": should be a json path under either .spec or '
            ".status",
        ],
    ),
    (
        with_fields({"properties": {"metadata": {"type": "object", "default": {}}}}),
        [f"{S}.properties[metadata].default: Forbidden: must not be set in top-level metadata"],
    ),
    (
        with_fields({"properties": {"a": {"type": "array", "x-kubernetes-list-type": "map",
                                          "x-kubernetes-list-map-keys": ["k"],
                                          "items": {"type": "object", "nullable": True, "required": ["k"],
                                                    "properties": {"k": {"type": "string"}}}}}}),
        [f"{S}.properties[a].items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is map"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("obj", "expected"), CASES)
def test_what_is_wrong_with_a_definition_is_named_as_upstream_names_it(obj: Object, expected: list[str]) -> None:
    assert problems(obj) == expected


def test_kinds_may_have_mixed_case() -> None:
    obj = definition()
    obj["spec"]["names"]["kind"] = "Bo()at"
    assert problems(obj) == [
        f'spec.names.kind: Invalid value: "Bo()at": may have mixed case, but should otherwise match: {LABEL}'
    ]


def volume(**spec: Any) -> Object:
    usual = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "nfs": {"server": "s", "path": "/p"}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "v", "creationTimestamp": "2026-01-02T03:04:05Z"},
        "spec": {**usual, **spec},
    }


VOLUMES: list[tuple[Object, list[str]]] = [
    (volume(), []),
    (volume(accessModes=[]), ["spec.accessModes: Required value"]),
    (
        volume(capacity={}),
        ["spec.capacity: Required value", 'spec.capacity: Unsupported value: null: supported values: "storage"'],
    ),
    (volume(capacity={"storage": "0"}), ['spec.capacity[storage]: Invalid value: "0": must be greater than zero']),
    (volume(nodeAffinity={}), ["spec.nodeAffinity.required: Required value: must specify required node constraints"]),
]


@pytest.mark.parametrize(("obj", "expected"), VOLUMES)
def test_what_is_wrong_with_a_volume_is_named_as_upstream_names_it(obj: Object, expected: list[str]) -> None:
    assert problems(obj) == expected


def test_a_new_volume_has_the_time_of_its_phase() -> None:
    assert created(volume())["status"] == {"phase": "Pending", "lastPhaseTransitionTime": "2026-01-02T03:04:05Z"}


def affinity(key: str) -> Object:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": ["a"]}]}
    return {"required": {"nodeSelectorTerms": [term]}}


def test_a_stable_label_may_take_the_place_of_a_beta_one() -> None:
    old = created(volume(nodeAffinity=affinity("failure-domain.beta.kubernetes.io/zone")))
    new = copy.deepcopy(old)
    new["spec"]["nodeAffinity"] = affinity("topology.kubernetes.io/zone")
    assert not update_problems(old, new)
    assert update_problems(new, old)


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        ({"kind": "PersistentVolumeClaim", "name": "a"}, True),
        ({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "a"}, True),
        ({"apiGroup": "example.com", "kind": "Tape", "name": "a"}, False),
        ({"kind": "Pod", "name": "a"}, False),
    ],
)
def test_the_older_field_of_a_claim_names_claims_and_snapshots(source: Object, kept: bool) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}, "dataSource": source}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "default"}}
    obj = {**claim, "spec": spec}
    stored = created(obj)["spec"]
    assert (stored.get("dataSource"), stored.get("dataSourceRef")) == ((source, source) if kept else (None, None))
    assert not problems(obj)
