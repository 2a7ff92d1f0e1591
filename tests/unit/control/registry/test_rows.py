"""Rows of fields and rules: paths, order of errors, and each rule."""

from __future__ import annotations

from typing import Any

import pytest

from control.registry.checks import Errors, non_negative
from control.registry.rows import Rows
from control.registry.rules import (
    Rule,
    between,
    enum,
    forbid,
    form,
    max_bytes,
    max_characters,
    max_items,
    max_map_bytes,
    maximum,
    minimum,
    number,
    only_wildcard,
    optional,
    positive,
    present,
    require,
    require_enum,
    require_name,
    text,
    unique_item,
)
from kube.errors import invalid_value
from kube.names import dns1123_label


def texts(rows: Rows, obj: Any) -> list[str]:
    return [str(error) for error in rows.errors(obj)]


@pytest.mark.parametrize("obj", [{}, {"spec": None}, {"spec": {}}, {"spec": {"size": None}}, {"spec": {"size": 0}}])
def test_a_field_of_an_absent_part_is_absent(obj: Any) -> None:
    assert texts(Rows(("spec.size", require("a size"))), obj) == ["spec.size: Required value: a size"]


@pytest.mark.parametrize(("obj", "wrong"), [({}, False), ({"part": None}, False), ({"part": {}}, True)])
def test_a_question_mark_limits_rows_to_a_present_part(obj: Any, wrong: bool) -> None:
    assert texts(Rows(("part?.size", require())), obj) == ["part.size: Required value"] * wrong


@pytest.mark.parametrize(("obj", "wrong"), [({}, False), ({"name": None}, False), ({"name": ""}, True)])
def test_a_question_mark_limits_a_rule_to_a_present_value(obj: Any, wrong: bool) -> None:
    assert texts(Rows(("name?", require())), obj) == ["name: Required value"] * wrong


def test_errors_of_items_have_their_indexes_and_come_item_by_item() -> None:
    rows = Rows(("list[*].a", require()), ("list[*].b", non_negative), ("list[*].of[*]", require()), ("z", require()))
    assert texts(rows, {"list": [{"b": -1}, {"a": 1, "of": ["x", ""]}, {"b": -2}]}) == [
        "list[0].a: Required value",
        "list[0].b: Invalid value: -1: must be greater than or equal to 0",
        "list[1].of[1]: Required value",
        "list[2].a: Required value",
        "list[2].b: Invalid value: -2: must be greater than or equal to 0",
        "z: Required value",
    ]


def test_an_absent_list_has_no_items() -> None:
    assert texts(Rows(("list[*].a", require())), {"list": None}) == []


def test_a_rule_of_the_whole_object_or_item_has_its_path() -> None:
    def ordered(place: Any, path: str) -> Errors:
        return [invalid_value(f"{path}.low", place["low"], "above")] if place["low"] > place["high"] else []

    obj = {"low": 2, "high": 1}
    assert texts(Rows(("list[*]", ordered)), {"list": [obj]}) == ["list[0].low: Invalid value: 2: above"]
    assert texts(Rows(("part", ordered)), {"part": obj}) == ["part.low: Invalid value: 2: above"]


def test_the_path_of_a_whole_object_is_empty() -> None:
    def named(obj: Any, path: str) -> Errors:
        return [invalid_value("metadata.name", obj["metadata"]["name"], "no")] if not path else []

    assert texts(Rows(("", named)), {"metadata": {"name": "a"}}) == ['metadata.name: Invalid value: "a": no']


def test_rows_are_a_rule_of_a_part_and_of_items() -> None:
    part = Rows(("size", require()), ("below.name?", form(dns1123_label)))
    rows = Rows(("a", part), ("list[*]", part), ("list[*].c", require()), ("b?", part))
    assert texts(rows, {"list": [{"size": 1}]}) == ["a.size: Required value", "list[0].c: Required value"]
    assert [str(e) for e in part(None, "spec.x[3]")] == ["spec.x[3].size: Required value"]


def test_unique_values_are_those_of_one_list() -> None:
    rows = Rows(("list[*].name", unique_item), ("list[*].of[*]", unique_item))
    assert texts(rows, {"list": [{"name": "a", "of": ["a", "b", "a"]}, {"name": "a"}, {"of": ["a"]}, {}]}) == [
        'list[0].of[2]: Duplicate value: "a"',
        'list[1].name: Duplicate value: "a"',
        'list[3].name: Duplicate value: ""',
    ]


def test_every_rule_of_a_row_is_applied() -> None:
    rows = Rows(("size", minimum(5, "small"), maximum(1, "large")))
    assert texts(rows, {"size": 3}) == ["size: Invalid value: 3: small", "size: Invalid value: 3: large"]


LABEL = dns1123_label("A")[0]


@pytest.mark.parametrize(
    ("rule", "right", "wrong"),
    [
        (require("d"), ["a", 1, ["a"]], {None: "Required value: d", "": "Required value: d"}),
        (enum("A"), ["A"], {v: f'Unsupported value: "{v or ""}": supported values: "A"' for v in (None, "", "B")}),
        (require_enum("A"), ["A"], {None: "Required value", "": "Required value"}),
        (require_enum("A", detail="d"), ["A"], {None: "Required value: d", "": "Required value: d"}),
        (present("d"), ["", 0, {}, []], {None: "Required value: d"}),
        (positive("d"), [1], {v: f"Invalid value: {v or 0}: d" for v in (None, 0, -1)}),
        (max_items(1), [None, ["a"]], {("a", "b"): "Too many: 2: must have at most 1 items"}),
        (require_enum("A"), [], {"B": 'Unsupported value: "B": supported values: "A"'}),
        (minimum(0, "d"), [None, 0, 1], {-1: "Invalid value: -1: d"}),
        (maximum(9, "d"), [None, 0, 9], {10: "Invalid value: 10: d"}),
        (between(1, 2), [None, 1, 2], {v: f"Invalid value: {v}: must be between 1 and 2, inclusive" for v in (0, 3)}),
        (require_name(dns1123_label, "d"), ["a"], {None: "Required value: d", "A": f'Invalid value: "A": {LABEL}'}),
        (form(dns1123_label), ["a"], {v: f'Invalid value: "{v or ""}": {LABEL}' for v in (None, "", "A")}),
        (optional(form(dns1123_label)), ["a", None, ""], {"A": f'Invalid value: "A": {LABEL}'}),
        (optional(non_negative), [None, 0], {-1: "Invalid value: -1: must be greater than or equal to 0"}),
        (max_bytes(4), [None, "", "abcd", "éé"], {"ééa": "Too long: may not be more than 4 bytes"}),
        (max_characters(2, "d"), [None, "", "éé"], {"abc": 'Invalid value: "abc": d'}),
        (max_map_bytes(4), [None, {}, {"ab": "cd"}, {"é": "é"}], {}),
    ],
)
def test_a_rule(rule: Rule, right: list[Any], wrong: dict[Any, str]) -> None:
    rows = Rows(("x", rule))
    assert [texts(rows, {"x": value}) for value in right] == [[] for _ in right]
    assert [texts(rows, {"x": value}) for value in wrong] == [[f"x: {text}"] for text in wrong.values()]


def test_a_large_map_is_too_long() -> None:
    assert texts(Rows(("x", max_map_bytes(4))), {"x": {"ab": "é", "c": ""}}) == [
        "x: Too long: may not be more than 4 bytes"
    ]


def test_names_in_braces_are_fields_one_after_the_other() -> None:
    rows = Rows(("spec.{a,b}?", positive("small"), minimum(5, "five")), ("{x,y}[*].{k}", require()))
    assert texts(rows, {"spec": {"b": 1, "a": 0}, "y": [{}], "x": [{"k": 1}, {}]}) == [
        "spec.a: Invalid value: 0: small",
        "spec.a: Invalid value: 0: five",
        "spec.b: Invalid value: 1: five",
        "x[1].k: Required value",
        "y[0].k: Required value",
    ]


def test_items_of_a_list_that_is_too_long_are_not_read() -> None:
    rows = Rows(("of[*].list[*2].name", require(), unique_item), ("of[*].list[*2]", Rows(("z", require()))))
    assert texts(rows, {"of": [{"list": [{}, {}, {}]}, {"list": [{"name": "a", "z": 1}, {"z": 1}]}, {}]}) == [
        "of[0].list: Too many: 3: must have at most 2 items",
        "of[1].list[1].name: Required value",
    ]


@pytest.mark.parametrize(("value", "wrong"), [(None, False), ("", True), ([], True)])
def test_forbidden_is_any_value_that_is_present(value: Any, wrong: bool) -> None:
    assert texts(Rows(("a", forbid("no"))), {"a": value}) == ["a: Forbidden: no"] * wrong


@pytest.mark.parametrize(("value", "wrong"), [(None, False), (["*"], False), (["a", "b"], False), (["a", "*"], True)])
def test_a_wildcard_is_the_only_item(value: Any, wrong: bool) -> None:
    found = texts(Rows(("a", only_wildcard("things"))), {"a": value})
    assert found == ['a: Invalid value: ["a","*"]: if \'*\' is present, must not specify other things'] * wrong


def test_an_absent_text_is_empty_and_an_absent_number_is_0() -> None:
    rows = Rows(("a", text(lambda value, path: [invalid_value(path, value, "t")])))
    assert texts(rows, {}) == ['a: Invalid value: "": t']
    assert texts(Rows(("a", number(positive_port))), {}) == ["a: Invalid value: 0: low"]


def positive_port(value: int, path: str) -> Errors:
    return [] if value > 0 else [invalid_value(path, value, "low")]
