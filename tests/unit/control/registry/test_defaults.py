"""Rows of defaults: fields of Go's pointer types and others, items, parts, and values that are computed."""

from __future__ import annotations

from typing import Any

import pytest

from control.registry.defaults import Defaults, absent


def filled(obj: Any, *rows: tuple[str, Any]) -> Any:
    Defaults(*rows)(obj)
    return obj


@pytest.mark.parametrize("given", [{}, {"a": ""}, {"a": 0}, {"a": []}, {"a": None}])
def test_a_field_with_its_zero_value_gets_the_default(given: Any) -> None:
    assert filled(given, ("a", 7)) == {"a": 7}


@pytest.mark.parametrize(("given", "value"), [({}, 7), ({"a": None}, 7), ({"a": 0}, 0), ({"a": ""}, "")])
def test_a_pointer_gets_the_default_only_if_it_is_absent(given: Any, value: Any) -> None:
    assert filled(given, ("a", absent(7))) == {"a": value}


def test_a_pointer_may_have_other_values_that_mean_absent() -> None:
    assert filled({"a": ""}, ("a", absent("0", ""))) == {"a": "0"}


@pytest.mark.parametrize("given", [{}, {"part": None}])
def test_fields_of_an_absent_part_get_no_defaults(given: Any) -> None:
    assert filled(dict(given), ("part.a", 1), ("list[*].a", 1)) == given


def test_an_empty_part_gets_defaults_and_each_item_of_a_list_does() -> None:
    rows = (("part.a", 1), ("list[*].of[*].{x,y}", absent(2)), ("made", absent({})), ("made.z", 3))
    found = filled({"part": {}, "list": [{"of": [{}, {"x": 0}]}, {}]}, *rows)
    assert found == {"part": {"a": 1}, "list": [{"of": [{"x": 2, "y": 2}, {"x": 0, "y": 2}]}, {}], "made": {"z": 3}}


def test_a_value_may_be_computed_from_the_part() -> None:
    assert filled({"p": {"n": 4}}, ("p.m", lambda part: part["n"] + 1)) == {"p": {"n": 4, "m": 5}}


def test_objects_do_not_share_a_default_that_is_a_list() -> None:
    rows = Defaults(("a", ["x"]), ("b", absent({"c": []})))
    one, other = {}, {}  # type: dict[str, Any], dict[str, Any]
    rows(one)
    rows(other)
    one["a"].append("y")
    one["b"]["c"].append("y")
    assert other == {"a": ["x"], "b": {"c": []}}


def test_rows_of_a_part_that_kinds_share_apply_below_their_path() -> None:
    shared = Defaults(("a", 1), ("deep.b", 2))
    assert filled({"x": [{"deep": {}}], "y": {}}, ("x[*]", shared), ("y", shared)) == {
        "x": [{"a": 1, "deep": {"b": 2}}],
        "y": {"a": 1},
    }
