"""Tests of a chart: Helm installs, upgrades and rolls it back; a migration that fails keeps the old version."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from wherry.testing import Cluster, Exit

CHART = Path(__file__).with_name("chart")
HELM = os.environ.get("HELM") or shutil.which("helm")
pytestmark = pytest.mark.skipif(HELM is None, reason="there is no helm")


def helm(cluster: Cluster, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [str(HELM), "--kubeconfig", str(cluster.kubeconfig), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert not check or done.returncode == 0, done.stderr
    return done


def image(cluster: Cluster) -> str:
    return str(cluster.get("deployment/shop")["spec"]["template"]["spec"]["containers"][0]["image"])


def test_install_upgrade_and_rollback(kubernetes: Cluster) -> None:
    helm(kubernetes, "install", "shop", str(CHART), "--wait", "--timeout", "30s")
    assert kubernetes.get("deployment/shop")["status"]["readyReplicas"] == 2
    helm(kubernetes, "upgrade", "shop", str(CHART), "--set", "image=shop:2,replicas=3", "--wait", "--timeout", "30s")
    assert (image(kubernetes), kubernetes.get("deployment/shop")["status"]["readyReplicas"]) == ("shop:2", 3)
    helm(kubernetes, "rollback", "shop", "1", "--wait", "--timeout", "30s")
    assert image(kubernetes) == "shop:1"
    helm(kubernetes, "uninstall", "shop", "--wait")
    kubernetes.wait("deployment/shop", "deleted")


def test_a_migration_that_fails_keeps_the_old_version(kubernetes: Cluster) -> None:
    helm(kubernetes, "install", "shop", str(CHART), "--wait", "--timeout", "30s")
    kubernetes.pods.script("shop-migration-*", Exit(1))
    done = helm(kubernetes, "upgrade", "shop", str(CHART), "--set", "image=shop:2", "--timeout", "20s", check=False)
    assert done.returncode != 0 and "pre-upgrade hooks failed" in done.stderr
    assert image(kubernetes) == "shop:1"
