"""Objects of a run with the aggregator of this folder: those of `sonobuoy gen`, of one namespace."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

from tests.support.cluster import BUSYBOX
from tests.support.sonobuoy import plugins

ACCOUNT = "sonobuoy-serviceaccount"
POD = "sonobuoy"
_ROOT = Path(__file__).resolve().parents[3]
_LABELS = {"component": "sonobuoy", "sonobuoy-component": "aggregator"}
_RULES = [
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["/metrics", "/logs", "/logs/*"], "verbs": ["get"]},
]


def objects(namespace: str) -> list[dict[str, Any]]:
    """Return the objects of a run."""
    role = f"{ACCOUNT}-{namespace}"
    own = {"namespace": namespace, "labels": {"component": "sonobuoy"}}
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    definitions = {f"{name}.yaml": json.dumps(found) for name, found in plugins.definitions().items()}
    service = {"selector": _LABELS, "ports": [{"port": 8080, "protocol": "TCP", "targetPort": 8080}]}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**own, "name": ACCOUNT}},
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": role}, "rules": _RULES},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": role},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**own, "name": "sonobuoy-plugins-cm"},
            "data": definitions,
        },
        {"apiVersion": "v1", "kind": "Service", "metadata": {**own, "name": "sonobuoy-aggregator"}, "spec": service},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {**own, "name": POD, "labels": _LABELS}, "spec": _aggregator()},
    ]


def _aggregator() -> dict[str, Any]:
    """Return the aggregator's pod; Python and its programs are this machine's."""
    folders = {
        "usr": (Path("/usr"), "/usr"),
        "lib": (Path("/lib"), "/lib"),
        "lib64": (Path("/lib64"), "/lib64"),
        "programs": (_ROOT, "/programs"),
        "packages": (Path(sysconfig.get_path("platlib")), "/packages"),
    }
    if not Path(sys.base_prefix).is_relative_to("/usr"):
        folders["python"] = Path(sys.base_prefix), sys.base_prefix
    found = {f"host-{name}": each for name, each in folders.items() if each[0].exists()}
    fields = {
        "SONOBUOY_ADVERTISE_IP": "status.podIP",
        "SONOBUOY_NS": "metadata.namespace",
        "SONOBUOY_POD": "metadata.name",
    }
    env: list[dict[str, Any]] = [{"name": k, "valueFrom": {"fieldRef": {"fieldPath": v}}} for k, v in fields.items()]
    env += [{"name": "PYTHONPATH", "value": "/programs:/packages"}, {"name": "SERVICE_ACCOUNT", "value": ACCOUNT}]
    env += [{"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}]
    container = {
        "name": "kube-sonobuoy",
        "image": BUSYBOX,
        "command": [os.path.realpath(sys.executable), "-m", "tests.support.sonobuoy.aggregator"],
        "env": env,
        "volumeMounts": [
            *({"name": name, "mountPath": target, "readOnly": True} for name, (_, target) in found.items()),
            {"name": "plugins", "mountPath": "/plugins.d"},
            {"name": "output", "mountPath": "/tmp/sonobuoy"},
        ],
    }
    return {
        "serviceAccountName": ACCOUNT,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"runAsUser": 1000, "runAsGroup": 3000, "fsGroup": 2000},
        "tolerations": [{"key": "kubernetes.io/e2e-evict-taint-key", "operator": "Exists"}],
        "containers": [container],
        "volumes": [
            *({"name": name, "hostPath": {"path": str(source)}} for name, (source, _) in found.items()),
            {"name": "plugins", "configMap": {"name": "sonobuoy-plugins-cm"}},
            {"name": "output", "emptyDir": {}},
        ],
    }
