from __future__ import annotations

import pytest
from msgspec.structs import replace

from control.auth import impersonation
from control.auth.bootstrap_policy import rule
from control.auth.rbac import CLUSTER_BINDINGS, CLUSTER_ROLES, RBACAuthorizer
from control.auth.user import AuthzAttributes, UserInfo
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


LISTING = AuthzAttributes(user=JANE, verb="list", version="v1", resource="pods", namespace="shop")


async def acting(
    user: UserInfo, headers: list[tuple[bytes, bytes]], rbac: RBACAuthorizer, requested: AuthzAttributes = LISTING
) -> impersonation.Impersonation:
    """Return whom a request of a user to list pods acts as."""
    whom = impersonation.wanted(headers)
    assert whom is not None
    return await impersonation.impersonate(replace(requested, user=user), whom, rbac)


async def impersonate(user: UserInfo, headers: list[tuple[bytes, bytes]], rbac: RBACAuthorizer) -> UserInfo:
    return (await acting(user, headers, rbac)).user


async def test_without_headers_one_is_oneself() -> None:
    assert impersonation.wanted(headers(("Accept", "*/*"))) is None


async def test_each_part_of_the_other_user_is_authorised() -> None:
    requested = headers(
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
    user = await impersonate(JANE, requested, allowing(*rules))
    assert user == UserInfo("bob", "u-1", ("dev", "ops", "system:authenticated"), {"acme.com/project": ("x",)})
    for left_out in rules:
        with pytest.raises(StatusError) as caught:
            await impersonate(JANE, requested, allowing(*(r for r in rules if r != left_out)))
        assert caught.value.code == 403


async def test_a_denied_impersonation_names_the_missing_permission() -> None:
    with pytest.raises(StatusError) as caught:
        await impersonate(JANE, headers(("Impersonate-User", "bob")), allowing())
    assert caught.value.message == (
        'pods is forbidden: User "jane" cannot impersonate-on:user-info:list resource "pods" in API group "" '
        'in the namespace "shop"'
    )


async def test_a_user_may_be_acted_as_for_some_requests_only() -> None:
    requested = headers(("Impersonate-User", "bob"), ("Impersonate-Group", "dev"))
    rules = [
        "impersonate-on:user-info:list core pods",
        "impersonate:user-info authentication.k8s.io users bob",
        "impersonate:user-info authentication.k8s.io groups dev",
    ]
    found = await acting(JANE, requested, allowing(*rules))
    assert found == impersonation.Impersonation(
        UserInfo("bob", "", ("dev", "system:authenticated")), "impersonate:user-info"
    )
    for left_out in rules:
        with pytest.raises(StatusError):
            await acting(JANE, requested, allowing(*(r for r in rules if r != left_out)))
    with pytest.raises(StatusError):
        await acting(JANE, requested, allowing(*rules), replace(LISTING, verb="delete"))


async def test_masters_and_nodes_are_no_users_that_one_may_be_by_user_info() -> None:
    rules = ["impersonate-on:user-info:list core pods", "impersonate:user-info authentication.k8s.io *"]
    masters = headers(("Impersonate-User", "bob"), ("Impersonate-Group", "system:masters"))
    with pytest.raises(StatusError, match="impersonating the system:masters group is not allowed"):
        await acting(JANE, masters, allowing(*rules))
    for name in ("system:node:n1", "system:serviceaccount:shop:web"):
        with pytest.raises(StatusError):
            await acting(JANE, headers(("Impersonate-User", name)), allowing(*rules))
    with pytest.raises(StatusError, match="invalid key in extra"):
        await acting(JANE, headers(("Impersonate-User", "bob"), ("Impersonate-Extra-Plain", "x")), allowing(*rules))


async def test_an_account_of_a_pod_may_act_as_its_own_node_and_no_other() -> None:
    extra: dict[str, tuple[str, ...]] = {impersonation.NODE_NAME: ("n1",)}
    account = UserInfo("system:serviceaccount:shop:agent", "", ("system:authenticated",), extra)
    rbac = allowing(
        "impersonate-on:associated-node:list core pods", "impersonate:associated-node authentication.k8s.io nodes"
    )
    bound = [{"kind": "ServiceAccount", "namespace": "shop", "name": "agent"}]
    ref = {"kind": "ClusterRole", "name": "r"}
    rbac.changed(CLUSTER_BINDINGS, "ADDED", {"metadata": {"name": "a"}, "roleRef": ref, "subjects": bound})
    found = await acting(account, headers(("Impersonate-User", "system:node:n1")), rbac)
    assert found.user == UserInfo("system:node:n1", "", ("system:nodes", "system:authenticated"))
    assert found.constraint == "impersonate:associated-node"
    with pytest.raises(StatusError):
        await acting(account, headers(("Impersonate-User", "system:node:n2")), rbac)
    with pytest.raises(StatusError):
        await acting(account, headers(("Impersonate-User", "system:node:n1"), ("Impersonate-Group", "x")), rbac)


async def test_groups_need_a_user() -> None:
    with pytest.raises(StatusError) as caught:
        await impersonate(JANE, headers(("Impersonate-Group", "system:masters")), allowing("* * *"))
    assert caught.value.code == 400


async def test_an_account_gets_its_groups_and_needs_the_verb_on_accounts() -> None:
    requested = headers(("Impersonate-User", "system:serviceaccount:shop:web"))
    user = await impersonate(JANE, requested, allowing("impersonate core serviceaccounts web"))
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated")
    with pytest.raises(StatusError):
        await impersonate(JANE, requested, allowing("impersonate core users"))


async def test_the_anonymous_user_is_not_authenticated() -> None:
    requested = headers(("Impersonate-User", "system:anonymous"))
    assert (await impersonate(JANE, requested, allowing("* * *"))).groups == ("system:unauthenticated",)
