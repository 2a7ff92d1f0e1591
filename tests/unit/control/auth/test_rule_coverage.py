"""Rules that are not covered by others, at a cost that the author of a role cannot increase."""

from __future__ import annotations

import random
from math import prod

import pytest

from control.auth import rule_coverage
from control.auth.rule_coverage import MOST_FOUND, MOST_STEPS, MOST_TEXT, describe, uncovered, work
from control.auth.rule_set import Rule, RuleSet


def product(count: int) -> Rule:
    """Return a rule of `count` verbs, groups and resources: count³ grants."""
    return {part: [f"{part}{n}" for n in range(count)] for part in ("verbs", "apiGroups", "resources")}


def test_a_role_of_few_bytes_that_multiplies_out_is_refused_with_some_of_its_grants() -> None:
    held = [{"verbs": ["get"], "apiGroups": [""], "resources": [f"r{n}"]} for n in range(100)]
    found = uncovered(RuleSet(held), [product(120)])
    assert 0 < len(found) <= MOST_FOUND
    assert len("\n".join(describe(found))) < 200_000


def test_a_refusal_does_not_repeat_long_names_for_each_grant() -> None:
    rule = product(10) | {"resourceNames": ["n" * 100_000]}
    found = uncovered(RuleSet(), [rule])
    assert len(found) == MOST_FOUND
    shown = describe(found)
    assert 10 < len(shown) and len("\n".join(shown)) < 2 * MOST_TEXT
    assert shown == sorted(shown) and all("..." in each for each in shown)


def test_a_rule_that_takes_too_long_to_compare_is_not_covered() -> None:
    rule = product(120)
    held = [{"verbs": [verb], "apiGroups": ["*"], "resources": ["*"]} for verb in rule["verbs"]]
    assert uncovered(RuleSet(held), [rule]) == [rule]


def test_a_rule_that_many_rules_cover_together_is_covered() -> None:
    rule = product(10)
    held = [{"verbs": [verb], "apiGroups": ["*"], "resources": ["*"]} for verb in rule["verbs"]]
    assert uncovered(RuleSet(held), [rule]) == []
    missing = uncovered(RuleSet(held[1:]), [rule])
    assert len(missing) == 100 and {tuple(grant["verbs"]) for grant in missing} == {("verbs0",)}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list whose only element is the number of steps that were taken."""
    count, take = [0], rule_coverage._Search._take

    def counted(self: rule_coverage._Search, number: int) -> None:
        count[0] += number
        take(self, number)

    monkeypatch.setattr(rule_coverage._Search, "_take", counted)
    return count


@pytest.mark.parametrize("count", [20, 60, 120])
def test_the_steps_of_a_check_are_bounded(steps: list[int], count: int) -> None:
    held = [{"verbs": ["x"], "apiGroups": ["*"], "resources": ["*"]}] * 50
    uncovered(RuleSet(held), [product(count)] * 3)
    assert 0 < steps[0] <= MOST_STEPS + 200


def named(first: int, count: int, **more: list[str]) -> list[Rule]:
    rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]} | more
    return [rule | {"resourceNames": [f"{first + number:x}"]} for number in range(count)]


def test_rules_that_the_last_held_rule_covers_take_few_steps(steps: list[int]) -> None:
    held = RuleSet([*named(0, 4000), {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}])
    assert uncovered(held, named(10**6, 1000)) == []
    assert steps[0] < 50_000, "not one for each of four million pairs"


def test_steps_are_bounded_where_each_rule_is_covered(steps: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_coverage, "MOST_STEPS", 1000)
    last = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
    wanted = named(10**6, 500)
    assert uncovered(RuleSet([*named(0, 2000, verbs=["get", "x"]), last]), wanted)[0] in wanted
    assert steps[0] <= 1001
    paths: list[Rule] = [{"verbs": ["get"], "nonResourceURLs": [f"/{name}/{n}" for n in range(100)]} for name in "ab"]
    steps[0] = 0
    assert uncovered(RuleSet(paths), paths) == [paths[0]]
    assert steps[0] < 1200


def test_names_that_are_covered_take_no_step_each(steps: list[int]) -> None:
    held = RuleSet([{"verbs": ["*"], "apiGroups": [""], "resources": [f"r{n}"]} for n in range(8)])
    resources, names = [f"r{n}" for n in range(8)], [f"n{n}" for n in range(50_000)]
    wanted = {"verbs": ["get", "list"], "apiGroups": [""], "resources": resources, "resourceNames": names}
    assert uncovered(held, [wanted]) == [] and steps[0] < 200
    missing = uncovered(held, [wanted | {"resources": ["r0", "x"]}])
    assert len(missing) == MOST_FOUND and {tuple(grant["resources"]) for grant in missing} == {("x",)}


def test_the_work_of_a_check_grows_with_grants_and_with_held_rules() -> None:
    few, many = RuleSet(named(0, 1)), RuleSet(named(0, 5000))
    assert work(few, [product(2)], 1000) < work(few, [product(9)], 1000) < work(many, [product(9)], 100_000)
    assert work(few, named(0, 1), 1000) < 20 and work(few, [product(100)] * 10**6, 1000) >= 1000


@pytest.mark.parametrize("seed", range(20))
def test_grants_are_covered_by_one_rule_each(seed: int) -> None:
    draw = random.Random(seed)

    def rule() -> Rule:
        texts = {"verbs": "get list *", "apiGroups": "core apps *", "resources": "pods pods/log */log *"}
        made = {part: draw.sample(given.split(), draw.randint(1, 2)) for part, given in texts.items()}
        return made | ({"resourceNames": draw.sample("abc", draw.randint(1, 2))} if draw.random() < 0.5 else {})

    held, wanted = [rule() for _ in range(4)], [rule() for _ in range(3)]
    missing = [str(each) for each in uncovered(RuleSet(held), wanted)]
    single = [RuleSet([each]) for each in held]
    grants = [grant for each in wanted for kind in rule_coverage._kinds(each) for grant in rule_coverage._grants(kind)]
    assert len(grants) == sum(prod(map(len, each.values())) for each in wanted)
    expected = [str(grant) for grant in grants if all(uncovered(one, [grant]) for one in single)]
    assert missing == [*dict.fromkeys(expected)]
