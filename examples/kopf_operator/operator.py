"""An operator written with kopf: a Site becomes a Deployment, and follows its image."""

from __future__ import annotations

from typing import Any

import kopf
from kubernetes import client


def deployment(name: str, spec: Any) -> dict[str, Any]:
    labels = {"site": name}
    containers = [{"name": "web", "image": spec["image"]}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": spec["replicas"],
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    }


@kopf.on.create("sites")
def create(name: str, namespace: str, spec: Any, **_: Any) -> dict[str, str]:
    body = deployment(name, spec)
    kopf.adopt(body)
    client.AppsV1Api().create_namespaced_deployment(namespace, body)
    return {"deployment": name}


@kopf.on.update("sites", field="spec")
def update(name: str, namespace: str, spec: Any, **_: Any) -> None:
    client.AppsV1Api().patch_namespaced_deployment(name, namespace, deployment(name, spec))
