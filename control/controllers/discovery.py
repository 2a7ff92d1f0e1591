"""Discovery of a server's resources, for controllers that treat all kinds alike (namespaces, garbage collection).

Aggregated discovery: two requests return all. Each resource is used in the first version that its group lists, which is
the one that the server prefers.
"""

from __future__ import annotations

import msgspec

from kube.client import Client, answered, decoded
from kube.errors import StatusError
from kube.resources import segment

_ACCEPT = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
ONE_OBJECT_BYTES = 4 << 20
"""The longest answer that has one object: extension servers may send more."""
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
"""Accept of a list of which the metadata alone are wanted, where the server has that form."""


class DiscoveredResource(msgspec.Struct, frozen=True):
    """One resource of the server in its preferred version."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    verbs: frozenset[str]

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def target(self) -> str:
        """Name in messages: "pods", "deployments.apps"."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "") -> str:
        """Return the URL path of the collection or of one object; 400 for names that no path can contain."""
        place = f"/namespaces/{segment(namespace)}" if self.namespaced and namespace else ""
        return f"{self.root}{place}/{self.plural}" + (f"/{segment(name)}" if name else "")


class _Kind(msgspec.Struct):
    kind: str = ""


class _Resource(msgspec.Struct, rename="camel"):
    resource: str
    response_kind: _Kind | None = None
    scope: str = ""
    verbs: list[str] | None = None


class _Version(msgspec.Struct):
    version: str
    resources: list[_Resource] | None = None
    freshness: str = ""


class _Metadata(msgspec.Struct):
    name: str = ""


class _Group(msgspec.Struct):
    metadata: _Metadata | None = None
    versions: list[_Version] | None = None


class _Groups(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


async def served(client: Client, *, every_version: bool = False) -> tuple[list[DiscoveredResource], list[str]]:
    """Return the resources of the server, and the group versions whose discovery failed (stale); raises StatusError.

    A server or gateway that does not know aggregated discovery answers with another document, which is an error.
    With `every_version` resources in other versions than the preferred one come, too, after it.
    """
    found: dict[tuple[str, str, str], DiscoveredResource] = {}
    stale: list[str] = []
    for root in ("/api", "/apis"):
        groups = answered(await client.call("GET", root, accept=_ACCEPT), _Groups, root)
        if groups.items is None:
            # What is served is unknown: a namespace would seem empty, and the objects of all owners gone.
            raise StatusError(502, "", f"the answer to GET {root} is no aggregated discovery document")
        async for each in decoded(groups.items, _Group, root):
            group = each.metadata.name if each.metadata is not None else ""
            for version in each.versions or ():
                if version.freshness == "Stale":
                    stale.append(f"{group}/{version.version}")
                for resource in version.resources or ():
                    key = group, resource.resource, version.version if every_version else ""
                    if key not in found:
                        found[key] = _discovered(group, version.version, resource)
    return list(found.values()), stale


def _discovered(group: str, version: str, found: _Resource) -> DiscoveredResource:
    kind = found.response_kind.kind if found.response_kind is not None else ""
    verbs = frozenset(found.verbs or ())
    return DiscoveredResource(group, version, found.resource, kind, found.scope == "Namespaced", verbs)
