"""Decoded JSON compared in value and type."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.json_object import count_values, identical

VALUES = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 0.0, 1.0, "", "1", 1 << 70]),
    lambda parts: st.one_of(st.lists(parts, max_size=3), st.dictionaries(st.sampled_from("ab"), parts, max_size=2)),
    max_leaves=6,
)


def text(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


@given(VALUES, VALUES)
def test_values_are_identical_if_their_texts_are(a: Any, b: Any) -> None:
    assert identical(a, b) is (text(a) == text(b))
    assert identical(a, msgspec.json.decode(text(a)))


@pytest.mark.parametrize(("a", "b"), [(1, True), (0, False), (1, 1.0), ([1], [True]), ({"a": [0]}, {"a": [0.0]})])
def test_values_that_python_calls_equal_are_not_identical(a: Any, b: Any) -> None:
    assert a == b and not identical(a, b)


def test_values_are_counted_at_all_levels() -> None:
    assert count_values({"a": [1, {"b": None}], "c": "d"}) == 6
