"""Every reader's cost is in proportion to its input, and what is read is never an error of the server.

With WHERRY_COST_BYTES=3145728 the inputs grow to the length of the longest body.
"""

from __future__ import annotations

import gc
import re

import pytest

from tests.support.cost import Case, TooExpensive, judge_memory, judge_steps, judge_time, steps
from tests.support.cost_cases import CASES

NAMES = [case.name for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_cost_grows_no_faster_than_the_input(case: Case) -> None:
    judge_steps(case)
    judge_time(case)
    judge_memory(case)


def test_each_case_has_a_name_of_its_own() -> None:
    assert len(set(NAMES)) == len(NAMES)


# -- the judges themselves ----------------------------------------------------------------------------------------------
def _letters(size: int) -> str:
    return "a" * size


def _pairs(text: str) -> int:
    found = 0
    for one in text[:3000]:
        for other in text[:3000]:
            found += one == other
    return found


def _rest_of_it_each_time(text: str) -> int:
    return sum(len(text[index:]) for index in range(0, len(text), 4))


def _all_places(text: str) -> list[str]:
    return ["".join(["x"] * 8) for _ in range(len(text) * len(text) // 16384)]


def test_the_judges_pass_what_is_linear() -> None:
    case = Case("linear", _letters, lambda text: [letter.upper() for letter in text])
    judge_steps(case)
    judge_time(case)
    judge_memory(case)


def test_what_a_garbage_collection_executes_is_not_counted() -> None:
    class Circle:
        def __init__(self) -> None:
            self.own = self

        def __del__(self) -> None:
            self.ended = True

    def read(count: int) -> None:
        for _ in range(count):
            Circle()

    thresholds = gc.get_threshold()
    gc.set_threshold(5)
    try:
        assert steps(Case("circles", _letters, read), 1000) < 3100
    finally:
        gc.set_threshold(*thresholds)


def test_lines_that_grow_with_the_square_are_seen() -> None:
    with pytest.raises(TooExpensive, match="lines grow with exponent"):
        judge_steps(Case("pairs", _letters, _pairs), small=256)


def test_time_that_grows_with_the_square_within_single_lines_is_seen() -> None:
    case = Case("copies", _letters, _rest_of_it_each_time, 1 << 19)
    judge_steps(case)
    with pytest.raises(TooExpensive, match="time grows with exponent"):
        judge_time(case)


def test_a_regular_expression_that_backtracks_is_seen() -> None:
    adjacent = re.compile(r"\d+\.?\d*x")
    case = Case("backtracking", lambda size: "1" * size, adjacent.fullmatch, 1 << 14)
    judge_steps(case)
    with pytest.raises(TooExpensive, match="backtracking"):
        judge_time(case, small=1024)


def test_memory_that_grows_with_the_square_is_seen() -> None:
    with pytest.raises(TooExpensive, match=r"bytes of memory grow with exponent [12]\."):
        judge_memory(Case("places", _letters, _all_places))


def test_memory_that_is_many_times_the_input_is_seen() -> None:
    with pytest.raises(TooExpensive, match="bytes of memory for an input of 16384"):
        judge_memory(Case("copies", _letters, lambda text: text * 50, memory=10))


def test_a_fault_of_the_server_is_no_refusal() -> None:
    def fault(text: str) -> None:
        raise KeyError(text)

    with pytest.raises(KeyError):
        judge_steps(Case("fault", _letters, fault))
