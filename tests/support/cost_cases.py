"""The readers of what clients, pods, backends and nodes send, each with inputs that grow the worst way."""

from __future__ import annotations

import asyncio
import base64
import json
import zlib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

from agent.images.names import with_default_tag
from agent.podspec.environment import expand, names_in
from agent.server import log_files, log_request
from agent.streaming import spdy
from agent.streaming.channels import choose
from control.cel import CompileError, Declarations, EvaluationError, compile
from control.cel.errors import BudgetExceeded
from control.cel.types import INT, STRING, list_of
from control.controllers.cronjob import schedule as cron
from control.custom import formats, jsonpath, patterns, structural, uniqueness, validation
from control.custom.columns import Columns
from control.custom.decoder import CustomDecoder
from control.custom.schema import Schema
from control.patch.apply import apply, track_update
from control.patch.json_patch import apply_json_patch
from control.patch.merge_patch import apply_merge_patch
from control.patch.schema import of_object
from control.patch.strategic import strategic_merge
from control.registry import checks
from control.registry.batch.schedule import schedule_problem
from control.resource_metrics import sample
from control.server import html_page, links, negotiate, requestinfo, yaml_body
from control.server.decode import Decoder, load_json
from control.storage.listing import decode_token, parse_revision
from kube import duration, names, quantity, selectors
from kube.api import apiextensions_v1, apps_v1, core_v1
from kube.clock import parse_time
from kube.schema import wire
from netproxy.dns import forward
from netproxy.dns import wire as dns_wire
from tests.support.cost import LARGEST, Case

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HEAD = 64 * 1024
"""Bytes of a request's head, and so of a URL, a query or a header."""
OBJECT = LARGEST


def fill(unit: bytes | str, before: bytes | str = "", after: bytes | str = "") -> Callable[[int], Any]:
    """Repeat a unit to so many bytes, between a beginning and an end."""

    def build(size: int) -> Any:
        return before + unit * max(1, size // len(unit)) + after  # type: ignore[operator]

    if isinstance(unit, bytes):
        before, after = (part.encode() if isinstance(part, str) else part for part in (before, after))
    return build


def each(form: str, before: str = "", after: str = "", unit: int = 0) -> Callable[[int], str]:
    """Repeat a form with a number in it, so that no two are the same."""

    def build(size: int) -> str:
        return before + "".join(form % i for i in range(max(1, size // (unit or len(form) + 3)))) + after

    return build


def encoded(build: Callable[[int], str]) -> Callable[[int], bytes]:
    return lambda size: build(size).encode()


def as_json(make: Callable[[int], Any]) -> Callable[[int], bytes]:
    return lambda size: json.dumps(make(size), separators=(",", ":")).encode()


# -- YAML ---------------------------------------------------------------------------------------------------------------
YAML: dict[str, Callable[[int], bytes]] = {
    "base 60": fill(b":59", "a: 1"),
    "a long integer": fill(b"9", "a: 1"),
    "a long float": fill(b"9", "a: 0."),
    "a long exponent": fill(b"9", "a: 1e"),
    "underscores": fill(b"_", "a: 1"),
    "hexadecimal": fill(b"f", "a: 0x"),
    "octal": fill(b"7", "a: 0"),
    "bits": fill(b"1", "a: 0b"),
    "scalars": fill(b"- a\n"),
    "nulls": fill(b"- \n"),
    "numbers in a list": fill(b"1,", "[", "]"),
    "mappings": fill(b"- {a: {b: c}}\n"),
    "keys": encoded(each("k%d: 1\n")),
    "one key again and again": fill(b"a: 1\n"),
    "a long key": fill(b"k", "", ": 1"),
    "deep lists": fill(b"["),
    "deep blocks": fill(b"- "),
    "deep and wide": fill(b"1,", "[" * 390, "]" * 390),
    "explicit keys": fill(b"? a\n: b\n"),
    "merge keys": fill(b"- <<: {a: 1}\n"),
    "nested merge keys": fill(b"<<: {", "{"),
    "anchors": encoded(each("- &a%d x\n")),
    "aliases": fill(b"- *a\n", "- &a x\n"),
    "tags": fill(b"- !!int 1\n"),
    "directives": encoded(each("%%TAG !t%d! x:\n", after="--- a\n")),
    "directives after a document": encoded(each("%%TAG !t%d! x:\n", before="a: 1\n...\n", after="--- a\n")),
    "documents": fill(b"---\n"),
    "ends of documents": fill(b"...\n", "a\n"),
    "comments": fill(b"#\n"),
    "blank lines": fill(b"\n"),
    "spaces": fill(b" ", "a:", "b"),
    "a plain scalar in lines": fill(b"x\n ", "a: "),
    "a block": fill(b" x\n", "a: |\n"),
    "a folded block": fill(b" x\n\n", "a: >\n"),
    "escapes": fill(b"\\x41", 'a: "', '"'),
    "quotes in quotes": fill(b"''", "a: '", "'"),
    "no end of a quote": fill(b"a ", 'a: "'),
    "binary": fill(b"YWJj", "a: !!binary "),
    "JSON": fill(b'{"a":1},', '{"a":[', "{}]}"),
    "nearly JSON": fill(b'{"a":1},', '{"a":[', "{}],}"),
    "nearly JSON of strings": fill(b'\\"', '{"a":"', '",}'),
}

# -- JSON and typed objects ---------------------------------------------------------------------------------------------
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


def yaml_decoded(body: bytes) -> object:
    return PODS.decode(body, "application/yaml", "Strict", [], check_kind=False)


# -- protobuf -----------------------------------------------------------------------------------------------------------
def _varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _nested(number: int, depth: int, inner: bytes) -> bytes:
    """Nest messages from the inside out, in one pass."""
    heads, length = [], len(inner)
    for _ in range(depth):
        heads.append(_varint(number << 3 | 2) + _varint(length))
        length += len(heads[-1])
    return b"".join(reversed(heads)) + inner


PROTOBUF: dict[str, Callable[[int], tuple[bytes, str]]] = {
    "empty items": lambda size: (_field(2, _field(2, b"") * (size // 2)), "Pod"),
    "map entries": lambda size: (
        _field(2, b"".join(_field(1, b"k%d" % i) for i in range(size // 10)) * 2),
        "ConfigMap",
    ),
    "unknown numbers": lambda size: (b"\x78\x01" * (size // 2), "Pod"),
    "long numbers": lambda size: (b"\x78" + b"\xff" * size, "Pod"),
    "deep": lambda size: (_nested(21, size // 4, b""), "JSONSchemaProps"),
    "deep with a large inside": lambda size: (_nested(21, 200, _field(1, b"x" * size)), "JSONSchemaProps"),
    "one field again and again": lambda size: (_field(3, b"\x0a\x00") * (size // 4), "Pod"),
}


def read_protobuf(given: tuple[bytes, str]) -> object:
    message, kind = given
    return wire.decode(message, "apiextensions_v1" if kind == "JSONSchemaProps" else "core_v1", kind)


# -- patches ------------------------------------------------------------------------------------------------------------
def pod(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "uid": "1"}, "spec": spec}


def _items(count: int, name: str = "n") -> list[dict[str, Any]]:
    return [{"name": f"{name}{i}"} for i in range(count)]


def _strategic(
    old: Callable[[int], Any], patch: Callable[[int], Any]
) -> tuple[Callable[[int], Any], Callable[[Any], Any]]:
    return lambda size: (old(size), patch(size)), lambda given: strategic_merge(given[0], given[1], core_v1.Pod)


ENV = 14
STRATEGIC = {
    "merged items, all the same": _strategic(
        lambda size: pod(volumes=_items(size // ENV)), lambda size: {"spec": {"volumes": _items(size // ENV)}}
    ),
    "merged items, all new": _strategic(
        lambda size: pod(volumes=_items(size // ENV)), lambda size: {"spec": {"volumes": _items(size // ENV, "m")}}
    ),
    "merged items, reversed": _strategic(
        lambda size: pod(volumes=_items(size // ENV)), lambda size: {"spec": {"volumes": _items(size // ENV)[::-1]}}
    ),
    "deleted items": _strategic(
        lambda size: pod(volumes=_items(size // 30)),
        lambda size: {"spec": {"volumes": [{"$patch": "delete", **item} for item in _items(size // 30)]}},
    ),
    "items ordered": _strategic(
        lambda size: pod(volumes=_items(size // ENV)),
        lambda size: {
            "spec": {"$setElementOrder/volumes": _items(size // ENV)[::-1], "volumes": _items(size // ENV)[::-1]}
        },
    ),
    "scalars": _strategic(
        lambda size: {"metadata": {"finalizers": [f"f{i}" for i in range(size // 8)]}},
        lambda size: {"metadata": {"finalizers": [f"g{i}" for i in range(size // 8)]}},
    ),
    "scalars deleted": _strategic(
        lambda size: {"metadata": {"finalizers": [f"f{i}" for i in range(size // 8)]}},
        lambda size: {"metadata": {"$deleteFromPrimitiveList/finalizers": [f"f{i}" for i in range(size // 8)]}},
    ),
    "scalars ordered": _strategic(
        lambda size: {"metadata": {"finalizers": [f"f{i}" for i in range(size // 8)]}},
        lambda size: {"metadata": {"$setElementOrder/finalizers": [f"f{i}" for i in range(size // 8)][::-1]}},
    ),
    "keys retained": _strategic(
        lambda size: {"metadata": {"labels": {f"k{i}": "" for i in range(size // 10)}}},
        lambda size: {"metadata": {"labels": {"$retainKeys": [f"k{i}" for i in range(size // 10)]}}},
    ),
    "keys retained and set": _strategic(
        lambda size: {"metadata": {"labels": {}}},
        lambda size: {
            "metadata": {
                "labels": {"$retainKeys": [f"k{i}" for i in range(size // 20)]}
                | {f"k{i}": "" for i in range(size // 20)}
            }
        },
    ),
    "numbers for keys": _strategic(
        lambda size: pod(containers=[{"name": "a", "ports": [{"containerPort": i} for i in range(size // 22)]}]),
        lambda size: {
            "spec": {"containers": [{"name": "a", "ports": [{"containerPort": i} for i in range(size // 22)]}]}
        },
    ),
    "objects for keys": _strategic(
        lambda size: pod(volumes=_items(size // 30)),
        lambda size: {"spec": {"volumes": [{"name": {"a": i}} for i in range(size // 30)]}},
    ),
}


def _json_patch(
    old: Callable[[int], Any], patch: Callable[[int], Any]
) -> tuple[Callable[[int], Any], Callable[[Any], Any]]:
    return lambda size: (old(size), patch(size)), lambda given: apply_json_patch(*given)


JSON_PATCH = {
    "operations": _json_patch(
        lambda size: {"a": {}}, lambda size: [{"op": "add", "path": f"/a/k{i}", "value": 1} for i in range(size // 40)]
    ),
    "a long pointer": _json_patch(
        lambda size: {"a": 1}, lambda size: [{"op": "test", "path": "/a" * (size // 2), "value": 1}]
    ),
    "long pointers": _json_patch(
        lambda size: {"a": 1}, lambda size: [{"op": "test", "path": "/" + "~1" * 100, "value": None}] * (size // 230)
    ),
    "deeper and deeper": _json_patch(
        lambda size: {},
        lambda size: [{"op": "add", "path": "/a" * i, "value": {}} for i in range(1, int((size / 2) ** 0.5))],
    ),
    "copies": _json_patch(
        lambda size: {"a": ["x" * (size // 2)]},
        lambda size: [{"op": "copy", "from": "/a/0", "path": "/a/-"}] * (size // 80),
    ),
    "copies into itself": _json_patch(
        lambda size: {"a": {"x": "y" * 10}},
        lambda size: [{"op": "copy", "from": "", "path": f"/a/c{i}"} for i in range(size // 40)],
    ),
    "insertions at the front": _json_patch(
        lambda size: {"a": [0] * (size // 2)}, lambda size: [{"op": "add", "path": "/a/0", "value": 0}] * (size // 36)
    ),
    "removals at the front": _json_patch(
        lambda size: {"a": [0] * (size // 2)}, lambda size: [{"op": "remove", "path": "/a/0"}] * (size // 30)
    ),
    "moves": _json_patch(
        lambda size: {"a": [0] * (size // 2)},
        lambda size: [{"op": "move", "from": "/a/0", "path": "/a/1"}] * (size // 42),
    ),
    "tests": _json_patch(
        lambda size: {"a": [0] * (size // 2)}, lambda size: [{"op": "test", "path": "/a", "value": [0]}] * (size // 38)
    ),
    "a long index": _json_patch(
        lambda size: {"a": [0]}, lambda size: [{"op": "test", "path": "/a/" + "9" * size, "value": 0}]
    ),
}
MERGE_PATCH: dict[str, Callable[[int], Any]] = {
    "keys": lambda size: {f"k{i}": 1 for i in range(size // 9)},
    "nulls": lambda size: {f"k{i}": None for i in range(size // 12)},
    "objects": lambda size: {f"k{i}": {"a": {"b": 1}} for i in range(size // 24)},
}
POD_SHAPE, DEPLOYMENT_SHAPE = of_object(core_v1.Pod), of_object(apps_v1.Deployment)


def _applied(size: int) -> tuple[Any, Any]:
    volumes = _items(size // ENV)
    return pod(volumes=volumes), pod(volumes=volumes[::-1])


def _apply(given: tuple[Any, Any]) -> object:
    old, new = given
    first = apply(None, old, "one", False, POD_SHAPE, NOW)
    return apply(first, new, "two", False, POD_SHAPE, NOW)


def _conflicting(size: int) -> tuple[Any, Any]:
    labels = {f"k{i}": "a" for i in range(size // 12)}
    old, new = pod(), pod()
    old["metadata"]["labels"], new["metadata"]["labels"] = labels, dict.fromkeys(labels, "b")
    return old, new


def _managed(size: int) -> Any:
    obj = pod()
    obj["metadata"]["managedFields"] = [
        {
            "manager": f"m{i}",
            "operation": "Update",
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {f"f:k{i}": {}}},
        }
        for i in range(size // 130)
    ]
    return obj


def _track(given: Any) -> object:
    return track_update(given, {**given, "spec": {"nodeName": "x"}}, "me", "Update", POD_SHAPE, NOW)


# -- selectors, names, numbers ------------------------------------------------------------------------------------------
LABELS: dict[str, Callable[[int], str]] = {
    "terms": fill("a=b,", "", "a=b"),
    "different terms": each("k%d=v,", "", "a"),
    "a set": each("v%d,", "a in (", "v)"),
    "one value again and again": fill("v,", "a in (", "v)"),
    "a long key": fill("a"),
    "a long prefix": fill("a.", "", "a/b"),
    "dashes": fill("a-", "", "!"),
    "spaces": fill(" ", "a", "=b"),
    "spaces alone": fill(" \t", "a in (", "!"),
    "parentheses": fill("("),
    "equals": fill("="),
    "digits": fill("9", "a>"),
}
FIELDS: dict[str, Callable[[int], str]] = {
    "terms": fill("metadata.name=b,"),
    "backslashes": fill("\\\\", "a=", ",b=c"),
    "backslashes before a comma": fill("\\,", "a"),
    "no equals": fill("a"),
    "exclamation marks": fill("a!"),
    "equals": fill("=", "a"),
    "spaces": fill(" ", "a", "=b"),
    "commas": fill(","),
}
NAME_CHECKS: dict[str, Callable[[str], object]] = {
    "dns1123_label": names.dns1123_label,
    "dns1123_subdomain": names.dns1123_subdomain,
    "dns1123_subdomain_with_underscore": names.dns1123_subdomain_with_underscore,
    "dns1035_label": names.dns1035_label,
    "qualified_name": names.qualified_name,
    "label_value": names.label_value,
    "path_segment": names.path_segment,
    "port_name": names.port_name,
    "env_var_name": names.env_var_name,
    "config_map_key": names.config_map_key,
}
WORST_NAMES: dict[str, Callable[[int], str]] = {
    "letters": fill("a", "", "!"),
    "dashes": fill("-", "a", "!"),
    "letters and dashes": fill("a-", "", "!"),
    "labels": fill("a.", "", "!"),
    "long labels": fill("a" * 60 + ".", "", "!"),
    "underscores": fill("_a", "", "!"),
    "dots": fill(".", "a"),
    "slashes": fill("a/"),
}
NUMBERS: dict[str, tuple[Callable[[str], object], dict[str, Callable[[int], str]]]] = {
    "quantity": (
        quantity.canonical,
        {
            "digits": fill("9"),
            "decimals": fill("9", "0."),
            "an exponent": fill("9", "1e"),
            "letters": fill("K", "1"),
            "zeros": fill("0", "", "1"),
        },
    ),
    "duration": (
        duration.parse,
        {
            "parts": fill("1h"),
            "digits": fill("9", "", "h"),
            "no unit": fill("9"),
            "dots": fill("1."),
            "decimals": fill("9", "."),
        },
    ),
    "cron schedule": (
        schedule_problem,
        {
            "values": fill("1,", "", "1 * * * *"),
            "digits": fill("9", "", " * * * *"),
            "fields": fill("* "),
            "slashes": fill("/1", "1", " * * * *"),
            "dashes": fill("-1", "1", " * * * *"),
            "a duration": fill("1h", "@every "),
            "a duration without units": fill("1", "@every "),
            "decimals": fill("1.", "@every "),
        },
    ),
    "cron job": (
        cron.parse,
        {
            "values": fill("1,", "", "1 * * * *"),
            "a duration": fill("1h", "@every "),
            "digits": fill("1", "@every ", "h"),
        },
    ),
    "time": (
        parse_time,
        {
            "decimals": fill("1", "2026-01-01T00:00:00.", "Z"),
            "digits": fill("1"),
            "zone": fill("1", "2026-01-01T00:00:00+"),
        },
    ),
    "resource version": (parse_revision, {"digits": fill("9"), "zeros": fill("0")}),
    "continue token": (
        decode_token,
        {
            "letters": fill("A"),
            "a key": lambda size: base64.urlsafe_b64encode(
                json.dumps({"v": "meta.k8s.io/v1", "rv": 1, "start": "a/" * (size // 4)}).encode()
            ).decode(),
            "digits": lambda size: base64.urlsafe_b64encode(
                b'{"v":"meta.k8s.io/v1","rv":%b}' % (b"9" * (size // 2))
            ).decode(),
            "brackets": lambda size: base64.urlsafe_b64encode(b"[" * (size // 2)).decode(),
        },
    ),
    "percentage": (
        lambda text: (checks.int_or_percent(text, "a"), checks.at_most_all(text, "a"), checks.scaled_zero(text)),
        {"digits": fill("9", "", "%"), "zeros": fill("0", "", "%")},
    ),
}

# -- requests -----------------------------------------------------------------------------------------------------------
ACCEPTS: dict[str, Callable[[int], str]] = {
    "types": fill("a/b,"),
    "parameters": fill(";a=b", "application/json"),
    "qualities": fill("a/b;q=0.1,"),
    "a long quality": fill("9", "a/b;q="),
    "commas": fill(","),
    "spaces": fill(" ", "a/b", ";q=1"),
}
PATHS: dict[str, Callable[[int], str]] = {
    "segments": fill("/a", "/api/v1"),
    "slashes": fill("/", "/api/v1"),
    "a long segment": fill("a", "/api/v1/"),
}

# -- pages behind a proxy -----------------------------------------------------------------------------------------------
PAGES: dict[str, Callable[[int], bytes]] = {
    "open tags": fill(b"<a "),
    "brackets": fill(b"<"),
    "bracket and letter": fill(b"<a"),
    "comments": fill(b"<!---->"),
    "open comments": fill(b"<!--"),
    "scripts": fill(b"<script></script>"),
    "open scripts": fill(b"<script>"),
    "nearly the end of a script": fill(b"</scrip", "<script>"),
    "an open quote in each tag": fill(b"<a b='"),
    "quotes": fill(b"'\"", "<a "),
    "a long tag": fill(b" a=b", "<a", ">"),
    "names of attributes": fill(b"a", "<a ", ">"),
    "attributes without a value": fill(b" a", "<a", ">"),
    "spaces in a tag": fill(b" ", "<a b", "=c>"),
    "equals in a tag": fill(b"=", "<a b", ">"),
    "links": fill(b"<a href=/x>"),
    "a long address": fill(b"/x", "<a href='", "'>"),
    "addresses with references": fill(b"<a href='&#x2f;&amp;'>"),
    "a long reference": fill(b"1", "<a href='/&#", ";'>"),
    "dots in an address": fill(b"/..", "<a href='", "'>"),
    "tags at the limit": fill(b"<a b='" + b"c" * 1000 + b"'>"),
}


def page(step: int) -> Callable[[bytes], object]:
    """Pass a page in pieces."""

    def read(text: bytes) -> object:
        on_its_way = html_page.Page(
            lambda url: links.lead_through(url, "/api/v1/namespaces/n/pods/p/proxy", "b:80", "a:6443")
        )
        return sum(len(on_its_way.feed(text[at : at + step])) for at in range(0, len(text), step)) + len(
            on_its_way.end()
        )

    return read


def unpack(packed: bytes) -> object:
    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(packed), 16384):
            yield packed[at : at + 16384]

    async def whole() -> int:
        return sum([len(piece) async for piece in links.unpacked(chunks())])

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(whole())
    finally:
        loop.close()


# -- CEL ----------------------------------------------------------------------------------------------------------------
DECLARED = Declarations({"n": INT, "s": STRING, "list": list_of(STRING), "free": list_of(STRING)})
EXPRESSIONS: dict[str, Callable[[int], str]] = {
    "a sum": fill("1+", "", "1"),
    "ands": fill("true&&", "", "true"),
    "a chain of calls": fill(".trim()", "s"),
    "a chain of selections": fill(".a", "s"),
    "indices": fill("[0]", "list"),
    "parentheses": fill("("),
    "nots": fill("!", "", "true"),
    "minus signs": fill("-", "", "1"),
    "ternaries": fill("true?1:", "", "1"),
    "a list": fill("1,", "[", "1]"),
    "a list of different things": each("'v%d',", "[", "1]"),
    "a map": each("'k%d':1,", "{", "'a':1}"),
    "a long string": fill("a", "'", "'"),
    "escapes": fill("\\n", "'", "'"),
    "a string without an end": fill("a", "'"),
    "quotes without an end": fill("'"),
    "triple quotes without an end": fill("''' ", "'''"),
    "raw strings without an end": fill("r'"),
    "digits": fill("9"),
    "digits of a double": fill("9", "0."),
    "hexadecimal": fill("f", "0x"),
    "names": fill("a"),
    "different names": each("a%d+", "", "1"),
    "spaces": fill(" ", "1", "+1"),
    "comments": fill("//\n", "1+", "1"),
    "macros": fill("list.all(x,", "", "true"),
    "strange characters": fill("#"),
    "dots": fill("."),
}
EVALUATIONS: dict[str, tuple[str, Callable[[int], dict[str, Any]]]] = {
    name: (
        expression,
        lambda size: {
            "n": 1,
            "s": "a" * size,
            "list": ["a"] * (size // 4),
            "free": [f"v{i}" for i in range(size // 6)],
        },
    )
    for name, expression in {
        "all in all": "list.all(x, list.all(y, x == y))",
        "in": "list.all(x, x in list)",
        "different values in": "free.all(x, x in free)",
        "sets": "sets.contains(list, list)",
        "sets of different values": "sets.equivalent(free, free.map(x, x))",
        "sets that meet": "sets.intersects(free, free.map(x, x + 'a'))",
        "unique": "free.filter(x, true).size() > 0 && free.isSorted()",
        "concatenation": "list.map(x, s + s + x).size() > 0",
        "a pattern": "s.matches('(a*)*b')",
        "a pattern of the text": "s.matches(s)",
        "find": "s.findAll('a').size() > 0",
        "replace": "s.replace('a', 'bb').size() > 0",
        "replace by itself": "s.replace('a', s).size() > 0",
        "split": "s.split('').size() > 0",
        "join": "list.join(s).size() > 0",
        "index": "s.indexOf('b') < 0 && s.lastIndexOf('b') < 0",
        "index of half of it": "s.indexOf(s.substring(0, s.size() / 2) + 'b') < 0",
        "quantity": "isQuantity(s)",
        "url": "isURL(s)",
        "ip": "isIP(s)",
        "cidr": "isCIDR(s)",
        "semver": "isSemver(s)",
        "format": "'%s%s'.format([s, list]).size() > 0",
        "equality of lists": "free == free.map(x, x)",
        "sums": "list.map(x, 1).sum() > 0",
        "duration": "duration(s) == duration('1h')",
        "timestamp": "timestamp(s) == timestamp(s)",
        "integer": "int(s) == 1",
        "double": "double(s) == 1.0",
        "reverse": "s.reverse() == s",
        "case": "s.upperAscii() == s.lowerAscii()",
    }.items()
}
DIGITS: dict[str, str] = {
    "quantity of digits": "isQuantity(s)",
    "semver of digits": "isSemver('1.' + s + '.1')",
    "semver of parts": "isSemver('1.1.1-' + s.replace('9', '9.'))",
    "integer of digits": "int(s) == 1",
    "unsigned of digits": "uint(s) == 1u",
    "double of digits": "double(s) == 1.0",
    "duration of digits": "duration(s + 'h') == duration('1h')",
    "url with a port": "isURL('http://a:' + s)",
    "ip of digits": "isIP(s)",
    "format of digits": "('%.' + s + 'f').format([1.0]).size() > 0",
}


def evaluated(expression: str) -> Callable[[dict[str, Any]], object]:
    program = compile(expression, DECLARED)
    return lambda variables: program.evaluate(variables)


CEL_REFUSED = (CompileError, EvaluationError, BudgetExceeded)


# -- custom resources ---------------------------------------------------------------------------------------------------
FREE: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "object"}}}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "free": FREE,
                "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "mixed": {
                    "type": "array",
                    "items": {"x-kubernetes-preserve-unknown-fields": True},
                    "x-kubernetes-list-type": "set",
                },
                "keyed": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"k": {"type": "string"}, "v": {"type": "string", "default": "d"}},
                    },
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["k"],
                },
                "unique": {"type": "array", "items": {"type": "string"}},
                "words": {"type": "array", "items": {"type": "string", "enum": [f"w{i}" for i in range(50)]}},
                "pattern": {"type": "string", "pattern": "^(a+)+$"},
            },
        }
    },
}
CUSTOM = Schema(SCHEMA)
CUSTOMS = CustomDecoder(CUSTOM, "example.com/v1", "Thing")
THINGS: dict[str, Callable[[int], Any]] = {
    "items below a long key": lambda size: {"spec": {"free": {"k" * (size // 2): [{}] * (size // 6)}}},
    "wrong items below a long key": lambda size: {"spec": {"free": {"k" * (size // 2): [1] * (size // 4)}}},
    "unknown fields below a long key": lambda size: {
        "spec": {"free": {"k" * (size // 2): [{f"u{i}": 1 for i in range(size // 20)}]}}
    },
    "unknown fields": lambda size: {"spec": {f"u{i}": 1 for i in range(size // 10)}},
    "a set": lambda size: {"spec": {"set": [f"v{i}" for i in range(size // 9)]}},
    "a set of one value": lambda size: {"spec": {"set": ["v"] * (size // 4)}},
    "a set of objects": lambda size: {"spec": {"mixed": [{"a": i} for i in range(size // 10)]}},
    "keys": lambda size: {"spec": {"keyed": [{"k": f"v{i}"} for i in range(size // 14)]}},
    "one key": lambda size: {"spec": {"keyed": [{"k": "v"}] * (size // 10)}},
    "words": lambda size: {"spec": {"words": ["x"] * (size // 4)}},
    "a pattern": lambda size: {"spec": {"pattern": "a" * size + "b"}},
}


def thing(given: Any) -> object:
    problems: list[str] = []
    obj = CUSTOMS.convert(given, "Warn", problems)
    return problems, validation.check(obj, CUSTOM), uniqueness.check_structure(obj, CUSTOM)


def changed_thing(given: Any) -> object:
    return validation.check(given, CUSTOM, {**given, "spec": {**given["spec"], "x": 1}})


SCHEMAS: dict[str, Callable[[int], Any]] = {
    "properties": lambda size: {
        "type": "object",
        "properties": {f"p{i}": {"type": "string"} for i in range(size // 26)},
    },
    "requirements": lambda size: {"type": "object", "required": [f"p{i}" for i in range(size // 8)]},
    "alternatives": lambda size: {"type": "object", "anyOf": [{"required": ["a"]}] * (size // 20)},
    "properties below a long name": lambda size: {
        "type": "object",
        "properties": {"k" * (size // 2): {"type": "object", "properties": {f"p{i}": {} for i in range(size // 24)}}},
    },
    "deep": lambda size: _deep(min(90, size // 40)),
    "words": lambda size: {"type": "string", "enum": [f"w{i}" for i in range(size // 9)]},
    "keys of a list": lambda size: {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [f"k{i}" for i in range(size // 40)],
        "items": {"type": "object", "properties": {f"k{i}": {"type": "string"} for i in range(size // 40)}},
    },
    "one key of a list again and again": lambda size: {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"] * (size // 4),
        "items": {"type": "object", "properties": {"k": {"type": "string"}}},
    },
}


def _deep(levels: int) -> Any:
    found: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        found = {"type": "object", "properties": {"a": found}}
    return found


FORMATS: dict[str, Callable[[int], str]] = {
    "letters": fill("a"),
    "digits": fill("9"),
    "letters and dots": fill("a.", "", "!"),
    "letters and dashes": fill("a-", "a@", "!"),
    "colons": fill("1:"),
    "slashes": fill("/1"),
    "spaces": fill(" ", "1", "!"),
    "hours": fill("1h", "", "!"),
    "addresses": fill("a@"),
    "base64": fill("YWJj"),
}
JSON_PATHS: dict[str, Callable[[int], str]] = {
    "fields": fill(".a"),
    "dots": fill("."),
    "descents": fill("..a"),
    "brackets": fill("["),
    "quotes": fill("['"),
    "a quote without an end": fill("a", "['"),
    "backslashes": fill("\\", ".a"),
    "escapes": fill("\\.", ".a"),
    "indices": fill("[0]"),
    "a long index": fill("9", "[", "]"),
    "a slice": fill("9", "[1:", "]"),
    "filters": fill("[?(@.a==1)]"),
    "filters without an end": fill("[?(@"),
    "filters with brackets": fill("[]", "[?(@", ")]"),
    "nested filters": fill("[?(@.a", "", ""),
    "operators": fill("=", "[?(@.a", "1)]"),
    "spaces": fill(" ", "[?(@.a ==", ")"),
    "an operand": fill("a", "[?(@.a==", ")]"),
    "an operand of digits": fill("9", "[?(@.a==", ")]"),
    "spaces in an index": fill(" ", "[1", "x"),
}

# -- what pods, nodes and containers say --------------------------------------------------------------------------------
METRICS: dict[str, Callable[[int], str]] = {
    "lines": fill('container_cpu_usage_seconds_total{namespace="n",pod="p",container="c"} 1\n'),
    "a long label": fill("a", "node_x{", "} 1"),
    "a label without an end": fill("a", 'node_x{a="', "} 1"),
    "quotes": fill('a="', "node_x{", "} 1"),
    "escapes": fill("\\\\", 'node_x{a="', '"} 1'),
    "digits": fill("9", "node_x ", ""),
    "digits of a time": fill("9", "node_x 1 "),
    "braces": fill("}", "node_x{"),
}
IMAGES: dict[str, Callable[[int], str]] = {
    "letters": fill("a", "", "!"),
    "parts": fill("a/", "", "!"),
    "labels": fill("a.", "", "!"),
    "dashes": fill("a-", "", "!"),
    "many dashes": fill("-", "a", "!"),
    "underscores": fill("a_", "", "!"),
    "double underscores": fill("a__", "", "!"),
    "colons": fill("a:1"),
    "a digest": fill("a", "a@sha256:", "!"),
    "the name of a digest": fill("+a", "a@a", "!"),
    "capitals": fill("A"),
    "an address": fill("a:", "[", "!"),
}
LOG_LINES: dict[str, Callable[[int], bytes]] = {
    "text": fill(b"a", "2026-01-01T00:00:00.1Z stdout F "),
    "spaces": fill(b" "),
    "a long time": fill(b"1", "2026-01-01T00:00:00.", "Z stdout F x"),
    "a long whole time": fill(b"1", "", " stdout F x"),
    "newlines": fill(b"\n", "2026-01-01T00:00:00.1Z stdout F "),
    "tags": fill(b"F:", "2026-01-01T00:00:00.1Z stdout "),
}


def log_line(raw: bytes) -> object:
    options = log_files.LogOptions(timestamps=True, since=1, limit_bytes=1 << 30)
    return log_files.LogWriter(options).write(raw)


def spdy_frames(build: Callable[[int], bytes]) -> Callable[[bytes], object]:
    def read(data: bytes) -> object:
        connection = spdy.Connection(client=False)
        return sum(len(connection.receive(data[at : at + 4096])) for at in range(0, len(data), 4096))

    return read


def _syn(headers: bytes) -> bytes:
    payload = (1).to_bytes(4, "big") + bytes(6) + headers
    return bytes([0x80, 3, 0, 1, 0]) + len(payload).to_bytes(3, "big") + payload


def _headers(count: int, claimed: int | None = None) -> bytes:
    block = (count if claimed is None else claimed).to_bytes(4, "big")
    block += b"".join((4).to_bytes(4, "big") + b"%04x" % (i & 0xFFFF) + bytes(4) for i in range(count))
    packer = zlib.compressobj(zdict=spdy.DICTIONARY)
    return packer.compress(block) + packer.flush(zlib.Z_SYNC_FLUSH)


SPDY: dict[str, Callable[[int], bytes]] = {
    "data frames": fill(bytes([0, 0, 0, 1, 0, 0, 0, 1, 65])),
    "empty frames": fill(bytes([0, 0, 0, 1, 0, 0, 0, 0])),
    "pings": fill(bytes([0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1])),
    "headers": lambda size: _syn(_headers(size // 12)),
    "headers that are claimed": lambda size: _syn(_headers(size // 12, 0xFFFFFFFF)),
    "a large frame in pieces": lambda size: (
        bytes([0, 0, 0, 1, 0]) + min(size, 0xFFFFFF).to_bytes(3, "big") + bytes(size)
    ),
}


def channels(name: str) -> Callable[[bytes], object]:
    protocol = choose([name])
    assert protocol is not None
    return protocol.decode


DNS: dict[str, Callable[[int], bytes]] = {
    "labels": lambda size: _query(b"\x01a" * (size // 2)),
    "long labels": lambda size: _query((b"\x3f" + b"a" * 63) * (size // 64)),
    "dots in a label": lambda size: _query(b"\x3f" + b"." * 63),
    "additional records": lambda size: _query(b"\x01a") + (b"\0\0\x01\0\x01\0\0\0\0\0\0") * (size // 11),
    "a pointer": lambda size: _query(b"\xc0\x0c" * (size // 2)),
}
ANSWERS: dict[str, Callable[[int], bytes]] = {
    "records": lambda size: (
        b"\0\0\x80\0\0\0\xff\xff\0\0\0\0" + b"\xc0\x0c\0\x01\0\x01\0\0\0\x05\0\x04abcd" * (size // 16)
    ),
    "labels": lambda size: b"\0\0\x80\0\xff\xff\xff\xff\0\0\0\0" + b"\x01a" * (size // 2),
    "pointers": lambda size: b"\0\0\x80\0\xff\xff\xff\xff\0\0\0\0" + b"\xc0\x0c" * (size // 2),
}


def _query(name: bytes) -> bytes:
    return b"\0\x01\0\0\0\x01\0\0\0\0\xff\xff" + name + b"\0\0\x01\0\x01"


def dns_query(data: bytes) -> object:
    query = dns_wire.parse_query(data)
    return dns_wire.reverse_address(query.name), dns_wire.reply(query, 0, limit=512)


def dns_answer(data: bytes) -> object:
    return forward.lowest_ttl(data), forward.age(data, 1)


ENVIRONMENT: dict[str, Callable[[int], str]] = {
    "references": fill("$(A)"),
    "dollars": fill("$"),
    "open references": fill("$("),
    "an open reference": fill("a", "$("),
    "parentheses": fill("$()"),
}


def variables(text: str) -> object:
    return expand(text, {"A": "b"}), names_in(text)


# -- the table ----------------------------------------------------------------------------------------------------------
def _cases() -> list[Case]:
    found: list[Case] = []

    def add(what: str, worst: dict[str, Callable[[int], Any]], read: Callable[[Any], object], **limits: Any) -> None:
        found.extend(Case(f"{what}: {name}", build, read, **limits) for name, build in worst.items())

    add("YAML", YAML, yaml_body.parse)
    add(
        "YAML body", {name: YAML[name] for name in ("scalars", "keys", "one key again and again", "JSON")}, yaml_decoded
    )
    add("JSON", JSON, load_json)
    for name, decoder in (("pod", PODS), ("config map", CONFIG_MAPS), ("definition", DEFINITIONS)):
        add(f"JSON of a {name}", JSON, decoded(decoder))
    add("protobuf", PROTOBUF, read_protobuf)
    for name, (build, read) in STRATEGIC.items():
        found.append(Case(f"strategic merge: {name}", build, read, OBJECT))
    for name, (build, read) in JSON_PATCH.items():
        found.append(Case(f"JSON patch: {name}", build, read, OBJECT))
    add("merge patch", MERGE_PATCH, lambda patch: apply_merge_patch({"a": 1}, patch))
    found += [
        Case("apply: items", _applied, _apply, OBJECT, memory=2000),
        Case("apply: conflicts", _conflicting, _apply, OBJECT, memory=2000),
        Case("managed fields", _managed, _track, OBJECT),
    ]
    add("label selector", LABELS, selectors.parse_labels, largest=HEAD)
    add("field selector", FIELDS, selectors.parse_fields, largest=HEAD)
    for name, check in NAME_CHECKS.items():
        add(name, WORST_NAMES, check, largest=OBJECT)
    for name, (number, worst) in NUMBERS.items():
        add(name, worst, number, largest=OBJECT)
    add("Accept", ACCEPTS, negotiate.negotiate.__wrapped__, largest=HEAD)
    add("path", PATHS, lambda path: requestinfo.parse_path.__wrapped__("GET", path), largest=HEAD)
    for step in (1 << 16, 1000):
        add(f"page in pieces of {step}", PAGES, page(step))
    add("page byte by byte", PAGES, page(1), largest=128 * 1024)
    found.append(Case("gzip", lambda size: zlib.compress(bytes(size * 20), 9), unpack))
    found.append(Case("gzip of noise", lambda size: zlib.compress(bytes(range(256)) * (size // 256), 0), unpack))
    add("CEL", EXPRESSIONS, lambda text: compile(text, DECLARED), largest=OBJECT, refused=CEL_REFUSED, memory=5000)
    for name, (expression, values) in EVALUATIONS.items():
        found.append(Case(f"CEL value: {name}", values, evaluated(expression), OBJECT, CEL_REFUSED))
    for name, expression in DIGITS.items():
        found.append(
            Case(
                f"CEL value: {name}",
                lambda size: {"n": 1, "s": "9" * size, "list": [], "free": []},
                evaluated(expression),
                OBJECT,
                CEL_REFUSED,
            )
        )
    add("custom resource", THINGS, thing)
    add(
        "changed custom resource",
        {name: THINGS[name] for name in ("a set", "keys", "one key", "words", "a set of objects")},
        changed_thing,
    )
    add("schema", SCHEMAS, lambda source: structural.check(source, "spec"), largest=OBJECT, memory=2000)
    for name in formats._TESTS:
        add(f"format {name}", FORMATS, lambda text, name=name: formats.valid(name, text), largest=OBJECT)  # type: ignore[misc]
    add("pattern", {"text": fill("a", "", "b")}, lambda text: patterns.found("^(a+)+$", text))
    add(
        "pattern of a schema",
        {"groups": fill("("), "stars": fill("(a*)*"), "classes": fill("[a]"), "counts": fill("a{1000}")},
        lambda text: patterns.found(text, "a"),
        largest=OBJECT,
    )
    add("JSON path", JSON_PATHS, lambda text: jsonpath.compiled.__wrapped__(text), largest=OBJECT)
    found.append(
        Case(
            "columns",
            lambda size: (
                Columns([{"jsonPath": "..a", "type": "string", "name": "a"}]),
                {"x": [{"a": 1}] * (size // 8)},
            ),
            lambda given: given[0].row(given[1], NOW),
            OBJECT,
        )
    )
    found.append(
        Case(
            "columns of descents",
            lambda size: (
                Columns([{"jsonPath": "..a..a..a", "type": "string", "name": "a"}]),
                _nest(min(300, size // 8)),
            ),
            lambda given: given[0].row(given[1], NOW),
            OBJECT,
        )
    )
    add("metrics of a node", METRICS, lambda text: sample.parse(text, 0.0), largest=OBJECT)
    add("image", IMAGES, with_default_tag, largest=OBJECT)
    add("log line", LOG_LINES, log_line, largest=OBJECT)
    add(
        "log query",
        {"digits": fill("9")},
        lambda text: log_request.options({"tailLines": text}, NOW),
        largest=HEAD,
        refused=(log_request.LogRequestError,),
    )
    add(
        "log query since",
        {"digits": fill("9")},
        lambda text: log_request.options({"sinceSeconds": text}, NOW),
        largest=HEAD,
        refused=(log_request.LogRequestError,),
    )
    for name, build in SPDY.items():
        found.append(Case(f"SPDY: {name}", build, spdy_frames(build), OBJECT, (spdy.SPDYError,)))
    add(
        "channel",
        {"base64": fill(b"YWJj", "0"), "newlines": fill(b"\n", "0")},
        channels("v4.base64.channel.k8s.io"),
        largest=OBJECT,
    )
    add("DNS query", DNS, dns_query, largest=HEAD, refused=(dns_wire.Malformed,))
    add("DNS answer", ANSWERS, dns_answer, largest=HEAD)
    add("variables", ENVIRONMENT, variables, largest=OBJECT)
    return found


def _nest(levels: int) -> Any:
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"a": found}
    return found


CASES = _cases()
