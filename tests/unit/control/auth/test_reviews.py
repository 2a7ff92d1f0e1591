from __future__ import annotations

from typing import Any

import msgspec
import pytest

from control.auth import rbac, review_validation, reviews, setup
from control.auth.bootstrap_policy import default_policy
from control.auth.rbac import BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, ROLES
from control.auth.review_spec import attributes_of
from control.auth.token_claims import make_claims
from control.auth.token_signer import ISSUER
from control.auth.user import UserInfo
from kube import pki
from kube.errors import StatusError
from tests.support.clock import FakeClock
from tests.support.lookup import Objects

TARGETS = {"ClusterRole": CLUSTER_ROLES, "ClusterRoleBinding": CLUSTER_BINDINGS, "Role": ROLES, "RoleBinding": BINDINGS}
ACCOUNT = {"metadata": {"name": "web", "namespace": "shop", "uid": "sa-1"}}
ADMIN = UserInfo("root", "", ("system:masters", "system:authenticated"))


@pytest.fixture
def auth() -> setup.Auth:
    objects = Objects(("serviceaccounts", ACCOUNT))
    found = setup.build(
        client_authorities=list,
        service_account_key=pki.new_key(),
        lookup=objects.get,
        clock=FakeClock(),
        static_tokens='s3cret,jane,u1,"dev"\n',
    )
    for obj in default_policy():
        found.changed(TARGETS[obj["kind"]], "ADDED", obj)
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    for user, rule in (("all", everything), ("paths", {"nonResourceURLs": ["*"], "verbs": ["*"]})):
        found.changed(CLUSTER_ROLES, "ADDED", {"metadata": {"name": user}, "rules": [rule]})
        binding = {"roleRef": {"kind": "ClusterRole", "name": user}, "subjects": [{"kind": "User", "name": user}]}
        found.changed(CLUSTER_BINDINGS, "ADDED", {"metadata": {"name": user}, **binding})
    return found


def token(auth: setup.Auth, *audiences: str) -> str:
    return auth.signer.sign(make_claims(ISSUER, ACCOUNT, audiences, FakeClock().now(), 3600))


async def test_a_token_review_returns_the_tokens_user(auth: setup.Auth) -> None:
    status = await reviews.token_review(auth, {"token": token(auth, ISSUER)})
    assert status["authenticated"] is True and status["audiences"] == [ISSUER]
    assert status["user"]["username"] == "system:serviceaccount:shop:web"
    assert "system:authenticated" in status["user"]["groups"]
    plain = await reviews.token_review(auth, {"token": "s3cret"})
    assert plain["user"] == {"username": "jane", "uid": "u1", "groups": ["dev", "system:authenticated"]}


async def test_a_token_review_is_for_the_audiences_requested(auth: setup.Auth) -> None:
    status = await reviews.token_review(auth, {"token": token(auth, "vault"), "audiences": ["vault"]})
    assert status["authenticated"] is True and status["audiences"] == ["vault"]
    assert "authenticated" not in await reviews.token_review(auth, {"token": token(auth, "vault")})
    assert "authenticated" not in await reviews.token_review(auth, {"token": "s3cret", "audiences": ["vault"]})


async def test_a_bad_token_is_no_error_but_not_authenticated(auth: setup.Auth) -> None:
    status = await reviews.token_review(auth, {"token": "guess"})
    assert status["user"] == {} and "authenticated" not in status and status["error"]
    with pytest.raises(StatusError) as caught:
        await reviews.token_review(auth, {})
    assert caught.value.code == 400


@pytest.mark.parametrize(
    "spec, allowed",
    [
        ({"user": "root", "groups": ["system:masters"], "resourceAttributes": {"verb": "get", "resource": "x"}}, True),
        ({"user": "jane", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "a"}}, False),
        ({"groups": ["system:authenticated"], "nonResourceAttributes": {"verb": "get", "path": "/api"}}, True),
        ({"user": "jane", "nonResourceAttributes": {"verb": "get", "path": "/metrics"}}, False),
        ({"user": "all", "resourceAttributes": {"verb": "get"}}, True),
        ({"user": "all", "resourceAttributes": {"verb": "get", "subresource": "x"}}, True),
        ({"user": "paths", "resourceAttributes": {"verb": "get"}}, False),
        ({"user": "paths", "nonResourceAttributes": {"verb": "get"}}, True),
        ({"user": "all", "nonResourceAttributes": {"verb": "get"}}, False),
    ],
)
async def test_access_is_reviewed_for_the_user_named(auth: setup.Auth, spec: dict[str, Any], allowed: bool) -> None:
    assert (await reviews.access(auth, attributes_of(reviews.subject(spec), spec)))["allowed"] is allowed


PODS = {"verb": "get", "resource": "pods", "namespace": "shop"}
ONE_OF = "exactly one of nonResourceAttributes or resourceAttributes must be specified"


@pytest.mark.parametrize(
    ("kind", "spec", "wrong"),
    [
        (
            "SubjectAccessReview",
            {"resourceAttributes": PODS},
            {"spec.user": "at least one of user or group must be specified"},
        ),
        ("SubjectAccessReview", {"user": "jane"}, {"spec.resourceAttributes": ONE_OF}),
        ("SelfSubjectAccessReview", {}, {"spec.resourceAttributes": ONE_OF}),
        (
            "SelfSubjectAccessReview",
            {"resourceAttributes": PODS, "nonResourceAttributes": {"path": "/"}},
            {"spec.nonResourceAttributes": "cannot be specified in combination with resourceAttributes"},
        ),
        (
            "LocalSubjectAccessReview",
            {"user": "jane", "nonResourceAttributes": {"path": "/", "verb": "get"}},
            {"spec.nonResourceAttributes": "disallowed on this kind of request"},
        ),
        (
            "LocalSubjectAccessReview",
            {"user": "jane", "resourceAttributes": {**PODS, "namespace": "other"}},
            {"spec.resourceAttributes.namespace": "must match metadata.namespace"},
        ),
        (
            "SelfSubjectAccessReview",
            {
                "resourceAttributes": {
                    **PODS,
                    "fieldSelector": {},
                    "labelSelector": {"requirements": [{"operator": "In"}]},
                }
            },
            {
                "spec.resourceAttributes.fieldSelector.requirements": "requirements or rawSelector is required",
                "spec.resourceAttributes.labelSelector.requirements[0].key": "must be specified",
                "spec.resourceAttributes.labelSelector.requirements[0].values": "must be specified when",
            },
        ),
    ],
)
def test_a_review_without_user_or_attributes_is_invalid(kind: str, spec: dict[str, Any], wrong: dict[str, str]) -> None:
    with pytest.raises(StatusError) as caught:
        review_validation.check(
            kind, {"metadata": {"namespace": "shop"} if kind.startswith("Local") else {}, "spec": spec}
        )
    assert caught.value.code == 422
    causes = {cause["field"]: cause["message"] for cause in caught.value.details["causes"]}
    assert causes.keys() == wrong.keys()
    assert all(wrong[field] in causes[field] for field in wrong)


def test_a_review_has_no_metadata_but_its_namespace() -> None:
    review_validation.check(
        "LocalSubjectAccessReview",
        {"metadata": {"namespace": "shop"}, "spec": {"user": "j", "resourceAttributes": PODS}},
    )
    for meta in ({"name": "x"}, {"labels": {"a": "b"}}, {"namespace": "shop"}):
        with pytest.raises(StatusError, match="must be empty"):
            review_validation.check("SelfSubjectAccessReview", {"metadata": meta, "spec": {"resourceAttributes": PODS}})


async def test_a_review_of_a_nodes_list_honours_its_field_selector(auth: setup.Auth) -> None:
    node = UserInfo("system:node:n1", "", ("system:nodes",))
    requested: dict[str, Any] = {"verb": "list", "resource": "pods"}
    assert not (await reviews.access(auth, attributes_of(node, {"resourceAttributes": requested})))["allowed"]
    requirement = {"key": "spec.nodeName", "operator": "In", "values": ["n1"]}
    narrowed = requested | {"fieldSelector": {"requirements": [requirement]}}
    assert (await reviews.access(auth, attributes_of(node, {"resourceAttributes": narrowed})))["allowed"]


async def test_who_one_is_and_what_one_may(auth: setup.Auth) -> None:
    user = UserInfo("jane", "u1", ("system:authenticated",), {"k": ("v",)})
    assert reviews.self_subject_review(user) == {
        "userInfo": {"username": "jane", "uid": "u1", "groups": ["system:authenticated"], "extra": {"k": ["v"]}}
    }
    rules, weight = await reviews.self_subject_rules_review(auth, user, "default")
    assert 0 < len(msgspec.json.encode(rules)) < 2 * weight
    assert rules["incomplete"] is False
    assert {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]} in rules[
        "resourceRules"
    ]
    everything, _ = await reviews.self_subject_rules_review(auth, ADMIN, "default")
    everything = everything["resourceRules"]
    assert {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]} in everything


async def test_a_review_lists_the_first_of_too_many_rules(auth: setup.Auth, monkeypatch: pytest.MonkeyPatch) -> None:
    user = UserInfo("many")
    named = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"] * 1000}
    monkeypatch.setattr(rbac, "LARGE_ROLE", 1 << 20)
    role = {"metadata": {"name": "many", "namespace": "shop"}, "rules": [named] * 100}
    subjects = [{"kind": "User", "name": "many"}]
    bound = {"metadata": role["metadata"], "roleRef": {"kind": "Role", "name": "many"}, "subjects": subjects}
    auth.rbac.changed(ROLES, "ADDED", role)
    auth.rbac.changed(BINDINGS, "ADDED", bound)
    status, weight = await reviews.self_subject_rules_review(auth, user, "shop")
    assert status["incomplete"] and status["evaluationError"] == "too many rules to list them all"
    assert 50 < len(status["resourceRules"]) < 70 and weight <= reviews.MOST_RULES_WEIGHT + 100_000
    role["rules"] = [named, named | {"resourceNames": ["a" * reviews.MOST_RULES_WEIGHT]}]
    auth.rbac.changed(ROLES, "MODIFIED", role)
    status, _ = await reviews.self_subject_rules_review(auth, user, "shop")
    assert status["incomplete"] and status["resourceRules"] == [named]
