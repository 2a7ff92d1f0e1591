from __future__ import annotations

import random
from typing import Any

import pytest

from control.auth import denial, granted
from control.auth import rbac as rbac_module
from control.auth.bootstrap_policy import default_policy, reconcile, rule
from control.auth.escalation import describe, uncovered
from control.auth.granted import NOTHING
from control.auth.rbac import (
    BINDINGS,
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    ROLES,
    RBACAuthorizer,
    aggregate,
    subject_key,
)
from control.auth.rule_set import BLOCK, RuleSet
from control.auth.user import AuthzAttributes, Decision, UserInfo
from kube import remembering

TARGETS = {
    "ClusterRole": CLUSTER_ROLES,
    "ClusterRoleBinding": CLUSTER_BINDINGS,
    "Role": ROLES,
    "RoleBinding": BINDINGS,
}


def role(name: str, *rules: str, namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"kind": "Role" if namespace else "ClusterRole", "metadata": metadata, "rules": [rule(r) for r in rules]}


def binding(name: str, ref: str, *subjects: str, namespace: str = "", kind: str = "ClusterRole") -> dict[str, Any]:
    found = []
    for text in subjects:
        what, _, who = text.partition(" ")
        if what == "ServiceAccount" and "/" in who:
            found.append({"kind": what, "namespace": who.split("/")[0], "name": who.split("/")[1]})
        else:
            found.append({"kind": what, "name": who})
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"kind": kind, "name": ref},
        "subjects": found,
    }


def authorizer(*objects: dict[str, Any]) -> RBACAuthorizer:
    found = RBACAuthorizer()
    for obj in objects:
        found.changed(TARGETS[obj["kind"]], "ADDED", obj)
    return found


JANE = UserInfo("jane", "", ("dev", "system:authenticated"))


def may(rbac: RBACAuthorizer, verb: str, what: str, namespace: str = "", name: str = "", user: UserInfo = JANE) -> bool:
    """Ask about "pods", "deployments.apps", "pods/log", or a path."""
    if what.startswith("/"):
        return rbac.authorize(AuthzAttributes(user, verb, path=what))[0] is Decision.ALLOW
    resource, _, subresource = what.partition("/")
    resource, _, group = resource.partition(".")
    asked = AuthzAttributes(user, verb, group, "v1", resource, subresource, namespace, name)
    return rbac.authorize(asked)[0] is Decision.ALLOW


@pytest.mark.parametrize(
    "granted, verb, what, name, allowed",
    [
        ("get core pods", "get", "pods", "x", True),
        ("get core pods", "list", "pods", "", False),
        ("get core pods", "get", "pods/log", "x", False),
        ("get core pods", "get", "pods.metrics.k8s.io", "x", False),
        ("* core pods", "deletecollection", "pods", "", True),
        ("get * pods", "get", "pods.metrics.k8s.io", "x", True),
        ("get core *", "get", "pods/log", "x", True),
        ("get core pods/log", "get", "pods/log", "x", True),
        ("get core pods/log", "get", "pods", "x", False),
        ("update * */scale", "update", "deployments.apps/scale", "x", True),
        ("update * */scale", "update", "deployments.apps", "x", False),
        ("update * */scale", "update", "deployments.apps/status", "x", False),
        ("get core pods/*", "get", "pods/log", "x", False),
        ("get core secrets a,b", "get", "secrets", "b", True),
        ("get core secrets a,b", "get", "secrets", "c", False),
        ("list core secrets a", "list", "secrets", "", False),
        ("create core secrets a", "create", "secrets", "", False),
        ("get /healthz", "get", "/healthz", "", True),
        ("get /healthz", "get", "/healthz/etcd", "", False),
        ("get /healthz/*", "get", "/healthz/etcd", "", True),
        ("get /healthz/*", "get", "/healthz", "", False),
        ("get *", "get", "/anything", "", True),
        ("get *", "post", "/anything", "", False),
        ("* * *", "get", "/anything", "", False),
        ("* *", "get", "pods", "x", False),
    ],
)
def test_rules_match_as_upstreams(granted: str, verb: str, what: str, name: str, allowed: bool) -> None:
    rbac = authorizer(role("r", granted), binding("b", "r", "User jane"))
    assert may(rbac, verb, what, "ns", name) is allowed


@pytest.mark.parametrize(
    "subject, user, allowed",
    [
        ("User jane", JANE, True),
        ("User Jane", JANE, False),
        ("Group dev", JANE, True),
        ("Group jane", JANE, False),
        ("User dev", JANE, False),
        ("ServiceAccount shop/web", UserInfo("system:serviceaccount:shop:web"), True),
        ("ServiceAccount shop/web", UserInfo("system:serviceaccount:other:web"), False),
        ("Group system:serviceaccounts:shop", UserInfo("system:serviceaccount:shop:web"), False),
    ],
)
def test_subjects_are_users_groups_and_accounts(subject: str, user: UserInfo, allowed: bool) -> None:
    rbac = authorizer(role("r", "get core pods"), binding("b", "r", subject))
    assert may(rbac, "get", "pods", "x", user=user) is allowed


def test_a_role_binding_gives_a_cluster_roles_rules_in_its_namespace_alone() -> None:
    rbac = authorizer(role("r", "get core pods,nodes"), binding("b", "r", "User jane", namespace="shop"))
    assert may(rbac, "get", "pods", "shop") and not may(rbac, "get", "pods", "other")
    assert not may(rbac, "get", "pods") and not may(rbac, "get", "nodes")


def test_a_role_is_looked_for_in_its_bindings_namespace() -> None:
    rbac = authorizer(
        role("r", "get core pods", namespace="a"), binding("b", "r", "User jane", namespace="b", kind="Role")
    )
    assert not may(rbac, "get", "pods", "a") and not may(rbac, "get", "pods", "b")


def test_changes_count_at_once() -> None:
    rbac = authorizer(role("r", "get core pods"), binding("b", "r", "User jane"))
    assert may(rbac, "get", "pods", "ns")
    rbac.changed(CLUSTER_ROLES, "MODIFIED", role("r", "list core pods"))
    assert not may(rbac, "get", "pods", "ns") and may(rbac, "list", "pods", "ns")
    rbac.changed(CLUSTER_BINDINGS, "DELETED", binding("b", "r", "User jane"))
    assert not may(rbac, "list", "pods", "ns")
    rbac.replaced(CLUSTER_BINDINGS, [binding("b", "r", "Group dev")])
    assert may(rbac, "list", "pods", "ns")


def test_a_change_reads_its_own_subjects_alone_and_a_question_none(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counted(subject: dict[str, Any], namespace: str) -> str:
        read.append(subject["name"])
        return subject_key(subject, namespace)

    monkeypatch.setattr(rbac_module, "subject_key", counted)
    many = [f"User u{number}" for number in range(500)]
    rbac = authorizer(role("r", "get core pods"), *(binding(f"b{n}", "r", *many, namespace="shop") for n in range(3)))
    read.clear()
    labelled = binding("b1", "r", *many, namespace="shop")
    labelled["metadata"]["labels"] = {"a": "b"}
    rbac.changed(BINDINGS, "MODIFIED", labelled)
    assert may(rbac, "get", "pods", "shop", user=UserInfo("u7")) and not may(rbac, "get", "pods", "shop")
    assert read == []
    rbac.changed(BINDINGS, "ADDED", binding("mine", "r", "Group dev", "User else", namespace="shop"))
    assert may(rbac, "get", "pods", "shop") and sorted(read) == ["dev", "else"]


def test_a_change_forgets_what_was_gathered_in_its_namespace_and_no_role_is_compiled_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[int] = []

    class Counted(RuleSet):
        def __init__(self, rules: Any, parts: Any = ()) -> None:
            compiled.extend([len(rules)] if rules else [])
            super().__init__(rules, parts)

    monkeypatch.setattr(rbac_module, "RuleSet", Counted)
    rbac = authorizer(
        role("r", "get core pods"),
        role("r", "get core secrets", namespace="a"),
        *(binding("b", "r", "User jane", namespace=where) for where in "ab"),
        *(binding(f"b{n}", "r", "User jane", namespace="a", kind="Role") for n in range(20)),
    )
    for _ in range(3):
        assert may(rbac, "get", "pods", "a") and may(rbac, "get", "pods", "b") and may(rbac, "get", "secrets", "a")
    assert compiled == [1, 1]
    kept = rbac._granted_to(JANE, "b")
    rbac.changed(BINDINGS, "ADDED", binding("c", "r", "User jane", namespace="a"))
    assert may(rbac, "get", "pods", "a") and rbac._granted_to(JANE, "b") is kept and compiled == [1, 1]
    rbac.changed(ROLES, "MODIFIED", role("r", "get core events", namespace="a"))
    assert not may(rbac, "get", "secrets", "a") and may(rbac, "get", "events", "a")
    assert rbac._granted_to(JANE, "b") is kept and compiled == [1, 1, 1]


def test_a_role_is_compiled_when_it_comes_and_not_by_a_request() -> None:
    rbac = authorizer(role("r", "get core pods", namespace="shop"))
    assert list(rbac._compiled) == [(ROLES, "shop", "r")]
    rbac.changed(ROLES, "DELETED", role("r", namespace="shop"))
    assert rbac._compiled == {}


def test_what_is_gathered_is_bounded_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(granted, "MOST_GRANTED", 50)
    monkeypatch.setattr(granted, "MOST_ANSWERS", 30)
    rbac = authorizer(role("r", "get core pods"))
    cache = rbac._granted
    for number in range(200):
        where = f"n{number % 7}"
        rbac.changed(BINDINGS, "ADDED", binding("b", "r", f"User u{number}", namespace=where))
        assert may(rbac, "get", "pods", where, user=UserInfo(f"u{number}"))
        assert cache._weight == sum(map(len, cache._granted.values())) <= 50
        assert len(cache._answers) <= 30
    for number in range(7):
        rbac.changed(BINDINGS, "DELETED", binding("b", "r", namespace=f"n{number}"))
    assert rbac._bound == {} and not may(rbac, "get", "pods", "n3", user=UserInfo("u199"))


def test_a_user_of_many_roles_counts_as_several() -> None:
    roles = [role(f"r{number}", "get core pods") for number in range(100)]
    rbac = authorizer(*roles, *(binding(f"b{n}", f"r{n}", "User jane") for n in range(100)))
    assert may(rbac, "get", "pods") and rbac._granted._weight == 7
    rbac.changed(CLUSTER_BINDINGS, "DELETED", binding("b0", "r0"))
    assert rbac._granted._weight == 0


def test_nothing_is_kept_of_namespaces_without_bindings_and_forgetting_drops_the_rest() -> None:
    rbac = authorizer(role("r", "get core pods"), binding("b", "r", "User other", namespace="shop"))
    for number in range(100):
        assert not may(rbac, "get", f"x{number}", f"n{number}") and not may(rbac, "get", f"/x{number}")
    assert not rbac._granted._granted and not rbac._granted._answers
    assert not may(rbac, "get", "pods", "shop") and rbac._granted_to(JANE, "shop") is NOTHING
    assert may(rbac, "get", "pods", "shop", user=UserInfo("other")) and len(rbac._granted._answers) == 1
    remembering.forget_all()
    assert not rbac._granted._granted and not rbac._granted._answers
    assert may(rbac, "get", "pods", "shop", user=UserInfo("other"))


@pytest.mark.parametrize("seed", range(10))
def test_blocks_of_rules_allow_what_one_of_the_rules_does(seed: int) -> None:
    draw = random.Random(seed)

    def some(*texts: str) -> list[str]:
        return draw.sample(texts, draw.randint(0, 2))

    rules = [
        {
            "verbs": some("get", "list", "watch", "*", *("x", "y") * 5),
            "apiGroups": some("", "apps", "*", "batch", "policy"),
            "resources": some("pods", "pods/log", "*/log", "*", "jobs", "services"),
            "resourceNames": some("a", "b", "c"),
        }
        for _ in range(draw.choice([1, 5, BLOCK + 5]))
    ]
    whole = RuleSet(rules)
    alone = [RuleSet([each]) for each in rules]
    both = RuleSet(rules[:3], [RuleSet(rules[3:]), RuleSet()])
    for verb in ("get", "list", "create", "*"):
        for group, resource in (("", "pods"), ("apps", "jobs"), ("none", "nodes")):
            for subresource in ("", "log", "status"):
                kind = (verb, group, resource, subresource)
                by_name = [whole.allows(*kind, name) for name in ("a", "b", "", "z")]
                assert by_name == [any(one.allows(*kind, n) for one in alone) for n in ("a", "b", "", "z")]
                assert by_name == [both.allows(*kind, name) for name in ("a", "b", "", "z")]
                any_name = whole.allows_any(*kind)
                assert any_name is None or by_name == [any_name] * 4


@pytest.mark.parametrize("seed", range(20))
def test_changes_one_by_one_allow_what_the_objects_that_are_left_do(seed: int) -> None:
    draw, followed, known = random.Random(seed), RBACAuthorizer(), dict[tuple[str, str, str], dict[str, Any]]()
    subjects = ["User jane", "Group dev", "ServiceAccount web", "ServiceAccount a/web", "User other"]
    users = [JANE, UserInfo("system:serviceaccount:a:web"), UserInfo("other", "", ("dev",))]
    for _ in range(60):
        where, name = draw.choice(["", "a", "b"]), draw.choice(["x", "y", "z"])
        if draw.random() < 0.4:
            made = role(
                name, *draw.sample(["get core pods", "list core pods", "get core secrets q"], 2), namespace=where
            )
        else:
            kind = draw.choice(["ClusterRole", "Role"]) if where else "ClusterRole"
            chosen = draw.sample(subjects, draw.randint(0, 4))
            made = binding(name, draw.choice(["x", "y", "z"]), *chosen, namespace=where, kind=kind)
        key = (TARGETS[made["kind"]], where, name)
        event = "DELETED" if key in known and draw.random() < 0.3 else "MODIFIED"
        if draw.random() < 0.1:
            followed.replaced(key[0], [obj for (target, *_), obj in known.items() if target == key[0]])
            continue
        followed.changed(key[0], event, made)
        if event == "DELETED":
            del known[key]
        else:
            known[key] = made
        fresh = authorizer(*known.values())
        for user in users:
            for verb, what, namespace in (("get", "pods", "a"), ("list", "pods", ""), ("get", "secrets", "b")):
                asked = AuthzAttributes(user, verb, "", "v1", what, "", namespace, "q")
                found, wanted = followed.authorize(asked), fresh.authorize(asked)
                assert found[0] is wanted[0] and sorted(found[1]) == sorted(wanted[1])
            rules = [str(each) for each in followed.rules_for(user, "a")]
            assert sorted(rules) == sorted(str(each) for each in fresh.rules_for(user, "a"))
            assert bool(followed.why(asked)) is bool(fresh.why(asked)) is (fresh.authorize(asked)[0] is Decision.ALLOW)


def test_a_missing_role_is_the_reason_of_a_refusal() -> None:
    rbac = authorizer(binding("b", "gone", "User jane"))
    decision, reason = rbac.authorize(AuthzAttributes(JANE, "get", "", "v1", "pods"))
    assert decision is Decision.NO_OPINION
    assert reason == 'RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found'


def test_refusals_are_worded_as_upstreams() -> None:
    asked = AuthzAttributes(JANE, "get", "", "v1", "pods", "log", "shop", "x")
    assert denial.denied(asked).message == (
        'pods "x" is forbidden: User "jane" cannot get resource "pods/log" in API group "" in the namespace "shop"'
    )
    asked = AuthzAttributes(JANE, "list", "apps", "v1", "deployments")
    assert denial.denied(asked, "why").message == (
        'deployments.apps is forbidden: User "jane" cannot list resource "deployments" in API group "apps" '
        "at the cluster scope: why"
    )
    assert denial.denied(AuthzAttributes(JANE, "get", path="/metrics")).message == (
        'forbidden: User "jane" cannot get path "/metrics"'
    )


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
    asked = AuthzAttributes(user, "get", "", "v1", "pods", "", "default", "x")
    assert default_authorizer().why(asked) == (
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


def test_answers_do_not_pile_up_with_object_names() -> None:
    rbac = authorizer(role("r", "get core pods"), role("s", "get core secrets pod-7"))
    for name in "rs":
        rbac.changed(CLUSTER_BINDINGS, "ADDED", binding(name, name, "User jane"))
    for number in range(100):
        assert may(rbac, "get", "pods", "shop", f"pod-{number}")
        assert may(rbac, "get", "secrets", "shop", f"pod-{number}") is (number == 7)
    assert len(rbac._granted._answers) == 2
