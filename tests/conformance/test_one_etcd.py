"""Upstream's API server and Wherry's on one etcd: each reads what the other wrote, side by side and one after the other."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance import daemons
from tests.conformance.daemons import API_SERVER, Daemons
from tests.conformance.running import programs
from tests.support.cluster import Cluster, cluster, eventually

UPSTREAMS, WHERRYS = 6443, 6444
"""The ports that the servers have."""
_POD = {"containers": [{"name": "main", "image": "wherry.test/web:1", "ports": [{"containerPort": 80}]}]}
_TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": _POD}
_SELECTED: dict[str, Any] = {"selector": {"matchLabels": {"app": "web"}}, "template": _TEMPLATE}
_PORT = {"port": 80, "protocol": "TCP"}
_SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_RULE = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
_CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}

_MOVING = {
    "events",
    "events.events.k8s.io",
    "leases.coordination.k8s.io",
    "nodes",
    "nodes.metrics.k8s.io",
    "pods.metrics.k8s.io",
}
"""Resources that change during the comparison, or that each server has of its own."""
_ABSENT = "(absent)"


def _objects(suffix: str) -> list[dict[str, Any]]:
    """Return objects of many kinds, whose names end in `suffix`."""
    plural = f"boats{suffix}"
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _SCHEMA}}
    names = {"plural": plural, "singular": f"boat{suffix}", "kind": f"Boat{suffix.title()}"}
    definition = {"group": "wherry.test", "scope": "Namespaced", "names": names, "versions": [version]}
    specs: dict[tuple[str, str], dict[str, Any]] = {
        ("apps/v1", "Deployment"): {"spec": {"replicas": 2, **_SELECTED}},
        ("apps/v1", "DaemonSet"): {"spec": _SELECTED},
        ("apps/v1", "StatefulSet"): {"spec": {"serviceName": "web", **_SELECTED}},
        ("batch/v1", "CronJob"): {
            "spec": {
                "schedule": "0 0 1 1 *",
                "jobTemplate": {"spec": {"template": {"spec": {**_POD, "restartPolicy": "Never"}}}},
            }
        },
        ("v1", "ConfigMap"): {"data": {"a": "b"}, "binaryData": {"c": "AAEC"}},
        ("v1", "Secret"): {"stringData": {"a": "b"}, "immutable": True},
        ("v1", "Service"): {"spec": {"type": "NodePort", "selector": {"app": "web"}, "ports": [_PORT]}},
        ("v1", "ServiceAccount"): {},
        ("v1", "PersistentVolumeClaim"): {"spec": {**_CLAIM, "storageClassName": "none"}},
        ("v1", "ResourceQuota"): {"spec": {"hard": {"pods": "100"}}},
        ("v1", "LimitRange"): {"spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}},
        ("v1", "PodTemplate"): {"template": _TEMPLATE},
        ("rbac.authorization.k8s.io/v1", "Role"): {"rules": [_RULE]},
        ("rbac.authorization.k8s.io/v1", "ClusterRole"): {"rules": [_RULE]},
        ("networking.k8s.io/v1", "NetworkPolicy"): {"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}},
        ("policy/v1", "PodDisruptionBudget"): {"spec": {"minAvailable": "50%", "selector": {}}},
        ("scheduling.k8s.io/v1", "PriorityClass"): {"value": 1000},
        ("storage.k8s.io/v1", "StorageClass"): {"provisioner": "wherry.test/none"},
        ("coordination.k8s.io/v1", "Lease"): {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 10}},
    }
    made = [
        {"apiVersion": version, "kind": kind, "metadata": {"name": f"{kind.lower()}-{suffix}"}, **rest}
        for (version, kind), rest in specs.items()
    ]
    about = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return [*made, {**about, "metadata": {"name": f"{plural}.wherry.test"}, "spec": definition}]


def _everything(made: Cluster, port: int) -> Iterator[tuple[str, Any]]:
    """Return all objects as a server tells them, by resource and name."""
    server = f"--server=https://{made.host.address}:{port}"
    listed = made.kubectl(server, "api-resources", "--verbs=list", "--output=name").stdout.split()
    for resource in sorted(set(listed) - _MOVING):
        found = made.kubectl(server, "get", resource, "--all-namespaces", "--output=json", "--show-managed-fields")
        for item in json.loads(found.stdout)["items"]:
            where = item["metadata"]
            yield f"{resource} {where.get('namespace', '')}/{where['name']}", item


def _alike(made: Cluster) -> bool:
    one, other = (dict(_everything(made, port)) for port in (UPSTREAMS, WHERRYS))
    differ = [
        text
        for name in sorted(one.keys() | other.keys())
        for text in _differences(name, one.get(name, _ABSENT), other.get(name, _ABSENT))
    ]
    assert not differ, "\n".join([f"{len(differ)} differences (upstream's != Wherry's):", *differ[:60]])
    return True


def _differences(path: str, one: Any, other: Any) -> Iterator[str]:
    """Return where two objects differ, each place on a line."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from _differences(f"{path} {key}", one.get(key, _ABSENT), other.get(key, _ABSENT))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _differences(f"{path} {number}", left, right)
    elif one != other:
        yield f"{path}: {json.dumps(one)[:200]} != {json.dumps(other)[:200]}"


def _create(made: Cluster, port: int, suffix: str) -> None:
    items = json.dumps({"kind": "List", "apiVersion": "v1", "items": _objects(suffix)})
    made.kubectl(f"--server=https://{made.host.address}:{port}", "create", "-f", "-", input=items)


def _start(running: Daemons, port: int) -> None:
    running.upstreams = frozenset({API_SERVER}) if port == UPSTREAMS else frozenset()
    running.api_server(port)


@pytest.mark.timeout(0)
def test_two_servers_on_one_etcd_return_the_same() -> None:
    if programs(daemons=True).minor < 24:
        pytest.skip("v1.20 stores versions that v1.36 does not know")
    with cluster(f"wherry-c{os.getpid()}") as made, daemons.exchanged(made, {API_SERVER}) as running:
        _create(made, UPSTREAMS, "one")
        _start(running, WHERRYS)
        _create(made, WHERRYS, "two")
        _create(made, UPSTREAMS, "three")
        eventually(lambda: _alike(made), "both tell the same", 90, every=3)
        running.end_api_server(UPSTREAMS)
        _create(made, WHERRYS, "four")
        _start(running, UPSTREAMS)
        eventually(lambda: _alike(made), "both tell the same", 90, every=3)
        running.end_api_server(WHERRYS)
        _create(made, UPSTREAMS, "five")
        _start(running, WHERRYS)
        eventually(lambda: _alike(made), "both tell the same", 90, every=3)
        services = made.get("services")["items"]
        taken = [service["spec"]["clusterIP"] for service in services]
        ports = [port["nodePort"] for service in services for port in service["spec"]["ports"] if "nodePort" in port]
        assert len(taken) == len(set(taken)), taken
        assert len(ports) == len(set(ports)) == 5, ports
