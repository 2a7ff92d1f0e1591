"""Repeated fields of a JSON body: each occurrence is decoded into the same value, as Go's decoder does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from control.custom.decoder import CustomDecoder
from control.decoding.decode import Decoder, FieldValidation
from control.schemas.schema import Schema
from kube.api import apiextensions_v1, apps_v1, core_v1
from kube.errors import StatusError
from kube.field_path import MOST_PROBLEMS

PODS = Decoder(core_v1.Pod, "v1", "Pod")
DEPLOY = Decoder(apps_v1.Deployment, "apps/v1", "Deployment")
DEFINITIONS = Decoder(apiextensions_v1.CustomResourceDefinition, "apiextensions.k8s.io/v1", "CustomResourceDefinition")
CUSTOMS = CustomDecoder(
    Schema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}), "example.com/v1", "Thing"
)
UNKNOWN = ",".join(f'"u{n}":1' for n in range(2 * MOST_PROBLEMS))
REPLICAS = "DeploymentSpec.spec.replicas"
VALIDATIONS: list[FieldValidation] = ["Ignore", "Warn", "Strict"]


def decode(decoder: Decoder, body: str, validation: FieldValidation = "Warn", kind: str = "application/json") -> Any:
    return decoder.decode(body.encode(), kind, validation, [], check_kind=False)


@pytest.mark.parametrize("validation", VALIDATIONS)
@pytest.mark.parametrize(
    ("decoder", "body", "value", "field", "type_"),
    [
        (DEPLOY, '{"spec":{"replicas":{},"replicas":1}}', "object", REPLICAS, "int32"),
        (DEPLOY, '{"spec":{"replicas":1.5,"replicas":1}}', "number 1.5", REPLICAS, "int32"),
        (DEPLOY, '{"spec":{"replicas":2147483648,"replicas":1}}', "number 2147483648", REPLICAS, "int32"),
        (DEPLOY, '{"spec":{"paused":"x","paused":true}}', "string", "DeploymentSpec.spec.paused", "bool"),
        (DEPLOY, '{"spec":[],"spec":{}}', "array", "Deployment.spec", "v1.DeploymentSpec"),
        (DEPLOY, '{"spec":{"replicas":true},"spec":{"replicas":1}}', "bool", REPLICAS, "int32"),
        (DEPLOY, '{"spec":{"replicas":true,"replicas":"x","replicas":{}}}', "bool", REPLICAS, "int32"),
        (DEPLOY, '{"spec":{"paused":1,"replicas":[],"replicas":1}}', "number", "DeploymentSpec.spec.paused", "bool"),
        (DEPLOY, '{' + UNKNOWN + ',"spec":{"replicas":{},"replicas":1}}', "object", REPLICAS, "int32"),
        (PODS, '{"metadata":{"labels":{"a":1,"a":"x"}}}', "number", "ObjectMeta.metadata.labels", "string"),
        (PODS, '{"spec":{"containers":{},"containers":[]}}', "object", "PodSpec.spec.containers", "[]v1.Container"),
        (PODS, '{"spec":{"containers":[{"name":1,"name":"a"}]}}', "number", "Container.spec.containers.name", "string"),
    ],
)  # fmt: skip
def test_an_occurrence_of_a_wrong_type_is_refused_though_another_follows(
    decoder: Decoder, body: str, value: str, field: str, type_: str, validation: FieldValidation
) -> None:
    with pytest.raises(StatusError) as refused:
        decode(decoder, body, validation)
    assert refused.value.code == 400
    assert refused.value.message.endswith(
        f"json: cannot unmarshal {value} into Go struct field {field} of type {type_}"
    )


@pytest.mark.parametrize(
    ("resources", "output"),
    [
        ('{"limits":{"cpu":"a","cpu":"1"}}', "quantities must match the regular expression"),
        ('{"limits":{"cpu":"a"},"limits":{"cpu":"1"}}', "quantities must match the regular expression"),
    ],
)
def test_an_occurrence_that_is_no_quantity_is_refused_though_another_follows(resources: str, output: str) -> None:
    with pytest.raises(StatusError, match=output):
        decode(PODS, '{"spec":{"containers":[{"name":"c","resources":' + resources + "}]}}")


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ('{"metadata":{"name":"a"},"metadata":{"labels":{"x":"1"}}}', {"name": "a", "labels": {"x": "1"}}),
        ('{"metadata":{"labels":{"x":"1","y":"1"},"labels":{"y":"2","z":"3"}}}', {"labels": {"x": "1", "y": "2", "z": "3"}}),
        ('{"metadata":{"name":"a","name":"b"}}', {"name": "b"}),
        ('{"metadata":{"name":"a","labels":{"x":"1"},"labels":null}}', {"name": "a"}),
        ('{"metadata":{"finalizers":["a","b"],"finalizers":["c"]}}', {"finalizers": ["c"]}),
        ('{"metadata":{"name":"a"},"metadata":null}', {"name": "a"}),
        (
            '{"metadata":{"ownerReferences":[{"name":"a","uid":"u"}],"ownerReferences":[{"name":"b"},{"kind":"K"}]}}',
            {"ownerReferences": [{"name": "b", "uid": "u"}, {"kind": "K"}]},
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("validation", ["Ignore", "Warn"])
def test_occurrences_are_merged(body: str, left: dict[str, Any], validation: FieldValidation) -> None:
    shown = decode(PODS, body, validation)["metadata"]
    for reference in shown.get("ownerReferences", ()):
        for name in [name for name, value in reference.items() if value == ""]:
            del reference[name]
    assert shown == left


def test_unknown_fields_of_every_occurrence_are_reported() -> None:
    warnings: list[str] = []
    body = b'{"metadata":{"name":"a","odd":1},"metadata":{"even":1}}'
    PODS.decode(body, "application/json", "Warn", warnings, check_kind=False)
    assert warnings == ['unknown field "metadata.odd"', 'duplicate field "metadata"', 'unknown field "metadata.even"']


def test_an_unknown_field_in_the_value_of_a_map_is_reported_beside_a_repeated_one() -> None:
    body = """{"spec":{"group":"g","group":"g","versions":[{"schema":{"openAPIV3Schema":{"properties":{"a":{"odd":1}}}}}]}}"""
    warnings: list[str] = []
    DEFINITIONS.decode(body.encode(), "application/json", "Warn", warnings, check_kind=False)
    path = "spec.versions[0].schema.openAPIV3Schema.properties[a].odd"
    assert warnings == ['duplicate field "spec.group"', f'unknown field "{path}"']


def test_of_fields_without_a_type_the_last_occurrence_counts() -> None:
    body = '{"metadata":{"name":"a"},"spec":{"x":{"a":1},"x":{"b":2}}}'
    assert decode(CUSTOMS, body)["spec"] == {"x": {"b": 2}}


def test_yaml_is_a_map_before_it_has_a_type() -> None:
    body = "spec:\n  replicas: {}\n  replicas: 1\n"
    assert decode(DEPLOY, body, "Warn", "application/yaml")["spec"]["replicas"] == 1


def test_a_text_that_only_looks_as_if_fields_were_repeated_is_read_as_it_is() -> None:
    body = json.dumps({"metadata": {"name": "a", "annotations": {"last": '{"a":1,"a":2}'}}})
    assert decode(PODS, body, "Strict")["metadata"]["annotations"] == {"last": '{"a":1,"a":2}'}
