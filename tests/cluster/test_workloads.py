"""A StatefulSet on volumes that an administrator made; what other workloads do is shown in docs/tasks/ (test_tasks.py)."""

from __future__ import annotations

import json
from typing import Any

from tests.support.cluster import BUSYBOX, Cluster, eventually
from tests.support.kube import wait_phase


def apply(cluster: Cluster, ns: str, *objects: dict[str, Any]) -> None:
    listing = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    cluster.kubectl("apply", "-n", ns, "-f", "-", input=json.dumps(listing))


def template(app: str, command: str = "", image: str = BUSYBOX, **spec: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "c", "image": image, **spec.pop("container", {})}
    if command:
        container["command"] = ["sh", "-c", command]
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container], **spec}
    return {"metadata": {"labels": {"app": app}}, "spec": spec}


def test_a_stateful_set_keeps_names_and_storage(shared: Cluster, ns: str) -> None:
    volumes = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"{ns}-disk{n}"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": ns,
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": f"{shared.prefix}/volumes/{ns}-{n}", "type": "DirectoryOrCreate"},
            },
        }
        for n in range(2)
    ]
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": ns,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    command = "cat /data/said 2>/dev/null; hostname >> /data/said; sync; exec sleep 1000"
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    spec = {
        "serviceName": "db",
        "replicas": 2,
        "selector": {"matchLabels": {"app": "db"}},
        "template": template("db", command, container=mounts),
        "volumeClaimTemplates": [claim],
    }
    apply(
        shared, ns, *volumes, {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": spec}
    )
    try:
        shared.kubectl("rollout", "status", "sts/db", "-n", ns, "--timeout=120s")
        claims = {c["metadata"]["name"]: c["status"]["phase"] for c in shared.get("pvc", "-n", ns)["items"]}
        assert claims == {"data-db-0": "Bound", "data-db-1": "Bound"}
        first = shared.get("pod", "db-1", "-n", ns)["metadata"]["uid"]
        shared.kubectl("delete", "pod", "db-1", "-n", ns)
        eventually(lambda: _uid(shared, ns, "db-1") not in ("", first), "a new db-1")
        wait_phase(shared, ns, "db-1", "Running")
        eventually(
            lambda: shared.kubectl("logs", "db-1", "-n", ns, check=False).stdout == "db-1\n",
            "what the one before wrote",
        )
    finally:
        shared.kubectl("delete", "sts/db", "-n", ns, "--wait=false", check=False)
        shared.kubectl("delete", "pv", *(v["metadata"]["name"] for v in volumes), "--wait=false", check=False)


def _uid(cluster: Cluster, ns: str, pod: str) -> str:
    return cluster.kubectl("get", "pod", pod, "-n", ns, "-o", "jsonpath={.metadata.uid}", check=False).stdout
