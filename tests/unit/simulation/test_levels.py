"""The rule of the members' resources in peace."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from simulation.oracles.levels import Level, leaks, lowest

ONE = Level("control-1", 380, 60, 16, 500, {"writes": 0})
TWO = Level("control-2", 50, 10, 16, 500, {"writes": 0})


def test_members_that_differ_in_leaders_and_clients_only_have_no_leak() -> None:
    assert list(leaks([ONE, TWO], [ONE, TWO])) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"under_way": {"writes": 1}}, "control-2: 1 writes have not ended"),
        ({"tasks": 600}, "600 tasks are more than 380"),
        ({"tasks": 61}, "grows from 50 to 61 tasks"),
        ({"own_watches": 17}, "own watches: {'control-1': 16, 'control-2': 17}"),
        ({"objects": 499}, "number of objects"),
    ],
)
def test_each_leak_is_named(change: dict[str, Any], words: str) -> None:
    found = [text for _, text in leaks([ONE, TWO], [ONE, replace(TWO, **change)])]
    assert any(words in text for text in found), found


def test_work_of_a_moment_is_no_leak() -> None:
    busy = replace(TWO, tasks=55, under_way={"writes": 1})
    assert lowest([[busy], [TWO], [busy]]) == [TWO]
    assert lowest([[busy], [busy]]) == [busy]
