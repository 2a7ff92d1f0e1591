"""The limit on how deep JSON nests is found without a call for each level, in text and in values."""

import json
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.nesting import DEEPEST, FRAMES, cut, is_deep, too_deep
from tests.support import nesting
from tests.support.cost import Lines

VALUES = st.recursive(
    st.none() | st.integers() | st.text('[]{}\\",:a', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('[]{}\\",:a', max_size=4), inner, max_size=3),
)


def around(levels: int, value: object) -> object:
    """Put a value into so many lists and objects, with brackets and quotes in their keys and neighbours."""
    for number in range(levels):
        value = {'"}]\\': value, "{[": ["]"]} if number % 2 else ["{", value, '\\"']
    return value


@given(value=VALUES, levels=st.integers(DEEPEST - 12, DEEPEST + 12))
def test_text_is_as_deep_as_its_value(value: object, levels: int) -> None:
    whole = around(levels, value)
    deep = nesting.levels_of(whole) > DEEPEST
    assert is_deep(nesting.json_text(whole)) == deep == too_deep(whole)


@given(value=VALUES, levels=st.integers(DEEPEST - 12, DEEPEST + 12))
def test_a_cut_text_has_all_but_the_deepest_levels(value: object, levels: int) -> None:
    def upper(one: object, level: int) -> object:
        if isinstance(one, dict):
            return {key: upper(part, level + 1) for key, part in one.items()} if level < DEEPEST else {}
        if isinstance(one, list):
            return [upper(part, level + 1) for part in one] if level < DEEPEST else []
        return one

    whole = around(levels, value)
    text = cut(nesting.json_text(whole))
    assert json.loads(text) == upper(whole, 1)
    assert not is_deep(text)


@pytest.mark.parametrize("levels", [DEEPEST + 1, 100_000])
def test_a_text_of_any_depth_can_be_cut(levels: int) -> None:
    text = b'{"a":' * levels + b"1" + b"}" * levels
    assert nesting.levels_of(json.loads(cut(text))) == DEEPEST


@pytest.mark.parametrize("rest", [rb'"' + rb"\"" * 500_000, rb'"' + rb"\\" * 500_000, b'"a' * 500_001])
def test_a_text_whose_last_string_does_not_end_is_cut_in_linear_time(rest: bytes) -> None:
    """In quadratic time this would take an hour. A decoder that stops at the depth has not seen the end of the text."""
    text = b"[" * (DEEPEST + 1) + rest
    assert cut(text).startswith(b"[" * DEEPEST) and len(cut(text)) <= len(text)


def test_many_levels_of_many_texts_are_found() -> None:
    beside = [nesting.nested_lists(30)] * 40
    assert not is_deep(nesting.json_text([beside, nesting.nested_lists(DEEPEST - 1)]))
    assert is_deep(nesting.json_text([beside, nesting.nested_lists(DEEPEST)]))


@given(
    runs=st.lists(st.tuples(st.integers(0, 24), st.integers(0, 24), st.sampled_from(["[]", "{}"])), max_size=60),
    levels=st.integers(DEEPEST - 40, DEEPEST),
)
def test_the_level_is_found_wherever_text_comes_near_the_limit(runs: list[tuple[int, int, str]], levels: int) -> None:
    text, depth, most = "[" * levels, levels, levels
    for down, up, (opening, closing) in runs:
        depth += up - down
        most = max(most, depth)
        text += closing * down + opening * up
    assert is_deep(text.encode() + b"[]" * DEEPEST) == (max(most, depth + 1) > DEEPEST)


@pytest.mark.parametrize(("around", "brackets_a_line"), [(0, 30), (DEEPEST - 19, 1.2)])
def test_the_depth_of_large_texts_is_not_found_bracket_by_bracket(around: int, brackets_a_line: float) -> None:
    """Objects are checked on the event loop whenever they are read, as many as a list has."""
    text = nesting.json_text([nesting.nested_lists(18)] * 3000)
    text = b"[" * around + text + b"]" * around
    with Lines() as lines:
        assert not is_deep(text)
    brackets = len(text.translate(None, b","))
    assert lines.count < brackets / brackets_a_line


def test_nested_calls_through_c_code_end_with_an_error_in_a_small_stack() -> None:
    """A thread's stack is of 8 MiB, or of 2 MiB if no limit is set."""
    assert sys.getrecursionlimit() >= FRAMES
    errors: list[type[BaseException]] = []

    def depth(value: list[object]) -> int:
        return 1 + sum(map(depth, value))  # type: ignore[arg-type]

    def run() -> None:
        for work in (depth, json.dumps, repr, lambda value: value == nesting.nested_lists(5000)):
            try:
                work(nesting.nested_lists(5000))
            except RecursionError as error:
                errors.append(type(error))

    before = threading.stack_size(2 << 20)
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert errors == [RecursionError] * 4
