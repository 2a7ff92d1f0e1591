"""Whole OpenAPI documents: one for all in v2, one a group version with an index in v3, each with an ETag.

They change only with the set of resources; zipped_documents.py keeps them.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from control.custom.definitions import Definitions
from control.openapi import definitions, gnostic, paths, publishing
from control.registry.served import ServedResource
from kube.resources import Resource

TITLE = "Kubernetes"
PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""The protobuf form's type as answered. Clients request it as `...spec.v2@v1.0+protobuf`, which Go cannot parse back."""


class Documents:
    """The documents for a set of resources."""

    def __init__(self, resources: Sequence[Resource]) -> None:
        self._groups: dict[str, list[Resource]] = {}
        for resource in resources:
            self._groups.setdefault(resource.root.lstrip("/"), []).append(resource)
        self._hashes: dict[str, str] = {}
        self._custom: dict[str, list[ServedResource]] = {}
        self._seen = -1

    def follow(self, custom: Definitions) -> set[str]:
        """Take over which custom resources are served; return the group versions that have none any more."""
        if custom.revision == self._seen:
            return set()
        seen, groups = custom.revision, dict[str, list[ServedResource]]()
        for resource in custom.every():  # it may be stopped: nothing has changed yet
            groups.setdefault(resource.root.lstrip("/"), []).append(resource)
        changed = {root for root in groups.keys() | self._custom.keys() if groups.get(root) != self._custom.get(root)}
        self._custom, self._seen = groups, seen
        for root in changed:
            self._hashes.pop(root, None)
        return {root for root in changed if root not in groups}

    def snapshot(self) -> Documents:
        """Return the documents as they are now, whatever `follow` takes over later."""
        return copy.copy(self)

    def _roots(self) -> list[str]:
        return sorted(self._groups.keys() | self._custom.keys())

    def index(self) -> dict[str, Any]:
        """Return the v3 index: group version -> URL with a hash that changes when the document does."""
        urls = {root: {"serverRelativeURL": f"/openapi/v3/{root}?hash={self.hash(root)}"} for root in self._roots()}
        return {"paths": urls}

    def hash(self, root: str) -> str:
        """Return the hash of one group version's document, without making it: it follows from its resources."""
        if (found := self._hashes.get(root)) is not None:
            return found
        more = [publishing.identity(resource) for resource in self._custom.get(root, ())]
        text = repr([definitions.VERSION, *map(repr, self._groups.get(root, ())), *more])
        found = self._hashes[root] = hashlib.sha256(text.encode()).hexdigest().upper()
        return found

    def v3(self, root: str) -> bytes | None:
        """Return the document of "api/v1" or "apis/apps/v1" as JSON; None if nothing is served there."""
        if root not in self._groups and root not in self._custom:
            return None
        return msgspec.json.encode(self._v3(root))

    def v2(self) -> bytes:
        """Return the one v2 document as JSON."""
        return msgspec.json.encode(self._v2())

    def v2_protobuf(self) -> bytes:
        """Return the v2 document as gnostic's protobuf message."""
        return gnostic.document(self._v2())

    def v2_etag(self) -> str:
        return hashlib.sha256("".join(self.hash(root) for root in self._roots()).encode()).hexdigest().upper()

    def _v3(self, root: str) -> dict[str, Any]:
        found = definitions.load()
        served: dict[str, Any] = {}
        built_in, custom = self._groups.get(root, []), self._custom.get(root, [])
        for resource in (*built_in, *custom):
            served.update(paths.of(resource, "v3"))
        names = [*_names(built_in), *(publishing.REFERENCES if custom else ())]
        schemas = {n: definitions.convert(n, found[n], "v3") for n in definitions.closure(names, found)}
        schemas |= publishing.schemas(custom, "v3", found)
        return {
            "openapi": "3.0.0",
            "info": {"title": TITLE, "version": definitions.VERSION},
            "paths": served,
            "components": {"schemas": schemas},
        }

    def _v2(self) -> dict[str, Any]:
        found = definitions.load()
        every = [resource for group in self._groups.values() for resource in group]
        custom = [resource for group in self._custom.values() for resource in group]
        served: dict[str, Any] = {}
        for resource in (*every, *custom):
            served.update(paths.of(resource, "v2"))
        names = definitions.closure([*_names(every), *publishing.REFERENCES], found)
        schemas = {n: definitions.convert(n, found[n], "v2") for n in names}
        schemas |= publishing.schemas(custom, "v2", found)
        return {
            "swagger": "2.0",
            "info": {"title": TITLE, "version": definitions.VERSION},
            "paths": served,
            "definitions": schemas,
        }


def _names(resources: Sequence[Resource]) -> list[str]:
    kinds = [paths.definition(resource) for resource in resources]
    extra = [paths.DELETE_OPTIONS, paths.STATUS, paths.PATCH, "io.k8s.api.autoscaling.v1.Scale"]
    extra += [paths.POSTED[sub][0] for r in resources for sub in r.subresources if sub in paths.POSTED]
    return [*kinds, *(f"{kind}List" for kind in kinds), *extra]
