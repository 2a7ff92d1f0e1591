"""All objects of a cluster, as its API returns them, and their comparison over an upgrade.

They are read in each served version, so that a version that is no longer served is found too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.support.cluster import Cluster

CHANGING = {"events", "leases", "jobs", "certificatesigningrequests"}
"""Resources with objects that come, go or change while nothing else does."""
MEASURED = {"cronjobs", "horizontalpodautoscalers", "nodes", "resourcequotas"}
"""Resources whose status contains times of reports or measurements."""
REWRITTEN = {"kube-system", "kube-public", "kube-node-lease"}
"""Namespaces whose objects an upgrade may rewrite."""
RECONCILED = {"clusterroles", "clusterrolebindings", "flowschemas", "prioritylevelconfigurations", "apiservices"}
"""Resources whose default objects an upgrade may rewrite."""

Key = tuple[str, str, str]
"""Path of the resource, namespace, name."""


def read(cluster: Cluster) -> dict[Key, dict[str, Any]]:
    """Return all objects that can be listed, without pods of Jobs, which end."""
    found: dict[Key, dict[str, Any]] = {}
    for path in _paths(cluster):
        for item in json.loads(cluster.kubectl("get", "--raw", path).stdout).get("items") or []:
            metadata = item["metadata"]
            if not any(owner["kind"] == "Job" for owner in metadata.get("ownerReferences", ())):
                found[path, metadata.get("namespace", ""), metadata["name"]] = item
    return found


def _paths(cluster: Cluster) -> Iterator[str]:
    groups = json.loads(cluster.kubectl("get", "--raw", "/apis").stdout)["groups"]
    roots = ["/api/v1", *(f"/apis/{v['groupVersion']}" for group in groups for v in group["versions"])]
    for root in roots:
        for each in json.loads(cluster.kubectl("get", "--raw", root).stdout)["resources"]:
            if "list" in each["verbs"] and "watch" in each["verbs"] and each["name"] not in CHANGING:
                yield f"{root}/{each['name']}"


def differences(before: dict[Key, dict[str, Any]], after: dict[Key, dict[str, Any]]) -> list[str]:
    """Return what an upgrade lost or changed; fields that it adds are allowed."""
    found = []
    for key, old in before.items():
        path, namespace, _ = key
        name = " ".join(key)
        if key not in after:
            found.append(f"{name}: lost")
        elif namespace not in REWRITTEN and (resource := path.rpartition("/")[2]) not in RECONCILED:
            found += _changed(_stable(old, resource), _stable(after[key], resource), name)
    return found


def _stable(item: dict[str, Any], resource: str) -> dict[str, Any]:
    """Return an object without what changes by itself: times and revisions of writes, and measurements."""
    metadata = {k: v for k, v in item["metadata"].items() if k not in ("resourceVersion", "managedFields")}
    if resource in MEASURED:
        metadata.pop("annotations", None)  # autoscaling/v1 has measurements there
    return {k: v for k, v in item.items() if k != "status" or resource not in MEASURED} | {"metadata": metadata}


def _changed(old: Any, new: Any, where: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            if key not in new:
                yield f"{where}.{key}: was {value!r}, is gone"
            else:
                yield from _changed(value, new[key], f"{where}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (value, now) in enumerate(zip(old, new, strict=True)):
            yield from _changed(value, now, f"{where}[{number}]")
    elif old != new:
        yield f"{where}: was {old!r}, is {new!r}"
