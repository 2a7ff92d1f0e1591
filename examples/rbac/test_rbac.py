"""Tests of roles: subjects that can delete Secrets. The API server's own authorizer answers, with the roles of roles.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wherry.testing import Cluster

ROLES = Path(__file__).with_name("roles.yaml")
DEVELOPER = {"user": "dora", "groups": ["developers"]}
SUPPORT = {"user": "sam", "groups": ["support"]}
ROTATOR = {"user": "system:serviceaccount:shop:rotator"}


def allowed(
    cluster: Cluster, who: dict[str, Any], verb: str, resource: str, name: str = "", namespace: str = "shop"
) -> bool:
    """Ask the API server with a SubjectAccessReview."""
    attributes = {"verb": verb, "resource": resource, "name": name, "namespace": namespace}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {**who, "resourceAttributes": attributes},
    }
    return bool(cluster.create(review)["status"]["allowed"])


@pytest.mark.kubernetes(load=ROLES)
@pytest.mark.parametrize(
    ("who", "verb", "name", "expected"),
    [
        (DEVELOPER, "delete", "", "yes"),
        (SUPPORT, "delete", "", "no"),
        (SUPPORT, "get", "", "no"),
        (ROTATOR, "update", "web-tls", "yes"),
        (ROTATOR, "update", "database", "no"),
        (ROTATOR, "delete", "web-tls", "no"),
    ],
)
def test_who_can_do_what_with_secrets(
    kubernetes: Cluster, who: dict[str, Any], verb: str, name: str, expected: str
) -> None:
    assert allowed(kubernetes, who, verb, "secrets", name) is (expected == "yes")


@pytest.mark.kubernetes(load=ROLES)
def test_nobody_has_rights_in_other_namespaces(kubernetes: Cluster) -> None:
    for who in (DEVELOPER, SUPPORT, ROTATOR):
        assert not allowed(kubernetes, who, "get", "secrets", namespace="default")
