"""A node's agent is exchanged under running pods: kubelet, Wherry's agent, kubelet. No container may notice."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest

from tests.conformance import daemons
from tests.conformance.daemons import KUBELET
from tests.conformance.running import programs
from tests.support.cluster import BUSYBOX, Cluster, cluster, eventually

SETTLED_SECONDS = 45
"""Longer than the agents' slowest rounds over all pods take after their start."""
_SLEEP = {"image": BUSYBOX, "command": ["sleep", "100000"]}
_SMALL = {"limits": {"cpu": "100m", "memory": "64Mi"}}
_ALIVE = {"exec": {"command": ["true"]}, "periodSeconds": 2}


def _pods() -> list[dict[str, Any]]:
    config = {"name": "config", "configMap": {"name": "kube-root-ca.crt"}}
    mounted = [{"name": "config", "mountPath": "/config"}, {"name": "scratch", "mountPath": "/scratch"}]
    specs: dict[str, dict[str, Any]] = {
        "plain": {"containers": [{"name": "main", **_SLEEP}]},
        "guaranteed": {"containers": [{"name": "main", **_SLEEP, "resources": _SMALL}]},
        "probed": {"containers": [{"name": "main", **_SLEEP, "livenessProbe": _ALIVE, "readinessProbe": _ALIVE}]},
        "volumes": {
            "containers": [{"name": "main", **_SLEEP, "volumeMounts": mounted}],
            "volumes": [config, {"name": "scratch", "emptyDir": {"medium": "Memory"}}],
        },
        "sidecar": {
            "initContainers": [
                {"name": "first", "image": BUSYBOX, "command": ["true"]},
                {"name": "beside", **_SLEEP, "restartPolicy": "Always"},
            ],
            "containers": [{"name": "main", **_SLEEP}],
        },
        "host": {"hostNetwork": True, "hostPID": True, "containers": [{"name": "main", **_SLEEP}]},
        "shared": {"shareProcessNamespace": True, "containers": [{"name": n, **_SLEEP} for n in ("one", "two")]},
        "user": {
            "securityContext": {"runAsUser": 1000, "fsGroup": 2000, "supplementalGroups": [3000]},
            "containers": [{"name": "main", **_SLEEP, "securityContext": {"readOnlyRootFilesystem": True}}],
        },
        "done": {"restartPolicy": "Never", "containers": [{"name": "main", "image": BUSYBOX, "command": ["true"]}]},
    }
    ends = {"terminationGracePeriodSeconds": 1}
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {**ends, **spec}}
        for name, spec in specs.items()
    ]


def _containers(made: Cluster) -> dict[str, tuple[str, int, str]]:
    """Return ID, restarts and state of each container."""
    found = {}
    for pod in made.get("pods")["items"]:
        status = pod["status"]
        for one in status.get("initContainerStatuses", []) + status.get("containerStatuses", []):
            key = f"{pod['metadata']['name']}/{one['name']}"
            found[key] = one.get("containerID", ""), one["restartCount"], next(iter(one["state"]))
    return found


def _settled(made: Cluster) -> bool:
    phases = {pod["metadata"]["name"]: pod["status"].get("phase") for pod in made.get("pods")["items"]}
    return len(phases) == len(_pods()) and all(
        phase == ("Succeeded" if name == "done" else "Running") for name, phase in phases.items()
    )


@pytest.mark.timeout(0)
def test_running_pods_do_not_notice_that_their_agent_is_exchanged() -> None:
    if programs(daemons=True).minor < 24:
        pytest.skip("v1.20's kubelet and v1.36's agent keep their notes in different forms")
    with cluster(f"wherry-c{os.getpid()}") as made, daemons.exchanged(made, {KUBELET}) as running:
        eventually(lambda: made.kubectl("get", "serviceaccount", "default", check=False).returncode == 0, "an account")
        made.kubectl("create", "-f", "-", input=json.dumps({"kind": "List", "apiVersion": "v1", "items": _pods()}))
        eventually(lambda: _settled(made), "all pods run", 120)
        before = _containers(made)
        for upstreams in (set[str](), {KUBELET}):
            running.change_agent(upstreams)
            time.sleep(SETTLED_SECONDS)
            assert _containers(made) == before
            assert made.kubectl("exec", "volumes", "--", "ls", "/config").stdout == "ca.crt\n"
            assert made.kubectl("logs", "done").stdout == ""
        made.kubectl("delete", "pods", "--all", "--wait=true", timeout=120)
