"""Large roles and bindings are compiled in slices and take effect as a whole; their deletion takes effect at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from control.auth import bound_subjects, rule_set
from control.auth import rbac as rbac_module
from control.auth.compilation import Compilation, Pieces, in_slices
from control.auth.rbac import BINDINGS, CLUSTER_BINDINGS, LARGE_ROLE, ROLES, RBACAuthorizer
from control.auth.user import AuthzAttributes, Decision, UserInfo
from tests.support.hollow import eventually
from tests.support.step_lines import longest_step

from .test_rbac import JANE, TARGETS, authorizer, binding, may, role

Rule = dict[str, Any]


def many_rules(count: int, *verbs: str) -> list[Rule]:
    """Return rules of which the last one is about pods."""
    rules = [{"verbs": ["get"], "apiGroups": [f"g{n}"], "resources": [f"r{n}"]} for n in range(count - 1)]
    return [*rules, {"verbs": list(verbs), "apiGroups": [""], "resources": ["pods"]}]


def large_role(*verbs: str) -> dict[str, Any]:
    return role("r", namespace="shop") | {"rules": many_rules(LARGE_ROLE, *verbs)}


def large_binding(*subjects: str) -> dict[str, Any]:
    others = (f"User u{number}" for number in range(bound_subjects.LARGE))
    return binding("b", "r", *others, *subjects, namespace="shop", kind="Role")


@asynccontextmanager
async def compiling(rbac: RBACAuthorizer) -> AsyncIterator[None]:
    task = asyncio.create_task(rbac.compilation.run())
    try:
        yield
    finally:
        task.cancel()


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every slice end after a piece, so that there is time in between on every machine."""
    monkeypatch.setattr("control.event_loop.pacing.SLICE_SECONDS", 0)


async def test_a_large_role_grants_its_old_rules_until_the_new_ones_are_compiled() -> None:
    rbac = authorizer(binding("b", "r", "User jane", namespace="shop", kind="Role"))
    async with compiling(rbac):
        rbac.changed(ROLES, "ADDED", large_role("get"))
        await asyncio.sleep(0)
        assert not may(rbac, "get", "pods", "shop")
        await rbac.compilation.settled()
        assert may(rbac, "get", "pods", "shop") and not may(rbac, "list", "pods", "shop")
        rbac.changed(ROLES, "MODIFIED", large_role("list"))
        await asyncio.sleep(0)
        assert may(rbac, "get", "pods", "shop") and not may(rbac, "list", "pods", "shop")
        await rbac.compilation.settled()
        assert may(rbac, "list", "pods", "shop") and not may(rbac, "get", "pods", "shop")


async def test_a_large_binding_names_its_old_subjects_until_the_new_ones_are_indexed() -> None:
    rbac = authorizer(role("r", "get core pods", namespace="shop"))
    other = UserInfo("other")
    async with compiling(rbac):
        rbac.changed(BINDINGS, "ADDED", large_binding("User jane"))
        await asyncio.sleep(0)
        assert not may(rbac, "get", "pods", "shop")
        await rbac.compilation.settled()
        assert may(rbac, "get", "pods", "shop") and may(rbac, "get", "pods", "shop", user=UserInfo("u7"))
        requested = AuthzAttributes(user=JANE, verb="get", version="v1", resource="pods", namespace="shop")
        assert rbac.why(requested) == 'RBAC: allowed by RoleBinding "b/shop" of Role "r" to User "jane"'
        rbac.changed(BINDINGS, "MODIFIED", large_binding("User other"))
        await asyncio.sleep(0)
        assert may(rbac, "get", "pods", "shop") and not may(rbac, "get", "pods", "shop", user=other)
        await rbac.compilation.settled()
        assert not may(rbac, "get", "pods", "shop") and may(rbac, "get", "pods", "shop", user=other)
        rbac.changed(BINDINGS, "MODIFIED", binding("b", "r", "User jane", namespace="shop", kind="Role"))
        assert may(rbac, "get", "pods", "shop") and not may(rbac, "get", "pods", "shop", user=other)


@pytest.mark.parametrize("started", [False, True])
async def test_what_is_deleted_or_small_again_counts_at_once_and_is_not_replaced_by_an_older_state(
    started: bool,
) -> None:
    rbac = authorizer(
        role("r", "get core pods", namespace="shop"), binding("b", "r", "User jane", namespace="shop", kind="Role")
    )
    async with compiling(rbac):
        rbac.changed(ROLES, "MODIFIED", large_role("list"))
        rbac.changed(BINDINGS, "MODIFIED", large_binding("User jane"))
        if started:
            await asyncio.sleep(0)
        rbac.changed(ROLES, "MODIFIED", role("r", "watch core pods", namespace="shop"))
        assert may(rbac, "watch", "pods", "shop") and not may(rbac, "get", "pods", "shop")
        rbac.changed(BINDINGS, "DELETED", large_binding())
        assert not may(rbac, "watch", "pods", "shop")
        rbac.changed(ROLES, "DELETED", large_role("list"))
        await rbac.compilation.settled()
        await eventually(lambda: rbac._compiled == {} and not rbac._bound.has("shop"))


async def test_an_object_that_changes_again_and_again_takes_effect_meanwhile() -> None:
    rbac = authorizer(binding("b", "r", "User jane", namespace="shop", kind="Role"))
    async with compiling(rbac):
        for number in range(10_000):
            rbac.changed(ROLES, "MODIFIED", large_role("get", f"v{number}"))
            await asyncio.sleep(0)
            if may(rbac, "get", "pods", "shop"):
                return
    raise AssertionError("the role never takes effect")


@pytest.mark.parametrize("seed", range(10))
async def test_what_is_compiled_in_slices_allows_what_is_compiled_at_once_does(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, known = random.Random(seed), dict[tuple[str, str], dict[str, Any]]()
    subjects = ["User jane", "Group dev", "ServiceAccount web", "User other"]
    followed, large = RBACAuthorizer(), (1, 1)
    at_once = rbac_module.LARGE_ROLE, bound_subjects.LARGE

    def sizes(role_size: int, binding_size: int) -> None:
        monkeypatch.setattr(rbac_module, "LARGE_ROLE", role_size)
        monkeypatch.setattr(bound_subjects, "LARGE", binding_size)

    async with compiling(followed):
        for _ in range(60):
            name = draw.choice("xyz")
            if draw.random() < 0.5:
                made = role(name, *draw.sample(["get core pods", "list core pods", "get core secrets q"], 2))
            else:
                made = binding(name, draw.choice("xyz"), *draw.sample(subjects, draw.randint(0, 3)))
            target = TARGETS[made["kind"]]
            deleted = (target, name) in known and draw.random() < 0.3
            sizes(*(large if draw.random() < 0.7 else at_once))
            followed.changed(target, "DELETED" if deleted else "MODIFIED", made)
            known.pop((target, name), None)
            if not deleted:
                known[target, name] = made
            if draw.random() < 0.5:
                await asyncio.sleep(0)
                continue
            await followed.compilation.settled()
            sizes(*at_once)
            fresh = authorizer(*known.values())
            for user in (JANE, UserInfo("other", "", ("dev",))):
                for verb, what in (("get", "pods"), ("list", "pods"), ("get", "secrets")):
                    requested = AuthzAttributes(
                        user=user, verb=verb, version="v1", resource=what, namespace="a", name="q"
                    )
                    assert followed.authorize(requested)[0] is fresh.authorize(requested)[0]
                    assert bool(followed.why(requested)) is (followed.authorize(requested)[0] is Decision.ALLOW)


async def test_steps_do_not_grow_with_a_roles_rules_and_a_bindings_subjects() -> None:
    def rules(count: int) -> Pieces[Any]:
        return rule_set.compiled(many_rules(count))

    def paths(count: int) -> Pieces[Any]:
        return rule_set.compiled([{"verbs": ["get"], "nonResourceURLs": [f"/{n}"]} for n in range(count)])

    def names(count: int) -> Pieces[Any]:
        texts = [f"n{number}" for number in range(count)]
        rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": texts}
        return rule_set.compiled([rule, rule])

    def subjects(count: int) -> Pieces[Any]:
        return bound_subjects.keys([{"kind": "User", "name": f"u{number}"} for number in range(count)], "")

    for work in (rules, paths, names, subjects):
        few, many = [await longest_step(in_slices(work(count))) for count in (4000, 8000)]
        assert many - few < 3 * 4000, work.__name__


async def test_only_the_newest_waiting_state_of_an_object_is_compiled() -> None:
    started, done = list[str](), list[str]()
    compiler = Compilation()

    def work(name: str) -> Pieces[str]:
        started.append(name)
        yield
        return name

    await asyncio.wait_for(compiler.settled(), 1)
    task = asyncio.create_task(compiler.run())
    for name in ("a", "b", "a", "c"):
        compiler.put(name, lambda name=name: work(name), done.append)  # type: ignore[misc]
    compiler.discard("c")
    await asyncio.wait_for(compiler.settled(), 1)
    assert started == done == ["a", "b"]
    task.cancel()


async def test_a_binding_of_the_cluster_with_many_subjects_is_one_step_of_a_lookup() -> None:
    rbac = authorizer(role("r", "get core pods"))
    made = binding("b", "r", *(f"User u{number}" for number in range(bound_subjects.LARGE)), "Group dev")
    async with compiling(rbac):
        rbac.changed(CLUSTER_BINDINGS, "ADDED", made)
        await rbac.compilation.settled()
    assert may(rbac, "get", "pods", "anywhere")
    assert len(rbac._bound._small) == 0
