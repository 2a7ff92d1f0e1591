"""Service account tokens of a soak's pods: each that a running pod has must be valid once all faults are over."""

from __future__ import annotations

import contextlib
import json

from tests.support.cluster import Cluster, eventually
from wherry.layout import Layout

VALID_SECONDS = 120.0
"""Time for the renewal of tokens that were issued while the clock was set."""


def invalid(made: Cluster, namespace: str) -> list[str]:
    """Wait until all tokens are valid; return the pods whose token is not, with the server's message."""

    def found() -> list[str]:
        pods = made.get("pods", "-n", namespace)["items"]
        running = [pod["metadata"] for pod in pods if pod["status"].get("phase") == "Running"]
        checked = [(meta["name"], _problem(made, meta["uid"])) for meta in running if "deletionTimestamp" not in meta]
        return [f"{name}: {problem}" for name, problem in checked if problem]

    with contextlib.suppress(AssertionError):
        eventually(lambda: not found(), "all tokens are valid", VALID_SECONDS, every=2)
    return found()


def _problem(made: Cluster, uid: str) -> str:
    """Return what is wrong with a pod's token, "" if nothing is or the pod has none."""
    volumes = Layout(made.prefix).kubelet / "pods" / uid / "volumes/kubernetes.io~projected"
    for path in volumes.glob("*/token"):
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "metadata": {"name": "review"},
            "spec": {"token": path.read_text()},
        }
        done = made.kubectl("create", "-f", "-", "-o", "json", input=json.dumps(review), check=False)
        if done.returncode:
            return done.stderr.strip()
        status = json.loads(done.stdout)["status"]
        if not status.get("authenticated"):
            return str(status.get("error"))
    return ""
