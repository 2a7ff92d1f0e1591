"""Tests of a ValidatingAdmissionPolicy: objects that it admits, objects that it refuses, and the message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wherry.testing import Cluster, ClusterError

POLICY = Path(__file__).with_name("policy.yaml")
CHECKED = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "checked", "labels": {"checked": "yes"}}}


def pod(image: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": image}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec}


@pytest.mark.kubernetes(load=[POLICY, CHECKED])
def test_an_image_of_our_registry_is_admitted(kubernetes: Cluster) -> None:
    kubernetes.apply(pod("registry.example.org/web:1"), namespace="checked")
    kubernetes.wait("pod/one", "Ready", namespace="checked")


@pytest.mark.kubernetes(load=[POLICY, CHECKED])
def test_another_image_is_refused_with_its_name(kubernetes: Cluster) -> None:
    with pytest.raises(ClusterError, match=r"images must come from registry.example.org: docker.io/nginx"):
        kubernetes.apply(pod("docker.io/nginx"), namespace="checked")


@pytest.mark.kubernetes(load=[POLICY, CHECKED])
def test_other_namespaces_are_not_checked(kubernetes: Cluster) -> None:
    kubernetes.apply(pod("docker.io/nginx"))
