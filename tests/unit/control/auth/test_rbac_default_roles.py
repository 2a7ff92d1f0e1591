"""The default roles and bindings of RBAC, their aggregation, and their reconciliation at the start."""

from __future__ import annotations

from typing import Any

import pytest

from control.auth.bootstrap_policy import default_policy, reconcile, rule
from control.auth.rbac import (
    BINDINGS,
    CLUSTER_ROLES,
    RBACAuthorizer,
    aggregate,
)
from control.auth.rule_coverage import describe, uncovered
from control.auth.rule_set import RuleSet
from control.auth.user import AuthzAttributes, UserInfo

from .test_rbac import JANE, authorizer, binding, may


# -- the default policy -----------------------------------------------------------------------------------------------
def default_authorizer() -> RBACAuthorizer:
    rbac = authorizer(*default_policy())
    for name in ("view", "edit", "admin"):
        found = next(r for r in rbac.cluster_roles() if r["metadata"]["name"] == name)
        rbac.changed(CLUSTER_ROLES, "MODIFIED", found | {"rules": aggregate(found, list(rbac.cluster_roles()))})
    return rbac


@pytest.mark.parametrize(
    "user, verb, what, namespace, allowed",
    [
        (UserInfo("x", "", ("system:masters",)), "delete", "nodes", "", True),
        (UserInfo("x", "", ("system:unauthenticated",)), "get", "/version", "", True),
        (UserInfo("x", "", ("system:unauthenticated",)), "get", "/api", "", False),
        (JANE, "get", "/apis/apps/v1", "", True),
        (JANE, "get", "/openapi/v3", "", True),
        (JANE, "create", "selfsubjectaccessreviews.authorization.k8s.io", "", True),
        (JANE, "create", "selfsubjectreviews.authentication.k8s.io", "", True),
        (JANE, "list", "pods", "default", False),
        (UserInfo("system:kube-scheduler"), "create", "pods/binding", "default", True),
        (UserInfo("system:kube-scheduler"), "update", "persistentvolumes", "", True),
        (UserInfo("system:kube-scheduler"), "get", "secrets", "default", False),
        (UserInfo("system:kube-controller-manager"), "create", "serviceaccounts/token", "kube-system", True),
        (UserInfo("system:kube-proxy"), "watch", "endpointslices.discovery.k8s.io", "", True),
        (UserInfo("system:kube-proxy"), "watch", "secrets", "", False),
        (UserInfo("n", "", ("system:nodes",)), "get", "secrets", "default", False),
        (UserInfo("system:serviceaccount:kube-system:replicaset-controller"), "create", "pods", "a", True),
        (UserInfo("system:serviceaccount:kube-system:replicaset-controller"), "get", "secrets", "a", False),
        (UserInfo("system:serviceaccount:a:b", "", ("system:serviceaccounts",)), "get", "/openid/v1/jwks", "", True),
        (UserInfo("system:serviceaccount:kube-system:bootstrap-signer"), "list", "secrets", "kube-system", True),
        (UserInfo("system:serviceaccount:kube-system:bootstrap-signer"), "list", "secrets", "default", False),
    ],
)
def test_the_default_roles_allow_what_upstreams_do(
    user: UserInfo, verb: str, what: str, namespace: str, allowed: bool
) -> None:
    assert may(default_authorizer(), verb, what, namespace, user=user) is allowed


@pytest.mark.parametrize(
    "who, verb, what, allowed",
    [
        ("view", "list", "pods", True),
        ("view", "get", "secrets", False),
        ("view", "get", "pods/log", True),
        ("view", "create", "pods", False),
        ("edit", "get", "secrets", True),
        ("edit", "create", "pods/exec", True),
        ("edit", "update", "endpoints", False),
        ("edit", "create", "roles.rbac.authorization.k8s.io", False),
        ("edit", "update", "resourcequotas", False),
        ("admin", "create", "roles.rbac.authorization.k8s.io", True),
        ("admin", "delete", "namespaces", False),
    ],
)
def test_view_edit_and_admin_are_filled_by_aggregation(who: str, verb: str, what: str, allowed: bool) -> None:
    rbac = default_authorizer()
    rbac.changed(BINDINGS, "ADDED", binding("b", who, "User jane", namespace="shop"))
    assert may(rbac, verb, what, "shop") is allowed
    assert not may(rbac, verb, what, "other")


def test_every_default_binding_leads_to_a_role() -> None:
    rbac = default_authorizer()
    for obj in default_policy():
        if "roleRef" in obj:
            assert rbac.role_rules(obj["roleRef"], obj["metadata"].get("namespace", "")) is not None, obj


def test_a_binding_is_why_a_request_is_allowed() -> None:
    user = UserInfo("x", "", ("system:masters",))
    requested = AuthzAttributes(user=user, verb="get", version="v1", resource="pods", namespace="default", name="x")
    assert default_authorizer().why(requested) == (
        'RBAC: allowed by ClusterRoleBinding "cluster-admin" of ClusterRole "cluster-admin" to Group "system:masters"'
    )


def named(name: str, kind: str) -> dict[str, Any]:
    return next(o for o in default_policy() if o["metadata"]["name"] == name and o["kind"] == kind)


def test_reconciliation_adds_what_is_missing_and_takes_nothing_away() -> None:
    wanted = named("system:kube-dns", "ClusterRole")
    assert reconcile(wanted, None) == wanted
    assert reconcile(wanted, wanted) is None
    wider = wanted | {"rules": [rule("* core *")]}
    assert reconcile(wanted, wider) is None
    less = wanted | {"rules": [rule("list core services"), rule("get core pods")]}
    found = reconcile(wanted, less)
    assert found is not None and found["rules"][:2] == less["rules"]
    assert uncovered(RuleSet(found["rules"]), wanted["rules"]) == []
    left_alone = less | {
        "metadata": less["metadata"] | {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}
    }
    assert reconcile(wanted, left_alone) is None


def test_reconciliation_adds_subjects() -> None:
    wanted = named("system:discovery", "ClusterRoleBinding")
    other = {"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}
    found = reconcile(wanted, wanted | {"subjects": [other]})
    assert found is not None and found["subjects"] == [other, *wanted["subjects"]]


# -- escalation -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "held, wanted, missing",
    [
        (["* * *", "* *"], ["get core pods", "get /x"], []),
        (["* * *"], ["get /x"], ['{NonResourceURLs:["/x"], Verbs:["get"]}']),
        (["get core pods"], ["get,list core pods"], ['{APIGroups:[""], Resources:["pods"], Verbs:["list"]}']),
        (["get core pods", "list core pods"], ["get,list core pods"], []),
        (["get core *"], ["get core pods/log"], []),
        (["get core pods"], ["get core *"], ['{APIGroups:[""], Resources:["*"], Verbs:["get"]}']),
        (["get core secrets a"], ["get core secrets a"], []),
        (["get core secrets a"], ["get core secrets"], ['{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}']),
        (
            ["get core secrets a"],
            ["get core secrets a,b"],
            ['{APIGroups:[""], Resources:["secrets"], ResourceNames:["b"], Verbs:["get"]}'],
        ),
        (["get core secrets"], ["get core secrets a"], []),
        (["get * */scale"], ["get apps deployments/scale"], []),
        (["get /healthz/*"], ["get /healthz/etcd"], []),
        (["get core pods"], ["* core pods"], ['{APIGroups:[""], Resources:["pods"], Verbs:["*"]}']),
    ],
)
def test_what_is_not_held_is_found(held: list[str], wanted: list[str], missing: list[str]) -> None:
    assert describe(uncovered(RuleSet([rule(r) for r in held]), [rule(r) for r in wanted])) == missing
