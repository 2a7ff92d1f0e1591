from __future__ import annotations

import re
import sys

import pytest

from kube.collecting import uncollected
from kube.serving.free_lists import KEPT, LENGTHS, release_tuples

SLACK = 50
"""Tuples that the interpreter and the test free by themselves."""


def _freed(length: int) -> set[int]:
    """Return the addresses of as many tuples as a list has, all of which have been freed."""
    tuples = [tuple([None] * length) for _ in range(KEPT)]
    return {id(each) for each in tuples}


def _listed(capfd: pytest.CaptureFixture[str]) -> dict[int, int]:
    """Return the number of tuples in the list of each length."""
    capfd.readouterr()
    sys._debugmallocstats()  # type: ignore[attr-defined]  # not in the stubs
    lines = re.findall(r"(\d+) free (\d+)-sized PyTupleObjects", capfd.readouterr().err)
    return {int(length): int(number) for number, length in lines}


def test_the_lists_of_all_lengths_are_emptied(capfd: pytest.CaptureFixture[str]) -> None:
    with uncollected():  # a full collection empties them too
        for length in LENGTHS:
            _freed(length)
    assert all(_listed(capfd)[length] > KEPT - SLACK for length in LENGTHS), "CPython has such lists"
    release_tuples()
    found = _listed(capfd)
    assert {length: found[length] for length in LENGTHS if found[length] > SLACK} == {}


def test_the_list_of_the_shortest_tuples_gets_new_ones() -> None:
    last = _freed(1)
    assert len(_freed(1) & last) > KEPT - SLACK, "CPython has such a list"
    release_tuples()
    assert len(_freed(1) & last) < SLACK
