"""Permissions that controllers and scheduler do not have by the default roles."""

from __future__ import annotations

import pytest

from control.auth.bootstrap_policy import default_policy
from control.auth.rbac import RBACAuthorizer
from control.auth.user import AuthzAttributes, Decision
from control.controllers.identities import ACCOUNTS, MANAGER, POLICY_CHECKER, SCHEDULER, account_user
from control.controllers.manager import CONTROLLERS
from kube.resources import by_kind


@pytest.fixture(scope="module")
def rbac() -> RBACAuthorizer:
    found = RBACAuthorizer()
    for obj in default_policy():
        resource = by_kind(obj["apiVersion"], obj["kind"])
        assert resource is not None
        found.changed(resource.target, "ADDED", obj)
    return found


def who_may(rbac: RBACAuthorizer, verb: str, target: str, namespace: str = "default", name: str = "x") -> set[str]:
    """Return the components of the control plane that may do something."""
    plain, _, subresource = target.partition("/")
    resource, _, group = plain.partition(".")
    users = {account: account_user(account) for account in (*ACCOUNTS.values(), POLICY_CHECKER)}
    users |= {"manager": MANAGER, "scheduler": SCHEDULER}
    return {
        short
        for short, user in users.items()
        if rbac.authorize(
            AuthzAttributes(
                user=user,
                verb=verb,
                group=group,
                version="v1",
                resource=resource,
                subresource=subresource,
                namespace=namespace,
                name=name,
            )
        )[0]
        is Decision.ALLOW
    }


ADDONS = "addon-controller"
"""May do everything, as administrators' files may contain every object (docs/addons.md)."""
COLLECTOR, NAMESPACES, QUOTA = "generic-garbage-collector", "namespace-controller", "resourcequota-controller"
RBAC_GROUP = "rbac.authorization.k8s.io"


@pytest.mark.parametrize(
    ("verb", "target", "allowed"),
    [
        ("get", "secrets", {COLLECTOR, NAMESPACES, "manager"}),
        ("list", "secrets", {COLLECTOR, NAMESPACES, QUOTA, "manager"}),
        ("create", "secrets", {"manager"}),
        ("update", "secrets", {COLLECTOR, "manager"}),
        ("delete", "secrets", {COLLECTOR, NAMESPACES, "legacy-service-account-token-cleaner", "manager"}),
        ("create", "serviceaccounts/token", {"manager"}),
        ("delete", "nodes", {COLLECTOR, NAMESPACES, "node-controller"}),
        ("create", "nodes", set()),
        ("create", "pods/exec", set()),
        ("get", "nodes/proxy", {COLLECTOR, NAMESPACES}),
        ("create", "nodes/proxy", set()),
        ("create", "pods/binding", {"scheduler", "daemon-set-controller"}),
        ("create", f"clusterroles.{RBAC_GROUP}", set()),
        ("update", f"clusterroles.{RBAC_GROUP}", {COLLECTOR, "clusterrole-aggregation-controller"}),
        ("escalate", f"clusterroles.{RBAC_GROUP}", {"clusterrole-aggregation-controller"}),
        ("bind", f"clusterroles.{RBAC_GROUP}", set()),
        ("create", f"clusterrolebindings.{RBAC_GROUP}", set()),
        ("create", f"rolebindings.{RBAC_GROUP}", set()),
        ("impersonate", "users", set()),
        ("impersonate", "serviceaccounts", set()),
        ("approve", "signers.certificates.k8s.io", set()),
        ("sign", "signers.certificates.k8s.io", set()),
        ("create", "mutatingwebhookconfigurations.admissionregistration.k8s.io", set()),
        ("update", "namespaces", {COLLECTOR}),
        (
            "create",
            "pods",
            {
                "replicaset-controller",
                "replication-controller",
                "daemon-set-controller",
                "statefulset-controller",
                "job-controller",
                "persistent-volume-binder",
            },
        ),
    ],
)
def test_only_these_controllers_may(rbac: RBACAuthorizer, verb: str, target: str, allowed: set[str]) -> None:
    assert who_may(rbac, verb, target) == allowed | {ADDONS}


def test_tokens_for_bootstrap_are_read_by_their_signer_and_removed_by_their_cleaner_in_kube_system_alone(
    rbac: RBACAuthorizer,
) -> None:
    usual = {ADDONS, COLLECTOR, NAMESPACES, "manager"}
    assert who_may(rbac, "get", "secrets", "kube-system") == usual | {"bootstrap-signer", "token-cleaner"}
    usual = {ADDONS, COLLECTOR, NAMESPACES, "manager", "legacy-service-account-token-cleaner"}
    assert who_may(rbac, "delete", "secrets", "kube-system") == usual | {"token-cleaner"}


@pytest.mark.parametrize(
    ("signer", "verbs"),
    [
        ("kubernetes.io/kube-apiserver-client-kubelet", {"approve", "sign"}),
        ("kubernetes.io/kubelet-serving", {"approve", "sign"}),
        ("kubernetes.io/kube-apiserver-client", {"approve", "sign"}),
        ("kubernetes.io/legacy-unknown", {"sign"}),
        ("example.com/other", set()),
    ],
)
def test_the_certificate_controller_acts_for_the_clusters_own_signers(
    rbac: RBACAuthorizer, signer: str, verbs: set[str]
) -> None:
    for verb in ("approve", "sign"):
        allowed = {"certificate-controller"} if verb in verbs else set()
        assert who_may(rbac, verb, "signers.certificates.k8s.io", "", signer) == allowed | {ADDONS}


def test_every_controller_has_an_account_and_every_account_a_role_of_its_name() -> None:
    assert CONTROLLERS.keys() - ACCOUNTS.keys() == {"serviceaccount-token"}  # acts as the manager, as upstream's
    assert ACCOUNTS.keys() <= CONTROLLERS.keys()
    bound = {
        subject["name"]
        for obj in default_policy()
        if obj["kind"].endswith("Binding") and obj["roleRef"]["name"].startswith("system:controller:")
        for subject in obj["subjects"]
        if obj["roleRef"]["name"] == f"system:controller:{subject['name']}"
    }
    assert {*ACCOUNTS.values(), POLICY_CHECKER} <= bound
