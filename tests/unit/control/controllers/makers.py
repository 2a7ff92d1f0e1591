"""Short ways to make the objects that controllers look at."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from kube.api import apps_v1, core_v1, meta_v1
from kube.clock import format_time

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def ago(seconds: float) -> str:
    return format_time(NOW - timedelta(seconds=seconds))


def template(image: str = "nginx", **labels: str) -> core_v1.PodTemplateSpec:
    return core_v1.PodTemplateSpec(
        metadata=meta_v1.ObjectMeta(labels=labels or {"app": "web"}),
        spec=core_v1.PodSpec(containers=[core_v1.Container(name="c", image=image)]),
    )


def pod(
    name: str = "p",
    *,
    node: str = "n1",
    phase: str = "Running",
    ready: bool = True,
    ready_for: float = 60,
    age: float = 120,
    restarts: int = 0,
    deleting: bool = False,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    ip: str = "",
    **spec: Any,
) -> core_v1.Pod:
    conditions = [
        core_v1.PodCondition(type="Ready", status="True" if ready else "False", last_transition_time=ago(ready_for))
    ]
    return core_v1.Pod(
        metadata=meta_v1.ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-{name}",
            labels=labels or {"app": "web"},
            annotations=annotations or {},
            creation_timestamp=ago(age),
            deletion_timestamp=ago(0) if deleting else None,
        ),
        spec=core_v1.PodSpec(node_name=node or None, **spec),
        status=core_v1.PodStatus(
            phase=phase,
            conditions=conditions,
            container_statuses=[core_v1.ContainerStatus(name="c", restart_count=restarts)],
            pod_ip=ip or None,
            pod_ips=[core_v1.PodIP(ip=ip)] if ip else [],
        ),
    )


def replica_set(
    name: str,
    replicas: int,
    *,
    available: int | None = None,
    image: str = "nginx",
    age: float = 100,
    **annotations: str,
) -> apps_v1.ReplicaSet:
    up = replicas if available is None else available
    return apps_v1.ReplicaSet(
        metadata=meta_v1.ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-{name}",
            creation_timestamp=ago(age),
            annotations={key.replace("__", "/").replace("_", "-"): value for key, value in annotations.items()},
        ),
        spec=apps_v1.ReplicaSetSpec(replicas=replicas, template=template(image)),
        status=apps_v1.ReplicaSetStatus(replicas=replicas, ready_replicas=up, available_replicas=up),
    )


def deployment(
    replicas: int = 3,
    *,
    surge: int | str = "25%",
    unavailable: int | str = "25%",
    image: str = "nginx",
    strategy: str = "RollingUpdate",
    **spec: Any,
) -> apps_v1.Deployment:
    rolling = apps_v1.RollingUpdateDeployment(max_surge=surge, max_unavailable=unavailable)
    return apps_v1.Deployment(
        metadata=meta_v1.ObjectMeta(name="web", namespace="default", uid="uid-web", generation=1),
        spec=apps_v1.DeploymentSpec(
            replicas=replicas,
            template=template(image),
            selector=meta_v1.LabelSelector(match_labels={"app": "web"}),
            strategy=apps_v1.DeploymentStrategy(
                type=strategy, rolling_update=rolling if strategy == "RollingUpdate" else None
            ),
            **{"progress_deadline_seconds": 600, **spec},
        ),
    )
