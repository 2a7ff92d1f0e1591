"""Pods of a soak that are left alone: a web server of two pods with a Service, and a pod with a volume of the file server.

All are critical, so that pressure on a disk does not evict them: whatever fails, their containers run on.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from bench.soak_api import apply
from tests.support.cluster import BUSYBOX, WEB_IMAGE, Cluster, eventually
from tests.support.kube import condition, container_ids, wait_pods

NAMESPACE, REPLICAS = "steady", 2
CRITICAL = "system-node-critical"
SETTLE_SECONDS = 120.0
"""Time until the node and the pods are reported as they are: statuses are compared with the API server's once a minute."""


class Steady:
    """The pods, and what they were when all was well."""

    def __init__(self, made: Cluster, files: Path) -> None:
        self._made, self._files = made, files
        self._address = ""
        self._containers: dict[str, tuple[str, int]] = {}

    def start(self) -> None:
        """Create the pods and wait until they are Ready."""
        apply(self._made, NAMESPACE, _web(), _service(), _user(self._files))
        wait_pods(self._made, NAMESPACE, "app=web", REPLICAS)
        wait_pods(self._made, NAMESPACE, "app=files", 1)
        self._address = self._made.get("service", "web", "-n", NAMESPACE)["spec"]["clusterIP"]
        self._containers = container_ids(self._made)

    def wrong(self) -> dict[str, Any]:
        """Wait until all is as it was; return what is not."""

        def now() -> dict[str, Any]:
            return {
                "containers_that_restarted": sorted(
                    set(self._containers.items()) ^ set(container_ids(self._made).items())
                ),
                "service": sorted({self._made.http(self._address) for _ in range(20)} - self._answers()),
                "node": self._node(),
            }

        with contextlib.suppress(AssertionError):
            eventually(lambda: not any(now().values()), "all is as it was", SETTLE_SECONDS, every=2)
        return now()

    def _answers(self) -> set[str]:
        """Return what the web server's pods may answer."""
        pods = self._made.get("pods", "-n", NAMESPACE, "-l", "app=web")["items"]
        return {f"{pod['metadata']['name']} v1" for pod in pods}

    def _node(self) -> list[str]:
        """Return the node's taints, its conditions that are not normal, and a port of the agent that does not answer."""
        node = self._made.get("node", self._made.node)
        found = [f"taint {taint['key']}" for taint in node["spec"].get("taints", ())]
        if condition(node, "Ready").get("status") != "True":
            found.append("not Ready")
        found += [
            f"{c['type']}: {c['message']}"
            for c in node["status"]["conditions"]
            if c["type"] != "Ready" and c["status"] != "False"
        ]
        logs = self._made.kubectl("logs", "-n", NAMESPACE, "deployment/web", "--tail=1", check=False)
        return found + ([logs.stderr.strip()] if logs.returncode else [])


def _web() -> dict[str, Any]:
    labels = {"app": "web"}
    probe = {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 2, "timeoutSeconds": 5}
    pods = {"metadata": {"labels": labels}, "spec": _spec({"name": "web", "image": WEB_IMAGE, "readinessProbe": probe})}
    spec = {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": pods}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def _service() -> dict[str, Any]:
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}


def _user(files: Path) -> dict[str, Any]:
    mounts = [{"name": "files", "mountPath": "/files"}]
    volumes = [{"name": "files", "hostPath": {"path": str(files), "type": "Directory"}}]
    container = {"name": "c", "image": BUSYBOX, "command": ["sleep", "100000"], "volumeMounts": mounts}
    metadata = {"name": "files", "labels": {"app": "files"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _spec(container, volumes=volumes)}


def _spec(container: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"containers": [container], "priorityClassName": CRITICAL, "terminationGracePeriodSeconds": 1, **more}
