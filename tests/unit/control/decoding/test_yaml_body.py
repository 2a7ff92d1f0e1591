"""YAML bodies: values as Go's yaml.v2 and encoding/json give them to the API server, errors in their words, limits."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from control.decoding import yaml_body
from control.decoding.yaml_body import INLINE, MOST_DIRECTIVES, ReadBody, duplicate_keys, load_yaml, read_ahead
from control.decoding.yaml_document import MOST_REPEATED, MOST_VALUES
from kube.nesting import DEEPEST

SCALARS: list[tuple[str, Any]] = [
    # resolve.go: words of YAML 1.1, only in these spellings
    *((word, True) for word in ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON")),
    *((word, False) for word in ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")),
    *((word, None) for word in ("", "~", "null", "Null", "NULL")),
    *((word, word) for word in ("yEs", "tRue", "nUll", "none", "NaN", "nan", "inf")),
    ("'yes'", "yes"), ('"on"', "on"),
    # numbers: strconv.ParseInt with base 0 after `_` is removed, so both forms of octal; else a float; else text
    ("0", 0), ("-0", 0), ("+5", 5), ("1_000", 1000), ("017", 15), ("0o17", 15), ("0x1F", 31), ("0b101", 5), ("-0x10", -16),
    ("08", 8), ("1e3", 1000), ("1.0", 1), ("2.50", 2.5), (".5", 0.5), ("-.5", -0.5), ("5.", 5), ("1e400", "1e400"),
    ("9223372036854775807", 9223372036854775807), ("18446744073709551615", 18446744073709551615),
    ("18446744073709551616", 1.8446744073709552e19), ("-9223372036854775809", -9.223372036854775809e18),
    ("0xFFFFFFFFFFFFFFFFFF", "0xFFFFFFFFFFFFFFFFFF"), ("_1", "_1"), ("+", "+"), (".", "."), ("1.2.3", "1.2.3"),
    # neither base 60 nor times
    ("1:30", "1:30"), ("190:20:30", "190:20:30"), ("1:30.5", "1:30.5"), ("2026-01-01", "2026-01-01"),
    ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"), ("2001-12-14 21:59:43.10", "2001-12-14 21:59:43.10"),
    # tags
    ("!!str 5", "5"), ("!!int '5'", 5), ("!!float 3", 3), ("!!bool yes", True), ("!!null ''", None), ("!!binary YWJj", "abc"),
    ("!unknown 5", "5"), ("!!timestamp 2026-01-01", "2026-01-01"), ("! 5", "5"), ("!!set {a, b}", {"a": None, "b": None}),
    ("!!omap [d: 1]", [{"d": 1}]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), SCALARS, ids=[text for text, _ in SCALARS])
def test_scalars_are_what_upstream_makes_of_them(text: str, value: Any) -> None:
    found = load_yaml(f"a: {text}\n".encode())
    assert found == {"a": value} and type(found["a"]) is type(value)


def test_keys_become_strings_as_upstream_writes_them() -> None:
    body = b"1: a\n1.5: b\nyes: c\n0.1: d\n1e6: e\n0x10: f\n2026-01-01: g\n100000.0: h\n-1e-7: i\n.inf: j\n"
    assert list(load_yaml(body)) == ["1", "1.5", "true", "0.1", "1e+06", "16", "2026-01-01", "100000", "-1e-07", ".inf"]


def test_merged_mappings_count_where_they_are() -> None:
    assert load_yaml(b"a: 0\n<<: {a: 1, b: 2}\nb: 3\n") == {"a": 1, "b": 3}
    assert load_yaml(b"'<<': {a: 1}\n") == {"<<": {"a": 1}}


REFUSED = [
    ("a: &x 1\nb: *x\n", "yaml: line 2: aliases (*x) are not accepted: write the value out"),
    ("a: 1\n---\nb: 2\n", "yaml: more than one document: send them one at a time"),
    ("a: 1\n...\n%TAG ! x\n---\nb: 2\n", "yaml: more than one document: send them one at a time"),
    ("a: b\n  c: d\n", "yaml: line 2: mapping values are not allowed in this context"),
    ("a:\n  - b\n c: d\n", "yaml: line 2: did not find expected key"),
    ("a: \x00", "yaml: control characters are not allowed"),
    ("a: .nan", "json: unsupported value: NaN"),
    ("a: [-.inf]", "json: unsupported value: -Inf"),
    ("!!binary /w==", "yaml: !!binary value contains invalid base64 data, or no text"),
    ("!!int x", "yaml: cannot decode !!str `x` as a !!int"),
    ("~: 1", "unsupported map key: null"),
    ("18446744073709551615: 1", "unsupported map key: 18446744073709551615"),
    ("? [1]\n: 2", "yaml: invalid map key: a mapping or a list"),
    ("<<: [{a: 1}]", "yaml: map merge requires a map as the value"),
    ("<<: 1", "yaml: map merge requires a map as the value"),
    ("[" * (DEEPEST + 1), f"yaml: exceeded max depth of {DEEPEST}"),
    ("- " * (DEEPEST + 1), f"yaml: exceeded max depth of {DEEPEST}"),
    ("- \n" * MOST_VALUES, f"yaml: more than {MOST_VALUES} values: send it as JSON"),
    ("%TAG !a! b\n" * (MOST_DIRECTIVES + 1) + "---\na: 1", f"yaml: more than {MOST_DIRECTIVES} directives"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[text[:20] for text, _ in REFUSED])
def test_refusals_are_in_upstreams_words(text: str, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        load_yaml(text.encode())
    assert str(refused.value) == message


def test_bytes_that_are_no_text_are_refused_and_byte_order_marks_are_read() -> None:
    with pytest.raises(ValueError, match="invalid leading UTF-8 octet"):
        load_yaml(b"a: \xff")
    for coding in ("utf-8-sig", "utf-16", "utf-16-le"):
        mark = "\ufeff" if coding == "utf-16-le" else ""
        assert load_yaml(f"{mark}a: é\n".encode(coding)) == {"a": "é"}


def test_what_follows_the_document_may_be_comments() -> None:
    assert load_yaml(b"%YAML 1.1\n# a\n---\na: 1\n...\n\n  # b\n") == {"a": 1}
    assert load_yaml(b"") is None


def test_json_is_read_as_the_yaml_that_it_is() -> None:
    assert load_yaml(b'{"a": 1.0, "b": [1e3, 0.5, null], "c": "yes"}') == {"a": 1, "b": [1000, 0.5, None], "c": "yes"}
    assert load_yaml(b'{"a": 1, "b": NaN}') == {"a": 1, "b": "NaN"}, "no JSON, but YAML"
    assert duplicate_keys(b'{"a": 1,\n "a" : 2}') == ['line 2: key "a" already set in map']
    with pytest.raises(ValueError, match="invalid Unicode character escape code"):
        load_yaml(b'{"a": "\\ud800"}')
    with pytest.raises(ValueError, match="exceeded max depth"):
        load_yaml(b'{"a":' * (DEEPEST + 1) + b"1" + b"}" * (DEEPEST + 1))


def test_repeated_keys_are_reported_with_their_values_lines_up_to_a_limit() -> None:
    assert duplicate_keys(b"a:\n  b: 1\n  b: 2\na:\n  c: 1\n") == [
        'line 3: key "b" already set in map',
        'line 5: key "a" already set in map',
    ]
    assert len(duplicate_keys(b"a: 1\n" * 1000)) == MOST_REPEATED


async def test_large_bodies_are_read_by_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    by: list[str] = []
    parse = yaml_body.parse
    monkeypatch.setattr(yaml_body, "parse", lambda body: by.append(threading.current_thread().name) or parse(body))
    large = b"a: 1\n" + b"# padding\n" * (INLINE // 10)
    read = await read_ahead(large, "ann")
    assert isinstance(read, ReadBody) and read == large
    assert load_yaml(read) == {"a": 1} and duplicate_keys(read) == []
    assert [name.startswith("large-objects") for name in by] == [True], "and once only"
    broken = await read_ahead(large + b"]", "ann")
    with pytest.raises(ValueError, match="did not find expected"):
        load_yaml(broken)
    small = b"a: 1\n"
    assert await read_ahead(small, "ann") is small


async def test_the_event_loop_goes_on_while_a_large_body_is_read() -> None:
    body = b"- [a, {b: c}]\n" * 20_000
    reading = asyncio.ensure_future(read_ahead(body, "ann"))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 5
