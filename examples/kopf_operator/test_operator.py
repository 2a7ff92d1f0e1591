"""Tests of the operator: it runs in a thread, against a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from kopf.testing import KopfRunner
from kubernetes import config
from kubernetes.config import kube_config

from wherry.testing import Cluster, ClusterError, PullError

HERE = Path(__file__).parent
SITE = "apiVersion: example.org/v1\nkind: Site\nmetadata: {name: blog}\nspec: {image: 'blog:1', replicas: 2}\n"


@pytest.fixture
def operator(kubernetes: Cluster) -> Iterator[Cluster]:
    kubernetes.apply(HERE / "definition.yaml")
    kubernetes.wait("crd/sites.example.org", "Established")
    path = str(kubernetes.kubeconfig)
    # The client has read the environment at its import, so kopf's login gets the path here.
    with patch.object(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", path):
        config.load_kube_config(path)
        with KopfRunner(["run", "--namespace", "default", str(HERE / "operator.py")], timeout=30) as runner:
            yield kubernetes
    assert runner.exception is None


def test_a_site_becomes_a_deployment_that_goes_with_it(operator: Cluster) -> None:
    operator.apply(SITE)
    found = operator.wait("deployment/blog", "Available")
    assert found["status"]["readyReplicas"] == 2
    assert operator.wait("site/blog", "status.create.deployment=blog")
    operator.delete("site/blog")
    operator.wait("deployment/blog", "deleted")


def test_a_new_image_is_rolled_out_and_a_missing_one_keeps_the_old_pods(operator: Cluster) -> None:
    operator.apply(SITE)
    operator.wait("deployment/blog", "Available")
    operator.pods.script("blog-*", PullError("manifest unknown"))
    operator.patch("site/blog", {"spec": {"image": "blog:2"}})
    operator.wait(
        "deployment/blog", lambda found: found["spec"]["template"]["spec"]["containers"][0]["image"] == "blog:2"
    )
    operator.wait("deployment/blog", "status.updatedReplicas=1")
    assert operator.get("deployment/blog")["status"]["availableReplicas"] == 2


def test_a_site_without_an_image_is_refused(operator: Cluster) -> None:
    with pytest.raises(ClusterError, match=r"spec\.image: Required value"):
        operator.apply("apiVersion: example.org/v1\nkind: Site\nmetadata: {name: empty}\nspec: {replicas: 1}\n")
