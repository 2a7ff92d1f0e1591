"""Paths of the API that the page may read: a list of what is allowed, and nothing else of the server."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kube.errors import StatusError

RESOURCES = {
    "/api/v1": ("events", "namespaces", "nodes", "pods", "services"),
    "/apis/apps/v1": ("daemonsets", "deployments", "replicasets", "statefulsets"),
    "/apis/batch/v1": ("jobs",),
    "/apis/discovery.k8s.io/v1": ("endpointslices",),
    "/apis/networking.k8s.io/v1": ("networkpolicies",),
}
CLUSTER_SCOPED = ("namespaces", "nodes")
READ = ("continue", "fieldSelector", "labelSelector", "limit", "resourceVersion")
LOG = ("container", "follow", "previous", "tailLines")
LONGEST_VALUE = 4096
NAME = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
"""Pattern of an object's name or a namespace."""
_PATHS = [
    re.compile(
        rf"{re.escape(root)}(?:/namespaces/(?P<namespace>{NAME}))?/(?P<plural>{'|'.join(plurals)})"
        rf"(?:/(?P<name>{NAME})(?P<log>/log)?)?"
    )
    for root, plurals in RESOURCES.items()
]


@dataclass(frozen=True, slots=True)
class Target:
    """A collection, an object or a pod's log."""

    path: str
    log: bool = False
    collection: bool = False


def parse(path: str) -> Target:
    """Return what a path names. Raise StatusError 403 for one that the page does not need."""
    for pattern in _PATHS:
        match = pattern.fullmatch(path)
        if match is None:
            continue
        namespace, plural, name, log = match["namespace"], match["plural"], match["name"], bool(match["log"])
        if namespace and plural in CLUSTER_SCOPED:
            continue
        if log and not (namespace and plural == "pods"):
            continue
        if name and not namespace and plural not in CLUSTER_SCOPED:
            continue
        return Target(path, log, name is None)
    raise StatusError(403, "Forbidden", "the page does not read this path")


def query(target: Target, pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the query of a request. Raise StatusError 400 for a parameter that the page does not need, or a long value."""
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in (LOG if target.log else READ) or name in found or len(value) > LONGEST_VALUE:
            raise StatusError(
                400, "BadRequest", f"the parameter {name[:40]!r} is not allowed here, repeated or too long"
            )
        found[name] = value
    return found
