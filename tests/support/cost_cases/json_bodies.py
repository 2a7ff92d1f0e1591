"""JSON bodies, as such and as objects of built-in types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from control.decoding.decode import Decoder, load_json
from kube.api import apiextensions_v1, core_v1
from tests.support.cost_cases.inputs import as_json, cases, each, encoded, fill

PODS = Decoder(core_v1.Pod, "v1", "Pod")
CONFIG_MAPS = Decoder(core_v1.ConfigMap, "v1", "ConfigMap")
DEFINITIONS = Decoder(apiextensions_v1.CustomResourceDefinition, "apiextensions.k8s.io/v1", "CustomResourceDefinition")
JSON: dict[str, Callable[[int], bytes]] = {
    "numbers": fill(b"1,", '{"x":[', "1]}"),
    "a long integer": fill(b"9", '{"x":', "}"),
    "a long float": fill(b"9", '{"x":0.', "}"),
    "brackets in strings": fill(b'"[[",', '{"x":[', "[],[]]}"),
    "escapes and many brackets": fill(b'\\"', '{"x":["', '"' + ",[]" * 500 + "]}"),
    "no end of a string": fill(b"\\\\", '{"x":[' + "[]," * 500 + '"'),
    "deep": fill(b"["),
    "deep and wide": fill(b"{},", "[" * 390, "{}" + "]" * 390),
    "unknown fields": encoded(each('"u%d":1,', '{"metadata":{"name":"a"},', '"u":1}')),
    "repeated fields": encoded(lambda size: "{" + "".join(f'"u{i}":1,"u{i}":2,' for i in range(size // 20)) + '"u":1}'),
    "one field again and again": fill(b'"u":1,', "{", '"u":1}'),
    "unknown fields below a long key": lambda size: (
        b'{"spec":{"versions":[{"schema":{"openAPIV3Schema":{"properties":{"%b":{%b"u":1}}}}}]}}'
        % (b"k" * (size // 2), "".join(f'"u{i}":1,' for i in range(size // 20)).encode())
    ),
    "items below a long key": lambda size: (
        b'{"spec":{"versions":[{"schema":{"openAPIV3Schema":{"properties":{"%b":{"allOf":[%b{}]}}}}}]}}'
        % (b"k" * (size // 2), b"{}," * (size // 6))
    ),
    "long keys in one another": lambda size: (
        b'{"spec":{"versions":[{"schema":{"openAPIV3Schema":%b{}%b}}]}}'
        % (b'{"properties":{"%b":' % (b"k" * max(1, size // 100 - 20)) * 100, b"}}" * 100)
    ),
    "repeated fields below a long key": lambda size: (
        b'{"x":{"%b":{%b"u":1}}}'
        % (b"k" * (size // 2), "".join(f'"u{i}":1,"u{i}":2,' for i in range(size // 40)).encode())
    ),
    "a wrong type at the end of a long list": as_json(
        lambda size: {"spec": {"containers": [{"name": "a"}] * (size // 14) + [{"name": 1}]}}
    ),
    "nulls": as_json(lambda size: {"spec": {"containers": [{"name": "a", "args": None}] * (size // 26)}}),
    "quantities": as_json(
        lambda size: {"spec": {"overhead": {f"r{i}": "1" * 900 for i in range(size // 910)}, "containers": []}}
    ),
    "times": as_json(
        lambda size: {"metadata": {"managedFields": [{"time": "2026-01-01T00:00:00.1Z"} for _ in range(size // 33)]}}
    ),
    "base64": as_json(lambda size: {"binaryData": {"a": "YWJj" * (size // 4)}}),
    "base64 in lines": as_json(lambda size: {"binaryData": {"a": "Y\n" * (size // 4)}}),
}


def decoded(decoder: Decoder, validation: Any = "Strict") -> Callable[[bytes], object]:
    return lambda body: decoder.decode(body, "application/json", validation, [], check_kind=False)


CASES = cases("JSON", JSON, load_json)
for name, decoder in (("pod", PODS), ("config map", CONFIG_MAPS), ("definition", DEFINITIONS)):
    CASES += cases(f"JSON of a {name}", JSON, decoded(decoder))
