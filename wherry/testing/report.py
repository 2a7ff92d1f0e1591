"""The state of a cluster as text, for the report of a test that failed."""

from __future__ import annotations

from kube.json_object import Object
from wherry.testing.cluster import Cluster
from wherry.testing.conditions import described
from wherry.testing.errors import ClusterError

KINDS = tuple(
    "deployments statefulsets daemonsets replicasets jobs cronjobs services persistentvolumeclaims pods".split()
)
MOST_LINES, MOST_EVENTS = 60, 40


def text(cluster: Cluster, namespace: str = "") -> str:
    """Return objects with their states and the newest events of a namespace, or of all but the system's."""
    lines: list[str] = []
    try:
        for kind in KINDS:
            lines += [_line(kind, obj) for obj in _of_tests(cluster.list(kind, namespace=namespace))]
        if len(lines) > MOST_LINES:
            lines[MOST_LINES:] = [f"... and {len(lines) - MOST_LINES} more objects"]
        nodes = [node for node in cluster.list("nodes", namespace="") if not _ready(node)]
        lines += [_line("nodes", node) for node in nodes]
        lines += ["", "events:"]
        events = sorted(_of_tests(cluster.list("events", namespace=namespace)), key=_time)
        lines += [_event(event) for event in events[-MOST_EVENTS:]]
    except ClusterError as error:
        lines.append(f"the cluster cannot be read: {error}")
    return "\n".join(lines)


def _of_tests(objects: list[Object]) -> list[Object]:
    return [each for each in objects if not str(each["metadata"].get("namespace", "")).startswith("kube-")]


def _line(kind: str, obj: Object) -> str:
    metadata = obj["metadata"]
    place = f"{metadata['namespace']}/" if "namespace" in metadata else ""
    going = "being deleted, " if metadata.get("deletionTimestamp") else ""
    return f"{kind} {place}{metadata['name']}: {going}{described(obj)}"


def _ready(node: Object) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _time(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")


def _event(event: Object) -> str:
    about = event.get("involvedObject") or {}
    count = f" (x{event['count']})" if event.get("count", 1) > 1 else ""
    what = f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"
    return f"{_time(event)} {event.get('type')} {event.get('reason')} {what}: {event.get('message', '')}{count}"
