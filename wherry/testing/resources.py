"""The server's resources by the names that people use: `deploy`, `deployments.apps`, `Deployment`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from kube import resources
from kube.client import Client
from kube.errors import StatusError
from wherry.testing.errors import ClusterError


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of the server."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of an object, or of all in a namespace (empty: in all)."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [self.plural, *([name] if name else []), *([subresource] if subresource else [])]
        return "/" + "/".join(quote(part, safe="") for part in parts)


class Resources:
    """Lookup of resources: built-in ones from the table, others from the server's definitions, which are read when needed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._custom: list[tuple[Resource, frozenset[str]]] = []

    async def of_kind(self, api_version: str, kind: str) -> Resource:
        """Return the resource of objects of a kind. Raise ClusterError if the server has none."""
        for built_in in resources.RESOURCES:
            if built_in.kind == kind and _api_version(built_in) == api_version:
                return _resource(built_in)
        for attempt in range(2):
            for resource, _ in self._custom:
                if (resource.api_version, resource.kind) == (api_version, kind):
                    return resource
            if not attempt:
                await self._read()
        raise ClusterError(f"no kind {kind} in {api_version}: is its CustomResourceDefinition applied and established?")

    async def named(self, text: str) -> Resource:
        """Return the resource of a name in any of kubectl's forms. Raise ClusterError if there is none."""
        wanted, _, group = text.lower().partition(".")
        for built_in in resources.RESOURCES:
            names = {built_in.plural, built_in.singular, *built_in.short_names}
            if wanted in names and group in ("", built_in.group):
                return _resource(built_in)
        for attempt in range(2):
            for resource, known in self._custom:
                if wanted in known and group in ("", resource.group):
                    return resource
            if not attempt:
                await self._read()
        raise ClusterError(f"no resource {text!r}")

    async def _read(self) -> None:
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        try:
            found: dict[str, Any] = msgspec.json.decode(await self._client.call("GET", path))
        except StatusError as error:
            raise ClusterError(f"the definitions cannot be read: {error}") from error
        self._custom = [
            (
                Resource(
                    each["spec"]["group"],
                    version["name"],
                    names["plural"],
                    names["kind"],
                    each["spec"]["scope"] == "Namespaced",
                ),
                frozenset(
                    {names["plural"], names.get("singular", ""), names["kind"].lower(), *names.get("shortNames", ())}
                ),
            )
            for each in found["items"]
            for names in (each["spec"]["names"],)
            for version in sorted(each["spec"]["versions"], key=lambda v: not v["storage"])
            if version["served"]
        ]


def _api_version(built_in: resources.Resource) -> str:
    return f"{built_in.group}/{built_in.version}" if built_in.group else built_in.version


def _resource(built_in: resources.Resource) -> Resource:
    return Resource(built_in.group, built_in.version, built_in.plural, built_in.kind, built_in.namespaced)
