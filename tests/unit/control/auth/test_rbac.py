from __future__ import annotations

import random
from typing import Any

import pytest

from control.auth import bound_subjects, denial, granted
from control.auth import rbac as rbac_module
from control.auth.bootstrap_policy import rule
from control.auth.bound_subjects import subject_key
from control.auth.granted import NOTHING
from control.auth.rbac import (
    BINDINGS,
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    ROLES,
    RBACAuthorizer,
)
from control.auth.rule_set import BLOCK, RuleSet
from control.auth.user import AuthzAttributes, Decision, UserInfo
from kube import bounded_cache

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
        return rbac.authorize(AuthzAttributes(user=user, verb=verb, path=what))[0] is Decision.ALLOW
    resource, _, subresource = what.partition("/")
    resource, _, group = resource.partition(".")
    requested = AuthzAttributes(
        user=user,
        verb=verb,
        group=group,
        version="v1",
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
    )
    return rbac.authorize(requested)[0] is Decision.ALLOW


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

    monkeypatch.setattr(bound_subjects, "subject_key", counted)
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
    assert not any(rbac._bound.has(f"n{n}") for n in range(7)) and not may(
        rbac, "get", "pods", "n3", user=UserInfo("u199")
    )


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
    bounded_cache.forget_all()
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
                requested = AuthzAttributes(
                    user=user, verb=verb, version="v1", resource=what, namespace=namespace, name="q"
                )
                found, wanted = followed.authorize(requested), fresh.authorize(requested)
                assert found[0] is wanted[0] and sorted(found[1]) == sorted(wanted[1])
            rules = [str(each) for each in followed.rules_for(user, "a")]
            assert sorted(rules) == sorted(str(each) for each in fresh.rules_for(user, "a"))
            assert (
                bool(followed.why(requested))
                is bool(fresh.why(requested))
                is (fresh.authorize(requested)[0] is Decision.ALLOW)
            )


def test_a_missing_role_is_the_reason_of_a_refusal() -> None:
    rbac = authorizer(binding("b", "gone", "User jane"))
    decision, reason = rbac.authorize(AuthzAttributes(user=JANE, verb="get", version="v1", resource="pods"))
    assert decision is Decision.NO_OPINION
    assert reason == 'RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found'


def test_a_change_of_a_roles_labels_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rbac, compiled = RBACAuthorizer(), list[object]()
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    metadata = {"name": "r", "namespace": "shop"}
    found = {"metadata": metadata, "rules": rules}
    monkeypatch.setattr(rbac_module, "RuleSet", lambda rules: compiled.append(rules))
    rbac.changed(ROLES, "ADDED", found)
    rbac.changed(ROLES, "MODIFIED", {"metadata": {**metadata, "labels": {"a": "b"}}, "rules": [*rules]})
    assert len(compiled) == 1
    rbac.changed(ROLES, "MODIFIED", {**found, "rules": [*rules, *rules]})
    assert len(compiled) == 2


def test_a_refusal_names_ten_missing_roles_each_once() -> None:
    bindings = [binding(f"b{n}", f"gone{n % 12}", "User jane") for n in range(1500)]
    _, reason = authorizer(*bindings).authorize(AuthzAttributes(user=JANE, verb="get", version="v1", resource="pods"))
    assert reason.count("not found") == 10 and reason.endswith(", and 2 more]")
    assert len(set(reason.split(", "))) == 11
    _, reason = authorizer(binding("b", "g" * 100_000, "User jane")).authorize(
        AuthzAttributes(user=JANE, verb="get", resource="x")
    )
    assert len(reason) < 2000


def test_a_long_reason_of_an_authorizer_is_cut() -> None:
    asked = AuthzAttributes(user=JANE, verb="list", group="apps", version="v1", resource="deployments")
    assert len(denial.denied(asked, "why" * 100_000).message) < 11_000


def test_refusals_are_worded_as_upstreams() -> None:
    requested = AuthzAttributes(
        user=JANE, verb="get", version="v1", resource="pods", subresource="log", namespace="shop", name="x"
    )
    assert denial.denied(requested).message == (
        'pods "x" is forbidden: User "jane" cannot get resource "pods/log" in API group "" in the namespace "shop"'
    )
    requested = AuthzAttributes(user=JANE, verb="list", group="apps", version="v1", resource="deployments")
    assert denial.denied(requested, "why").message == (
        'deployments.apps is forbidden: User "jane" cannot list resource "deployments" in API group "apps" '
        "at the cluster scope: why"
    )
    assert denial.denied(AuthzAttributes(user=JANE, verb="get", path="/metrics")).message == (
        'forbidden: User "jane" cannot get path "/metrics"'
    )


def test_answers_do_not_pile_up_with_object_names() -> None:
    rbac = authorizer(role("r", "get core pods"), role("s", "get core secrets pod-7"))
    for name in "rs":
        rbac.changed(CLUSTER_BINDINGS, "ADDED", binding(name, name, "User jane"))
    for number in range(100):
        assert may(rbac, "get", "pods", "shop", f"pod-{number}")
        assert may(rbac, "get", "secrets", "shop", f"pod-{number}") is (number == 7)
    assert len(rbac._granted._answers) == 2
