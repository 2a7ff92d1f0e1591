"""Errors of YAML and of decoded documents, in words that name the place and the fix instead of a library's state."""

from __future__ import annotations

import re

import msgspec
import pytest
import yaml

from kube import decode_errors, yaml_errors

OF_LIBRARIES = re.compile(r"<|token|mapping values|ScalarNode|Expected `|\$|tag:yaml|block")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\n\tb: 2\n", "line 2: indent with spaces, not with tabs"),
        ("a: b: c\n", "line 1: a key cannot be here: check the indentation, or quote the value that has a colon"),
        ("a: 1\nb\nc: 2\n", "line 3: a key has no colon after it"),
        ("a: 'b\n", "line 2: a quotation mark is missing"),
        ("a: [1, 2\nb: 3\n", "line 2: a bracket is not closed, or a comma is missing"),
        ("a: {b: 1\n", "line 2: a bracket is not closed, or a comma is missing"),
        ("a: [\n", "line 2: a value or a closing bracket is missing"),
        ("a:\n  - b\n c: 1\n", "line 3: this is neither a key nor an item of a list: check the indentation"),
        ("a: 1\n---\nb: 2\n", "line 2: there is a second document: write all of it in one"),
        ("a: *b\n", "line 1: an alias (*) has no anchor (&)"),
        ('a: "\\q"\n', "line 1: a backslash in double quotes begins an escape: write it twice, or use single quotes"),
        ("a: @b\n", "line 1: a value that begins with this character needs quotes"),
        ("a: !x y\n", "line 1: a tag (!) has no meaning here"),
        ("a: \x01\n", "line 1: a character is not allowed in YAML"),
        ("[" * 3000, "lists and mappings are nested too deeply"),
        ("a: 2026-99-99\n", "a value is neither a number nor a date: write it in quotes"),
    ],
)
def test_errors_of_yaml(text: str, problem: str) -> None:
    with pytest.raises((yaml.YAMLError, ValueError, RecursionError)) as raised:
        yaml.safe_load(text)
    assert yaml_errors.with_line(raised.value, text) == problem
    assert not OF_LIBRARIES.search(problem)


class Part(msgspec.Struct, forbid_unknown_fields=True):
    number: int | None = None
    names: list[str] = []


class Whole(msgspec.Struct):
    part: Part
    kind: str = ""


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("{", "it is not JSON"),
        ("[]", "write a mapping, not a list"),
        ("{}", "part is missing"),
        ('{"part": {"number": "x"}}', "part.number: write a whole number, not a text"),
        ('{"part": {"names": [1]}}', "part.names[0]: write a text, not a whole number"),
        ('{"part": {"other": 1}}', "part: there is no field other"),
        ('{"part": {}, "kind": null}', "kind: write a text, not nothing"),
    ],
)
def test_errors_of_decoded_documents(document: str, problem: str) -> None:
    with pytest.raises(msgspec.DecodeError) as raised:
        msgspec.json.decode(document, type=Whole)
    assert decode_errors.sentence(raised.value) == problem
