from __future__ import annotations

import pytest

from control.auth.bootstrap_policy import rule
from control.auth.impersonation import impersonate
from control.auth.rbac import CLUSTER_BINDINGS, CLUSTER_ROLES, RBACAuthorizer
from control.auth.user import UserInfo
from kube.errors import StatusError

JANE = UserInfo("jane", "", ("system:authenticated",))


def allowing(*rules: str) -> RBACAuthorizer:
    rbac = RBACAuthorizer()
    rbac.changed(CLUSTER_ROLES, "ADDED", {"metadata": {"name": "r"}, "rules": [rule(r) for r in rules]})
    subjects = [{"kind": "User", "name": "jane"}]
    bound = {"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": subjects}
    rbac.changed(CLUSTER_BINDINGS, "ADDED", bound)
    return rbac


def headers(*pairs: tuple[str, str]) -> list[tuple[bytes, bytes]]:
    return [(k.lower().encode(), v.encode()) for k, v in pairs]


async def test_without_headers_one_is_oneself() -> None:
    assert await impersonate(JANE, headers(("Accept", "*/*")), allowing()) is JANE


async def test_each_part_of_the_other_user_is_authorised() -> None:
    asked = headers(
        ("Impersonate-User", "bob"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Uid", "u-1"),
        ("Impersonate-Extra-Acme.com%2Fproject", "x"),
    )
    rules = [
        "impersonate core users bob",
        "impersonate core groups dev,ops",
        "impersonate authentication.k8s.io uids u-1",
        "impersonate authentication.k8s.io userextras/acme.com/project x",
    ]
    user = await impersonate(JANE, asked, allowing(*rules))
    assert user == UserInfo("bob", "u-1", ("dev", "ops", "system:authenticated"), {"acme.com/project": ("x",)})
    for left_out in rules:
        with pytest.raises(StatusError) as caught:
            await impersonate(JANE, asked, allowing(*(r for r in rules if r != left_out)))
        assert caught.value.code == 403


async def test_a_refusal_says_whom_one_may_not_be() -> None:
    with pytest.raises(StatusError) as caught:
        await impersonate(JANE, headers(("Impersonate-User", "bob")), allowing())
    assert caught.value.message == (
        'users "bob" is forbidden: User "jane" cannot impersonate resource "users" in API group "" at the cluster scope'
    )


async def test_groups_need_a_user() -> None:
    with pytest.raises(StatusError) as caught:
        await impersonate(JANE, headers(("Impersonate-Group", "system:masters")), allowing("* * *"))
    assert caught.value.code == 500


async def test_an_account_gets_its_groups_and_needs_the_verb_on_accounts() -> None:
    asked = headers(("Impersonate-User", "system:serviceaccount:shop:web"))
    user = await impersonate(JANE, asked, allowing("impersonate core serviceaccounts web"))
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated")
    with pytest.raises(StatusError):
        await impersonate(JANE, asked, allowing("impersonate core users"))


async def test_the_anonymous_user_is_not_authenticated() -> None:
    asked = headers(("Impersonate-User", "system:anonymous"))
    assert (await impersonate(JANE, asked, allowing("* * *"))).groups == ("system:unauthenticated",)
