"""Protobuf bodies become what the same object is in JSON."""

import struct
from typing import Any

import pytest

from kube.nesting import DEEPEST
from kube.schema import wire
from kube.value_count import MOST_VALUES, TooManyValues
from tests.support import nesting


def number(value: int) -> bytes:
    out = b""
    value &= (1 << 64) - 1
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(tag: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return number(tag << 3) + number(value)
    data = value.encode() if isinstance(value, str) else value
    return number(tag << 3 | 2) + number(len(data)) + data


def test_the_envelope_names_the_kind() -> None:
    data = b"k8s\0" + field(1, field(1, "v1") + field(2, "Pod")) + field(2, b"inside") + field(3, "") + field(4, "")
    assert wire.open_envelope(data) == ("v1", "Pod", b"inside")
    with pytest.raises(wire.WireError, match="does not appear to be a protobuf message"):
        wire.open_envelope(b"{}")


def test_maps_lists_and_embedded_fields() -> None:
    metadata = field(1, "web") + field(2, "") + field(11, field(1, "app") + field(2, "web")) + field(8, b"")
    mount = field(1, "data") + field(3, "/data")
    container = field(1, "c") + field(2, "nginx") + field(9, mount) + field(18, 0)
    empty_dir = field(2, field(1, "Memory"))
    volume = field(1, "data") + field(2, empty_dir)
    spec = field(1, volume) + field(2, container) + field(4, 0)
    found = wire.decode(field(1, metadata) + field(2, spec) + field(3, b""), "core_v1", "Pod")
    assert found["metadata"] == {"name": "web", "labels": {"app": "web"}}
    assert found["spec"]["volumes"] == [{"name": "data", "emptyDir": {"medium": "Memory"}}]
    assert found["spec"]["containers"][0]["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]
    assert found["spec"]["terminationGracePeriodSeconds"] == 0, "a pointer to zero is not the absence of a value"
    assert found["status"] == {}


def test_bytes_times_quantities_and_numbers_or_strings() -> None:
    secret = wire.decode(field(2, field(1, "k") + field(2, b"\x00\xff")), "core_v1", "Secret")
    assert secret["data"] == {"k": "AP8="}
    time = wire.decode(field(8, field(1, 1767225600)), "meta_v1", "ObjectMeta")
    assert time == {"creationTimestamp": "2026-01-01T00:00:00Z"}
    # Go's zero time and two seconds: years have four digits.
    early = wire.decode(field(2, field(4, field(1, -62135596798))), "coordination_v1", "Lease")
    assert early["spec"] == {"renewTime": "0001-01-01T00:00:02.000000Z"}
    limits = field(1, field(1, "cpu") + field(2, field(1, "500m")))
    assert wire.decode(limits, "core_v1", "ResourceRequirements") == {"limits": {"cpu": "500m"}}
    action: dict[str, Any] = wire.decode(field(2, field(1, 1) + field(3, "http")), "core_v1", "HTTPGetAction")
    assert action["port"] == "http"
    action = wire.decode(field(2, field(1, 0) + field(2, 8080)), "core_v1", "HTTPGetAction")
    assert action["port"] == 8080


def test_names_that_differ_from_jsons_are_translated() -> None:
    bound = field(1, "Pod") + field(3, "web") + field(4, "some-uid")
    assert wire.decode(bound, "authentication_v1", "BoundObjectReference")["uid"] == "some-uid"


def test_negative_numbers_and_doubles() -> None:
    assert wire.decode(field(1, -5), "core_v1", "PreferredSchedulingTerm") == {"weight": -5}
    assert struct.unpack("<d", struct.pack("<d", 0.5))[0] == 0.5


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05ab", b"\x0b", b"\xff" * 12])
def test_broken_messages_are_refused(data: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.decode(data, "core_v1", "Pod")


def test_fields_that_nobody_knows_are_skipped() -> None:
    assert wire.decode(field(999, "x"), "core_v1", "Pod") == {}


def entry(text: bytes) -> bytes:
    return field(17, field(1, "m") + field(7, field(1, text)))


@pytest.mark.parametrize("levels", [DEEPEST + 1, 934, 5000, 100_000])
def test_json_within_a_message_has_the_limit_of_json(levels: int) -> None:
    text = b"[" * levels + b"]" * levels
    with pytest.raises(wire.WireError, match="exceeded max depth"):
        wire.decode(entry(text), "meta_v1", "ObjectMeta")


def test_levels_of_messages_and_of_json_within_them_count_together() -> None:
    allowed = DEEPEST - 3  # in an object, the list of managed fields, and one of them
    text = b"[" * allowed + b"]" * allowed
    assert wire.decode(entry(text), "meta_v1", "ObjectMeta")["managedFields"][0]["fieldsV1"]
    with pytest.raises(wire.WireError, match="exceeded max depth"):
        wire.decode(entry(b"[" + text + b"]"), "meta_v1", "ObjectMeta")


def test_values_of_json_within_a_message_count_as_its_fields() -> None:
    text = b"[" + b"{}," * (MOST_VALUES // 8) + b"{}]"
    wire.decode(entry(text), "meta_v1", "ObjectMeta")
    with pytest.raises(TooManyValues):
        wire.decode(entry(text) * 8, "meta_v1", "ObjectMeta")
    commas = b'"' + b"," * (MOST_VALUES // 2) + b'"'
    wire.decode(entry(commas) * 8, "meta_v1", "ObjectMeta")


@pytest.mark.parametrize("name", ["not", "items", "additionalProperties", "properties"])
@pytest.mark.parametrize("levels", [DEEPEST, 2 * DEEPEST + 1, 100_000])
def test_schemas_within_schemas_have_the_limit_of_json(name: str, levels: int) -> None:
    _, _, message = wire.open_envelope(nesting.definition_message(name, levels))
    with pytest.raises(wire.WireError, match="exceeded max depth"):
        wire.decode(message, "apiextensions_v1", "CustomResourceDefinition")


@pytest.mark.parametrize("name", ["not", "items", "additionalProperties", "properties"])
def test_the_deepest_schemas_are_read(name: str) -> None:
    levels = (DEEPEST - 6) // (2 if name == "properties" else 1)
    _, _, message = wire.open_envelope(nesting.definition_message(name, levels))
    found = wire.decode(message, "apiextensions_v1", "CustomResourceDefinition")
    assert DEEPEST - 2 <= nesting.levels_of(found) <= DEEPEST
