"""An extension server's discovery document (APIResourceList), as far as this server reads it.

It is another program's answer: it is decoded with its types, so that what is no such document is refused in one place.
"""

from __future__ import annotations

from msgspec import Struct


class Resource(Struct, frozen=True, rename="camel"):
    """An APIResource: "flunders", or "flunders/status" for a subresource."""

    name: str | None = None
    singular_name: str | None = None
    namespaced: bool | None = None
    group: str | None = None
    version: str | None = None
    kind: str | None = None
    verbs: list[str] | None = None
    short_names: list[str] | None = None
    categories: list[str] | None = None


class DiscoveryDocument(Struct, frozen=True):
    """An APIResourceList."""

    resources: list[Resource] | None = None
