"""Objects that nest as deep as is wanted, as bodies in JSON and protobuf, and the forms in which they are read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from kube.json_object import Object
from kube.schema import wire, wire_encode
from tests.support.control import ApiUnderTest

NAMESPACE = "/api/v1/namespaces/default"
CONFIG_MAPS = f"{NAMESPACE}/configmaps"
THINGS = "/apis/nesting.example/v1/namespaces/default/things"
REVISIONS = "/apis/apps/v1/namespaces/default/controllerrevisions"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PROTOBUF = {"Content-Type": "application/vnd.kubernetes.protobuf"}
_META = "v=v1;g=meta.k8s.io"
FORMS = (
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    *(
        f"application/{kind};as={form};{_META}"
        for form in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
        for kind in ("json", "yaml", "vnd.kubernetes.protobuf")
    ),
)
"""Values of the header Accept; a kind of object does not have all of them."""
QUERIES = (
    "",
    "?limit=3",
    "?pretty=1",
    "?labelSelector=a",
    "?labelSelector=!a",
    "?fieldSelector=metadata.name!%3Da",
    "?includeObject=Object",
    "?watch=1&timeoutSeconds=1&resourceVersion=0",
)
"""Options of lists."""


def nested(levels: int, leaf: Any = None) -> Any:
    """Return an object that nests so many levels deep around a leaf, which by default is its innermost level."""
    value = {} if leaf is None else leaf
    for _ in range(levels - 1 if leaf is None else levels):
        value = {"f:a": value}
    return value


def nested_lists(levels: int) -> Any:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def config_map(name: str, levels: int) -> Object:
    """Return a ConfigMap of so many levels, by its managed fields."""
    entry = {
        "manager": "m",
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": nested(levels - 4),
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "managedFields": [entry]}}


def pod(name: str, levels: int) -> Object:
    """Return a Pod of so many levels, by its managed fields."""
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return {**config_map(name, levels), "kind": "Pod", "spec": spec, "status": {"phase": "Pending"}}


def thing(name: str, levels: int) -> Object:
    return {**_thing(name), "spec": nested(levels - 1)}


def thing_of_lists(name: str, levels: int) -> Object:
    return {**_thing(name), "spec": nested_lists(levels - 1)}


def _thing(name: str) -> Object:
    return {"apiVersion": "nesting.example/v1", "kind": "Things", "metadata": {"name": name}}


def controller_revision(name: str, levels: int) -> Object:
    head = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": name}}
    return {**head, "revision": 1, "data": nested(levels - 1)}


def definition(name: str, schema: Object) -> Object:
    names = {"plural": name, "singular": name, "kind": name.title()}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{name}.nesting.example"},
        "spec": {"group": "nesting.example", "scope": "Namespaced", "names": names, "versions": [version]},
    }


def definition_of_lists(name: str, levels: int) -> Object:
    """Return the definition of lists of lists; six levels are around the lists."""
    schema: Object = {"type": "object"}
    for _ in range(levels - 7):
        schema = {"type": "array", "items": schema}
    return definition(name, {"type": "object", "properties": {"a": schema}})


def definition_of_objects(name: str, levels: int) -> Object:
    """Return the definition of objects within objects, each of which is two levels."""
    schema: Object = {"type": "object"}
    for _ in range((levels - 5) // 2):
        schema = {"type": "object", "properties": {"a": schema}}
    return definition(name, schema)


THING = definition("things", {"type": "object", "x-kubernetes-preserve-unknown-fields": True})
KINDS: dict[str, tuple[str, Callable[[str, int], Object]]] = {
    "ConfigMap": (CONFIG_MAPS, config_map),
    "Thing": (THINGS, thing),
    "Thing of lists": (THINGS, thing_of_lists),
    "ControllerRevision": (REVISIONS, controller_revision),
    "definition of lists": (DEFINITIONS, definition_of_lists),
    "definition of objects": (DEFINITIONS, definition_of_objects),
}
"""Collections, and objects of a name and so many levels."""


def levels_of(value: Any) -> int:
    """Return how deep a value nests."""
    found, level = 0, [value]
    while level := [one for one in level if isinstance(one, dict | list)]:
        found += 1
        level = [part for one in level for part in (one.values() if isinstance(one, dict) else one)]
    return found


def protobuf(obj: Object, module: str) -> bytes:
    """Return an object in protobuf."""
    message = wire_encode.encode(obj, module, obj["kind"])
    return wire_encode.envelope(obj["apiVersion"], obj["kind"], wire_encode.framed(message))


def json_text(value: Any) -> bytes:
    """Return a value as JSON, also one that nests deeper than the encoders' limit."""
    pieces, at = list[bytes](), [value]
    while at:
        one = at.pop()
        if isinstance(one, bytes):
            pieces.append(one)
        elif isinstance(one, dict | list):
            named = isinstance(one, dict)
            parts = one.items() if isinstance(one, dict) else (("", part) for part in one)
            at.append(b"}" if named else b"]")
            for index, (key, part) in reversed(list(enumerate(parts))):
                at.append(part)
                at.append((b"," if index else b"") + (json.dumps(key).encode() + b":" if named else b""))
            pieces.append(b"{" if named else b"[")
        else:
            pieces.append(json.dumps(one).encode())
    return b"".join(pieces)


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def field(number: int, data: bytes) -> bytes:
    """Return a field of protobuf that has a length."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def config_map_with_fields(name: str, *texts: bytes) -> bytes:
    """Return a ConfigMap in protobuf with these texts as the JSON of its managed fields."""
    head = field(1, b"m") + field(2, b"Update") + field(3, b"v1") + field(6, b"FieldsV1")
    entries = b"".join(field(17, head + field(7, field(1, text))) for text in texts)
    kind = field(1, field(1, b"v1") + field(2, b"ConfigMap"))
    return wire.MAGIC + kind + field(2, field(1, field(1, name.encode()) + entries))


_AROUND_SCHEMA = {"not": (), "items": (1,), "additionalProperties": (2,), "properties": (2,)}
"""Numbers of the fields of the messages between a schema and the one in its field."""


def definition_message(name: str, levels: int) -> bytes:
    """Return a definition in protobuf whose schema has so many schemas in a field, one within the other."""
    types = wire.types()
    number = {field: number for number, (field, _) in types["apiextensions_v1.JSONSchemaProps"].items()}[name]
    inner: list[bytes] = []
    length = 0
    for _ in range(levels):
        for each in (*reversed(_AROUND_SCHEMA[name]), number):
            inner.append(varint(each << 3 | 2) + varint(length))
            length += len(inner[-1])
    return with_schema(b"".join(reversed(inner)))


def with_schema(message: bytes) -> bytes:
    """Return a definition in protobuf with a schema, given as a message."""
    types = wire.types()
    for kind, part in (
        ("CustomResourceValidation", "openAPIV3Schema"),
        ("CustomResourceDefinitionVersion", "schema"),
        ("CustomResourceDefinitionSpec", "versions"),
        ("CustomResourceDefinition", "spec"),
    ):
        numbers = {field: number for number, (field, _) in types[f"apiextensions_v1.{kind}"].items()}
        message = field(numbers[part], message)
    head = field(1, field(1, b"apiextensions.k8s.io/v1") + field(2, b"CustomResourceDefinition"))
    return wire.MAGIC + head + field(2, message)


async def check_reads(server: ApiUnderTest, place: str, name: str) -> None:
    """Read an object by name, and lists and watches that contain it, in every form."""
    at_once = asyncio.Semaphore(16)  # most of the time is that of the watches

    async def check(form: str, path: str) -> None:
        async with at_once:
            answer = await server.request("GET", path, headers={"Accept": form})
        assert answer.status in (200, 406), (form, path, answer.status, answer.body[:300])
        assert b"Internal error" not in answer.body, (form, path, answer.body[:300])

    paths = (f"{place}/{name}", *(place + query for query in QUERIES))
    await asyncio.gather(*(check(form, path) for form in FORMS for path in paths))
