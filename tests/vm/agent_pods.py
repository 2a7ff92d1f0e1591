"""Pods for the tests of the agent on a machine: their images, and checks in the machine's kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.vm.vagrant import NODES, eventually, inside, kubectl

MACHINE = NODES[-1]
NAMESPACE = "machine"
IMAGE = "docker.io/library/busybox:test"
FOREVER = ("sleep", "1000000")
FILES = ("cpu.weight", "cpu.max", "memory.max", "memory.swap.max", "memory.oom.group", "pids.max")


def container(
    *command: str, name: str = "main", requests: dict[str, str] | None = None, limits: dict[str, str] | None = None
) -> dict[str, Any]:
    """Describe a container that runs a command, or nothing for ever."""
    return {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command or FOREVER),
        "resources": {"requests": requests or {}, "limits": limits or {}},
    }


def pod(name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Describe a pod of the machine's, whose containers are started again: containerd gives up where a machine is slow."""
    rules = {"nodeName": MACHINE, "terminationGracePeriodSeconds": 1}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": rules | {"containers": list(containers)} | spec,
    }


def create(folder: Path, *described: dict[str, Any], namespace: str = NAMESPACE) -> None:
    """Create objects; what an older kubectl does not know is for the server to judge."""
    file = folder / "objects.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": described}))
    kubectl("create", "--namespace", namespace, "--validate=false", "-f", str(file))


def pods(namespace: str = NAMESPACE) -> dict[str, dict[str, Any]]:
    """Return the namespace's pods by their names."""
    found = json.loads(kubectl("get", "pods", "--namespace", namespace, "-o", "json", check=False) or '{"items": []}')
    return {one["metadata"]["name"]: one for one in found["items"]}


def condition(of: dict[str, Any], kind: str) -> dict[str, str]:
    """Return an object's condition; {} where it has none such."""
    return next((one for one in of.get("status", {}).get("conditions", []) if one["type"] == kind), {})


def ready(*names: str) -> dict[str, dict[str, Any]]:
    """Wait until these pods are ready; return them."""
    found: dict[str, dict[str, Any]] = {}

    def are() -> bool:
        found.update(pods())
        return all(condition(found.get(name, {}), "Ready").get("status") == "True" for name in names)

    eventually(f"{', '.join(names)} are ready", are)
    return {name: found[name] for name in names}


def node() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kubectl("get", "node", MACHINE, "-o", "json", check=False) or "{}")
    return found


def cgroups() -> dict[str, dict[str, str]]:
    """Read all pods' cgroups: a slice's or scope's own name to its files' contents."""
    wanted = " ".join(f"--include={name}" for name in FILES)
    found: dict[str, dict[str, str]] = {}
    for line in inside(
        MACHINE, f"sh -c 'cd /sys/fs/cgroup && grep -r . kubepods.slice {wanted}'", check=False
    ).splitlines():
        path, _, value = line.partition(":")
        folder, _, file = path.rpartition("/")
        found.setdefault(folder.rpartition("/")[2], {})[file] = value
    return found


def slice_of(one: dict[str, Any]) -> str:
    """Return the name of a pod's slice."""
    level = {"Guaranteed": "", "Burstable": "-burstable", "BestEffort": "-besteffort"}[one["status"]["qosClass"]]
    return f"kubepods{level}-pod{one['metadata']['uid'].replace('-', '_')}.slice"


def scope_of(one: dict[str, Any], name: str = "main") -> str:
    """Return the name of a container's scope."""
    status = next(s for s in one["status"]["containerStatuses"] if s["name"] == name)
    return f"cri-containerd-{status['containerID'].removeprefix('containerd://')}.scope"
