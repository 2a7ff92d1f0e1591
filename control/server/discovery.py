"""Discovery documents: /api, /apis, a group, a group version, and all of it in one document (aggregated).

The documents follow from the resource table and change only with it, so each is made once; clients ask again with the
ETag they have and get 304 if nothing changed.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable

import msgspec

from control.custom.definitions import Definitions, version_rank
from control.registry.served import served
from control.resource_metrics.objects import RESOURCES as METRICS
from kube.json_object import Object
from kube.resources import RESOURCES, Resource

# Upstream's order of groups in /apis (kube-aggregator's priorities).
_PRIORITY = (
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
)

# What a subresource takes and gives, where that is not its resource's own kind: (group, version, kind), verbs.
_SUBRESOURCES: dict[tuple[str, str], tuple[tuple[str, str, str], tuple[str, ...]]] = {
    ("pods", "binding"): (("", "", "Binding"), ("create",)),
    ("pods", "eviction"): (("policy", "v1", "Eviction"), ("create",)),
    ("pods", "log"): (("", "", "Pod"), ("get",)),
    ("pods", "exec"): (("", "", "PodExecOptions"), ("create", "get")),
    ("pods", "attach"): (("", "", "PodAttachOptions"), ("create", "get")),
    ("pods", "portforward"): (("", "", "PodPortForwardOptions"), ("create", "get")),
    ("pods", "proxy"): (("", "", "PodProxyOptions"), ("create", "delete", "get", "patch", "update")),
    ("pods", "ephemeralcontainers"): (("", "", "Pod"), ("get", "patch", "update")),
    ("pods", "resize"): (("", "", "Pod"), ("get", "patch", "update")),
    ("services", "proxy"): (("", "", "ServiceProxyOptions"), ("create", "delete", "get", "patch", "update")),
    ("nodes", "proxy"): (("", "", "NodeProxyOptions"), ("create", "delete", "get", "patch", "update")),
    ("serviceaccounts", "token"): (("authentication.k8s.io", "v1", "TokenRequest"), ("create",)),
    ("namespaces", "finalize"): (("", "", "Namespace"), ("update",)),
}
_SCALE = (("autoscaling", "v1", "Scale"), ("get", "patch", "update"))
_PLAIN = ("get", "patch", "update")
_SINGULARS = {"endpoints": "endpoints"}


def subresource(resource: Resource, name: str) -> tuple[tuple[str, str, str], tuple[str, ...]]:
    """Return the (group, version, kind) and the verbs of a subresource; empty group and version mean the parent's."""
    if name == "scale":
        return _SCALE
    return _SUBRESOURCES.get((resource.target, name), (("", "", resource.kind), _PLAIN))


def storage_hash(resource: Resource) -> str:
    """Return upstream's storageVersionHash: eight bytes of a digest of group, version and kind."""
    version = served(resource).stored_version
    text = f"{resource.group}/{version}/{resource.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


class Discovery:
    """All documents for a set of resources, encoded."""

    def __init__(
        self, resources: Iterable[Resource] = (*RESOURCES, *METRICS), custom: Definitions | None = None
    ) -> None:
        self.resources = tuple(resources)
        """The built-in ones."""
        self._built_in: dict[tuple[str, str], list[Resource]] = {}
        for resource in self.resources:
            self._built_in.setdefault((resource.group, resource.version), []).append(resource)
        self.custom, self._seen = custom, -1
        self._by_version = self._built_in
        self._documents: dict[str, tuple[bytes, str]] = {}

    async def prepare(self) -> None:
        """Prepare what `by_version` reads."""
        if self.custom is not None:
            await self.custom.prepare()

    @property
    def by_version(self) -> dict[tuple[str, str], list[Resource]]:
        """All resources by group and version, custom ones behind the built-in ones."""
        if self.custom is not None and self.custom.revision != self._seen:
            seen, custom = self.custom.revision, self.custom.every()  # which may be stopped: nothing has changed yet
            found = {place: list(resources) for place, resources in self._built_in.items()}
            added: dict[tuple[str, str], list[Resource]] = {}
            for resource in custom:
                place = (resource.group, resource.version)
                (found if place in found else added).setdefault(place, []).append(resource)
            for place in sorted(added, key=lambda p: (p[0], version_rank(p[1]))):
                found[place] = added[place]
            self._documents.clear()
            self._by_version, self._seen = found, seen
        return self._by_version

    def groups(self) -> dict[str, list[str]]:
        """Return the groups and their versions, most preferred first."""
        found: dict[str, list[str]] = {}
        for group, version in self.by_version:
            if group:
                found.setdefault(group, []).append(version)
        return dict(sorted(found.items(), key=lambda item: _rank(item[0])))

    def document(self, path: str, aggregated: str = "") -> tuple[bytes, str] | None:
        """Return a document and its ETag, None if nothing is there. `aggregated`: "", "v2" or "v2beta1"."""
        path = "/" + path.strip("/")  # each spelling of a path is one document
        key = f"{path}#{aggregated}"
        _ = self.by_version  # forgets documents that are no longer true
        if key not in self._documents:
            made = self._make(path, aggregated)
            if made is None:
                return None
            data = msgspec.json.encode(made)
            self._documents[key] = data, f'"{hashlib.sha512(data).hexdigest().upper()}"'
        return self._documents[key]

    def _make(self, path: str, aggregated: str) -> Object | None:
        if aggregated and path in ("/api", "/apis"):
            return self._aggregated(core=path == "/api", version=aggregated)
        parts = path.strip("/").split("/")
        if path == "/api":
            clients = [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}]
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": clients}
        if path == "/apis":
            groups = [self._group(group, versions) for group, versions in self.groups().items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        if parts[0] == "api" and len(parts) == 2 and ("", parts[1]) in self.by_version:
            return self._version("", parts[1])
        if parts[0] == "apis" and len(parts) == 2 and parts[1] in self.groups():
            return {"kind": "APIGroup", "apiVersion": "v1", **self._group(parts[1], self.groups()[parts[1]])}
        if parts[0] == "apis" and len(parts) == 3 and (parts[1], parts[2]) in self.by_version:
            return self._version(parts[1], parts[2])
        return None

    def _group(self, group: str, versions: list[str]) -> Object:
        served = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
        return {"name": group, "versions": served, "preferredVersion": served[0]}

    def _version(self, group: str, version: str) -> Object:
        shown = []
        for resource in sorted(self.by_version[group, version], key=lambda r: r.plural):
            entry: Object = {
                "name": resource.plural,
                "singularName": _SINGULARS.get(resource.target, resource.singular),
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": sorted(resource.verbs),
            }
            if resource.short_names:
                entry["shortNames"] = list(resource.short_names)
            if resource.categories:
                entry["categories"] = list(resource.categories)
            if "get" in resource.verbs and "create" in resource.verbs:
                entry["storageVersionHash"] = storage_hash(resource)
            shown.append(entry)
            for name in sorted(resource.subresources):
                (sub_group, sub_version, kind), verbs = subresource(resource, name)
                part: Object = {
                    "name": f"{resource.plural}/{name}",
                    "singularName": "",
                    "namespaced": resource.namespaced,
                }
                if sub_version:
                    part |= {"group": sub_group, "version": sub_version}
                shown.append(part | {"kind": kind, "verbs": sorted(verbs)})
        api_version = f"{group}/{version}" if group else version
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": shown}

    def _aggregated(self, *, core: bool, version: str) -> Object:
        groups = {"": ["v1"]} if core else self.groups()
        items = []
        for group, versions in groups.items():
            shown = [
                {
                    "version": v,
                    "resources": [
                        self._discovered(r) for r in sorted(self.by_version[group, v], key=lambda r: r.plural)
                    ],
                    "freshness": "Current",
                }
                for v in versions
            ]
            items.append({"metadata": {"name": group} if group else {}, "versions": shown})
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": f"apidiscovery.k8s.io/{version}",
            "metadata": {},
            "items": items,
        }

    def _discovered(self, resource: Resource) -> Object:
        gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        entry: Object = {
            "resource": resource.plural,
            "responseKind": gvk,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "singularResource": _SINGULARS.get(resource.target, resource.singular),
            "verbs": sorted(resource.verbs),
        }
        if resource.short_names:
            entry["shortNames"] = list(resource.short_names)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        if resource.subresources:
            entry["subresources"] = []
            for name in sorted(resource.subresources):
                (group, version, kind), verbs = subresource(resource, name)
                shown = {"group": group, "version": version} if version else {k: gvk[k] for k in ("group", "version")}
                entry["subresources"].append(
                    {"subresource": name, "responseKind": shown | {"kind": kind}, "verbs": sorted(verbs)}
                )
        return entry


def _rank(group: str) -> int:
    return _PRIORITY.index(group) if group in _PRIORITY else len(_PRIORITY)
