"""Merges discovery and OpenAPI documents of extension API servers into those of this server.

The local documents are generated elsewhere; here they are decoded, completed and encoded again, only if there are extensions.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from control.aggregation.discovery_document import Resource
from control.aggregation.remote import Remote
from kube.json_object import Object


class ServedVersion(msgspec.Struct, frozen=True):
    """State of an extension as discovery shows it, at the time of a request: documents are built in a thread."""

    place: tuple[str, str]
    current: bool
    """The server is available, and the resources are those of its discovery document."""
    resources: Sequence[Resource]
    digest: str
    """Digest of the document that the resources are from."""

    @classmethod
    def of(cls, remote: Remote) -> ServedVersion:
        return cls(remote.place, remote.available and bool(remote.digest), remote.resources, remote.digest)


def groups(document: Object, remotes: Sequence[ServedVersion]) -> Object:
    """Complete an APIGroupList. Extensions' groups follow the local ones, their versions the local versions."""
    found = {group["name"]: group for group in document.get("groups") or ()}
    for remote in remotes:
        name, version = remote.place
        served = {"groupVersion": f"{name}/{version}", "version": version}
        group = found.setdefault(name, {"name": name, "versions": [], "preferredVersion": served})
        if served not in group["versions"]:
            group["versions"] = [*group["versions"], served]
    return {**document, "groups": list(found.values())}


def group(document: Object | None, name: str, remotes: Sequence[Remote]) -> Object | None:
    """Complete or create an APIGroup; None if no server serves it."""
    local = [document] if document is not None else []
    shown = groups({"groups": local}, [ServedVersion.of(r) for r in remotes if r.place[0] == name])["groups"]
    return {"kind": "APIGroup", "apiVersion": "v1", **shown[0]} if shown else None


def aggregated(document: Object, remotes: Sequence[ServedVersion]) -> Object:
    """Complete an APIGroupDiscoveryList from the extensions' last discovery documents."""
    items = {item["metadata"].get("name", ""): item for item in document.get("items") or ()}
    for remote in remotes:
        name, version = remote.place
        item = items.setdefault(name, {"metadata": {"name": name}, "versions": []})
        shown = {
            "version": version,
            "resources": discovered(remote),
            "freshness": "Current" if remote.current else "Stale",
        }
        others = [v for v in item["versions"] if v["version"] != version]
        item["versions"] = [*others, shown]
    return {**document, "items": list(items.values())}


def discovered(remote: ServedVersion) -> list[Object]:
    """Return an APIResourceList's entries in the form of aggregated discovery."""
    group_name, version = remote.place
    found: dict[str, Object] = {}
    for entry in remote.resources:
        name, _, subresource = (entry.name or "").partition("/")
        kind = {
            "group": entry.group or group_name,
            "version": entry.version or version,
            "kind": entry.kind or "",
        }
        if subresource:
            parent = found.get(name)
            if parent is not None:
                part = {"subresource": subresource, "responseKind": kind, "verbs": entry.verbs or []}
                parent.setdefault("subresources", []).append(part)
            continue
        shown: Object = {
            "resource": name,
            "responseKind": kind,
            "scope": "Namespaced" if entry.namespaced else "Cluster",
            "singularResource": entry.singular_name or "",
            "verbs": entry.verbs or [],
        }
        if entry.short_names:
            shown["shortNames"] = entry.short_names
        if entry.categories:
            shown["categories"] = entry.categories
        found[name] = shown
    return list(found.values())


def openapi(document: Object, remotes: Sequence[Remote]) -> Object:
    """Complete the index of OpenAPI v3 documents."""
    paths = dict(document.get("paths") or {})
    for remote in remotes:
        if remote.openapi:
            paths["apis/" + "/".join(remote.place)] = {"serverRelativeURL": remote.openapi}
    return {**document, "paths": paths}
