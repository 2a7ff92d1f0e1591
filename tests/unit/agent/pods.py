"""Short ways to write pods and runtime records in tables."""

from __future__ import annotations

from typing import Any

import msgspec

from agent.lifecycle import container_hash, is_sidecar
from agent.runtime_records import ContainerRecord, PodRuntime, SandboxRecord, State
from kube.api import core_v1

IMAGE = "busybox:1"


def pod(
    *containers: str | dict[str, Any],
    init: list[str | dict[str, Any]] | None = None,
    policy: str = "Always",
    **spec: Any,
) -> core_v1.Pod:
    """A pod with containers given by name or as JSON; `metadata` and `status` may be among the keywords."""
    metadata = {"name": "web", "namespace": "default", "uid": "uid-1", "generation": 1, **spec.pop("metadata", {})}
    body = {
        "metadata": metadata,
        "status": spec.pop("status", {}),
        "spec": {
            "restartPolicy": policy,
            "containers": [_container(c) for c in containers or ("main",)],
            "initContainers": [_container(c) for c in init or ()],
            **spec,
        },
    }
    return msgspec.convert(body, core_v1.Pod)


def _container(given: str | dict[str, Any]) -> dict[str, Any]:
    return {"name": given, "image": IMAGE} if isinstance(given, str) else {"image": IMAGE, **given}


def mounting(*volumes: str) -> dict[str, Any]:
    """A container that mounts volumes."""
    return {"name": "main", "volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in volumes]}


def sidecar(name: str = "side") -> dict[str, Any]:
    return {"name": name, "restartPolicy": "Always"}


def record(
    name: str,
    state: str = "running",
    code: int = 0,
    *,
    n: int = 0,
    sandbox: str = "s0",
    finished: float = 100.0,
    **more: Any,
) -> ContainerRecord:
    """An instance: `running`, `exited` with a code, `created`; `n` is its restart count."""
    found = State(state)
    definition = core_v1.Container(name=name, image=IMAGE)
    fields: dict[str, Any] = {
        "id": f"{name}-{n}",
        "name": name,
        "state": found,
        "restart_count": n,
        "sandbox_id": sandbox,
        "image": IMAGE,
        "image_ref": "sha256:1",
        "hash": container_hash(definition),
        "created_at": 10.0 + n,
        "started_at": 11.0 + n if found is not State.CREATED else 0.0,
        "finished_at": finished if found is State.EXITED else 0.0,
        "exit_code": code,
    }
    return ContainerRecord(**{**fields, **more})


def sandbox(attempt: int = 0, *, ready: bool = True, ips: tuple[str, ...] = ("10.244.0.5",)) -> SandboxRecord:
    return SandboxRecord(id=f"s{attempt}", ready=ready, attempt=attempt, created_at=1.0 + attempt, ips=ips)


def runtime(*records: ContainerRecord, sandboxes: tuple[SandboxRecord, ...] | None = None) -> PodRuntime:
    """State of the runtime: one ready sandbox by default."""
    result = PodRuntime()
    for found in sandboxes if sandboxes is not None else (sandbox(),):
        result = result.with_sandbox(found)
    for one in records:
        result = result.with_container(one)
    return result


NOTHING = PodRuntime()


def reused(pod: core_v1.Pod, container: core_v1.Container) -> bool:
    """Return whether the resources of a container are there again for those after it."""
    return not is_sidecar(container) and any(container is init for init in pod.spec.init_containers)
