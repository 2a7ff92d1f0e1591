"""Values at and beyond the limits of every field of every built-in type: refused with 400, or readable in every encoding.

The Go type of a field is that of its protobuf form where the OpenAPI definitions do not say it.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from control.decoding.decode import Decoder
from kube.api import meta_v1
from kube.errors import StatusError
from kube.resources import RESOURCES, Resource
from kube.schema import wire, wire_encode
from kube.schema.fields import FieldType, fields
from tests.support.objects import make

KINDS = sorted({(r.module, r.kind): r for r in RESOURCES}.values(), key=lambda r: (r.module, r.kind))
SHOWN = pytest.mark.parametrize("resource", KINDS, ids=lambda r: f"{r.module}.{r.kind}")
TIMES = (
    "2020-02-31T00:00:00Z",
    "2021-02-29T00:00:00Z",
    "2020-04-31T12:00:00+01:00",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "9999-12-31T23:59:59.999999Z",
    "２０２０-01-01T00:00:00Z",
    "2020-01-01T00:00:00+００:00",
    "2020-01-01T24:00:00Z",
    "2020-01-01T00:00:00",
    "2020-01-01T00:00:00+00:00:30.5",
    "2020-W01-1T00:00:00Z",
    "20200101T000000Z",
    "2020-01-01 00:00:00Z",
    "2020-01-01T00:00:00Z\n",
    "2020-01-01T00:00:00.123456Z",
    "2020-01-01T00:00:00+24:00",
    "",
    "\x00",
)
NUMBERS = tuple(
    sign * size + more
    for size in (2**31, 2**32, 2**33, 2**63, 2**64, 10**400)
    for sign in (1, -1)
    for more in (-1, 0, 1)
)
QUANTITIES = ("1e1000", "-1", "１", "1\n", "0.0000000001", "9" * 1100, "", 10**400, 1e300, -0.0, "1E", "5e1016")
SCHEMAS = (
    [1],
    [None],
    [{}],
    [{"type": 1}],
    1,
    "x",
    True,
    {},
    {"items": [1]},
    {"maximum": "x"},
    {"items": {"x": 1}},
    {"items": {"maxItems": 2**63}},
)
ODD = (*TIMES, *NUMBERS, *QUANTITIES, *SCHEMAS, "0", "％", "=", "YQ", "YQ==\n", 0.5, 1e19)
LIMITS = {"int32": 2**31, "int64": 2**63, "intstr.IntOrString": 2**31}


def structs(hint: Any, found: dict[type[msgspec.Struct], None]) -> dict[type[msgspec.Struct], None]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        if hint not in found:
            found[hint] = None
            for field in msgspec.structs.fields(hint):
                structs(field.type, found)
    for part in getattr(hint, "__args__", ()):
        structs(part, found)
    return found


REACHED = dict[type[msgspec.Struct], None]()
for kind in (meta_v1.ListMeta, meta_v1.Status, meta_v1.DeleteOptions, *(r.type for r in KINDS)):
    structs(kind, REACHED)
STRUCTS = pytest.mark.parametrize("struct", REACHED, ids=lambda s: f"{s.__module__.rpartition('.')[2]}.{s.__name__}")


def module_of(struct: type[msgspec.Struct]) -> str:
    return struct.__module__.rpartition(".")[2]


def kinds_on_the_wire(type_name: str) -> dict[str, str]:
    """Return the protobuf kinds of a type's fields by JSON name, with those of embedded messages."""
    found = dict[str, str]()
    for field, kind in wire.types().get(type_name, {}).values():
        found |= kinds_on_the_wire(kind[1:]) if kind[0] == "&" else {field: kind}
    return found


def decoded(struct: type[msgspec.Struct], body: Any, media: str = "application/json") -> dict[str, Any] | None:
    """Return an object as it would be stored, None if it is refused with 400."""
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    decoder = Decoder(struct, "v1", struct.__name__)
    try:
        return decoder.decode(data, media, "Ignore", [], check_kind=False)
    except StatusError as refused:
        assert refused.code == 400, refused.message
        return None


def assert_valid(value: Any, type_: FieldType, wire_kind: str) -> None:
    """Check that a Go client can decode a stored value."""
    if type_.struct is not None:
        known = {field.name: field.type for field in fields(type_.struct)}
        below = kinds_on_the_wire(f"{module_of(type_.struct)}.{type_.struct.__name__}")
        for key, part in value.items():
            assert_valid(part, known[key], below.get(key, ""))
    elif type_.item is not None:
        for part in value if isinstance(value, list) else value.values():
            assert_valid(part, type_.item, wire_kind.lstrip("*%"))
    elif type_.either is not None:
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                assert_valid(part, FieldType("struct", "", type_.either), "")
    elif isinstance(value, int) and type_.go in LIMITS:
        assert -LIMITS[type_.go] <= value < LIMITS[type_.go]
    elif wire_kind == "meta_v1.Time" and value:
        assert datetime.strptime(value, "%Y-%m-%dT%H:%M:%SZ") and value.isascii() and len(value) == 20
    elif wire_kind == "meta_v1.MicroTime" and value:
        assert datetime.strptime(value, "%Y-%m-%dT%H:%M:%S.%fZ") and value.isascii() and len(value) == 27


def assert_readable(struct: type[msgspec.Struct], found: dict[str, Any]) -> None:
    """Check that an object that was accepted survives protobuf, and that a body of the same text is accepted again."""
    head = {"kind", "apiVersion"} - {field.name for field in fields(struct)}
    own = {key: value for key, value in found.items() if key not in head}
    assert_valid({k: v for k, v in own.items() if k not in ("kind", "apiVersion")}, FieldType("struct", "", struct), "")
    assert decoded(struct, own) == found
    message = wire_encode.encode(own, module_of(struct), struct.__name__)
    body = wire_encode.envelope("v1", struct.__name__, wire_encode.framed(message))
    again = decoded(struct, body, wire.MEDIA_TYPE)
    assert again is not None and set_values(again) == set_values(found)


def set_values(value: Any) -> Any:
    """Return a value without what protobuf does not tell from its absence."""
    if isinstance(value, dict):
        parts = {key: set_values(part) for key, part in value.items()}
        return {key: part for key, part in parts.items() if part is not None} or None
    return ([set_values(part) for part in value] if isinstance(value, list) else value) or None


def in_place(value: Any, type_: FieldType) -> Any:
    """Return a value as an item of the lists and maps that a field has."""
    if type_.item is None:
        return value
    inner = in_place(value, type_.item)
    return [inner] if type_.kind == "list" else {"k": inner}


@STRUCTS
def test_each_field_refuses_a_value_or_shows_it_in_every_encoding(struct: type[msgspec.Struct]) -> None:
    for field in fields(struct):
        if field.name in {"kind", "apiVersion", *wire_encode.without_number(struct)}:
            continue
        for value in ODD:
            found = decoded(struct, {field.name: in_place(value, field.type)})
            if found is not None:
                assert_readable(struct, found)


def places(value: Any, set_: Callable[[Any], None]) -> Iterator[Callable[[Any], None]]:
    """Yield for every scalar in a value what puts another one into its place."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from places(part, lambda new, at=value, key=key: at.__setitem__(key, new))  # type: ignore[misc]
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from places(part, lambda new, at=value, index=index: at.__setitem__(index, new))  # type: ignore[misc]
    else:
        yield set_


@SHOWN
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
@example(seed=1)
def test_an_odd_value_anywhere_in_an_object_is_refused_or_shown_in_every_encoding(
    resource: Resource, seed: int
) -> None:
    chosen = random.Random(seed)
    obj = make(resource.type, seed, wire_encode.without_number)
    for _ in range(8):
        changed = copy.deepcopy(obj)
        chosen.choice(list(places(changed, lambda new: None)) or [lambda new: None])(chosen.choice(ODD))
        found = decoded(resource.type, changed)
        if found is not None:
            assert_readable(resource.type, found)


@STRUCTS
def test_the_types_of_times_and_integers_are_those_of_protobuf(struct: type[msgspec.Struct]) -> None:
    forms = {"meta_v1.Time": "date-time", "meta_v1.MicroTime": "micro-time", "b": "byte"}
    below = kinds_on_the_wire(f"{module_of(struct)}.{struct.__name__}")
    for field in fields(struct):
        kind = below.get(field.name, "").lstrip("*%")
        assert kind not in forms or field.facts.format == forms[kind]
        assert kind != "i" or field.facts.format in ("int32", "int64")
