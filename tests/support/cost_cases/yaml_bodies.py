"""YAML bodies."""

from __future__ import annotations

from collections.abc import Callable

from control.decoding import yaml_body
from control.decoding.decode import Decoder
from kube.api import core_v1
from tests.support.cost_cases.inputs import cases, each, encoded, fill

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
PODS = Decoder(core_v1.Pod, "v1", "Pod")


def yaml_decoded(body: bytes) -> object:
    return PODS.decode(body, "application/yaml", "Strict", [], check_kind=False)


CASES = [
    *cases("YAML", YAML, yaml_body.parse),
    *cases(
        "YAML body", {name: YAML[name] for name in ("scalars", "keys", "one key again and again", "JSON")}, yaml_decoded
    ),
]
