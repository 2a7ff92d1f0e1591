"""Helm 4, which applies by the server and waits by watches, as the library in helm-python-sdk (docs/ecosystem.md)."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.cluster import Cluster

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        importlib.util.find_spec("helm_python") is None, reason="Helm 4 is not installed: pip install helm-python-sdk"
    ),
]


def test_a_release_is_installed_upgraded_rolled_back_and_removed(shared: Cluster, ns: str, tmp_path: Path) -> None:
    env = {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", "")))),
        **{f"HELM_{what}_HOME": str(tmp_path / what) for what in ("CACHE", "CONFIG", "DATA")},
    }
    argv = [sys.executable, "-m", "tests.support.helm4", str(shared.kubeconfig), ns]
    done = shared.host.run(*argv, env=env, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    steps = {line["step"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert steps["version"]["version"].startswith("v4.")
    assert (steps["installed"]["revision"], steps["installed"]["status"]) == (1, "deployed")
    assert (steps["upgraded"]["revision"], steps["upgraded"]["status"]) == (2, "deployed")
    assert "spec.replicas: Invalid value: -1" in steps["failed"]["error"]
    assert steps["rolled back"]["history"][-1]["status"] == "deployed"
    assert steps["values"]["values"]["tools"]
    assert steps["listed"]["names"] == []
    left = shared.get("deployments,services,configmaps,secrets", "-n", ns, "-l", "app.kubernetes.io/managed-by=Helm")
    assert left["items"] == []
