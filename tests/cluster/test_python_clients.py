"""Commands, logs and forwarded ports of a pod through the official Python client, kr8s and lightkube."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.cluster import WEB_IMAGE, Cluster

ROOT = Path(__file__).resolve().parents[2]


def test_streams_of_a_pod_through_python_clients(shared: Cluster, ns: str) -> None:
    shared.kubectl("run", "web", f"--image={WEB_IMAGE}", "--port=80", "-n", ns)
    shared.kubectl("wait", "--for=condition=Ready", "pod/web", "-n", ns, "--timeout=60s")
    argv = [sys.executable, "-m", "tests.support.python_clients", str(shared.kubeconfig), ns, "web"]
    done = shared.host.run(*argv, env={"PYTHONPATH": str(ROOT)}, check=False, timeout=150)
    assert done.stdout.split() == ["with_kubernetes", "with_kr8s", "with_lightkube"], done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
