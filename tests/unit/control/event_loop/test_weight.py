"""Weight of a body by its number of values, and the limit on that number."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from control.decoding.decode import Decoder
from control.decoding.yaml_body import load_yaml
from control.event_loop.weight import LARGE, VALUE, weight
from kube import value_count
from kube.api import core_v1
from kube.errors import StatusError
from kube.schema import wire_encode
from kube.value_count import MOST_VALUES, TooManyValues, check_count

DECODER = Decoder(core_v1.Pod, "v1", "Pod")
MEDIA = {"json": "application/json", "yaml": "application/yaml", "protobuf": "application/vnd.kubernetes.protobuf"}


def in_json(count: int) -> bytes:
    return b'{"spec":{"containers":[' + b",".join([b"{}"] * count) + b"]}}"


def in_yaml(count: int) -> bytes:
    return b"spec:\n containers:\n" + b" -\n" * count


def in_protobuf(count: int) -> bytes:
    spec = b"\x12\x00" * count
    length = bytearray()
    size = len(spec)
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    length.append(size)
    return wire_encode.envelope("v1", "Pod", b"\x12" + bytes(length) + spec)


FORMS: dict[str, Callable[[int], bytes]] = {"json": in_json, "yaml": in_yaml, "protobuf": in_protobuf}


@pytest.mark.parametrize("form", FORMS)
def test_many_small_values_weigh_as_much_as_a_large_object(form: str) -> None:
    body = FORMS[form](LARGE // VALUE)
    assert len(body) < LARGE / 8 and weight(body, MEDIA[form]) >= LARGE


@pytest.mark.parametrize("form", FORMS)
def test_an_ordinary_object_weighs_little(form: str) -> None:
    containers = [{"name": f"c{n}", "image": "registry.example/some/image:v1", "command": ["sleep"]} for n in range(4)]
    labels = {"app.kubernetes.io/name": "some-name", "app.kubernetes.io/instance": "some-instance"}
    pod = {"metadata": {"name": "some-name", "labels": labels}, "spec": {"containers": containers}}
    body = msgspec.json.encode(pod)
    if form == "protobuf":
        body = wire_encode.envelope("v1", "Pod", wire_encode.framed(wire_encode.encode(pod, "core_v1", "Pod")))
    elif form == "yaml":
        body = b"\n".join(
            [b"metadata:", b"  name: some-name", b"spec:", b"  containers:", *[b"  - name: some-container-name"] * 9]
        )
    assert weight(body, MEDIA[form]) < min(LARGE / 8, 10 * len(body))


@pytest.mark.parametrize("form", FORMS)
def test_a_body_of_too_many_values_is_refused_before_it_becomes_an_object(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    converted = list[Any]()
    monkeypatch.setattr(msgspec, "convert", lambda obj, type: converted.append(obj))
    with pytest.raises(StatusError) as found:
        DECODER.decode(FORMS[form](MOST_VALUES + 1), MEDIA[form], "Warn", [])
    assert (found.value.code, converted) == (400 if form == "yaml" else 413, [])
    if form != "yaml":
        assert found.value.reason == "RequestEntityTooLarge"
        assert found.value.message == f"Request entity too large: more than {MOST_VALUES} values"


def test_json_in_a_yaml_body_has_the_same_limit() -> None:
    with pytest.raises(ValueError, match=f"more than {MOST_VALUES} values"):
        load_yaml(in_json(MOST_VALUES + 1))


def test_commas_and_brackets_of_texts_are_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_count, "MOST_VALUES", 10)
    for text in (",", "[{", '",', '\\",', "\\", "\\\\,", ',"{', '","'):
        check_count(json.dumps({f"{text}{n}" * 3: text * 20 for n in range(5)}).encode())
        check_count(json.dumps([text * 20] * 8).encode())
        with pytest.raises(TooManyValues):
            check_count(json.dumps([text] * 11).encode())


def test_values_of_a_message_are_counted_in_all_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from kube.schema import wire

    monkeypatch.setattr(wire, "MOST_VALUES", 60)
    labels = wire_encode.encode({"metadata": {"labels": {f"k{n}": "v" for n in range(10)}}}, "core_v1", "Pod")
    assert len(wire.decode(labels, "core_v1", "Pod")["metadata"]["labels"]) == 10
    monkeypatch.setattr(wire, "MOST_VALUES", 30)
    with pytest.raises(TooManyValues):
        wire.decode(labels, "core_v1", "Pod")
    items = wire_encode.encode({"metadata": {"name": "a"}}, "core_v1", "Pod")
    many = b"".join(b"\x12" + bytes([len(items)]) + items for _ in range(100))
    assert len(wire.decode_list(many, "core_v1", "Pod")["items"]) == 100
