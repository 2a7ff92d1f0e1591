"""An extension server's discovery document (APIResourceList), as far as this server reads it.

It is another program's answer: it is decoded with its types, so that what is no such document is refused in one place.
"""

from __future__ import annotations

import hashlib

import msgspec
from msgspec import Struct

from kube import value_count

LIMIT = 1 << 20
"""Bytes of a document: five thousand resources of usual length."""
MOST_RESOURCES = 2000
"""Entries of a document, subresources among them. All clients read all of them, and controllers request each resource."""


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


_decoder = msgspec.json.Decoder(DiscoveryDocument)


def read(body: bytes) -> tuple[list[Resource], str]:
    """Return the entries of a document and its digest; raises ValueError for what is none, or one of too many entries."""
    value_count.check_count(body)
    found = _decoder.decode(body).resources or ()
    if len(found) > MOST_RESOURCES:
        raise ValueError(f"more than {MOST_RESOURCES} resources")
    return [entry for entry in found if entry.name], hashlib.sha256(body).hexdigest()
