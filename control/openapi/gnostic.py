"""The v2 document in protobuf, as kubectl before v1.27 and client-go's OpenAPI client request it.

The messages and field numbers are those of gnostic's openapiv2/OpenAPIv2.proto. Only what our documents hold is written:
a length-delimited field is its tag, its length and its bytes, and nested messages are that again, so a few functions do
where generated stubs would take a megabyte.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

_EXTENSION = "x-"
_PLACES = {"query": (3, 6, 20), "formData": (2, 6, 20)}
"""Places of parameters besides path and body: the field numbers of their message, of its type and of uniqueItems."""


def document(doc: dict[str, Any]) -> bytes:
    """Write a whole v2 document (openapi.v2.Document)."""
    info = _text(1, doc["info"]["title"]) + _text(2, doc["info"]["version"])
    paths = b"".join(_named(2, path, _path_item(item)) for path, item in doc["paths"].items())
    definitions = b"".join(_named(1, name, _schema(schema)) for name, schema in doc["definitions"].items())
    out = _text(1, doc["swagger"]) + _bytes(2, info) + _bytes(8, paths) + _bytes(9, definitions)
    shared = b"".join(_named(1, name, _parameter(p)) for name, p in doc.get("parameters", {}).items())
    return out + (_bytes(10, shared) if shared else b"")


def _path_item(item: dict[str, Any]) -> bytes:
    fields = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}
    out = b"".join(_bytes(fields[method], _operation(item[method])) for method in fields if method in item)
    return out + b"".join(_bytes(9, _item(p)) for p in item.get("parameters", ()))


def _operation(operation: dict[str, Any]) -> bytes:
    out = _texts(1, operation.get("tags", ())) + _text(3, operation.get("description", ""))
    out += _text(5, operation.get("operationId", ""))
    out += _texts(6, operation.get("produces", ())) + _texts(7, operation.get("consumes", ()))
    out += b"".join(_bytes(8, _item(p)) for p in operation.get("parameters", ()))
    answers = b"".join(_named(1, code, _bytes(1, _response(r))) for code, r in operation.get("responses", {}).items())
    out += _bytes(9, answers) + _texts(10, operation.get("schemes", ()))
    return out + _extensions(13, operation)


def _response(response: dict[str, Any]) -> bytes:
    out = _text(1, response.get("description", ""))
    return out + _bytes(2, _bytes(1, _schema(response["schema"]))) if "schema" in response else out


def _item(parameter: dict[str, Any]) -> bytes:
    """openapi.v2.ParametersItem: a parameter, or a reference (2) to one that is shared."""
    return _bytes(2, _text(1, parameter["$ref"])) if "$ref" in parameter else _bytes(1, _parameter(parameter))


def _parameter(parameter: dict[str, Any]) -> bytes:
    """openapi.v2.Parameter: a body parameter, or a query (3) or path (4) parameter under non_body_parameter."""
    name, place, description = parameter["name"], parameter["in"], parameter.get("description", "")
    if place == "body":
        body = _text(1, description) + _text(2, name) + _text(3, place) + _true(4, parameter.get("required"))
        return _bytes(1, body + _bytes(5, _schema(parameter["schema"])))
    out = _true(1, parameter.get("required")) + _text(2, place) + _text(3, description) + _text(4, name)
    if place in _PLACES:
        field, kind, unique = _PLACES[place]
        out += _text(kind, parameter.get("type", "")) + _true(unique, parameter.get("uniqueItems"))
        return _bytes(2, _bytes(field, out))
    out += _text(5, parameter.get("type", "")) + _true(19, parameter.get("uniqueItems"))
    return _bytes(2, _bytes(4, out))


def _schema(schema: dict[str, Any]) -> bytes:
    out = (
        _text(1, schema.get("$ref", "")) + _text(2, schema.get("format", "")) + _text(4, schema.get("description", ""))
    )
    if "default" in schema:
        out += _bytes(5, _any(schema["default"]))
    out += _texts(19, schema.get("required", ()))
    out += b"".join(_bytes(20, _any(value)) for value in schema.get("enum", ()))
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        out += _bytes(21, _bytes(1, _schema(extra)))
    if "type" in schema:
        out += _bytes(22, _text(1, schema["type"]))
    if "items" in schema:
        out += _bytes(23, _bytes(1, _schema(schema["items"])))
    if "properties" in schema:
        out += _bytes(25, b"".join(_named(1, name, _schema(sub)) for name, sub in schema["properties"].items()))
    return out + _extensions(31, schema)


def _extensions(field: int, of: dict[str, Any]) -> bytes:
    return b"".join(_named(field, key, _any(value)) for key, value in of.items() if key.startswith(_EXTENSION))


def _any(value: Any) -> bytes:
    """openapi.v2.Any: the value as YAML, of which JSON is a part."""
    return _text(2, msgspec.json.encode(value).decode())


def _named(field: int, name: str, value: bytes) -> bytes:
    return _bytes(field, _text(1, name) + _bytes(2, value))


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode()) if value else b""


def _texts(field: int, values: Iterable[str]) -> bytes:
    return b"".join(_bytes(field, value.encode()) for value in values)


def _true(field: int, value: Any) -> bytes:
    return _varint(field << 3) + b"\x01" if value else b""


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
