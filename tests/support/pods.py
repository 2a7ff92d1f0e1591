"""Pods for cluster tests, in few words: shells of the test image that end quickly when told to."""

from __future__ import annotations

import json
from typing import Any

from tests.support.cluster import BUSYBOX, Cluster, eventually

FOR_EVER = "trap 'exit 0' TERM; while :; do sleep 0.2; done"


def container(script: str = FOR_EVER, name: str = "c", **more: Any) -> dict[str, Any]:
    """Describe a container that runs a shell script; further fields by their names on the wire."""
    return {"name": name, "image": BUSYBOX, "command": ["sh", "-c", script], **more}


def pod(name: str, *containers: dict[str, Any], labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """Describe a pod, with a grace of a second unless told otherwise."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": list(containers) or [container()], "terminationGracePeriodSeconds": 1, **spec},
    }


def apply(cluster: Cluster, ns: str, *objects: dict[str, Any]) -> None:
    """Apply objects in one go, each checked strictly."""
    many = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    cluster.kubectl("apply", "-n", ns, "-f", "-", input=json.dumps(many))


def status_of(
    cluster: Cluster, ns: str, name: str, which: str = "c", kind: str = "containerStatuses"
) -> dict[str, Any]:
    """Return one container's status; {} as long as there is none."""
    found = cluster.get("pod", name, "-n", ns)["status"].get(kind, [])
    return next((s for s in found if s["name"] == which), {})


def logs(cluster: Cluster, ns: str, name: str, *options: str) -> str:
    return cluster.kubectl("logs", name, "-n", ns, *options).stdout


def execute(cluster: Cluster, ns: str, name: str, script: str, check: bool = True) -> str:
    """Run a script in a pod's container and return what it printed."""
    return cluster.kubectl("exec", name, "-n", ns, "--", "sh", "-c", script, check=check).stdout


def wait_running(cluster: Cluster, ns: str, *names: str) -> None:
    for name in names:
        cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "-n", ns, "--timeout=120s")


def wait_terminated(cluster: Cluster, ns: str, name: str, which: str = "c") -> dict[str, Any]:
    """Wait until a container has ended at least once; return that end."""

    def ended() -> dict[str, Any] | None:
        status = status_of(cluster, ns, name, which)
        return status.get("lastState", {}).get("terminated") or status.get("state", {}).get("terminated")

    return eventually(ended, f"the end of {name}/{which}")
