"""The cost of authorization is in proportion to the roles, and its memory to them alone, whatever is asked."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from control.auth import rbac, rule_set
from control.auth.rbac import BINDINGS, ROLES, RBACAuthorizer
from control.auth.rule_coverage import uncovered
from control.auth.rule_set import RuleSet
from control.auth.user import AuthzAttributes, UserInfo
from tests.support.cost import Case, TooExpensive, judge_memory, judge_steps

Rule = dict[str, Any]
JANE = UserInfo("jane", "", ("system:authenticated",))
VERBS = ["get", "list", "watch", "update", "patch"]
RESOURCES = ["pods", "services", "configmaps", "secrets", "endpoints"]
RULE_BYTES, NAME_BYTES = 96, 16


@pytest.fixture(autouse=True)
def compiled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile large roles in one step: slices change nothing of the sum."""
    monkeypatch.setattr(rbac, "LARGE_ROLE", 1 << 30)


def rules(size: int, start: int = 0) -> list[Rule]:
    """Return so many bytes of rules that have little in common."""
    return [
        {
            "verbs": ["get", f"v{n}"],
            "apiGroups": [""],
            "resources": ["pods", f"r{n}"],
            "resourceNames": [f"{start + n:x}"],
        }
        for n in range(size // RULE_BYTES)
    ]


def bound(*roles: list[Rule]) -> RBACAuthorizer:
    """Return an authorizer under which jane has some roles."""
    found = RBACAuthorizer()
    for number, given in enumerate(roles):
        meta = {"name": f"r{number}", "namespace": "shop"}
        ref, subjects = {"kind": "Role", "name": meta["name"]}, [{"kind": "User", "name": "jane"}]
        found.changed(ROLES, "ADDED", {"metadata": meta, "rules": given})
        found.changed(BINDINGS, "ADDED", {"metadata": meta, "roleRef": ref, "subjects": subjects})
    return found


def many_names(size: int) -> RBACAuthorizer:
    """Return roles that consist of names of objects."""

    def role(number: int) -> list[Rule]:
        names = [f"{number}-{n:x}" for n in range(size // 4 // NAME_BYTES)]
        return [{"verbs": VERBS, "apiGroups": [""], "resources": RESOURCES, "resourceNames": names}]

    return bound(*map(role, range(4)))


def ask_of_each_kind(authorizer: RBACAuthorizer) -> list[Any]:
    asked = (
        AuthzAttributes(user=JANE, verb=verb, version="v1", resource=what, namespace="shop", name="x")
        for verb, what in product(VERBS, RESOURCES)
    )
    return [authorizer.authorize(each) for each in asked]


def held_and_wanted(size: int) -> tuple[RuleSet, list[Rule]]:
    """Return held rules of which the last covers each wanted one, and a few wanted ones."""
    last = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    return RuleSet([*rules(size), last]), rules(4096, 10**9)


CASES: tuple[Case, ...] = (
    Case("the names of roles", many_names, ask_of_each_kind, memory=2),
    Case("the rules of roles", lambda size: bound(rules(size)), ask_of_each_kind, memory=2),
    Case("held rules", held_and_wanted, lambda given: uncovered(*given), memory=2),
    Case("compiled rules", rules, RuleSet, memory=100),
    Case("wanted rules", lambda size: rules(size), lambda given: uncovered(RuleSet(rules(4096)), given), memory=100),
)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_cost_grows_no_faster_than_roles(case: Case) -> None:
    judge_steps(case, small=8 * 1024)
    judge_memory(case, small=64 * 1024)


def test_a_request_and_a_check_take_a_step_for_a_block_and_not_for_each_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    get = rule_set.Index.get
    matching = rule_set.Block.matching

    def counted(method: Callable[..., int]) -> Callable[..., int]:
        def call(*args: Any) -> int:
            nonlocal calls
            calls += 1
            return method(*args)

        return call

    monkeypatch.setattr(rule_set.Index, "get", counted(get))
    monkeypatch.setattr(rule_set.Block, "matching", counted(matching))
    authorizer = bound(rules(RULE_BYTES * 10 * rule_set.BLOCK))
    authorizer.authorize(
        AuthzAttributes(user=JANE, verb="get", version="v1", resource="pods", namespace="shop", name="x")
    )
    assert calls <= 30, "ten blocks, each for any name, again, and for this one"
    calls = 0
    held, wanted = held_and_wanted(RULE_BYTES * 10 * rule_set.BLOCK)
    assert uncovered(held, wanted[:10]) == [] and calls <= 10 * 11 * 6


def test_what_grows_with_kinds_of_requests_is_seen() -> None:
    def unions(authorizer: RBACAuthorizer) -> list[Any]:
        names = [n for rule in authorizer.rules_for(JANE, "shop") for n in rule["resourceNames"]]
        return [frozenset(names) for _ in range(len(VERBS) * len(RESOURCES))]

    with pytest.raises(TooExpensive, match="bytes of memory"):
        judge_memory(Case("unions", many_names, unions, memory=2), small=64 * 1024)
