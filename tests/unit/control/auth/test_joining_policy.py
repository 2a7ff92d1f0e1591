"""Permissions of every participant in joining, and no more than those."""

from __future__ import annotations

from typing import Any

import pytest

from control.auth.bootstrap_policy import default_policy, reconcile
from control.auth.joining_policy import joining_policy
from control.auth.rbac import RBACAuthorizer
from control.auth.user import ANONYMOUS, UNAUTHENTICATED, AuthzAttributes, Decision, UserInfo
from kube.bootstrap_tokens import CONTROL_PLANE_GROUP, NODE_GROUP
from kube.resources import by_kind

CERTIFICATES = "certificates.k8s.io"
JOINING = UserInfo("system:bootstrap:abcdef", "", ("system:bootstrappers", NODE_GROUP))
MEMBER = UserInfo("system:bootstrap:abcdef", "", ("system:bootstrappers", NODE_GROUP, CONTROL_PLANE_GROUP))
OTHER = UserInfo("system:bootstrap:ghijkl", "", ("system:bootstrappers",))
NODE = UserInfo("system:node:n1", "", ("system:nodes",))
PROXY = UserInfo("system:kube-proxy")
NOBODY = UserInfo(ANONYMOUS, "", (UNAUTHENTICATED,))


@pytest.fixture(scope="module")
def rbac() -> RBACAuthorizer:
    authorizer = RBACAuthorizer()
    for obj in (*default_policy(), *joining_policy()):
        resource = by_kind(obj["apiVersion"], obj["kind"])
        assert resource is not None
        authorizer.changed(resource.target, "ADDED", obj)
    return authorizer


def attributes(
    user: UserInfo, verb: str, what: str, namespace: str = "", name: str = "", group: str = ""
) -> AuthzAttributes:
    resource, _, subresource = what.partition("/")
    return AuthzAttributes(
        user=user,
        verb=verb,
        group=group,
        version="v1",
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
    )


@pytest.mark.parametrize(
    ("user", "question"),
    [
        (NOBODY, ("get", "configmaps", "kube-public", "cluster-info")),
        (JOINING, ("get", "configmaps", "kube-system", "kubelet-config")),
        (JOINING, ("get", "configmaps", "kube-system", "wherry-config")),
        (JOINING, ("get", "nodes", "", "n1")),
        (JOINING, ("create", "certificatesigningrequests", "", "", CERTIFICATES)),
        (JOINING, ("create", "certificatesigningrequests/nodeclient", "", "", CERTIFICATES)),
        (JOINING, ("create", "certificatesigningrequests/proxyclient", "", "", CERTIFICATES)),
        (MEMBER, ("get", "secrets", "kube-system", "wherry-certs")),
        (NODE, ("create", "certificatesigningrequests/selfnodeclient", "", "", CERTIFICATES)),
        (NODE, ("get", "configmaps", "kube-system", "kubelet-config")),
        (PROXY, ("create", "certificatesigningrequests/selfproxyclient", "", "", CERTIFICATES)),
        (PROXY, ("create", "certificatesigningrequests", "", "", CERTIFICATES)),
        (PROXY, ("list", "endpointslices", "", "", "discovery.k8s.io")),
    ],
)
def test_what_joining_needs_is_allowed(rbac: RBACAuthorizer, user: UserInfo, question: Any) -> None:
    assert rbac.authorize(attributes(user, *question))[0] is Decision.ALLOW


@pytest.mark.parametrize(
    ("user", "question"),
    [
        (NOBODY, ("list", "configmaps", "kube-public", "")),
        (NOBODY, ("get", "configmaps", "kube-public", "another")),
        (NOBODY, ("update", "configmaps", "kube-public", "cluster-info")),
        (NOBODY, ("get", "configmaps", "kube-system", "kubelet-config")),
        (JOINING, ("list", "nodes", "", "")),
        (JOINING, ("delete", "nodes", "", "n1")),
        (JOINING, ("get", "configmaps", "kube-system", "extension-apiserver-authentication")),
        (JOINING, ("get", "secrets", "kube-system", "wherry-certs")),
        (JOINING, ("get", "secrets", "kube-system", "bootstrap-token-abcdef")),
        (JOINING, ("update", "certificatesigningrequests/approval", "", "", CERTIFICATES)),
        (JOINING, ("create", "certificatesigningrequests/selfproxyclient", "", "", CERTIFICATES)),
        (MEMBER, ("list", "secrets", "kube-system", "")),
        (MEMBER, ("get", "secrets", "kube-system", "another")),
        (OTHER, ("get", "nodes", "", "n1")),
        (OTHER, ("create", "certificatesigningrequests/nodeclient", "", "", CERTIFICATES)),
        (NODE, ("create", "certificatesigningrequests/nodeclient", "", "", CERTIFICATES)),
        (NODE, ("create", "certificatesigningrequests/proxyclient", "", "", CERTIFICATES)),
        (PROXY, ("create", "certificatesigningrequests/proxyclient", "", "", CERTIFICATES)),
        (PROXY, ("get", "secrets", "default", "s")),
    ],
)
def test_nothing_more_is_allowed(rbac: RBACAuthorizer, user: UserInfo, question: Any) -> None:
    assert rbac.authorize(attributes(user, *question))[0] is not Decision.ALLOW


def test_what_is_there_already_is_left_as_it_is() -> None:
    for obj in joining_policy():
        assert reconcile(obj, obj) is None


def test_no_object_has_an_empty_map_that_upstreams_server_would_omit() -> None:
    for wanted in joining_policy():
        stored = reconcile(wanted, {**wanted, "metadata": {"name": wanted["metadata"]["name"]}})
        for obj in (wanted, stored):
            assert obj is not None
            assert all(value for value in obj["metadata"].values()), obj["metadata"]
