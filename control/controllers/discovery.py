"""Discovery of a server's resources, for controllers that treat all kinds alike (namespaces, garbage collection).

Aggregated discovery: two requests return all. Each resource is used in the first version that its group lists, which is
the one that the server prefers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from kube.client import Client
from kube.resources import segment

_ACCEPT = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
ONE_OBJECT_BYTES = 4 << 20
"""The longest answer that has one object: extension servers may send more."""
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
"""Accept of a list of which the metadata alone are wanted, where the server has that form."""


@dataclass(frozen=True, slots=True)
class DiscoveredResource:
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
        """Return the URL path of the collection or of one object; 400 for a name that no path can contain."""
        place = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{self.root}{place}/{self.plural}" + (f"/{segment(name)}" if name else "")


async def served(client: Client) -> tuple[list[DiscoveredResource], list[str]]:
    """Return the resources of the server, and the group versions whose discovery failed (stale)."""
    found: dict[tuple[str, str], DiscoveredResource] = {}
    stale: list[str] = []
    for root in ("/api", "/apis"):
        listing: dict[str, Any] = msgspec.json.decode(await client.call("GET", root, accept=_ACCEPT))
        for item in listing.get("items") or ():
            group = item.get("metadata", {}).get("name", "")
            for version in item.get("versions") or ():
                if version.get("freshness") == "Stale":
                    stale.append(f"{group}/{version['version']}")
                for resource in version.get("resources") or ():
                    kind = resource.get("responseKind", {}).get("kind", "")
                    found.setdefault(
                        (group, resource["resource"]),
                        DiscoveredResource(
                            group,
                            version["version"],
                            resource["resource"],
                            kind,
                            resource.get("scope") == "Namespaced",
                            frozenset(resource.get("verbs") or ()),
                        ),
                    )
    return list(found.values()), stale
