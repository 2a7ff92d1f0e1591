"""Metadata of embedded resources, as upstream's schemaobjectmeta.Coerce treats them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from control.custom.decoder import CustomDecoder
from control.schemas.schema import Schema
from kube.errors import StatusError

EMBEDDED = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "one": EMBEDDED,
                "many": {"type": "array", "items": EMBEDDED},
                "named": {"type": "object", "additionalProperties": EMBEDDED},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        }
    },
}
THING = {"apiVersion": "example.com/v1", "kind": "Thing"}
INNER = {"apiVersion": "v1", "kind": "Pod", "spec": {"any": 1}}


def decode(spec: Any, validation: Any = "Strict", metadata: Any = None) -> tuple[Any, list[str]]:
    warnings: list[str] = []
    body = json.dumps({**THING, "metadata": metadata or {"name": "t"}, "spec": spec}).encode()
    found = CustomDecoder(Schema(SCHEMA), "example.com/v1", "Thing").decode(
        body, "application/json", validation, warnings
    )
    return found["spec"], warnings


def refused(spec: Any, **more: Any) -> str:
    with pytest.raises(StatusError) as caught:
        decode(spec, **more)
    assert caught.value.code == 400
    return caught.value.message.removeprefix('Thing in version "v1" cannot be handled as a Thing: ')


BOGUS = {**INNER, "metadata": {"name": "a", "bogus": 1}}


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        ({"one": BOGUS}, "spec.one.metadata.bogus"),
        ({"many": [INNER, BOGUS]}, "spec.many[1].metadata.bogus"),
        ({"named": {"x": BOGUS}}, "spec.named[x].metadata.bogus"),
        (
            {"one": {**INNER, "metadata": {"ownerReferences": [{"uid": "u", "nmae": "x"}]}}},
            "spec.one.metadata.ownerReferences[0].nmae",
        ),
    ],
)
def test_unknown_metadata_of_an_embedded_resource_are_unknown_fields(spec: Any, where: str) -> None:
    assert refused(spec) == f'strict decoding error: unknown field "{where}"'
    found, warnings = decode(spec, "Warn")
    assert warnings == [f'unknown field "{where}"']
    assert "bogus" not in json.dumps(found) and "nmae" not in json.dumps(found)
    assert decode(spec, "Ignore") == (found, [])


def test_unknown_fields_come_by_own_metadata_then_schema_then_embedded_each_sorted() -> None:
    spec = {"zz": 1, "aa": 1, "one": BOGUS, "many": [BOGUS]}
    names = ["metadata.own", "spec.aa", "spec.zz", "spec.many[0].metadata.bogus", "spec.one.metadata.bogus"]
    assert refused(spec, metadata={"name": "t", "own": 1}) == "strict decoding error: " + ", ".join(
        f'unknown field "{name}"' for name in names
    )


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        ({**INNER, "kind": 5}, "spec.one.kind: Invalid value: 5: must be a string"),
        ({**INNER, "apiVersion": True}, "spec.one.apiVersion: Invalid value: true: must be a string"),
        (
            {**INNER, "metadata": {"name": 5}},
            'spec.one.metadata: Invalid value: {"name":5}: json: cannot unmarshal number into Go struct field ObjectMeta.name '
            "of type string",
        ),
        (
            {**INNER, "metadata": "no"},
            'spec.one.metadata: Invalid value: "no": json: cannot unmarshal string into Go value of type v1.ObjectMeta',
        ),
    ],
)
@pytest.mark.parametrize("validation", ["Strict", "Ignore"])
def test_invalid_metadata_of_embedded_objects_is_refused(resource: Any, message: str, validation: str) -> None:
    assert refused({"one": resource}, validation=validation) == message


def test_embedded_metadata_are_stored_as_an_objects_own_are() -> None:
    given = {"name": "a", "creationTimestamp": None, "labels": {"a": "b"}}
    found, warnings = decode({"one": {**INNER, "metadata": given}, "many": [{**INNER, "metadata": None}]})
    assert found["one"] == {**INNER, "metadata": {"name": "a", "labels": {"a": "b"}}}
    assert found["many"] == [{**INNER, "metadata": {}}]
    assert warnings == []


def test_what_is_no_resource_keeps_its_metadata() -> None:
    free = {"metadata": {"bogus": 1}, "one": BOGUS}
    assert decode({"free": free, "one": {**INNER, "deeper": BOGUS}}) == (
        {"free": free, "one": {**INNER, "deeper": BOGUS}},
        [],
    )
