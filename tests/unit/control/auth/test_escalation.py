"""Rules that are not covered by others, at a cost that the author of a role cannot increase."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from control.auth.escalation import MOST_CHECKS, MOST_FOUND, Rule, describe, uncovered


def product(count: int) -> Rule:
    """Return a rule of `count` verbs, groups and resources: count³ grants."""
    return {part: [f"{part}{n}" for n in range(count)] for part in ("verbs", "apiGroups", "resources")}


def test_a_role_of_few_bytes_that_multiplies_out_is_refused_with_some_of_its_grants() -> None:
    held = [{"verbs": ["get"], "apiGroups": [""], "resources": [f"r{n}"]} for n in range(100)]
    found = uncovered(held, [product(120)])
    assert 0 < len(found) <= MOST_FOUND
    assert len("\n".join(describe(found))) < 200_000


def test_what_takes_too_long_to_tell_is_not_covered() -> None:
    rule = product(120)
    held = [{"verbs": [verb], "apiGroups": ["*"], "resources": ["*"]} for verb in rule["verbs"]]
    assert uncovered(held, [rule]) == [rule]


def test_a_rule_that_many_rules_cover_together_is_covered() -> None:
    rule = product(10)
    held = [{"verbs": [verb], "apiGroups": ["*"], "resources": ["*"]} for verb in rule["verbs"]]
    assert uncovered(held, [rule]) == []
    missing = uncovered(held[1:], [rule])
    assert len(missing) == 100 and {tuple(grant["verbs"]) for grant in missing} == {("verbs0",)}


@pytest.mark.parametrize("count", [20, 60, 120])
def test_the_steps_of_a_check_are_bounded(count: int) -> None:
    steps = 0

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        steps += event == "call" and frame.f_code.co_name == "covers"
        return None

    before = sys.gettrace()
    sys.settrace(line)
    try:
        uncovered([{"verbs": ["x"], "apiGroups": ["*"], "resources": ["*"]}] * 50, [product(count)] * 3)
    finally:
        sys.settrace(before)
    assert steps <= MOST_CHECKS + 200
