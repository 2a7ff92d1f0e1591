"""An extension's part of the OpenAPI v2 document: its limits, and the names of what it shares."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from control.aggregation import openapi_v2
from control.aggregation.openapi_v2 import Part, Unusable, build, merged
from control.openapi import gnostic

LOCAL: dict[str, Any] = {
    "swagger": "2.0",
    "info": {"title": "t", "version": "v"},
    "paths": {"/api/v1/pods": {}},
    "definitions": {},
}
REFERENCE = {"$ref": "#/parameters/p"}


def document(parameters: dict[str, Any], paths: int = 1, references: int = 1) -> bytes:
    item = {"parameters": [REFERENCE] * references, "get": {"responses": {"200": {"description": ""}}}}
    found = {"swagger": "2.0", "parameters": parameters, "paths": {f"/apis/g/v1/a{n}": item for n in range(paths)}}
    return msgspec.json.encode(found)


def parameter(text: str) -> dict[str, Any]:
    return {"name": "x", "in": "query", "type": "string", "description": text}


def part(body: bytes, group: str = "g", version: str = "v1") -> Part:
    built = build(body, group, version)
    assert built is not None
    return Part(*built)


def test_a_shared_parameter_takes_its_bytes_once() -> None:
    body = document({"p": parameter("A" * 4000), "unused": parameter("")}, paths=50, references=100)
    found = part(body).read()
    assert len(msgspec.json.encode(found)) <= len(body)
    assert found["paths"]["/apis/g/v1/a0"]["parameters"] == [REFERENCE] * 100
    assert found["parameters"] == {"p": parameter("A" * 4000)}
    packed = gnostic.document({**LOCAL, **found})
    assert packed.count(b"A" * 4000) == 1 and packed.count(b"#/parameters/p") == 5000


def test_parameters_of_several_extensions_have_names_of_their_own() -> None:
    one, two = document({"p": parameter("one")}), document({"p": parameter("two")}).replace(b"/g/", b"/h/")
    found = merged(LOCAL, [part(one), part(two, "h"), part(two, "h")])
    assert found["parameters"] == {"p": parameter("one"), "p_v2": parameter("two")}
    assert found["paths"]["/apis/g/v1/a0"]["parameters"] == [REFERENCE]
    assert found["paths"]["/apis/h/v1/a0"]["parameters"] == [{"$ref": "#/parameters/p_v2"}]
    assert b"#/parameters/p_v2" in gnostic.document(found)
    assert "parameters" not in merged(LOCAL, [])


def test_a_name_that_the_part_has_itself_is_not_given_to_another_definition() -> None:
    names = ("a", "a_v2")
    answers = {name: {"description": "", "schema": {"$ref": f"#/definitions/{name}"}} for name in names}
    item = {"get": {"responses": answers}}
    schemas = {name: {"type": "object", "description": name} for name in names}
    body = msgspec.json.encode({"paths": {"/apis/g/v1/a": item}, "definitions": schemas})
    found = merged({**LOCAL, "definitions": {"a": {"type": "string"}}}, [part(body)])
    shown = found["paths"]["/apis/g/v1/a"]["get"]["responses"]
    for name in names:
        reference = shown[name]["schema"]["$ref"].removeprefix("#/definitions/")
        assert found["definitions"][reference] == schemas[name]
    assert found["definitions"]["a"] == {"type": "string"}


def test_a_body_parameter_brings_the_definitions_that_it_refers_to() -> None:
    body = {"name": "body", "in": "body", "schema": {"$ref": "#/definitions/a"}}
    whole = msgspec.json.decode(document({"p": body})) | {"definitions": {"a": {"type": "object"}, "b": {}}}
    assert part(msgspec.json.encode(whole)).read()["definitions"] == {"a": {"type": "object"}}


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"p": parameter("A" * openapi_v2.PART_LIMIT)}, "longer than 4194304 bytes"),
        ({"p": {**parameter(""), "x-a": [0] * 200_000}}, "more than 200000 values"),
        ({}, "no parameter p"),
        ({"p": {"$ref": "#/parameters/p"}}, "KeyError"),
        (5, "document"),
    ],
    ids=["bytes", "values", "missing", "reference to itself", "a number"],
)
def test_a_part_beyond_the_limits_is_refused(parameters: Any, why: str) -> None:
    with pytest.raises(Unusable, match=why):
        build(document(parameters), "g", "v1")


def test_a_document_of_too_many_values_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openapi_v2.msgspec.json, "decode", lambda body: pytest.fail("decoded"))
    with pytest.raises(Unusable, match="more than 500000 values"):
        build(b'{"paths":{},"x":[' + b"0," * 500_000 + b"0]}", "g", "v1")


def test_a_document_without_the_group_version_has_no_part() -> None:
    assert build(document({"p": parameter("")}), "other", "v1") is None
