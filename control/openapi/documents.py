"""Whole OpenAPI documents: one for all in v2, one a group version with an index in v3, each with an ETag.

They only change with the set of resources, so what was made is kept, compressed: some 700 KB for everything.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from control.openapi import definitions, gnostic, paths
from kube.resources import Resource

TITLE = "Kubernetes"
PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""The protobuf form's type as answered. Clients ask for it as `...spec.v2@v1.0+protobuf`, which Go cannot parse back."""


class Documents:
    """The documents for a set of resources."""

    def __init__(self, resources: Sequence[Resource]) -> None:
        self._groups: dict[str, list[Resource]] = {}
        for resource in resources:
            self._groups.setdefault(resource.root.lstrip("/"), []).append(resource)
        self._made: dict[str, bytes] = {}

    def index(self) -> dict[str, Any]:
        """Return the v3 index: group version -> URL with a hash that changes when the document does."""
        urls = {
            root: {"serverRelativeURL": f"/openapi/v3/{root}?hash={self.hash(root)}"} for root in sorted(self._groups)
        }
        return {"paths": urls}

    def hash(self, root: str) -> str:
        """Return the hash of one group version's document, without making it: it follows from its resources."""
        text = repr([definitions.VERSION, *map(repr, self._groups.get(root, ()))])
        return hashlib.sha256(text.encode()).hexdigest().upper()

    def v3(self, root: str) -> bytes | None:
        """Return the document of "api/v1" or "apis/apps/v1" as JSON; None where nothing is served there."""
        if root not in self._groups:
            return None
        return self._kept(root, lambda: msgspec.json.encode(self._v3(root)))

    def v2(self) -> bytes:
        """Return the one v2 document as JSON."""
        return self._kept("v2", lambda: msgspec.json.encode(self._v2()))

    def v2_protobuf(self) -> bytes:
        """Return the v2 document as gnostic's protobuf message."""
        return self._kept("v2 protobuf", lambda: gnostic.document(self._v2()))

    def v2_etag(self) -> str:
        return hashlib.sha256("".join(self.hash(root) for root in sorted(self._groups)).encode()).hexdigest().upper()

    def _kept(self, name: str, make: Callable[[], bytes]) -> bytes:
        if name not in self._made:
            self._made[name] = zlib.compress(make(), 6)
        return zlib.decompress(self._made[name])

    def _v3(self, root: str) -> dict[str, Any]:
        found = definitions.load()
        served: dict[str, Any] = {}
        for resource in self._groups[root]:
            served.update(paths.of(resource, "v3"))
        schemas = {
            n: definitions.convert(n, found[n], "v3") for n in definitions.closure(_names(self._groups[root]), found)
        }
        return {
            "openapi": "3.0.0",
            "info": {"title": TITLE, "version": definitions.VERSION},
            "paths": served,
            "components": {"schemas": schemas},
        }

    def _v2(self) -> dict[str, Any]:
        found = definitions.load()
        every = [resource for group in self._groups.values() for resource in group]
        served: dict[str, Any] = {}
        for resource in every:
            served.update(paths.of(resource, "v2"))
        names = definitions.closure(_names(every), found)
        return {
            "swagger": "2.0",
            "info": {"title": TITLE, "version": definitions.VERSION},
            "paths": served,
            "definitions": {n: definitions.convert(n, found[n], "v2") for n in names},
        }


def _names(resources: Sequence[Resource]) -> list[str]:
    kinds = [paths.definition(resource) for resource in resources]
    extra = [paths.DELETE_OPTIONS, paths.STATUS, paths.PATCH, "io.k8s.api.autoscaling.v1.Scale"]
    return [*kinds, *(f"{kind}List" for kind in kinds), *extra]
