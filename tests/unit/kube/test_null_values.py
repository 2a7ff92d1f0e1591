"""JSON null in objects of generated types, compared with the results of upstream's server (v1.36.2)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from kube import serialize
from kube.api import apiextensions_v1, core_v1, rbac_v1, storage_v1
from kube.serialize import to_dict

ELEMENTS: list[tuple[str, type[msgspec.Struct], dict[str, Any], dict[str, Any]]] = [
    ("label", core_v1.ConfigMap, {"metadata": {"labels": {"a": None}}}, {"metadata": {"labels": {"a": ""}}}),
    ("text", core_v1.ConfigMap, {"data": {"a": None, "b": "1"}}, {"data": {"a": "", "b": "1"}}),
    ("bytes", core_v1.Secret, {"data": {"a": None}}, {"data": {"a": ""}}),
    ("selector", core_v1.ServiceSpec, {"selector": {"a": None}}, {"selector": {"a": ""}}),
    ("quantity", core_v1.ResourceQuotaSpec, {"hard": {"pods": None}}, {"hard": {"pods": "0"}}),
    ("parameter", storage_v1.StorageClass, {"parameters": {"a": None}}, {"parameters": {"a": ""}}),
    ("argument", core_v1.Container, {"args": [None, "x"]}, {"args": ["", "x"]}),
    ("number", core_v1.PodSecurityContext, {"supplementalGroups": [None]}, {"supplementalGroups": [0]}),
    ("rule", rbac_v1.Role, {"rules": [{"verbs": ["get", None]}]}, {"rules": [{"verbs": ["get", ""]}]}),
    ("object", core_v1.PodSpec, {"tolerations": [None], "containers": []}, {"tolerations": [{}]}),
    ("list", core_v1.PodSpec, {"hostAliases": [{"ip": "::1", "hostnames": None}]}, {"hostAliases": [{"ip": "::1"}]}),
]


@pytest.mark.parametrize(
    ("type_", "given", "expected"), [row[1:] for row in ELEMENTS], ids=[row[0] for row in ELEMENTS]
)
def test_null_elements_have_their_types_zero_value(
    type_: type[msgspec.Struct], given: dict[str, Any], expected: dict[str, Any]
) -> None:
    for read in (serialize.convert(given, type_), serialize.decode(json.dumps(given), type_)):
        shape = to_dict(read)
        assert {key: shape.get(key) for key in expected} == expected


def test_nulls_in_values_of_any_type_are_kept() -> None:
    schema = {
        "required": None,
        "default": {"a": None, "b": [None]},
        "properties": {"x": {"enum": [None, 1]}, "y": None},
        "items": {"required": [None]},
    }
    read = to_dict(serialize.convert(schema, apiextensions_v1.JSONSchemaProps))
    assert read["default"] == {"a": None, "b": [None]}
    assert read["properties"] == {"x": {"enum": [None, 1]}, "y": {}}
    assert read["items"] == {"required": [""]}
    assert "required" not in read


def test_an_error_names_the_element_as_it_was_sent() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.args\[1\]"):
        serialize.convert({"args": [None, 5]}, core_v1.Container)
