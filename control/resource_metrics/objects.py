"""NodeMetrics and PodMetrics as the API shows them, and their tables.

Quantities are nanocores and kibibytes in canonical form, `window` is a Go duration: what metrics-server answers and
`kubectl top` adds up. A pod is shown when all its running containers could be measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec

from control.registry.columns import NAME, Column
from control.registry.strategy import Strategy
from control.resource_metrics.sample import Container
from control.resource_metrics.usage import Usage
from kube import duration
from kube.clock import format_time
from kube.json_object import Object
from kube.quantity import render
from kube.resources import Resource

API_VERSION = "metrics.k8s.io/v1beta1"
GROUP, VERSION = "metrics.k8s.io", "v1beta1"
_READ = ("get", "list")
NODES = Resource(GROUP, VERSION, "nodes", "NodeMetrics", "metrics_v1beta1", namespaced=False, verbs=_READ)
PODS = Resource(GROUP, VERSION, "pods", "PodMetrics", "metrics_v1beta1", verbs=_READ)
RESOURCES = (NODES, PODS)


class _Named(msgspec.Struct):
    name: str


class _State(msgspec.Struct):
    name: str
    state: dict[str, Any] | None = None


class _Spec(msgspec.Struct):
    nodeName: str | None = None
    containers: list[_Named] | None = None
    initContainers: list[_Named] | None = None


class _Status(msgspec.Struct):
    phase: str | None = None
    containerStatuses: list[_State] | None = None
    initContainerStatuses: list[_State] | None = None


class _Metadata(msgspec.Struct):
    name: str
    namespace: str = ""
    labels: dict[str, str] | None = None


class _Outline(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec | None = None
    status: _Status | None = None


_outlines = msgspec.json.Decoder(_Outline)


def outline(data: bytes) -> Object:
    """Return of a pod or node in JSON what its metrics are made with: a pod of a megabyte is mostly variables."""
    found: Object = msgspec.to_builtins(_outlines.decode(data))
    return found


def node_metrics(node: Object, usage: Usage, now: datetime) -> Object:
    """Return a node's metrics."""
    return _object("NodeMetrics", node["metadata"], usage, now) | {"usage": _quantities(usage)}


def pod_metrics(pod: Object, usages: Mapping[Container, Usage], now: datetime) -> Object | None:
    """Return a pod's metrics, None if they are not known yet."""
    meta = pod["metadata"]
    measured: list[tuple[str, Usage]] = []
    for name in running_containers(pod):
        usage = usages.get((meta.get("namespace", ""), meta["name"], name))
        if usage is None:
            return None
        measured.append((name, usage))
    if not measured:
        return None
    # The pod as a whole is as old as its oldest figure.
    eldest = min((usage for _, usage in measured), key=lambda usage: usage.time)
    containers = [{"name": name, "usage": _quantities(usage)} for name, usage in measured]
    return _object("PodMetrics", meta, eldest, now) | {"containers": containers}


def running_containers(pod: Object) -> list[str]:
    """Return the names of a pod's containers that run now, sidecars among them."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    running = {
        found["name"]
        for part in ("initContainerStatuses", "containerStatuses")
        for found in status.get(part) or ()
        if (found.get("state") or {}).get("running") is not None
    }
    named = [c["name"] for part in ("initContainers", "containers") for c in spec.get(part) or ()]
    return [name for name in named if name in running]


def _object(kind: str, meta: Object, usage: Usage, now: datetime) -> Object:
    shown: Object = {"name": meta["name"]}
    if meta.get("namespace"):
        shown["namespace"] = meta["namespace"]
    shown["creationTimestamp"] = format_time(now)
    if meta.get("labels"):
        shown["labels"] = meta["labels"]
    return {
        "kind": kind,
        "apiVersion": API_VERSION,
        "metadata": shown,
        "timestamp": format_time(datetime.fromtimestamp(usage.time, UTC)),
        "window": duration.render(usage.window),
    }


def _quantities(usage: Usage) -> Object:
    nanos = Decimal(max(0, round(usage.cpu * 1e9))).scaleb(-9)
    return {"cpu": render(nanos), "memory": render(int(usage.memory), "binary")}


class MetricsStrategy(Strategy):
    """The tables of both kinds."""

    columns = (
        NAME,
        Column("cpu", format="quantity"),
        Column("memory", format="quantity"),
        Column("Window", format="duration"),
    )
    has_generation = False

    def row(self, obj: Object, now: datetime) -> list[Any]:
        usages = [obj["usage"]] if "usage" in obj else [c["usage"] for c in obj["containers"]]
        return [obj["metadata"]["name"], _sum(usages, "cpu"), _sum(usages, "memory"), obj["window"]]


def _sum(usages: list[Object], resource: str) -> str:
    from kube.quantity import parse

    total = sum((parse(usage[resource]) for usage in usages), Decimal(0))
    return render(total, "binary" if resource == "memory" else "decimal")
